"""How differently data and points pull a network: the distance between their gradients, class by class.

With g_c the gradient of the mean loss of real rows of class c, and s_c that of the points of class c,

    distance = sum_c sum_groups [ 1 - cosine(g_c, s_c) ]

where a group holds what belongs to one output unit of one layer.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data.dataset import Dataset, unchecked
from ..models.base import Model, weighted_log_likelihood

# Added to squared lengths of gradients of a mean loss: shorter ones have no direction but that of rounding.
LEAST_SQUARE = 1e-12
# Fills the numbers of a class's points up to the length that all classes have.
NO_POINT = -1


class ClassRows(eqx.Module):
    """Where minibatches of every class come from: `order` sorts the rows by class.

    Row b of a minibatch of class c is drawn from the places `low[c, b]` up to `high[c, b]` of `order`.
    `factor` makes up for strata of unequal length, and is zero where a class has fewer rows than a minibatch.
    """

    order: Array
    low: Array
    high: Array
    factor: Array


def class_rows(labels: np.ndarray, classes: tuple[int, ...], rows_per_class: int) -> ClassRows:
    """Strata for minibatches of `rows_per_class` rows of each class, on the host."""
    counts = np.array([np.count_nonzero(labels == label) for label in classes], dtype=np.int64)
    size = min(rows_per_class, int(counts.max()))
    order = np.concatenate([np.flatnonzero(labels == label) for label in classes])
    first = (np.cumsum(counts) - counts)[:, None]
    # A class with fewer rows than a minibatch gives each of them once.
    strata = np.minimum(counts, size)[:, None]
    slot = np.arange(size)[None, :]
    inside = np.minimum(slot, strata - 1)
    low, high = inside * counts[:, None] // strata, (inside + 1) * counts[:, None] // strata
    factor = np.where(slot < strata, (high - low) * strata / counts[:, None], 0.0)
    return ClassRows(
        jnp.asarray(order), jnp.asarray(first + low), jnp.asarray(first + high), jnp.asarray(factor, float)
    )


def class_slots(labels: np.ndarray, classes: tuple[int, ...]) -> Array:
    """The numbers of the points of each class, in rows of the same length."""
    members = [np.flatnonzero(labels == label) for label in classes]
    length = max(1, *(len(numbers) for numbers in members))
    padded = [np.pad(numbers, (0, length - len(numbers)), constant_values=NO_POINT) for numbers in members]
    return jnp.asarray(np.stack(padded))


def mean_loss_gradient(model: Model, theta: Float[Array, " d"], data: Dataset) -> list[Array]:
    """The gradient of the rows' weighted mean loss, in the leaves of the user's parameters."""
    total = jnp.maximum(data.total_weight, jnp.finfo(data.weights.dtype).tiny)
    gradient = jax.grad(lambda theta: -weighted_log_likelihood(model, theta, data) / total)(theta)

    def leaves(theta) -> list[Array]:
        return [leaf for leaf in jax.tree.leaves(model.params(theta)) if eqx.is_inexact_array(leaf)]

    # Parameters are mostly theta cut into pieces, and the gradient is cut alike; it goes along with any map.
    return jax.jvp(leaves, (theta,), (gradient,))[1]


def real_gradients(
    model: Model, theta: Float[Array, " d"], data: Dataset, rows: ClassRows, key: PRNGKeyArray
) -> list[Array]:
    """`mean_loss_gradient` of a minibatch of every class; leaves have a leading axis for the class."""

    def of_class(given):
        low, high, factor, key = given
        batch = data.take(rows.order[jax.random.randint(key, low.shape, low, high)])
        batch = unchecked(batch.x, batch.y, batch.weights * factor)
        return mean_loss_gradient(model, theta, batch)

    keys = jax.random.split(key, rows.low.shape[0])
    return jax.lax.map(of_class, (rows.low, rows.high, rows.factor, keys))


def matching_distance(
    model: Model, theta: Float[Array, " d"], real: list[Array], points: Dataset, slots: Array
) -> Float[Array, ""]:
    """Sum over classes and groups of 1 - cosine; a class without points says nothing."""

    # One class after another, and again on the way back: a network's activations for all would be large.
    @jax.checkpoint
    def of_class(given):
        real, slots = given
        mine = points.take(jnp.maximum(slots, 0))
        mine = unchecked(mine.x, mine.y, jnp.where(slots == NO_POINT, 0.0, 1.0))
        made = mean_loss_gradient(model, theta, mine)
        total = sum(cosine_gaps(one, other) for one, other in zip(real, made, strict=True))
        return jnp.where(slots[0] == NO_POINT, 0.0, total)

    return jnp.sum(jax.lax.map(of_class, (real, slots)))


def cosine_gaps(one: Array, other: Array) -> Float[Array, ""]:
    """Sum of 1 - cosine over the output units of a layer, its last axis; a vector is one group.

    >>> float(cosine_gaps(jnp.eye(2), jnp.asarray([[2.0, 1.0], [0.0, 0.0]])))
    1.0
    """
    outputs = one.shape[-1] if one.ndim > 1 else 1
    one, other = one.reshape(-1, outputs), other.reshape(-1, outputs)
    squares = (jnp.sum(one**2, axis=0) + LEAST_SQUARE) * (jnp.sum(other**2, axis=0) + LEAST_SQUARE)
    return jnp.sum(1.0 - jnp.sum(one * other, axis=0) / jnp.sqrt(squares))
