"""Run the cells of an experiment, one record file each; what is finished is not run again. Prints nothing."""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import coresetvi as cvi
from coresetvi.errors import CoresetviError, InputError
from coresetvi.workflows import records

from .cell_fits import CHECKPOINTS, FITS
from .cell_records import open_records, read_records
from .cells import PaperCell, claim, is_busy
from .experiment import Experiment
from .grid import Grid
from .measures import MEASURES

FIT_FILES = ("arrays.safetensors", "fit.json")  # of a saved fit, and of a checkpoint

Announce = Callable[[PaperCell, dict[str, Any] | None, list[PaperCell], float], None]


def run_cells(
    grid: Grid, out: Path, *, overwrite: bool = False, announce: Announce | None = None
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Run the cells that have no record yet; all records of the folder, and whether it was stopped.

    Cells that another process is at, or has made since, are left to it.
    `announce(cell, record, left, seconds)` is called before a cell, with None for its record, and after it,
    with the cells that are left then and an estimate of how long they take.
    """
    measure_of(grid.experiment)  # before an hour has gone by
    cells = grid.experiment.cells()
    wanted = {cell.name: grid.fingerprint(cell) for cell in cells}
    if overwrite and is_busy(out):
        raise InputError(f"another process is at work in {out}; wait for it, or leave --overwrite out")
    tables = [f"{grid.experiment.name}.{ending}" for ending in ("md", "csv")]
    kept = open_records(out, wanted, tables, overwrite=overwrite)
    if overwrite:
        for folder in (*(out / FITS).glob("*"), *(out / CHECKPOINTS).glob("*")):
            remove_fit(folder)
    known = [record for record in kept.values() if record["result"] != "failed"]
    left = [cell for cell in cells if kept.get(cell.name, {"result": "failed"})["result"] == "failed"]
    before = {cell: written(out, cell) if cell.name in kept else None for cell in left}
    interrupted = False
    try:
        while left := [cell for cell in left if written(out, cell) == before[cell]]:
            cell, left = left[0], left[1:]
            with claim(out, cell.name) as mine:
                if not mine or written(out, cell) != before[cell]:
                    continue
                if announce:
                    announce(cell, None, [cell, *left], time_left(grid.experiment, [cell, *left], known))
                record = run_cell(grid, cell, out)
                records.write_record(out, cell.name, wanted[cell.name], record)
                remove_fit(out / CHECKPOINTS / cell.name)
            known.append(record)
            if announce:
                announce(cell, record, left, time_left(grid.experiment, left, known))
    except KeyboardInterrupt:
        interrupted = True
    return read_records(out, wanted), interrupted


def remove_fit(folder: Path) -> None:
    """Delete what a saved fit is made of, by name: whatever else is in the folder is not ours."""
    with contextlib.suppress(OSError):
        for name in FIT_FILES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def written(out: Path, cell: PaperCell) -> int | None:
    """When the record of a cell was written, in the units of the system; None where there is none."""
    file = records.record_file(out, cell.name)
    return file.stat().st_mtime_ns if file.exists() else None


def run_cell(grid: Grid, cell: PaperCell, out: Path) -> dict[str, Any]:
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


def measure_of(experiment: Experiment) -> Callable[[Grid, PaperCell, Path], dict[str, Any]]:
    """What a cell of the experiment is."""
    if experiment.measure not in MEASURES:
        raise InputError(
            f"{experiment.name} has the unknown measure {experiment.measure!r}; "
            f"choose from {', '.join(MEASURES)}"
        )
    return MEASURES[experiment.measure]


def time_left(experiment: Experiment, left: Sequence[PaperCell], known: Sequence[Mapping[str, Any]]) -> float:
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
