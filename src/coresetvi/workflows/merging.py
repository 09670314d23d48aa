"""`merge`: the union of coresets of disjoint data."""

from collections.abc import Iterable

import jax.numpy as jnp
import numpy as np

from .._checks import instance
from ..data.column_limits import column_facts
from ..data.dataset import Dataset, concatenate
from ..errors import InputError
from ..fitting.result import Fit


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
    return Dataset(x[used], labels, weights[used], **column_facts(coreset))
