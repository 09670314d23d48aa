"""Weighted averages over draws of what a model says about rows, in bounded memory."""

from collections.abc import Iterator
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compiler import quick_jit
from ..data.column_limits import picked_facts
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from .base import Model
from .prepared_rows import Preparation, PreparedRows
from .score_sums import ScoreSums, class_sums
from .sums import HEAVY, MOST_NUMBERS, numbers_made, numbers_per_row, over_draws

# Numbers in one block of the draws x rows table, with what a forward pass holds for each of its entries.
BLOCK_NUMBERS = 2**22
Range = tuple[int, int]


@overload
def align(data: Dataset, like: Dataset) -> Dataset: ...
@overload
def align(data: Rows, like: Dataset) -> Rows: ...
def align(data: Rows, like: Dataset) -> Rows:
    """`data` with the columns of `like`: by name where both have names, and of the same shape."""
    wanted = like.columns
    if wanted is not None and data.columns is not None and data.columns != wanted:
        # Columns go by name: a frame may have others, and in any order.
        if missing := [name for name in wanted if name not in data.columns]:
            raise InputError(f"x lacks the column {missing[0]!r}, which the fit was made with; add it.")
        picked = tuple(data.columns.index(name) for name in wanted)
        if isinstance(data, Dataset):
            facts = picked_facts(data, picked, wanted)
            data = Dataset(data.x[:, np.array(picked)], data.y, data.weights, **facts)
        else:
            data = PreparedRows(data, Preparation(picked, wanted))
    if data.row_shape != like.row_shape:
        raise InputError(
            f"x has rows of shape {data.row_shape}, but the fit was made for "
            f"{like.row_shape}; pass the same columns in the same order."
        )
    return data


