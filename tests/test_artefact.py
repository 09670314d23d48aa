"""Artefacts: what is written comes back bit for bit; everything else is refused in one sentence."""

import errno
import hashlib
import json
import math
import os
import pickle
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from coresetvi._json import checksum
from coresetvi.errors import ArtefactError, InputError
from coresetvi.fitting import artefact
from coresetvi.fitting.artefact import ARRAYS_FILE, DOCUMENT_FILE, check_target, provenance, read, write

OLD = {"x": np.arange(3.0)}
NEW = {"x": np.arange(5.0)}


@pytest.fixture
def saved(tmp_path):
    return write(tmp_path / "fitted", OLD, {"loss": 0.25, "steps": 7}, kind="fit")


def refused(words, call, *arguments, **options):
    """The call is refused with one sentence that contains `words`."""
    with pytest.raises(ArtefactError, match=words) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value), "a culprit and a remedy"


def entries(folder):
    return sorted(entry.name for entry in folder.iterdir())


def rewrite_json(path, change, *, resign=False):
    """Edit fit.json; with `resign`, as somebody would who knows the checksum."""
    file = path / DOCUMENT_FILE
    envelope = json.loads(file.read_text())
    change(envelope)
    if resign:
        envelope.pop("sha256", None)
        envelope["sha256"] = checksum(envelope)
    file.write_text(json.dumps(envelope))


# --- round trips ---------------------------------------------------------------------------------

