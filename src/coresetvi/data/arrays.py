"""Numbers out of whatever people pass in, or one sentence about the first thing that is not a number.

numpy, jax, lists, pandas, polars or pyarrow frames and series, and the columns of a file all become arrays by
the same rules: booleans and numbers of any type count, and so does text that is a number ("1.5"); what is
missing (null, None, empty text) is NaN. What is concrete is checked here, once, on the host; traced values
can only be converted.
"""

import numbers
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple, SupportsInt

import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np
from jax.core import Tracer

from ..errors import InputError

_REMEDY = {
    "x": "one-hot encode or drop that column",
    "y": "encode the labels as 0..C-1",
    "weights": "give one non-negative number per row",
    "indices": "give one whole row number per row",
}


class Naming(NamedTuple):
    """How a message names an entry ("x has … in row 3, column 'age'") and what to do about it.

    `first` is the number of the first row, if rows come in pieces.
    """

    subject: str
    remedy: str
    names: Sequence[str] | None = None
    first: int = 0

    def has(self, what: object, position: Sequence[SupportsInt]) -> str:
        row, *rest = position
        return f"{self.subject} has {what} in {_place((int(row) + self.first, *rest), self.names)}"


def is_traced(value: object) -> bool:
    leaves = jax.tree.leaves(value) if isinstance(value, list | tuple) else (value,)
    return any(isinstance(leaf, Tracer) for leaf in leaves)


def is_whole(values: np.ndarray | jax.Array) -> bool:
    return jnp.issubdtype(values.dtype, jnp.integer) or values.dtype == bool


def column_entries(column: Any) -> np.ndarray:
    """A column of a frame or a file: numbers and booleans as they are with NaN for what is missing.

    Anything else comes as Python objects, with None for what is missing.
    """
    if isinstance(column, np.ndarray):
        return column if column.dtype.kind in "biuf" else _objects(column)
    series: nw.Series = nw.from_native(column, series_only=True)
    dtype = series.dtype
    if dtype == nw.Decimal or (dtype == nw.Boolean and series.null_count()):
        series = series.cast(nw.Float64)  # other numbers do this of themselves: null becomes NaN
    if series.dtype.is_numeric() or dtype == nw.Boolean:
        return series.to_numpy()
    missing = series.is_null().to_list()  # each library has its own null
    return _objects([None if gone else entry for entry, gone in zip(series.to_list(), missing, strict=True)])


def column_numbers(column: object, naming: Naming) -> np.ndarray:
    """A column of a frame or a file as numbers."""
    return as_numbers(column_entries(column), naming)


def as_numbers(entries: np.ndarray, naming: Naming) -> np.ndarray:
    """Numbers or booleans in the shape of `entries`, or an error that names what is not a number.

    >>> as_numbers(np.array(["1.5", None], dtype=object), Naming("x", "")).tolist()
    [1.5, nan]
    """
    if is_whole(entries) or jnp.issubdtype(entries.dtype, jnp.floating):
        return entries
    found = []
    for position, entry in np.ndenumerate(_objects(entries)):
        try:
            found.append(_number(entry))
        except (TypeError, ValueError):
            shown = repr(entry) if isinstance(entry, str | complex) else " ".join(str(entry).split())
            raise InputError(f"{naming.has(shown, position)}, not a number; {naming.remedy}") from None
        if isinstance(found[-1], int) and abs(found[-1]) > sys.float_info.max:
            raise InputError(f"{naming.has('a number too large for a float', position)}; rescale it")
    array = np.array(found)
    return (array.astype(float) if array.dtype == object else array).reshape(entries.shape)


def _number(entry: object) -> float | int:
    """One entry as a number; TypeError or ValueError if it is none."""
    if entry is None or (isinstance(entry, str) and not entry.strip()):
        return np.nan
    if isinstance(entry, str):
        if "_" in entry:  # Python's own idea of a number, but more likely a name
            raise ValueError
        try:
            return int(entry)
        except ValueError:
            return float(entry)
    if isinstance(entry, np.timedelta64) or not isinstance(entry, numbers.Real | Decimal | np.bool_):
        raise TypeError
    return int(entry) if isinstance(entry, numbers.Integral | np.bool_) else float(entry)


def _objects(entries: np.ndarray | list) -> np.ndarray:
    """An array of Python objects, in which dates stay dates and lists stay lists."""
    if isinstance(entries, np.ndarray) and entries.dtype.kind not in "mM":
        return entries.astype(object)
    shape, flat = np.shape(entries)[:1], list(entries)
    if isinstance(entries, np.ndarray):
        shape, flat = entries.shape, list(entries.reshape(-1))
    return np.array([*flat, None], dtype=object)[:-1].reshape(shape)  # one more, lest equal lists be stacked


