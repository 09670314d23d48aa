"""Normal families: independent, any covariance, low rank, and the limit of a point."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from .._checks import positive
from .._registry import register
from ..errors import InputError
from .base import LEAST_CURVATURE, LOG_TWO_PI, Family, diagonal_scale


@register
class MeanField(Family):
    """Independent normals: theta = mean + exp(log_scale) * noise.

    >>> family = MeanField()
    >>> family.moments(family.init(jnp.zeros(2), jnp.ones(2)))[1]
    Array([[1., 0.],
           [0., 1.]], dtype=float32)

    `spread_pace` is how fast scales move compared with means. Means of a network lie many posterior standard
    deviations away from where they start and want large steps; scales that took those would run away.
    `start_width` is the fraction of the expected deviations that r starts with; steps of the means stay as
    long as if it were 1. Noise of one deviation in each of d parameters costs d / 2 nats, which in a large
    network drowns what a few steps can learn.
    """

    spread_pace: float = 1.0
    start_width: float = 1.0

    def __check_init__(self):
        positive(self, "spread_pace", "start_width")

    def start(self, mean, scale):
        return self.init(mean, self.start_width * scale)

    def for_many_steps(self):
        # Steps of the means grow with the scales: a narrow r that widens over thousands of steps would end up
        # with steps 1 / start_width times too long.
        return dataclasses.replace(self, spread_pace=self.spread_pace * self.start_width)

    def init(self, mean, scale):
        return {"mean": jnp.asarray(mean), "log_scale": jnp.log(scale)}

    def sample_and_log_prob(self, psi, noise):
        theta = psi["mean"] + jnp.exp(psi["log_scale"]) * noise
        return theta, -0.5 * jnp.sum(noise**2 + LOG_TWO_PI) - jnp.sum(psi["log_scale"])

    def log_prob(self, psi, theta):
        noise = (theta - psi["mean"]) * jnp.exp(-psi["log_scale"])
        return -0.5 * jnp.sum(noise**2 + LOG_TWO_PI) - jnp.sum(psi["log_scale"])

    def move(self, psi, tangent):
        return {
            "mean": psi["mean"] + jnp.exp(psi["log_scale"]) / self.start_width * tangent["mean"],
            "log_scale": psi["log_scale"] + self.spread_pace * tangent["log_scale"],
        }

    def with_curvature(self, psi, product):
        scale, proper = diagonal_scale(psi["mean"], product)
        log_scale = psi["log_scale"] + jnp.log(scale / self.start_width)
        return {"mean": psi["mean"], "log_scale": log_scale}, proper

    def moments(self, psi):
        return psi["mean"], jnp.diag(jnp.exp(2.0 * psi["log_scale"]))


@register
class Point(Family):
    """All mass in one point, theta = mean: a single network, as frequentist training has it.

    Densities are with respect to that point mass itself, so log r is 0: the inner problem becomes the mode of
    the coreset posterior, and all draws weigh alike. `unit` is not learned; it is the starting scale, in
    which steps are measured as they are for the other families.

    >>> family = Point()
    >>> psi = family.init(jnp.ones(2), jnp.full(2, 0.1))
    >>> family.move(psi, {"mean": jnp.asarray([1.0, -2.0])})["mean"]
    Array([1.1, 0.8], dtype=float32)
    """

    has_density: ClassVar[bool] = False

    def noise_dim(self, dim):
        return 0

    def init(self, mean, scale):
        return {"mean": jnp.asarray(mean), "unit": jnp.asarray(scale)}

    def sample_and_log_prob(self, psi, noise):
        return psi["mean"], self.log_prob(psi, psi["mean"])

    def log_prob(self, psi, theta):
        return jnp.zeros((), dtype=psi["mean"].dtype)

    def zero(self, psi):
        return {"mean": jnp.zeros_like(psi["mean"])}

    def move(self, psi, tangent):
        return {"mean": psi["mean"] + psi["unit"] * tangent["mean"], "unit": psi["unit"]}

    def with_curvature(self, psi, product):
        scale, proper = diagonal_scale(psi["mean"], product)
        return {"mean": psi["mean"], "unit": psi["unit"] * scale}, proper

    def moments(self, psi):
        dim = psi["mean"].shape[0]
        return psi["mean"], jnp.zeros((dim, dim), dtype=psi["mean"].dtype)


@register
class FullRank(Family):
    """A normal with any covariance: theta = mean + factor @ noise, factor lower triangular.

    `move` multiplies the factor from the right by a unit-scale triangular matrix, so steps are measured in
    units of the current covariance and the diagonal stays positive by construction.

    >>> family = FullRank()
    >>> psi = family.init(jnp.zeros(2), jnp.asarray([1.0, 2.0]))
    >>> mean, covariance = family.moments(psi)
    >>> covariance.tolist()
    [[1.0, 0.0], [0.0, 4.0]]
    """

    any_covariance: ClassVar[bool] = True

    def least_fixed_draws(self, dim):
        # With fewer antithetic pairs than dimensions some directions are never sampled, and the entropy of a
        # covariance that is free in them grows without bound. Twice as many keep it well away from that.
        return 4 * dim

    def init(self, mean, scale):
        return {"mean": jnp.asarray(mean), "factor": jnp.diag(scale)}

    def around(self, mean, factor):
        return {"mean": jnp.asarray(mean), "factor": jnp.asarray(factor)}

    def factor(self, psi):
        return psi["factor"]

    def sample_and_log_prob(self, psi, noise):
        theta = psi["mean"] + psi["factor"] @ noise
        return theta, -0.5 * jnp.sum(noise**2 + LOG_TWO_PI) - self._log_volume(psi)

    def log_prob(self, psi, theta):
        noise = jax.scipy.linalg.solve_triangular(psi["factor"], theta - psi["mean"], lower=True)
        return -0.5 * jnp.sum(noise**2 + LOG_TWO_PI) - self._log_volume(psi)

    def move(self, psi, tangent):
        step = jnp.tril(tangent["factor"], -1) + jnp.diag(jnp.exp(jnp.diagonal(tangent["factor"])))
        return {
            "mean": psi["mean"] + psi["factor"] @ tangent["mean"],
            "factor": psi["factor"] @ step,
        }

    def with_curvature(self, psi, product):
        precision = jax.lax.map(product, jnp.eye(psi["mean"].shape[0], dtype=psi["mean"].dtype))
        values, vectors = jnp.linalg.eigh(0.5 * (precision + precision.T))
        least = LEAST_CURVATURE * values[-1]
        covariance = (vectors / jnp.maximum(values, least)) @ vectors.T
        return {**psi, "factor": psi["factor"] @ jnp.linalg.cholesky(covariance)}, values[0] > least

    def moments(self, psi):
        return psi["mean"], psi["factor"] @ psi["factor"].T

    @staticmethod
    def _log_volume(psi):
        return jnp.sum(jnp.log(jnp.diagonal(psi["factor"])))


@register
class LowRank(Family):
    """A normal with covariance diag(exp(2 log_scale)) + spread @ spread.T, for models with many parameters.

    theta = mean + exp(log_scale) * noise[:d] + spread @ noise[d:], where `spread` has `rank` columns.

    >>> psi = LowRank(rank=3).init(jnp.zeros(100), jnp.ones(100))
    >>> {name: leaf.shape for name, leaf in psi.items()}
    {'mean': (100,), 'log_scale': (100,), 'spread': (100, 3)}
    """

    rank: int = 8

    def __check_init__(self):
        if self.rank < 1:
            raise InputError(f"LowRank needs a rank of at least 1, not {self.rank}.")

    def noise_dim(self, dim):
        return dim + self.rank

    def init(self, mean, scale):
        # A spread of exactly zero is a saddle (its gradient vanishes by symmetry), so start a little off it,
        # with columns that differ from one another.
        rows = jnp.arange(mean.shape[0])[:, None]
        pattern = jnp.cos((rows + 1.0) * (jnp.arange(self.rank) + 1.0))
        return {
            "mean": jnp.asarray(mean),
            "log_scale": jnp.log(scale),
            "spread": 0.1 * scale[:, None] * pattern,
        }

    def sample_and_log_prob(self, psi, noise):
        dim = psi["mean"].shape[0]
        theta = psi["mean"] + jnp.exp(psi["log_scale"]) * noise[:dim] + psi["spread"] @ noise[dim:]
        return theta, self.log_prob(psi, theta)

    def log_prob(self, psi, theta):
        # Woodbury in units of the diagonal: covariance = S (I + W W^T) S with W = spread / scale.
        whitened = (theta - psi["mean"]) * jnp.exp(-psi["log_scale"])
        ratio = psi["spread"] * jnp.exp(-psi["log_scale"])[:, None]
        factor = jnp.linalg.cholesky(jnp.eye(self.rank) + ratio.T @ ratio)
        inside = jax.scipy.linalg.solve_triangular(factor, ratio.T @ whitened, lower=True)
        quadratic = jnp.sum(whitened**2) - jnp.sum(inside**2)
        log_volume = jnp.sum(psi["log_scale"]) + jnp.sum(jnp.log(jnp.diagonal(factor)))
        return -0.5 * (quadratic + theta.shape[0] * LOG_TWO_PI) - log_volume

    def move(self, psi, tangent):
        scale = jnp.exp(psi["log_scale"])
        return {
            "mean": psi["mean"] + scale * tangent["mean"],
            "log_scale": psi["log_scale"] + tangent["log_scale"],
            "spread": psi["spread"] + scale[:, None] * tangent["spread"],
        }

    def with_curvature(self, psi, product):
        # The diagonal alone: `spread` is what a search adds to it.
        scale, proper = diagonal_scale(psi["mean"], product)
        psi = {**psi, "log_scale": psi["log_scale"] + jnp.log(scale), "spread": 0.0 * psi["spread"]}
        return psi, proper

    def moments(self, psi):
        covariance = jnp.diag(jnp.exp(2.0 * psi["log_scale"])) + psi["spread"] @ psi["spread"].T
        return psi["mean"], covariance
