"""What an algorithm may ask of the rows, wherever they are: in memory, in files, behind a function.

A construction asks for sums over all rows, for their scale, for a few random ones. `Dataset` answers from
memory; what `scan` returns answers by reading the rows again, in blocks, so that memory stays bounded.
"""

import abc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

if TYPE_CHECKING:
    from .column_limits import Bounds
    from .dataset import Dataset

# Labels with more different whole numbers than this are amounts to everyone.
MOST_CLASSES_COUNTED = 1000


class LabelSummary(NamedTuple):
    """What is known of the labels of all rows.

    `counts` has the number of rows for each label (rows without weight included), or is None if labels are
    not whole numbers, have two axes, or have more than 1,000 different values.
    """

    dtype: np.dtype
    shape: tuple[int, ...]  # of one label: () or (C,)
    least: float
    greatest: float
    counts: dict[int, int] | None

    @property
    def whole(self) -> bool:
        """Whether labels are stored as whole numbers."""
        return np.issubdtype(self.dtype, np.integer)


class Rows(abc.ABC):
    """Weighted rows that can be asked for sums; `Dataset` is one kind, and `scan` makes the others.

    >>> from coresetvi import Dataset
    >>> rows = Dataset([[1.0], [2.0], [4.0]], [0, 1, 1], weights=[1, 1, 2])
    >>> isinstance(rows, Rows), rows.num_rows, float(rows.total(lambda rows: rows.weights @ rows.x[:, 0]))
    (True, 3, 11.0)
    """

    columns: tuple[str, ...] | None  # names of the numbers in a row of x, if they have names
    target: str | None  # name of the labels, if they have one
    fixed: tuple[int, ...] = ()  # columns that learned points leave alone
    bounds: "Bounds" = ()  # (column, lowest, highest) that learned points keep
    # What the labels 0 … C-1 stand for, if they were text.
    classes: ClassVar[tuple[str, ...] | None] = None
    # How often all rows have been read so far; rows in memory never are.
    passes: ClassVar[int] = 0

    def __len__(self) -> int:
        return self.num_rows

    @property
    @abc.abstractmethod
    def num_rows(self) -> int:
        """How many rows there are, whatever their weights."""

    @property
    @abc.abstractmethod
    def total_weight(self) -> jax.Array | float:
        """Sum of the weights: the N of the paper."""

    @property
    @abc.abstractmethod
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row of x."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """How many numbers one row of x holds."""

    @abc.abstractmethod
    def scale(self) -> tuple[jax.Array, jax.Array]:
        """Weighted mean and standard deviation of x; see `Dataset.scale`."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, count: int) -> "Dataset":
        """`count` different rows, uniformly drawn, with their own weights; `indices` are their numbers.

        All rows, in their order, if there are no more than `count`.
        """

    @abc.abstractmethod
    def batches(self) -> "Iterator[Dataset]":
        """All rows once, in their order, in blocks that fit in memory."""

    @abc.abstractmethod
    def total(self, of_rows: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """The sum over all rows of `of_rows(rows, *arguments)`, in one pass.

        `of_rows` takes a `Dataset` and returns a pytree of sums over the rows it was given. It is compiled
        once for all blocks. A block may be filled up with rows that weigh nothing, so weights must count.
        """

    @abc.abstractmethod
    def labels(self) -> LabelSummary | None:
        """Type, range and frequencies of the labels; None if there are none."""

    @abc.abstractmethod
    def one_of_each(self) -> "Dataset | None":
        """The first row with weight of every class, in the order of the labels; None if there are no classes.

        Classes are labels whose `LabelSummary` has counts. A random sample may lack the rare ones.
        """

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A few characters that differ if the rows do, equal in every process."""


@eqx.filter_jit
def compiled_sum(of_rows: Callable[..., PyTree], rows: object, arguments: tuple) -> PyTree:
    """`of_rows(rows, *arguments)`, compiled once for each function and shape of rows."""
    return of_rows(rows, *arguments)


def summarise_labels(y: np.ndarray) -> LabelSummary:
    """The summary of labels that are at hand.

    >>> summarise_labels(np.array([2, 0, 2])).counts
    {0: 1, 2: 2}
    """
    counts = count_classes(y) if y.ndim == 1 and np.issubdtype(y.dtype, np.integer) else None
    return LabelSummary(y.dtype, y.shape[1:], float(y.min()), float(y.max()), counts)


def count_classes(y: np.ndarray) -> dict[int, int] | None:
    """How many rows have each whole number, in sorted order; None if there are too many to count."""
    # Sorting all labels takes seconds for millions; most labels are small numbers that can be counted.
    least = int(y.min())
    if int(y.max()) - least < 4 * MOST_CLASSES_COUNTED:
        counts = np.bincount(y - least)
        found = np.flatnonzero(counts)
        labels, frequencies = found + least, counts[found]
    else:
        labels, frequencies = np.unique(y, return_counts=True)
    if len(labels) > MOST_CLASSES_COUNTED:
        return None
    return dict(zip(labels.tolist(), frequencies.tolist(), strict=True))


def first_of_each(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The first row with weight of every label, in the order of the labels.

    >>> first_of_each(np.array([3, 1, 1, 3]), np.array([1.0, 0.0, 1.0, 1.0])).tolist()
    [2, 0]
    """
    weighty = np.flatnonzero(weights > 0)
    _, first = np.unique(y[weighty], return_index=True)
    return weighty[first]
