"""A folder that keeps one small file a finished fit of a grid of them, so that it can stop and go on.

A file is whole or absent, and carries a fingerprint of all that its record depends on: a record is used again
only where it would come out the same.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._files import checksum, from_json, to_json, write_file
from ..data.dataset import Dataset
from ..errors import InputError

FOLDER = "records"
TABLE, PICTURE = "comparison.csv", "comparison.png"
# <method>-<size>-<key>.json: other files in the folder are not ours.
FILE_NAME = re.compile(r"[a-z0-9-]+-(\d+|all)-\d+\.json")

Record = dict[str, Any]
Fingerprint = dict[str, Any]


class Kind(NamedTuple):
    """What the records of a folder are of: parts of a fingerprint, and what to say where one differs.

    `common` parts are the same for all records of a folder; `files` are made from the records.
    """

    common: dict[str, str]
    parts: dict[str, str]
    files: tuple[str, ...]


COMMON = {"data": "other data", "model": "another model", "version": "another version of coresetvi"}
PARTS = COMMON | {"construction": "other settings of the method", "steps": "another number of steps"}
COMPARISON = Kind(COMMON, PARTS, (TABLE, PICTURE))


def open_records(
    folder: str | Path, wanted: Mapping[str, Fingerprint], *, overwrite: bool = False, kind: Kind = COMPARISON
) -> dict[str, Record]:
    """What the folder knows already of the `wanted` records, by name; with `overwrite` it forgets all.

    Refuses a folder that holds records of something else, or files that are none of ours.
    """
    folder = Path(folder)
    place = folder / FOLDER
    for part in (place, *place.absolute().parents):
        if part.exists() and not part.is_dir():
            raise InputError(f"{folder} cannot be used because {part} is a file; choose another --out")
    files = record_files(folder)
    mine = [name for name in kind.files if (folder / name).exists()]
    if mine and not files and not overwrite:
        raise InputError(
            f"{folder / mine[0]} exists, but no records that it was made from; "
            "choose another --out or pass --overwrite"
        )
    try:
        if overwrite:
            for file in files:
                file.unlink()
        kept = read_records(folder, wanted, kind)
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return {name: kept[name] for name in wanted if name in kept}


def record_file(folder: str | Path, name: str) -> Path:
    """Where the record of that name is, or would be."""
    return Path(folder) / FOLDER / f"{name}.json"


def record_files(folder: str | Path) -> list[Path]:
    """The files of the folder that hold records, by name."""
    place = Path(folder) / FOLDER
    return sorted(file for file in place.glob("*.json") if FILE_NAME.fullmatch(file.name))


def read_records(
    folder: str | Path, wanted: Mapping[str, Fingerprint], kind: Kind = COMPARISON
) -> dict[str, Record]:
    """All records of the folder, by name, those that are not `wanted` too."""
    return {file.stem: read_record(file, wanted, kind) for file in record_files(folder)}


def parse_record(text: str) -> tuple[Fingerprint, Record]:
    """Fingerprint and record in the text of a file; `ValueError` if it is damaged."""
    try:
        document = json.loads(text)
        content = {name: document[name] for name in ("fingerprint", "record")}
        if document["sha256"] != checksum(content):
            raise ValueError("its checksum does not match")
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is no whole record") from error
    return content["fingerprint"], from_json(content["record"])


def read_record(file: Path, wanted: Mapping[str, Fingerprint], kind: Kind = COMPARISON) -> Record:
    """The record in a file, refused if it is damaged or belongs to something else than what is `wanted`."""
    try:
        found, record = parse_record(file.read_bytes().decode("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); delete it, or start anew with --overwrite"
        ) from error
    # One folder, one grid: records that are not asked for now must agree in what all have in common.
    expected = wanted.get(file.stem)
    parts = kind.common if expected is None else kind.parts
    expected = next(iter(wanted.values())) if expected is None else expected
    for part, words in parts.items():
        if found.get(part) != to_json(expected[part], part):
            raise InputError(f"{file} is of {words}; choose another --out or start anew with --overwrite")
    return record


def write_record(folder: str | Path, name: str, fingerprint: Fingerprint, record: Record) -> None:
    """Write the record of that name, whole or not at all."""
    content = {
        "fingerprint": to_json(fingerprint, "fingerprint"),
        "record": to_json(record, "record"),
    }
    text = json.dumps(content | {"sha256": checksum(content)}, indent=2, allow_nan=False) + "\n"
    replace_file(record_file(folder, name), text.encode("utf-8"))


def replace_file(file: Path, content: bytes) -> None:
    """Write a file whole, or leave what there was."""
    staging = file.with_name(f".{file.stem}.{os.getpid()}.part")  # others may write the same table
    try:
        write_file(staging, content)
        os.replace(staging, file)
    except OSError as error:
        raise _unwritable(file, error) from error
    finally:
        with contextlib.suppress(OSError):
            staging.unlink(missing_ok=True)


def digest(*parts: Dataset) -> str:
    """The content of data sets, in a few characters."""
    found = hashlib.sha256()
    for data in parts:
        for array in (np.asarray(leaf) for leaf in (data.x, data.y, data.weights) if leaf is not None):
            found.update(f"{array.shape}{array.dtype}".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written ({error.strerror or error}); choose another --out")
