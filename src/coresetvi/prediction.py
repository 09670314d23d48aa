"""Weighted averages over draws of what a model says about rows, in bounded memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data import Dataset
from .errors import InputError
from .models.base import Model

# Numbers in one block of the draws x rows table.
BLOCK_NUMBERS = 2**22


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
    parts = [
        _weighted_moments(model, thetas, weights, rows[start:stop])
        for start, stop in _ranges(len(rows), len(thetas))
    ]
    mean, variance = (np.concatenate([np.asarray(part[which]) for part in parts]) for which in (0, 1))
    return mean, variance


@eqx.filter_jit
def means_by_draw(model: Model, thetas: Float[Array, "s d"], rows: Array) -> Array:
    """E[y | x, theta_s] for every draw and row."""
    return jax.vmap(lambda theta: model.moments(theta, rows)[0])(thetas)


def log_predictive(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], data: Dataset
) -> np.ndarray:
    """log sum_s w_s p(y_n | x_n, theta_s) for every row."""
    log_norm = jnp.log(weights)
    return np.concatenate(
        [
            np.asarray(_log_predictive(model, thetas, log_norm, data.take(np.arange(start, stop))))
            for start, stop in _ranges(len(data), len(thetas))
        ]
    )


def scores(
    model: Model, thetas: Float[Array, "s d"], weights: Float[Array, " s"], data: Dataset
) -> dict[str, float]:
    """`nll`, the mean negative log predictive density, and `accuracy` or `rmse` where there is a mean."""
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
    else:
        guess = mean.argmax(-1) if mean.ndim == 2 else (mean > 0.5)
        found["accuracy"] = float(np.average(guess == labels, weights=row_weights))
    return found


@eqx.filter_jit
def _weighted_moments(model, thetas, weights, x):
    mean, variance = jax.vmap(lambda theta: model.moments(theta, x))(thetas)
    center = jnp.tensordot(weights, mean, axes=1)
    # Noise given theta, plus what theta's uncertainty adds.
    spread = jnp.tensordot(weights, variance + (mean - center) ** 2, axes=1)
    return center, spread


@eqx.filter_jit
def _log_predictive(model, thetas, log_norm, data):
    by_draw = jax.vmap(lambda theta: model.log_likelihood(theta, data.x, data.y))(thetas)
    return jax.nn.logsumexp(log_norm[:, None] + by_draw, axis=0)


def _ranges(num_rows: int, num_draws: int) -> list[tuple[int, int]]:
    block = max(1, BLOCK_NUMBERS // num_draws)
    return [(start, min(start + block, num_rows)) for start in range(0, num_rows, block)]
