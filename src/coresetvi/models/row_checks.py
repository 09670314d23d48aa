"""Whether a model can take rows that are not all in memory, by what is known of them.

The model's own `check` looks at a random sample and at one row of every class. Then it is asked about labels
that the sample need not have: the least, the greatest, and a fraction if there may be any. Only if it objects
to one of these is every row shown to it, which takes a pass.
"""

import re

import jax
import numpy as np

from ..data.column_limits import column_facts
from ..data.dataset import Dataset, concatenate, unchecked
from ..data.rows import MOST_CLASSES_COUNTED, LabelSummary, Rows, count_classes, first_of_each
from ..errors import InputError
from .base import Model
from .prepared_rows import Preparation, PreparedRows

# Rows of the sample that is checked, and of those that are shown with other labels.
SAMPLED, PROBED = 20_000, 100


def check_rows(model: Model, rows: Rows, *, fitting: bool = True) -> Rows:
    """`rows` ready for this model, or an InputError that names what is wrong; see `Model.check`.

    >>> from coresetvi.models.glm import LogisticRegression
    >>> check_rows(LogisticRegression(1), Dataset([[1.0], [2.0]], [0.0, 1.0])).y.dtype
    dtype('int32')
    """
    if isinstance(rows, Dataset):
        return model.check(rows, fitting=fitting)
    sample = rows.sample(jax.random.key(0), SAMPLED)
    checked = check_part(model, sample, fitting=False)
    summary = rows.labels()
    if summary is None or sample.y is None or checked.y is None:
        check_part(model, sample, fitting=fitting)
        return rows
    label_type, firsts = np.dtype(checked.y.dtype), rows.one_of_each()
    counts = summary.counts
    if objects_to_some_label(model, sample, summary):
        found = check_every_row(model, rows)
        # Only whole numbers that were stored as such have been counted before.
        if counts is None:
            counts, firsts = found
    check_part(model, sample if firsts is None else firsts, fitting=fitting)
    if label_type == summary.dtype:
        return rows
    preparation = Preparation(label_type=label_type.name)
    if not np.issubdtype(label_type, np.integer):
        return PreparedRows(rows, preparation)
    return PreparedRows(rows, preparation, counts, firsts)


def check_part(model: Model, part: Dataset, *, fitting: bool) -> Dataset:
    """`model.check` of some rows; a row that its sentence names is counted as in all rows."""
    try:
        return model.check(part, fitting=fitting)
    except InputError as error:
        if part.indices is None:
            raise
        numbers = np.asarray(part.indices)

        def number_in_all(found: re.Match[str]) -> str:
            position = int(found[2])
            return f"{found[1]} {numbers[position]}" if position < len(numbers) else found[0]

        raise InputError(re.sub(r"\b([Rr]ow) (\d+)\b", number_in_all, str(error))) from error


def objects_to_some_label(model: Model, sample: Dataset, summary: LabelSummary) -> bool:
    """Whether the model would refuse rows of the sample if they had labels that other rows may have.

    That is a suspicion only: which labels a row may have can depend on its x.
    """
    few = sample.take(np.arange(min(len(sample), PROBED)))
    assert few.y is not None
    probes = [summary.least, summary.greatest]
    if not summary.whole:
        probes.append(np.floor(summary.least) + 0.5)
    for probe in probes:
        try:
            model.check(with_labels(few, np.full(few.y.shape, probe, few.y.dtype)), fitting=False)
        except InputError:
            return True
    return False


def check_every_row(model: Model, rows: Rows) -> tuple[dict[int, int] | None, Dataset | None]:
    """One pass in which the model looks at all rows; how many there are of each class, and the first of each.

    Both are None if labels are no classes: not whole numbers to the model, or too many different ones.
    """
    counts: dict[int, int] | None = {}
    firsts: Dataset | None = None
    for batch in rows.batches():
        checked = check_part(model, batch, fitting=False)
        assert checked.y is not None
        labels = np.asarray(checked.y)
        classes = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
        found = count_classes(labels) if classes else None
        if found is None or counts is None:
            counts = firsts = None
            continue
        for label, frequency in found.items():
            counts[label] = counts.get(label, 0) + frequency
        if len(counts) > MOST_CLASSES_COUNTED:
            counts = firsts = None
            continue
        firsts = first_rows(checked, firsts)
    return (None if counts is None else dict(sorted(counts.items()))), firsts


def first_rows(batch: Dataset, before: Dataset | None) -> Dataset | None:
    """The first row with weight of every class, of those found before and those in this batch."""
    firsts = first_of_each(np.asarray(batch.y), np.asarray(batch.weights))
    if not len(firsts):
        return before
    found = batch.take(firsts)
    if before is None:
        return found
    joined = concatenate(before, found)
    return joined.take(first_of_each(np.asarray(joined.y), np.asarray(joined.weights)))


def with_labels(rows: Dataset, labels: np.ndarray) -> Dataset:
    """The same rows with other labels."""
    labels_of = jax.numpy.asarray(labels)
    return unchecked(rows.x, labels_of, rows.weights, indices=rows.indices, **column_facts(rows))


def with_hard_labels(model: Model, points: Dataset) -> Dataset:
    """Points of a coreset as a model checks them: soft labels as the class that is most likely.

    >>> from coresetvi.models import SoftmaxRegression
    >>> points = Dataset(np.zeros((1, 2)), np.array([[0.2, 0.7, 0.1]]))
    >>> with_hard_labels(SoftmaxRegression(2, 3), points).y.tolist()
    [1]
    """
    if points.y is None or points.y.ndim != 2 or points.y.shape[1] != model.num_classes:
        return points
    return with_labels(points, np.argmax(np.asarray(points.y), axis=1))


def check_points(model: Model, points: Dataset) -> Dataset:
    """What `model.check` makes of points that may have soft labels, which stay as they are."""
    hard = with_hard_labels(model, points)
    checked = model.check(hard)
    return checked if hard is points else with_labels(checked, np.asarray(points.y))
