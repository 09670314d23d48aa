"""The measure of regressions on published splits: values are standardised, scores are in their own units."""

import math
from pathlib import Path
from typing import Any

import numpy as np

import coresetvi as cvi

from .grid import Grid
from .making import about, limits, whole
from .parts import Cell

# The random stream of a posterior that is trained anew on the final coreset is another than the coreset's.
FRESH = 1


def regression(grid: Grid, cell: Cell, out: Path) -> dict[str, Any]:
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
        bounds = limits(experiment, Cell(cell.problem, plain.id, None, cell.key), None)
        again = cvi.fit(plain.build(None), model, fit.coreset, key=cell.key + FRESH, **bounds)
        fresh = scores(whole(again))
    return {**about(fit), "warm": warm, "fresh": fresh}
