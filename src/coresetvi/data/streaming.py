"""Rows that are read again for every question: one pass each, in blocks of one shape, read ahead."""

import hashlib
from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .._keys import host_generator
from ..errors import InputError
from .accumulate import Accumulator
from .column_limits import Bounds, column_bounds, fixed_columns
from .dataset import Dataset, unchecked
from .pieces import Piece, blocks_of, join, pad
from .read_ahead import read_ahead
from .row_source import RowSource
from .rows import LabelSummary, Rows, compiled_sum
from .survey import Survey, survey

# Numbers in one block: it stays in the cache of a core, and the cost of a call does not show.
BLOCK_NUMBERS = 2**20
LEAST_ROWS, MOST_ROWS = 256, 2**18


class StreamedRows(Rows):
    """Rows of a source that is read anew for every sum; `scan` makes them.

    The first question that needs it makes a survey: one pass that counts, checks and measures all rows, and
    keeps a random sample. `passes` counts how often the rows have been read, the survey included.
    """

    def __init__(
        self, source: RowSource, batch_rows: int | None = None, fixed: object = None, bounds: object = None
    ):
        self._source, self._batch_rows = source, batch_rows
        self._limits = fixed, bounds
        self._found: Survey | None = None
        self._passes = 0

    @property
    def passes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How often all rows have been read so far."""
        return self._passes

    @property
    def classes(self) -> tuple[str, ...] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the labels 0 … C-1 stand for, if they are text."""
        return self._survey().codes.classes

    @property
    def columns(self) -> tuple[str, ...] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Names of the numbers in a row of x, if they have names."""
        if not self._source.named:
            self._survey()
        return self._source.columns

    @property
    def target(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name of the labels, if they have one."""
        if not self._source.named:
            self._survey()
        return self._source.target

    @property
    def fixed(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Columns that learned points leave alone."""
        asked = self._limits[0]
        return fixed_columns(asked, self.columns, self.row_shape) if asked else ()

    @property
    def bounds(self) -> Bounds:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The lowest and highest value of columns, for learned points."""
        asked = self._limits[1]
        return column_bounds(asked, self.columns, self.row_shape) if asked else ()

    @property
    def num_rows(self) -> int:
        """How many rows there are, whatever their weights."""
        return self._survey().num_rows

    @property
    def total_weight(self) -> float:
        """Sum of the weights: the N of the paper."""
        return self._survey().total_weight

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row of x."""
        if self._source.named and self._source.columns is not None:
            return (len(self._source.columns),)
        return self._survey().row_shape

    @property
    def dim(self) -> int:
        """How many numbers one row of x holds."""
        return int(np.prod(self.row_shape))

    @property
    def batch_rows(self) -> int:
        """The most rows that are looked at together."""
        if self._batch_rows is not None:
            return self._batch_rows
        rows = max(LEAST_ROWS, min(MOST_ROWS, BLOCK_NUMBERS // max(1, self.dim)))
        return 2 ** (rows.bit_length() - 1)

    def __repr__(self) -> str:
        size = "not read yet" if self._found is None else f"{self.num_rows:,} rows of {self.dim} numbers"
        return f"<rows of {self._source.name}: {size}>"

    def scale(self) -> tuple[jax.Array, jax.Array]:
        """Weighted mean and standard deviation of x; see `Dataset.scale`."""
        found, dtype = self._survey(), jnp.result_type(float)
        return jnp.asarray(found.mean, dtype), jnp.asarray(found.deviation, dtype)

    def labels(self) -> LabelSummary | None:
        """Type, range and frequencies of the labels; None if there are none."""
        return self._survey().labels

    def one_of_each(self) -> Dataset | None:
        """The first row with weight of every class; see `Rows.one_of_each`."""
        found = self._survey()
        return None if found.firsts is None else self._dataset(found.firsts, found.first_rows)

    def sample(self, key: PRNGKeyArray, count: int) -> Dataset:
        """`count` different rows, uniformly drawn, in random order; all rows, in order, if there are no more.

        Up to 20,000 rows are drawn from the sample that the survey has kept; more take another pass.
        """
        if count < 1:
            raise InputError(f"count is {count}; draw at least one row")
        found = self._survey()
        kept = len(found.sample_rows)
        if count >= found.num_rows:
            if kept == found.num_rows:
                return self._dataset(found.sample, found.sample_rows)
            return self._dataset(self._gather(np.arange(found.num_rows)), np.arange(found.num_rows))
        generator = host_generator(key)
        if count <= kept:
            chosen = generator.permutation(kept)[:count]
            return self._dataset(found.sample.part(chosen), found.sample_rows[chosen])
        rows = generator.choice(found.num_rows, count, replace=False)
        order = np.argsort(rows)
        return self._dataset(self._gather(rows[order]).part(np.argsort(order)), rows)

    def batches(self) -> Iterator[Dataset]:
        """All rows once, in their order, in blocks of at most `batch_rows`; `indices` are row numbers."""
        start = 0
        for block in self._blocks():
            yield self._dataset(block, np.arange(start, start + len(block)))
            start += len(block)

    def total(self, of_rows: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """The sum over all rows of `of_rows(rows, *arguments)`, in one pass; see `Rows.total`.

        Blocks are added up in float64, whatever the float type of JAX.
        """
        self._survey()
        names = (self._source.columns, self._source.target)
        return sum_of_blocks(self._blocks(), self._block_length(), names, of_rows, arguments).result()

    def fingerprint(self) -> str:
        """A few characters of names, sizes, the count and the content of the sample."""
        found = self._survey()
        facts = [self._source.identity(), self.columns, self.target, found.num_rows, found.codes.classes]
        facts += [self.fixed, self.bounds] if any(self._limits) else []
        digest = hashlib.sha256(repr(facts).encode())
        for values in (found.sample_rows, found.sample.x, found.sample.y, found.sample.weights):
            digest.update(b"none" if values is None else f"{values.shape}{values.dtype}".encode())
            digest.update(b"" if values is None else np.ascontiguousarray(values).data)
        return digest.hexdigest()

    def _survey(self) -> Survey:
        if self._found is None:
            # A function makes batches as it likes, and how many numbers a row has is not known yet.
            length = self.batch_rows if self._source.named else MOST_ROWS
            self._passes += 1
            pieces = read_ahead(lambda: self._source.read(length))
            self._found = survey(pieces, self._source.name, self._source.target)
        return self._found

    def _block_length(self) -> int:
        """Rows of a block: as many as fit, but so that the last block is about as long as the others."""
        if self._found is None:
            return self.batch_rows
        return -(-self.num_rows // -(-self.num_rows // self.batch_rows))

    def _blocks(self) -> Iterator[Piece]:
        """One pass over the rows, with labels as numbers."""
        if not self._source.settled:
            self._survey()
        length, known = self._block_length(), self._found

        def read() -> Iterator[Piece]:
            for block in blocks_of(self._source.read(length), length):
                yield block if known is None else known.codes.encode_piece(block)

        self._passes += 1
        count = 0
        for block in read_ahead(read):
            count += len(block)
            yield block
            del block
        if count == 0 or (known is not None and count != known.num_rows):
            raise self._other_count(count)

    def _other_count(self, count: int) -> InputError:
        if self._found is None:
            return InputError(f"{self._source.name} has no rows; pass at least one row of data")
        return InputError(
            f"{self._source.name} gave {count} rows, but {self._found.num_rows} when first read; "
            "it must give the same rows every time, from a new iterator"
        )

    def _gather(self, rows: np.ndarray) -> Piece:
        """The rows with these numbers, which are sorted, in one pass."""
        picked, start = [], 0
        for block in self._blocks():
            first, end = np.searchsorted(rows, (start, start + len(block)))
            picked.append(block.part(rows[first:end] - start))
            start += len(block)
        return join(picked)

    def _dataset(self, piece: Piece, rows: np.ndarray | None) -> Dataset:
        """A piece as a data set; row numbers are left out where the integers of JAX cannot hold them."""
        indices = None
        if rows is not None and (not len(rows) or rows.max() <= np.iinfo(jnp.result_type(int)).max):
            indices = jnp.asarray(rows)
        names = (self._source.columns, self._source.target)
        return dataset_of(piece, *names, indices, fixed=self.fixed, bounds=self.bounds)


def dataset_of(
    piece: Piece,
    columns: tuple[str, ...] | None,
    target: str | None,
    indices: jax.Array | None = None,
    fixed: tuple[int, ...] = (),
    bounds: Bounds = (),
) -> Dataset:
    """A checked piece, whose labels are numbers, as a data set."""
    y = None if piece.y is None else jnp.asarray(piece.y)
    x, weights = jnp.asarray(piece.x), jnp.asarray(piece.weights)
    return unchecked(
        x, y, weights, columns=columns, target=target, indices=indices, fixed=fixed, bounds=bounds
    )


def sum_of_blocks(
    blocks: Iterable[Piece],
    length: int,
    names: tuple[tuple[str, ...] | None, str | None],
    of_rows: Callable[..., PyTree],
    arguments: tuple,
) -> Accumulator:
    """The sums of `of_rows` over blocks of at most `length` rows, filled up so that all have one shape."""
    accumulator = Accumulator()
    for block in blocks:
        accumulator.add(compiled_sum(of_rows, dataset_of(pad(block, length), *names), arguments))
    return accumulator
