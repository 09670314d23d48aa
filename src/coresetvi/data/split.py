"""Rows that a fit does not see, to score it on: a random part of the table, or a file of their own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from . import files as tables
from .dataset import Dataset
from .labels import Labels, encode_labels, known_codes, some

TEST_SHARE = 0.1


def split_rows(
    data: Dataset, num_classes: int | None, share: float = TEST_SHARE, seed: int = 0
) -> tuple[Dataset, Dataset]:
    """Rows to fit and rows to score on, drawn at random, with the classes in the same proportions in both."""
    if not 0 < share < 1:
        raise InputError(f"--test-share is {share:g}, not a part of the rows; use a number such as 0.1")
    order = np.random.default_rng(seed).permutation(len(data))
    labels = np.zeros(len(data), int) if num_classes is None else np.asarray(data.y)
    order = order[np.argsort(labels[order], kind="stable")]
    # One row of every class stays to be fitted; from the others, class after class, rows at even distances.
    first = np.diff(labels[order], prepend=-1) != 0
    free, count = order[~first], round(share * len(data))
    if not 0 < count <= len(free):
        use = "score on" if count < 1 else "fit"
        raise InputError(
            f"--test-share {share:g} of {len(data)} rows leaves too few to {use}; "
            "use another share, or name a file with --test"
        )
    scored = free[((np.arange(count) + 0.5) * len(free) / count).astype(int)]
    fitted = np.setdiff1d(np.arange(len(data)), scored)
    return data.take(fitted), data.take(np.sort(scored))


def read_test(
    path: Any, data: Dataset, labels: Labels, weights: str | None, drop: Sequence[str] = ()
) -> Dataset:
    """Rows to score on from a file of their own, with the columns and classes of `data`."""
    table = tables.open_table(path)
    target = labels.target
    if table.suffix == ".npz" and weights is None and "weights" in table.columns:
        weights = "weights"
    if target not in table.columns:
        raise InputError(f"--target {target!r} is not a column of {path}; it has {some(list(table.columns))}")
    left_out = {*drop, weights}
    others = {name: column for name, column in table.columns.items() if name not in left_out}
    rows = tables.rows_for(table._replace(columns=others), data.columns, data.dim, target)
    values = tables.target_values(table, target)
    if labels.classes is None:
        codes, _ = encode_labels(values, target, "numbers")
    else:
        codes = known_codes(values, target, labels.classes)
    row_weights = None if weights is None else tables.input_rows(table, [weights])[:, 0]
    try:
        return Dataset(rows, codes, row_weights, columns=data.columns, target=target)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
