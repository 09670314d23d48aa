"""How good is a coreset posterior: corrections, distances, certificates and sizes against exact answers.

With Gaussian noise every posterior, divergence and bound has a closed form, and as many points as parameters
can be given any posterior that is narrower than the prior.
"""

import dataclasses
import functools
import json
import math

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.families import FullRank
from coresetvi.families.draws import Draws
from coresetvi.families.importance import pareto_khat, smoothed_weights, usable
from coresetvi.models import LinearRegression
from coresetvi.models.prediction import align
from coresetvi.posterior import certificate
from coresetvi.posterior import diagnosis as diagnostics
from coresetvi.posterior import distances as discrepancies
from coresetvi.posterior import size_choice as sizes
from coresetvi.posterior.certificate import TRUST_KL, Certificate, judge
from coresetvi.posterior.slopes import compare_slopes

pytestmark = pytest.mark.usefixtures("quick_compilation")
MAX_Z = exact.MAX_Z

LINEAR = LinearRegression(3, noise=0.7, prior_scale=3.0)
MIXING = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.5, 1.0]])
X = np.random.default_rng(0).standard_normal((200, 3)) @ MIXING.T
Y = X @ [1.0, -1.0, 0.5] + 0.7 * np.random.default_rng(1).standard_normal(200)
DATA = cvi.Dataset(X, Y)
MEAN, COVARIANCE = LINEAR.posterior(DATA)
DEVIATION = np.sqrt(np.diag(COVARIANCE))
FACTOR = np.linalg.cholesky(COVARIANCE)


def points_for(mean, covariance):
    """Three weighted points whose posterior is exactly this normal."""
    precision = np.linalg.inv(covariance)
    likelihood = precision - np.eye(3) / LINEAR.prior_scale**2
    values, axes = np.linalg.eigh(likelihood * LINEAR.noise**2)
    assert values.min() > 0
    # x_i = axis_i with weight value_i; their labels solve sum_i weight_i x_i y_i = noise^2 precision mean.
    labels = axes.T @ (LINEAR.noise**2 * precision @ mean) / values
    points = cvi.Dataset(axes.T, labels, values)
    found = LINEAR.posterior(points)
    np.testing.assert_allclose(found[0], mean, rtol=1e-4, atol=1e-4 * DEVIATION.min())
    np.testing.assert_allclose(found[1], covariance, rtol=1e-3, atol=1e-3 * COVARIANCE.max())
    return points


def by_hand(coreset, mean=None, covariance=None, **changes):
    """A fit that nobody fitted, whose r is the coreset's posterior unless given."""
    own = LINEAR.posterior(coreset)
    psi = exact.full_rank(own[0] if mean is None else mean, own[1] if covariance is None else covariance)
    return exact.fit_by_hand(LINEAR, coreset, psi, **changes)


def moved(shift=0.0, width=1.0, direction=None):
    """The full posterior, shifted by so many deviations along its first axis, and its variance changed.

    `direction` changes the variance along that axis only.
    """
    scale = np.full(3, math.sqrt(width))
    if direction is not None:
        scale = np.where(np.arange(3) == direction, scale, 1.0)
    factor = FACTOR * scale
    return MEAN + shift * FACTOR[:, 0], factor @ factor.T


@functools.cache
def problem(shift=0.0, width=1.0, direction=None, r_shift=0.0, r_width=1.0):
    """A fit whose coreset posterior is `moved`, with an r that differs from that in turn."""
    mean, covariance = moved(shift, width, direction)
    own = mean + r_shift * np.linalg.cholesky(covariance)[:, 0], r_width * covariance
    return by_hand(points_for(mean, covariance), *own)


def exact_kl(fit, data=DATA):
    return exact.gaussian_kl(*LINEAR.posterior(fit.coreset), *LINEAR.posterior(data))


@functools.cache
def draws_of(fit_key, method="variational", num_samples=500):
    return cvi.sample(problem(*fit_key), method=method, num_samples=num_samples, num_chains=4)


# Smoothed importance weights


@pytest.mark.parametrize("degrees", [3, 10])
def test_smoothed_weights_agree_with_arviz(degrees):
    arviz = pytest.importorskip("arviz")
    generator = np.random.default_rng(degrees)
    # From a normal to Student's t: weights with a heavy tail.
    z = generator.standard_normal(4000)
    log_w = -0.5 * (degrees + 1) * np.log1p(z**2 / degrees) + 0.5 * z**2
    ours, khat = smoothed_weights(log_w)
    theirs, their_khat = arviz.psislw(log_w)
    assert np.exp(ours).sum() == pytest.approx(1.0, abs=1e-9)
    assert khat == pytest.approx(float(their_khat), abs=0.02) and khat == pareto_khat(log_w)
    np.testing.assert_allclose(ours, np.asarray(theirs), atol=0.05)
    # The smoothing did something, and only to the largest.
    raw = log_w - scipy.special.logsumexp(log_w)
    difference = ours - raw
    changed = np.abs(difference - np.median(difference)) > 1e-3
    assert 0 < changed.sum() <= 3 * math.sqrt(4000)
    assert raw[changed].min() > raw[~changed & (raw < np.sort(raw)[-190])].max()


