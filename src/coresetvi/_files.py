"""The small print of saved fits: strict JSON both ways, and files that are on the disk when they say so."""

import contextlib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ArtefactError

ARRAYS_FILE = "arrays.safetensors"
DOCUMENT_FILE = "fit.json"
RESTORE = "restore it from a copy or save it again"


def to_json(value: Any, where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ArtefactError(
            f"{where} is a {type(value).__name__} that JSON cannot hold; use dictionaries with "
            "string keys, lists, strings and numbers, and put arrays into `arrays`"
        )
    encoded = {key: to_json(item, f"{where}.{key}") for key, item in value.items()}
    return {"literal": encoded} if value.keys() in ({"float"}, {"literal"}) else encoded


def from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value in ({"float": "nan"}, {"float": "inf"}, {"float": "-inf"}):
        return float(value["float"])
    if value.keys() == {"literal"} and isinstance(value["literal"], dict):
        value = value["literal"]
    return {key: from_json(item) for key, item in value.items()}


def checksum(envelope: dict[str, Any]) -> str:
    canonical = json.dumps(envelope, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def remove(directory: Path) -> None:
    # By name, not the whole tree: nothing but our own two files is ever deleted.
    with contextlib.suppress(OSError):
        for name in (ARRAYS_FILE, DOCUMENT_FILE):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def read_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"{file} cannot be read ({error.strerror}); check the path, or {RESTORE}"
        ) from error


def write_file(file: Path, content: bytes) -> None:
    with open(file, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_directory(directory: Path) -> None:
    # So that a rename survives a power cut. Windows and some network disks cannot do it.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
