"""Inner problems solved by optimiser steps, all or the last of which gradients pass through."""

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from .._checks import positive, whole_number
from .._registry import register
from ..errors import InputError
from .base import Inner, InnerInfo
from .newton import flat_zero

MAX_NUMBERS_AHEAD = 2**22
# Steps that keep more than this together for the backward pass are recomputed there: half as long again.
MAX_BYTES_KEPT = 2**25


def unroll(problem, learned, psi, optimizer, keys, num_samples):
    """Optimiser steps from `psi`, one key each; recomputed in the backward pass if they are large to keep.

    Returns psi and the norm of the last gradient, in nats per posterior standard deviation:

    >>> from coresetvi.families import Point
    >>> from coresetvi.inner import InnerProblem
    >>> problem = InnerProblem(lambda psi, learned, noise: jnp.sum((psi["mean"] - 1.0) ** 2), Point(), dim=1)
    >>> start = Point().init(jnp.zeros(1), jnp.ones(1))
    >>> keys = jax.random.split(jax.random.key(0), 60)
    >>> psi, _ = unroll(problem, {}, start, default_optimizer(0.1), keys, num_samples=1)
    >>> bool(abs(psi["mean"][0] - 1.0) < 0.1)
    True
    """
    draw = functools.partial(problem.noise, num_samples=num_samples)
    # Drawing all the noise at once is much faster for small problems, and too large for big networks.
    ahead = len(keys) * num_samples * problem.dim <= MAX_NUMBERS_AHEAD
    unravel = ravel_pytree(problem.family.zero(psi))[1]

    def value(tangent, noise):
        moved = problem.family.move(psi, unravel(tangent))
        return problem.loss(moved, learned, noise)

    def step(carry, key_or_noise):
        tangent, opt_state = carry
        gradient = jax.grad(value)(tangent, key_or_noise if ahead else draw(key_or_noise))
        updates, opt_state = optimizer.update(gradient, opt_state, tangent)
        return (optax.apply_updates(tangent, updates), opt_state), jnp.linalg.norm(gradient)

    zero = flat_zero(problem.family, psi)
    each = jax.vmap(draw)(keys) if ahead else keys
    carry: Any = (zero, optimizer.init(zero))
    if len(keys) * bytes_kept(step, carry, each[0]) > MAX_BYTES_KEPT:
        step = jax.checkpoint(step)
    (tangent, _), norms = jax.lax.scan(step, carry, each)
    return problem.family.move(psi, unravel(tangent)), norms[-1]


def bytes_kept(step, carry, given) -> int:
    """Memory that one step takes until the backward pass has been there, without running it."""
    shapes = jax.eval_shape(lambda carry: jax.vjp(lambda start: step(start, given), carry)[1], carry)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def default_optimizer(learning_rate: float) -> optax.GradientTransformation:
    """Adam whose denominator stays differentiable where the gradient vanishes.

    Without `eps_root`, d sqrt(v) / dv is infinite at a stationary point and unrolled hypergradients explode.

    >>> optimizer = default_optimizer(0.1)
    >>> update, _ = optimizer.update(jnp.zeros(1), optimizer.init(jnp.zeros(1)))
    >>> float(update[0])
    -0.0
    """
    return optax.adam(learning_rate, eps_root=1e-4)


def restarted(restart_every: int | None, psi, fresh, index, key):
    """`fresh(key)` at outer steps 0, k, 2k, ..., and `psi` at all others, where nothing is drawn."""
    if restart_every is None:
        return psi
    return jax.lax.cond(index % restart_every == 0, fresh, lambda _: psi, key)


def check_restart(restart_every: int | None) -> None:
    """Refuse a number of steps between restarts that cannot be."""
    if restart_every is not None:
        whole_number("restart_every", restart_every)


@register
class Unrolled(Inner):
    """Iterative differentiation: `num_steps` optimiser steps, gradients through all of them.

    Steps are taken in the family's tangent coordinates, so `learning_rate` is in posterior standard
    deviations. psi is warm-started from the previous outer step; with `restart_every=k` it begins anew at a
    fresh random draw every k outer steps, so that the coreset has to work for any initialisation. Memory does
    not grow with the model's activations: steps that are too large to keep are recomputed on the way back.

    >>> Unrolled(num_steps=30, restart_every=10).restart_every
    10
    """

    num_steps: int = 100
    learning_rate: float = 0.03
    num_samples: int = 10
    restart_every: int | None = None
    optimizer: optax.GradientTransformation | None = None
    passes_gradient: ClassVar[bool] = True

    def __check_init__(self):
        positive(self, "num_steps", "num_samples", "learning_rate")
        check_restart(self.restart_every)

    def begin(self, psi, fresh, index, key):
        return restarted(self.restart_every, psi, fresh, index, key)

    def solve(self, problem, learned, psi, key):
        optimizer = self.optimizer or default_optimizer(self.learning_rate)
        psi = jax.lax.stop_gradient(psi)
        keys = jax.random.split(key, self.num_steps)
        psi, norm = unroll(problem, learned, psi, optimizer, keys, self.num_samples)
        return psi, InnerInfo(norm, jnp.asarray(self.num_steps), jnp.asarray(True))


@register
class Truncated(Inner):
    """`num_steps` optimiser steps, gradients through the `last` of them only; otherwise as `Unrolled`.

    >>> Truncated(num_steps=100, last=20).last
    20
    """

    num_steps: int = 100
    last: int = 20
    learning_rate: float = 0.03
    num_samples: int = 10
    restart_every: int | None = None
    optimizer: optax.GradientTransformation | None = None
    passes_gradient: ClassVar[bool] = True

    def __check_init__(self):
        positive(self, "num_steps", "last", "num_samples", "learning_rate")
        check_restart(self.restart_every)
        if self.last > self.num_steps:
            raise InputError(f"last is {self.last}, more than the {self.num_steps} steps there are.")

    def begin(self, psi, fresh, index, key):
        return restarted(self.restart_every, psi, fresh, index, key)

    def solve(self, problem, learned, psi, key):
        optimizer = self.optimizer or default_optimizer(self.learning_rate)
        keys = jax.random.split(key, self.num_steps)
        first, last = keys[: self.num_steps - self.last], keys[self.num_steps - self.last :]
        psi = jax.lax.stop_gradient(psi)
        if self.last < self.num_steps:
            still = jax.lax.stop_gradient(learned)
            psi, _ = unroll(problem, still, psi, optimizer, first, self.num_samples)
            psi = jax.lax.stop_gradient(psi)
        psi, norm = unroll(problem, learned, psi, optimizer, last, self.num_samples)
        return psi, InnerInfo(norm, jnp.asarray(self.num_steps), jnp.asarray(True))
