"""Rows that are not in memory, as a model wants them: some columns in its order, labels of its type."""

from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ..data.column_limits import Bounds, column_facts, picked_facts
from ..data.dataset import Dataset, unchecked
from ..data.rows import LabelSummary, Rows


class Preparation(eqx.Module):
    """What is done to every block: `picked` are the positions of columns, `label_type` the type of labels.

    `relabelled` has all labels that there are, sorted, and what each becomes. None leaves things as they are.
    """

    picked: tuple[int, ...] | None = eqx.field(static=True, default=None)
    columns: tuple[str, ...] | None = eqx.field(static=True, default=None)
    label_type: str | None = eqx.field(static=True, default=None)
    relabelled: tuple[tuple[float, ...], tuple[int, ...]] | None = eqx.field(static=True, default=None)

    def __call__(self, rows: Dataset) -> Dataset:
        x, y, facts = rows.x, rows.y, column_facts(rows)
        if self.picked is not None:
            x = x[:, np.array(self.picked)]
            facts = picked_facts(rows, self.picked, self.columns)
        if y is not None and self.relabelled is not None:
            known, new = self.relabelled
            y = jnp.asarray(new)[jnp.searchsorted(jnp.asarray(known, y.dtype), y)]
        if y is not None and self.label_type is not None:
            y = jnp.asarray(y, self.label_type)
        return unchecked(x, y, rows.weights, indices=rows.indices, **facts)


class OfPrepared(eqx.Module):
    """A sum over prepared rows as a sum over the rows themselves, for `Rows.total`."""

    of_rows: Callable[..., PyTree]
    preparation: Preparation

    def __call__(self, rows: Dataset, *arguments: PyTree) -> PyTree:
        return self.of_rows(self.preparation(rows), *arguments)


class PreparedRows(Rows):
    """Other rows, prepared; `counts` and `firsts` are given where new whole labels make classes.

    `firsts` are rows as they were before.

    >>> data = Dataset([[1.0, 2.0], [3.0, 4.0]], [0.0, 1.0], columns=["age", "height"])
    >>> rows = PreparedRows(data, Preparation((1,), ("height",), "int32"))
    >>> rows.columns, rows.labels().whole, float(rows.total(lambda some: some.weights @ some.x[:, 0]))
    (('height',), True, 6.0)
    """

    def __init__(
        self,
        rows: Rows,
        preparation: Preparation,
        counts: dict[int, int] | None = None,
        firsts: Dataset | None = None,
    ):
        self._rows, self._preparation = rows, preparation
        self._counts, self._firsts = counts, firsts

    @property
    def passes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How often all rows have been read so far."""
        return self._rows.passes

    @property
    def classes(self) -> tuple[str, ...] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the labels 0 … C-1 stand for, if they are text."""
        return self._rows.classes

    @property
    def columns(self) -> tuple[str, ...] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Names of the numbers in a row of x, if they have names."""
        return self._rows.columns if self._preparation.picked is None else self._preparation.columns

    @property
    def target(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name of the labels, if they have one."""
        return self._rows.target

    @property
    def fixed(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Columns that learned points leave alone."""
        picked = self._preparation.picked
        return self._rows.fixed if picked is None else picked_facts(self._rows, picked, None)["fixed"]

    @property
    def bounds(self) -> Bounds:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The lowest and highest value of columns, for learned points."""
        picked = self._preparation.picked
        return self._rows.bounds if picked is None else picked_facts(self._rows, picked, None)["bounds"]

    @property
    def num_rows(self) -> int:
        """How many rows there are, whatever their weights."""
        return self._rows.num_rows

    @property
    def total_weight(self) -> jax.Array | float:
        """Sum of the weights: the N of the paper."""
        return self._rows.total_weight

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row of x."""
        picked = self._preparation.picked
        return self._rows.row_shape if picked is None else (len(picked),)

    @property
    def dim(self) -> int:
        """How many numbers one row of x holds."""
        return int(np.prod(self.row_shape))

    def __repr__(self) -> str:
        return repr(self._rows)

    def scale(self) -> tuple[jax.Array, jax.Array]:
        """Weighted mean and standard deviation of x; see `Dataset.scale`."""
        mean, deviation = self._rows.scale()
        picked = self._preparation.picked
        return (mean, deviation) if picked is None else (mean[np.array(picked)], deviation[np.array(picked)])

    def sample(self, key: PRNGKeyArray, count: int) -> Dataset:
        """`count` different rows, uniformly drawn; see `Rows.sample`."""
        return self._preparation(self._rows.sample(key, count))

    def batches(self) -> Iterator[Dataset]:
        """All rows once, in their order, in blocks that fit in memory."""
        return map(self._preparation, self._rows.batches())

    def total(self, of_rows: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """The sum over all rows of `of_rows(rows, *arguments)`, in one pass; see `Rows.total`."""
        return self._rows.total(OfPrepared(of_rows, self._preparation), *arguments)

    def labels(self) -> LabelSummary | None:
        """Type, range and frequencies of the labels; None if there are none."""
        summary = self._rows.labels()
        if summary is None or self._preparation.label_type is None:
            return summary
        summary = summary._replace(dtype=np.dtype(self._preparation.label_type), counts=self._counts)
        if self._preparation.relabelled is None:
            return summary
        new = self._preparation.relabelled[1]
        return summary._replace(least=float(min(new)), greatest=float(max(new)))

    def one_of_each(self) -> Dataset | None:
        """The first row with weight of every class; see `Rows.one_of_each`."""
        firsts = self._rows.one_of_each() if self._preparation.label_type is None else self._firsts
        return None if firsts is None else self._preparation(firsts)

    def fingerprint(self) -> str:
        """That of the rows, and what was done to them."""
        done = self._preparation
        kept = (done.picked, done.label_type, done.relabelled)
        return f"{self._rows.fingerprint()} {kept}"
