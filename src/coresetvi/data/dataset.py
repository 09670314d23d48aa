"""Weighted data sets. A coreset is one too: a few rows whose weights stand in for many.

Rows are counted from 0 in every message. What is passed in is checked once, on the host, when it is
concrete; inside `jax.jit` and `jax.vmap` only shapes can be checked, and only they are.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ..errors import InputError
from . import frames
from .arrays import is_traced, is_whole, read, read_rows, read_weights, to_float, to_int
from .column_limits import Bounds, GivenBounds, check_within, column_bounds, fixed_columns
from .drawing import draw_rows, rows_of, strata_rows
from .rows import LabelSummary, Rows, compiled_sum, first_of_each, summarise_labels
from .scaling import weighted_scale

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Dataset(Rows, eqx.Module):
    """Rows `x`, optional labels `y`, and weights: `(x_n, y_n)` or `(u_m, z_m, v_m)` in the paper.

    `x` and `y` may be numpy or jax arrays, lists, or pandas, polars or pyarrow frames and series.
    If `x` is a frame, `y` and `weights` may name columns of it, which are then taken out of `x`.
    `fixed` are columns, by name or number, that learned points leave alone, such as group numbers; `bounds`
    keeps those of other columns within limits: `{"exposure": (0, None)}`.

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
    fixed: tuple[int, ...] = eqx.field(static=True)  # columns that learned points leave alone
    bounds: Bounds = eqx.field(static=True)  # (column, lowest, highest) of learned points

    def __init__(
        self,
        x: object,
        y: object = None,
        weights: object = None,
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        indices: object = None,
        fixed: Sequence[str | int] | None = None,
        bounds: GivenBounds | None = None,
    ):
        table = frames.columns_of(x, "x")
        if isinstance(y, str):
            y, target = frames.pop_column(table, y, "y"), target or y
        if isinstance(weights, str):
            weights = frames.pop_column(table, weights, "weights")
        values, names = read(x, "x", table)
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
        self.x = to_float(values, "x", self.columns)
        self.fixed = fixed_columns(fixed, self.columns, values.shape[1:])
        self.bounds = column_bounds(bounds, self.columns, values.shape[1:])
        if self.bounds and not is_traced(self.x):
            check_within(np.asarray(self.x), self.bounds, self.columns)
        self.y, self.target = None, target
        if y is not None:
            labels, names = read_rows(y, "y", frames.columns_of(y, "y"), len(values))
            if target is None and names and len(names) == 1:
                self.target = names[0]
            names = (self.target,) if labels.ndim == 1 and self.target else names
            self.y = (to_int if is_whole(labels) else to_float)(labels, "y", names)
        if weights is None:
            self.weights = jnp.ones(len(values), self.x.dtype)
        else:
            self.weights = read_weights(weights, frames.columns_of(weights, "weights"), len(values))
        self.indices = None
        if indices is not None:
            table = frames.columns_of(indices, "indices")
            rows, names = read_rows(indices, "indices", table, len(values))
            if rows.ndim != 1 or not is_whole(rows):
                raise InputError("indices must be whole numbers; give one row number per row of x")
            self.indices = to_int(rows, "indices", names)

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
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row of `x`."""
        return self.x.shape[1:]

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

    def to_pandas(self) -> "pandas.DataFrame":
        """A pandas frame: columns of `x`, the label as `target` or "y", and "weight" (see `frames.py`).

        >>> Dataset([[1.0], [2.0]], [0, 1], columns=["age"], target="sick").to_pandas().columns.tolist()
        ['age', 'sick', 'weight']
        """
        return frames.to_pandas(self._columns())

    def to_polars(self) -> "polars.DataFrame":
        """A polars frame with the columns of `to_pandas`."""
        return frames.to_polars(self._columns())

    def to_arrow(self) -> "pyarrow.Table":
        """A pyarrow table with the columns of `to_pandas`."""
        return frames.to_arrow(self._columns())

    def _columns(self) -> frames.Columns:
        return frames.named_columns(*self.to_numpy(), columns=self.columns, target=self.target)

    def take(self, rows: object) -> "Dataset":
        """The given rows (numbers, or a mask), in that order; `indices` says where they came from.

        >>> Dataset([[1.0], [2.0], [3.0]]).take([2, 0]).take([1]).indices
        Array([0], dtype=int32)
        """
        if is_traced(rows):
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
        picked = jax.tree.map(lambda leaf: rows_of(leaf, rows), self)  # also `indices`
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
        rows, factor = strata_rows(key, len(self), batch_size)
        picked = self._gather(rows)
        return _replace(picked, weights=picked.weights * jnp.asarray(factor, self.weights.dtype))

    def scale(self) -> tuple[jax.Array, jax.Array]:
        """Weighted mean and standard deviation of `x` over the rows, each of shape `x.shape[1:]`.

        A constant column gets |mean| (or 1, if that is zero) for its deviation. Locations are
        learned in units of it, so it must not be zero, and |mean| is the only size known.

        >>> mean, std = Dataset([[1.0, 5.0], [3.0, 5.0]]).scale()
        >>> mean.tolist(), std.tolist()
        ([2.0, 5.0], [1.0, 5.0])
        """
        return weighted_scale(self.x, self.weights, traced=is_traced((self.x, self.weights)))

    def sample(self, key: PRNGKeyArray, count: int) -> "Dataset":
        """`count` different rows, uniformly drawn, in random order; all rows, in order, if there are no more.

        >>> Dataset([[1.0], [2.0], [3.0]]).sample(jax.random.key(0), 3).indices
        Array([0, 1, 2], dtype=int32)
        """
        return self.take(draw_rows(key, len(self), count))

    def batches(self) -> Iterator["Dataset"]:
        """All rows once: here in one block, since they are in memory."""
        yield self

    def total(self, of_rows: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """`of_rows(self, *arguments)`, compiled; see `Rows.total`."""
        return compiled_sum(of_rows, self, arguments)

    def labels(self) -> LabelSummary | None:
        """Type, range and frequencies of the labels; None if there are none.

        >>> Dataset([[1.0], [2.0], [3.0]], [0, 1, 1]).labels().counts
        {0: 1, 1: 2}
        """
        return None if self.y is None else summarise_labels(np.asarray(self.y))

    def one_of_each(self) -> "Dataset | None":
        """The first row with weight of every class, in the order of the labels; None if there are no classes.

        >>> Dataset([[1.0], [2.0], [3.0]], [1, 1, 0]).one_of_each().indices
        Array([2, 0], dtype=int32)
        """
        summary = self.labels()
        if summary is None or summary.counts is None:
            return None
        return self.take(first_of_each(np.asarray(self.y), np.asarray(self.weights)))

    def fingerprint(self) -> str:
        """A few characters that differ if rows, labels, weights or names do.

        >>> Dataset([[1.0]]).fingerprint() == Dataset([[1.0]], [0]).fingerprint()
        False
        """
        limits = (self.fixed, self.bounds) if self.fixed or self.bounds else ()
        found = hashlib.sha256(repr((self.columns, self.target, *limits)).encode())
        for values in self.to_numpy():
            found.update(b"none" if values is None else f"{values.shape}{values.dtype}".encode())
            found.update(b"" if values is None else np.ascontiguousarray(values).data)
        return found.hexdigest()


Coreset = Dataset


def unchecked(
    x: jax.Array,
    y: jax.Array | None,
    weights: jax.Array,
    *,
    columns: tuple[str, ...] | None = None,
    target: str | None = None,
    indices: jax.Array | None = None,
    fixed: tuple[int, ...] = (),
    bounds: Bounds = (),
) -> Dataset:
    """A data set of arrays that are known to be right, for compiled code: no conversion and no check.

    >>> len(unchecked(jnp.ones((3, 2)), None, jnp.ones(3)))
    3
    """
    data = object.__new__(Dataset)
    fields = {"x": x, "y": y, "weights": weights, "indices": indices}
    facts = {"columns": columns, "target": target, "fixed": fixed, "bounds": bounds}
    for name, value in (fields | facts).items():
        object.__setattr__(data, name, value)  # frozen, as every Equinox module is
    return data


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

    x, y, weights, indices = (join(name) for name in ("x", "y", "weights", "indices"))
    assert x is not None and weights is not None
    # What one of them leaves alone, all of them together do.
    fixed = tuple(sorted({column for data in datasets for column in data.fixed}))
    bounds = next((data.bounds for data in datasets if data.bounds), ())
    names = {"columns": first.columns, "target": first.target}
    return unchecked(x, y, weights, indices=indices, fixed=fixed, bounds=bounds, **names)


def _replace(data: Dataset, **leaves: jax.Array | None) -> Dataset:
    """A copy with other arrays, made without the checks of the constructor."""
    return eqx.tree_at(
        lambda tree: [getattr(tree, name) for name in leaves],
        data,
        list(leaves.values()),
        is_leaf=lambda leaf: leaf is None,
    )