SPECIAL = [math.nan, -0.0, math.inf, -math.inf, 5e-324, 1e-40, 1.0]
ARRAYS = {
    "float64": np.array(SPECIAL),
    "float32": np.array(SPECIAL, dtype=np.float32),
    "float32 nan payload": np.array([0x7FC12345, 0xFF812345], dtype=np.uint32).view(np.float32),
    "float16": np.array([1.0, 65504.0], dtype=np.float16),
    "int32": np.array([-(2**31), 2**31 - 1], dtype=np.int32),
    "uint32": np.array([0, 2**32 - 1], dtype=np.uint32),
    "int64": np.array([-(2**63), 2**63 - 1]),
    "bool": np.array([[True], [False]]),
    "zero-dimensional": np.array(2.5),
    "numpy scalar": np.float32(0.1),
    "Python float": 0.1,
    "Python int": 3,
    "Python bool": True,
    "empty": np.zeros((0, 3), dtype=np.float32),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "strided": np.arange(10)[::-3],
    "big-endian": np.array([1, 2, 3], dtype=">i4"),
    "jax": jnp.arange(4, dtype=jnp.float32).reshape(2, 2),
    "jax scalar": jnp.uint32(7),
    "key data": jax.random.key_data(jax.random.key(3)),
    "nested/name with ü": np.ones(1),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_bit_for_bit(tmp_path, name):
    expected = np.asarray(ARRAYS[name])
    back, _ = read(write(tmp_path / "a", {name: ARRAYS[name]}, {}, kind="fit"), kind="fit")
    assert back[name].shape == expected.shape
    assert back[name].dtype == expected.dtype.newbyteorder("=")
    native = expected.astype(expected.dtype.newbyteorder("="))
    assert back[name].tobytes() == native.tobytes()


def test_all_arrays_together_keep_their_order(tmp_path):
    back, _ = read(write(tmp_path / "a", ARRAYS, {}, kind="checkpoint"), kind="checkpoint")
    assert list(back) == list(ARRAYS)


def test_no_arrays_and_none_are_fine(tmp_path):
    back, document = read(write(tmp_path / "a", {"absent": None}, {}, kind="fit"), kind="fit")
    assert (back, document) == ({}, {})


@pytest.mark.parametrize(
    "document",
    [
        {"text": 'ü € 😀 \n " \\ \u2028', "none": None, "flag": True, "int": 2**70, "float": 0.1},
        {"inf": [math.inf, -math.inf], "nested": {"a": [{"b": [[]]}, {}]}},
        {"float": "nan"},
        {"float": math.inf},
        {"a": {"float": "inf"}, "b": {"float": 1.5}, "c": {"float": ["x"]}},
        {"a": {"literal": {"float": "nan"}}, "b": {"literal": 3}},
        {"literal": {"literal": {"literal": math.inf}}},
        {"file name that is not UTF-8": "data-\udcff.csv"},
    ],
)
def test_documents_come_back_equal(tmp_path, document):
    path = write(tmp_path / "a", {}, document, kind="fit")
    assert read(path, kind="fit")[1] == document
    text = (path / DOCUMENT_FILE).read_bytes().decode("utf-8")

    def not_strict(literal):
        raise AssertionError(literal)

    json.loads(text, parse_constant=not_strict)


def test_document_details(tmp_path):
    document = {"nan": math.nan, "tuple": (1, 2), "numpy": np.float32(0.5), "count": np.int64(3)}
    path = write(tmp_path / "a", {}, document | {"word": "grün"}, kind="fit")
    back = read(path, kind="fit")[1]
    assert math.isnan(back.pop("nan"))
    assert back == {"tuple": [1, 2], "numpy": 0.5, "count": 3, "word": "grün"}
    assert type(back["count"]) is int
    text = (path / DOCUMENT_FILE).read_text(encoding="utf-8")
    assert '\n    "word": "grün"' in text, "for people: indented, not escaped"


def test_envelope(saved):
    envelope = json.loads((saved / DOCUMENT_FILE).read_text())
    content = (saved / ARRAYS_FILE).read_bytes()
    assert envelope["format_version"] == artefact.FORMAT_VERSION == 1
    assert envelope["kind"] == "fit"
    assert envelope["arrays"] == {"x": {"shape": [3], "dtype": "float64"}}
    assert envelope["arrays_sha256"] == hashlib.sha256(content).hexdigest()
    assert envelope["document"] == {"loss": 0.25, "steps": 7}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", envelope["created"])
    assert entries(saved) == [ARRAYS_FILE, DOCUMENT_FILE]


def test_provenance_and_versions():
    found = provenance()
    assert found["jax"] == jax.__version__ and found["numpy"] == np.__version__
    assert json.loads(json.dumps(found)) == found
    assert artefact.version_of("no-such-package-anywhere") == "unknown"


# --- refusals when writing -----------------------------------------------------------------------


def test_existing_artefact_needs_overwrite(saved):
    words = re.escape(f"{saved} exists already; choose another directory or pass overwrite=True")
    refused(words, write, saved, NEW, {}, kind="fit")
    assert len(read(saved, kind="fit")[0]["x"]) == 3
    assert write(saved, NEW, {}, kind="fit", overwrite=True) == saved
    assert len(read(saved, kind="fit")[0]["x"]) == 5
    assert entries(saved.parent) == ["fitted"]


def test_damaged_artefact_can_be_overwritten(saved):
    (saved / DOCUMENT_FILE).write_text("{")
    write(saved, NEW, {}, kind="fit", overwrite=True)
    assert len(read(saved, kind="fit")[0]["x"]) == 5


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("names", [["thesis.txt"], [ARRAYS_FILE], [DOCUMENT_FILE, "thesis.txt"]])
def test_other_files_are_never_deleted(tmp_path, names, overwrite):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("precious")
    words = f"folder holds files that are not part of a saved fit, such as {names[-1]}; choose"
    refused(words, write, folder, OLD, {}, kind="fit", overwrite=overwrite)
    assert [(folder / name).read_text() for name in names] == ["precious"] * len(names)
    assert entries(tmp_path) == ["folder"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_empty_directory_and_new_parents_are_fine(tmp_path, overwrite):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        write(path, OLD, {}, kind="fit", overwrite=overwrite)
        assert len(read(path, kind="fit")[0]["x"]) == 3
    assert entries(tmp_path) == ["a", "empty"]


def test_file_in_the_way(tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    for path in (file, file / "fitted", file / "deep" / "fitted"):
        words = f"cannot be written because {file} is a file; choose another directory"
        refused(words, write, path, OLD, {}, kind="fit", overwrite=True)
        refused(words, check_target, path)
    assert file.read_text() == "precious"
    assert entries(tmp_path) == ["file"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a place where root cannot write")
def test_unwritable_parent():
    words = r"/proc/fitted cannot be written \(.+\); choose a directory that you may write to"
    refused(words, write, "/proc/fitted", OLD, {}, kind="fit")


def test_full_disk_leaves_no_traces(saved, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    words = r"cannot be written \(No space left on device\); .* on a disk with room"
    refused(words, write, saved, NEW, {}, kind="fit", overwrite=True)
    refused(words, write, saved.parent / "other", NEW, {}, kind="fit")
    assert entries(saved.parent) == ["fitted"]
    assert len(read(saved, kind="fit")[0]["x"]) == 3


def test_unreadable_target(saved, monkeypatch):
    def forbidden(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "listdir", forbidden)
    refused("cannot be looked into .Permission denied.; choose", check_target, saved)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array(["text"]), "array 'bad' has dtype <U4, which cannot be saved; convert"),
        (np.array([None]), "array 'bad' has dtype object"),
        (np.array([1j]), "array 'bad' has dtype complex128"),
        (jnp.ones(2, dtype=jnp.bfloat16), "array 'bad' has dtype bfloat16"),
        (2**70, "array 'bad' has dtype object"),
        (jax.random.key(0), "array 'bad' cannot be turned into numbers; .*jax.random.key_data"),
        ([[1, 2], [3]], "array 'bad' cannot be turned into numbers"),
    ],
)
def test_arrays_that_cannot_be_saved(tmp_path, value, words):
    refused(words, write, tmp_path / "a", {"bad": value}, {}, kind="fit")
    assert entries(tmp_path) == []


def test_array_name_that_cannot_be_saved(tmp_path):
    words = "array '__metadata__' cannot be saved under this name; choose another name"
    refused(words, write, tmp_path / "a", {"__metadata__": np.ones(1)}, {}, kind="fit")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"a": {"b": [0, {1}]}}, r"document\.a\.b\[1\] is a set that JSON cannot hold; use"),
        ({"a": {1: 2}}, r"document\.a is a dict that JSON cannot hold; use .* string keys"),
        ({"a": np.ones(2)}, r"document\.a is a ndarray .* put arrays into `arrays`"),
    ],
)
def test_documents_that_cannot_be_saved(tmp_path, document, words):
    refused(words, write, tmp_path / "a", {}, document, kind="fit")
    assert entries(tmp_path) == []


