"""Run the cells of an experiment, one record file each; what is finished is not run again. Prints nothing."""

import dataclasses
import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import coresetvi as cvi

from .. import records, storage
from ..errors import CoresetviError, InputError
from .experiment import Experiment
from .grid import Grid
from .making import CHECKPOINTS, FITS
from .measures import MEASURES
from .parts import Cell

Announce = Callable[[Cell, dict[str, Any] | None, list[Cell], float], None]


def run_cells(
    grid: Grid, cells: Sequence[Cell], out: Path, *, overwrite: bool = False, announce: Announce | None = None
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Run those of `cells` that have no record yet; all records of the folder, and whether it was stopped.

    `cells` are all of the grid, or the share of one process.
    `announce(cell, record, left, seconds)` is called before a cell, with None for its record, and after it,
    with the cells that are left then and an estimate of how long they take.
    """
    measure_of(grid.experiment)  # before an hour has gone by
    wanted = {cell.name: grid.fingerprint(cell) for cell in grid.experiment.cells()}
    kept = records.open_records(out, wanted, overwrite=overwrite, kind=grid.kind)
    if overwrite:
        for folder in (*(out / FITS).glob("*"), *(out / CHECKPOINTS).glob("*")):
            storage.remove(folder)
    known = [record for record in kept.values() if record["result"] != "failed"]
    left = [cell for cell in cells if kept.get(cell.name, {"result": "failed"})["result"] == "failed"]
    interrupted = False
    try:
        while left:
            cell = left[0]
            if announce:
                announce(cell, None, left, time_left(grid.experiment, left, known))
            record = run_cell(grid, cell, out)
            records.write_record(out, cell.name, wanted[cell.name], record)
            storage.remove(out / CHECKPOINTS / cell.name)
            known.append(record)
            left = left[1:]
            if announce:
                announce(cell, record, left, time_left(grid.experiment, left, known))
    except KeyboardInterrupt:
        interrupted = True
    return records.read_records(out, wanted, grid.kind), interrupted


def share(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """The cells of one of several processes, 1, 2, ... of `parts`.

    By name, so that experiments that have cells in common agree on whose they are. Cells that differ in their
    keys alone stay together: they share compiled programs.

    >>> cells = [Cell("phishing", "psvi", size, key) for size in (10, 40, 100) for key in (0, 1)]
    >>> [(cell.size, cell.key) for cell in share(cells, 1, 2)]
    [(10, 0), (10, 1), (100, 0), (100, 1)]
    """

    def owner(cell: Cell) -> int:
        name = dataclasses.replace(cell, key=0).name
        return int.from_bytes(hashlib.sha256(name.encode()).digest()) % parts

    return [cell for cell in cells if owner(cell) == part - 1]


def run_cell(grid: Grid, cell: Cell, out: Path) -> dict[str, Any]:
    """Fit one cell and score it. What goes wrong is a record too: the other cells are worth their time."""
    measure = measure_of(grid.experiment)
    began, load = time.perf_counter(), machine_load()
    record: dict[str, Any] = {**dataclasses.asdict(cell), "version": cvi.__version__, "load_before": load}
    try:
        record |= measure(grid, cell, out)
    except CoresetviError as error:
        record |= {"result": "failed", "explanation": str(error)}
    except Exception as error:  # an hour of other cells is not lost to a bug or a full memory
        reason = (str(error).strip().splitlines() or [""])[0]
        record |= {"result": "failed", "explanation": f"{type(error).__name__}: {reason}"}
    record |= {"total_seconds": time.perf_counter() - began, "load_after": machine_load()}
    return record | {"peak_memory": peak_memory()}


def measure_of(experiment: Experiment) -> Callable[[Grid, Cell, Path], dict[str, Any]]:
    """What a cell of the experiment is."""
    if experiment.measure not in MEASURES:
        raise InputError(
            f"{experiment.name} has the unknown measure {experiment.measure!r}; "
            f"choose from {', '.join(MEASURES)}"
        )
    return MEASURES[experiment.measure]


def time_left(experiment: Experiment, left: Sequence[Cell], known: Sequence[Mapping[str, Any]]) -> float:
    """Seconds that the cells will take, like those of their method and size, of their method, or any."""
    total = 0.0
    for cell in left:
        wanted = dataclasses.asdict(cell)
        for names in (("problem", "method", "size"), ("problem", "method"), ()):
            alike = [one for one in known if all(one[name] == wanted[name] for name in names)]
            if times := [one["total_seconds"] for one in alike if one["result"] != "failed"]:
                total += float(np.mean(times))
                break
        else:
            total += 120.0 * (experiment.minutes_of(cell) or 0.0)  # a fit and a fresh one
    return total


def machine_load() -> float | None:
    """Processes that wanted to run in the last minute, on average, where the system tells."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def peak_memory() -> int | None:
    """The most bytes that this process has had in memory so far, where the system tells."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
