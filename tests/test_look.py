"""Certificates of posteriors with several modes or heavy tails, against quadrature.

Models have one parameter, and fits are made by hand: r is a good normal in one mode, as a fit would find it.
"""

import functools
import math

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import coresetvi as cvi
from coresetvi.models.log_joint import LogJoint
from coresetvi.posterior import look as looking
from coresetvi.posterior.reach import propose

pytestmark = pytest.mark.usefixtures("quick_compilation")


def one_parameter(prior, likelihood, start=1.0):
    return cvi.models.FromCallables(prior, likelihood, init=jnp.asarray(start))


# The sign of a hardly matters to y ~ N(a^2 + 0.15 a x, 1), and not at all where x = 0.
SQUARE = one_parameter(lambda a: -0.5 * a**2, lambda a, x, y: -0.5 * (y - a**2 - 0.15 * a * x[:, 0]) ** 2)
GENERATOR = np.random.default_rng(0)
SQUARE_X = GENERATOR.normal(size=(500, 1))
SQUARE_DATA = cvi.Dataset(SQUARE_X, 1.0 + 0.15 * SQUARE_X[:, 0] + GENERATOR.normal(size=500))
SQUARE_POINT = cvi.Dataset([[0.02]], [1.0], [500.0])
# Two groups under noise with heavy tails: either may be the outliers.
GROUPS = one_parameter(lambda a: -0.005 * a**2, lambda a, x, y: -jnp.log1p((y - a) ** 2), 6.0)
GROUPS_DATA = cvi.Dataset(np.zeros((30, 1)), np.repeat([-6.0, 6.0], 15) + GENERATOR.normal(size=30))
# Separable labels: nothing but a Cauchy prior keeps the coefficient finite.
SEPARABLE = one_parameter(
    lambda a: -jnp.log1p((a / 2.5) ** 2),
    lambda a, x, y: -jax.nn.softplus(jnp.where(y > 0, -1.0, 1.0) * a * x[:, 0]),
)


def densities(model, *data):
    """Points, and normalised probabilities of the posterior given each of `data` at them."""
    stretch = np.linspace(-17.0, 17.0, 200_001)
    line = np.sinh(stretch)
    thetas = jnp.asarray(line[:, None], jnp.float32)
    found = []
    for rows in data:
        log_joint = LogJoint(model, rows, jnp.ones(1))
        values = np.asarray(log_joint.of_draws(thetas), np.float64) + np.log(np.cosh(stretch))
        found.append(values - np.logaddexp.reduce(values))
    return line, *found


def exact_kl(model, coreset, data):
    _, core, full = densities(model, coreset, data)
    return float(np.sum(np.exp(core) * (core - full)))


def fit_at(model, coreset, mode):
    """A fit whose r is Laplace's normal at the mode next to `mode`."""
    log_joint = LogJoint(model, coreset, jnp.ones(1))
    line = jnp.linspace(mode - 0.5, mode + 0.5, 2001)
    mean = line[jnp.argmax(log_joint.of_draws(line[:, None]))][None]
    curvature = -float(jax.hessian(log_joint)(mean)[0, 0])
    return exact.fit_by_hand(model, coreset, exact.full_rank(np.asarray(mean), np.array([[1.0 / curvature]])))


@functools.cache
def square_certificate():
    return cvi.diagnose(fit_at(SQUARE, SQUARE_POINT, 1.0), SQUARE_DATA, progress=False)


def test_a_mode_that_r_does_not_know_is_found_and_weighed():
    expected = exact_kl(SQUARE, SQUARE_POINT, SQUARE_DATA)
    found = square_certificate()
    assert found.verdict in ("correct", "enlarge") and expected > 5.0
    assert abs(found.posterior["kl"] - expected) < 4.0 * found.posterior["kl_error"]
    assert found.posterior["kl_error"] < 0.15 * expected
    # r has about half of the coreset posterior.
    line, core, _ = densities(SQUARE, SQUARE_POINT, SQUARE_DATA)
    assert found.r["kl"] == pytest.approx(-math.log(np.exp(core[line > 0]).sum()), abs=0.25)


def test_evidence_and_weights_of_modes():
    """Of many runs, against sums over a grid."""
    fit = fit_at(SQUARE, SQUARE_POINT, 1.0)
    looked = looking.look_around(fit, SQUARE_DATA, 500.0, jax.random.key(1))
    assert looked is not None
    found = looking.look_longer(fit, *looked, 64 * 30, jax.random.key(2))
    line, core = densities(SQUARE, SQUARE_POINT)
    weights = np.exp(found.log_evidence - np.logaddexp.reduce(found.log_evidence))
    share = (found.coreset[..., 0] > 0).mean(axis=1)
    error = math.sqrt(np.sum(weights**2 * (share - weights @ share) ** 2))
    assert error < 0.04
    assert abs(weights @ share - np.exp(core[line > 0]).sum()) < exact.MAX_Z * error
    log_joint = LogJoint(SQUARE, SQUARE_POINT, fit.psi["mean"])
    even = np.linspace(-3.0, 3.0, 20_001)
    values = np.asarray(log_joint.of_draws(jnp.asarray(even[:, None], jnp.float32)), np.float64)
    evidence = np.logaddexp.reduce(values) + math.log(even[1] - even[0])
    each = np.exp(found.log_evidence - evidence)
    assert abs(each.mean() - 1.0) < exact.MAX_Z * each.std() / math.sqrt(len(each)) + 0.01


