"""How the fit of a cell is made: by `fit`, `prune` or `continual`, within its steps or minutes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import coresetvi as cvi
from coresetvi.configuration import encode
from coresetvi.errors import InputError

from .cells import PaperCell
from .experiment import Experiment
from .grid import Grid

FITS, CHECKPOINTS = "fits", "checkpoints"
# More than any budget allows: a fit that does not stop by itself takes all the time it is given.
MOST_STEPS = 10**7

Watch = Callable[[int, Callable[[], cvi.Fit]], None]


def make_fit(grid: Grid, cell: PaperCell, out: Path, watch: Watch | None = None) -> cvi.Fit:
    """The fit of a cell; one that `fit` makes is kept on the way, and goes on where it was interrupted."""
    experiment, method = grid.experiment, grid.experiment.method(cell.method)
    problem, construction = grid.problem(cell.problem), grid.experiment.construction(cell)
    if method.driver == "fit":
        kept: dict[str, Any] = {"checkpoint": out / CHECKPOINTS / cell.name, "resume": True}
        if watch is not None:  # what was seen of the first part is not in a checkpoint
            kept = {"watch": watch}
        bounds = limits(experiment, cell, None if method.automatic else MOST_STEPS)
        return whole(cvi.fit(construction, problem.model, problem.train, key=cell.key, **kept, **bounds))
    if method.driver == "prune":
        sizes = (*method.stages, cell.size or 0)
        steps = experiment.steps_of(cell)
        options: dict[str, Any] = {"key": cell.key, "num_steps": steps, "progress": False, "watch": watch}
        return whole(cvi.prune(construction, problem.model, problem.train, sizes, **options))
    raise InputError(
        f"method {method.id!r} has the driver {method.driver!r}, which {experiment.measure!r} cannot use; "
        "choose fit or prune"
    )


def learn_tasks(grid: Grid, cell: PaperCell) -> list[cvi.Fit]:
    """The fits of a learner that meets the classes one by one, after the first two."""
    method, problem = grid.experiment.method(cell.method), grid.problem(cell.problem)
    labels, first = np.asarray(problem.train.y), grid.experiment.construction(cell)
    steps, budgets = grid.experiment.steps_of(cell), (*method.stages, cell.size or 0)
    learner = cvi.continual(first, problem.model, key=cell.key, num_steps=steps, progress=False)
    fits = []
    for stage, budget in enumerate(budgets):
        new = (0, 1) if stage == 0 else (stage + 1,)
        fits.append(whole(learner.update(problem.train.take(np.isin(labels, new)), budget)))
    return fits


def limits(experiment: Experiment, cell: PaperCell, num_steps: int | None) -> dict[str, Any]:
    """How long a fit may take, in steps and in time; `num_steps` where nothing else is said. No bar."""
    steps, minutes = experiment.steps_of(cell), experiment.minutes_of(cell)
    return {
        "num_steps": num_steps if steps is None else steps,
        "time_limit": None if minutes is None else 60.0 * minutes,
        "progress": False,
    }


def whole(fit: cvi.Fit) -> cvi.Fit:
    """`fit`, unless it was interrupted: half a fit is not a result of its method."""
    if fit.result == "interrupted":
        raise KeyboardInterrupt
    return fit


def about(fit: cvi.Fit) -> dict[str, Any]:
    """What every record says about its fit."""
    return {
        "result": fit.result,
        "explanation": fit.explanation,
        "construction": encode(fit.construction),
        "steps": fit.about["steps"],
        "seconds": fit.seconds,
        "coreset_size": len(fit.coreset),
        "total_weight": float(fit.coreset.total_weight),
        "row_shape": list(fit.coreset.x.shape[1:]),
    }
