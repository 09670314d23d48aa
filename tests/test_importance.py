"""Importance weights and what is said about them: weights, effective sample size, Pareto k-hat."""

import doctest
import math

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import coresetvi.families.importance
from coresetvi.families.importance import (
    defensive,
    khat_threshold,
    log_weights,
    normalise,
    normalised_ess,
    pareto_khat,
)

float64 = exact.float64
double = pytest.mark.usefixtures("float64")


def test_examples_in_the_docstrings_run():
    assert doctest.testmod(coresetvi.families.importance).failed == 0


def test_core_and_prior_raise_a_weight_and_the_proposal_lowers_it():
    core, prior, proposal = jnp.asarray([3.0, 0.0]), jnp.asarray([20.0, 0.0]), jnp.asarray([100.0, 0.0])
    np.testing.assert_array_equal(log_weights(core, prior, proposal), [-77.0, 0.0])


@double
@pytest.mark.parametrize("shift", [0.0, -1e4, 1e4])
def test_normalise_is_a_softmax_that_ignores_constants(shift):
    log_w = np.random.default_rng(0).standard_normal(50) * 3.0
    expected = np.exp(log_w) / np.exp(log_w).sum()
    np.testing.assert_allclose(normalise(jnp.asarray(log_w + shift)), expected, rtol=1e-11)


@double
def test_self_normalised_weights_give_exact_expectations_of_a_discrete_target():
    # Draws that list every state in proportion to the proposal: sums then have no Monte-Carlo error.
    target, counts = np.array([0.5, 0.3, 0.2]), np.array([1, 2, 5])
    states = np.repeat(np.arange(3), counts)
    proposal = np.log(counts / counts.sum())[states]
    weights = normalise(log_weights(jnp.log(target)[states], jnp.zeros(8) + 9.0, jnp.asarray(proposal)))
    np.testing.assert_allclose(np.bincount(states, weights), target, rtol=1e-12)


# Effective sample size


@double
@pytest.mark.parametrize(
    "weights, expected",
    [
        ([0.25] * 4, 1.0),
        ([1.0, 0.0, 0.0, 0.0], 0.25),
        ([0.5, 0.5, 0.0, 0.0], 0.5),
        ([1.0], 1.0),
    ],
)
def test_normalised_ess_of_known_weights(weights, expected):
    assert float(normalised_ess(jnp.asarray(weights))) == pytest.approx(expected, rel=1e-12)


@double
@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0, 1000.0])
def test_normalised_ess_lies_between_one_over_s_and_one(spread):
    log_w = spread * jax.random.normal(jax.random.key(0), (200, 20))
    ess = jax.jit(jax.vmap(lambda row: normalised_ess(normalise(row))))(log_w)
    assert float(ess.min()) >= 1 / 20 - 1e-12
    assert float(ess.max()) <= 1.0 + 1e-12


@double
def test_normalised_ess_converges_to_one_over_the_second_moment():
    # Log-normal weights with log-variance s^2: E[w]^2 / E[w^2] = exp(-s^2).
    spread, size = 0.5, 100_000
    log_w = spread * jax.random.normal(jax.random.key(1), (size,))
    weights = np.exp(np.asarray(log_w))
    truth = math.exp(-(spread**2))
    # Delta method for mean(w)^2 / mean(w^2).
    first, second = math.exp(spread**2 / 2), math.exp(2 * spread**2)
    influence = truth * (2 * weights / first - weights**2 / second)
    error = influence.std() / math.sqrt(size)
    assert abs(float(normalised_ess(normalise(log_w))) - truth) < exact.MAX_Z * error


# Pareto k-hat


@pytest.mark.parametrize(
    "num_samples, expected", [(100, 0.5), (1000, 2 / 3), (2200, 0.7), (10**6, 0.7), (10**12, 0.7)]
)
def test_khat_threshold(num_samples, expected):
    # 1 - 1 / log10(S) reaches 0.7 at S = 10^(10/3), about 2154.
    assert khat_threshold(num_samples) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("num_samples", [1, 2, 9])
