"""Sparse non-negative approximation of a weighted sum of vectors.

Row n of the data has a vector l_n (its centred log-likelihood over S draws, divided by sqrt(S), so that inner
products are covariances) and a weight omega_n >= 0. Each algorithm picks at most `size` rows and v >= 0 with

    sum_m v_m l_{rows_m}  near  L = sum_n omega_n l_n    in the Euclidean norm.

All have one signature and return `rows` and `coefficients`, both of length `size`. A row is named by one slot
only; slots that are not needed have coefficient 0, and then their row number means nothing. Rows whose weight
or vector is zero are never picked. All work with directions u_n = l_n / |l_n| and amounts v_n |l_n|: lengths
differ by orders of magnitude, and products of unit vectors are what float32 computes best.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..errors import InputError

Picks = tuple[Int[Array, " m"], Float[Array, " m"]]


class Polar(NamedTuple):
    """The vectors as lengths and directions, and the sum they are to approximate."""

    lengths: Float[Array, " n"]
    directions: Float[Array, "n s"]
    usable: Bool[Array, " n"]
    target: Float[Array, " s"]
    total_length: Float[Array, ""]

    def best(self, scores: Float[Array, " n"]) -> Int[Array, ""]:
        """The usable row with the largest score."""
        return jnp.argmax(jnp.where(self.usable, scores, -jnp.inf))

    def coefficients(self, rows: Int[Array, " m"], amounts: Float[Array, " m"]) -> Float[Array, " m"]:
        """From amounts of directions to coefficients of vectors; rows that are not usable get 0."""
        usable = self.usable[rows]
        return jnp.where(usable, amounts / jnp.where(usable, self.lengths[rows], 1.0), 0.0)


def polar(vectors: Float[Array, "n s"], weights: Float[Array, " n"], size: int) -> Polar:
    """Lengths, directions and the target L = sum_n omega_n l_n; refuses shapes that cannot be used."""
    if size < 1:
        raise InputError(f"A coreset needs at least one row, but size is {size}.")
    if vectors.size == 0 or weights.shape != vectors.shape[:1]:
        raise InputError(f"Vectors {vectors.shape} need one weight per row, but weights are {weights.shape}.")
    weights = weights.astype(vectors.dtype)
    lengths, directions = split_lengths(vectors)
    usable = (weights > 0) & (lengths > 0)
    return Polar(lengths, directions, usable, weights @ vectors, weights @ lengths)


def split_lengths(vectors: Float[Array, "*n s"]) -> tuple[Float[Array, "*n"], Float[Array, "*n s"]]:
    """Lengths and directions; a zero vector has direction zero.

    >>> length, direction = split_lengths(jnp.array([3e30, 4e30]))
    >>> (length / 1e30).round(), (10 * direction).round()
    (Array(5., dtype=float32), Array([6., 8.], dtype=float32))
    """
    # Dividing by the largest entry first keeps squares from overflowing, or from vanishing.
    largest = jnp.max(jnp.abs(vectors), axis=-1, keepdims=True)
    scaled = vectors / jnp.where(largest > 0, largest, 1.0)
    norms = jnp.linalg.norm(scaled, axis=-1, keepdims=True)
    return (largest * norms)[..., 0], scaled / jnp.where(norms > 0, norms, 1.0)


def no_picks(vectors: Float[Array, "n s"], size: int) -> Picks:
    """`size` free slots."""
    return jnp.zeros(size, int), jnp.zeros(size, vectors.dtype)


def step_towards(rows, amounts, row, stay, move) -> Picks:
    """The combination stay * old + move * (direction of `row`), as slots.

    A row that is there already keeps its slot, a new one takes the first free slot: after t steps at most t
    slots are taken, so one is free for every new row.
    """
    slot = jnp.argmax(jnp.where(amounts > 0, jnp.where(rows == row, 2, 0), 1))
    return rows.at[slot].set(row), (stay * amounts).at[slot].add(move)


@partial(jax.jit, static_argnames="size")
def giga(vectors: Float[Array, "n s"], weights: Float[Array, " n"], size: int, key: PRNGKeyArray) -> Picks:
    """Greedy iterative geodesic ascent (Campbell and Broderick, 2018).

    On the unit sphere, y moves towards t = L / |L|. With d the part of t at right angles to y, a step picks
    the row whose great circle through y points most nearly along d,

        argmax_n <d, u_n> / |u_n - <u_n, y> y|,

    and stops where that circle is nearest to t. In the end y is stretched by max(0, <L, y>), which is best.

    >>> vectors = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> rows, coefficients = giga(vectors, jnp.array([2.0, 2.0, 1.0]), 2, jax.random.key(0))
    >>> rows[0], coefficients.round()
    (Array(2, dtype=int32), Array([3., 0.], dtype=float32))
    """
    data = polar(vectors, weights, size)
    radius, target = split_lengths(data.target)
    tiny = 8 * jnp.finfo(vectors.dtype).eps

    def off_target(current):
        """The part of the target at right angles to `current`, and the tangent of the angle between them.

        Unlike the cosine, the tangent still tells apart points that are very near to the target.
        """
        cosine = target @ current
        rest = target - cosine * current
        return rest, jnp.where(cosine > 0, jnp.linalg.norm(rest) / cosine, jnp.inf)

    def step(picks: Picks, _):
        rows, amounts = picks
        # Added up afresh: rounding cannot pile up over the steps.
        current = amounts @ data.directions[rows]
        rest, tangent = off_target(current)
        cosines = data.directions @ current
        # 1 - cosine^2 is only good to rounding: a row much nearer to y than that must not win by accident.
        sines = jnp.sqrt(jnp.maximum((1 - cosines) * (1 + cosines), tiny))
        row = data.best(data.directions @ rest / sines)
        direction = data.directions[row]
        # The nearest point to t in the plane of y and u is proportional to stay * y + move * u.
        move = jnp.maximum(rest @ direction, 0.0)
        stay = jnp.maximum((target - (target @ direction) * direction) @ current, 0.0)
        rows, amounts = step_towards(rows, amounts, row, stay, move)
        norm = jnp.linalg.norm(amounts @ data.directions[rows])
        amounts = amounts / jnp.where(norm > 0, norm, 1.0)
        # At the target, where only rounding is left to follow, the step is not taken.
        nearer = off_target(amounts @ data.directions[rows])[1] < tangent
        return jax.tree.map(partial(jnp.where, nearer), (rows, amounts), picks), None

    (rows, amounts), _ = jax.lax.scan(step, no_picks(vectors, size), length=size)
    stretch = radius * jnp.maximum(target @ (amounts @ data.directions[rows]), 0.0)
    return rows, data.coefficients(rows, stretch * amounts)


@partial(jax.jit, static_argnames="size")
def frank_wolfe(
    vectors: Float[Array, "n s"], weights: Float[Array, " n"], size: int, key: PRNGKeyArray
) -> Picks:
    """Frank-Wolfe: minimise |L - sum_n v_n l_n|^2 with sum_n v_n |l_n| = sigma = sum_n omega_n |l_n|, v >= 0.

    The corners of that polytope are sigma u_n. Each step picks the corner that the residual r points to most,
    argmax_n <r, u_n>, and goes as far towards it as pays. With D the largest distance between directions, the
    error after M steps is at most sigma D / sqrt(M).

    >>> vectors = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    >>> rows, coefficients = frank_wolfe(vectors, jnp.array([3.0, 1.0]), 2, jax.random.key(0))
    >>> rows, coefficients.round()
    (Array([0, 1], dtype=int32), Array([3., 1.], dtype=float32))
    """
    data = polar(vectors, weights, size)
    target = data.target / jnp.where(data.total_length > 0, data.total_length, 1.0)

    def step(picks: Picks, index):
        rows, amounts = picks
        current = amounts @ data.directions[rows]
        residual = target - current
        row = data.best(data.directions @ residual)
        change = data.directions[row] - current
        square = change @ change
        move = jnp.clip(change @ residual / jnp.where(square > 0, square, 1.0), 0.0, 1.0)
        # The search starts at a corner, not at zero, which lies outside the polytope.
        move = jnp.where(index == 0, 1.0, move)
        return step_towards(rows, amounts, row, 1.0 - move, move), None

    (rows, amounts), _ = jax.lax.scan(step, no_picks(vectors, size), jnp.arange(size))
    # The amounts add up to one but for rounding.
    return rows, data.coefficients(rows, data.total_length * amounts / jnp.sum(amounts))


@partial(jax.jit, static_argnames="size")
def importance_sampling(
    vectors: Float[Array, "n s"], weights: Float[Array, " n"], size: int, key: PRNGKeyArray
) -> Picks:
    """`size` independent draws of a row: p_n = omega_n |l_n| / sigma with sigma = sum_n omega_n |l_n|.

    A row drawn c_n times gets the coefficient c_n omega_n / (size p_n) = c_n sigma / (size |l_n|). As
    E[c_n] = size p_n, the expectation of the approximation is L.

    >>> vectors = jnp.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> rows, coefficients = importance_sampling(vectors, jnp.ones(3), 4, jax.random.key(0))
    >>> coefficients @ vectors[rows]
    Array([3., 0.], dtype=float32)
    """
    data = polar(vectors, weights, size)
    log_chances = jnp.where(data.usable, jnp.log(weights) + jnp.log(data.lengths), -jnp.inf)

    # Not by a running sum of chances: with many rows, float32 would round away what one row adds to it.
    def draw(one):
        return jax.random.categorical(one, log_chances, mode="high")

    draws = jax.lax.map(draw, jax.random.split(key, size))
    rows, counts = jnp.unique(draws, return_counts=True, size=size, fill_value=0)
    return rows, data.coefficients(rows, counts * (data.total_length / size))
