"""A folder with one small file per finished fit of a grid, so that the grid can stop and go on.

A file is whole or absent, and carries a fingerprint of all that its record depends on: a record is used again
only where it would come out the same.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._json import checksum, from_json, indented, to_json
from ..data.dataset import Dataset
from ..errors import InputError
from ..storage import unwritable, write_file

FOLDER = "records"
TABLE, PICTURE = "comparison.csv", "comparison.png"
# <method>-<size>-<key>.json: other files in the folder are not ours.
FILE_NAME = re.compile(r"[a-z0-9-]+-(\d+|all)-\d+\.json")

Record = dict[str, Any]
Fingerprint = dict[str, object]

COMMON = {"data": "other data", "model": "another model", "version": "another version of coresetvi"}
PARTS = COMMON | {"construction": "other settings of the method", "steps": "another number of steps"}


def open_records(
    folder: str | Path, wanted: Mapping[str, Fingerprint], *, overwrite: bool = False
) -> dict[str, Record]:
    """What the folder knows already of the `wanted` records, by name; with `overwrite` it forgets all.

    Refuses a folder that holds records of something else, or files that are none of ours.
    """
    folder = Path(folder)
    place = folder / FOLDER
    for part in (place, *place.absolute().parents):
        if part.exists() and not part.is_dir():
            raise InputError(f"{folder} cannot be used because {part} is a file; choose another folder")
    files = record_files(folder)
    mine = [name for name in (TABLE, PICTURE) if (folder / name).exists()]
    if mine and not files and not overwrite:
        raise InputError(
            f"{folder / mine[0]} exists, but no records that it was made from; "
            "choose another folder or pass overwrite=True"
        )
    try:
        if overwrite:
            for file in files:
                file.unlink()
        kept = {file.stem: read_record(file, wanted) for file in record_files(folder)}
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(unwritable(folder, error, "folder")) from error
    return {name: kept[name] for name in wanted if name in kept}


def record_file(folder: str | Path, name: str) -> Path:
    """Where the record of that name is, or would be."""
    return Path(folder) / FOLDER / f"{name}.json"


def record_files(folder: str | Path) -> list[Path]:
    """The files of the folder that hold records, by name."""
    place = Path(folder) / FOLDER
    return sorted(file for file in place.glob("*.json") if FILE_NAME.fullmatch(file.name))


def parse_record(text: str) -> tuple[Fingerprint, Record]:
    """Fingerprint and record in the text of a file; `ValueError` if it is damaged."""
    try:
        found = json.loads(text)
        content = {name: found[name] for name in ("fingerprint", "record")}
        if found["sha256"] != checksum(content):
            raise ValueError("its checksum does not match")
        record = from_json(content["record"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is no whole record") from error
    if not isinstance(record, dict):
        raise ValueError("it is no whole record")
    return content["fingerprint"], record


def read_record(file: Path, wanted: Mapping[str, Fingerprint]) -> Record:
    """The record in a file, refused if it is damaged or belongs to something else than what is `wanted`."""
    try:
        found, record = parse_record(file.read_bytes().decode("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); delete it, or start anew with overwrite=True"
        ) from error
    # One folder, one grid: records that are not asked for now must agree in what all have in common.
    expected = wanted.get(file.stem)
    parts = COMMON if expected is None else PARTS
    expected = next(iter(wanted.values())) if expected is None else expected
    if words := first_difference(found, expected, parts):
        raise InputError(f"{file} is of {words}; choose another folder or start anew with overwrite=True")
    return record


def first_difference(found: Fingerprint, expected: Fingerprint, parts: Mapping[str, str]) -> str | None:
    """The words of the first of the `parts` in which a fingerprint, read from a file, is not as expected."""
    differing = (words for part, words in parts.items() if found.get(part) != to_json(expected[part], part))
    return next(differing, None)


def write_record(folder: str | Path, name: str, fingerprint: Fingerprint, record: Record) -> None:
    """Write the record of that name, whole or not at all."""
    content = {
        "fingerprint": to_json(fingerprint, "fingerprint"),
        "record": to_json(record, "record"),
    }
    write_file(record_file(folder, name), indented(content | {"sha256": checksum(content)}))


def digest(*parts: Dataset) -> str:
    """The content of data sets, in a few characters."""
    found = hashlib.sha256()
    for data in parts:
        for array in (np.asarray(leaf) for leaf in (data.x, data.y, data.weights) if leaf is not None):
            found.update(f"{array.shape}{array.dtype}".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
