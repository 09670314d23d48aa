"""The first pass over rows that are not in memory: number, weight, scale, labels, and a random sample."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from .label_codes import LabelCodes, LabelReader
from .pieces import Piece, join
from .rows import LabelSummary

# Rows that the survey keeps: plenty for starts and for a first guess of the posterior. Of rows that are large
# images it keeps fewer, lest they fill the memory.
SAMPLE_ROWS = 20_000
SAMPLE_NUMBERS = 2**25
# The sample does not depend on the data or on a key, so that a resumed fit sees the same one.
SEED = 20_200_301

Shapes = tuple[tuple[int, ...], tuple[int, ...] | None]  # of one row of x, and of one label


class Survey(NamedTuple):
    """What one look at all rows has found. `sample` and `firsts` are in the order of the rows."""

    num_rows: int
    total_weight: float
    mean: np.ndarray
    deviation: np.ndarray
    row_shape: tuple[int, ...]
    codes: LabelCodes
    labels: LabelSummary | None
    sample: Piece
    sample_rows: np.ndarray  # row numbers of `sample`
    firsts: Piece | None  # the first row with weight of each class, in the order of the labels
    first_rows: np.ndarray


def survey(pieces: Iterable[Piece], name: str, target: str | None) -> Survey:
    """Look at all rows once; `name` is what messages call them.

    >>> found = survey([Piece(np.array([[1.0], [3.0]]), None, np.ones(2))], "rows", None)
    >>> found.num_rows, found.mean.tolist(), found.deviation.tolist()
    (2, [2.0], [1.0])
    """
    running = RunningSurvey(name, target)
    for piece in pieces:
        running.add(piece)
    return running.result()


class RunningSurvey:
    """A survey in the making, of rows that start with the number `start`.

    Surveys of stretches that follow one another can be merged, and then say what one of all rows would.

    >>> surveys = [RunningSurvey("rows", None, start) for start in (0, 2)]
    >>> surveys[0].add(Piece(np.array([[1.0], [3.0]]), None, np.ones(2)))
    >>> surveys[1].add(Piece(np.array([[5.0]]), None, np.ones(1)))
    >>> surveys[0].merge(surveys[1])
    >>> surveys[0].result().sample_rows.tolist(), surveys[0].result().mean.tolist()
    ([0, 1, 2], [3.0])
    """

    def __init__(self, name: str, target: str | None, start: int = 0):
        self.name, self.target, self.start, self.end = name, target, start, start
        self.moments, self.labels, self.reservoir = Moments(), LabelReader(target), Reservoir(start=start)
        self.shapes: Shapes | None = None

    def add(self, piece: Piece) -> None:
        """The rows that come next."""
        if not len(piece):
            return
        self._agree((piece.x.shape[1:], None if piece.y is None else piece.y.shape[1:]), self.end)
        self.moments.add(piece.x.reshape(len(piece), -1), piece.weights)
        self.labels.add(piece, self.end)
        self.reservoir.add(piece, self.end)
        self.end += len(piece)

    def merge(self, later: "RunningSurvey") -> None:
        """What a survey of the rows that follow has found."""
        if later.start != self.end:
            raise ValueError(f"rows up to {self.end} are followed by {self.end}, not by {later.start}")
        if later.shapes is None:
            return
        self._agree(later.shapes, later.start)
        self.moments.merge(later.moments)
        self.labels.merge(later.labels, later.start)
        self.reservoir.merge(later.reservoir)
        self.end = later.end

    def _agree(self, shapes: "Shapes", start: int) -> None:
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            raise InputError(
                f"{self.name} has rows and labels of shapes {shapes} from row {start} on, but {self.shapes} "
                "before; give all batches the same columns and labels"
            )

    def result(self) -> Survey:
        """What has been found in all rows."""
        if self.shapes is None:
            raise InputError(f"{self.name} has no rows; pass at least one row of data")
        if self.moments.weight == 0:
            raise InputError(
                f"the weights of {self.name} are all zero; give at least one row a positive weight"
            )
        row_shape = self.shapes[0]
        mean, deviation = (part.reshape(row_shape) for part in self.moments.scale())
        codes = self.labels.codes()
        sample, sample_rows = self.reservoir.rows()
        firsts, first_rows = self.labels.firsts(codes)
        return Survey(
            self.end,
            float(self.moments.weight),
            mean,
            deviation,
            row_shape,
            codes,
            self.labels.summary(codes),
            codes.encode_piece(sample),
            sample_rows,
            firsts,
            first_rows,
        )


class Moments:
    """Weighted mean and squared deviations, merged piece by piece as Chan, Golub and LeVeque do, in float64.

    >>> moments = Moments()
    >>> for value in (1e9, 1e9 + 2):
    ...     moments.add(np.array([[value]]), np.ones(1))
    >>> [part.item() for part in moments.scale()]
    [1000000001.0, 1.0]
    """

    def __init__(self):
        self.weight = 0.0
        self.origin = np.zeros(())  # the mean of the first piece; `mean` is counted from here, lest digits go
        self.mean = np.zeros(())
        self.squares = np.zeros(())
        self.first: np.ndarray | None = None  # the first row with weight, to tell constant columns
        self.varies = np.zeros((), bool)

    def add(self, x: np.ndarray, weights: np.ndarray) -> None:
        """More rows, (n, dim)."""
        weighty = weights > 0
        if not weighty.any():
            return
        if not weighty.all():
            x, weights = x[weighty], weights[weighty]
        shares = weights.astype(np.float64)
        mass = float(shares.sum())
        if self.first is None:
            self.first, self.origin = x[0].copy(), shares @ x / mass
        self.varies = self.varies | (x != self.first).any(axis=0)
        centred = x - self.origin
        mean = shares @ centred / mass
        centred -= mean
        squares = np.einsum("n,nd,nd->d", shares, centred, centred)
        self._absorb(mass, mean, squares)

    def merge(self, later: "Moments") -> None:
        """What other rows have given."""
        if later.first is None:
            return
        if self.first is None:
            self.first, self.origin = later.first, later.origin
        self.varies = self.varies | later.varies | (later.first != self.first)
        self._absorb(later.weight, (later.origin - self.origin) + later.mean, later.squares)

    def _absorb(self, mass: float, mean: np.ndarray, squares: np.ndarray) -> None:
        """Rows of this weight, mean (from the origin) and sum of squared deviations."""
        step, whole = mean - self.mean, self.weight + mass
        self.squares = self.squares + squares + step**2 * (self.weight * mass / whole)
        self.mean = self.mean + step * (mass / whole)
        self.weight = whole

    def scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation; a constant column gets |mean|, or 1, as in `Dataset.scale`."""
        deviation = np.sqrt(self.squares / self.weight)
        mean = self.origin + self.mean
        fallback = np.where(mean == 0, 1.0, np.abs(mean))
        return mean, np.where(self.varies & (deviation > 0), deviation, fallback)


