"""Sums of log-likelihoods over many rows and many draws, in bounded memory and at float32's best."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .data import Dataset
from .effort import over_draws, rows_at_once
from .models.base import Model, soft_log_likelihood

# Numbers in one block of the rows x draws table: a few of these fit in a core's cache.
BLOCK_NUMBERS = 2**20


class Quadratic(NamedTuple):
    """value + gradient.(theta - anchor) + (theta - anchor).hessian.(theta - anchor) / 2."""

    anchor: Float[Array, " d"]
    value: Float[Array, ""]
    gradient: Float[Array, " d"]
    hessian: Float[Array, "d d"]

    def rise(self, thetas: Float[Array, "s d"]) -> Float[Array, " s"]:
        """What it adds to `value` at each theta."""
        delta = thetas - self.anchor
        return delta @ self.gradient + 0.5 * jnp.sum((delta @ self.hessian) * delta, axis=1)


def weighted_log_likelihood(model: Model, theta: Float[Array, " d"], data: Dataset) -> Float[Array, ""]:
    """sum_n weight_n log p(y_n | x_n, theta), for hard or soft labels."""
    return data.weights @ soft_log_likelihood(model, theta, data.x, data.y)


def log_likelihood_sums(model: Model, thetas: Float[Array, "s d"], data: Dataset) -> Float[Array, " s"]:
    """`weighted_log_likelihood` for every draw; rows go by in blocks when the table would be large."""
    reference = jax.lax.stop_gradient(jnp.mean(thetas, axis=0))
    value, rises = log_likelihood_rises(model, thetas, reference, data)
    return value + rises


def log_likelihood_rises(
    model: Model, thetas: Float[Array, "s d"], reference: Float[Array, " d"], data: Dataset
) -> tuple[Float[Array, ""], Float[Array, " s"]]:
    """The sum at `reference`, and how much larger it is at every draw.

    Rows are subtracted before they are added up: what matters is how draws differ, and a sum of a million
    terms in float32 would round that away.
    """

    def of_rows(rows: Dataset):
        at_reference = soft_log_likelihood(model, reference, rows.x, rows.y)

        def rise(theta):
            return rows.weights @ (soft_log_likelihood(model, theta, rows.x, rows.y) - at_reference)

        return rows.weights @ at_reference, over_draws(model, rows, rise, thetas)

    return sum_over_blocks(of_rows, data, rows_at_once(model, data, thetas.shape[0], BLOCK_NUMBERS))


def expand(model: Model, anchor: Float[Array, " d"], data: Dataset) -> Quadratic:
    """The quadratic expansion of `weighted_log_likelihood` around `anchor`, one pass over the rows."""

    def of_rows(rows: Dataset):
        def total(theta):
            return weighted_log_likelihood(model, theta, rows)

        value, gradient = jax.value_and_grad(total)(anchor)
        return value, gradient, jax.hessian(total)(anchor)

    block = max(1, BLOCK_NUMBERS // anchor.shape[0])
    return Quadratic(anchor, *sum_over_blocks(of_rows, data, block))


def sum_over_blocks(of_rows, data: Dataset, block: int):
    """The sum of `of_rows` (a pytree of sums over rows) over blocks of at most `block` rows."""
    num_rows = len(data)
    if num_rows <= block:
        return of_rows(data)
    num_blocks = -(-num_rows // block)

    @jax.checkpoint
    def add_block(total, index):
        # The last block reaches back so that all have one shape; rows it would count twice weigh nothing.
        start = jnp.minimum(index * block, num_rows - block)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, block), data)
        fresh = start + jnp.arange(block) >= index * block
        rows = Dataset(rows.x, rows.y, rows.weights * fresh)
        return jax.tree.map(jnp.add, total, of_rows(rows)), None

    first = jax.tree.map(lambda leaf: leaf[:block], data)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(of_rows, first))
    return jax.lax.scan(add_block, zero, jnp.arange(num_blocks))[0]
