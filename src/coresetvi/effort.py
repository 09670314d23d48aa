"""What a row costs: how much a model's forward pass holds, found by tracing it, whatever the model is.

Regressions need a few numbers a row, so all draws go through at once; a convolutional network needs tens of
thousands, and then draws go one by one, and rows in blocks that fit in memory.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Float

from .data import Dataset
from .models.base import Model, soft_log_likelihood

# From this many numbers a row on, one draw keeps a core busy, and many at once only fill the memory.
HEAVY = 4096
# Numbers of a heavy model's forward pass that may be held at once.
MOST_NUMBERS = 2**24


def numbers_per_row(model: Model, data: Dataset) -> int:
    """How many numbers the log-likelihood of one more row makes on its way, at least 1.

    >>> from coresetvi.models import LogisticRegression
    >>> numbers_per_row(LogisticRegression(2), Dataset([[1.0, 2.0]], [0])) < 20
    True
    """
    return numbers_made(partial(soft_log_likelihood, model), model, data.x, data.y)


def numbers_made(function: Callable[..., Any], model: Model, x: Array, *others: Array | None) -> int:
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


def is_traced_part(part: Any) -> bool:
    """Whether a parameter of an operation is itself a traced function."""
    return hasattr(part, "eqns") or hasattr(getattr(part, "jaxpr", None), "eqns")


def is_heavy(model: Model, data: Dataset) -> bool:
    """Whether one row of these is so much work that draws should go through the model one by one."""
    return numbers_per_row(model, data) >= HEAVY


def over_draws(
    model: Model, data: Dataset, function: Callable[[Float[Array, " d"]], Any], thetas: Float[Array, "s d"]
) -> Any:
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
