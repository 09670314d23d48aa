"""Rows spread over the workers of a Dask cluster: the sum goes to the rows, and only a total comes back."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import PyTree

from .accumulate import narrow
from .cluster_source import Partitions
from .pieces import Piece, blocks_of
from .read_ahead import read_ahead
from .streaming import LEAST_ROWS, StreamedRows
from .survey import Survey


class ClusterRows(StreamedRows):
    """Rows in the memory of the workers of a Dask cluster; `scan` makes them.

    They say what the same rows on one machine would, and choose the same samples: only the order of summation
    differs. A worker that dies changes nothing, for others read its rows again.
    """

    def __init__(
        self,
        partitions: Partitions,
        batch_rows: int | None = None,
        fixed: object = None,
        bounds: object = None,
    ):
        super().__init__(partitions, batch_rows, fixed, bounds)
        self._partitions = partitions

    def total(self, of_rows: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
        """The sum over all rows of `of_rows(rows, *arguments)`, in one pass; see `Rows.total`.

        `of_rows` and the arguments are sent to the workers, each of which adds up its own rows.
        """
        self._survey()
        self._passes += 1
        return narrow(self._partitions.total(of_rows, arguments, self._block_length()))

    def _survey(self) -> Survey:
        if self._found is None:
            self._passes += 1
            self._found = self._partitions.survey()
        return self._found

    def _block_length(self) -> int:
        return best_length(self._partitions.lengths, self.batch_rows)

    def _blocks(self) -> Iterator[Piece]:
        """One pass over the rows, which are brought here partition by partition."""
        self._survey()
        self._passes += 1
        length = self._block_length()
        yield from read_ahead(lambda: blocks_of(self._partitions.read(length), length))

    def _gather(self, rows: np.ndarray) -> Piece:
        self._survey()
        self._passes += 1
        return self._partitions.pick(rows)


def best_length(lengths: Sequence[int], most: int) -> int:
    """Rows of a block, at most `most`, such that little is filled up in partitions of these lengths.

    All blocks have one shape, so that each worker compiles a sum once.

    >>> best_length([1000, 1000, 990], 600), best_length([100, 40_000, 90], 65_536)
    (500, 2500)
    """
    longest = max(1, *lengths) if lengths else 1
    fewest = -(-longest // most)
    candidates = [-(-longest // (fewest * 2**halvings)) for halvings in range(12)]
    useful = [length for length in candidates if length >= LEAST_ROWS] or candidates[:1]
    # A block costs about as much as some rows, however short it is.
    return min(useful, key=lambda length: sum(-(-rows // length) * (length + LEAST_ROWS) for rows in lengths))
