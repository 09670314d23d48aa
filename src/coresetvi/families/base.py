"""Variational families r(theta; psi): how draws are made and scored.

A family is configuration; its parameters `psi` are a separate pytree. Solvers never add numbers to `psi`
directly. They move in *tangent* coordinates, where 0 means "stay" and 1 means "about one posterior standard
deviation": `psi_new = family.move(psi, tangent)`. In those coordinates the inner problem has a Hessian close
to the identity whatever the units of the data, which is what makes columns in scales from 1e-6 to 1e6 work
and lets one learning rate serve every model.
"""

import abc
import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError

Psi = dict[str, Array]  # arrays by name, known only to their family

LOG_TWO_PI = math.log(2.0 * math.pi)
# Curvature, relative to the largest, below which float32 cannot tell a direction from a flat one.
LEAST_CURVATURE = 1e-6
# Beyond this many parameters an exact diagonal of a Hessian, one product per parameter, is no longer cheap.
EXACT_CURVATURE_DIM = 512


def draw_noise(key: PRNGKeyArray, num_samples: int, dim: int) -> Float[Array, "s d"]:
    """Standard normal noise in antithetic pairs, with exact first and second moments where possible.

    Every odd moment of an even number of draws is exactly zero; when there are at least two pairs per
    dimension, the sample covariance is made exactly the identity as well. A Gaussian target then has no
    Monte-Carlo error at all, and a nearly Gaussian one only that of its fourth moments.

    >>> import jax
    >>> float(abs(draw_noise(jax.random.key(0), 64, 3).mean()).max()) < 1e-6
    True
    """
    pairs = (num_samples + 1) // 2
    half = jax.random.normal(key, (pairs, dim))
    if pairs >= 2 * dim:
        # Fewer pairs than this would whiten noise into a few fixed directions, no longer random.
        factor = jnp.linalg.cholesky(half.T @ half / pairs)
        half = jax.scipy.linalg.solve_triangular(factor, half.T, lower=True).T
    return jnp.concatenate([half, -half])[:num_samples]


def diagonal_scale(mean: Float[Array, " d"], product: Callable) -> tuple[Float[Array, " d"], Array]:
    """1 / sqrt(H_ii) from products with H, one at a time, and whether every H_ii is positive."""

    def entry(index):
        return product(jax.nn.one_hot(index, mean.shape[0], dtype=mean.dtype))[index]

    diagonal = jax.lax.map(entry, jnp.arange(mean.shape[0]))
    least = LEAST_CURVATURE * jnp.max(diagonal)
    return 1.0 / jnp.sqrt(jnp.maximum(diagonal, least)), jnp.all(diagonal > least)


class Family(eqx.Module):
    """What every family offers. `noise` is standard normal of size `noise_dim(dim)`.

    >>> from coresetvi.families import MeanField
    >>> family = MeanField()
    >>> psi = family.init(mean=jnp.asarray([1.0, 2.0]), scale=jnp.asarray([0.1, 0.2]))
    >>> thetas, log_probabilities = family.draw(psi, jax.random.key(0), num_samples=6, dim=2)
    >>> thetas.shape, log_probabilities.shape
    ((6, 2), (6,))
    """

    # Whether draws spread in every direction; a point has no density that importance weights could use.
    has_density: ClassVar[bool] = True
    # Whether a member can have any covariance, so that near its mode no smooth posterior is out of reach.
    any_covariance: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, mean: Float[Array, " d"], scale: Float[Array, " d"]) -> Psi:
        """Parameters of the member with this mean and these independent standard deviations."""

    @abc.abstractmethod
    def sample_and_log_prob(
        self, psi: Psi, noise: Float[Array, " k"]
    ) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """theta = psi applied to noise, and log r(theta; psi), in one pass."""

    @abc.abstractmethod
    def log_prob(self, psi: Psi, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """log r(theta; psi) at any theta."""

    @abc.abstractmethod
    def move(self, psi: Psi, tangent: Psi) -> Psi:
        """The member reached from `psi` along `tangent` (a pytree shaped like `zero(psi)`)."""

    @abc.abstractmethod
    def with_curvature(
        self, psi: Psi, product: Callable[[Float[Array, " d"]], Float[Array, " d"]]
    ) -> tuple[Psi, Array]:
        """The member with the mean of `psi` and a given precision, and whether that precision is positive.

        `product` multiplies a vector with the precision in the tangent units of `psi`'s mean.
        """

    @abc.abstractmethod
    def moments(self, psi: Psi) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance of theta."""

    def around(self, mean: Float[Array, " d"], factor: Float[Array, "d d"]) -> Psi:
        """The member nearest to a normal with this mean and the covariance factor @ factor.T."""
        return self.init(mean, jnp.linalg.norm(factor, axis=1))

    def factor(self, psi: Psi) -> Float[Array, "d d"]:
        """A lower triangular factor of the covariance of theta."""
        return jnp.linalg.cholesky(self.moments(psi)[1])

    def start(self, mean: Float[Array, " d"], scale: Float[Array, " d"]) -> Psi:
        """The member that a fit begins with, where `scale` are the standard deviations to be expected."""
        return self.init(mean, scale)

    def for_many_steps(self) -> "Family":
        """The same family for a fit of its own, with many more steps than an inner problem has."""
        return self

    def noise_dim(self, dim: int) -> int:
        """How many standard normal numbers make one draw of a `dim`-dimensional theta."""
        return dim

    def least_fixed_draws(self, dim: int) -> int:
        """Fewest draws with which a problem in *fixed* noise is still bounded below."""
        return 2

    def zero(self, psi: Psi) -> Psi:
        """The tangent that stays where it is."""
        return jax.tree.map(jnp.zeros_like, psi)

    def draw(
        self, psi: Psi, key: PRNGKeyArray, num_samples: int, dim: int
    ) -> tuple[Float[Array, "s d"], Float[Array, " s"]]:
        """`num_samples` draws and their log-probabilities."""
        noise = draw_noise(key, num_samples, self.noise_dim(dim))
        return jax.vmap(self.sample_and_log_prob, (None, 0))(psi, noise)


def need_density(family: Family, what: str) -> None:
    """Refuse what cannot be said about a posterior that is a point."""
    if not family.has_density:
        raise InputError(
            f"{what} needs an r that spreads over all parameters, and {type(family).__name__} does not; "
            "fit r anew with retrain(fit, key=0, model=fit.model)."
        )