def test_light_tails_are_left_alone():
    log_w = np.log(np.random.default_rng(0).uniform(0.5, 1.5, 1000))
    smooth, _ = smoothed_weights(log_w + 700.0)
    np.testing.assert_allclose(smooth, log_w - scipy.special.logsumexp(log_w), atol=1e-4)


def test_impossible_draws_have_no_weight():
    log_w = np.random.default_rng(0).standard_normal(1000)
    log_w[:100], log_w[100] = -np.inf, np.nan
    smooth, khat = smoothed_weights(log_w)
    assert np.all(np.exp(smooth[:101]) == 0.0) and np.exp(smooth).sum() == pytest.approx(1.0)
    assert math.isfinite(khat)


@pytest.mark.parametrize(
    "ess, khat, expected",
    [(0.5, 0.6, True), (0.5, 0.8, False), (0.96, 0.8, True), (0.5, math.nan, False), (0.5, -math.inf, True)],
)
def test_usable(ess, khat, expected):
    assert usable({"ess": ess, "khat": khat, "khat_threshold": 0.7}) is expected


# Correction


def assert_corrected(corrected, mean, covariance):
    """Weighted moments within MAX_Z standard errors of what they should be."""
    weights = corrected.weights.ravel()
    z = (corrected.flat.reshape(-1, len(mean)).astype(np.float64) - mean) / np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(*[np.sqrt(np.diag(covariance))] * 2)
    first, second = np.triu_indices(len(mean))
    columns = np.concatenate([z, z[:, first] * z[:, second]], axis=1)
    truth = np.r_[np.zeros(len(mean)), correlation[first, second]]
    errors = np.sqrt(np.sum((weights[:, None] * (columns - truth)) ** 2, axis=0))
    assert np.abs((weights @ columns - truth) / errors).max() < MAX_Z
    assert errors.max() < 0.3


@pytest.mark.parametrize("method", ["variational", "importance", "laplace"])
@pytest.mark.parametrize("change", [(0.5, 1.3), (0.0, 2.0)], ids=["shifted", "wide"])
def test_corrected_draws_are_those_of_the_full_posterior(change, method):
    draws = draws_of(change, method)
    corrected = cvi.correct(draws, DATA)
    assert corrected.about["khat"] < corrected.about["khat_threshold"] and corrected.warnings == []
    assert 0.1 < corrected.about["ess"] < 1.0
    assert_corrected(corrected, MEAN, COVARIANCE)
    with pytest.raises(AssertionError):
        assert_corrected(draws, MEAN, COVARIANCE)
    assert draws.log_weights is None


def test_the_log_weights_of_a_correction_have_a_closed_form():
    draws = draws_of((0.5, 1.3))
    corrected = cvi.correct(draws, DATA)
    mean, covariance = moved(0.5, 1.3)

    def log_density(mean, covariance):
        gaps = draws.flat - mean
        return -0.5 * np.einsum("csd,de,cse->cs", gaps, np.linalg.inv(covariance), gaps)

    expected = log_density(MEAN, COVARIANCE) - log_density(mean, covariance)
    ranks = np.argsort(expected.ravel())[:1800]  # the largest are smoothed
    difference = (corrected.log_weights - expected).ravel()[ranks]
    np.testing.assert_allclose(difference, difference[0], atol=5e-3)


def test_a_hopeless_coreset_is_not_corrected_in_silence():
    corrected = cvi.correct(draws_of((8.0,)), DATA)
    assert corrected.about["khat"] > corrected.about["khat_threshold"]
    assert len(corrected.warnings) == 1 and "use a larger coreset" in corrected.warnings[0]


def assert_same_log_weights(one: Draws, other: Draws) -> None:
    assert one.log_weights is not None and other.log_weights is not None
    np.testing.assert_allclose(one.log_weights, other.log_weights, atol=2e-3)


def test_corrections_do_not_add_up():
    draws = draws_of((0.5, 1.3))
    once = cvi.correct(draws, DATA)
    assert_same_log_weights(cvi.correct(once, DATA), once)


EQUAL_DATA = {
    "weight two": (
        cvi.Dataset(X, Y, 1.0 + (np.arange(200) < 50)),
        cvi.Dataset(np.r_[X, X[:50]], np.r_[Y, Y[:50]]),
    ),
    "weight zero": (cvi.Dataset(np.r_[X, [[50.0] * 3]], np.r_[Y, -50.0], np.r_[np.ones(200), 0.0]), DATA),
    "order": (cvi.Dataset(X[::-1], Y[::-1]), DATA),
}


@pytest.mark.parametrize("name", EQUAL_DATA)
def test_data_that_say_the_same_correct_the_same(name):
    one, two = (cvi.correct(draws_of((0.5, 1.3)), data) for data in EQUAL_DATA[name])
    assert_same_log_weights(one, two)
    assert_corrected(one, *LINEAR.posterior(EQUAL_DATA[name][1]))


