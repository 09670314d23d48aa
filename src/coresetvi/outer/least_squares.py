"""Nonlinear least squares without matrices: Levenberg-Marquardt steps by conjugate gradients.

The first few residuals may be stiff, so much steeper than the rest that steps would hardly move the others:
conjugate gradients are given their exact inverse to start from, and steps follow the valley that they make
(`valley.py`).

Steps are measured in units in which every number moves the residuals about equally (the diagonal of J^T J,
estimated by random signs), so that damping means the same in every problem. It falls as steps keep what the
linear model promises, and rises when they do not: a trust region that opens as the residual falls.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .valley import SHORTER, Flat, Residual, along_valley, steep_part

# Random signs for the diagonal of J^T J, and the part of its mean that no entry falls below.
PROBES, LEAST_PART = 16, 1e-3
# Damping, in units of that diagonal: where it starts, and its limits.
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 0.1, 1e-7, 1e9
# Products with J^T J in one step, and the part of the right side that may be left.
MOST_PRODUCTS, PRECISION = 100, 0.1
# So many steps in a row that gain less than this part of the sum of squares are the last.
LOOK_STEPS, LEAST_GAIN = 10, 0.2


class Search(NamedTuple):
    """Where a search stands; `mark` is the sum of squares when progress was last looked at."""

    flat: Flat
    residual: Residual
    damping: Float[Array, ""]
    step: Array
    mark: Float[Array, ""]
    stalled: Array


def levenberg_marquardt(
    residual_of: Callable[[Flat], Residual],
    stiff_of: Callable[[Flat], Residual],
    project: Callable[[Flat], Flat],
    flat: Flat,
    residual: Residual,
    key: Array,
    *,
    target: Float[Array, ""] | float,
    max_steps: int,
    max_move: Float[Array, ""] | float,
    least_damping: Float[Array, ""] | float = LEAST_DAMPING,
) -> Search:
    """Lower the sum of squares from `flat`, whose residual is given, until it is below `target`.

    It ends early when many steps in a row have gained little, or after `max_steps`. No number moves by more
    than `max_move` in one step; `project` enforces what is allowed. `stiff_of` returns those residuals that
    come first and are stiff. `least_damping` stays, where residuals are a sample that must not be fitted in
    full: numbers that it says little about then stay where they are.

    >>> valley = lambda flat: 10.0 * (flat[1:] - flat[:1] ** 2)
    >>> curved = lambda flat: jnp.concatenate([valley(flat), flat[:1] - 1.0])
    >>> start, key = jnp.asarray([-1.0, 1.0]), jax.random.key(0)
    >>> limits = {"target": 1e-8, "max_steps": 60, "max_move": 1.0}
    >>> found = levenberg_marquardt(curved, valley, lambda flat: flat, start, curved(start), key, **limits)
    >>> found.flat.round(3).tolist()
    [1.0, 1.0]
    """
    stiff = jax.eval_shape(stiff_of, flat).shape[0]
    signs = jax.random.rademacher(key, (PROBES, residual.shape[0]), flat.dtype).at[:, :stiff].set(0.0)

    def keep_going(now: Search):
        unfinished = jnp.sum(now.residual**2) > target
        return unfinished & (now.step < max_steps) & (now.damping < MOST_DAMPING) & ~now.stalled

    def advance(now: Search):
        # Every use of `push` and `pull` is compiled anew: one of each inside the solver, one pull outside.
        _, push = jax.linearize(residual_of, now.flat)
        transpose = jax.linear_transpose(push, now.flat)
        pull = lambda vector: transpose(vector)[0]  # noqa: E731
        pulled = jax.lax.map(pull, jnp.concatenate([signs, -now.residual[None]]))
        downhill, size = pulled[-1], jnp.mean(pulled[:PROBES] ** 2, axis=0)
        size = size + LEAST_PART * jnp.mean(size) + jnp.finfo(size.dtype).tiny
        # A number at the edge of what is allowed, and drawn outwards, stays: the others are solved for.
        unit = jnp.where(at_edge(project, now.flat, downhill), 0.0, 1.0 / jnp.sqrt(size))
        steep = steep_part(stiff_of, now.flat, unit)
        solved, curved = conjugate_gradients(
            lambda vector: unit * pull(push(unit * vector)),
            unit * downhill,
            now.damping,
            steep.inverse(1.0 + now.damping),
        )
        trial = along_valley(residual_of, project, now.flat, now.residual, steep, solved, max_move)
        before, after, part = jnp.sum(now.residual**2), jnp.sum(trial.residual**2), trial.length
        promised = 2.0 * part * (unit * downhill) @ solved - part**2 * solved @ curved
        # A step that was shortened, or gained less than it promised, went further than the model reaches.
        reach = jnp.where(before - after > 0.5 * promised, 0.2, 1.0)
        shorter = jnp.minimum(SHORTER ** (1.0 - trial.attempts), 8.0)
        damping = now.damping * jnp.where((after < before) & trial.whole, reach, shorter)
        look = (now.step + 1) % LOOK_STEPS == 0
        return Search(
            trial.flat,
            trial.residual,
            jnp.maximum(damping, least_damping),
            now.step + 1,
            jnp.where(look, after, now.mark),
            look & (after > (1.0 - LEAST_GAIN) * now.mark),
        )

    damping = jnp.maximum(jnp.asarray(FIRST_DAMPING, flat.dtype), least_damping)
    first = Search(flat, residual, damping, jnp.asarray(0), jnp.sum(residual**2), jnp.asarray(False))
    return jax.lax.while_loop(keep_going, advance, first)


def conjugate_gradients(
    product: Callable[[Flat], Flat],
    right: Flat,
    damping: Float[Array, ""],
    nearly_inverse: Callable[[Flat], Flat],
) -> tuple[Flat, Flat]:
    """x that solves (A + damping) x = right approximately, and A x; `product` multiplies with A."""
    first = nearly_inverse(right)
    goal = PRECISION**2 * (right @ first)

    def keep_going(carry):
        *_, squared, step = carry
        return (step < MOST_PRODUCTS) & (squared > goal)

    def advance(carry):
        x, curved, rest, direction, squared, step = carry
        image = product(direction)
        length = squared / jnp.maximum(direction @ image + damping * direction @ direction, 1e-30)
        x, curved = x + length * direction, curved + length * image
        rest = rest - length * (image + damping * direction)
        better = nearly_inverse(rest)
        new_squared = rest @ better
        direction = better + direction * (new_squared / jnp.maximum(squared, 1e-30))
        return x, curved, rest, direction, new_squared, step + 1

    zero = jnp.zeros_like(right)
    carry = (zero, zero, right, first, right @ first, jnp.asarray(0))
    x, curved, *_ = jax.lax.while_loop(keep_going, advance, carry)
    return x, curved


def at_edge(project: Callable[[Flat], Flat], flat: Flat, direction: Flat) -> Array:
    """Which numbers cannot move in `direction` because what is allowed ends there."""
    nudged = project(flat + 1e-3 * jnp.sign(direction))
    return (nudged == flat) & (direction != 0.0)
