"""One step of sequential Monte Carlo: how far it goes, whom it keeps, and what it makes of the step size."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.families import MeanField
from coresetvi.inner.tempering import largest_rise
from coresetvi.models.log_joint import LogJoint
from coresetvi.posterior.smc import next_temperature

pytestmark = pytest.mark.usefixtures("quick_compilation")
# Moves this short leave particles where they are, and all are accepted.
STILL = 1e-12


@pytest.mark.parametrize(("limit", "expected"), [(10.0, math.log(3.0 + math.sqrt(12.0))), (1.5, 1.5)])
def test_the_temperature_rises_until_half_of_the_particles_are_effective(limit, expected):
    """A quarter have ratio 1, the others 0: with u = exp(rise), 1/2 is reached at u^2 - 6u - 3 = 0."""
    ratios = jnp.asarray([1.0, 0.0, 0.0, 0.0] * 5)
    assert float(jax.jit(largest_rise)(ratios, jnp.asarray(limit))) == pytest.approx(expected, rel=1e-5)


def log_likelihood(theta, x, y):
    """Rises by 6 per unit of theta, and is no number above 2."""
    return jnp.where(theta > 2.0, jnp.nan, 6.0 * theta[0]) * jnp.ones(x.shape[0])


STEEP = cvi.models.FromCallables(
    log_prior=lambda theta: -0.5 * jnp.sum(theta**2), log_likelihood=log_likelihood, init=jnp.zeros(1)
)


@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_particles_are_kept_by_the_weights_of_this_rise_alone(temperature):
    family = MeanField()
    psi = family.init(jnp.zeros(1), jnp.ones(1))
    joint = LogJoint(STEEP, cvi.Dataset([[1.0]], [0.0]), jnp.zeros(1))
    particles = jnp.asarray([[-1.0], [-0.5], [0.0], [0.25], [0.5], [0.75], [3.0], [4.0]])
    moved, new, step_size, acceptance = next_temperature(
        joint, family, psi, particles, jnp.asarray(temperature), jnp.asarray(STILL), jax.random.key(0)
    )
    possible = np.asarray(particles[:6, 0], np.float64)
    weights = np.exp(6.0 * (float(new) - temperature) * possible)
    weights /= weights.sum()
    # Two of eight have no weight: the other six can be 4 / 8 effective.
    assert 1.0 / np.sum(weights**2) == pytest.approx(4.0, rel=1e-3)
    assert temperature < float(new) < 1.0
    counts = np.array([np.sum(np.abs(np.asarray(moved)[:, 0] - place) < 1e-6) for place in possible])
    assert counts.sum() == 8
    assert np.all((counts >= np.floor(8 * weights)) & (counts <= np.ceil(8 * weights)))
    # More acceptance than wanted makes longer steps.
    assert float(acceptance) == pytest.approx(1.0)
    assert float(step_size) / STILL == pytest.approx(math.exp(2.0 * (1.0 - 0.8)), rel=1e-5)
