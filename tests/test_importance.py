"""Importance weights and what is said about them: weights, effective sample size, Pareto k-hat."""

import math

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from coresetvi.families.importance import (
    defensive,
    fit_tail,
    khat_threshold,
    log_weights,
    normalise,
    normalised_ess,
    pareto_khat,
    resample,
    smoothed_weights,
    usable,
)

float64 = exact.float64
double = pytest.mark.usefixtures("float64")


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


# Smoothed weights
def heavy_log_weights(shape, size=1000, seed=0):
    return np.log(scipy.stats.genpareto(shape).rvs(size, random_state=seed))


def assert_normalised_and_in_order(smooth, log_w):
    assert smooth.dtype == np.float64 and np.exp(smooth).sum() == pytest.approx(1.0, abs=1e-12)
    order = np.argsort(log_w, kind="stable")
    with np.errstate(invalid="ignore"):  # the difference of two impossible draws
        assert not np.any(np.diff(smooth[order]) < 0.0)


@double
@pytest.mark.parametrize("size", [25, 200, 5000])
@pytest.mark.parametrize("shape", [-0.5, 0.3, 0.5, 0.8, 1.5])
def test_smoothed_weights_agree_with_blackjax(shape, size):
    from blackjax.diagnostics import psis_weights

    log_w = heavy_log_weights(shape, size) - 50.0
    theirs, their_khat = psis_weights(jnp.asarray(log_w))
    ours, khat = smoothed_weights(log_w)
    assert khat == pytest.approx(float(their_khat), abs=1e-10) and khat == pareto_khat(log_w)
    np.testing.assert_allclose(ours, np.asarray(theirs), atol=1e-9)
    assert_normalised_and_in_order(ours, log_w)


@pytest.mark.parametrize("shape", [0.8, 1.5])
def test_the_largest_become_quantiles_of_the_fitted_tail_and_none_exceeds_the_largest(shape):
    cut = set()
    for seed in range(8):
        log_w = heavy_log_weights(shape, seed=seed)
        tail, (smooth, khat) = fit_tail(log_w), smoothed_weights(log_w)
        assert khat == tail.shape and tail.size == int(3 * math.sqrt(1000))
        top, order = log_w.max(), np.argsort(log_w)
        body, largest = order[: -tail.size], order[-tail.size :]
        assert tail.threshold == pytest.approx(np.exp(log_w[body[-1]] - top), rel=1e-12)
        # Ratios within the body stay; the rest is over them what the quantiles say.
        shift = smooth[body[0]] - log_w[body[0]]
        np.testing.assert_allclose(smooth[body], log_w[body] + shift, atol=1e-12)
        levels = (np.arange(tail.size) + 0.5) / tail.size
        quantiles = scipy.stats.genpareto(tail.shape, tail.threshold, tail.scale).ppf(levels)
        expected = np.log(np.minimum(quantiles, 1.0)) + top + shift
        np.testing.assert_allclose(smooth[largest], expected, atol=1e-9)
        cut.add(bool(quantiles.max() > 1.0))
    assert cut == {True, False}, "both kinds were seen"


@pytest.mark.parametrize("shape", [0.4, 0.7, 1.0])
def test_the_scale_of_the_tail_is_that_of_the_distribution(shape):
    # Over a threshold u, a generalised Pareto of scale 1 has scale 1 + k u; both in units of the largest.
    size, repeats = 20_000, 24
    draws = scipy.stats.genpareto(shape).rvs((repeats, size), random_state=2)
    tails = [(fit_tail(np.log(row)), row.max()) for row in draws]
    ratios = [tail.scale / (1.0 / top + shape * tail.threshold) for tail, top in tails]
    # Standard error of the maximum-likelihood scale: sigma sqrt(2 (1 + k) / tail).
    error = math.sqrt(2 * (1 + shape) / (tails[0][0].size * repeats))
    assert abs(np.mean(ratios) - 1.0) < exact.MAX_Z * error


def test_smoothing_tames_the_largest_weight():
    # With k = 0.8 the variance is infinite, and the share of the largest weight jumps from sample to sample.
    logs = np.log(scipy.stats.genpareto(0.8).rvs((200, 1000), random_state=3))
    raw = np.array([np.exp(row).max() / np.exp(row).sum() for row in logs])
    smooth = np.array([np.exp(smoothed_weights(row)[0]).max() for row in logs])
    assert np.mean(smooth) < np.mean(raw) and np.std(smooth) < 0.8 * np.std(raw)


@pytest.mark.parametrize("size", [1, 24, 100])
def test_constant_weights_stay_constant(size):
    smooth, khat = smoothed_weights(np.full(size, 300.0))
    np.testing.assert_allclose(smooth, -math.log(size), atol=1e-12)
    assert khat == (-math.inf if size == 100 else math.inf)


@pytest.mark.parametrize("size", [1, 2, 24])
def test_weights_too_few_for_a_tail_are_only_normalised(size):
    log_w = heavy_log_weights(1.0, size)
    smooth, khat = smoothed_weights(log_w)
    np.testing.assert_allclose(smooth, log_w - np.logaddexp.reduce(log_w), atol=1e-12)
    assert khat == math.inf and fit_tail(log_w).size < 5


