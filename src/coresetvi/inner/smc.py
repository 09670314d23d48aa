"""Tempered particles as draws of the coreset posterior: for posteriors whose modes are apart.

Chains follow the coreset posterior, but hardly ever cross from one mode to another, so what part of them is
in which mode is where they began. Particles that come from far away at every solve find all modes, each in
proportion to its mass. That costs a few dozen temperatures where chains need a few transitions.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._checks import positive
from .._compiler import quick_jit
from .._registry import register
from ..errors import InputError
from ..families.base import Family, Psi
from ..families.sampled import around_draws
from ..models.base import Model, weighted_log_likelihood
from .base import Inner, InnerInfo
from .tempering import LEAPS, MOVES, temper, wide_normal

# Of a fit.
TYPICAL_TEMPERATURES, TYPICAL_SOLVES = 25, 30


@register
class SMC(Inner):
    """`num_particles` tempered particles, led anew to the coreset posterior at every step.

    They start from a normal as wide as the prior and pass through tempered densities, so that each of several
    separate modes has the share of them that it has of the posterior. The history has `acceptance` of the
    last moves, `temperatures`, how many they took, and the mean and deviation of the particles' log-density,
    `height` and `width`.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> particles = cvi.inner.SMC(num_particles=64)
    >>> fit = cvi.fit(cvi.BBPSVI(8, inner=particles), cvi.models.LogisticRegression(2), train, key=0)
    >>> fit.psi["thetas"].shape[1:], bool(fit.history["temperatures"][-1] > 1)
    ((64, 2), True)
    """

    num_particles: int = 256
    passes_gradient: ClassVar[bool] = False
    exact_draws: ClassVar[bool] = True
    draws_anew: ClassVar[bool] = True
    records: ClassVar[dict[str, type]] = {
        "acceptance": float,
        "temperatures": float,
        "height": float,
        "width": float,
    }

    def __check_init__(self):
        positive(self, "num_particles")
        if self.num_particles < 16:
            raise InputError(f"num_particles must be at least 16 to be tempered, not {self.num_particles}.")

    @property
    def num_kept(self):
        return self.num_particles

    @property
    def evaluations(self):
        return self.num_particles * MOVES * LEAPS * TYPICAL_TEMPERATURES * TYPICAL_SOLVES

    def prepare(self, family, psi, model, key):
        """The wide normal that all solves begin with, and particles of it."""
        normal_key, noise_key = jax.random.split(key)
        center, width = wide_start(model, family, psi, normal_key)
        noise = jax.random.normal(noise_key, (self.num_particles, center.shape[0]), center.dtype)
        return {**psi, "thetas": center + width * noise, "wide_center": center, "wide_width": width}

    def draws(self, problem, learned, psi, key, num_samples):
        thetas = psi["thetas"]
        return thetas, jax.vmap(problem.family.log_prob, (None, 0))(psi, thetas)

    def solve(self, problem, learned, psi, key):
        learned, psi = jax.lax.stop_gradient((learned, psi))
        log_joint = problem.joint(learned, psi["mean"])
        found = temper(log_joint, psi["wide_center"], psi["wide_width"], self.num_particles, key)
        arrived = (found.temperature >= 1.0) & jnp.all(jnp.isfinite(found.thetas))
        # Particles that are still on their way are no draws: the last ones are better than that.
        thetas = jnp.where(arrived, found.thetas, psi["thetas"])
        normal = around_draws(problem.family, thetas)
        height = jax.vmap(log_joint)(thetas)
        value = weighted_log_likelihood(log_joint.model, log_joint.reference, log_joint.data)
        info = InnerInfo(
            gradient_norm=jnp.zeros_like(found.temperature),
            steps=found.num_temperatures,
            accepted=arrived,
            more={
                "acceptance": found.acceptance,
                "temperatures": found.num_temperatures.astype(thetas.dtype),
                "height": value + jnp.mean(height),
                "width": jnp.std(height),
            },
        )
        own = {name: psi[name] for name in ("wide_center", "wide_width")}
        return jax.lax.stop_gradient(({**own, **normal, "thetas": thetas}, info))


@quick_jit
def wide_start(model: Model, family: Family, psi: Psi, key: PRNGKeyArray) -> tuple[Array, Array]:
    """`wide_normal`, compiled."""
    return wide_normal(model, family, psi, key)
