"""Weighted data sets. A coreset is one too: a few rows whose weights stand in for many.

Rows are counted from 0 in every message. What is passed in is checked once, on the host, when it is
concrete; inside `jax.jit` and `jax.vmap` only shapes can be checked, and only they are.
"""

import functools
import numbers
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np
from jax.core import Tracer

from coresetvi.errors import InputError

_REMEDY = {
    "x": "one-hot encode or drop that column",
    "y": "encode the labels as 0..C-1",
    "weights": "give one non-negative number per row",
    "indices": "give one whole row number per row",
}
_CHUNK = 65_536  # rows that `scale` takes at a time, so that it needs little memory


class Dataset(eqx.Module):
    """Rows `x`, optional labels `y`, and weights: `(x_n, y_n)` or `(u_m, z_m, v_m)` in the paper.

    `x` and `y` may be numpy or jax arrays, lists, or pandas, polars or pyarrow frames and series.
    If `x` is a frame, `y` and `weights` may name columns of it, which are then taken out of `x`.

    >>> data = Dataset([[1, 2], [3, 4], [5, 6]], [0, 1, 1], weights=[1, 1, 2])
    >>> data.x.shape, data.y.dtype, float(data.total_weight)
    ((3, 2), dtype('int32'), 4.0)
    >>> Dataset([[1.0, float("nan")]], columns=["age", "height"])
    Traceback (most recent call last):
    ...
    coresetvi.errors.InputError: x has a NaN in row 0, column 'height'; drop or impute that row
    """

    x: jax.Array  # (n, ...) in the default float type of JAX
    y: jax.Array | None  # (n,) or (n, C); whole numbers and booleans as int, the rest as float
    weights: jax.Array  # (n,)
    indices: jax.Array | None  # (n,) rows of the larger data set these were taken from
    columns: tuple[str, ...] | None = eqx.field(static=True)
    target: str | None = eqx.field(static=True)

    def __init__(
        self,
        x: Any,
        y: Any = None,
        weights: Any = None,
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        indices: Any = None,
    ):
        table = _table(x, "x")
        if isinstance(y, str):
            y, target = _pop(table, y, "y"), target or y
        if isinstance(weights, str):
            weights = _pop(table, weights, "weights")
        values, names = _read(x, "x", table)
        if values.ndim == 1:
            values = values.reshape(-1, 1)
        if len(values) == 0:
            raise InputError("x has no rows; pass at least one row of data")
        if 0 in values.shape:
            raise InputError("x has no columns; pass at least one besides y and weights")
        self.columns = names if columns is None else tuple(str(name) for name in columns)
        if self.columns and (values.ndim != 2 or len(self.columns) != values.shape[1]):
            raise InputError(
                f"columns has {len(self.columns)} names but each row of x has shape "
                f"{values.shape[1:]}; give one name per column"
            )
        self.x = _to_float(values, "x", self.columns)
        self.y, self.target = None, target
        if y is not None:
            labels, names = _read_rows(y, "y", len(values))
            if target is None and names and len(names) == 1:
                self.target = names[0]
            names = (self.target,) if labels.ndim == 1 and self.target else names
            self.y = (_to_int if _is_whole(labels) else _to_float)(labels, "y", names)
        if weights is None:
            self.weights = jnp.ones(len(values), self.x.dtype)
        else:
            self.weights = _weights(weights, len(values))
        self.indices = None
        if indices is not None:
            rows, names = _read_rows(indices, "indices", len(values))
            if rows.ndim != 1 or not _is_whole(rows):
                raise InputError("indices must be whole numbers; give one row number per row of x")
            self.indices = _to_int(rows, "indices", names)

    def __len__(self) -> int:
        return self.x.shape[0]

    @property
    def num_rows(self) -> int:
        """How many rows there are, whatever their weights."""
        return self.x.shape[0]

    @property
    def total_weight(self) -> jax.Array:
        """Sum of the weights: the N of the paper."""
        return jnp.sum(self.weights)

    @property
    def dim(self) -> int:
        """How many numbers one row of `x` holds."""
        return int(np.prod(self.x.shape[1:]))

    def to_numpy(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """`(x, y, weights)` as numpy arrays.

        >>> Dataset([[1.0], [2.0]]).to_numpy()[2]
        array([1., 1.], dtype=float32)
        """
        y = None if self.y is None else np.asarray(self.y)
        return np.asarray(self.x), y, np.asarray(self.weights)

    def take(self, rows: Any) -> "Dataset":
        """The given rows (numbers, or a mask), in that order; `indices` says where they came from.

        >>> Dataset([[1.0], [2.0], [3.0]]).take([2, 0]).take([1]).indices
        Array([0], dtype=int32)
        """
        if _is_traced(rows):
            return self._gather(jnp.asarray(rows))
        rows = np.asarray(rows)
        if rows.dtype == bool and rows.shape == (len(self),):
            rows = np.flatnonzero(rows)
        if rows.size == 0:
            raise InputError("rows is empty; take at least one row")
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise InputError(
                f"rows must be a list of row numbers or a mask of {len(self)} booleans, "
                f"not {rows.dtype} of shape {rows.shape}"
            )
        outside = (rows < 0) | (rows >= len(self))
        if outside.any():  # JAX would say nothing and fill the row with NaN
            raise InputError(
                f"row {rows[outside.argmax()]} does not exist; rows run from 0 to {len(self) - 1}"
            )
        return self._gather(jnp.asarray(rows))

    def _gather(self, rows: jax.Array) -> "Dataset":
        picked = jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0), self)  # also `indices`
        return picked if self.indices is not None else _replace(picked, indices=rows)

    def batch(self, key: jax.Array, batch_size: int) -> "Dataset":
        """A minibatch at O(batch) cost: one uniformly drawn row from each of `batch_size` strata.

        Stratum b holds the rows from `b n // B` up to `(b + 1) n // B`. If B does not divide n,
        strata differ by one row, so the weight of row b is multiplied by `length_b B / n`; then
        `n / B * sum(batch.weights * f)` has exactly the mean `sum(weights * f)` over all rows.
        A batch as large as the data is the data itself.

        >>> data = Dataset([[float(row)] for row in range(10)])
        >>> data.batch(jax.random.key(0), 5).indices // 2
        Array([0, 1, 2, 3, 4], dtype=int32)
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        if batch_size >= len(self):
            return self
        # Python's own sizes and 64-bit numpy: b * n overflows 32 bits, and a float32 position
        # could not reach every row beyond 2**24.
        edges = np.arange(batch_size + 1, dtype=np.int64) * len(self) // batch_size
        bounds = edges.astype(jnp.result_type(int))
        rows = jax.random.randint(key, (batch_size,), bounds[:-1], bounds[1:])
        picked = self._gather(rows)
        factor = jnp.asarray(np.diff(edges) * (batch_size / len(self)), self.weights.dtype)
        return _replace(picked, weights=picked.weights * factor)

    def scale(self) -> tuple[jax.Array, jax.Array]:
        """Weighted mean and standard deviation of `x` over the rows, each of shape `x.shape[1:]`.

        A constant column gets |mean| (or 1, if that is zero) for its deviation. Locations are
        learned in units of it, so it must not be zero, and |mean| is the only size known.

        >>> mean, std = Dataset([[1.0, 5.0], [3.0, 5.0]]).scale()
        >>> mean.tolist(), std.tolist()
        ([2.0, 5.0], [1.0, 5.0])
        """
        traced = _is_traced((self.x, self.weights))
        xp = jnp if traced else np
        pieces = functools.partial(_pieces, self.x, self.weights, xp)
        total: Any = sum(w.sum() for _, w in pieces())
        if not traced and total == 0:
            raise InputError("weights are all zero; mean and deviation need a positive weight")
        mean: Any = sum((w * x).sum(0) for x, w in pieces()) / total
        deviation = xp.sqrt(sum((w * (x - mean) ** 2).sum(0) for x, w in pieces()) / total)
        # Rounding leaves a constant column a tiny deviation, so ask whether its values differ.
        first = xp.asarray(self.x)[xp.argmax(xp.asarray(self.weights) > 0)].reshape(-1)
        varies: Any = sum(((w > 0) & (x != first)).sum(0) for x, w in pieces())
        fallback = xp.where(mean == 0, 1.0, abs(mean))
        deviation = xp.where((varies > 0) & (deviation > 0), deviation, fallback)
        shape, dtype = self.x.shape[1:], self.x.dtype
        return (
            jnp.asarray(mean, dtype).reshape(shape),
            jnp.asarray(deviation, dtype).reshape(shape),
        )


Coreset = Dataset


def concatenate(*datasets: Dataset) -> Dataset:
    """The rows of several data sets, one after another; `indices` stay if all of them have some.

    >>> len(concatenate(Dataset([[1.0]], [0]), Dataset([[2.0], [3.0]], [1, 0])))
    3
    """
    if not datasets:
        raise InputError("concatenate was given nothing; pass at least one data set")
    # Names are static, so start from a data set that has them.
    first = next((data for data in datasets if data.columns is not None), datasets[0])
    for number, data in enumerate(datasets):
        for role, one, two in (("x", first.x, data.x), ("y", first.y, data.y)):
            shapes = [None if values is None else values.shape[1:] for values in (one, two)]
            if shapes[0] != shapes[1]:
                raise InputError(
                    f"{role} of data set {number} has rows of shape {shapes[1]} but another has "
                    f"{shapes[0]}; give all of them the same columns and labels"
                )
        if data.columns is not None and data.columns != first.columns:
            raise InputError(
                f"data set {number} has columns {data.columns} but another has {first.columns}; "
                "give all of them the same columns in the same order"
            )

    def join(name: str) -> jax.Array | None:
        parts = [getattr(data, name) for data in datasets]
        return None if any(part is None for part in parts) else jnp.concatenate(parts)

    return _replace(first, **{name: join(name) for name in ("x", "y", "weights", "indices")})


def _replace(data: Dataset, **leaves: Any) -> Dataset:
    """A copy with other arrays, made without the checks of the constructor."""
    return eqx.tree_at(
        lambda tree: [getattr(tree, name) for name in leaves],
        data,
        list(leaves.values()),
        is_leaf=lambda leaf: leaf is None,
    )


def _pieces(x: Any, weights: Any, xp: Any) -> Iterator[tuple[Any, Any]]:
    """(rows, dim) values and (rows, 1) weights: in chunks for numpy, all at once for JAX."""
    x, weights = xp.asarray(x).reshape(len(x), -1), xp.asarray(weights)[:, None]
    if xp is jnp:
        yield x, weights
        return
    for start in range(0, len(x), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        yield x[chunk], weights[chunk].astype(np.float64)  # which makes every product float64


def _is_traced(value: Any) -> bool:
    leaves = jax.tree.leaves(value) if isinstance(value, list | tuple) else (value,)
    return any(isinstance(leaf, Tracer) for leaf in leaves)


def _is_whole(values: Any) -> bool:
    return jnp.issubdtype(values.dtype, jnp.integer) or values.dtype == bool


def _table(value: Any, role: str) -> dict[str, nw.Series] | None:
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


def _pop(table: dict[str, nw.Series] | None, name: str, role: str) -> nw.Series:
    if table is None:
        raise InputError(f"{role}={name!r} names a column, but x is not a frame; pass an array")
    if name not in table:
        choices = ", ".join(map(repr, table))
        raise InputError(f"{role}={name!r} is not a column of x; choose one of {choices}")
    return table.pop(name)


def _read(value: Any, role: str, table: dict[str, nw.Series] | None = None):
    """Numbers and column names of whatever was passed in."""
    if _is_traced(value):
        values = jnp.asarray(value)
        if values.ndim == 0:
            raise InputError(f"{role} is a single number, not rows; pass one row per datum")
        return values, None
    table = _table(value, role) if table is None else table
    if table is None:
        numpy_values = _numeric(value, role)
        return value if isinstance(value, jax.Array) else numpy_values, None
    parts = [_series(series, role, name) for name, series in table.items()]
    if not parts:
        raise InputError(f"{role} has no columns; pass at least one besides y and weights")
    return np.stack(parts, axis=1), None if "" in table else tuple(table)


def _read_rows(value: Any, role: str, num_rows: int):
    """As `_read`, for what goes with the rows of x: (n,) or (n, C), where one column means (n,)."""
    values, names = _read(value, role)
    if len(values) != num_rows:
        raise InputError(
            f"x has {num_rows} rows but {role} has {len(values)}; give one entry of {role} per row"
        )
    if values.ndim > 2:
        raise InputError(f"{role} has shape {values.shape}; give it one or two axes")
    return values.reshape(-1) if values.shape[1:] == (1,) else values, names


def _weights(value: Any, num_rows: int) -> jax.Array:
    weights, names = _read_rows(value, "weights", num_rows)
    if weights.ndim != 1:
        raise InputError(f"weights has shape {weights.shape}; give one number per row")
    converted = _to_float(weights, "weights", names)
    if not _is_traced(weights):
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
    if _is_whole(array) or jnp.issubdtype(array.dtype, jnp.floating):
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


def _to_float(values: Any, role: str, names: tuple[str, ...] | None) -> jax.Array:
    dtype = jnp.result_type(float)
    if _is_traced(values):
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


def _to_int(values: Any, role: str, names: tuple[str, ...] | None) -> jax.Array:
    dtype = jnp.result_type(int)
    if _is_traced(values):
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
