"""The different labels of rows that are not in memory, and rows with other labels in their place."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..data.dataset import Dataset
from ..data.rows import MOST_CLASSES_COUNTED, Rows
from ..models.prepared_rows import Preparation, PreparedRows
from ..models.row_checks import first_rows


class LabelValues(NamedTuple):
    """All different labels: as the rows have them, as the file has them, how many rows have each."""

    known: tuple[float, ...]  # sorted
    values: np.ndarray  # numbers, booleans, or text
    counts: tuple[int, ...]
    firsts: Dataset | None  # the first row with weight of each


def label_values(rows: Rows, arrow_type: str) -> LabelValues | None:
    """All labels that there are, in sorted order; None if they are too many for classes.

    Whole numbers and text have been counted by the survey. Of floats, which may be whole numbers written as
    0.0 and 1.0, nothing is known before they are looked at.
    """
    summary = rows.labels()
    if summary is None or summary.shape != ():
        return None
    if summary.counts is None:
        return None if summary.whole else values_of_floats(rows)
    known = tuple(float(label) for label in summary.counts)
    values = np.array(list(summary.counts))
    if rows.classes is not None:
        values = np.array([*rows.classes, None], dtype=object)[:-1]
    elif arrow_type == "bool":
        values = values.astype(bool)
    elif "string" in arrow_type:
        values = np.array([*map(str, summary.counts), None], dtype=object)[:-1]
    return LabelValues(known, values, tuple(summary.counts.values()), rows.one_of_each())


def values_of_floats(rows: Rows) -> LabelValues | None:
    """The same of floats: a pass, which ends as soon as they cannot be classes."""
    counts: dict[float, int] = {}
    firsts: Dataset | None = None
    for batch in rows.batches():
        found, frequencies = np.unique(np.asarray(batch.y), return_counts=True)
        if (found != np.floor(found)).any():
            return None
        for label, frequency in zip(found.tolist(), frequencies.tolist(), strict=True):
            counts[label] = counts.get(label, 0) + frequency
        if len(counts) > MOST_CLASSES_COUNTED:
            return None
        firsts = first_rows(batch, firsts)
    known = sorted(counts)
    return LabelValues(tuple(known), np.array(known), tuple(counts[label] for label in known), firsts)


def recoded(rows: Rows, found: LabelValues, codes: np.ndarray) -> Rows:
    """The same rows with whole numbers for labels: `codes` has that of each of those found."""
    new = tuple(int(code) for code in codes)
    counts: dict[int, int] = {}
    for code, count in sorted(zip(new, found.counts, strict=True)):
        counts[code] = counts.get(code, 0) + count
    integer = np.dtype(jnp.result_type(int)).name
    done = Preparation(label_type=integer, relabelled=(found.known, new))
    return PreparedRows(rows, done, counts, found.firsts)


def as_floats(rows: Rows) -> Rows:
    """The same rows with labels that are amounts."""
    summary = rows.labels()
    if summary is None or not summary.whole:
        return rows
    return PreparedRows(rows, Preparation(label_type=np.dtype(jnp.result_type(float)).name))
