"""Files and directories that are whole or not there at all, and on the disk when they say so."""

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs

from .errors import ArtefactError, InputError

ARRAYS_FILE = "arrays.safetensors"
DOCUMENT_FILE = "fit.json"
RESTORE = "restore it from a copy or save it again"

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def whole_file(path: PathLike) -> Iterator[Path]:
    """A path to write to, which becomes `path` when the block ends well; otherwise what there was stays.

    It lies beside `path` and ends as `path` does, for writers that choose a format by the ending. Folders
    above `path` are made. If `path` is a link, the link stays and what it points at is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(f"{folder}/new/notes.txt") as staging:
    ...         _ = staging.write_text("whole")
    ...     Path(f"{folder}/new/notes.txt").read_text()
    'whole'
    """
    target = Path(os.path.realpath(path))
    staging = target.with_name(f".{uuid.uuid4().hex}{''.join(target.suffixes[-2:])}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield staging
        _sync_file(staging)
        os.replace(staging, target)
        _sync_directory(target.parent)
    except OSError as error:
        raise InputError(unwritable(path, error, "place")) from error
    finally:
        with contextlib.suppress(OSError):
            staging.unlink()


def write_file(path: PathLike, content: bytes) -> None:
    """Write a file whole, or leave what there was."""
    with whole_file(path) as staging:
        staging.write_bytes(content)


def replace_directory(path: PathLike, files: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Write a directory of `files`, by name, whole or not at all; at every moment old or new can be read."""
    target = Path(os.path.realpath(path))  # a link stays; what it points at is replaced
    staging = target.with_name(f".{target.name}.coresetvi-{uuid.uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
        for name, content in files.items():
            (staging / name).write_bytes(content)
            _sync_file(staging / name)
        _sync_directory(staging)
        _install(staging, target, overwrite)
    except OSError as error:
        raise ArtefactError(unwritable(path, error, "directory")) from error
    finally:
        remove(staging)


def unwritable(path: PathLike, error: OSError, place: str) -> str:
    """The sentence for a `place` ("directory", say) that cannot be written to."""
    reason = error.strerror or " ".join(str(error).split())
    return f"{path} cannot be written ({reason}); choose a {place} that you may write to, on a disk with room"


def aside(target: Path) -> Path:
    """Where a directory waits while its successor moves in: a fixed name, so that a reader can find it."""
    return target.parent / f".{target.name}.coresetvi-old"


def remove(directory: Path) -> None:
    """Delete a saved fit or checkpoint, and no directory that holds anything else."""
    # By name, not the whole tree: nothing but our own two files is ever deleted.
    with contextlib.suppress(OSError):
        for name in (ARRAYS_FILE, DOCUMENT_FILE):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def read_file(file: Path) -> bytes:
    """What a file of a saved fit holds."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"{file} cannot be read ({error.strerror}); check the path, or {RESTORE}"
        ) from error


def cache_folder() -> Path:
    """Where this user keeps what can be made or fetched again; `RuntimeError` if there is no such place."""
    if given := os.environ.get("XDG_CACHE_HOME"):  # not every system looks at it
        return Path(given) / "coresetvi"
    # Without a home, the path starts with a "~" that must not become a folder.
    return platformdirs.user_cache_path("coresetvi", appauthor=False).expanduser()


def _install(staging: Path, target: Path, overwrite: bool) -> None:
    """Put `staging` in the place of `target`."""
    old = aside(target)
    try:
        if os.path.isdir(target) and not os.listdir(target):
            target.rmdir()  # Windows does not rename onto a directory, not even an empty one
        elif overwrite and os.path.isdir(target):
            remove(old)  # left by a crash after an earlier replacement: out of date
            os.replace(target, old)
        os.replace(staging, target)
    except BaseException:
        if old.is_dir() and not os.path.exists(target):
            os.replace(old, target)
        raise
    _sync_directory(target.parent)
    remove(old)


def _sync_file(file: Path) -> None:
    with open(file, "rb+") as stream:
        os.fsync(stream.fileno())


def _sync_directory(directory: Path) -> None:
    # So that a rename survives a power cut. Windows and some network disks cannot do it.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
