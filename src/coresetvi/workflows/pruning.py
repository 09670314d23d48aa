"""Short functions that call `fit` again: shrinking a coreset by stages, trying it afresh, joining several."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import instance, short, whole_number
from .._keys import host_generator, one_key
from ..constructions.base import Construction, with_size
from ..data.clusters import spread_rows
from ..data.column_limits import column_facts
from ..data.dataset import Dataset
from ..errors import InputError
from ..fitting.loop import fit
from ..fitting.result import Fit
from ..models.base import Model


def prune(
    construction: Construction,
    model: Model,
    data: Dataset,
    sizes: Sequence[int] = (250, 100, 20),
    *,
    key: int | PRNGKeyArray,
    num_steps: int | None = None,
    progress: bool | None = None,
    watch: Callable[[int, Callable[[], Fit]], None] | None = None,
) -> Fit:
    """Fit a large coreset, keep points drawn by their weights, fit those anew, and so on (Alg. 5).

    `sizes` are the sizes of the stages, in decreasing order; the size of `construction` is not used. The
    points of the next stage are drawn without replacement from the multinomial that the weights make, so that
    no slot is spent on a point twice, and start with equal weights that add up to the data's. A draw may miss
    a part of the data that matters: with `init="spread"` in the construction, drawn points move to the
    nearest centres of clusters of the coreset and weigh what those weigh. Returns the last fit, which has the
    others in `Fit.earlier`. With points that are rows of the data, as those of `BBSparseVI`,
    `coreset.indices` are row numbers of `data` at every stage. `watch` is that of `fit`, with the steps of
    all stages so far.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> model = cvi.models.LogisticRegression(2)
    >>> pruned = prune(cvi.BBSparseVI(20), model, train, sizes=(20, 5), key=0, num_steps=3)
    >>> len(pruned.coreset), [len(stage.coreset) for stage in pruned.earlier]
    (5, [20])
    """
    instance("construction", construction, Construction, "a construction such as BBSparseVI(size=250)")
    if not construction.takes_initial:
        raise InputError(
            f"{type(construction).__name__} cannot start from given points, so it cannot be pruned; "
            "use BBSparseVI or BBPSVI."
        )
    if not hasattr(construction, "size"):
        raise InputError(
            f"{type(construction).__name__} has no size, so it cannot be pruned; use BBSparseVI or BBPSVI."
        )
    sizes = decreasing(sizes)
    root, stages, initial = one_key(key), [], None
    for number, size in enumerate(sizes):
        steps_before = sum(stage.about["steps"] for stage in stages)
        fit_key, draw_key = jax.random.split(jax.random.fold_in(root, number))
        stage = fit(
            with_size(construction, size),
            model,
            data,
            key=fit_key,
            initial=initial,
            num_steps=num_steps,
            progress=progress,
            watch=watch and after(steps_before, watch),
        )
        stages.append(stage)
        if stage.result in ("interrupted", "non_finite"):
            break
        if number + 1 < len(sizes):
            rows = draw_points(stage.coreset, sizes[number + 1], draw_key)
            spread = getattr(construction, "init", None) == "spread"
            initial = start_points(stage.coreset, rows, float(data.total_weight), spread)
    return dataclasses.replace(stages[-1], earlier=tuple(stages[:-1]))


def after(steps_before: int, watch: Callable[..., None]) -> Callable[..., None]:
    """`watch` with its steps counted on from those of earlier fits."""
    return lambda steps, look: watch(steps_before + steps, look)


def decreasing(sizes: object) -> list[int]:
    """`sizes` as whole numbers, each smaller than the one before."""
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise InputError(f"sizes must be a list of whole numbers such as (250, 100, 20), not {short(sizes)}.")
    numbers = [whole_number("sizes", size) for size in sizes]
    if not numbers:
        raise InputError("sizes is empty; name at least one size.")
    for before, after in itertools.pairwise(numbers):
        if after >= before:
            raise InputError(f"sizes must decrease, but {after} follows {before}; sort them.")
    return numbers


def draw_points(coreset: Dataset, size: int, key: PRNGKeyArray) -> np.ndarray:
    """`size` of the points' numbers, drawn by their weights without replacement."""
    generator = host_generator(key)
    weights = np.asarray(coreset.weights, np.float64)
    # Adding a Gumbel number to log-weights and keeping the largest draws one by one from what is left. Points
    # of no weight come last, in random order.
    scores = np.log(np.maximum(weights, np.finfo(float).tiny)) + generator.gumbel(size=len(weights))
    return np.sort(np.argsort(-scores)[:size])


def start_points(coreset: Dataset, rows: np.ndarray, total: float, spread: bool) -> Dataset:
    """The drawn points, weighing alike, or points near them that stand for clusters and weigh as these do."""
    if spread and (coreset.y is None or coreset.y.ndim == 1):
        kept = spread_rows(coreset, rows)
        weights = np.asarray(kept.weights) * (total / float(kept.total_weight))
    else:
        kept, weights = coreset.take(rows), np.full(len(rows), total / len(rows))
    return Dataset(
        kept.x,
        kept.y,
        weights,
        indices=None if coreset.indices is None else kept.indices,
        **column_facts(kept),
    )
