"""Checked pieces of rows as a source reads them, and how pieces of any length become blocks of one.

Everything here is numpy: pieces are made in a thread that reads ahead, and JAX sees only whole blocks.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some rows that follow one another: finite x in the float type, labels as they came, weights.

    `y` is int, float, or objects (text) that are encoded once all of them are known.
    """

    x: np.ndarray  # (n, ...)
    y: np.ndarray | None  # (n,) or (n, C)
    weights: np.ndarray  # (n,)

    def __len__(self) -> int:
        return len(self.x)

    def __sizeof__(self) -> int:
        """Bytes of the arrays, by which the workers of a cluster know what they hold."""
        return sum(part.nbytes for part in (self.x, self.y, self.weights) if part is not None)

    def part(self, rows: slice | np.ndarray) -> "Piece":
        """Some of these rows."""
        return Piece(self.x[rows], None if self.y is None else self.y[rows], self.weights[rows])


def join(pieces: list[Piece]) -> Piece:
    """The rows of several pieces, one after another.

    >>> two = [Piece(np.ones((2, 3)), None, np.ones(2)), Piece(np.zeros((1, 3)), None, np.ones(1))]
    >>> join(two).x.shape
    (3, 3)
    """
    if len(pieces) == 1:
        return pieces[0]
    labels = [piece.y for piece in pieces if piece.y is not None]
    return Piece(
        np.concatenate([piece.x for piece in pieces]),
        np.concatenate(labels) if labels else None,
        np.concatenate([piece.weights for piece in pieces]),
    )


def blocks_of(pieces: Iterable[Piece], length: int) -> Iterator[Piece]:
    """The same rows in pieces of exactly `length`, but for the last; empty pieces are skipped.

    >>> pieces = [Piece(np.zeros((n, 1)), None, np.ones(n)) for n in (3, 0, 2, 4)]
    >>> [len(block) for block in blocks_of(pieces, 4)]
    [4, 4, 1]
    """
    waiting: list[Piece] = []
    missing = length
    for piece in pieces:
        start = 0
        while len(piece) - start >= missing:
            yield join([*waiting, piece.part(slice(start, start + missing))])
            start, waiting, missing = start + missing, [], length
        if start < len(piece):
            waiting.append(piece.part(slice(start, None)))
            missing -= len(piece) - start
    if waiting:
        yield join(waiting)


def pad(piece: Piece, length: int) -> Piece:
    """Filled up to `length` with copies of the last row, which is valid, that weigh nothing.

    >>> pad(Piece(np.array([[1.0], [2.0]]), None, np.ones(2)), 3).weights.tolist()
    [1.0, 1.0, 0.0]
    """
    short = length - len(piece)
    if short <= 0:
        return piece
    last = piece.part(np.full(short, len(piece) - 1))
    return join([piece, dataclasses.replace(last, weights=np.zeros_like(last.weights))])
