"""Rows on the workers of a Dask cluster, in partitions: of a Dask data frame, or of files that workers read.

Partitions stay in the memory of the workers (Dask moves them to disk if there is too little of it). How each
was made is kept too, so what is lost with a worker is read again by another.
"""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from . import cluster_tasks as tasks
from .cluster_client import clear_words, results
from .column_use import WantedColumns, choose_columns
from .label_codes import LabelCodes
from .pieces import Piece, join
from .row_files import RowFiles
from .row_source import RowSource
from .survey import Survey

if TYPE_CHECKING:
    import distributed

# Partial results that are put together in one task.
FAN_IN = 8
# Numbers in a partition of a file: some megabytes, so that several partitions keep every worker busy.
PART_NUMBERS = 2**21


class Partitions(RowSource):
    """Partitions that follow one another, and what can be done with them where they are."""

    def __init__(self, client: "distributed.Client"):
        self.client = client
        self.double = bool(jax.config.read("jax_enable_x64"))
        self.pieces: list[Any] = []  # futures of a `Piece` each
        self.lengths: list[int] = []
        self.named, self.settled = True, False

    @abc.abstractmethod
    def start_reading(self) -> "list[distributed.Future]":
        """Have every partition read by some worker."""

    def survey(self) -> Survey:
        """Read all partitions, look at all rows, and keep the partitions with labels as numbers."""
        with clear_words(self.client):
            self.pieces = self.start_reading()
            self.lengths = results(self.client, [self.submit(len, piece) for piece in self.pieces])
            starts = np.cumsum([0, *self.lengths[:-1]]).tolist()
            surveys = [
                self.submit(tasks.survey_part, piece, self.name, self.target, start)
                for piece, start in zip(self.pieces, starts, strict=True)
            ]
            found: Survey = results(self.client, [self.tree(tasks.merge_surveys, surveys)])[0].result()
            self.pieces = self.encoded(found.codes)
        return found

    def encoded(self, codes: LabelCodes) -> "list[distributed.Future]":
        """All partitions with labels as numbers, spread evenly: a pass waits for the busiest worker."""
        found: Any = self.client.who_has(self.pieces)
        threads: Any = self.client.nthreads()
        if not threads:  # all workers have gone, and others may come
            return [self.submit(tasks.encode, piece, codes) for piece in self.pieces]
        holders = [next(iter(found.get(piece.key, ())), None) for piece in self.pieces]
        return [
            self.submit(tasks.encode, piece, codes, workers=[home], allow_other_workers=True)
            for piece, home in zip(self.pieces, even_homes(self.lengths, holders, threads), strict=True)
        ]

    def read(self, length: int) -> Iterator[Piece]:
        """All rows, one partition after the other, brought here."""
        for piece in self.pieces:
            yield results(self.client, [piece])[0]

    def total(self, of_rows: Callable[..., PyTree], arguments: tuple, length: int) -> PyTree:
        """The sum over all rows in float64, of blocks of `length` rows; only the total comes back."""
        packed = tasks.pack_sum(of_rows, arguments)
        with clear_words(self.client):
            # The result of a task, and not scattered data: Dask can make it again if its worker dies.
            question = self.client.submit(tasks.PackedSum, *packed, pure=False)
            names = (self.columns, self.target)
            sums = [self.submit(tasks.sum_part, piece, question, length, names) for piece in self.pieces]
            return results(self.client, [self.tree(tasks.add_sums, sums)])[0]

    def pick(self, rows: np.ndarray) -> Piece:
        """The rows with these numbers, which are sorted."""
        edges = np.cumsum([0, *self.lengths])
        bounds = np.searchsorted(rows, edges)
        with clear_words(self.client):
            picked = [
                self.submit(tasks.pick, piece, rows[first:end] - start)
                for piece, start, first, end in zip(self.pieces, edges, bounds, bounds[1:], strict=False)
                if first < end
            ]
            return join(results(self.client, picked))

    def submit(
        self, function: Callable[..., object], *arguments: object, **options: Any
    ) -> "distributed.Future":
        """One task, in the caller's float type."""
        # Not `pure`, for then Dask would compute a name from all arguments.
        return self.client.submit(
            tasks.in_precision, self.double, function, *arguments, pure=False, **options
        )

    def tree(
        self, function: Callable[..., object], parts: "Sequence[distributed.Future]"
    ) -> "distributed.Future":
        """`function` of lists of a few parts, again and again until one is left; always in the same order."""
        level = list(parts)
        while True:
            level = [
                self.submit(function, level[start : start + FAN_IN]) for start in range(0, len(level), FAN_IN)
            ]
            if len(level) == 1:
                return level[0]


class FramePartitions(Partitions):
    """A Dask data frame."""

    def __init__(self, frame: Any, wanted: WantedColumns, client: "distributed.Client"):
        super().__init__(client)
        self.name = "the Dask data frame"
        names = [str(name) for name in frame.columns]
        self.use = choose_columns(names, wanted, self.name)
        self.columns, self.target = self.use.columns, self.use.target
        self.frame = frame[[name for name in frame.columns if str(name) in self.use.all]]

    def identity(self) -> list[str]:
        return []

    def start_reading(self) -> "list[distributed.Future]":
        partitions: Any = self.client.compute(self.frame.to_delayed())
        return [
            self.submit(tasks.read_frame, partition, self.use, f"partition {number} of {self.name}")
            for number, partition in enumerate(partitions)
        ]


class FilePartitions(Partitions):
    """Files that the workers can read under the same paths: a file each, or a few of its row groups."""

    def __init__(self, files: RowFiles, client: "distributed.Client"):
        super().__init__(client)
        self.files, self.name = files, files.name
        self.columns, self.target = files.columns, files.target

    def identity(self) -> list[str]:
        return self.files.identity()

    def start_reading(self) -> "list[distributed.Future]":
        length = max(1, PART_NUMBERS // len(self.files.use.columns))
        parts = [self.submit(self.files.parts, path, length) for path in self.files.paths]
        return [
            self.submit(tasks.read_file, self.files, part, length)
            for found in results(self.client, parts)
            for part in found
        ]


def even_homes(
    lengths: Sequence[int], holders: Sequence[str | None], threads: Mapping[str, int]
) -> list[str]:
    """A worker for every partition, so that rows are spread by threads and few partitions have to move.

    >>> even_homes([5, 5, 5, 5], ["a", "a", "a", "b"], {"a": 1, "b": 1})
    ['a', 'a', 'b', 'b']
    """
    room = {worker: sum(lengths) * count / sum(threads.values()) for worker, count in threads.items()}
    homes: list[str | None] = []
    for length, holder in zip(lengths, holders, strict=True):
        stays = holder in room and room[holder] >= length / 2
        homes.append(holder if stays else None)
        if holder is not None and stays:
            room[holder] -= length
    found = []
    for length, home in zip(lengths, homes, strict=True):
        if home is None:
            home = max(room, key=lambda worker: room[worker])
            room[home] -= length
        found.append(home)
    return found