def test_no_khat_is_small_enough_for_a_handful_of_draws(num_samples):
    assert khat_threshold(num_samples) < 0


def shrunk(shape, tail):
    """What the prior worth ten draws makes of a shape estimated from `tail` excesses."""
    return (tail * shape + 10 * 0.5) / (tail + 10)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.5, 1.0])
def test_khat_recovers_the_shape_of_a_generalised_pareto(shape):
    # Excesses of a generalised Pareto over any threshold are generalised Pareto with the same shape.
    size, repeats = 20_000, 24
    tail = int(3 * math.sqrt(size))
    draws = scipy.stats.genpareto(shape).rvs((repeats, size), random_state=0)
    estimates = np.array([pareto_khat(np.log(row)) for row in draws])
    # Standard error of the maximum-likelihood shape: (1 + k) / sqrt(tail).
    error = (1 + shape) / math.sqrt(tail * repeats)
    assert abs(estimates.mean() - shrunk(shape, tail)) < exact.MAX_Z * error


@pytest.mark.parametrize("shape", [0.2, 0.5, 1.0])
def test_khat_agrees_with_a_maximum_likelihood_fit_of_the_same_tail(shape):
    size = 1_000_000
    tail = int(3 * math.sqrt(size))
    draws = np.sort(scipy.stats.genpareto(shape).rvs(size, random_state=1))
    excess = draws[-tail:] - draws[-tail - 1]
    fitted = scipy.stats.genpareto.fit(excess, floc=0.0)[0]
    error = (1 + shape) / math.sqrt(tail)
    # Two efficient estimators on the same 3000 numbers: they differ by far less than their sampling error.
    assert abs(pareto_khat(np.log(draws)) - shrunk(fitted, tail)) < 0.15 * error


@double
@pytest.mark.parametrize("change", ["shift", "order", "body"])
def test_khat_depends_on_the_relative_size_of_the_largest_weights_only(change):
    log_w = np.random.default_rng(2).standard_normal(1000)
    changed = {
        "shift": log_w + 700.0,
        "order": log_w[::-1],
        # Half of the draws are in no tail: they may as well be impossible.
        "body": np.where(log_w < np.median(log_w), -np.inf, log_w),
    }[change]
    assert pareto_khat(jnp.asarray(changed)) == pytest.approx(pareto_khat(log_w), abs=1e-9)


@pytest.mark.parametrize("size", [100, 1000])
def test_equal_weights_have_the_lightest_tail_there_is(size):
    assert pareto_khat(np.full(size, -3.0)) == -math.inf


@pytest.mark.parametrize(
    "log_w",
    [
        np.zeros(1),
        np.zeros(24),
        np.full(100, -np.inf),
        np.r_[np.zeros(99), np.nan],
        np.r_[np.zeros(99), np.inf],
    ],
    ids=["one", "too few", "all impossible", "nan", "infinite"],
)
def test_what_cannot_be_judged_is_not_trusted(log_w):
    assert pareto_khat(log_w) == math.inf


@pytest.mark.parametrize("heavy", [1, 3, 30])
def test_a_few_draws_that_carry_everything_are_not_trusted(heavy):
    log_w = np.zeros(1000)
    log_w[:heavy] = np.linspace(20.0, 40.0, heavy)
    assert pareto_khat(log_w) > khat_threshold(1000)


def test_defensive_weights_are_half_uniform():
    np.testing.assert_allclose(defensive(jnp.asarray([0.7, 0.3, 0.0, 0.0])), [0.475, 0.275, 0.125, 0.125])


def test_the_tail_begins_above_the_largest_weight_that_is_not_in_it():
    """Of 100 weights 20 are the tail, and what they exceed is the 21st."""
    weights = np.exp(np.random.default_rng(4).standard_normal(100))
    falling = np.sort(weights)[::-1] / weights.max()
    excess = falling[:20][::-1] - falling[20]
    expected = coresetvi.families.importance._fit_generalised_pareto(excess)
    assert pareto_khat(np.log(weights)) == pytest.approx(expected, rel=1e-9)
