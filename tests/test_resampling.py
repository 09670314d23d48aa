"""Draws without weights in place of weighted ones: what they say about their own density."""

import jax
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.families.draws import Draws

pytestmark = pytest.mark.usefixtures("quick_compilation")
FLAT = np.arange(12.0, dtype=np.float32).reshape(2, 3, 2)
LOG_DENSITY = np.array([[0.0, -3.0, 5.0], [2.0, -1.0, 7.0]])
WEIGHTS = np.array([[0.4, 0.05, 0.2], [0.1, 0.05, 0.2]])


def weighted(log_weights) -> Draws:
    model, data = cvi.models.LogisticRegression(2), cvi.Dataset(np.eye(2), [0, 1])
    return Draws(FLAT, model, data, "importance", LOG_DENSITY, {"some": LOG_DENSITY}, {}, log_weights)


@pytest.mark.parametrize("key", range(3))
def test_a_resampled_draw_has_the_density_that_its_weight_corrects_to(key):
    """Draws of density q with weights p / q are draws of p: log p = log q + log w, draw by draw."""
    found = weighted(np.log(WEIGHTS)).resample(jax.random.key(key))
    assert found.log_weights is None and found.flat.shape == FLAT.shape
    density = dict(zip(FLAT[..., 0].flat, (LOG_DENSITY + np.log(WEIGHTS)).flat, strict=True))
    expected = [density[draw] for draw in found.flat[..., 0].flat]
    np.testing.assert_allclose(found.log_density.ravel(), expected, rtol=1e-12)


@pytest.mark.parametrize("key", range(3))
def test_a_draw_is_repeated_as_often_as_its_weight_says_up_to_one(key):
    found = weighted(np.log(WEIGHTS)).resample(jax.random.key(key))
    counts = np.array([np.sum(found.flat[..., 0] == draw[0]) for draw in FLAT.reshape(-1, 2)])
    expected = WEIGHTS.ravel() * WEIGHTS.size
    assert counts.sum() == WEIGHTS.size
    assert np.all((counts >= np.floor(expected)) & (counts <= np.ceil(expected)))


def test_draws_that_weigh_alike_stay_as_they_are():
    draws = weighted(None)
    assert draws.resample() is draws