def test_unknown_kind(tmp_path):
    with pytest.raises(InputError, match="kind 'model' is unknown; use one of fit, checkpoint"):
        write(tmp_path / "a", {}, {}, kind="model")


def test_link_is_followed(saved):
    link = saved.parent / "link"
    link.symlink_to(saved, target_is_directory=True)
    write(link, NEW, {}, kind="fit", overwrite=True)
    assert link.is_symlink()
    assert len(read(saved, kind="fit")[0]["x"]) == len(read(link, kind="fit")[0]["x"]) == 5
    assert entries(saved.parent) == ["fitted", "link"]


# --- refusals when reading -----------------------------------------------------------------------


def test_missing_path_and_file_instead_of_directory(saved):
    refused("nowhere does not exist; check the path", read, saved.parent / "nowhere", kind="fit")
    file = saved / DOCUMENT_FILE
    refused("fit.json is a file; pass the directory that holds fit.json", read, file, kind="fit")


@pytest.mark.parametrize("name", [ARRAYS_FILE, DOCUMENT_FILE])
def test_deleted_file(saved, name):
    (saved / name).unlink()
    words = rf"{name} cannot be read \(No such file or directory\); check the path, or restore"
    refused(words, read, saved, kind="fit")


def test_every_truncation_of_the_json(saved):
    file = saved / DOCUMENT_FILE
    content = file.read_bytes()
    for length in [*range(0, len(content) - 2, 37), len(content) - 2]:
        file.write_bytes(content[:length])
        refused("fit.json is damaged: it is not valid JSON; restore", read, saved, kind="fit")


def test_every_truncation_of_the_arrays(saved):
    file = saved / ARRAYS_FILE
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        words = rf"arrays.safetensors is truncated .* {length} bytes instead of {len(content)};"
        refused(words, read, saved, kind="fit")


def test_every_flipped_byte_of_the_arrays(saved):
    file = saved / ARRAYS_FILE
    content = file.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        file.write_bytes(changed)
        refused("arrays.safetensors was changed: its checksum", read, saved, kind="fit")
    file.write_bytes(content)
    read(saved, kind="fit")