def test_columns_go_by_name():
    names = ("age", "height", "weight")
    draws = draws_of((0.5, 1.3))
    named = dataclasses.replace(
        draws, data=cvi.Dataset(draws.data.x, draws.data.y, draws.data.weights, columns=names)
    )
    other = cvi.Dataset(
        np.c_[X[:, 2], np.full(200, 9.0), X[:, :2]], Y, columns=["weight", "id", "age", "height"]
    )
    plain = cvi.correct(draws, DATA)
    assert_same_log_weights(cvi.correct(named, other), plain)
    # Without names, positions count.
    assert_same_log_weights(cvi.correct(named, DATA), plain)
    assert align(other, named.data).columns == names


LACKING = cvi.Dataset(X, Y, columns=["a", "b", "d"])
CORRECTION_REFUSALS = {
    "column": (lambda: align(LACKING, cvi.Dataset(X, Y, columns=["a", "b", "c"])), "lacks the column 'c'"),
    "shape": (lambda: cvi.correct(draws_of((0.5, 1.3)), cvi.Dataset(X[:, :2], Y)), r"shape \(2,\)"),
    "labels": (lambda: cvi.correct(draws_of((0.5, 1.3)), cvi.Dataset(X)), "y"),
}


@pytest.mark.parametrize("name", CORRECTION_REFUSALS)
def test_data_that_do_not_fit_are_refused(name):
    call, words = CORRECTION_REFUSALS[name]
    with pytest.raises(InputError, match=words):
        call()


# Slopes


@pytest.mark.parametrize("change", [(0.3,), (0.0, 1.7), (0.0, 0.2), (1.0, 0.5, 1)], ids=str)
@pytest.mark.parametrize("narrow", [1.0, 1e-4])
def test_slopes_know_the_exact_divergence(change, narrow):
    fit = problem(*change)
    mean, covariance = moved(*change)
    draws = cvi.sample(by_hand(fit.coreset, mean, narrow * covariance), method="variational", num_samples=250)
    found = compare_slopes(draws, fit.coreset, DATA)
    assert found["gradient_kl"] == pytest.approx(exact_kl(fit), rel=1e-3, abs=1e-5)
    ratios = np.linalg.eigvals(np.linalg.inv(COVARIANCE) @ covariance).real
    assert found["gradient_khat"] == pytest.approx(1.0 - ratios.min(), abs=1e-3)


def test_too_few_draws_have_no_slopes():
    fit = problem(0.3)
    few = cvi.sample(fit, method="variational", num_samples=255, num_chains=1)
    assert compare_slopes(few, fit.coreset, DATA) == {}
    still = dataclasses.replace(few, flat=np.ones((1, 300, 3), np.float32))
    assert compare_slopes(still, fit.coreset, DATA) == {}


def test_a_full_posterior_without_a_peak_is_as_bad_as_can_be():
    # Two bumps at -3 and 3 for the data, one wide bump for the coreset: seen from 0, the former is a valley.
    def log_likelihood(params, x, y):
        at = params[0]
        bumps = jnp.logaddexp(-0.5 * (at - 3.0) ** 2, -0.5 * (at + 3.0) ** 2)
        return jnp.where(y > 0, 5.0 * bumps, -0.5 * at**2)

    model = cvi.models.FromCallables(lambda params: -0.05 * params[0] ** 2, log_likelihood, init=jnp.zeros(1))
    coreset, data = cvi.Dataset([[1.0]], [0]), cvi.Dataset([[1.0]], [1])
    flat = np.random.default_rng(0).standard_normal((1, 300, 1)).astype(np.float32)
    draws = Draws(flat, model, coreset, "nuts", np.zeros((1, 300)), {}, {})
    assert compare_slopes(draws, coreset, data) == {"gradient_kl": math.inf, "gradient_khat": 1.0}
    # And a coreset posterior that is no normal says nothing.
    assert compare_slopes(draws, data, coreset) == {}


# Distances


GENERATOR = np.random.default_rng(3)
NORMAL = GENERATOR.standard_normal((800, 2))
OTHER = GENERATOR.standard_normal((800, 2))


def test_moment_errors_of_known_moments():
    mean, covariance = np.array([3.0, 4.0]), np.diag([4.0, 1.0])
    found = discrepancies.moment_errors(
        mean + np.array([2.0, 0.0]), covariance * [[4.0], [1.0]], mean, covariance
    )
    assert found["mean_error"] == pytest.approx(2.0 / 5.0)
    assert found["covariance_error"] == pytest.approx(12.0 / math.sqrt(17.0))
    assert found["mean_squared_z"] == pytest.approx(0.5) and found["largest_squared_z"] == pytest.approx(1.0)
    assert found["largest_deviation_error"] == pytest.approx(1.0)
    # 0.5 (4 + 1 + 1 - 2 - log 4)
    assert found["gaussian_kl"] == pytest.approx(2.0 - 0.5 * math.log(4.0))


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_sliced_wasserstein_of_normals(shift, scale):
    # In d dimensions the projected shift has mean square shift^2 / d; the scaled part adds (scale - 1)^2.
    found = discrepancies.sliced_wasserstein(
        scale * NORMAL + np.array([shift, 0.0]), OTHER, np.random.default_rng(0)
    )
    expected = math.sqrt(shift**2 / 2 + (scale - 1.0) ** 2)
    assert abs(found - expected) < 0.12
    unequal = discrepancies.sliced_wasserstein(
        scale * NORMAL[:300] + [shift, 0.0], OTHER, np.random.default_rng(0)
    )
    assert abs(unequal - expected) < 0.2


