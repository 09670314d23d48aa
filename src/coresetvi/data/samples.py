"""Random rows that stand for all of them, and weigh as much."""

import numpy as np
from jaxtyping import PRNGKeyArray

from .column_limits import column_facts
from .dataset import Dataset, concatenate, unchecked
from .rows import Rows, first_of_each

# Rows of the sample that stands for the data before the first pass: this part of them, within these limits.
SAMPLE_PART, LEAST_SAMPLE, MOST_SAMPLE = 4, 1_000, 20_000


def sample_of(rows: Rows, key: PRNGKeyArray, least: int = LEAST_SAMPLE) -> Dataset:
    """At least so many random rows, if there are, every class among them, that weigh what all rows do."""
    count = max(min(rows.num_rows // SAMPLE_PART, MOST_SAMPLE), LEAST_SAMPLE, least)
    sample = rows.sample(key, count)
    if len(sample) < rows.num_rows and (firsts := rows.one_of_each()) is not None:
        missing = ~np.isin(np.asarray(firsts.y), np.asarray(sample.y))
        if missing.any():
            sample = concatenate(sample, firsts.take(missing))
    return reweighted(sample, float(rows.total_weight))


def first_rows(sample: Dataset, count: int) -> Dataset:
    """A smaller sample that weighs as much; every class of the larger one is in it."""
    if len(sample) <= count:
        return sample
    kept = np.arange(count)
    summary = sample.labels()
    if summary is not None and summary.counts is not None:
        kept = np.union1d(kept, first_of_each(np.asarray(sample.y), np.asarray(sample.weights)))
    return reweighted(sample.take(kept), float(sample.total_weight))


def reweighted(rows: Dataset, total: float) -> Dataset:
    """The same rows, weighing `total` together."""
    factor = total / float(rows.total_weight)
    return unchecked(rows.x, rows.y, rows.weights * factor, indices=rows.indices, **column_facts(rows))
