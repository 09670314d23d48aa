"""The valley that a few stiff residuals make, in which a least-squares problem is solved.

Residuals that are much steeper than the others vanish only in a valley, as narrow as they are steep. It is
curved: a straight step along it ends on its side, where the steep residuals outweigh whatever the others have
gained, and only the smallest steps would ever be taken. So every step is led back to the bottom before it is
judged, which needs the stiff residuals alone, and those are cheap.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jaxtyping import Array, Float

Flat = Float[Array, " p"]
Residual = Float[Array, " k"]
Stiff = Float[Array, " s"]

# How often a step is led back; how many lengths of it are tried, each so many times the one before; and the
# part of the stiff rows' squares below which they count as dependent.
CORRECTIONS, ATTEMPTS, SHORTER, RANK = 3, 4, 0.3, 1e-10


class Steep(NamedTuple):
    """The derivative S of the stiff residuals at one point, as products; S S^T is `square`.

    Vectors are in units of `unit`: numbers move by `unit` times what they say.
    """

    stiff_of: Callable[[Flat], Stiff]
    unit: Flat
    forward: Callable[[Flat], Stiff]
    back: Callable[[Stiff], Flat]
    square: Float[Array, "s s"]

    def inverse(self, rest: Float[Array, ""] | float) -> Callable[[Flat], Flat]:
        """Multiplication with the inverse of S^T S + rest I."""
        solve = self._solver(rest)
        return lambda vector: (vector - self.back(solve(self.forward(vector)))) / rest

    def shortest(self) -> Callable[[Stiff], Flat]:
        """The smallest x with S x = y, as a function of y; nearly so where rows of S depend on each other."""
        solve = self._solver(RANK * (jnp.trace(self.square) + 1.0))
        return lambda wanted: self.back(solve(wanted))

    def _solver(self, added: Float[Array, ""] | float) -> Callable[[Stiff], Stiff]:
        eye = jnp.eye(self.square.shape[0], dtype=self.square.dtype)
        factor = linalg.cho_factor(self.square + added * eye)
        return lambda right: linalg.cho_solve(factor, right)


def steep_part(stiff_of: Callable[[Flat], Stiff], flat: Flat, unit: Flat) -> Steep:
    """The derivative of the stiff residuals at `flat`.

    >>> steep = steep_part(lambda flat: flat[:1] * flat[1:], jnp.asarray([2.0, 3.0]), jnp.ones(2))
    >>> [round(number, 3) for number in steep.shortest()(jnp.asarray([13.0])).tolist()]
    [3.0, 2.0]
    """
    value, push = jax.linearize(stiff_of, flat)
    transpose = jax.linear_transpose(push, flat)
    forward = lambda vector: push(unit * vector)  # noqa: E731
    back = lambda vector: unit * transpose(vector)[0]  # noqa: E731
    square = jax.vmap(lambda one: forward(back(one)))(jnp.eye(value.shape[0], dtype=flat.dtype))
    return Steep(stiff_of, unit, forward, back, square)


def within(move: Flat, most: Float[Array, ""] | float) -> Float[Array, ""]:
    """The part of a move, at most all of it, in which no number moves by more than `most`."""
    return jnp.minimum(1.0, most / (jnp.max(jnp.abs(move), initial=0.0) + 1e-30))


class Trial(NamedTuple):
    """The best point found on a step so far, and the part of the step it is on.

    `whole` says that it is the first that was tried, and as far along as it was allowed to be.
    """

    flat: Flat
    residual: Residual
    length: Float[Array, ""]
    attempts: Array

    @property
    def whole(self) -> Array:
        return self.attempts <= 1


def along_valley(
    residual_of: Callable[[Flat], Residual],
    project: Callable[[Flat], Flat],
    flat: Flat,
    residual: Residual,
    steep: Steep,
    step: Flat,
    max_move: Float[Array, ""] | float,
) -> Trial:
    """A better point on the step from `flat`, as far along as there is one; `flat` itself if there is none.

    `step` is in units of `steep.unit`. Every point is led to where the stiff residuals are what the linear
    model says: not zero, where the others want it otherwise. No number moves by more than `max_move` at once.
    """
    longest = within(steep.unit * step, max_move)
    undo, before = steep.shortest(), jnp.sum(residual**2)
    here, there = residual[: steep.square.shape[0]], steep.forward(step)

    def attempt(trial: Trial):
        length = jnp.where(trial.attempts == 0, longest, SHORTER * trial.length)
        wanted = here + length * there

        def lead_back(_, point):
            shift = steep.unit * undo(steep.stiff_of(point) - wanted)
            return project(point - shift * within(shift, max_move))

        point = jax.lax.fori_loop(0, CORRECTIONS, lead_back, project(flat + length * steep.unit * step))
        found = residual_of(point)
        better = jnp.sum(found**2) < before  # never so for what is not finite
        choose = lambda new, old: jnp.where(better, new, old)  # noqa: E731
        return Trial(choose(point, flat), choose(found, residual), length, trial.attempts + 1)

    def keep_going(trial: Trial):
        return (trial.attempts < ATTEMPTS) & ~(jnp.sum(trial.residual**2) < before)

    return jax.lax.while_loop(keep_going, attempt, Trial(flat, residual, longest, jnp.asarray(0)))
