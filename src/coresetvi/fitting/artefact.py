"""Saved fits and checkpoints: a directory that never executes code when it is opened.

It holds `arrays.safetensors` (raw numbers) and `fit.json` (strict UTF-8 JSON for people to read):

    format_version, kind, coresetvi, created    what wrote it, and when
    document                                    whatever the caller wants to remember
    arrays, arrays_bytes, arrays_sha256         name -> shape, dtype; size and checksum of the file
    sha256                                      checksum of all of the above as canonical JSON

The checksums find damage and edits by hand. They are no signature: safety rests on neither file
being able to hold code. JSON has no NaN or infinity, so in `document` a non-finite float is stored
as {"float": "nan" | "inf" | "-inf"}, and a dictionary that could be mistaken for one is wrapped in
{"literal": ...}. Reading undoes both. Tuples come back as lists.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from .._json import checksum, from_json, indented, to_json
from .._registry import DTYPES
from .._version import __version__
from ..errors import ArtefactError, InputError
from ..storage import ARRAYS_FILE, DOCUMENT_FILE, RESTORE, PathLike, aside, read_file, replace_directory

FORMAT_VERSION = 1
KINDS = ("fit", "checkpoint")

_FIELDS = {"kind": str, "coresetvi": str, "created": str, "document": dict, "arrays": dict}
_FIELDS |= {"arrays_bytes": int, "arrays_sha256": str, "sha256": str}


def write(
    path: PathLike,
    arrays: Mapping[str, object],
    document: Mapping[str, object],
    *,
    kind: str,
    overwrite: bool = False,
) -> Path:
    """Write an artefact, whole or not at all. Entries of `arrays` that are None are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = write(f"{folder}/fitted", {"weights": np.ones(2)}, {"loss": 0.5}, kind="fit")
    ...     arrays, document = read(saved, kind="fit")
    >>> arrays["weights"].tolist(), document
    ([1.0, 1.0], {'loss': 0.5})
    """
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} is unknown; use one of {', '.join(KINDS)}")
    check_target(path, overwrite=overwrite)
    prepared = {name: _prepare(name, arrays[name]) for name in arrays if arrays[name] is not None}
    content = safetensors.numpy.save(prepared)
    envelope = {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "coresetvi": __version__,
        "created": _now(),
        "document": to_json(dict(document), "document"),
        "arrays": {name: _describe(array) for name, array in prepared.items()},
        "arrays_bytes": len(content),
        "arrays_sha256": hashlib.sha256(content).hexdigest(),
    }
    envelope["sha256"] = checksum(envelope)
    files = {ARRAYS_FILE: content, DOCUMENT_FILE: indented(envelope)}
    replace_directory(path, files, overwrite=overwrite)
    return Path(path)


def check_target(path: PathLike, *, overwrite: bool = False) -> None:
    """Refuse a `path` that `write` must not touch; worth calling before a long fit, not after it.

    >>> check_target("a/new/directory")
    """
    target = Path(os.path.realpath(path))
    for place in (target, *target.parents):
        if os.path.exists(place) and not os.path.isdir(place):
            raise ArtefactError(
                f"{path} cannot be written because {place} is a file; choose another directory"
            )
    try:
        present = os.listdir(target) if os.path.isdir(target) else []
    except OSError as error:
        raise ArtefactError(
            f"{path} cannot be looked into ({error.strerror}); choose another directory"
        ) from error
    strangers = sorted(set(present) - {ARRAYS_FILE, DOCUMENT_FILE})
    if strangers or (present and DOCUMENT_FILE not in present):
        # Replacing the directory would delete them, and they are not ours to delete.
        raise ArtefactError(
            f"{path} holds files that are not part of a saved fit, such as "
            f"{(strangers or present)[0]}; choose another directory"
        )
    interrupted = not os.path.exists(target) and aside(target).is_dir()
    if (present or interrupted) and not overwrite:
        raise ArtefactError(f"{path} exists already; choose another directory or pass overwrite=True")


def read(path: PathLike, *, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read an artefact back, `(arrays, document)`, after checking every part of it.

    >>> read("no/such/place", kind="fit")
    Traceback (most recent call last):
    coresetvi.errors.ArtefactError: no/such/place does not exist; check the path
    """
    directory = Path(os.path.realpath(path))
    if not os.path.exists(directory) and aside(directory).is_dir():
        directory = aside(directory)  # a crash between the two renames of an overwrite
    if not os.path.exists(directory):
        raise ArtefactError(f"{path} does not exist; check the path")
    if not os.path.isdir(directory):
        raise ArtefactError(f"{path} is a file; pass the directory that holds {DOCUMENT_FILE}")
    envelope = _read_envelope(directory / DOCUMENT_FILE)
    if envelope["kind"] != kind:
        raise ArtefactError(
            f"{path} holds a {envelope['kind']}, not a {kind}; pass the directory of a saved {kind}"
        )
    return _read_arrays(directory / ARRAYS_FILE, envelope), envelope["document"]


