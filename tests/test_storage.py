"""A file is whole or not there, whatever happens while it is written."""

import errno
import gzip
import os
from pathlib import Path

import matplotlib.figure
import platformdirs
import pytest

from coresetvi.data.files import write_table
from coresetvi.errors import InputError
from coresetvi.export.rows import write_text
from coresetvi.plots.figures import save_figure
from coresetvi.storage import cache_folder, whole_file, write_file


def entries(folder):
    return sorted(entry.name for entry in folder.rglob("*"))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "b.v1.tar.gz", "noending", ".hidden"])
def test_the_staging_path_is_a_hidden_sibling_with_the_same_ending(tmp_path, name):
    with whole_file(tmp_path / "deep" / "er" / name) as staging:
        assert staging.parent == tmp_path / "deep" / "er" and staging.name.startswith(".")
        assert staging.suffixes[-2:] == Path(name).suffixes[-2:] and not staging.exists()
        staging.write_bytes(b"new")
        assert not (tmp_path / "deep" / "er" / name).exists()
    assert entries(tmp_path) == sorted(["deep", "er", name])
    assert (tmp_path / "deep" / "er" / name).read_bytes() == b"new"


def test_a_file_is_on_the_disk_before_it_is_renamed_and_the_rename_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        calls.append(os.readlink(f"/proc/self/fd/{descriptor}") if os.path.isdir("/proc/self/fd") else "")
        fsync(descriptor)

    def watched_replace(source, target):
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    write_file(tmp_path / "a.txt", b"new")
    assert len(calls) == 3 and calls[1] == "rename"
    if calls[0]:
        assert calls[0].endswith(".txt") and calls[2] == str(tmp_path.resolve())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug"), OSError(errno.EIO, "broken")])
def test_what_stops_the_writer_leaves_the_old_file(tmp_path, error):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(type(error) if not isinstance(error, OSError) else InputError) as caught:
        with whole_file(tmp_path / "a.txt") as staging:
            staging.write_text("half")
            raise error
    assert entries(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"
    if isinstance(error, OSError):
        assert str(caught.value) == (
            f"{tmp_path / 'a.txt'} cannot be written (broken); "
            "choose a place that you may write to, on a disk with room"
        )


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a.txt").write_text("old")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(InputError, match=r"a\.txt cannot be written \(No space left on device\); choose"):
        write_file(tmp_path / "a.txt", b"new")
    assert entries(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"


def test_a_link_stays_and_what_it_points_at_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "real.txt")
    write_file(tmp_path / "link.txt", b"new")
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "there" / "real.txt").read_text() == "new"
    assert entries(tmp_path) == ["link.txt", "real.txt", "there"]


WRITERS = {
    "table.csv": lambda path: write_table(path, {"a": [1, 2]}, overwrite=True),
    "table.CSV.GZ": lambda path: write_table(path, {"a": [1, 2]}, overwrite=True),
    "table.parquet": lambda path: write_table(path, {"a": [1, 2]}, overwrite=True),
    "text.py": lambda path: write_text(path, "print()\n", overwrite=True),
    "picture.png": lambda path: save_figure(matplotlib.figure.Figure(figsize=(1, 1)), path),
    "bytes": lambda path: write_file(path, b"new"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_all_who_write_files_write_them_whole(tmp_path, monkeypatch, name):
    path = tmp_path / "new" / name
    WRITERS[name](path)
    written = path.read_bytes()
    assert written and entries(tmp_path) == sorted(["new", name])
    path.write_text("old")

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", broken)
    sentence = r"cannot be written \(Input/output error\); choose a place that you may write to"
    with pytest.raises(InputError, match=sentence):
        WRITERS[name](path)
    assert path.read_text() == "old" and entries(tmp_path) == sorted(["new", name])


def test_a_table_is_packed_whatever_the_case_of_its_ending(tmp_path):
    WRITERS["table.CSV.GZ"](tmp_path / "table.CSV.GZ")
    assert gzip.decompress((tmp_path / "table.CSV.GZ").read_bytes()) == b'"a"\n1\n2\n'


def test_the_cache_is_where_the_user_wants_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "coresetvi"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder().is_relative_to(tmp_path / "home") and cache_folder().name == "coresetvi"


def test_without_a_home_there_is_no_cache(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    # As for a user that the system does not know, and older versions of platformdirs.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/coresetvi"))
    with pytest.raises(RuntimeError):
        cache_folder()
