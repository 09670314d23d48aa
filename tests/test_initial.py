"""The scale with which r starts, against second derivatives and squared gradients written out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.families import MeanField, initial

pytestmark = pytest.mark.usefixtures("quick_compilation")
WEIGHTS = np.array([0.25, 4.0, 9.0])
THETA = jnp.asarray([0.5, -1.0, 2.0])


estimated = eqx.filter_jit(initial.estimated_curvature)
diagonal = eqx.filter_jit(initial.diagonal_curvature)


@pytest.mark.parametrize("key", range(3))
def test_estimated_curvature_is_the_weighted_sum_of_squared_gradients(key):
    """Exact with any signs where no two rows share a parameter: there are no cross terms to cancel."""
    columns, labels, noise = np.array([1.0, 2.0, -3.0]), np.array([1.0, -2.0, 0.5]), 0.7
    model = cvi.models.LinearRegression(3, noise=noise)
    data = model.check(cvi.Dataset(np.diag(columns), labels, WEIGHTS))
    found = estimated(model, THETA, data, jax.random.key(key))
    gradients = columns * (labels - columns * np.asarray(THETA, np.float64)) / noise**2
    np.testing.assert_allclose(found, WEIGHTS * gradients**2, rtol=1e-5)


def test_diagonal_curvature_is_that_of_the_weighted_log_likelihood():
    x = np.array([[1.0, -0.5, 2.0], [0.3, 1.0, -1.0], [2.0, 0.1, 0.4]])
    model = cvi.models.LogisticRegression(3)
    data = model.check(cvi.Dataset(x, [0, 1, 1], WEIGHTS))
    chances = 1.0 / (1.0 + np.exp(-x @ np.asarray(THETA, np.float64)))
    expected = (WEIGHTS * chances * (1.0 - chances)) @ x**2
    np.testing.assert_allclose(diagonal(model, THETA, data), expected, rtol=1e-5)


@pytest.mark.parametrize("prior_scale", [0.2, 5.0])
def test_r_starts_with_a_tenth_of_the_prior_or_less_where_the_data_say_so(prior_scale):
    columns = np.array([0.01, 1.0, 100.0])
    model = cvi.models.LinearRegression(3, noise=0.7, prior_scale=prior_scale)
    data = model.check(cvi.Dataset(np.diag(columns), np.zeros(3), WEIGHTS))
    psi = initial.start_family(MeanField(), model, data, jax.random.key(0))
    precision = WEIGHTS * columns**2 / 0.7**2 + prior_scale**-2.0
    expected = np.minimum(0.1 * prior_scale, precision**-0.5)
    np.testing.assert_allclose(np.exp(psi["log_scale"]), expected, rtol=1e-5)
