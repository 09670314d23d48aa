"""Labels that are seen piece by piece: what type they have, which classes there are, and their codes.

The type is known only when all labels have been seen: whole numbers up to the last row but one are still
floats, and text may be numbers ("3") or classes ("rose").
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from .arrays import Naming, as_numbers, is_whole
from .pieces import Piece, join
from .rows import MOST_CLASSES_COUNTED, LabelSummary, count_classes, first_of_each


class LabelCodes(NamedTuple):
    """How labels become numbers: as they are, or text by the position of its class."""

    whole: bool = False
    classes: tuple[str, ...] | None = None

    def encode(self, y: np.ndarray | None) -> np.ndarray | None:
        """Labels in the integer or float type of JAX.

        >>> LabelCodes(True, ("iris", "rose")).encode(np.array(["rose", "iris"], dtype=object)).tolist()
        [1, 0]
        """
        if y is None:
            return None
        if self.classes is not None:
            code_of = {name: code for code, name in enumerate(self.classes)}
            try:
                y = np.fromiter(map(code_of.__getitem__, y.tolist()), np.int64, len(y))
            except KeyError as error:
                raise InputError(
                    f"the label {error.args[0]!r} was not there when the rows were first read; scan again"
                ) from error
        elif y.dtype == object:
            y = as_numbers(y, Naming("the target", "use numbers or text"))
        return y.astype(jnp.result_type(int if self.whole else float), copy=False)

    def encode_piece(self, piece: Piece) -> Piece:
        """The piece with such labels."""
        return dataclasses.replace(piece, y=self.encode(piece.y))


class LabelReader:
    """Labels of all rows, looked at in one pass."""

    def __init__(self, target: str | None):
        self.name = "the labels" if target is None else f"target {target!r}"
        self.kinds: set[str] = set()
        self.least, self.greatest = np.inf, -np.inf
        self.counts: dict[object, int] | None = {}
        self.first_of: dict[object, tuple[Piece, int]] = {}
        self.numeric = self.whole = True
        self.shape: tuple[int, ...] | None = None

    def add(self, piece: Piece, start: int) -> None:
        """Labels of more rows, the first of which has the number `start`."""
        y = piece.y
        self._agree({"none" if y is None else "text" if y.dtype == object else "numbers"}, start)
        if y is None:
            return
        self.shape = y.shape[1:]
        if y.dtype == object:
            self._add_text(piece, start, y)
            return
        self.least, self.greatest = min(self.least, float(y.min())), max(self.greatest, float(y.max()))
        self.whole = self.whole and is_whole(y)
        if not self.whole or self.shape != ():
            self._stop_counting()
        if self.counts is not None:
            found = count_classes(y)
            if found is None:
                self._stop_counting()
            else:
                self._count(piece, start, y, found)

    def _add_text(self, piece: Piece, start: int, y: np.ndarray) -> None:
        found = collections.Counter(y.tolist())
        if self.numeric:
            try:
                values = as_numbers(_objects(list(found)), Naming("", ""))
                self.whole = self.whole and is_whole(values)
                # Of NaN, `min` makes NaN, and so does numpy's from then on.
                self.least = float(np.minimum(self.least, values.min()))
                self.greatest = float(np.maximum(self.greatest, values.max()))
            except InputError:
                self.numeric = False
        if self.counts is not None:
            self._count(piece, start, y, found)
        self._refuse_too_many_texts()

    def merge(self, later: "LabelReader", start: int) -> None:
        """What was found in the rows that follow, the first of which has the number `start`."""
        self._agree(later.kinds, start)
        self.shape = later.shape
        # Of NaN, numpy makes NaN.
        self.least = float(np.minimum(self.least, later.least))
        self.greatest = float(np.maximum(self.greatest, later.greatest))
        self.numeric, self.whole = self.numeric and later.numeric, self.whole and later.whole
        if self.counts is None or later.counts is None:
            self._stop_counting()
        else:
            self.first_of = {**later.first_of, **self.first_of}
            self._add_counts(later.counts)
        # Labels that are fractions are not counted, those before them included.
        if "numbers" in self.kinds and not self.whole:
            self._stop_counting()
        if "text" in self.kinds:
            self._refuse_too_many_texts()

    def _agree(self, kinds: set[str], start: int) -> None:
        self.kinds |= kinds
        if len(self.kinds) > 1:
            found = " and ".join(sorted(self.kinds))
            raise InputError(
                f"{self.name} changes its type around row {start} ({found}); use one type for all rows"
            )

    def _refuse_too_many_texts(self) -> None:
        if self.counts is None and not self.numeric:
            raise InputError(
                f"{self.name} holds text with more than {MOST_CLASSES_COUNTED} different values; "
                "encode it as numbers, or name another target"
            )

    def _count(self, piece: Piece, start: int, y: np.ndarray, found: dict) -> None:
        if not found.keys() <= self.first_of.keys():
            self._keep_firsts(piece, start, y)
        self._add_counts(found)

    def _add_counts(self, found: Mapping[object, int]) -> None:
        assert self.counts is not None
        for label, frequency in found.items():
            self.counts[label] = self.counts.get(label, 0) + frequency
        if len(self.counts) > MOST_CLASSES_COUNTED:
            self._stop_counting()

    def _keep_firsts(self, piece: Piece, start: int, y: np.ndarray) -> None:
        for row in first_of_each(y.astype(str) if y.dtype == object else y, piece.weights).tolist():
            label = y[row] if y.dtype == object else int(y[row])
            if label not in self.first_of:
                # A copy, for a view would keep the whole piece alive.
                self.first_of[label] = (piece.part(np.array([row])), start + row)

    def _stop_counting(self) -> None:
        self.counts, self.first_of = None, {}

    def codes(self) -> LabelCodes:
        """How these labels become numbers."""
        if "text" not in self.kinds:
            return LabelCodes(self.whole)
        if not self.numeric:
            assert self.counts is not None
            return LabelCodes(True, tuple(sorted(str(name) for name in self.counts)))
        # Numbers were checked with their rows; text that is numbers is known to be so only now.
        dtype = np.dtype(jnp.result_type(int if self.whole else float))
        limits = np.iinfo(dtype) if self.whole else np.finfo(dtype)
        if not (self.least >= limits.min and self.greatest <= limits.max):
            raise InputError(
                f"{self.name} holds text that is numbers, but not all of them fit into {dtype} "
                f"(from {self.least:g} to {self.greatest:g}); drop or rescale them"
            )
        return LabelCodes(self.whole)

    def summary(self, codes: LabelCodes) -> LabelSummary | None:
        """What is known of the labels; None if there are none."""
        if self.shape is None:
            return None
        dtype = np.dtype(jnp.result_type(int if codes.whole else float))
        counts = None
        if self.counts is not None and codes.whole:
            encoded = codes.encode(_objects(list(self.counts)))
            counts = _added(encoded, list(self.counts.values()))
        if codes.classes is not None:
            return LabelSummary(dtype, self.shape, 0.0, len(codes.classes) - 1.0, counts)
        return LabelSummary(dtype, self.shape, self.least, self.greatest, counts)

    def firsts(self, codes: LabelCodes) -> tuple[Piece | None, np.ndarray]:
        """The first row with weight of each class, in the order of the labels, and their numbers."""
        if not self.first_of or not codes.whole:
            return None, np.zeros(0, np.int64)
        rows = np.array([row for _, row in self.first_of.values()])
        piece = codes.encode_piece(join([piece for piece, _ in self.first_of.values()]))
        assert piece.y is not None
        # Texts of one number ("1", "01") are one class.
        order = np.lexsort((rows, piece.y))
        order = order[np.diff(piece.y[order], prepend=piece.y[order[0]] - 1) != 0]
        return piece.part(order), rows[order]


def _objects(labels: list) -> np.ndarray:
    return np.array([*labels, None], dtype=object)[:-1]


def _added(labels: np.ndarray | None, frequencies: list[int]) -> dict[int, int]:
    """Counts by label, in the order of the labels."""
    found: dict[int, int] = {}
    for label, frequency in sorted(zip([] if labels is None else labels.tolist(), frequencies, strict=True)):
        found[label] = found.get(label, 0) + frequency
    return found
