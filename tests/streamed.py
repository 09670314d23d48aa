"""Rows that are read in blocks from data in memory, and fits to them, for several test files."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from coresetvi.constructions.base import Construction, start_key
from coresetvi.data.rows import Rows
from coresetvi.fitting import steps
from coresetvi.fitting.history import History
from coresetvi.fitting.outcome import Ending
from coresetvi.fitting.result import collect
from coresetvi.models import Model
from coresetvi.models.row_checks import check_rows


def stream(data: cvi.Dataset, block: int = 97) -> Rows:
    """The same rows, read `block` at a time."""
    x, y, weights = data.to_numpy()

    def batches():
        for start in range(0, len(x), block):
            part = slice(start, start + block)
            yield x[part], None if y is None else y[part], weights[part]

    return cvi.scan(batches, target=data.target, columns=data.columns, batch_rows=block)


def fit_rows(construction: Construction, model: Model, rows: Rows, key: int = 0) -> cvi.Fit:
    """What `fit` does with rows: the plan of the construction, followed to its end."""
    keys = jax.random.key(key)[None]
    plan = construction.settle(model, cast(cvi.Dataset, check_rows(model, rows)))
    first = jax.tree.map(lambda leaf: leaf[None], plan.start(start_key(keys[0])))
    run = steps.Run(plan, keys, steps.Position(first, jnp.ones(1, bool), 0), surveys=0)
    schedule, history = run.plan.schedule(None), History()
    while len(history) < schedule.end:
        (state, alive), info, count = steps.advance(run, schedule)
        history.extend(info, count, 0.0, 0.0)
        assert np.all(np.asarray(alive))
        run.position = steps.Position(state, alive, run.position.steps + count)
        schedule = run.plan.decide(schedule, history["loss"], history["kl"])
    return collect(run, 0, history, Ending(schedule, schedule, False), {"compile": 0.0, "run": 0.0})


def problem(name: str, num_rows: int, num_features: int) -> tuple[Model, cvi.Dataset]:
    """A regression and weighted rows drawn from it, with correlated columns."""
    generator = np.random.default_rng(0)
    mixing = np.eye(num_features) + 0.6 * np.tril(np.ones((num_features, num_features)), -1)
    x = generator.standard_normal((num_rows, num_features)) @ mixing.T + 0.3
    weights = generator.uniform(0.5, 1.5, num_rows)
    output = x @ np.linspace(1.0, -1.0, num_features)
    if name == "linear":
        y = output + 0.7 * generator.standard_normal(num_rows)
        return cvi.models.LinearRegression(num_features, noise=0.7, prior_scale=1.5), cvi.Dataset(
            x, y, weights
        )
    if name == "logistic":
        y = (generator.uniform(size=num_rows) < 1.0 / (1.0 + np.exp(-output))).astype(int)
        return cvi.models.LogisticRegression(num_features), cvi.Dataset(x, y, weights)
    assert name == "softmax"
    y = np.digitize(output + 0.5 * generator.standard_normal(num_rows), [-0.5, 0.7])
    return cvi.models.SoftmaxRegression(num_features, 3), cvi.Dataset(x, y, weights)
