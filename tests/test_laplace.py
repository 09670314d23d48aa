"""Laplace's approximation from starts whose scale is far off, against Newton's method in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry

import coresetvi as cvi
from coresetvi.families import FullRank, MeanField
from coresetvi.inner.mode import fit_laplace

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = cvi.models.LogisticRegression(2)
DATA = MODEL.check(registry.BINARY)
MEAN, COVARIANCE = registry.logistic_laplace(DATA.x, DATA.y, DATA.weights, MODEL.prior_scale)


@pytest.mark.parametrize("scale", [1e-5, 1.0, 30.0])
@pytest.mark.parametrize("family", [FullRank(), MeanField()], ids=["full rank", "mean field"])
def test_the_mode_is_found_whatever_the_scale_at_the_start(family, scale):
    """In units that are far too small every slope looks flat: a search in them alone ends where it began."""
    psi = family.init(jnp.asarray([-2.0, 3.0]), jnp.full(2, scale))
    psi, info = fit_laplace(family, MODEL, DATA, psi, jax.random.key(0))
    assert info.accepted
    mean, covariance = family.moments(psi)
    precision = np.linalg.inv(COVARIANCE)
    if isinstance(family, MeanField):
        precision = np.diag(np.diag(precision))
    gap = np.asarray(mean, np.float64) - MEAN
    # The search ends where the slope is below a hundredth of a nat per standard deviation.
    assert np.sqrt(gap @ precision @ gap) < 0.01
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=0.01, atol=1e-3 * COVARIANCE.max())
