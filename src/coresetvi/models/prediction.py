"""Weighted averages over draws of what a model says about rows, in bounded memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.dataset import Dataset
from ..errors import InputError
from .base import Model
from .sums import HEAVY, MOST_NUMBERS, numbers_made, numbers_per_row, over_draws

# Numbers in one block of the draws x rows table, with what a forward pass holds for each of its entries.
BLOCK_NUMBERS = 2**22
# Confidence bins of the expected calibration error.
CALIBRATION_BINS = 15
# What `scores` tells of a classifier besides its `nll`.
CLASS_SCORES = ("accuracy", "brier", "ece")
Range = tuple[int, int]


def align(data: Dataset, like: Dataset) -> Dataset:
    """`data` with the columns of `like`: by name where both have names, and of the same shape."""
    wanted = like.columns
    if wanted is not None and data.columns is not None and data.columns != wanted:
        # Columns go by name: a frame may have others, and in any order.
        if missing := [name for name in wanted if name not in data.columns]:
            raise InputError(f"x lacks the column {missing[0]!r}, which the fit was made with; add it.")
        rows = data.x[:, np.array([data.columns.index(name) for name in wanted])]
        data = Dataset(rows, data.y, data.weights, columns=wanted, target=data.target)
    if data.x.shape[1:] != like.x.shape[1:]:
        raise InputError(
            f"x has rows of shape {data.x.shape[1:]}, but the fit was made for "
            f"{like.x.shape[1:]}; pass the same columns in the same order."
        )
    return data


def predictive_moments(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], rows: Array
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a new y at every row: sum_s w_s E[y | x, theta_s], and total variance."""
    numbers = numbers_made(model.moments, model, rows)
    row_ranges, draw_ranges = _ranges(len(rows), len(thetas), numbers)
    shares = [float(weights[first:last].sum()) for first, last in draw_ranges]
    parts = []
    for start, stop in row_ranges:
        if len(draw_ranges) == 1:
            parts.append(_weighted_moments(model, thetas, weights, rows[start:stop]))
            continue
        blocks = [
            _weighted_moments(model, thetas[first:last], weights[first:last] / share, rows[start:stop])
            for (first, last), share in zip(draw_ranges, shares, strict=True)
            if share > 0
        ]
        parts.append(_pool(blocks, [share for share in shares if share > 0]))
    mean, variance = (np.concatenate([np.asarray(part[which]) for part in parts]) for which in (0, 1))
    return mean, variance


@eqx.filter_jit
def means_by_draw(model: Model, thetas: Float[Array, "s d"], rows: Array) -> Array:
    """E[y | x, theta_s] for every draw and row."""
    return _moments_by_draw(model, thetas, rows)[0]


def log_predictive(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], data: Dataset
) -> np.ndarray:
    """log sum_s w_s p(y_n | x_n, theta_s) for every row."""
    log_norm = jnp.log(weights)
    row_ranges, draw_ranges = _ranges(len(data), len(thetas), numbers_per_row(model, data))
    parts = []
    for start, stop in row_ranges:
        rows = data.take(np.arange(start, stop))
        blocks = [
            np.asarray(_log_predictive(model, thetas[first:last], log_norm[first:last], rows))
            for first, last in draw_ranges
        ]
        parts.append(np.logaddexp.reduce(blocks, axis=0))
    return np.concatenate(parts)


def scores(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], data: Dataset
) -> dict[str, float]:
    """`nll`, the mean negative log predictive density, and scores of the predictive mean where there is one.

    Those are `rmse`, or for classifiers `accuracy`, `brier` and `ece` (see `class_scores`).
    """
    row_weights = np.asarray(data.weights, np.float64)
    density = log_predictive(model, thetas, weights, data)
    found = {"nll": float(-np.average(density, weights=row_weights))}
    if data.y is None:
        return found
    try:
        mean = predictive_moments(model, thetas, weights, data.x)[0]
    except InputError:  # a model that cannot predict has a density all the same
        return found
    labels = np.asarray(data.y)
    if model.num_classes is None:
        squares = np.average((mean - labels) ** 2, axis=0, weights=row_weights)
        found["rmse"] = float(np.sqrt(np.mean(squares)))
        return found
    mean = mean.astype(np.float64)
    chances = mean if mean.ndim == 2 else np.stack([1.0 - mean, mean], axis=1)
    return found | class_scores(chances, labels, row_weights)


def class_scores(chances: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """How good class probabilities (n, C) are: `accuracy`, `brier` and `ece`, averages over weighted rows.

    The Brier score is sum_c (p_c - 1[y = c])^2. The expected calibration error is the distance between the
    accuracy and the mean confidence of the rows in one of 15 equal bins of confidence, averaged over bins by
    their weight.

    >>> chances = np.array([[0.9, 0.1], [0.6, 0.4]])
    >>> class_scores(chances, np.array([0, 1]), np.ones(2))
    {'accuracy': 0.5, 'brier': 0.37, 'ece': 0.35}
    """
    hits = chances.argmax(axis=1) == labels
    confidence = chances.max(axis=1)
    squares = np.sum((chances - (labels[:, None] == np.arange(chances.shape[1]))) ** 2, axis=1)
    bins = np.clip(np.ceil(confidence * CALIBRATION_BINS).astype(int) - 1, 0, CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=weights * (hits - confidence), minlength=CALIBRATION_BINS)
    found = (np.average(hits, weights=weights), np.average(squares, weights=weights))
    values = (*found, np.sum(np.abs(gaps)) / weights.sum())
    return {name: float(value) for name, value in zip(CLASS_SCORES, values, strict=True)}


def _moments_by_draw(model, thetas, x):
    """Mean and variance of y for every draw and row; draws of a heavy model go one by one."""
    if numbers_made(model.moments, model, x) < HEAVY:
        return jax.vmap(lambda theta: model.moments(theta, x))(thetas)
    return jax.lax.map(lambda theta: model.moments(theta, x), thetas)


@eqx.filter_jit
def _weighted_moments(model, thetas, weights, x):
    mean, variance = _moments_by_draw(model, thetas, x)
    center = jnp.tensordot(weights, mean, axes=1)
    # Noise given theta, plus what theta's uncertainty adds.
    spread = jnp.tensordot(weights, variance + (mean - center) ** 2, axes=1)
    return center, spread


@eqx.filter_jit
def _log_predictive(model, thetas, log_norm, data):
    by_draw = over_draws(model, data, lambda theta: model.log_likelihood(theta, data.x, data.y), thetas)
    return jax.nn.logsumexp(log_norm[:, None] + by_draw, axis=0)


def _pool(blocks, shares):
    """Mean and variance over all draws from those of blocks of draws that have these shares of the weight."""
    means, spreads = (np.stack([np.asarray(block[which]) for block in blocks]) for which in (0, 1))
    center = np.average(means, axis=0, weights=shares)
    return center, np.average(spreads + (means - center) ** 2, axis=0, weights=shares)


def _ranges(num_rows: int, num_draws: int, numbers: int) -> tuple[list[Range], list[Range]]:
    """Blocks of rows and of draws that bound the memory, given how many numbers one draw makes per row."""
    if numbers >= HEAVY:  # draws go one by one inside a block
        return _split(num_rows, max(1, MOST_NUMBERS // numbers)), _split(num_draws, num_draws)
    pairs = BLOCK_NUMBERS // numbers
    draws = min(num_draws, pairs)
    return _split(num_rows, pairs // draws), _split(num_draws, draws)


def _split(count: int, block: int) -> list[Range]:
    return [(start, min(start + block, count)) for start in range(0, count, block)]
