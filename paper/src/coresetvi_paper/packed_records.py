"""The records of every experiment in one compressed file each: what the page is made of."""

import gzip
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

from coresetvi.errors import InputError
from coresetvi.storage import write_file
from coresetvi.workflows import records

from .cells import PaperCell
from .experiment import Experiment
from .experiment_files import experiment_names, read_experiment
from .pictures import IMAGES

PACKS, FIGURES = "records", "figures"
SUFFIX = ".jsonl.gz"


def pack(results: Path, home: Path) -> list[Path]:
    """The records of every experiment in one file each, a line a record; the files that were written.

    `results` is what `coresetvi reproduce all --out` has made, with our settings and with the paper's;
    `home` is the folder of the page. Images that are in no record are copied to its figures.
    """
    if not results.is_dir():
        raise InputError(f"{results} is no folder; name what `coresetvi reproduce` wrote")
    for experiment in map(read_experiment, experiment_names()):
        for name in image_files(experiment):
            image = results / experiment.folder / IMAGES / name
            if image.is_file():
                (home / FIGURES).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(image, home / FIGURES / name)
    written = []
    for folder in sorted(results.glob("*/records")):
        texts = [file.read_text("utf-8") for file in records.record_files(folder.parent)]
        lines = [json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True) for text in texts]
        place = home / PACKS / f"{folder.parent.name}{SUFFIX}"
        place.parent.mkdir(parents=True, exist_ok=True)
        # No time in the file: the same records are the same bytes.
        write_file(place, gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
        written.append(place)
    return written


def image_files(experiment: Experiment) -> list[str]:
    """The files of learned images that are all there is to see of an experiment: they are in no record."""
    if experiment.views != (IMAGES,):
        return []
    return [f"{cell.name}.png" for cell in experiment.cells() if cell.key == 0]


def unpack(home: Path, results: Path) -> None:
    """Put the packed records back where `coresetvi reproduce all --out` goes on from them."""
    for place in sorted((home / PACKS).glob(f"*{SUFFIX}")):
        folder = results / place.name.removesuffix(SUFFIX)
        for name, (fingerprint, record) in read_pack(place).items():
            file = records.record_file(folder, name)
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                records.write_record(folder, name, fingerprint, record)


def read_pack(place: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Fingerprints and records of a pack, by the names of their cells."""
    try:
        lines = gzip.decompress(place.read_bytes()).decode("utf-8").splitlines()
        found = [records.parse_record(line) for line in lines]
        return {PaperCell.of(record).name: (fingerprint, record) for fingerprint, record in found}
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"{place} cannot be read ({error}); pack the records anew") from error