@pytest.mark.parametrize(
    "change",
    [
        lambda envelope: envelope["document"].update(loss=0.26),
        lambda envelope: envelope["document"].update(steps=7.0),
        lambda envelope: envelope["document"].pop("loss"),
        lambda envelope: envelope.update(kind="checkpoint"),
        lambda envelope: envelope.update(created="2001-01-01T00:00:00+00:00"),
        lambda envelope: envelope["arrays"]["x"].update(shape=[1, 3]),
        lambda envelope: envelope.update(extra=1),
    ],
)
def test_edited_json(saved, change):
    rewrite_json(saved, change)
    refused("fit.json was edited: its checksum does not match; restore", read, saved, kind="fit")


@pytest.mark.parametrize("field", [*artefact._FIELDS])
@pytest.mark.parametrize("resign", [False, True])
def test_missing_field(saved, field, resign):
    resign = resign and field != "sha256"
    rewrite_json(saved, lambda envelope: envelope.pop(field), resign=resign)
    refused(f"fit.json lacks a valid field '{field}'; restore", read, saved, kind="fit")


@pytest.mark.parametrize("version", [None, "1", 1.0, True, 0, -1, [1]])
def test_invalid_version(saved, version):
    rewrite_json(saved, lambda envelope: envelope.update(format_version=version), resign=True)
    words = re.escape(f"fit.json has no valid format_version ({version!r}); restore")
    refused(words, read, saved, kind="fit")


def test_absent_version(saved):
    rewrite_json(saved, lambda envelope: envelope.pop("format_version"), resign=True)
    refused(r"fit.json has no valid format_version \(None\)", read, saved, kind="fit")


def test_newer_version_is_named_before_anything_else(saved):
    (saved / DOCUMENT_FILE).write_text('{"format_version": 2, "other": "fields"}')
    words = re.escape("was written by a newer coresetvi (format 2, this one reads 1); upgrade coresetvi")
    refused(words, read, saved, kind="fit")


def test_wrong_kind(saved):
    words = "fitted holds a fit, not a checkpoint; pass the directory of a saved checkpoint"
    refused(words, read, saved, kind="checkpoint")


@pytest.mark.parametrize("text", ["[]", "3", '"fit"', "null", "NaN", '{"a": NaN}', '{"a": 1e999}'])
def test_json_of_another_shape(saved, text):
    (saved / DOCUMENT_FILE).write_text(text)
    refused("fit.json is damaged: it is not valid JSON; restore", read, saved, kind="fit")


@pytest.mark.parametrize("depth", [400, 100_000])
def test_deeply_nested_json(saved, depth):
    (saved / DOCUMENT_FILE).write_text('{"document": ' + "[" * depth + "]" * depth + "}")
    refused("fit.json (is damaged|has no valid format_version)", read, saved, kind="fit")


@pytest.mark.parametrize(
    "change",
    [
        lambda listed: listed.update(y={"shape": [3], "dtype": "float64"}),
        lambda listed: listed.update(x={"shape": [3], "dtype": "float32"}),
        lambda listed: listed.update(x=None),
        lambda listed: listed.pop("x"),
    ],
)
def test_arrays_and_their_list_disagree(saved, change):
    rewrite_json(saved, lambda envelope: change(envelope["arrays"]), resign=True)
    words = "arrays.safetensors does not hold the array '[xy]' as fit.json lists it; restore"
    refused(words, read, saved, kind="fit")


@pytest.mark.parametrize("content", [b"", b"x" * 40, pickle.dumps({"x": 1}), None])
def test_arrays_file_of_another_format(saved, content):
    if content is None:  # a valid file, but of a type that NumPy does not know
        content = safetensors.numpy.save({"x": np.asarray(jnp.ones(2, dtype=jnp.bfloat16))})
    (saved / ARRAYS_FILE).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    size = len(content)
    signed = {"arrays_bytes": size, "arrays_sha256": digest}
    rewrite_json(saved, lambda envelope: envelope.update(signed), resign=True)
    refused("arrays.safetensors is not a valid safetensors file", read, saved, kind="fit")


