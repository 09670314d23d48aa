"""Log-likelihoods as vectors: one number a draw, centred, so that inner products are covariances."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..data.dataset import Dataset
from ..models.base import Model, soft_log_likelihood

# A row whose log-likelihood hardly varies is parallel to nothing.
LEAST_VARIANCE = 1e-20


def centred(table: Float[Array, "n s"], weights: Float[Array, " s"]) -> Float[Array, "n s"]:
    """Each row minus its weighted mean over draws.

    >>> centred(jnp.array([[1.0, 4.0]]), jnp.array([2.0, 1.0]) / 3)
    Array([[-1.,  2.]], dtype=float32)
    """
    return table - (table @ weights)[:, None]


def correlations(
    table: Float[Array, "n s"], residual: Float[Array, " s"], weights: Float[Array, " s"]
) -> Float[Array, " n"]:
    """Covariance of each centred row with the residual, in units of the row's standard deviation (Alg. 1).

    >>> correlations(jnp.array([[3.0, -3.0]]), jnp.array([2.0, -2.0]), jnp.array([0.5, 0.5]))
    Array([2.], dtype=float32)
    """
    variance = (table**2) @ weights
    return (table @ (weights * residual)) / jnp.sqrt(jnp.maximum(variance, LEAST_VARIANCE))


def likelihood_table(model: Model, thetas: Float[Array, "s d"], rows: Dataset) -> Float[Array, "n s"]:
    """Log-likelihood of every row under every draw."""
    return jax.vmap(lambda theta: soft_log_likelihood(model, theta, rows.x, rows.y), out_axes=1)(thetas)


def likelihood_vectors(model: Model, thetas: Float[Array, "s d"], data: Dataset) -> Float[Array, "n s"]:
    """Centred log-likelihoods of all rows over equally weighted draws, divided by sqrt(S)."""
    num_samples = thetas.shape[0]
    return centred(
        likelihood_table(model, thetas, data), jnp.full(num_samples, 1.0 / num_samples)
    ) / jnp.sqrt(num_samples)