def _array(value: object, role: str) -> np.ndarray:
    """The rows of anything but a frame, perhaps still objects."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        value = np.ma.filled(value.astype(float), np.nan)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{role} is not rectangular; give every row the same length") from error
    except TypeError as error:
        raise InputError(f"{role} cannot be an array ({error}); pass rows of numbers") from error
    if array.ndim == 0:
        raise InputError(
            f"{role} is a single {type(value).__name__}, not rows; pass an array with one row per "
            "datum (of a sparse matrix: its .toarray())"
        )
    # numpy makes text of numbers that stand beside text; here they stay numbers.
    return np.asarray(value, dtype=object) if array.dtype.kind == "U" else array


def read(value: object, role: str, table: dict[str, nw.Series] | None):
    """Numbers and column names of whatever was passed in; `table` has its columns, if it is a frame."""
    if is_traced(value):
        values = jnp.asarray(value)
        if values.ndim == 0:
            raise InputError(f"{role} is a single number, not rows; pass one row per datum")
        return values, None
    if table is None:
        numpy_values = as_numbers(_array(value, role), Naming(role, _REMEDY[role]))
        return value if isinstance(value, jax.Array) else numpy_values, None
    parts = [column_numbers(series, Naming(role, _REMEDY[role], (name,))) for name, series in table.items()]
    if not parts:
        raise InputError(f"{role} has no columns; pass at least one besides y and weights")
    return np.stack(parts, axis=1), None if "" in table else tuple(table)


def read_rows(value: object, role: str, table: dict[str, nw.Series] | None, num_rows: int):
    """As `read`, for what goes with the rows of x: (n,) or (n, C), where one column means (n,)."""
    values, names = read(value, role, table)
    if len(values) != num_rows:
        raise InputError(
            f"x has {num_rows} rows but {role} has {len(values)}; give one entry of {role} per row"
        )
    if values.ndim > 2:
        raise InputError(f"{role} has shape {values.shape}; give it one or two axes")
    return values.reshape(-1) if values.shape[1:] == (1,) else values, names


def read_weights(value: object, table: dict[str, nw.Series] | None, num_rows: int) -> jax.Array:
    weights, names = read_rows(value, "weights", table, num_rows)
    if weights.ndim != 1:
        raise InputError(f"weights has shape {weights.shape}; give one number per row")
    converted = to_float(weights, "weights", names)
    if not is_traced(weights):
        host = np.asarray(weights).astype(converted.dtype)  # after underflow, if there was any
        if (host < 0).any():
            row = int((host < 0).argmax())
            raise InputError(
                f"weights has {host[row]} in {_place((row,), names)}; weights must not be negative"
            )
        if not host.any():
            raise InputError("weights are all zero; give at least one row a positive weight")
    return converted


def to_float(values: np.ndarray | jax.Array, role: str, names: Sequence[str] | None) -> jax.Array:
    dtype = jnp.result_type(float)
    if is_traced(values):
        return jnp.asarray(values).astype(dtype)
    host = np.asarray(values)
    with np.errstate(over="ignore"):
        converted = host.astype(dtype, copy=False)
    check_finite(host, converted, Naming(role, "", names))
    if isinstance(values, jax.Array) and values.dtype == dtype:
        return values
    # `jnp.array` copies: an alias would change under us when the caller writes into their array.
    return jnp.array(converted)


def check_finite(entries: np.ndarray, converted: np.ndarray, naming: Naming) -> None:
    """Refuse what is missing, infinite, or infinite as the float type that it was `converted` to."""
    finite = np.isfinite(converted)
    if finite.all():
        return
    position = np.unravel_index(finite.argmin(), finite.shape)
    entry = entries[position]
    if np.isnan(entry):
        raise InputError(f"{naming.has('a NaN', position)}; drop or impute that row")
    if np.isinf(entry):
        raise InputError(f"{naming.has('an infinite value', position)}; drop or clip that row")
    raise InputError(
        f"{naming.has(entry, position)}, too large for {converted.dtype}; rescale or set jax_enable_x64"
    )


def to_int(values: np.ndarray | jax.Array, role: str, names: Sequence[str] | None) -> jax.Array:
    dtype = jnp.result_type(int)
    if is_traced(values):
        return jnp.asarray(values).astype(dtype)
    host = np.asarray(values)
    check_range(host, dtype, Naming(role, "", names))
    return jnp.array(host.astype(dtype))


def check_range(entries: np.ndarray, dtype: np.dtype, naming: Naming) -> None:
    """Refuse whole numbers that `dtype` cannot hold."""
    limits = np.iinfo(dtype)
    if entries.dtype.itemsize < dtype.itemsize:
        return
    outside = (entries < limits.min) | (entries > limits.max)
    if outside.any():
        position = np.unravel_index(outside.argmax(), outside.shape)
        raise InputError(
            f"{naming.has(entries[position], position)}, too large for {dtype}; "
            "pass smaller ones or set jax_enable_x64"
        )


def _place(position: Sequence[SupportsInt], names: Sequence[str] | None) -> str:
    row, *rest = (int(number) for number in position)
    if names:
        return f"row {row}, column {names[rest[0] if rest else 0]!r}"
    if len(rest) > 1:
        return f"row {row}, position {tuple(rest)}"
    return f"row {row}, column {rest[0]}" if rest else f"row {row}"
