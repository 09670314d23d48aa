"""Run the cells of an experiment, one record file each; what is finished is not run again. Prints nothing.

A cell is scored twice. `warm` are the scores of the posterior that the construction itself ended with, which
has seen more than the coreset on its way. `fresh` are those of a posterior trained anew on the final coreset
alone, and `transfer` those of another model trained on it: what the coreset is worth by itself.
"""

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import coresetvi as cvi

from .. import records, storage
from ..config import encode
from ..errors import CoresetviError
from .experiment import Cell, Experiment
from .objects import build

FITS, CHECKPOINTS = "fits", "checkpoints"
# Fresh posteriors have random streams of their own, not the one that made the coreset.
FRESH, TRANSFER = 1, 2
# More than any budget allows: a fit that does not stop by itself takes all the time it is given.
MOST_STEPS = 10**7
COMMON = {"experiment": "another experiment"}
PARTS = COMMON | {
    "data": "other data",
    "model": "another model",
    "construction": "other settings of the method",
    "budget": "another --budget",
    "protocol": "other ways to score",
}

Announce = Callable[[Cell, dict[str, Any] | None, list[Cell], float], None]


class Loaded(NamedTuple):
    """A problem with all its parts: rows to fit, rows to score on, their digest, the model, and another."""

    train: cvi.Dataset
    test: cvi.Dataset
    digest: str
    model: cvi.models.Model
    other: cvi.models.Model | None


@dataclasses.dataclass(frozen=True)
class Grid:
    """An experiment with its problems, each loaded when first asked for."""

    experiment: Experiment
    loaded: dict[str, Loaded] = dataclasses.field(default_factory=dict)

    def problem(self, name: str) -> Loaded:
        """The problem of that id."""
        if name not in self.loaded:
            one = self.experiment.problem(name)
            train, test = one.load()
            test = test.take(np.arange(len(test))[: self.experiment.num_test])
            model = build(one.model, f"the model of problem {name!r}")
            other = None if one.transfer is None else build(one.transfer, f"the transfer of {name!r}")
            self.loaded[name] = Loaded(train, test, records.digest(train, test), model, other)
        return self.loaded[name]

    def transfers(self, cell: Cell) -> bool:
        """Whether the other model is trained on the coreset of this cell."""
        sizes = self.experiment.method(cell.method).transfer
        return cell.size in sizes and self.problem(cell.problem).other is not None

    def fingerprint(self, cell: Cell) -> dict[str, Any]:
        """All that the record of a cell depends on besides its key, which is in its name."""
        experiment, method = self.experiment, self.experiment.method(cell.method)
        problem = self.problem(cell.problem)
        return {
            "experiment": experiment.name,
            "data": problem.digest,
            "model": encode(problem.model),
            "construction": encode(method.build(cell.size)),
            "budget": experiment.budget if experiment.num_steps is None else None,
            "protocol": {
                "num_samples": experiment.num_samples,
                "num_steps": experiment.num_steps,
                "retrain": method.retrain,
                "fresh_steps": method.fresh_steps or experiment.fresh_steps,
                "transfer": encode(problem.other) if self.transfers(cell) else None,
            },
        }

    @property
    def kind(self) -> records.Kind:
        """What the folder of this experiment holds."""
        name = self.experiment.name
        return records.Kind(COMMON, PARTS, (f"{name}.md", f"{name}.csv", f"{name}.png"))


