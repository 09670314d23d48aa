"""The inner problem: how psi* is found on the coreset, and how gradients pass through it (§3.4).

    psi*(phi) = argmin_psi  -mean_s [ core_s + log p(theta_s) - log r(theta_s; psi) ]      (Eq. 13)

The mean over draws matters: a sum would multiply the likelihood by S. `solve` returns psi* in a form whose
derivative with respect to the learned leaves is the part's own choice of adjoint: unrolled, truncated,
implicit, or none.
"""

import abc
import functools
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from .checks import positive
from .config import register
from .coreset import Leaves
from .errors import InputError
from .families import Family, Psi, draw_noise
from .newton import flat_zero, local_loss, minimise

MAX_NUMBERS_AHEAD = 2**22


class InnerProblem(NamedTuple):
    """`loss(psi, learned, noise)`: the negative ELBO of r on the coreset, in nats."""

    loss: Callable[[Psi, Leaves, Float[Array, "s k"]], Float[Array, ""]]
    family: Family
    dim: int

    def noise(self, key: PRNGKeyArray, num_samples: int) -> Float[Array, "s k"]:
        return draw_noise(key, num_samples, self.family.noise_dim(self.dim))


class InnerInfo(NamedTuple):
    """What a solve has to say: `accepted` is False when its hypergradient must not be used."""

    gradient_norm: Float[Array, ""]
    steps: Array
    accepted: Array


class Inner(eqx.Module):
    """A way to solve the inner problem and to differentiate the solution."""

    passes_gradient: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def solve(
        self, problem: InnerProblem, learned: Leaves, psi: Psi, key: PRNGKeyArray
    ) -> tuple[Psi, InnerInfo]:
        """psi* from the warm start `psi`."""

    def find(
        self, problem: InnerProblem, learned: Leaves, psi: Psi, key: PRNGKeyArray
    ) -> tuple[Psi, InnerInfo]:
        """psi* as a number: no derivative, and none of the work for one."""
        return jax.lax.stop_gradient(self.solve(problem, jax.lax.stop_gradient(learned), psi, key))

    def begin(self, psi: Psi, psi_start: Psi, index: Array) -> Psi:
        """Where the solve of outer step `index` starts: warm, from the last solution."""
        return psi


def unroll(problem, learned, psi, optimizer, keys, num_samples):
    """Optimiser steps from `psi`, one key each; every step is recomputed in the backward pass."""
    draw = functools.partial(problem.noise, num_samples=num_samples)
    # Drawing all the noise at once is much faster for small problems, and too large for big networks.
    ahead = len(keys) * num_samples * problem.dim <= MAX_NUMBERS_AHEAD
    unravel = ravel_pytree(problem.family.zero(psi))[1]

    def value(tangent, noise):
        moved = problem.family.move(psi, unravel(tangent))
        return problem.loss(moved, learned, noise)

    @jax.checkpoint
    def step(carry, key_or_noise):
        tangent, opt_state = carry
        gradient = jax.grad(value)(tangent, key_or_noise if ahead else draw(key_or_noise))
        updates, opt_state = optimizer.update(gradient, opt_state, tangent)
        return (optax.apply_updates(tangent, updates), opt_state), jnp.linalg.norm(gradient)

    zero = flat_zero(problem.family, psi)
    each = jax.vmap(draw)(keys) if ahead else keys
    (tangent, _), norms = jax.lax.scan(step, (zero, optimizer.init(zero)), each)
    return problem.family.move(psi, unravel(tangent)), norms[-1]


def default_optimizer(learning_rate: float) -> optax.GradientTransformation:
    """Adam whose denominator stays differentiable where the gradient vanishes.

    Without `eps_root`, d sqrt(v) / dv is infinite at a stationary point and unrolled hypergradients explode.
    """
    return optax.adam(learning_rate, eps_root=1e-4)


@register
class Unrolled(Inner):
    """Iterative differentiation: `num_steps` optimiser steps, gradients through all of them.

    Steps are taken in the family's tangent coordinates, so `learning_rate` is in posterior standard
    deviations. psi is warm-started from the previous outer step; with `restart_every=k` it goes back to where
    the fit began every k outer steps. Memory does not grow with the model's activations: each step is
    recomputed on the way back.
    """

    num_steps: int = 100
    learning_rate: float = 0.03
    num_samples: int = 10
    restart_every: int | None = None
    optimizer: optax.GradientTransformation | None = None
    passes_gradient: ClassVar[bool] = True

    def __check_init__(self):
        positive(self, "num_steps", "num_samples", "learning_rate")
        if self.restart_every is not None and self.restart_every < 1:
            raise InputError(f"restart_every must be at least 1, not {self.restart_every}.")

    def begin(self, psi, psi_start, index):
        if self.restart_every is None:
            return psi
        restart = index % self.restart_every == 0
        return jax.tree.map(lambda new, old: jnp.where(restart, new, old), psi_start, psi)

    def solve(self, problem, learned, psi, key):
        optimizer = self.optimizer or default_optimizer(self.learning_rate)
        psi = jax.lax.stop_gradient(psi)
        keys = jax.random.split(key, self.num_steps)
        psi, norm = unroll(problem, learned, psi, optimizer, keys, self.num_samples)
        return psi, InnerInfo(norm, jnp.asarray(self.num_steps), jnp.asarray(True))


