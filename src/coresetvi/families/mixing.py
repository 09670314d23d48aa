"""How well Markov chains have mixed: rank-normalised R-hat and effective sample sizes (Vehtari et al., 2021).

In numpy: as a compiled program this took seconds to compile, for each new number of draws, and then
milliseconds to run.
"""

import functools
import math
from statistics import NormalDist

import numpy as np

# Columns that are looked at together, so that memory stays bounded however many parameters there are.
AT_ONCE = 256
TAILS = (0.05, 0.95)


def chain_measures(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R-hat, bulk and tail effective sample size of each column of (chains, draws, columns).

    A column that never moves has no R-hat (NaN) and no effective draw; one with a NaN has NaN in all three.

    >>> columns = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> r_hat, bulk, tail = chain_measures(columns)
    >>> bool(np.all(r_hat < 1.01)), bool(np.all(bulk > 1500))
    (True, True)
    """
    columns = np.asarray(columns, np.float64)
    parts = [measure(columns[..., first : first + AT_ONCE]) for first in range(0, columns.shape[-1], AT_ONCE)]
    r_hat, bulk, tail = (np.concatenate(part) for part in zip(*parts, strict=True))
    return r_hat, bulk, tail


def measure(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same, of all columns at once."""
    half = columns.shape[1] // 2
    # Halves of a chain that drifts differ as chains do. From here on (columns, chains, draws).
    halves = np.concatenate([columns[:, :half], columns[:, half : 2 * half]])
    halves = np.ascontiguousarray(np.moveaxis(halves, -1, 0))
    pooled = halves.reshape(len(halves), -1)
    with np.errstate(invalid="ignore", divide="ignore"):  # columns that never move, or are not numbers
        ranked = rank_normalise(halves)
        folded = rank_normalise(np.abs(halves - np.median(pooled, axis=1)[:, None, None]))
        low, high = np.quantile(pooled, TAILS, axis=1)[..., None, None]
        lower = effective_size((halves <= low).astype(np.float64))
        upper = effective_size((halves >= high).astype(np.float64))
        tail = np.where(np.isnan(pooled).any(axis=1), np.nan, np.minimum(lower, upper))
        return np.maximum(scale_reduction(ranked), scale_reduction(folded)), effective_size(ranked), tail


def rank_normalise(values: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains; equal values share the mean of their ranks."""
    pooled = values.reshape(len(values), -1)
    count = pooled.shape[1]
    order = np.argsort(pooled, axis=1, kind="stable")
    ordered = np.take_along_axis(pooled, order, axis=1)
    edge = np.ones((len(pooled), 1), bool)
    new = ordered[:, 1:] != ordered[:, :-1]
    places = np.arange(count)
    first = np.maximum.accumulate(np.where(np.hstack([edge, new]), places, 0), axis=1)
    last = np.where(np.hstack([new, edge]), places, count - 1)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    found = np.empty(pooled.shape)
    np.put_along_axis(found, order, normal_scores(count)[first + last], axis=1)
    found[np.isnan(pooled).any(axis=1)] = np.nan
    return found.reshape(values.shape)


@functools.lru_cache(4)
def normal_scores(count: int) -> np.ndarray:
    """Normal quantiles of the ranks 1, 1.5, 2, ... among `count` values, all that means of two can be."""
    quantile = NormalDist().inv_cdf
    return np.array([quantile((0.5 * twice + 0.625) / (count + 0.25)) for twice in range(2 * count - 1)])


def scale_reduction(chains: np.ndarray) -> np.ndarray:
    """Gelman and Rubin's R-hat: the spread of all draws over that within chains."""
    draws = chains.shape[2]
    between = draws * chains.mean(axis=2).var(axis=1, ddof=1)
    within = chains.var(axis=2, ddof=1).mean(axis=1)
    return np.sqrt((between / within + draws - 1) / draws)


def effective_size(chains: np.ndarray) -> np.ndarray:
    """Effective sample size by the initial monotone sequence of autocorrelations (Geyer, 1992)."""
    count, draws = chains.shape[1:]
    means = chains.mean(axis=2)
    lagged = autocovariance(chains - means[..., None]).mean(axis=1)
    within = lagged[:, 0] * draws / (draws - 1.0)
    moves = np.any(chains != chains[..., :1], axis=(1, 2))
    still = np.isfinite(within) & (~moves | (within <= 0.0))
    total = lagged[:, 0] + (means.var(axis=1, ddof=1) if count > 1 else 0.0)
    total = np.where(still, 1.0, total)[:, None]
    correlation = 1.0 - (within[:, None] - lagged[:, : draws - draws % 2]) / total
    correlation[:, 0] = 1.0
    even, odd = correlation[:, 0::2], correlation[:, 1::2]
    # Sums of neighbours are positive until noise takes over, and what comes after that is left out.
    positive = np.logical_and.accumulate(even + odd > 0.0, axis=1)
    row = np.arange(len(chains))
    end = np.minimum(np.maximum(positive.sum(axis=1), 1), even.shape[1] - 1)
    odd = np.where(positive, odd, 0.0)
    # The first autocorrelation after them still counts, once, if it is positive.
    positive[row, end] |= even[row, end] > 0.0
    even = np.where(positive, even, 0.0)
    sums = even + odd
    falling = np.minimum.accumulate(sums, axis=1)
    once = np.where(sums > falling, 0.5 * falling, even)[row, end]
    time = np.maximum(-1.0 + 2.0 * falling.sum(axis=1) - once, 1.0 / math.log10(count * draws))
    size = np.where(still, 0.0, count * draws / time)
    return np.where(np.isnan(means).any(axis=1), np.nan, size)


def autocovariance(centred: np.ndarray) -> np.ndarray:
    """Mean products of each chain with itself, later by 0, 1, 2, ... draws."""
    draws = centred.shape[-1]
    # Twice as long, so that the end of a chain does not meet its beginning.
    length = 2 ** math.ceil(math.log2(2 * draws))
    spectrum = np.fft.rfft(centred, n=length, axis=-1)
    return np.fft.irfft(np.abs(spectrum) ** 2, n=length, axis=-1)[..., :draws] / draws
