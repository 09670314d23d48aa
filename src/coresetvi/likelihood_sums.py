"""Sums of log-likelihoods over many rows and many draws, in bounded memory."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .data import Dataset
from .models.base import Model, soft_log_likelihood

# Numbers in one block of the rows x draws table: a few of these fit in a core's cache.
BLOCK_NUMBERS = 2**20


def weighted_log_likelihood(model: Model, theta: Float[Array, " d"], data: Dataset) -> Float[Array, ""]:
    """sum_n weight_n log p(y_n | x_n, theta), for hard or soft labels."""
    return data.weights @ soft_log_likelihood(model, theta, data.x, data.y)


def log_likelihood_sums(model: Model, thetas: Float[Array, "s d"], data: Dataset) -> Float[Array, " s"]:
    """`weighted_log_likelihood` for every draw; rows go by in blocks when the table would be large."""
    of_draws = jax.vmap(lambda theta, rows: weighted_log_likelihood(model, theta, rows), (0, None))
    num_rows = len(data)
    block = max(1, BLOCK_NUMBERS // thetas.shape[0])
    if num_rows <= block:
        return of_draws(thetas, data)
    num_blocks = -(-num_rows // block)

    @jax.checkpoint
    def add_block(total, index):
        # The last block reaches back so that all have one shape; rows it would count twice weigh nothing.
        start = jnp.minimum(index * block, num_rows - block)
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, block)  # noqa: E731
        rows = jax.tree.map(cut, data)
        fresh = start + jnp.arange(block) >= index * block
        rows = Dataset(rows.x, rows.y, rows.weights * fresh)
        return total + of_draws(thetas, rows), None

    zero = jnp.zeros(thetas.shape[0], dtype=data.x.dtype)
    return jax.lax.scan(add_block, zero, jnp.arange(num_blocks))[0]