def run_cells(
    grid: Grid, cells: Sequence[Cell], out: Path, *, overwrite: bool = False, announce: Announce | None = None
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Run the cells that have no record yet; all records of the folder by name, and whether it was stopped.

    `announce(cell, record, left, seconds)` is called before a cell, with None for its record, and after it,
    with the cells that are left then and an estimate of how long they take.
    """
    wanted = {cell.name: grid.fingerprint(cell) for cell in cells}
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


def run_cell(grid: Grid, cell: Cell, out: Path) -> dict[str, Any]:
    """Fit one cell and score it. What goes wrong is a record too: the other cells are worth their time."""
    began, load = time.perf_counter(), machine_load()
    record: dict[str, Any] = {**dataclasses.asdict(cell), "version": cvi.__version__, "load_before": load}
    try:
        record |= fit_and_score(grid, cell, out)
    except CoresetviError as error:
        record |= {"result": "failed", "explanation": str(error)}
    except Exception as error:  # an hour of other cells is not lost to a bug or a full memory
        reason = (str(error).strip().splitlines() or [""])[0]
        record |= {"result": "failed", "explanation": f"{type(error).__name__}: {reason}"}
    record |= {"total_seconds": time.perf_counter() - began, "load_after": machine_load()}
    return record | {"peak_memory": peak_memory()}


def fit_and_score(grid: Grid, cell: Cell, out: Path) -> dict[str, Any]:
    """What a cell's record says about the fit and its scores."""
    experiment, method = grid.experiment, grid.experiment.method(cell.method)
    train, test, _, model, other_model = grid.problem(cell.problem)
    fit = whole(
        cvi.fit(
            method.build(cell.size),
            model,
            train,
            key=cell.key,
            checkpoint=out / CHECKPOINTS / cell.name,
            resume=True,
            **limits(experiment, None if method.automatic else MOST_STEPS),
        )
    )
    if cell.size is not None:  # the rest have all rows for a coreset, which nobody needs twice
        fit.save(out / FITS / cell.name, overwrite=True)
    found: dict[str, Any] = {
        "result": fit.result,
        "explanation": fit.explanation,
        "construction": encode(fit.construction),
        "steps": fit.about["steps"],
        "seconds": fit.seconds,
        "coreset_size": len(fit.coreset),
        "total_weight": float(fit.coreset.total_weight),
        "row_shape": list(fit.coreset.x.shape[1:]),
        "warm": scored(fit, test, experiment),
        "transfer": None,
    }
    root = jax.random.key(cell.key)
    if method.retrain:
        steps = method.fresh_steps or experiment.fresh_steps
        key = jax.random.fold_in(root, FRESH)
        fresh = whole(cvi.retrain(fit, key=key, **limits(experiment, steps)))
        found |= {"fresh": scored(fresh, test, experiment), "fresh_seconds": fresh.seconds}
    else:
        found |= {"fresh": found["warm"], "fresh_seconds": None}
    if grid.transfers(cell):
        key = jax.random.fold_in(root, TRANSFER)
        flattened = dataclasses.replace(fit, coreset=flat(fit.coreset))
        other = whole(
            cvi.retrain(flattened, key=key, model=other_model, **limits(experiment, experiment.fresh_steps))
        )
        found["transfer"] = scored(other, flat(test), experiment)
    return found


def limits(experiment: Experiment, num_steps: int | None) -> dict[str, Any]:
    """How long a fit may take: a number of steps where the experiment has one, else minutes; and no bar."""
    if experiment.num_steps is not None:
        return {"num_steps": experiment.num_steps, "progress": False}
    return {"num_steps": num_steps, "time_limit": 60.0 * experiment.budget, "progress": False}


def whole(fit: cvi.Fit) -> cvi.Fit:
    """`fit`, unless it was interrupted: half a fit is not a result of its method."""
    if fit.result == "interrupted":
        raise KeyboardInterrupt
    return fit


def scored(fit: cvi.Fit, test: cvi.Dataset, experiment: Experiment) -> dict[str, float]:
    """Scores of plain draws of r, for all methods alike."""
    return fit.evaluate(test, num_samples=experiment.num_samples, correct=False)


def flat(data: cvi.Dataset) -> cvi.Dataset:
    """Images as rows of numbers, pixel by pixel."""
    if data.x.ndim == 2:
        return data
    return cvi.Dataset(data.x.reshape(len(data), -1), data.y, data.weights, target=data.target)


def time_left(experiment: Experiment, left: Sequence[Cell], known: Sequence[Mapping[str, Any]]) -> float:
    """Seconds that the cells will take, like those of their method and size, of their method, or any."""
    usual = 0.0 if experiment.num_steps is not None else 120.0 * experiment.budget  # a fit and a fresh one
    total = 0.0
    for cell in left:
        wanted = dataclasses.asdict(cell)
        for names in (("problem", "method", "size"), ("problem", "method"), ()):
            alike = [one for one in known if all(one[name] == wanted[name] for name in names)]
            if times := [one["total_seconds"] for one in alike if one["result"] != "failed"]:
                total += float(np.mean(times))
                break
        else:
            total += usual
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