def test_mmd_of_normals_has_a_closed_form():
    for shift in (0.5, 1.0, 3.0):
        shifted = NORMAL + np.array([shift, 0.0])
        # exp(-|x - y|^2 / width) for x - y ~ N(m, 2 I): width / (width + 4) exp(-m^2 / (width + 4)) in 2-D.
        width = np.median(discrepancies.squared_distances(shifted, OTHER))
        same, apart = (width / (width + 4) * math.exp(-(m**2) / (width + 4)) for m in (0.0, shift))
        # The unbiased estimate of the square has an error of about 4 sd(k) / sqrt(n).
        assert discrepancies.mmd(shifted, OTHER) ** 2 == pytest.approx(2 * (same - apart), abs=0.02)
    assert discrepancies.mmd(NORMAL, OTHER) < 0.05


def test_kernel_stein_grows_with_what_is_wrong():
    def stein(draws):
        return discrepancies.kernel_stein(draws, -draws)

    exact_draws = stein(NORMAL)
    # Diagonal of the kernel: |score|^2 + dim, 2 dim on average.
    assert exact_draws == pytest.approx(math.sqrt(4.0 / 800), rel=0.25)
    shifts = [stein(NORMAL + np.array([shift, 0.0])) for shift in (0.0, 0.3, 1.0, 3.0)]
    assert np.all(np.diff(shifts) > 0.05)
    assert stein(1.5 * NORMAL) > 3 * exact_draws and stein(0.5 * NORMAL) > 3 * exact_draws


def test_kernel_stein_is_the_sum_that_it_is_said_to_be():
    draws, scores = NORMAL[:4], OTHER[:4]
    k = lambda x, y: (1.0 + jnp.sum((x - y) ** 2)) ** -0.5  # noqa: E731
    grad_x, grad_y = jax.grad(k, 0), jax.grad(k, 1)
    total = 0.0
    for x, s in zip(draws, scores, strict=True):
        for y, t in zip(draws, scores, strict=True):
            total += s @ t * k(x, y) + s @ grad_y(x, y) + t @ grad_x(x, y)
            total += jnp.trace(jax.jacfwd(grad_y, 0)(jnp.asarray(x), jnp.asarray(y)))
    assert discrepancies.kernel_stein(draws, scores) == pytest.approx(math.sqrt(total / 16), rel=1e-4)


def test_the_whitener_undoes_units_and_correlations():
    covariance = np.array([[1.0, 900.0], [900.0, 1e6]])
    white = discrepancies.whitener(covariance)
    np.testing.assert_allclose(white.T @ covariance @ white, np.eye(2), atol=1e-8)
    flat = discrepancies.whitener(np.diag([1.0, 0.0]))
    assert flat.shape == (2, 1)


# The verdict


def numbers(khat=0.1, ess=0.5, kl=0.01, **others):
    return {"khat": khat, "khat_threshold": 0.7, "ess": ess, "kl": kl, **others}