def provenance() -> dict[str, str]:
    """Which software made a result, and when.

    >>> sorted(provenance())
    ['coresetvi', 'equinox', 'jax', 'numpy', 'platform', 'python', 'timestamp']
    """
    versions = {"coresetvi": __version__} | {name: version_of(name) for name in ("jax", "equinox", "numpy")}
    machine = {"python": platform.python_version(), "platform": platform.platform()}
    return machine | versions | {"timestamp": _now()}


def _read_envelope(file: Path) -> dict[str, Any]:
    content = read_file(file)
    try:
        envelope = json.loads(content.decode("utf-8"))
        if not isinstance(envelope, dict):
            raise ValueError("not an object")
        found = checksum({key: envelope[key] for key in envelope if key != "sha256"})
        envelope["document"] = from_json(envelope.get("document"))
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{file} is damaged: it is not valid JSON; {RESTORE}") from error

    # The version comes first: a newer format may have other fields and other checksums.
    version = envelope.get("format_version")
    if type(version) is not int or version < 1:
        raise ArtefactError(f"{file} has no valid format_version ({version!r}); {RESTORE}")
    if version > FORMAT_VERSION:
        raise ArtefactError(
            f"{file} was written by a newer coresetvi (format {version}, this one reads "
            f"{FORMAT_VERSION}); upgrade coresetvi"
        )
    for name, expected in _FIELDS.items():
        if not isinstance(envelope.get(name), expected):
            raise ArtefactError(f"{file} lacks a valid field {name!r}; {RESTORE}")
    if found != envelope["sha256"]:
        raise ArtefactError(f"{file} was edited: its checksum does not match; {RESTORE}")
    return envelope


def _read_arrays(file: Path, envelope: dict[str, Any]) -> dict[str, np.ndarray]:
    content = read_file(file)
    if len(content) != envelope["arrays_bytes"]:
        raise ArtefactError(
            f"{file} is truncated or was changed: it has {len(content)} bytes instead of "
            f"{envelope['arrays_bytes']}; {RESTORE}"
        )
    if hashlib.sha256(content).hexdigest() != envelope["arrays_sha256"]:
        raise ArtefactError(f"{file} was changed: its checksum does not match; {RESTORE}")
    try:
        arrays = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ArtefactError(f"{file} is not a valid safetensors file; {RESTORE}") from error
    listed = envelope["arrays"]
    for name in sorted(listed.keys() | arrays.keys()):
        if name not in arrays or listed.get(name) != _describe(arrays[name]):
            raise ArtefactError(
                f"{file} does not hold the array {name!r} as {DOCUMENT_FILE} lists it; {RESTORE}"
            )
    return {name: arrays[name] for name in listed}


def _prepare(name: str, value: object) -> np.ndarray:
    if name == "__metadata__":  # safetensors uses it for itself
        raise ArtefactError(f"array {name!r} cannot be saved under this name; choose another name")
    try:
        # safetensors copies raw memory and would silently permute an array that is not in C order.
        array = np.asarray(value, order="C")
    except (TypeError, ValueError) as error:
        raise ArtefactError(
            f"array {name!r} cannot be turned into numbers; convert it (a JAX key by jax.random.key_data)"
        ) from error
    if array.dtype.name not in DTYPES:
        raise ArtefactError(
            f"array {name!r} has dtype {array.dtype}, which cannot be saved; "
            "convert it to booleans, integers or floats"
        )
    return array


def _describe(array: np.ndarray) -> dict[str, object]:
    return {"shape": list(array.shape), "dtype": array.dtype.name}


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