def test_symmetric_modes_are_no_fault_of_the_coreset():
    """Both posteriors are even in a: which mode a draw is in does not matter."""
    data = cvi.Dataset(np.zeros((500, 1)), np.asarray(SQUARE_DATA.y))
    point = cvi.Dataset([[0.0]], [float(np.mean(np.asarray(data.y)))], [500.0])
    found = cvi.diagnose(fit_at(SQUARE, point, 1.0), data, progress=False)
    assert found.posterior["kl"] < 0.01 and found.look["unseen"] == 0
    # The coreset is good, and r is half of its posterior.
    assert found.verdict == "correct" and found.r["kl"] == pytest.approx(math.log(2.0), abs=0.25)


def test_a_mode_that_the_coreset_lacks_is_found():
    point = cvi.Dataset([[0.0]], [6.0], [15.0])
    assert exact_kl(GROUPS, point, GROUPS_DATA) > 0.3
    found = cvi.diagnose(fit_at(GROUPS, point, 6.0), GROUPS_DATA, progress=False)
    assert found.verdict == "enlarge" and found.look["unseen"] > 0, found.sentence
    assert "next to none" in found.sentence
    # Nothing is unseen by all of the rows themselves.
    found = cvi.diagnose(fit_at(GROUPS, GROUPS_DATA, 6.0), GROUPS_DATA, progress=False)
    assert found.look["unseen"] == 0 and found.posterior["kl"] < 1e-3


def test_tails_that_r_does_not_reach_count():
    """Four rows that only coefficients of a hundred or so explain, and that the coreset leaves out."""
    coreset = cvi.Dataset([[-1.0], [-0.5], [0.7], [1.2]], [0, 0, 1, 1])
    data = cvi.Dataset([[-1.0], [-0.5], [0.7], [1.2], [0.03]], [0, 0, 1, 1, 1], [1.0, 1.0, 1.0, 1.0, 6.0])
    expected = exact_kl(SEPARABLE, coreset, data)
    found = cvi.diagnose(fit_at(SEPARABLE, coreset, 2.0), data, progress=False)
    assert found.verdict != "trust" and expected > 0.1
    assert abs(found.posterior["kl"] - expected) < 4.0 * found.posterior["kl_error"]


def test_weights_are_those_of_a_normal_and_a_cauchy_distribution():
    fit = fit_at(SQUARE, SQUARE_POINT, 1.0)
    thetas, _, _ = fit._relative_draws(200, jax.random.key(0))
    found = propose(fit, thetas, np.array([[0.0]], np.float32), jax.random.key(1))
    mean, width = float(fit.psi["mean"][0]), math.sqrt(float(fit.family.moments(fit.psi)[1][0, 0]))
    at = found.thetas[:, 0].astype(np.float64)
    normal, cauchy = (one.pdf(at, mean, width) for one in (scipy.stats.norm, scipy.stats.cauchy))
    np.testing.assert_allclose(found.log_joint - found.log_w, np.log((normal + cauchy) / 2), atol=2e-3)
    np.testing.assert_allclose(found.distance, np.abs(at - mean) / width, rtol=1e-2, atol=5e-3)
    np.testing.assert_allclose(found.others, mean / width, rtol=1e-3)


def test_models_whose_rows_are_much_work_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(looking, "HEAVY", 1)
    found = cvi.diagnose(fit_at(GROUPS, GROUPS_DATA, 6.0), GROUPS_DATA, progress=False)
    assert found.look == {"looked_from": 0} and "looked from" in str(found)


def test_a_divergence_without_end_is_not_believed():
    """A label on the other side: D falls like the coefficient, whose tail has no mean, and KL is infinite."""
    coreset = cvi.Dataset([[-1.0], [-0.5], [0.7], [1.2]], [0, 0, 1, 1])
    data = cvi.Dataset([[-1.0], [-0.5], [0.7], [1.2], [-0.02]], [0, 0, 1, 1, 1])
    found = cvi.diagnose(fit_at(SEPARABLE, coreset, 2.0), data, progress=False)
    assert found.verdict != "trust" and found.posterior["kl_error"] >= found.posterior["kl"] > 0.01
