"""Which columns of a coreset stand still, and what is then left to learn."""

import numpy as np

from ..data.rows import Rows
from ..errors import InputError
from ..models.base import Model
from ..models.still_columns import still_columns


def columns_that_stay(model: Model, data: Rows) -> tuple[int, ...]:
    """Columns that the caller has fixed, and those that the model has no gradient for.

    >>> from coresetvi import Dataset
    >>> from coresetvi.models import LogisticRegression
    >>> columns_that_stay(LogisticRegression(2), Dataset([[0, 0.5], [1, -0.3]], [0, 1], fixed=[0]))
    (0,)
    """
    return tuple(sorted({*data.fixed, *still_columns(model, data)}))


def leaves_to_learn(
    asked: frozenset[str] | None,
    default: frozenset[str],
    still: tuple[int, ...],
    model: Model,
    data: Rows,
    *,
    draws: bool = False,
) -> frozenset[str]:
    """What a construction learns: what was asked for, or `default` as far as these columns let it.

    Where some columns do not move, a point stands for rows of one group, and tells them by its label: it may
    then carry a fraction of successes, or a mean. With draws of the coreset posterior at hand (`draws`), so
    may points of more than two classes: one hard label says nothing about how the other classes compare.
    """
    all_still = data.row_shape == (len(still),)
    if asked is not None:
        if all_still and "x" in asked:
            raise InputError(
                "learn has 'x', but every column is fixed or the log-likelihood has no gradient for it; "
                "learn 'y' or 'weights' instead."
            )
        return asked
    labels = data.labels()
    if not still:
        several = draws and labels is not None and (model.num_classes or 0) > 2
        return default | ({"y"} if several else set())
    # Counts and other whole numbers that are no classes may have no meaning between them.
    soft = labels is not None and (model.num_classes is not None or np.issubdtype(labels.dtype, np.floating))
    return default - ({"x"} if all_still else set()) | ({"y"} if soft else set())


def numbers_per_point(learn: frozenset[str], still: tuple[int, ...], model: Model, data: Rows) -> int:
    """How many numbers of every point are learned.

    >>> from coresetvi import Dataset
    >>> from coresetvi.models import LogisticRegression
    >>> rows = Dataset([[0, 0.5], [1, -0.3]], [0, 1])
    >>> numbers_per_point(frozenset({"x", "weights"}), (), LogisticRegression(2), rows)
    3
    """
    labels = data.labels()
    values = 1 if labels is None else int(np.prod(labels.shape))
    return (
        ("x" in learn) * (int(np.prod(data.row_shape)) - len(still))
        + ("y" in learn) * (model.num_classes or values)
        + ("weights" in learn)
    )
