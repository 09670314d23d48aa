"""Inner problems solved to a tolerance, with an implicit derivative or none, and the ablation without one."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import positive
from .._registry import register
from .base import Inner, InnerInfo, InnerProblem
from .newton import flat_zero, local_loss, minimise


@register
class Implicit(Inner):
    """Solve to a tolerance, then differentiate the stationarity condition (implicit function theorem).

    The noise is fixed within a solve, so the inner problem is deterministic and Newton steps converge. With
    G(t, phi) the tangent gradient at psi*, dt/dphi = -H^-1 dG/dphi, and the linear system is solved by
    conjugate gradients with Hessian-vector products. When the inner gradient norm is above `tolerance` the
    result is marked as not accepted, and the outer step does not use its hypergradient.

    >>> Implicit(tolerance=1e-3).passes_gradient
    True
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

    >>> Alternating(Implicit()).passes_gradient
    False
    """

    solver: Inner = Implicit()
    passes_gradient: ClassVar[bool] = False

    def begin(self, psi, fresh, index, key):
        return self.solver.begin(psi, fresh, index, key)

    def solve(self, problem, learned, psi, key):
        return self.solver.find(problem, learned, psi, key)


@register
class Joint(Inner):
    """No inner problem: psi moves with the outer gradient, as one more learned quantity (Supp. F).

    The ablation that shows why the nested problem is needed: r may then explain the data without the coreset.

    >>> import coresetvi as cvi
    >>> cvi.BBPSVI(20, inner=Joint(), optimizer=cvi.outer.Adam()).inner
    Joint()
    """

    passes_gradient: ClassVar[bool] = True

    def solve(self, problem, learned, psi, key):
        return psi, InnerInfo(jnp.asarray(jnp.nan), jnp.asarray(0), jnp.asarray(True))