def predictive_moments(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], rows: Array
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a new y at every row: sum_s w_s E[y | x, theta_s], and total variance."""
    numbers = numbers_made(model.moments, model, rows)
    row_ranges, draw_ranges = _ranges(len(rows), len(thetas), numbers)
    host = np.asarray(weights)
    shares = [float(host[first:last].sum()) for first, last in draw_ranges]
    parts = []
    for some, skipped in _equal_blocks(rows, row_ranges):
        blocks = [
            _weighted_moments(model, _part(thetas, first, last), host[first:last] / share, some)
            for (first, last), share in zip(draw_ranges, shares, strict=True)
            if share > 0
        ]
        pooled = _pool(blocks, [share for share in shares if share > 0])
        parts.append([part[skipped:] for part in pooled])
    mean, variance = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
    return mean, variance


@quick_jit
def means_by_draw(model: Model, thetas: Float[Array, "s d"], rows: Array) -> Array:
    """E[y | x, theta_s] for every draw and row."""
    return _moments_by_draw(model, thetas, rows)[0]


def log_predictive(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], data: Dataset
) -> np.ndarray:
    """log sum_s w_s p(y_n | x_n, theta_s) for every row."""
    with np.errstate(divide="ignore"):
        log_norm = np.log(np.asarray(weights))
    row_ranges, draw_ranges = _ranges(len(data), len(thetas), numbers_per_row(model, data))
    parts = []
    for rows, skipped in _equal_blocks(data, row_ranges):
        blocks = [
            np.asarray(_log_predictive(model, _part(thetas, first, last), log_norm[first:last], rows))
            for first, last in draw_ranges
        ]
        parts.append(np.logaddexp.reduce(blocks, axis=0)[skipped:])
    return np.concatenate(parts)


def scores(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], data: Rows
) -> dict[str, float]:
    """`nll`, the mean negative log predictive density, and scores of the predictive mean where there is one.

    Those are `rmse`, or for classifiers `accuracy`, `brier` and `ece` (see `class_scores`). Rows that are not
    in memory are looked at once, block by block.
    """
    sums = None
    for batch in data.batches():
        found = score_sums(model, thetas, weights, batch)
        sums = found if sums is None else sums + found
    assert sums is not None
    return sums.averages()


def score_sums(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], data: Dataset
) -> ScoreSums:
    """What `scores` adds up over rows."""
    row_weights = np.asarray(data.weights, np.float64)
    density = np.asarray(log_predictive(model, thetas, weights, data), np.float64)
    total, nll = float(row_weights.sum()), -float(row_weights @ density)
    if data.y is None:
        return ScoreSums(total, nll)
    try:
        mean = predictive_moments(model, thetas, weights, data.x)[0]
    except InputError:  # a model that cannot predict has a density all the same
        return ScoreSums(total, nll)
    labels = np.asarray(data.y)
    if model.num_classes is None:
        return ScoreSums(total, nll, squares=np.atleast_1d(row_weights @ (mean - labels) ** 2))
    mean = mean.astype(np.float64)
    chances = mean if mean.ndim == 2 else np.stack([1.0 - mean, mean], axis=1)
    return ScoreSums(total, nll, classes=class_sums(chances, labels, row_weights))


def _moments_by_draw(model, thetas, x):
    """Mean and variance of y for every draw and row; draws of a heavy model go one by one."""
    if numbers_made(model.moments, model, x) < HEAVY:
        return jax.vmap(lambda theta: model.moments(theta, x))(thetas)
    return jax.lax.map(lambda theta: model.moments(theta, x), thetas)


@quick_jit
def _weighted_moments(model, thetas, weights, x):
    mean, variance = _moments_by_draw(model, thetas, x)
    center = jnp.tensordot(weights, mean, axes=1)
    # Noise given theta, plus what theta's uncertainty adds.
    spread = jnp.tensordot(weights, variance + (mean - center) ** 2, axes=1)
    return center, spread


@quick_jit
def _log_predictive(model, thetas, log_norm, data):
    by_draw = over_draws(model, data, lambda theta: model.log_likelihood(theta, data.x, data.y), thetas)
    return jax.nn.logsumexp(log_norm[:, None] + by_draw, axis=0)


def _pool(blocks, shares):
    """Mean and variance over all draws from those of blocks of draws that have these shares of the weight."""
    means, spreads = (np.stack([np.asarray(block[which]) for block in blocks]) for which in (0, 1))
    if len(blocks) == 1:
        return means[0], spreads[0]
    center = np.average(means, axis=0, weights=shares)
    return center, np.average(spreads + (means - center) ** 2, axis=0, weights=shares)


def _ranges(num_rows: int, num_draws: int, numbers: int) -> tuple[list[Range], list[Range]]:
    """Blocks of rows and of draws that bound the memory, given how many numbers one draw makes per row."""
    if numbers >= HEAVY:  # draws go one by one inside a block
        return _split(num_rows, max(1, MOST_NUMBERS // numbers)), _split(num_draws, num_draws)
    pairs = BLOCK_NUMBERS // numbers
    draws = min(num_draws, pairs)
    return _split(num_rows, pairs // draws), _split(num_draws, draws)


def _equal_blocks(rows: PyTree, ranges: list[Range]) -> Iterator[tuple[PyTree, int]]:
    """Blocks of rows, all of one length, and how many rows of each were in the block before.

    The last one reaches back: a shorter one would be a program of its own. Cut in numpy, for the same reason.
    """
    length = ranges[0][1] - ranges[0][0]
    host = jax.tree.map(np.asarray, rows)
    for start, stop in ranges:
        first = stop - length
        yield jax.tree.map(lambda leaf, first=first, stop=stop: leaf[first:stop], host), start - first


def _part(thetas: Array, first: int, last: int) -> Array:
    """Some of the draws; all of them as they are, for cutting is a program of its own."""
    return thetas if last - first == len(thetas) else thetas[first:last]


def _split(count: int, block: int) -> list[Range]:
    return [(start, min(start + block, count)) for start in range(0, count, block)]