class Reservoir:
    """A uniform sample without replacement: the rows with the smallest of independent random numbers.

    Row n always gets the n-th random number, so that the sample does not depend on how rows come in pieces.
    """

    def __init__(self, size: int | None = None, start: int = 0):
        self.size = size or SAMPLE_ROWS
        # One step of the generator is one random number.
        self.random = np.random.Generator(np.random.PCG64(SEED).advance(start))
        self.kept: list[Piece] = []
        self.numbers, self.ranks, self.bound = np.zeros(0, np.int64), np.zeros(0), 1.0

    def add(self, piece: Piece, start: int) -> None:
        """More rows, the first of which has the number `start`."""
        if not self.kept:
            self.size = min(self.size, max(1, SAMPLE_NUMBERS // piece.x[0].size))
        ranks = self.random.random(len(piece))
        chosen = np.flatnonzero(ranks < self.bound)
        if not len(chosen):
            return
        self.kept.append(piece.part(chosen))
        self.numbers = np.concatenate([self.numbers, start + chosen])
        self.ranks = np.concatenate([self.ranks, ranks[chosen]])
        if len(self.ranks) > 2 * self.size:
            self._shrink()

    def merge(self, later: "Reservoir") -> None:
        """What was kept of the rows that follow; its own random numbers start where ours end."""
        self.size = min(self.size, later.size)
        self.kept += later.kept
        self.numbers = np.concatenate([self.numbers, later.numbers])
        self.ranks = np.concatenate([self.ranks, later.ranks])
        self._shrink()

    def _shrink(self) -> None:
        if len(self.ranks) <= self.size:
            return
        best = np.sort(np.argpartition(self.ranks, self.size)[: self.size])
        self.kept = [join(self.kept).part(best)]
        self.numbers, self.ranks = self.numbers[best], self.ranks[best]
        self.bound = float(self.ranks.max())

    def rows(self) -> tuple[Piece, np.ndarray]:
        """The sample and its row numbers, in the order of the rows."""
        self._shrink()
        return join(self.kept), self.numbers
