"""The control variate: unbiased, and far quieter than a plain minibatch near its anchor."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.models.sums import expand, log_likelihood_rises
from coresetvi.outer.minibatch import controlled_rises, data_term, empty_surrogate

pytestmark = pytest.mark.usefixtures("quick_compilation")
GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((8, 2)).astype(np.float32)
DATA = cvi.Dataset(X, (X[:, 0] > 0.2).astype(int), np.linspace(0.5, 2.0, 8))
MODEL = cvi.models.LogisticRegression(2)
THETAS = jnp.asarray(GENERATOR.standard_normal((5, 2)), jnp.float32)
REFERENCE = jnp.mean(THETAS, axis=0)


# Compiled once for all batches of one size: operations one by one would each be a program of their own.
expansion = jax.jit(lambda anchor, data: expand(MODEL, anchor, data))
rises = jax.jit(lambda thetas, reference, data: log_likelihood_rises(MODEL, thetas, reference, data))
controlled_by = jax.jit(
    lambda thetas, reference, batch, whole: controlled_rises(
        MODEL, thetas, reference, batch, len(DATA), whole
    )
)


@pytest.mark.parametrize("anchor", [(0.0, 0.0), (0.7, -1.3)])
def test_the_mean_over_all_minibatches_is_the_whole(anchor):
    # Four strata of two rows: sixteen minibatches, all equally likely.
    whole = expansion(jnp.asarray(anchor), DATA)
    batches = [
        DATA.take([2 * s + pick for s, pick in enumerate(picks)])
        for picks in itertools.product((0, 1), repeat=4)
    ]
    estimates = [controlled_by(THETAS, REFERENCE, batch, whole) for batch in batches]
    exact = rises(THETAS, REFERENCE, DATA)
    for estimate, expected in zip(zip(*estimates, strict=True), exact, strict=True):
        np.testing.assert_allclose(np.mean(estimate, axis=0), expected, rtol=2e-5, atol=2e-5)


def test_near_the_anchor_a_minibatch_hardly_matters():
    anchor = jnp.asarray([0.3, -0.2])
    near = anchor + 0.01 * THETAS
    batches = [
        DATA.take([2 * s + pick for s, pick in enumerate(picks)])
        for picks in itertools.product((0, 1), repeat=4)
    ]
    whole = expansion(anchor, DATA)
    reference = jnp.mean(near, axis=0)
    controlled = [controlled_by(near, reference, batch, whole)[1] for batch in batches]
    plain = [2.0 * np.asarray(rises(near, reference, batch)[1]) for batch in batches]
    # Third order in a distance of 0.01 against first order.
    assert np.std(controlled, axis=0).max() < 1e-3 * np.std(plain, axis=0).max()


def test_the_expansion_is_exact_for_a_quadratic_log_likelihood():
    model = cvi.models.LinearRegression(2)
    data = cvi.Dataset(X, X @ [1.0, -2.0])
    quadratic = expand(model, jnp.asarray([0.4, 0.1]), data)
    exact = log_likelihood_rises(model, THETAS, quadratic.anchor, data)
    np.testing.assert_allclose(quadratic.rise(THETAS), exact[1], rtol=1e-5)
    np.testing.assert_allclose(quadratic.value, exact[0], rtol=1e-5)


def test_the_first_step_fills_the_surrogate_and_later_ones_keep_it():
    batch = DATA.batch(jax.random.key(0), 4)
    empty = empty_surrogate(MODEL, DATA)
    first = data_term(MODEL, DATA, batch, empty, jnp.asarray(0))(THETAS, REFERENCE)
    np.testing.assert_allclose(first.memory.anchor, REFERENCE)
    later = data_term(MODEL, DATA, batch, first.memory, jnp.asarray(31))(THETAS + 1.0, REFERENCE + 1.0)
    np.testing.assert_array_equal(later.memory.anchor, first.memory.anchor)
