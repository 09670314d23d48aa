"""Rows as an estimator wants them: in units of their spread, equal ones together, padded to a round number.

Everything happens in numpy and float64, before JAX sees the rows.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Numbers of rows are rounded up to a multiple of this, or of an eighth of the power of two below them.
FEWEST_ROWS = 256
# Noise is never estimated as less than this part of the target's spread: float32 ends not far below.
LEAST_NOISE = 1e-3


class Units(NamedTuple):
    """Where zero lies and how long one is: (x - centre) / scale."""

    centre: np.ndarray
    scale: np.ndarray

    def remove(self, values: np.ndarray) -> np.ndarray:
        return (values - self.centre) / self.scale

    def restore(self, values: np.ndarray) -> np.ndarray:
        return self.centre + self.scale * values


def choose_units(values: np.ndarray, weights: np.ndarray, wanted: bool, centred: bool) -> Units:
    """Weighted mean and standard deviation of every column; about zero if it is not to be `centred`.

    A model without an intercept must not get one by a shift of its inputs. Constant columns keep their size.
    """
    ones = np.ones(values.shape[1:])
    if not wanted:
        return Units(0.0 * ones, ones)
    size = np.abs(values).max(axis=0)
    size = np.where(size > 0, size, 1.0)  # divided out, lest squares overflow
    share = values / size
    centre = np.average(share, axis=0, weights=weights) if centred else 0.0 * ones
    spread = np.sqrt(np.average((share - centre) ** 2, axis=0, weights=weights))
    if centred:
        constant = (values == values[0]).all(axis=0)  # whose mean may still be off by rounding
        centre, spread = np.where(constant, share[0], centre), np.where(constant, 0.0, spread)
    return Units(centre * size, np.where(spread > 0, spread * size, 1.0))


def distinct_rows(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows with weight, of equal ones the first only, and the summed weights.

    They come in the order of a hash of their values, which is much faster than to sort by all columns; of
    rows that differ and share a hash, which hardly ever happens, some may stay apart.

    >>> rows, weights = distinct_rows(np.array([[5.0], [6.0], [5.0]]), np.zeros(3), np.array([1.0, 0.0, 2.0]))
    >>> rows.tolist(), weights.tolist()
    ([0], [3.0])
    """
    rows = np.flatnonzero(weights)
    table = np.column_stack([x[rows], y[rows]]) + 0.0  # -0.0 becomes 0.0
    code = np.zeros(len(table), np.uint64)
    for column in np.ascontiguousarray(table.T).view(np.uint64):
        code = (code ^ column) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    order = np.argsort(code, kind="stable")
    rows, table = rows[order], table[order]
    first = np.flatnonzero(np.r_[True, (table[1:] != table[:-1]).any(axis=1)])
    return rows[first], np.add.reduceat(weights[rows], first)


def pad(values: np.ndarray) -> np.ndarray:
    """Zeros added up to a round number of rows: compiled programs are per shape, and folds differ by a row.

    It also puts every row into a block of full length, so that predictions do not depend on the others.
    """
    step = max(FEWEST_ROWS, 2 ** (len(values).bit_length() - 4))
    return np.concatenate([values, np.zeros((-len(values) % step, *values.shape[1:]))])


def estimate_noise(x: np.ndarray, y: np.ndarray, weights: np.ndarray, prior_scale: float) -> float:
    """Standard deviation of y about the ridge regression that this noise and prior make.

    The variance t solves t (N - f) = RSS, where the fit has f = sum_i l_i / (l_i + t / prior_scale^2) degrees
    of freedom and l_i are the eigenvalues of X^T V X. That is also where the evidence has a maximum.
    """
    total, energy = weights.sum(), float(weights @ y**2)
    least = LEAST_NOISE * (math.sqrt(energy / total) or 1.0)
    values, vectors = np.linalg.eigh((x.T * weights) @ x)
    values = np.maximum(values, 0.0)
    along = (vectors.T @ (x.T @ (weights * y))) ** 2 / np.where(values > 0, values, np.inf)

    def excess(log_variance: float) -> float:
        ratio = math.exp(log_variance) / prior_scale**2
        left = ratio / (values + ratio)  # what the ridge leaves of each direction
        squares = max(energy - along.sum(), 0.0) + along @ left**2
        return math.exp(log_variance) * (total - np.sum(1.0 - left)) - squares

    high = math.log((energy + prior_scale**2 * values.sum()) / total + least**2)
    grid = np.linspace(high, 2.0 * math.log(least), 200)
    below = np.array([excess(point) for point in grid]) < 0
    if not below.any():
        return least
    # Of several roots the largest, to be careful: the evidence has a maximum there.
    root = bisect(excess, grid[below.argmax()], grid[below.argmax() - 1])
    return math.exp(0.5 * root)


def bisect(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that is negative at `low` and not at `high` crosses zero, to the last digit.

    >>> bisect(lambda x: x**2 - 2.0, 0.0, 2.0) == math.sqrt(2.0)
    True
    """
    while low < (middle := 0.5 * (low + high)) < high:
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return high
