"""Iterative hard thresholding: another algorithm with the signature of those in `sparse_approximation.py`."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .sparse_approximation import Picks, no_picks, polar, split_lengths

# Rounds of hard thresholding (each costs one product with all vectors), and steps of the refinement in each.
NUM_ROUNDS, NUM_REFINEMENTS = 100, 300
# Hard thresholding first tries a step this much longer than the exact one, which would exchange few rows, and
# shortens it by this factor whenever the rows it leads to are no better.
LONGEST_STEP, SHORTER = 16.0, 0.7
# An error must fall by this share to count as lower: less may be left over from an unfinished refinement.
LOWER = 1e-4


def refine(
    gram: Float[Array, "m m"], projection: Float[Array, " m"], start: Float[Array, " m"]
) -> Float[Array, " m"]:
    """Minimise v.G.v / 2 - b.v over v >= 0, from `start`, by accelerated projected gradient.

    >>> refine(jnp.array([[4.0, 1.0], [1.0, 1.0]]), jnp.array([8.0, 1.0]), jnp.ones(2)).round()
    Array([2., 0.], dtype=float32)
    """
    diagonal = jnp.diagonal(gram)
    scale = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
    unit_gram, unit_projection = gram / scale[:, None] / scale, projection / scale
    # No eigenvalue exceeds the largest sum of absolute entries of a row.
    bound = jnp.max(jnp.sum(jnp.abs(unit_gram), axis=1))
    rate = 1.0 / jnp.where(bound > 0, bound, 1.0)

    def step(_, state):
        point, ahead, momentum = state
        new = jnp.maximum(ahead + rate * (unit_projection - unit_gram @ ahead), 0.0)
        # Momentum that points uphill is dropped; gradients tell, where values would differ by rounding only.
        momentum = jnp.where((ahead - new) @ (new - point) > 0, 1.0, momentum)
        grown = (1.0 + jnp.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        return new, new + (momentum - 1.0) / grown * (new - point), grown

    state = (start * scale, start * scale, jnp.ones((), gram.dtype))
    return jax.lax.fori_loop(0, NUM_REFINEMENTS, step, state)[0] / scale


@partial(jax.jit, static_argnames="size")
def hard_thresholding(
    vectors: Float[Array, "n s"], weights: Float[Array, " n"], size: int, key: PRNGKeyArray
) -> Picks:
    """Iterative hard thresholding for min |L - sum_n v_n l_n|^2, v >= 0, at most `size` of them not zero.

    With r the residual and g_n = <r, u_n>, a round takes the amounts w + mu g, keeps the `size` largest, as
    far as they are positive, and fits those rows anew with `refine`; it counts only if the error falls. Along
    the `size` largest entries T of the gradient, the error is lowest at

        mu = |g_T|^2 / |sum_{n in T} g_n u_n|^2.

    As w is already best on its own rows, rounds start from longer steps, which exchange more of them, and
    shorten these until the error falls. Nothing says that the rows found are the best there are.

    >>> vectors = jnp.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> rows, coefficients = hard_thresholding(vectors, jnp.ones(3), 2, jax.random.key(0))
    >>> rows, coefficients.round()
    (Array([2, 1], dtype=int32), Array([1., 1.], dtype=float32))
    """
    data = polar(vectors, weights, size)
    num_kept = min(size, vectors.shape[0])
    radius, target = split_lengths(data.target)

    def residual(rows, amounts):
        return target - amounts @ data.directions[rows]

    def exact_step(gradient, support):
        # Rows at zero can only grow.
        free = data.usable & (support | (gradient > 0))
        _, rows = jax.lax.top_k(jnp.where(free, jnp.abs(gradient), 0.0), num_kept)
        part = jnp.where(free[rows], gradient[rows], 0.0)
        square = jnp.sum((part @ data.directions[rows]) ** 2)
        return part @ part / jnp.where(square > 0, square, 1.0)

    def step(state, _):
        rows, amounts, stretch = state
        rest = residual(rows, amounts)
        gradient = data.directions @ rest
        before = jnp.zeros(vectors.shape[0], vectors.dtype).at[rows].add(amounts)
        after = before + stretch * exact_step(gradient, before > 0) * gradient
        largest, new_rows = jax.lax.top_k(jnp.where(data.usable, after, 0.0), num_kept)
        # Rows that are not kept become zero vectors, whose amounts stay at zero.
        kept = largest > 0
        chosen = jnp.where(kept[:, None], data.directions[new_rows], 0.0)
        new_amounts = refine(chosen @ chosen.T, chosen @ target, jnp.where(kept, before[new_rows], 0.0))
        error = jnp.linalg.norm(residual(new_rows, new_amounts))
        lower = error < (1.0 - LOWER) * jnp.linalg.norm(rest)
        accepted = (new_rows, new_amounts, jnp.full_like(stretch, LONGEST_STEP))
        return jax.tree.map(partial(jnp.where, lower), accepted, (rows, amounts, SHORTER * stretch)), None

    state = (*no_picks(vectors, num_kept), jnp.asarray(LONGEST_STEP, vectors.dtype))
    (rows, amounts, _), _ = jax.lax.scan(step, state, length=NUM_ROUNDS)
    padding = (0, size - num_kept)
    return jnp.pad(rows, padding), jnp.pad(data.coefficients(rows, radius * amounts), padding)
