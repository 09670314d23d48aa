"""Regression with Bayesian networks on the UCI problems: a coreset, a random subset, and all the data.

The paper has no regression; this is the usual comparison of Bayesian networks (one hidden layer of 50 units,
published splits, standardised data, scores in the units of the original values), with coresets in it.
"""

import math
from typing import Any

import numpy as np

import coresetvi as cvi

from ..constructions.base import Construction
from ..errors import InputError

HIDDEN = (50,)
# Rows a step. Sets with fewer training rows are used whole; protein, the largest, has 41,157.
BATCH_ROWS = 1024
# Plain inference, also when a coreset's posterior is trained anew.
PLAIN: dict[str, Any] = {"learning_rate": 0.2, "num_samples": 8}
STEPS = {"bb-psvi": 1000, "random-subset": 3000, "full-vi": 3000}
LEARN = ("x", "y", "weights", "total")
INNER: dict[str, Any] = {"num_steps": 30, "learning_rate": 0.1}
OUTER: dict[str, Any] = {"learning_rate": 0.1}
# The random stream of a posterior that is trained anew on the final coreset is another than the coreset's.
FRESH = 1


def run_uci(
    name: str,
    split: int,
    method: str,
    size: int | None,
    *,
    key: int,
    num_steps: int | None = None,
    time_limit: float | None = None,
) -> dict[str, Any]:
    """Fit `method` to a published split of the regression `name` and score it on the split's test rows.

    `method` is "bb-psvi" or "random-subset", with `size` points, or "full-vi", with size None. `nll`, `rmse`
    and `noise`, the learned deviation, are those of the fitted r, in the units of the original values.
    `fresh` has the same of a posterior that plain inference finds anew given the coreset alone: r itself has
    seen more than that on its way. It is None for the other methods, where it is no news.
    """
    construction = _construction(method, size)
    train, test = cvi.datasets.uci(name, split)
    mean, scale = train.scale()
    y_mean, y_scale = (float(number[0]) for number in cvi.Dataset(np.asarray(train.y)).scale())

    def standardised(data: cvi.Dataset) -> cvi.Dataset:
        x = (np.asarray(data.x) - np.asarray(mean)) / np.asarray(scale)
        return cvi.Dataset(x, (np.asarray(data.y) - y_mean) / y_scale)

    def scores(fit: cvi.Fit) -> dict[str, float]:
        # Not importance-corrected, for all methods alike: plain inference does not correct either.
        found = fit.evaluate(rows, correct=False)
        # A density per original unit is one per standardised unit divided by y_scale.
        noise = y_scale * math.exp(float(fit.psi["mean"][-1]))
        return {"nll": found["nll"] + math.log(y_scale), "rmse": y_scale * found["rmse"], "noise": noise}

    model = cvi.models.BayesianMLP(train.dim, HIDDEN, None, noise=None)
    rows, steps = standardised(test), STEPS[method] if num_steps is None else num_steps
    fit = cvi.fit(
        construction,
        model,
        standardised(train),
        key=key,
        num_steps=steps,
        time_limit=time_limit,
        progress=False,
    )
    fresh = None
    if method == "bb-psvi":
        steps = STEPS["full-vi"] if num_steps is None else num_steps
        again = _construction("full-vi", None)
        fresh = scores(cvi.fit(again, model, fit.coreset, key=key + FRESH, num_steps=steps, progress=False))
    return {
        "name": name,
        "split": split,
        "method": method,
        "size": size,
        "key": key,
        **scores(fit),
        "fresh": fresh,
        "steps": fit.about["steps"],
        "seconds": fit.seconds["run"],
        "result": fit.result,
    }


def _construction(method: str, size: int | None) -> Construction:
    """The construction behind a method's name."""
    if method not in STEPS:
        raise InputError(f"there is no method {method!r}; choose one of {', '.join(STEPS)}")
    if (size is None) is not (method == "full-vi"):
        remedy = "leave it None" if size is not None else "say how many points"
        raise InputError(f"size is {size}, which does not go with {method}; {remedy}")
    family = cvi.families.MeanField()
    if size is None:
        return cvi.FullVI(family=family, batch_size=BATCH_ROWS, **PLAIN)
    if method == "random-subset":
        return cvi.RandomSubset(size, family=family, **PLAIN)
    return cvi.BBPSVI(
        size,
        family=family,
        learn=LEARN,
        inner=cvi.inner.Unrolled(**INNER),
        optimizer=cvi.outer.Adam(**OUTER),
        batch_size=BATCH_ROWS,
    )
