"""The normal that a posterior looks like from its slopes, against the normal that it is."""

import numpy as np
import pytest
from exact import gaussian_kl, rows

import coresetvi as cvi
from coresetvi.families.draws import Draws
from coresetvi.posterior.slopes import FEWEST, compare_slopes, normal_view

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_a_precision_is_the_symmetric_part_of_the_slope():
    """Slopes that are no gradients of a normal, as a regression finds them from few draws."""
    points = np.random.default_rng(0).standard_normal((20, 2))
    slope, offset = np.array([[3.0, 1.0], [0.0, 2.0]]), np.array([1.0, -2.0])
    mean, precision = normal_view(points, offset - points @ slope)
    expected = np.array([[3.0, 0.5], [0.5, 2.0]])
    np.testing.assert_allclose(precision, expected, rtol=1e-10)
    np.testing.assert_allclose(mean, np.linalg.solve(expected, offset), rtol=1e-10)


def test_slopes_are_taken_at_draws_of_all_chains():
    """A first chain that never moved says nothing; the others know both posteriors of a linear model."""
    model, data = rows("linear")
    coreset = cvi.Dataset(data.x[::2], data.y[::2], 2.0 * data.weights[::2])
    mean, covariance = model.posterior(coreset)
    generator = np.random.default_rng(1)
    flat = generator.multivariate_normal(mean, covariance, (3, FEWEST)).astype(np.float32)
    flat[0] = mean
    nothing = np.zeros(flat.shape[:2])
    found = compare_slopes(Draws(flat, model, coreset, "nuts", nothing, {}, {}), coreset, data)
    expected = gaussian_kl(mean, covariance, *model.posterior(data))
    assert found["gradient_kl"] == pytest.approx(expected, rel=1e-3)
