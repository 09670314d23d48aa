"""The coreset posterior as the earlier methods take it: by Laplace's approximation, or by Markov chains.

Sparse VI and PSVI need draws of the coreset posterior itself: the gradient of the KL divergence is then a
covariance, and no importance weights occur. `exact_draws` tells the outer step to believe that.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from .._checks import positive
from .._registry import register
from ..families.base import Family
from .base import Inner, InnerInfo
from .newton import flat_zero, local_loss, minimise

# The scale of r is a guess when the search begins and right when it ends; the search goes on from there.
ROUNDS = 2


class Shift:
    """A family of which only the mean may move: what the search for a mode sees."""

    def __init__(self, family: Family):
        self._family = family

    def zero(self, psi):
        return self._family.zero(psi)["mean"]

    def move(self, psi, tangent):
        return self._family.move(psi, {**self._family.zero(psi), "mean": tangent})


@register
class Laplace(Inner):
    """r has its mean at the mode of the coreset posterior and its precision from the curvature there.

    A diagonal family takes the diagonal of the precision. No gradient passes, and draws of r are taken for
    draws of the coreset posterior, as the published constructions do.

    >>> Laplace().exact_draws, Laplace().passes_gradient
    (True, False)
    """

    tolerance: float = 1e-2
    max_steps: int = 50
    passes_gradient: ClassVar[bool] = False
    exact_draws: ClassVar[bool] = True

    def __check_init__(self):
        positive(self, "tolerance", "max_steps")

    def solve(self, problem, learned, psi, key):
        learned, psi = jax.lax.stop_gradient((learned, psi))
        family = problem.family
        # At noise zero a draw is the mean: what is left of the loss is the log-joint and a constant.
        at_mean = jnp.zeros((1, family.noise_dim(problem.dim)))

        def loss(candidate):
            return problem.loss(candidate, learned, at_mean)

        steps, norm, accepted = jnp.asarray(0), jnp.asarray(jnp.inf), jnp.asarray(False)
        for _ in range(ROUNDS):
            found = minimise(loss, Shift(family), psi, self.tolerance, self.max_steps)
            zero = flat_zero(Shift(family), found.psi)
            slope = jax.grad(local_loss(loss, Shift(family), found.psi))
            psi, proper = family.with_curvature(found.psi, jax.linearize(slope, zero)[1])
            steps, norm = steps + found.steps, found.gradient_norm
            accepted = (norm <= self.tolerance) & proper
        return jax.lax.stop_gradient((psi, InnerInfo(norm, steps, accepted)))


@register
class Mcmc(Inner):
    """Draws of the coreset posterior by elliptical slice sampling: `num_steps` transitions, one chain a draw.

    Chains start at draws of r as `solver` finds it. In the noise eta that makes theta = psi(eta), the coreset
    posterior is N(eta; 0, I) times the importance weight, which is the form that elliptical slices need:
    there is no step size, and the better r is, the less is left to do.

    >>> import coresetvi as cvi
    >>> cvi.PSVI(20, inner=Mcmc(num_steps=10)).inner.num_steps
    10
    """

    solver: Inner = Laplace()
    num_steps: int = 20
    passes_gradient: ClassVar[bool] = False
    exact_draws: ClassVar[bool] = True

    def __check_init__(self):
        positive(self, "num_steps")

    def begin(self, psi, fresh, index, key):
        return self.solver.begin(psi, fresh, index, key)

    def solve(self, problem, learned, psi, key):
        return self.solver.find(problem, learned, psi, key)

    def draws(self, problem, learned, psi, key, num_samples):
        import blackjax

        start_key, chain_key = jax.random.split(key)
        family, learned = problem.family, jax.lax.stop_gradient(learned)
        start = problem.noise(start_key, num_samples)
        width = start.shape[1]
        sampler: Any = blackjax.elliptical_slice(
            lambda noise: -problem.loss(psi, learned, noise[None]), mean=jnp.zeros(width), cov=jnp.ones(width)
        )

        def chain(noise, key):
            def transition(state, key):
                return sampler.step(key, state)[0], None

            keys = jax.random.split(key, self.num_steps)
            return jax.lax.scan(transition, sampler.init(noise), keys)[0].position

        ends = jax.vmap(chain)(start, jax.random.split(chain_key, num_samples))
        return jax.vmap(family.sample_and_log_prob, (None, 0))(psi, jax.lax.stop_gradient(ends))
