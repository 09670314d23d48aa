"""Numbers out of whatever people pass in, or one sentence about the first thing that is not a number.

numpy, jax, lists, and pandas, polars or pyarrow frames and series come out as arrays. What is concrete is
checked here, once, on the host; traced values can only be converted.
"""

import numbers
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

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


def is_traced(value: Any) -> bool:
    leaves = jax.tree.leaves(value) if isinstance(value, list | tuple) else (value,)
    return any(isinstance(leaf, Tracer) for leaf in leaves)


def is_whole(values: Any) -> bool:
    return jnp.issubdtype(values.dtype, jnp.integer) or values.dtype == bool


def columns_of(value: Any, role: str) -> dict[str, nw.Series] | None:
    """The columns of a frame or series by name; None for anything else."""
    try:
        frame: Any = nw.from_native(value, allow_series=True, pass_through=True)
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


def read(value: Any, role: str, table: dict[str, nw.Series] | None = None):
    """Numbers and column names of whatever was passed in."""
    if is_traced(value):
        values = jnp.asarray(value)
        if values.ndim == 0:
            raise InputError(f"{role} is a single number, not rows; pass one row per datum")
        return values, None
    table = columns_of(value, role) if table is None else table
    if table is None:
        numpy_values = _numeric(value, role)
        return value if isinstance(value, jax.Array) else numpy_values, None
    parts = [_series(series, role, name) for name, series in table.items()]
    if not parts:
        raise InputError(f"{role} has no columns; pass at least one besides y and weights")
    return np.stack(parts, axis=1), None if "" in table else tuple(table)


def read_rows(value: Any, role: str, num_rows: int):
    """As `read`, for what goes with the rows of x: (n,) or (n, C), where one column means (n,)."""
    values, names = read(value, role)
    if len(values) != num_rows:
        raise InputError(
            f"x has {num_rows} rows but {role} has {len(values)}; give one entry of {role} per row"
        )
    if values.ndim > 2:
        raise InputError(f"{role} has shape {values.shape}; give it one or two axes")
    return values.reshape(-1) if values.shape[1:] == (1,) else values, names


def read_weights(value: Any, num_rows: int) -> jax.Array:
    weights, names = read_rows(value, "weights", num_rows)
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


def _series(series: nw.Series, role: str, name: str) -> np.ndarray:
    dtype = series.dtype
    if dtype == nw.Boolean and series.null_count():
        series = series.cast(nw.Float64)  # numbers do this of themselves: null becomes NaN
    if dtype.is_numeric() or dtype == nw.Boolean:
        return _numeric(series.to_numpy(), role, (name,))
    if dtype in (nw.Object, nw.Unknown):  # may still be numbers, such as Python's own
        return _numeric(series.to_numpy(), role, (name,))
    raise InputError(f"{role} column {name!r} holds {dtype} values, not numbers; {_REMEDY[role]}")


def _numeric(value: Any, role: str, names: tuple[str, ...] | None = None) -> np.ndarray:
    """A numpy array of numbers or booleans, or an error that names what is not a number."""
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
    if array.dtype == object:
        try:
            array = np.array(array.tolist())  # numpy looks for the type again
            array = array.astype(float) if array.dtype == object else array
        except (TypeError, ValueError, OverflowError):
            pass  # the culprit is looked for below
    if is_whole(array) or jnp.issubdtype(array.dtype, jnp.floating):
        return array
    entry: Any
    for position, entry in np.ndenumerate(np.asarray(value, dtype=object)):
        if not isinstance(entry, numbers.Real | Decimal | np.bool_ | None):
            place = _place(position, names)
            raise InputError(f"{role} has {entry!r} in {place}, not a number; {_REMEDY[role]}")
        if isinstance(entry, int) and abs(int(entry)) > sys.float_info.max:
            place = _place(position, names)
            raise InputError(f"{role} has a number too large for a float in {place}; rescale it")
    raise InputError(f"{role} holds {array.dtype} values, not numbers; {_REMEDY[role]}")


def to_float(values: Any, role: str, names: tuple[str, ...] | None) -> jax.Array:
    dtype = jnp.result_type(float)
    if is_traced(values):
        return values.astype(dtype)
    host = np.asarray(values)
    with np.errstate(over="ignore"):
        converted = host.astype(dtype, copy=False)
    finite = np.isfinite(converted)
    if not finite.all():
        position = np.unravel_index(finite.argmin(), finite.shape)
        entry, place = host[position], _place(position, names)
        if np.isnan(entry):
            raise InputError(f"{role} has a NaN in {place}; drop or impute that row")
        if np.isinf(entry):
            raise InputError(f"{role} has an infinite value in {place}; drop or clip that row")
        raise InputError(
            f"{role} has {entry} in {place}, too large for {dtype}; rescale or set jax_enable_x64"
        )
    # `jnp.array` copies: an alias would change under us when the caller writes into their array.
    keep = isinstance(values, jax.Array) and values.dtype == dtype
    return values if keep else jnp.array(converted)


def to_int(values: Any, role: str, names: tuple[str, ...] | None) -> jax.Array:
    dtype = jnp.result_type(int)
    if is_traced(values):
        return values.astype(dtype)
    host, limits = np.asarray(values), np.iinfo(dtype)
    if host.dtype.itemsize >= dtype.itemsize:
        outside = (host < limits.min) | (host > limits.max)
        if outside.any():
            position = np.unravel_index(outside.argmax(), outside.shape)
            raise InputError(
                f"{role} has {host[position]} in {_place(position, names)}, too large for {dtype}; "
                "pass smaller ones or set jax_enable_x64"
            )
    return jnp.array(host.astype(dtype))


def _place(position: Sequence[Any], names: tuple[str, ...] | None) -> str:
    row, *rest = (int(number) for number in position)
    if names:
        return f"row {row}, column {names[rest[0] if rest else 0]!r}"
    if len(rest) > 1:
        return f"row {row}, position {tuple(rest)}"
    return f"row {row}, column {rest[0]}" if rest else f"row {row}"
