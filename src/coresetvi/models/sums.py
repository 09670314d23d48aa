"""Sums of log-likelihoods over many rows and many draws, in bounded memory and at float32's best.

What a row costs is found by tracing the model, whatever it is. Regressions need a few numbers per row, so all
draws go through at once; a convolutional network needs tens of thousands, and then draws go one by one, and
rows in blocks that fit in memory.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..data.dataset import Dataset, unchecked
from .base import Model, soft_log_likelihood, weighted_log_likelihood

# Numbers in one block of the rows x draws table: a few of these fit in a core's cache.
BLOCK_NUMBERS = 2**20

# From this many numbers per row on, one draw keeps a core busy, and many at once only fill the memory.
HEAVY = 4096
# Numbers of a heavy model's forward pass that may be held at once.
MOST_NUMBERS = 2**24


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


def log_joints(model: Model, thetas: Float[Array, "s d"], data: Dataset) -> Float[Array, " s"]:
    """log p(theta) + sum_n weight_n log p(y_n | x_n, theta) for every draw."""
    sums = over_draws(model, data, lambda theta: weighted_log_likelihood(model, theta, data), thetas)
    return sums + jax.vmap(model.log_prior)(thetas)


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
        rows = unchecked(rows.x, rows.y, rows.weights * fresh)
        return jax.tree.map(jnp.add, total, of_rows(rows)), None

    first = jax.tree.map(lambda leaf: leaf[:block], data)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(of_rows, first))
    return jax.lax.scan(add_block, zero, jnp.arange(num_blocks))[0]


def numbers_per_row(model: Model, data: Dataset) -> int:
    """How many numbers the log-likelihood of one more row makes on its way, at least 1.

    >>> from coresetvi.models import LogisticRegression
    >>> numbers_per_row(LogisticRegression(2), Dataset([[1.0, 2.0]], [0])) < 20
    True
    """
    return numbers_made(partial(soft_log_likelihood, model), model, data.x, data.y)


def numbers_made(function: Callable[..., PyTree], model: Model, x: Array, *others: Array | None) -> int:
    """How many numbers `function(theta, x, ...)` makes on its way for one more row of x, at least 1."""
    theta = jax.ShapeDtypeStruct((model.dim,), x.dtype)

    def size(rows: int) -> int:
        leaves = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), (x, *others)
        )
        return jaxpr_size(jax.make_jaxpr(function)(theta, *leaves).jaxpr)

    return max(1, (size(32) - size(16)) // 16)


def jaxpr_size(jaxpr: Any) -> int:
    """Numbers that all operations of a traced function return together."""
    total = 0
    for equation in jaxpr.eqns:
        inside = [part for part in jax.tree.leaves(list(equation.params.values())) if is_traced_part(part)]
        if inside:
            total += sum(jaxpr_size(getattr(part, "jaxpr", part)) for part in inside)
        else:
            total += sum(math.prod(out.aval.shape) for out in equation.outvars)
    return total


def is_traced_part(part: object) -> bool:
    """Whether a parameter of an operation is itself a traced function."""
    return hasattr(part, "eqns") or hasattr(getattr(part, "jaxpr", None), "eqns")


def is_heavy(model: Model, data: Dataset) -> bool:
    """Whether one row of these is so much work that draws should go through the model one by one."""
    return numbers_per_row(model, data) >= HEAVY


def over_draws(
    model: Model, data: Dataset, function: Callable[[Float[Array, " d"]], PyTree], thetas: Float[Array, "s d"]
) -> PyTree:
    """`function`, which runs `model` on these rows, of every draw.

    All draws at once; or, for a heavy model, one by one and without keeping what each held for a backward
    pass, which is faster as well.
    """
    if not is_heavy(model, data):
        return jax.vmap(function)(thetas)
    if thetas.shape[0] == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(thetas[0]))
    return jax.lax.map(jax.checkpoint(function), thetas)


def rows_at_once(model: Model, data: Dataset, num_draws: int, light: int) -> int:
    """Rows to a block: so many that `light` rows x draws are looked at, or that a heavy model fits."""
    numbers = numbers_per_row(model, data)
    return max(1, light // num_draws) if numbers < HEAVY else max(1, MOST_NUMBERS // numbers)
