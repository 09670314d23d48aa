"""Rows that a fit does not see, to score it on: a random part of the table."""

import numpy as np

from ..errors import InputError
from .dataset import Dataset

TEST_SHARE = 0.1


def split_rows(
    data: Dataset, num_classes: int | None, share: float = TEST_SHARE, seed: int = 0
) -> tuple[Dataset, Dataset]:
    """Rows to fit and rows to score on, drawn at random, with the classes in the same proportions in both."""
    if not 0 < share < 1:
        raise InputError(f"share={share:g} is not a part of the rows; use a number such as 0.1")
    order = np.random.default_rng(seed).permutation(len(data))
    labels = np.zeros(len(data), int) if num_classes is None else np.asarray(data.y)
    order = order[np.argsort(labels[order], kind="stable")]
    # One row of every class stays to be fitted; from the others, class after class, rows at even distances.
    first = np.diff(labels[order], prepend=-1) != 0
    free, count = order[~first], round(share * len(data))
    if not 0 < count <= len(free):
        use = "score on" if count < 1 else "fit"
        raise InputError(
            f"share={share:g} of {len(data)} rows leaves too few to {use}; "
            "use another share, or rows of another file"
        )
    scored = free[((np.arange(count) + 0.5) * len(free) / count).astype(int)]
    fitted = np.setdiff1d(np.arange(len(data)), scored)
    return data.take(fitted), data.take(np.sort(scored))
