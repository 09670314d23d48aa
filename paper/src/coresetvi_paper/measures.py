"""What a cell measures. Every measure returns a part of a record; `fresh` in it are the scores of the table.

`fresh` trains a posterior anew on the final coreset alone, beside the `warm` one that the construction ended
with, which has seen more than the coreset on its way; `transfer` is another model trained on it.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import coresetvi as cvi
from coresetvi.errors import CoresetviError
from coresetvi.families.importance import normalise, normalised_ess
from coresetvi.workflows.comparison import LARGEST_LAPLACE, posterior_kl

from .cell_fits import FITS, about, limits, make_fit, whole
from .cells import PaperCell
from .entropy_maps import plane
from .experiment import Experiment
from .grid import Grid

# Fresh posteriors have random streams of their own, not the one that made the coreset.
FRESH, TRANSFER = 1, 2
FEW_DRAWS, MANY_DRAWS = 10, 1000
MOST_POINTS = 200  # of a curve in a record
PACE = 1.15  # from one score to the next, in seconds


def fresh(grid: Grid, cell: PaperCell, out: Path) -> dict[str, Any]:
    """Scores of the fit as it is, of a posterior trained anew on its coreset, and of another model."""
    experiment, method = grid.experiment, grid.experiment.method(cell.method)
    _, test, _, _, other_model = grid.problem(cell.problem)
    fit = make_fit(grid, cell, out)
    if cell.size is not None:  # the rest have all rows for a coreset, which nobody needs twice
        fit.save(out / FITS / cell.name, overwrite=True)
    found: dict[str, Any] = {**about(fit), "warm": scored(fit, test, experiment), "transfer": None}
    root = jax.random.key(cell.key)
    if method.retrain:
        steps = method.fresh_steps or experiment.fresh_steps
        key = jax.random.fold_in(root, FRESH)
        fresh = whole(cvi.retrain(fit, key=key, **limits(experiment, cell, steps)))
        found |= {"fresh": scored(fresh, test, experiment), "fresh_seconds": fresh.seconds}
    else:
        found |= {"fresh": found["warm"], "fresh_seconds": None}
    if grid.transfers(cell):
        key = jax.random.fold_in(root, TRANSFER)
        flattened = dataclasses.replace(fit, coreset=flat(fit.coreset))
        bounds = limits(experiment, cell, experiment.fresh_steps)
        other = whole(cvi.retrain(flattened, key=key, model=other_model, **bounds))
        found["transfer"] = scored(other, flat(test), experiment)
    return found


def scored(fit: cvi.Fit, test: cvi.Dataset, experiment: Experiment) -> dict[str, float]:
    """Scores of plain draws of r, for all methods alike."""
    return fit.evaluate(test, num_samples=experiment.num_samples, correct=False)


def flat(data: cvi.Dataset) -> cvi.Dataset:
    """Images as rows of numbers, pixel by pixel."""
    if data.x.ndim == 2:
        return data
    return cvi.Dataset(data.x.reshape(len(data), -1), data.y, data.weights, target=data.target)


def scores(grid: Grid, cell: PaperCell, out: Path) -> dict[str, Any]:
    """Held-out scores, how well r covers the coreset posterior, and how far that is from the data's."""
    problem = grid.problem(cell.problem)
    fit = make_fit(grid, cell, out)
    found: dict[str, Any] = fit.evaluate(problem.test, num_samples=grid.experiment.num_samples)
    for draws in (FEW_DRAWS, MANY_DRAWS):
        # Ten draws once say little about how ten draws do: take the mean over many tens.
        found[f"ess_{draws}"] = mean_ess(fit, draws, MANY_DRAWS // draws)
    found["khat"] = fit.reliability(MANY_DRAWS)["khat"]
    if cell.size is not None and problem.model.dim <= LARGEST_LAPLACE and grid.experiment.detail.get("kl"):
        found["kl"] = distance(grid, cell, fit.coreset)
    return {**about(fit), "fresh": {name: value for name, value in found.items() if value is not None}}


def mean_ess(fit: cvi.Fit, draws: int, times: int) -> float:
    """Normalised effective sample size of `draws` draws, on average over `times` sets of them."""
    _, log_weights = fit.draws(draws * times)
    sets = jax.vmap(lambda part: normalised_ess(normalise(part)))(log_weights.reshape(times, draws))
    return float(np.mean(sets))


def distance(grid: Grid, cell: PaperCell, coreset: cvi.Dataset) -> float | None:
    """KL of the coreset's Laplace posterior to the data's; None where a mode is not found."""
    try:
        found = posterior_kl(grid.problem(cell.problem).model, coreset, grid.moments(cell.problem))
    except CoresetviError:
        return None
    return found if math.isfinite(found) else None


def losses(grid: Grid, cell: PaperCell, out: Path) -> dict[str, Any]:
    """The variational objective at every step, of all stages one after the other."""
    fit = make_fit(grid, cell, out)
    bound = -np.concatenate([one.history["loss"] for one in (*fit.earlier, fit)])
    steps = np.arange(1, len(bound) + 1)
    kept = np.unique(np.linspace(0, len(bound) - 1, MOST_POINTS).astype(int))
    curve = {"x": steps[kept].tolist(), "y": [round(float(value), 3) for value in bound[kept]]}
    found = scored(fit, grid.problem(cell.problem).test, grid.experiment)
    return {**about(fit), "fresh": found, "curve": curve}


def times(grid: Grid, cell: PaperCell, out: Path) -> dict[str, Any]:
    """The score of the table against seconds of steps, without compilation and without the scoring."""
    experiment, test = grid.experiment, grid.problem(cell.problem).test
    seen: list[tuple[float, float]] = []

    def watch(steps: int, look: Callable[[], cvi.Fit]) -> None:
        fit = look()
        seconds = fit.seconds["run"]
        if steps and (not seen or seconds > PACE * seen[-1][0]):  # evenly on a logarithmic axis
            found = fit.evaluate(test, num_samples=experiment.num_samples)
            seen.append((seconds, found[experiment.metric]))

    fit = make_fit(grid, cell, out, watch)
    found = fit.evaluate(test, num_samples=experiment.num_samples)
    seen.append((fit.seconds["run"], found[experiment.metric]))
    curve = {"x": [round(x, 4) for x, _ in seen], "y": [round(y, 5) for _, y in seen]}
    return {**about(fit), "fresh": found, "curve": curve}


def regression(grid: Grid, cell: PaperCell, out: Path) -> dict[str, Any]:
    """NLL, RMSE and the learned noise in the units of the original values; the key names the split as well.

    `fresh` are the scores of a posterior that the reference method finds anew given the coreset alone: r
    itself, whose are the `warm` ones, has seen more than that on its way. Draws are not importance-corrected,
    for all methods alike: plain inference does not correct either.
    """
    experiment, method = grid.experiment, grid.experiment.method(cell.method)
    train, test = cvi.datasets.load(**experiment.problem(cell.problem).dataset, split=cell.key)
    mean, scale = (np.asarray(part) for part in train.scale())
    y_mean, y_scale = (float(part[0]) for part in cvi.Dataset(np.asarray(train.y)).scale())

    def standardised(data: cvi.Dataset) -> cvi.Dataset:
        x, y = np.asarray(data.x), np.asarray(data.y)
        return cvi.Dataset((x - mean) / scale, (y - y_mean) / y_scale)

    rows = standardised(test)

    def scores(fit: cvi.Fit) -> dict[str, float]:
        found = fit.evaluate(rows, num_samples=experiment.num_samples, correct=False)
        # A density per original unit is one per standardised unit divided by y_scale.
        noise = y_scale * math.exp(float(fit.psi["mean"][-1]))
        return {"nll": found["nll"] + math.log(y_scale), "rmse": y_scale * found["rmse"], "noise": noise}

    model, bounds = grid.problem(cell.problem).model, limits(experiment, cell, None)
    construction = experiment.construction(cell)
    fit = whole(cvi.fit(construction, model, standardised(train), key=cell.key, **bounds))
    warm = fresh = scores(fit)
    if method.retrain and experiment.reference is not None:
        plain = experiment.method(experiment.reference)
        bounds = limits(experiment, PaperCell(cell.problem, plain.id, None, cell.key), None)
        again = cvi.fit(plain.build(None), model, fit.coreset, key=cell.key + FRESH, **bounds)
        fresh = scores(whole(again))
    return {**about(fit), "warm": warm, "fresh": fresh}


MEASURES: dict[str, Callable[[Grid, PaperCell, Path], dict[str, Any]]] = {
    one.__name__: one for one in (fresh, scores, losses, times, plane, regression)
}
