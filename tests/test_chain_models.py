"""The truths that chains are tested against are true: exact ones obey identities, others are found again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chain_models import CHAIN_MODELS
from varying_reference import varying_intercepts

import coresetvi as cvi
from coresetvi.models.log_joint import LogJoint

# Draws that identities are tried on, and standard errors that they may be off by.
MOST, MOST_ERRORS = 1000, 5.0
EXACT, BY_CHAINS = ("funnel", "multimodal"), ("mixture", "robust", "zero_inflated")
SLOW = (*BY_CHAINS, "varying_slopes")


@pytest.mark.parametrize("name", [*EXACT, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_truth_obeys_steins_identity(name):
    """E[g_i] = 0 and E[(theta_i - mean_i) g_i] = -1 for the gradient g of the log-density, at any mean."""
    model, data, truth, known = CHAIN_MODELS[name]()
    found = truth()
    step = max(1, len(found.thetas) // MOST)
    thetas, weights = found.thetas[::step], found.weights[::step] / found.weights[::step].sum()
    mean = jnp.asarray(weights @ thetas, jnp.float32)
    gradient = jax.jit(jax.vmap(jax.grad(LogJoint(model, model.check(data), mean))))
    slopes = np.asarray(gradient(jnp.asarray(thetas, jnp.float32)), np.float64)
    for values in (slopes, (thetas - np.asarray(mean)) * slopes + 1.0):
        off = weights @ values
        error = np.sqrt(weights @ (values - off) ** 2 * np.sum(weights**2))
        assert np.all(np.abs(off) < MOST_ERRORS * error), (name, off / error)
    if known is not None:
        error = MOST_ERRORS / np.sqrt(1000.0)  # of a thousand effective draws or more
        assert np.all(np.abs(found.mean - known[0]) < error * np.array(known[1]))
        assert np.all(np.abs(found.deviation / known[1] - 1.0) < error)


def test_modes_have_unequal_mass():
    """Both modes count, and they are not alike: half of the mass in either would be wrong."""
    _, data, truth, _ = CHAIN_MODELS["multimodal"]()
    thetas, weights = truth()
    left = weights[thetas[:, 0] < 0].sum()
    assert 0.05 < min(left, 1.0 - left) < 0.4
    x, y = np.asarray(data.x, np.float64), np.asarray(data.y, np.float64)
    a = np.linspace(-5.0, 5.0, 3001)[:, None]
    logs = -(a[:, 0] ** 2) / 8.0 - 0.5 * np.sum((y - a**2 - 0.15 * a * x[:, 0]) ** 2, axis=1)
    chances = np.exp(logs - logs.max())
    assert np.isclose(left, chances[a[:, 0] < 0].sum() / chances.sum(), atol=1e-3)


@pytest.mark.parametrize("name", BY_CHAINS)
def test_the_model_has_as_many_parameters_as_known_moments(name):
    model, data, _, known = CHAIN_MODELS[name]()
    assert known is not None and len(known[0]) == len(known[1]) == model.dim
    # The truth lies where the density is high: two deviations off along any parameter it is lower.
    mean, deviation = CHAIN_MODELS[name]().moments()
    points = np.concatenate([mean[None], mean + 2 * np.diag(deviation), mean - 2 * np.diag(deviation)])
    joint = LogJoint(model, model.check(data), jnp.asarray(mean, jnp.float32))
    logs = np.asarray(joint.of_draws(jnp.asarray(points, jnp.float32)))
    assert np.all(logs[0] - logs[1:] > 0.7) and np.all(logs[0] - logs[1:] < 8.0)


def test_moments_of_varying_intercepts_are_those_of_the_rows_own_normal():
    """Given both scales, y is normal; regressing any effect on it says the same in other algebra."""
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(4), (5, 3, 2, 1))
    column, y = generator.normal(size=11), 1.0 + generator.normal(size=11)
    ones, same = np.ones(4), (group[:, None] == np.arange(4)).astype(float)
    logs, means, squares = [], [], []
    side = np.linspace(-9.0, 2.5, 160)
    for spread, noise in ((s, n) for s in np.exp(side) for n in np.exp(side)):
        covariance = 25.0 + np.outer(column, column) + spread**2 * same @ same.T + noise**2 * np.eye(11)
        # Covariances of the mean, the slope and the intercepts with y, and their own variances.
        with_y = np.vstack([np.full(11, 25.0), column, 25.0 + spread**2 * same.T])
        own = np.array([25.0, 1.0, *((25.0 + spread**2) * ones)])
        solved = np.linalg.solve(covariance, np.column_stack([y, with_y.T]))
        centre = with_y @ solved[:, 0]
        # Half-normal priors, and the derivatives of the exponentials.
        logs.append(-0.5 * (y @ solved[:, 0] + np.linalg.slogdet(covariance)[1] + spread**2 + noise**2))
        logs[-1] += np.log(spread) + np.log(noise)
        means.append(np.array([*centre, spread, noise]))
        extra = own - np.sum(with_y * solved[:, 1:].T, axis=1)
        squares.append(means[-1] ** 2 + np.array([*extra, 0.0, 0.0]))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    mean = weights @ np.array(means)
    deviation = np.sqrt(weights @ np.array(squares) - mean**2)
    found = varying_intercepts(group, column, y, mean_scale=5.0, slope_scale=1.0, nodes=120)
    sites = ("mean", "slope", "intercept", "spread", "noise")
    for which, right in enumerate((mean, deviation)):
        ours = np.concatenate([np.atleast_1d(found[name][which]) for name in sites])
        assert np.allclose(ours, right, atol=3e-3 * deviation), (ours - right) / deviation


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "results"),
    [
        ("mixture", 40, {"finished"}),
        # Chains stay long in the neck of the funnel: they may say so, and draws are right all the same.
        ("funnel", 18, {"finished", "unmixed"}),
        ("robust", 20, {"finished"}),
        ("zero_inflated", 20, {"finished"}),
        ("varying_slopes", 60, {"finished"}),
    ],
)
def test_a_default_fit_has_the_true_posterior(name, size, results):
    model, data, _, _ = known = CHAIN_MODELS[name]()
    fit = cvi.fit(cvi.BBPSVI(size), model, data, key=0)
    assert fit.result in results and fit.about["kl"] < 0.05, fit.explanation
    method = "importance" if "thetas" not in fit.psi else "chains"
    flat = cvi.sample(fit, method=method).flat.reshape(-1, model.dim)
    mean, deviation = known.moments()
    # Of a thousand draws or more, a quarter of them effective.
    assert np.abs((flat.mean(axis=0) - mean) / deviation).max() < 0.2
    assert np.abs(flat.std(axis=0) / deviation - 1.0).max() < 0.15
    assert cvi.diagnose(fit, data).verdict in (
        ("trust",) if fit.result == "finished" else ("trust", "unclear")
    )
