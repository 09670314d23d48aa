"""A coreset as rows that every tool understands: weighted, with one plain label each; and as a file."""

import os
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np

from .._checks import instance
from ..data import files as tables
from ..data.column_limits import column_facts
from ..data.dataset import Dataset
from ..data.frames import Columns, named_columns
from ..errors import InputError
from ..fitting.result import Fit
from ..models.glm import LinearPredictor
from ..models.likelihoods import Poisson
from ..storage import write_file

ClassNames = list[str | int | float | bool]


def hard_rows(coreset: Dataset, num_classes: int | None) -> Dataset:
    """The same weighted log-likelihood from rows with hard labels; rows of zero weight are left out.

    A soft label z counts sum_c z_c log p(c | u, theta), so a point of weight v is exactly C rows of weight
    v z_c. Labels that are not classes (`num_classes` None) stay as they are.

    >>> rows = hard_rows(Dataset([[5.0], [6.0]], [[0.25, 0.75], [0.0, 1.0]], weights=[4, 2]), 2)
    >>> rows.x[:, 0].tolist(), rows.y.tolist(), rows.weights.tolist()
    ([5.0, 5.0, 6.0], [0, 1, 1], [1.0, 3.0, 2.0])
    """
    _, y, weights = coreset.to_numpy()
    if num_classes is None:
        return coreset.take(np.flatnonzero(weights))
    if y is None:
        raise InputError("the coreset has no labels, but its model has classes; give it labels")
    if y.ndim == 1:
        wrong = ~np.isin(y, np.arange(num_classes))
        if wrong.any():
            raise InputError(
                f"label {y[wrong][0]:g} of point {wrong.argmax()} is none of the classes 0 to "
                f"{num_classes - 1}; encode labels as 0 … C-1"
            )
        y = np.eye(num_classes)[y.astype(int)]
    elif y.shape[1] != num_classes:
        raise InputError(
            f"the coreset has soft labels for {y.shape[1]} classes, but the model has {num_classes}; "
            "use the model that it was made with"
        )
    shares = weights[:, None].astype(np.float64) * y
    return _spread(coreset, shares, np.broadcast_to(np.arange(num_classes), shares.shape))


def hard_counts(coreset: Dataset) -> Dataset:
    """The same Poisson posterior from rows with whole counts.

    A learned count need not be whole. Its log-probability y log(rate) - rate, but for a constant, is linear
    in y, so k + f is exactly the counts k and k + 1 in the proportion 1 - f to f.

    >>> rows = hard_counts(Dataset([[5.0]], [2.25], weights=[4]))
    >>> rows.y.tolist(), rows.weights.tolist()
    ([2, 3], [3.0, 1.0])
    """
    _, y, weights = coreset.to_numpy()
    if y is None:
        raise InputError("the coreset has no labels, but a Poisson model needs counts; give it some")
    y = y.astype(np.float64)
    if (y < 0).any():
        raise InputError(
            f"point {(y < 0).argmax()} has the learned count {y[y < 0][0]:.3g}, and no tool takes negative "
            "counts; fit without learning y"
        )
    whole = np.floor(y)
    shares = weights[:, None].astype(np.float64) * np.stack([1.0 - (y - whole), y - whole], axis=1)
    return _spread(coreset, shares, np.stack([whole, whole + 1], axis=1).astype(np.int64))


def _spread(coreset: Dataset, shares: np.ndarray, labels: np.ndarray) -> Dataset:
    """One row for every (point, label) whose share of the weight is not zero."""
    shares = shares.astype(coreset.weights.dtype)  # which may make very small ones zero
    points, columns = np.nonzero(shares)
    taken = coreset.take(points)
    return Dataset(
        taken.x,
        labels[points, columns],
        shares[points, columns],
        indices=None if coreset.indices is None else taken.indices,
        **column_facts(coreset),
    )


# Likelihoods whose labels may be something else than classes or plain numbers.
SPECIAL: dict[type, Callable[[Dataset], Dataset]] = {Poisson: hard_counts}


def fit_rows(fit: Fit) -> Dataset:
    """The coreset of a fit as rows with hard labels of the kind that its model explains."""
    instance("fit", fit, Fit, "a fit such as coresetvi.load(path)")
    special = SPECIAL.get(type(getattr(fit.model, "likelihood", None)))
    return hard_rows(fit.coreset, fit.model.num_classes) if special is None else special(fit.coreset)


def regression_of(fit: Fit, tool: str, known: Container[type]) -> LinearPredictor:
    """The model of a fit, if it is a regression with a likelihood that is `known` to the tool."""
    instance("fit", fit, Fit, "a fit such as coresetvi.load(path)")
    model = fit.model
    if isinstance(model, LinearPredictor) and type(model.likelihood) in known:
        return model
    raise InputError(
        f"{type(model).__name__} cannot be written for {tool}, which is given regressions only; "
        "use export.numpyro(fit), which takes any model"
    )


def class_names(fit: Fit) -> ClassNames | None:
    """What the codes 0 … C-1 stand for, if the fit knows."""
    return fit.extra.get("classes")


def table(fit_or_coreset: Fit | Dataset, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a coreset as .csv, .tsv (.gz) or .parquet: columns of x, label, weight (see `Dataset.to_pandas`).

    Classes go by their names if the fit knows them. Soft labels are one column of probabilities per class.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table(Dataset([[0.5]], [1], weights=[8], columns=["age"], target="sick"), f"{folder}/coreset.csv")
    ...     Path(f"{folder}/coreset.csv").read_text()
    '"age","sick","weight"\\n0.5,1,8\\n'
    """
    tables.write_table(path, table_columns(fit_or_coreset), overwrite=overwrite)


def table_columns(fit_or_coreset: Fit | Dataset) -> Columns:
    """The columns that `table` writes."""
    if isinstance(fit_or_coreset, Dataset):
        return row_columns(fit_or_coreset, None)
    instance("The first argument", fit_or_coreset, Fit, "a fit or a coreset")
    return row_columns(fit_or_coreset.coreset, class_names(fit_or_coreset))


def row_columns(rows: Dataset, classes: ClassNames | None, weight: str = "weight") -> Columns:
    """Rows as named columns; classes by name if there are names."""
    names = rows.columns, rows.target
    return named_columns(*rows.to_numpy(), columns=names[0], target=names[1], classes=classes, weight=weight)


def write_text(path: Path, text: str, *, overwrite: bool = False) -> None:
    """Write a text file, whole or not at all."""
    tables.check_file(path, overwrite=overwrite)
    write_file(path, text.encode("utf-8"))
