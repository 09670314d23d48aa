"""The records of a folder, one file per cell: those that can be used again, and those that are refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coresetvi.errors import InputError
from coresetvi.workflows.records import FOLDER, first_difference, parse_record, record_files

# Parts of a fingerprint, and what to say where one differs. All records of a folder have the first in common.
COMMON = {"experiment": "another experiment"}
PARTS = COMMON | {
    "data": "other data",
    "model": "another model",
    "construction": "other settings of the method",
    "budget": "another --budget",
    "protocol": "other ways to score",
}

Record = dict[str, Any]
Fingerprints = Mapping[str, dict[str, Any]]


def open_records(
    folder: Path, wanted: Fingerprints, tables: Sequence[str], *, overwrite: bool = False
) -> dict[str, Record]:
    """What the folder knows already of the `wanted` records, by name; with `overwrite` it forgets all.

    Refuses a folder that holds records of something else, or one of the `tables` without any records.
    """
    place = folder / FOLDER
    for part in (place, *place.absolute().parents):
        if part.exists() and not part.is_dir():
            raise InputError(f"{folder} cannot be used because {part} is a file; choose another --out")
    files = record_files(folder)
    mine = [name for name in tables if (folder / name).exists()]
    if mine and not files and not overwrite:
        raise InputError(
            f"{folder / mine[0]} exists, but no records that it was made from; "
            "choose another --out or pass --overwrite"
        )
    try:
        if overwrite:
            for file in files:
                file.unlink()
        kept = read_records(folder, wanted)
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{folder} cannot be written ({reason}); choose another --out") from error
    return {name: kept[name] for name in wanted if name in kept}


def read_records(folder: Path, wanted: Fingerprints) -> dict[str, Record]:
    """All records of the folder, by name, those that are not `wanted` too."""
    return {file.stem: read_record(file, wanted) for file in record_files(folder)}


def read_record(file: Path, wanted: Fingerprints) -> Record:
    """The record in a file, refused if it is damaged or belongs to something else than what is `wanted`."""
    try:
        found, record = parse_record(file.read_bytes().decode("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); delete it, or start anew with --overwrite"
        ) from error
    # One folder, one experiment: records that are not asked for now must agree in what all have in common.
    expected = wanted.get(file.stem)
    parts = COMMON if expected is None else PARTS
    expected = next(iter(wanted.values())) if expected is None else expected
    if words := first_difference(found, expected, parts):
        raise InputError(f"{file} is of {words}; choose another --out or start anew with --overwrite")
    return record
