"""Frames of pandas, polars and pyarrow: their columns on the way in, and weighted rows on the way out.

On the way out, columns are a plain dictionary from names to numpy arrays, so that files and frames are made
from one thing.
"""

import importlib
from collections.abc import Container, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Columns = dict[str, np.ndarray]


def columns_of(value: object, role: str) -> dict[str, nw.Series] | None:
    """The columns of a frame or series by name; None for anything else."""
    try:
        frame = nw.from_native(value, allow_series=True, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
    except nw.exceptions.DuplicateError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{role} needs distinct column names ({reason}); rename them") from error
    if isinstance(frame, nw.Series):
        return {"" if frame.name is None else str(frame.name): frame}
    if isinstance(frame, nw.DataFrame):
        return {str(series.name): series for series in frame.iter_columns()}
    return None


def pop_column(table: dict[str, nw.Series] | None, name: str, role: str) -> nw.Series:
    if table is None:
        raise InputError(f"{role}={name!r} names a column, but x is not a frame; pass an array")
    if name not in table:
        choices = ", ".join(map(repr, table))
        raise InputError(f"{role}={name!r} is not a column of x; choose one of {choices}")
    return table.pop(name)


def named_columns(
    x: np.ndarray,
    y: np.ndarray | None,
    weights: np.ndarray,
    *,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    classes: Sequence[object] | None = None,
    weight: str = "weight",
) -> Columns:
    """The columns of x, then the label under the name `target` (or "y"), then the weight.

    Columns of x without names are x0, x1, …; images are flattened. A soft label becomes one column of
    probabilities per class, `target_0`, `target_1`, …. `classes`, if given, are what the codes 0 … C-1 stand
    for: hard labels become those names, and soft ones use them instead of the numbers. Names that are taken
    get a number, so that no column is lost: a weight beside an input called "weight" is "weight_2".

    >>> soft = np.array([[0.25, 0.75]])
    >>> list(named_columns(np.ones((1, 2)), soft, np.ones(1), columns=["age", "weight"], target="sick"))
    ['age', 'weight', 'sick_0', 'sick_1', 'weight_2']
    """
    found: Columns = {}
    flat = x.reshape(len(x), -1)
    for name, values in zip(column_names(columns, flat.shape[1]), flat.T, strict=True):
        found[name] = values
    label = target or "y"
    if y is not None and y.ndim == 1:
        found[free_name(label, found)] = y if classes is None else np.array(classes)[y]
    elif y is not None:
        for code, values in enumerate(y.T):
            found[free_name(f"{label}_{code if classes is None else classes[code]}", found)] = values
    found[free_name(weight, found)] = weights
    return found


def column_names(columns: Sequence[str] | None, count: int) -> list[str]:
    """The names of x's columns, or x0, x1, … if they have none; all different.

    >>> column_names(["a", "a"], 2), column_names(None, 2)
    (['a', 'a_2'], ['x0', 'x1'])
    """
    names: list[str] = []
    for name in [f"x{number}" for number in range(count)] if columns is None else columns:
        names.append(free_name(name, names))
    return names


def free_name(name: str, taken: Container[str]) -> str:
    """`name`, or the first of name_2, name_3, … that is not among `taken`."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def to_pandas(columns: Columns) -> "pandas.DataFrame":
    """Columns as a pandas frame."""
    return optional("pandas", "to_pandas").DataFrame(columns)


def to_polars(columns: Columns) -> "polars.DataFrame":
    """Columns as a polars frame."""
    return optional("polars", "to_polars").DataFrame(columns)


def to_arrow(columns: Columns) -> "pyarrow.Table":
    """Columns as a pyarrow table."""
    return optional("pyarrow", "to_arrow").table(columns)


def optional(package: str, purpose: str) -> ModuleType:
    """A package that coresetvi does not depend on, or a sentence that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{purpose} needs {package}; pip install {package}") from error
