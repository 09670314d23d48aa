"""Where rows can be read again and again: one class per kind of source. Here: a function that makes batches.

To add a kind, subclass `RowSource` and give it a line in `scan.py`.
"""

import abc
from collections.abc import Callable, Iterable, Iterator, Sized

import jax
import numpy as np

from .._checks import short, some
from ..errors import InputError
from . import frames
from .arrays import Naming, read_rows
from .column_use import WantedColumns, check_weights, choose_columns, piece_of
from .dataset import Dataset
from .pieces import Piece


class RowSource(abc.ABC):
    """Rows that can be read as often as they are needed, always the same ones in the same order."""

    name: str  # what messages call it
    columns: tuple[str, ...] | None  # of x
    target: str | None
    # Whether `columns` and `target` are known before any row has been read.
    named: bool
    # Whether the type of the labels is known before all rows have been read.
    settled: bool

    @abc.abstractmethod
    def read(self, length: int) -> Iterator[Piece]:
        """One pass over the rows, checked, in pieces of about `length` rows if the source has a say in it."""

    @abc.abstractmethod
    def identity(self) -> list[str]:
        """What can be said about the rows without reading them, for their fingerprint."""


class Batches(RowSource):
    """The batches of a function that makes a new iterator whenever it is called."""

    def __init__(self, function: Callable[[], object], wanted: WantedColumns):
        self.function, self.wanted = function, wanted
        self.name = "the function given to scan"
        self.columns, self.target = wanted.columns, wanted.target
        self.named = self.settled = False

    def identity(self) -> list[str]:
        return []

    def read(self, length: int) -> Iterator[Piece]:
        batches = self.function()
        single = isinstance(batches, Dataset) or frames.columns_of(batches, "x") is not None
        if single or not isinstance(batches, Iterable):
            kind = short(batches)
            raise InputError(f"{self.name} returned {kind}; let it return an iterator of batches")
        for number, batch in enumerate(batches):
            name = f"batch {number}"
            table = None if isinstance(batch, Dataset) else frames.columns_of(batch, name)
            if table is not None:
                use = choose_columns(list(table), self.wanted, name)
                self._agree(use.columns, use.target, name)
                if len(next(iter(table.values()))):
                    yield piece_of(table, use, name, 0)
            elif (data := self._dataset(batch, name)) is not None:
                dataset, weights = data
                self._agree(dataset.columns, dataset.target, name)
                y = None if dataset.y is None else np.asarray(dataset.y)
                yield Piece(np.asarray(dataset.x), y, weights)

    def _agree(self, columns: tuple[str, ...] | None, target: str | None, name: str) -> None:
        """Take the names of a batch, or refuse those that another batch does not have."""
        if self.columns is not None and columns is not None and columns != self.columns:
            raise InputError(
                f"{name} has the columns {some(columns)}, but batches before it have {some(self.columns)}; "
                "give all batches the same columns in the same order"
            )
        self.columns = columns if self.columns is None else self.columns
        self.target = target if self.target is None else self.target

    def _dataset(self, batch: object, name: str) -> tuple[Dataset, np.ndarray] | None:
        """A batch that is no frame, and its weights, which may all be zero; None if it has no rows."""
        x, y, weights = (batch, None, None) if isinstance(batch, Dataset) else unpack(batch, name)
        if not isinstance(x, Dataset) and isinstance(x, Sized) and not len(x):
            return None
        try:
            data = x if isinstance(x, Dataset) else Dataset(x, y, columns=self.columns, target=self.target)
            if weights is None:
                found = np.asarray(data.weights)
            else:
                table = frames.columns_of(weights, "weights")
                found = np.asarray(read_rows(weights, "weights", table, len(data))[0])
            found = check_weights(found, Naming("weights", ""))
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
        if self.wanted.target is not None and data.y is None:
            raise InputError(f"target={self.wanted.target!r} was given, but {name} has no labels; add them")
        if self.wanted.weights is not None and weights is None and not isinstance(x, Dataset):
            raise InputError(f"weights={self.wanted.weights!r} was given, but {name} has none; add them")
        return data, found


def unpack(batch: object, name: str) -> tuple[object, object, object]:
    """x, y and weights of a batch that is a tuple, or x alone of one that is an array."""
    if isinstance(batch, np.ndarray | jax.Array):
        return batch, None, None
    if not isinstance(batch, tuple) or not 1 <= len(batch) <= 3:
        raise InputError(
            f"{name} is {short(batch)}; make batches of (x, y), (x, y, weights), data frames or Datasets"
        )
    x, y, weights = (*batch, None, None)[:3]
    return x, y, weights
