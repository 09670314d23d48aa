"""What a minibatch says about all the data, against sums over rows in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.outer.minibatch import EARLY_STEPS, SURROGATE_STEPS, data_term, empty_surrogate

pytestmark = pytest.mark.usefixtures("quick_compilation")
GENERATOR = np.random.default_rng(3)
X = GENERATOR.standard_normal((9, 2))
Y = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
WEIGHTS = np.linspace(0.5, 2.5, 9)
DATA = cvi.Dataset(X, Y, WEIGHTS)
MODEL = cvi.models.LogisticRegression(2)
THETAS = jnp.asarray(GENERATOR.standard_normal((4, 2)), jnp.float32)
REFERENCE = jnp.asarray([0.3, -0.4])


def log_likelihood(theta, rows) -> float:
    """sum_n weight_n log p(y_n | x_n, theta) over these rows."""
    logits = X[rows] @ np.asarray(theta, np.float64)
    return float(WEIGHTS[rows] @ (Y[rows] * logits - np.logaddexp(0.0, logits)))


@pytest.mark.parametrize("rows", [np.arange(9), np.array([1, 4, 8])], ids=["all rows", "a third"])
def test_a_plain_minibatch_counts_every_row_as_often_as_rows_stand_behind_it(rows):
    term = jax.jit(data_term(MODEL, DATA, DATA.take(rows), None, jnp.asarray(0)))(THETAS, REFERENCE)
    factor, value = len(DATA) / len(rows), log_likelihood(REFERENCE, rows)
    np.testing.assert_allclose(term.value, factor * value, rtol=1e-5)
    rises = [factor * (log_likelihood(theta, rows) - value) for theta in THETAS]
    np.testing.assert_allclose(term.rises, rises, rtol=1e-5)


@jax.jit
def controlled(before, index):
    """The data term of a step with a minibatch of three rows."""
    return data_term(MODEL, DATA, DATA.take(np.arange(3)), before, index)(THETAS, REFERENCE)


@pytest.mark.parametrize(
    ("index", "due"),
    [
        (EARLY_STEPS - 1, True),
        (EARLY_STEPS, True),
        (EARLY_STEPS + 1, False),
        (EARLY_STEPS + SURROGATE_STEPS - 1, False),
        (EARLY_STEPS + SURROGATE_STEPS, True),
        (20 * SURROGATE_STEPS, True),
    ],
)
def test_the_expansion_is_made_anew_at_every_early_step_and_then_every_few(index, due):
    before = empty_surrogate(MODEL, DATA)
    term = controlled(before, jnp.asarray(index))
    if not due:
        np.testing.assert_array_equal(term.memory.hessian, before.hessian)
        np.testing.assert_array_equal(term.memory.anchor, before.anchor)
        return
    chances = 1.0 / (1.0 + np.exp(-X @ np.asarray(REFERENCE, np.float64)))
    np.testing.assert_array_equal(term.memory.anchor, REFERENCE)
    np.testing.assert_allclose(term.memory.value, log_likelihood(REFERENCE, np.arange(9)), rtol=1e-5)
    np.testing.assert_allclose(term.memory.gradient, X.T @ (WEIGHTS * (Y - chances)), rtol=1e-4)
    hessian = -(X.T * (WEIGHTS * chances * (1.0 - chances))) @ X
    np.testing.assert_allclose(term.memory.hessian, hessian, rtol=1e-4)
