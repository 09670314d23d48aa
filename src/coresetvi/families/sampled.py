"""A posterior known by draws of it: what Markov chains inside a fit leave behind."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import quick_jit
from .._registry import register
from .base import Family, Psi
from .gaussian import MeanField

# The entries of psi that are the draws and their chains' own, and no parameters of the normal.
OWN = ("thetas", "log_step", "seen_mean", "seen_square", "wide_center", "wide_width")
# Part of the covariances between parameters that draws are not believed, and the draws per parameter below
# which they are not believed at all.
DOUBTED, FEWEST_PER_PARAMETER = 0.02, 4


@register
class Sampled(Family):
    """Draws, and the member of `shape` with their moments.

    `psi["thetas"]` holds the chains' positions (chains, d) while a fit is under way, and draws of them
    (chains, draws, d) when it is over; the rest of psi are the parameters of the normal `shape` around them,
    which says in which units to look and where chains may begin. Fits with `inner.Chains` or `inner.SMC` have
    this family.

    >>> import jax.numpy as jnp
    >>> family = Sampled(MeanField())
    >>> psi = {**family.init(jnp.zeros(2), jnp.ones(2)), "thetas": jnp.ones((4, 2))}
    >>> family.draws(psi).shape, family.moments(psi)[1].tolist()
    ((4, 1, 2), [[1.0, 0.0], [0.0, 1.0]])
    """

    shape: Family = MeanField()

    @property
    def any_covariance(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.shape.any_covariance

    def draws(self, psi: Psi) -> Float[Array, "c s d"] | None:
        """The draws, chain by chain; None before there are any."""
        thetas = psi.get("thetas")
        if thetas is None:
            return None
        return thetas[:, None] if thetas.ndim == 2 else thetas

    def normal(self, psi: Psi) -> Psi:
        """The parameters of `shape` alone."""
        return {name: leaf for name, leaf in psi.items() if name not in OWN}

    def with_normal(self, psi: Psi, normal: Psi) -> Psi:
        """The same draws with another normal around them."""
        return {**{name: leaf for name, leaf in psi.items() if name in OWN}, **normal}

    def init(self, mean, scale):
        return self.shape.init(mean, scale)

    def start(self, mean, scale):
        return self.shape.start(mean, scale)

    def sample_and_log_prob(self, psi, noise):
        return self.shape.sample_and_log_prob(self.normal(psi), noise)

    def log_prob(self, psi, theta):
        return self.shape.log_prob(self.normal(psi), theta)

    def move(self, psi, tangent):
        return self.with_normal(psi, self.shape.move(self.normal(psi), tangent))

    def with_curvature(self, psi, product):
        normal, proper = self.shape.with_curvature(self.normal(psi), product)
        return self.with_normal(psi, normal), proper

    def moments(self, psi):
        return self.shape.moments(self.normal(psi))

    def around(self, mean, factor):
        return self.shape.around(mean, factor)

    def factor(self, psi):
        return self.shape.factor(self.normal(psi))

    def noise_dim(self, dim):
        return self.shape.noise_dim(dim)

    def least_fixed_draws(self, dim):
        return self.shape.least_fixed_draws(dim)

    def zero(self, psi) -> Any:
        return self.shape.zero(self.normal(psi))


@quick_jit
def around_draws(family: Family, thetas: Float[Array, "s d"]) -> Psi:
    """The member of a family that has the moments of draws, as far as so many of them can tell."""
    number, dim = thetas.shape
    mean = jnp.mean(thetas, axis=0)
    away = thetas - mean
    covariance = away.T @ away / number
    share = 1.0 if number < FEWEST_PER_PARAMETER * dim else DOUBTED
    diagonal = jnp.diag(jnp.maximum(jnp.diagonal(covariance), 1e-30))
    return family.around(mean, jnp.linalg.cholesky((1.0 - share) * covariance + share * diagonal))