@register
class Truncated(Inner):
    """`num_steps` optimiser steps, gradients through the `last` of them only."""

    num_steps: int = 100
    last: int = 20
    learning_rate: float = 0.03
    num_samples: int = 10
    optimizer: optax.GradientTransformation | None = None
    passes_gradient: ClassVar[bool] = True

    def __check_init__(self):
        positive(self, "num_steps", "last", "num_samples", "learning_rate")
        if self.last > self.num_steps:
            raise InputError(f"last is {self.last}, more than the {self.num_steps} steps there are.")

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


@register
class Implicit(Inner):
    """Solve to a tolerance, then differentiate the stationarity condition (implicit function theorem).

    The noise is fixed within a solve, so the inner problem is deterministic and Newton steps converge. With
    G(t, phi) the tangent gradient at psi*, dt/dphi = -H^-1 dG/dphi, and the linear system is solved by
    conjugate gradients with Hessian-vector products. When the inner gradient norm is above `tolerance` the
    result is marked as not accepted, and the outer step does not use its hypergradient.
    """

    tolerance: float = 1e-2
    max_steps: int = 50
    num_samples: int | None = None
    passes_gradient: ClassVar[bool] = True

    def __check_init__(self):
        positive(self, "tolerance", "max_steps")
        if self.num_samples is not None:
            positive(self, "num_samples")

    def fixed_noise(self, problem: InnerProblem, key: PRNGKeyArray) -> Float[Array, "s k"]:
        least = problem.family.least_fixed_draws(problem.dim)
        return problem.noise(key, self.num_samples or max(64, least))

    def _minimise(self, problem, learned, psi, noise):
        still, psi = jax.lax.stop_gradient((learned, psi))
        solution = minimise(
            lambda candidate: problem.loss(candidate, still, noise),
            problem.family,
            psi,
            self.tolerance,
            self.max_steps,
        )
        solution = jax.lax.stop_gradient(solution)
        accepted = solution.gradient_norm <= self.tolerance
        return solution.psi, InnerInfo(solution.gradient_norm, solution.steps, accepted)

    def find(self, problem, learned, psi, key):
        return self._minimise(problem, learned, psi, self.fixed_noise(problem, key))

    def solve(self, problem, learned, psi, key):
        noise = self.fixed_noise(problem, key)
        psi, info = self._minimise(problem, learned, psi, noise)
        zero = flat_zero(problem.family, psi)
        unravel = ravel_pytree(problem.family.zero(psi))[1]

        def gradient(tangent, leaves):
            return jax.grad(local_loss(lambda p: problem.loss(p, leaves, noise), problem.family, psi))(
                tangent
            )

        still = jax.lax.stop_gradient(learned)
        curve = jax.linearize(lambda tangent: gradient(tangent, still), zero)[1]

        def solve_linear(matvec, right):
            return jax.scipy.sparse.linalg.cg(matvec, right, tol=1e-4, maxiter=4 * zero.size)[0]

        # One last Newton step, with the Hessian held fixed: its value is almost zero, its derivative with
        # respect to the leaves is exactly the one the implicit function theorem asks for.
        tangent = -jax.lax.custom_linear_solve(curve, gradient(zero, learned), solve_linear, symmetric=True)
        tangent = jnp.where(info.accepted, tangent, jnp.zeros_like(tangent))
        return problem.family.move(psi, unravel(tangent)), info


@register
class Alternating(Inner):
    """Solve the inner problem, pass no gradient through the solution.

    For the importance-weighted bound this loses nothing as S grows: its first term does not depend on the
    proposal and its second is stationary at psi* (the envelope theorem). For uniform weights it loses
    everything, and fits refuse that combination.
    """

    solver: Inner = Implicit()
    passes_gradient: ClassVar[bool] = False

    def begin(self, psi, psi_start, index):
        return self.solver.begin(psi, psi_start, index)

    def solve(self, problem, learned, psi, key):
        return self.solver.find(problem, learned, psi, key)


@register
class Joint(Inner):
    """No inner problem: psi moves with the outer gradient, as one more learned quantity (Supp. F).

    The ablation that shows why the nested problem is needed: r may then explain the data without the coreset.
    """

    passes_gradient: ClassVar[bool] = True

    def solve(self, problem, learned, psi, key):
        return psi, InnerInfo(jnp.asarray(jnp.nan), jnp.asarray(0), jnp.asarray(True))
