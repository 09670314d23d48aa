"""Short functions that call `fit` again: shrinking a coreset by stages, trying it afresh, joining several."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .checks import instance, short, whole_number
from .constructions.base import Construction
from .constructions.reference import PointsVI
from .coreset import host_generator
from .data import Dataset, concatenate
from .errors import InputError
from .fit import fit, one_key
from .fitted import Fit
from .models.base import Model
from .spread import spread_rows


def prune(
    construction: Construction,
    model: Model,
    data: Dataset,
    sizes: Sequence[int] = (250, 100, 20),
    *,
    key: int | PRNGKeyArray,
    num_steps: int | None = None,
    progress: bool | None = None,
    watch: Callable[[int, Callable[[], Any]], None] | None = None,
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


def decreasing(sizes: Any) -> list[int]:
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


def with_size(construction: Construction, size: int) -> Any:
    """The same construction with another number of points."""
    return dataclasses.replace(construction, size=size)  # pyright: ignore[reportCallIssue]


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
        columns=kept.columns,
        target=kept.target,
        indices=None if coreset.indices is None else kept.indices,
    )


def retrain(
    fitted: Fit,
    *,
    key: int | PRNGKeyArray,
    model: Model | None = None,
    num_steps: int | None = None,
    time_limit: float | int | None = None,
    progress: bool | None = None,
) -> Fit:
    """A fresh posterior on the points of a fit, from a start of its own: the honest trial of a coreset.

    The r that a fit ends with has followed its coreset all along; this one sees the final points only. With
    another `model` it tells whether the points serve that one too.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> made = cvi.fit(cvi.BBPSVI(8), cvi.models.LogisticRegression(2), train, key=0, num_steps=5)
    >>> fresh = retrain(made, key=1, num_steps=5)
    >>> bool((fresh.coreset.x == made.coreset.x).all()), type(fresh.construction).__name__
    (True, 'PointsVI')
    """
    instance("The first argument", fitted, Fit, "what coresetvi.fit returned")
    construction = PointsVI()
    if model is None:
        model, made_by = fitted.model, fitted.construction
        construction = (made_by and made_by.on_points()) or PointsVI(family=fitted.family.for_many_steps())
    points = fitted.coreset
    known = points
    if points.y is not None and points.y.ndim == 2 and model.num_classes is not None:
        # Models check hard labels; what is fitted are the soft ones.
        known = eqx.tree_at(lambda data: data.y, points, jnp.argmax(points.y, axis=1))
    return fit(
        construction,
        model,
        known,
        key=key,
        initial=points,
        num_steps=num_steps,
        time_limit=time_limit,
        progress=progress,
    )


def merge(coresets: Iterable[Dataset | Fit]) -> Dataset:
    """The union of coresets (or fits) of disjoint data: a weighted data set that can be compressed again.

    Total weight is conserved. A point with a soft label becomes one point a class, weighing its share: that
    is the same likelihood. Points of no weight are left out, and row numbers too, for they would be those of
    different data sets.

    >>> joined = merge([Dataset([[1.0]], [0], [3.0]), Dataset([[2.0]], [1], [4.0])])
    >>> len(joined), float(joined.total_weight)
    (2, 7.0)
    """
    if isinstance(coresets, Dataset | Fit):
        raise InputError("merge takes a list of coresets; write merge([first, second]).")
    parts = [part.coreset if isinstance(part, Fit) else part for part in coresets]
    for part in parts:
        instance("Each part of a merge", part, Dataset, "a Dataset or a Fit")
    if not parts:
        raise InputError("merge was given no coresets; pass a list of at least one.")
    labelled = [part.y is not None for part in parts]
    if any(labelled) != all(labelled):
        raise InputError(
            f"Coreset {labelled.index(False)} has no labels but others have; merge coresets of one kind."
        )
    return concatenate(*(hard_labels(part) for part in parts))


def hard_labels(coreset: Dataset) -> Dataset:
    """The same likelihood with one label a point, without row numbers and without points of no weight."""
    x, y, weights = coreset.to_numpy()
    if y is not None and y.ndim == 2:
        classes = np.tile(np.arange(y.shape[1]), len(x))
        x, weights, y = np.repeat(x, y.shape[1], axis=0), np.repeat(weights, y.shape[1]) * y.ravel(), classes
    used = weights > 0
    if not used.any():
        raise InputError("A coreset to merge has no weight at all; leave it out.")
    labels = None if y is None else jnp.asarray(y[used])
    return Dataset(x[used], labels, weights[used], columns=coreset.columns, target=coreset.target)
