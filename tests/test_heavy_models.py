"""What one row costs is counted by tracing; a model that costs much goes draw by draw to the same sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.models import sums

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = cvi.models.LogisticRegression(3)
GENERATOR = np.random.default_rng(1)
X = GENERATOR.standard_normal((7, 3))
Y = np.array([0, 1, 1, 0, 1, 0, 1])
DATA = MODEL.check(cvi.Dataset(X, Y, np.arange(1.0, 8.0)))
THETAS = jnp.asarray(GENERATOR.standard_normal((4, 3)), jnp.float32)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda theta, x: jnp.tanh(x), 3),
        (lambda theta, x: jnp.tanh(jnp.sin(x)), 6),
        (jax.jit(lambda theta, x: jnp.tanh(jnp.sin(x))), 6),
        (lambda theta, x: x @ theta, 1),
        (lambda theta, x: jnp.sum(theta), 1),
    ],
    ids=["one", "two", "two inside another", "product", "none at all"],
)
def test_numbers_per_row_are_those_that_its_operations_make(function, expected):
    assert sums.numbers_made(function, MODEL, DATA.x) == expected


@pytest.mark.parametrize(("rows_at_once", "draws"), [(1, 4), (3, 4), (100, 4), (100, 1)])
def test_a_heavy_model_has_the_same_sums_and_slopes(monkeypatch, rows_at_once, draws):
    monkeypatch.setattr(sums, "HEAVY", 1)
    monkeypatch.setattr(sums, "MOST_NUMBERS", rows_at_once * sums.numbers_per_row(MODEL, DATA))
    assert sums.rows_at_once(MODEL, DATA, draws, 10**6) == rows_at_once
    thetas = THETAS[:draws]
    found, back = jax.vjp(jax.jit(lambda thetas: sums.log_likelihood_sums(MODEL, thetas, DATA)), thetas)
    slopes = back(jnp.ones_like(found))[0]
    logits = np.asarray(thetas, np.float64) @ X.T
    weights = np.arange(1.0, 8.0)
    np.testing.assert_allclose(found, (Y * logits - np.logaddexp(0.0, logits)) @ weights, rtol=1e-5)
    chances = 1.0 / (1.0 + np.exp(-logits))
    np.testing.assert_allclose(slopes, (weights * (Y - chances)) @ X, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [2, 3, 50])
def test_an_expansion_counts_every_row_once(monkeypatch, block):
    monkeypatch.setattr(sums, "BLOCK_NUMBERS", 3 * block)
    anchor = THETAS[0]
    found = jax.jit(lambda anchor: sums.expand(MODEL, anchor, DATA))(anchor)
    logits, weights = X @ np.asarray(anchor, np.float64), np.arange(1.0, 8.0)
    chances = 1.0 / (1.0 + np.exp(-logits))
    np.testing.assert_allclose(found.value, weights @ (Y * logits - np.logaddexp(0.0, logits)), rtol=1e-5)
    np.testing.assert_allclose(found.gradient, (weights * (Y - chances)) @ X, rtol=1e-4)
    np.testing.assert_allclose(
        found.hessian, -(X.T * (weights * chances * (1 - chances))) @ X, rtol=1e-4, atol=1e-5
    )