class Bomb:
    def __reduce__(self):
        return (os.mkdir, (os.environ["CORESETVI_TEST_BOMB"],))


@pytest.mark.parametrize("name", [DOCUMENT_FILE, ARRAYS_FILE])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_pickle_is_never_opened(saved, monkeypatch, name, protocol):
    crater = saved.parent / "crater"
    monkeypatch.setenv("CORESETVI_TEST_BOMB", str(crater))
    payload = pickle.dumps(Bomb(), protocol=protocol)
    (saved / name).write_bytes(payload)
    with pytest.raises(ArtefactError):
        read(saved, kind="fit")
    assert not crater.exists()
    pickle.loads(payload)
    assert crater.exists(), "the payload is live, so the check above means something"


# --- crashes -------------------------------------------------------------------------------------


def fail_at(monkeypatch, numbers, error):
    """Make the calls of os.replace with these numbers (from 1) raise."""
    replace, calls = os.replace, []

    def failing(source, target):
        calls.append(target)
        if len(calls) in numbers:
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_failed_rename_leaves_the_old_artefact(saved, monkeypatch, number, error):
    fail_at(monkeypatch, {number}, error)
    with pytest.raises((ArtefactError, KeyboardInterrupt)) as caught:
        write(saved, NEW, {}, kind="fit", overwrite=True)
    if isinstance(error, OSError):
        assert "cannot be written (Input/output error); choose" in str(caught.value)
    assert len(read(saved, kind="fit")[0]["x"]) == 3
    assert entries(saved.parent) == ["fitted"]


def test_first_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    fail_at(monkeypatch, {1}, OSError(errno.EIO, "Input/output error"))
    refused("cannot be written", write, tmp_path / "a", OLD, {}, kind="fit")
    assert entries(tmp_path) == []


def crash_after(saved, number):
    """Overwrite in another process that dies right after its rename with this number."""
    script = (
        "import os, sys, numpy; from coresetvi.fitting.artefact import write\n"
        "replace, calls = os.replace, []\n"
        "def dying(source, target):\n"
        "    replace(source, target); calls.append(target)\n"
        "    if len(calls) == int(sys.argv[2]): os._exit(9)\n"
        "os.replace = dying\n"
        "write(sys.argv[1], {'x': numpy.arange(5.0)}, {}, kind='fit', overwrite=True)\n"
    )
    source = os.path.dirname(os.path.dirname(os.path.dirname(artefact.__file__)))
    environment = os.environ | {"PYTHONPATH": source}
    command = [sys.executable, "-c", script, str(saved), str(number)]
    assert subprocess.run(command, env=environment, timeout=60).returncode == 9


def test_recovery_from_a_crash_between_the_renames(saved):
    crash_after(saved, 1)
    assert not saved.exists()
    assert len(read(saved, kind="fit")[0]["x"]) == 3
    refused("exists already", write, saved, NEW, {}, kind="fit")
    write(saved, {"x": np.arange(7.0)}, {}, kind="fit", overwrite=True)
    assert len(read(saved, kind="fit")[0]["x"]) == 7
    assert ".fitted.coresetvi-old" not in entries(saved.parent)


def test_recovery_from_a_crash_after_the_renames(saved):
    crash_after(saved, 2)
    assert entries(saved.parent) == [".fitted.coresetvi-old", "fitted"]
    assert len(read(saved, kind="fit")[0]["x"]) == 5
    write(saved, {"x": np.arange(7.0)}, {}, kind="fit", overwrite=True)
    assert len(read(saved, kind="fit")[0]["x"]) == 7
    assert entries(saved.parent) == ["fitted"]


def test_a_rival_that_was_faster_is_not_replaced(tmp_path, monkeypatch):
    """Without overwrite, what appeared after the check stays."""
    path = tmp_path / "fitted"
    monkeypatch.setattr(artefact, "_now", lambda: (write_rival(), "now")[1])
    rivals = []

    def write_rival():
        if not rivals:
            rivals.append(path)
            write(path, OLD, {}, kind="fit")

    refused("cannot be written", write, path, NEW, {}, kind="fit")
    assert len(read(path, kind="fit")[0]["x"]) == 3
    assert entries(tmp_path) == ["fitted"]
