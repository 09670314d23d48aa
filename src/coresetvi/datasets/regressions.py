"""The regression problems that Bayesian neural networks are usually compared on, with published splits."""

import numpy as np

from ..data.dataset import Dataset
from ..errors import InputError
from . import folder as files
from .folder import Pair

_SPLIT = "test_idx_"


def uci(name: str, split: int = 0) -> Pair:
    """A regression problem, such as uci("yacht"), divided as in the published split of that number.

    Features and values are as they are in the file, in their own units. There are 20 splits (5 of protein)
    with a tenth of the rows for testing. Names: boston, concrete, energy, kin8nm, naval, power-plant,
    protein, wine-quality-red, yacht.

    >>> train, test = uci("yacht", split=0)
    >>> train.x.shape, test.x.shape
    ((277, 6), (31, 6))
    """
    if name not in files.REGRESSIONS:
        raise InputError(f"there is no regression {name!r}; choose one of {', '.join(files.REGRESSIONS)}")
    path = files.find(f"uci_{name}.npz")
    arrays = files.read_arrays(path)
    for key in ("X", "y"):
        if key not in arrays:
            raise files.damaged(path, f"{key} is missing")
    x, y = arrays["X"], arrays["y"]
    files.check_table(path, "X", x)
    if y.shape != x.shape[:1] or y.dtype.kind != "f" or not np.isfinite(y).all():
        raise files.damaged(path, "y needs one finite number per row")
    test = arrays.get(f"{_SPLIT}{split}")
    if test is None:
        found = sorted(int(key.removeprefix(_SPLIT)) for key in arrays if key.startswith(_SPLIT))
        there = ", ".join(map(str, found)) or "none"
        raise InputError(f"{name} has no split {split}; those in {path.name} are {there}")
    is_test = _mask(test, len(y))
    if is_test is None:
        raise files.damaged(path, f"{_SPLIT}{split} is no list of different rows")
    return Dataset(x[~is_test], y[~is_test]), Dataset(x[is_test], y[is_test])


def _mask(rows: np.ndarray, num_rows: int) -> np.ndarray | None:
    """Which rows are listed; None unless some are, but not all, and none of them twice."""
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or ((rows < 0) | (rows >= num_rows)).any():
        return None
    mask = np.zeros(num_rows, bool)
    mask[rows] = True
    return mask if 0 < mask.sum() == len(rows) < num_rows else None