def test_impossible_and_broken_draws_have_no_weight_and_change_nothing():
    log_w = heavy_log_weights(0.8)
    smallest = np.argsort(log_w)[:300]
    broken = log_w.copy()
    broken[smallest[:200]], broken[smallest[200:]] = -np.inf, np.nan
    smooth, khat = smoothed_weights(broken)
    assert np.all(smooth[smallest] == -np.inf)
    # The same tail of as many draws, so the same smoothing.
    whole, whole_khat = smoothed_weights(log_w)
    kept = np.setdiff1d(np.arange(1000), smallest)
    assert khat == whole_khat
    np.testing.assert_allclose(smooth[kept] - smooth[kept[0]], whole[kept] - whole[kept[0]], atol=1e-12)
    assert_normalised_and_in_order(smooth, np.where(np.isnan(broken), -np.inf, broken))


@pytest.mark.filterwarnings("error")
def test_where_no_draw_is_possible_nothing_is_trusted():
    smooth, khat = smoothed_weights(np.full(100, -np.inf))
    quality = {"ess": float(normalised_ess(jnp.exp(jnp.asarray(smooth)))), "khat": khat}
    assert not usable(quality | {"khat_threshold": khat_threshold(100)})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("heavy", [1, 3, 30])
@pytest.mark.parametrize("height", [1.0, 40.0, 2000.0])
def test_a_few_draws_that_carry_everything_are_smoothed_without_harm(heavy, height):
    log_w = np.zeros(1000)
    log_w[:heavy] = np.linspace(0.5 * height, height, heavy)
    assert_normalised_and_in_order(smoothed_weights(log_w)[0], log_w)


def test_smoothing_does_not_change_what_it_is_given():
    log_w = heavy_log_weights(0.8)
    before = log_w.copy()
    smoothed_weights(log_w)
    np.testing.assert_array_equal(log_w, before)


# Drawing anew
UNEVEN = np.array([0.0, 0.05, 0.31, 0.0, 0.002, 0.638, 0.0])


@double
@pytest.mark.parametrize("number", [1, 7, 100, 1001])
def test_every_draw_comes_as_often_as_its_weight_says_up_to_one(number):
    keys = jax.random.split(jax.random.key(0), 200)
    picked = jax.jit(jax.vmap(lambda key: resample(key, jnp.asarray(UNEVEN), number)))(keys)
    counts = np.stack([np.bincount(row, minlength=len(UNEVEN)) for row in np.asarray(picked)])
    assert picked.shape == (200, number) and np.all(counts.sum(axis=1) == number)
    assert np.all(np.abs(counts - number * UNEVEN) < 1.0)
    # Unbiased: what is left of a whole number is the chance of one more.
    share = number * UNEVEN - np.floor(number * UNEVEN)
    error = np.sqrt(share * (1 - share) / 200)
    assert np.all(np.abs(counts.mean(axis=0) - number * UNEVEN) <= exact.MAX_Z * error + 1e-9)


@double
def test_every_place_is_a_draw_by_the_weights():
    keys = jax.random.split(jax.random.key(1), 4000)
    picked = np.asarray(jax.jit(jax.vmap(lambda key: resample(key, jnp.asarray(UNEVEN), 20)))(keys))
    error = np.sqrt(UNEVEN * (1 - UNEVEN) / 4000)
    for place in (0, 10, 19):
        share = np.bincount(picked[:, place], minlength=len(UNEVEN)) / 4000
        assert np.all(np.abs(share - UNEVEN) <= exact.MAX_Z * error)


@pytest.mark.parametrize("size", [1000, 30_000])
def test_rounding_picks_no_draw_without_weight(size):
    weights = np.random.default_rng(0).gamma(0.1, size=size).astype(np.float32)
    weights[:10], weights[-10:] = 0.0, 0.0
    weights = 0.99 * weights / weights.sum()  # as if rounding had lost much
    for number in (10, 10 * size):
        picked = np.asarray(resample(jax.random.key(2), jnp.asarray(weights), number))
        assert np.all(weights[picked] > 0.0)


def test_a_comb_that_starts_at_zero_picks_no_draw_without_weight(monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    picked = resample(jax.random.key(0), jnp.asarray(UNEVEN, jnp.float32), 1000)
    assert np.all(UNEVEN[np.asarray(picked)] > 0.0)


def test_defensive_weights_are_half_uniform():
    np.testing.assert_allclose(defensive(jnp.asarray([0.7, 0.3, 0.0, 0.0])), [0.475, 0.275, 0.125, 0.125])


def test_the_tail_begins_above_the_largest_weight_that_is_not_in_it():
    """Of 100 weights 20 are the tail, and what they exceed is the 21st."""
    weights = np.exp(np.random.default_rng(4).standard_normal(100))
    falling = np.sort(weights)[::-1] / weights.max()
    tail = fit_tail(np.log(weights))
    assert tail.size == 20 and tail.threshold == pytest.approx(falling[20], rel=1e-12)