GOOD = numbers()
VERDICTS = {
    "all good": (GOOD, GOOD, {}, False, "trust", "Trust it"),
    "at the threshold": (GOOD, numbers(kl=TRUST_KL), {}, False, "trust", "0.1 nats"),
    "kl": (GOOD, numbers(kl=0.11), {}, False, "correct", "coresetvi.correct"),
    "kl by slopes": (GOOD, numbers(gradient_kl=0.2), {}, False, "correct", "0.2 nats"),
    "khat": (GOOD, numbers(khat=0.71), {}, False, "enlarge", "does not cover"),
    "khat, even weights": (GOOD, numbers(khat=0.9, ess=0.97), {}, False, "trust", "k-hat 0.90"),
    "khat by slopes": (GOOD, numbers(gradient_khat=0.75), {}, False, "enlarge", "k-hat 0.75"),
    "slopes unknown": (GOOD, numbers(gradient_khat=math.nan), {}, False, "enlarge", "Enlarge"),
    "nothing known": (
        GOOD,
        numbers(khat=math.inf, ess=math.nan, kl=math.nan),
        {},
        False,
        "enlarge",
        "Enlarge",
    ),
    "infinite kl": (GOOD, numbers(kl=math.inf), {}, False, "correct", "inf nats"),
    "wrong r": (numbers(kl=0.5), GOOD, {}, False, "correct", "Fit.predict weights its draws"),
    "hopeless r": (numbers(kl=5.0, khat=1.0), GOOD, {}, False, "correct", r"coresetvi.sample\(fit\)"),
    "r does not matter": (numbers(kl=5.0, khat=1.0), GOOD, {}, True, "trust", "Trust"),
    "mixed": (GOOD, GOOD, {"r_hat": 1.049}, True, "trust", "Trust"),
    "not mixed": (GOOD, GOOD, {"r_hat": 1.06}, True, "unclear", "R-hat 1.06, above 1.05"),
    "parameters change places": (
        GOOD,
        GOOD,
        {"r_hat": 2.0, "r_hat_density": 1.01, "r_hat_ratio": 1.02, "r_hat_rows": 1.01},
        True,
        "trust",
        "Trust",
    ),
    "ratios not mixed": (
        GOOD,
        GOOD,
        {"r_hat": 1.0, "r_hat_density": 1.01, "r_hat_ratio": 1.2},
        True,
        "unclear",
        "R-hat 1.20",
    ),
    "mixing unknown": (GOOD, numbers(kl=9.0), {"r_hat": math.nan}, True, "unclear", "Unclear"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_follows_from_the_thresholds(name):
    r, posterior, chains, given, verdict, words = VERDICTS[name]
    found, sentence = judge(r, posterior, chains, given)
    assert found == verdict
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(sentence)


# Certificates of problems with known answers: (shift, width, direction, shift of r, width of r)
CALIBRATION = {
    "exact": ((), "trust"),
    "a little off": ((0.2, 1.1), "trust"),
    "a little narrow": ((0.0, 0.8), "trust"),
    "shifted": ((0.8,), "correct"),
    "too wide": ((0.0, 4.0), "correct"),
    "narrow": ((0.0, 0.55), "correct"),
    "much too narrow": ((0.0, 0.1), "enlarge"),
    "narrow in one direction": ((0.0, 0.05, 2), "enlarge"),
    "elsewhere": ((6.0,), "enlarge"),
    "r shifted": ((0.0, 1.0, None, 0.8), "correct"),
    "r too wide": ((0.0, 1.0, None, 0.0, 3.0), "correct"),
    "r too narrow, and draws with long tails take its place": ((0.0, 1.0, None, 0.0, 0.05), "correct"),
    "r too narrow and elsewhere, and chains take its place": ((0.0, 1.0, None, 3.0, 0.05), "correct"),
}


@functools.cache
def certified(*change):
    return cvi.diagnose(problem(*change), DATA, progress=False)


@pytest.mark.parametrize("name", CALIBRATION)
def test_the_verdict_is_right(name):
    change, verdict = CALIBRATION[name]
    found = certified(*change)
    assert found.verdict == verdict, found.sentence
    assert ("chains" in name) == bool(found.chains)


def test_slopes_see_what_weights_miss():
    """A posterior much too narrow, k-hat 0.85 in truth: by luck the weights of its draws may look good."""
    fit = problem(0.0, 0.15)
    draws = [cvi.sample(fit, method="importance", num_samples=250, key=key) for key in range(6)]
    found = [cvi.diagnose(fit, DATA, draws=one, key=key) for key, one in enumerate(draws)]
    assert {one.verdict for one in found} == {"enlarge"}
    assert min(one.posterior["khat"] for one in found) < 0.6


@pytest.mark.parametrize(
    "name", [name for name in CALIBRATION if name not in ("elsewhere", "much too narrow")]
)
def test_divergences_and_the_bound_are_exact(name):
    change, _ = CALIBRATION[name]
    fit, found = problem(*change), certified(*change)
    own = LINEAR.posterior(fit.coreset)
    kl, r_kl = exact_kl(fit), exact.gaussian_kl(*FullRank().moments(fit.psi), *own)
    # Weights of much narrower draws cannot know; slopes do.
    if found.posterior["gradient_khat"] < 0.5:
        assert abs(found.posterior["kl"] - kl) < MAX_Z * found.posterior["kl_error"] + 1e-5
    assert found.posterior["gradient_kl"] == pytest.approx(kl, rel=2e-3, abs=2e-5)
    if usable(found.r):
        assert abs(found.r["kl"] - r_kl) < MAX_Z * found.r["kl_error"] + 1e-5
    bound = LINEAR.log_evidence(DATA) - kl - r_kl
    assert abs(found.elbo["value"] - bound) < MAX_Z * found.elbo["error"] + 2e-3
    assert found.elbo["error"] < 0.5


def test_stated_errors_are_the_errors():
    """Over many keys, differences from the exact answers are as large as they are said to be."""
    # Of the draws of so wide an r few count, and those come several times.
    fit = problem(0.6, 0.9, None, 0.0, 25.0)
    kl = exact_kl(fit)
    bound = LINEAR.log_evidence(DATA) - kl
    bound -= exact.gaussian_kl(*FullRank().moments(fit.psi), *LINEAR.posterior(fit.coreset))
    found = [cvi.diagnose(fit, DATA, key=key) for key in range(40)]
    scores = [
        [
            (one.posterior["kl"] - kl) / one.posterior["kl_error"],
            (one.elbo["value"] - bound) / one.elbo["error"],
        ]
        for one in found
    ]
    spread = np.std(scores, axis=0)
    # 40 standard normal numbers have a deviation of 1 +- 0.11; careful errors are larger than need be.
    assert np.all(spread < 1.4) and np.all(spread > 0.35)
    assert np.all(np.abs(np.mean(scores, axis=0)) < 1.0)


@pytest.mark.parametrize("method", ["variational", "laplace", "importance"])
def test_the_bound_holds_whatever_the_draws_are_of(method):
    """Draws of r give the bound of r itself: log-evidence - KL(r || full posterior)."""
    change = (0.3, 1.0, None, 0.5, 1.3)
    fit = problem(*change)
    found = cvi.diagnose(fit, DATA, draws=draws_of(change, method), num_samples=2000)
    r, own = FullRank().moments(fit.psi), LINEAR.posterior(fit.coreset)
    apart = exact.gaussian_kl(*r, MEAN, COVARIANCE)
    if method != "variational":
        apart = exact_kl(fit) + exact.gaussian_kl(*r, *own)
    error = MAX_Z * found.elbo["error"]
    assert abs(found.elbo["value"] - (LINEAR.log_evidence(DATA) - apart)) < error


def test_a_certificate_says_everything():
    found = certified(0.8)
    weights = np.asarray(problem(0.8).coreset.weights, np.float64)
    share = weights / weights.sum()
    entropy = -np.sum(share * np.log(share))
    assert found.coreset == pytest.approx(
        {
            "size": 3,
            "weight_entropy": entropy,
            "effective_size": math.exp(entropy),
            "total_weight": weights.sum(),
        },
        rel=1e-5,
    )
    assert found.posterior["draws"] == 1000 and found.r["draws"] == 4000
    assert found.held_out == found.reference == found.chains == {}
    assert found.fit == {"result": "finished"}
    text = str(found)
    assert text.startswith("Use importance correction") and "gradient kl" in text and repr(found) == text
    assert max(map(len, text.splitlines()[1:])) < 100


@pytest.mark.parametrize("change", [(), (0.8,), (6.0,)], ids=str)
def test_a_certificate_is_strict_json(change):
    found = certified(*change)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["verdict"] == found.verdict
    assert set(again) == {field.name for field in dataclasses.fields(Certificate)}
    assert again["posterior"]["kl"] == found.posterior["kl"]
    # Weights that are all equal have the lightest tail, minus infinity.
    assert (again["r"]["khat"] is None) == (not math.isfinite(found.r["khat"]))


def test_scores_on_rows_are_those_of_the_draws():
    fit, draws = problem(0.3), draws_of((0.3,))
    held_out = cvi.Dataset(X[:20] + 0.1, Y[:20], np.linspace(1.0, 2.0, 20))
    found = cvi.diagnose(fit, DATA, draws=draws, held_out=held_out, num_samples=2000)
    expected = fit.evaluate(held_out, draws=draws)
    assert found.held_out == pytest.approx({"rows": 20, **expected}, rel=1e-5)
    assert found.train == pytest.approx({"rows": 200, **fit.evaluate(DATA, draws=draws)}, rel=1e-5)


def test_corrected_draws_are_scored_with_their_weights():
    """The verdict is about the coreset all the same."""
    fit, draws = problem(0.5, 1.3), draws_of((0.5, 1.3))
    corrected = cvi.correct(draws, DATA)
    plain, found = (cvi.diagnose(fit, DATA, draws=one, num_samples=2000) for one in (draws, corrected))
    assert found.posterior == pytest.approx(plain.posterior, rel=1e-3, abs=1e-4)
    assert found.train == pytest.approx({"rows": 200, **fit.evaluate(DATA, draws=corrected)}, rel=1e-4)
    assert found.train["nll"] < plain.train["nll"]


def test_a_correction_does_not_hide_how_the_draws_were_made():
    # r is far too narrow: importance sampling fails, and weighting by the data does not mend it.
    draws = draws_of((0.0, 1.0, None, 0.0, 0.05), "importance")
    assert draws.warnings == cvi.correct(draws, DATA).warnings != []


def test_a_reference_adds_distances_in_its_own_units():
    fit, draws = problem(0.8), draws_of((0.8,))
    reference = cvi.sample(problem(), method="variational", num_samples=500, key=9)
    found = cvi.diagnose(fit, DATA, reference, draws=draws).reference
    assert found["gaussian_kl"] == pytest.approx(0.32, abs=0.1)
    assert found["sliced_wasserstein"] == pytest.approx(0.8 / math.sqrt(3), abs=0.1)
    assert found["mmd"] > 0.15 and found["kernel_stein"] > 0.2
    # Against draws of the same posterior there is only noise.
    own = cvi.diagnose(fit, DATA, cvi.sample(fit, method="variational", num_samples=500, key=4), draws=draws)
    assert own.reference["gaussian_kl"] < 0.02 and own.reference["mmd"] < 0.05
    assert own.reference["sliced_wasserstein"] < 0.12
    # Units: a model of the same rows in other units, with the same draws in them.
    units = np.array([1e-3, 1.0, 1e3])
    scaled = LINEAR.check(cvi.Dataset(np.asarray(fit.coreset.x) * units, fit.coreset.y, fit.coreset.weights))
    scaled_draws, scaled_reference = (
        dataclasses.replace(one, flat=(one.flat / units).astype(np.float32), data=scaled)
        for one in (draws, reference)
    )
    again = diagnostics.compare(scaled_draws, scaled_reference, cvi.Dataset(X * units, Y), jax.random.key(0))
    before = diagnostics.compare(draws, reference, DATA, jax.random.key(0))
    for name in ("gaussian_kl", "sliced_wasserstein", "mmd", "largest_squared_z"):
        assert again[name] == pytest.approx(before[name], rel=0.02, abs=1e-3)


def test_the_reference_may_be_a_fit():
    fit = problem(0.8)
    found = cvi.diagnose(fit, DATA, problem(), draws=draws_of((0.8,))).reference
    assert found["gaussian_kl"] == pytest.approx(0.32, abs=0.1)


OTHER_MODEL = LinearRegression(2)
PAIR = cvi.Dataset(X[:, :2], Y)
POISSON = cvi.models.PoissonRegression(3)


def foreign(model, data, dim):
    flat = np.random.default_rng(0).standard_normal((1, 300, dim)).astype(np.float32)
    return Draws(flat, model, data, "nuts", np.zeros((1, 300)), {}, {})


DIAGNOSE_REFUSALS = {
    "draws of another size": (
        lambda: cvi.diagnose(problem(), DATA, draws=foreign(OTHER_MODEL, PAIR, 2)),
        "2 parameters",
    ),
    "draws of another model": (
        lambda: cvi.diagnose(problem(), DATA, draws=foreign(POISSON, DATA, 3)),
        "draws are of a PoissonRegression",
    ),
    "draws given the data": (
        lambda: cvi.diagnose(problem(), DATA, draws=foreign(LINEAR, DATA, 3)),
        "other rows than this fit's coreset.* reference=",
    ),
    "reference of another size": (
        lambda: cvi.diagnose(problem(), DATA, foreign(OTHER_MODEL, PAIR, 2)),
        "reference has 2 parameters",
    ),
    "columns": (lambda: cvi.diagnose(problem(), PAIR), r"shape \(2,\)"),
    "held-out columns": (lambda: cvi.diagnose(problem(), DATA, held_out=PAIR), r"shape \(2,\)"),
    "few draws": (lambda: cvi.diagnose(problem(), DATA, num_samples=10), "at least 100"),
}


@pytest.mark.parametrize("name", DIAGNOSE_REFUSALS)
def test_diagnose_refuses_with_one_sentence(name):
    call, words = DIAGNOSE_REFUSALS[name]
    with pytest.raises(InputError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_diagnoses_repeat_themselves():
    one, two = (cvi.diagnose(problem(0.3), DATA) for _ in range(2))
    assert one == two and one != cvi.diagnose(problem(0.3), DATA, key=1)


# Sizes


class Pretend:
    """Stands in for `fit` and `diagnose`: a KL for each size, and what was asked for."""

    def __init__(self, kls, verdict="trust", nlls=None, result="finished"):
        self.kls, self.verdict, self.nlls, self.result, self.asked = kls, verdict, nlls, result, []

    def fit(self, construction, model, data, *, key, initial=None, progress=None):
        if isinstance(construction, cvi.FullVI):
            return dataclasses.replace(by_hand(DATA), construction=construction)
        self.asked.append((construction.size, initial, tuple(np.asarray(jax.random.key_data(key)).tolist())))
        points = data.take(np.arange(construction.size)) if initial is None else initial
        return by_hand(points, result=self.result)

    def diagnose(self, fit, data, *, held_out, num_samples, key, progress):
        size = len(fit.coreset)
        posterior = {"kl": self.kls[size], "kl_error": 0.01, "khat": 0.1, "gradient_kl": 0.0}
        scores = {"nll": 1.0 if self.nlls is None else self.nlls[size]}
        return Certificate(self.verdict, "", {}, posterior, {}, {}, {}, {}, scores, {}, {})


@pytest.fixture
def pretend(monkeypatch):
    def arrange(*arguments, **options):
        stage = Pretend(*arguments, **options)
        monkeypatch.setattr(sizes, "fit", stage.fit)
        monkeypatch.setattr(sizes, "diagnose", stage.diagnose)
        return stage

    return arrange


def test_a_coreset_grows_until_it_is_good_enough(pretend):
    stage = pretend({10: 5.0, 20: 0.3, 40: 0.02, 80: 0.0})
    choice = cvi.choose_size(LINEAR, DATA, target_kl=0.05, key=0)
    assert choice.met and choice.size == 40 and choice.goal == "KL of at most 0.05 nats"
    assert [row["size"] for row in choice.tried] == [10, 20, 40]
    assert [row["kl"] for row in choice.tried] == [5.0, 0.3, 0.02]
    assert len({key for _, _, key in stage.asked}) == 3
    # Each begins with the points of the one before, in front, and the same total weight.
    assert stage.asked[0][1] is None
    for (_, before, _), (size, initial, _) in zip(stage.asked[1:], stage.asked[2:], strict=False):
        assert len(initial) == size
        np.testing.assert_array_equal(initial.x[: len(before)], before.x)
        assert float(initial.total_weight) == pytest.approx(float(before.total_weight), rel=1e-5)
        share = initial.weights[: len(before)] / before.weights
        np.testing.assert_allclose(share, 1.0 - sizes.NEW_SHARE * (size - len(before)) / size, rtol=1e-4)
    text = str(choice)
    assert text.startswith("Wanted: KL of at most 0.05 nats. 40 points do.") and len(text.splitlines()) == 6


def test_the_largest_size_may_not_be_enough(pretend):
    pretend({10: 5.0, 20: 3.0, 25: 2.0})
    choice = cvi.choose_size(LINEAR, DATA, key=0, max_size=25)
    assert not choice.met and choice.size == 25 and len(choice.tried) == 3
    assert "No size up to 25 does." in str(choice) and choice.goal == "KL of at most 0.1 nats"


@pytest.mark.parametrize(
    "verdict, met", [("trust", True), ("correct", True), ("enlarge", False), ("unclear", False)]
)
def test_a_small_divergence_is_not_enough_without_the_certificate(pretend, verdict, met):
    pretend({10: 0.01}, verdict)
    assert cvi.choose_size(LINEAR, DATA, key=0, max_size=10).met is met


def test_sizes_are_tried_in_order_and_once(pretend):
    pretend({5: 1.0, 7: 1.0, 9: 1.0})
    choice = cvi.choose_size(LINEAR, DATA, key=0, sizes=[9, 5, 7, 5])
    assert [row["size"] for row in choice.tried] == [5, 7, 9]


def test_no_size_is_larger_than_the_data():
    few = cvi.Dataset(X[:30], Y[:30], np.r_[np.ones(25), np.zeros(5)])
    assert sizes.series(None, 1000, few) == [10, 20, 25]
    assert sizes.series(None, 4, few) == [4]
    assert sizes.series([5, 40], 1000, DATA) == [5, 40]


def test_a_gap_of_predictions_may_be_the_goal(pretend):
    pretend({10: 9.0, 20: 9.0, 40: 9.0}, "enlarge", nlls={10: 2.0, 20: 1.2, 40: 1.07})
    best = by_hand(DATA).evaluate(DATA, correct=False)["nll"]
    assert 0.9 < best < 1.2
    choice = cvi.choose_size(LINEAR, DATA, nll_gap=0.15, key=0)
    assert choice.met and choice.goal == "NLL gap of at most 0.15"
    gaps = [row.get("gap", np.nan) for row in choice.tried]
    assert gaps[0] == pytest.approx(2.0 / best - 1.0)
    assert gaps[-1] <= 0.15 < gaps[-2]


def test_an_interrupted_fit_is_the_last(pretend):
    pretend({10: 9.0, 20: 0.0}, result="interrupted")
    choice = cvi.choose_size(LINEAR, DATA, key=0)
    assert not choice.met and choice.size == 10


def test_rows_of_a_larger_data_set_are_not_added_twice():
    part = cvi.Dataset(X, Y).take(np.arange(150, 190))
    coreset = part.take(np.arange(20))
    grown = sizes.grow(coreset, part, 40, cvi.BBSparseVI(20), LINEAR, jax.random.key(0))
    assert sorted(np.asarray(grown.indices).tolist()) == list(range(150, 190))


def test_soft_labels_grow_by_soft_labels():
    model = cvi.models.LogisticRegression(3)
    data = cvi.Dataset(X, (Y > 0).astype(int))
    soft = cvi.Dataset(X[:4], np.full((4, 2), 0.5), np.full(4, 50.0))
    grown = sizes.grow(soft, data, 8, cvi.BBPSVI(4, learn={"x", "y"}), model, jax.random.key(0))
    assert grown.y.shape == (8, 2) and np.all(np.asarray(grown.y).sum(axis=1) == 1.0)
    assert float(grown.total_weight) == pytest.approx(200.0, rel=1e-5)


SIZE_REFUSALS = {
    "two goals": ({"target_kl": 0.1, "nll_gap": 0.1}, "not both"),
    "zero": ({"target_kl": 0.0}, "target_kl must be positive, not 0.0"),
    "nan": ({"nll_gap": math.nan}, "nll_gap must be positive"),
    "no sizes": ({"sizes": []}, "sizes is empty"),
    "size zero": ({"sizes": [0, 5]}, "sizes must be a whole number"),
    "sizes beyond the data": ({"sizes": [300]}, "only 200 rows"),
    "max_size": ({"max_size": 0}, "max_size must be a whole number"),
    "sizeless": ({"construction": cvi.FullVI()}, "FullVI has no size to choose"),
}


@pytest.mark.parametrize("name", SIZE_REFUSALS)
def test_choose_size_refuses_with_one_sentence(name):
    options, words = SIZE_REFUSALS[name]
    with pytest.raises(InputError, match=words) as error:
        cvi.choose_size(LINEAR, DATA, key=0, **options)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_size_is_chosen_by_real_fits():
    """Fewer points than parameters cannot do; as many as three times the parameters can."""
    data = cvi.Dataset(X[:60], Y[:60])
    choice = cvi.choose_size(LINEAR, data, 0.2, sizes=[2, 8], key=0, progress=False)
    assert [row["size"] for row in choice.tried] == [2, 8] and choice.met
    assert choice.tried[0]["kl"] > 1.0 and choice.tried[0]["seconds"] > 0
    exact_answer = exact.gaussian_kl(*LINEAR.posterior(choice.fit.coreset), *LINEAR.posterior(data))
    assert exact_answer < 0.2 and choice.tried[1]["kl"] == pytest.approx(exact_answer, abs=0.05)


@pytest.mark.parametrize(
    "value, text", [(0.12345678, "0.1235"), (-12345.678, "-12,345.68"), (4000, "4,000"), ("word", "word")]
)
def test_numbers_are_short(value, text):
    assert certificate.shown(value) == text
