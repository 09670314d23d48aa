"""Draws of posteriors: every sampler against exact answers, and what is said about the draws."""

import dataclasses
import functools
import math
from typing import Any

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
import scipy.special

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.families import MeanField, draws
from coresetvi.families.draws import Draws
from coresetvi.families.mixing import chain_measures
from coresetvi.models import LinearRegression, PoissonRegression
from coresetvi.posterior import chains
from coresetvi.posterior import smc as tempering

pytestmark = pytest.mark.usefixtures("quick_compilation")
MAX_Z = exact.MAX_Z

# One shape for every linear problem: the programs of the samplers are then compiled once for all of them.
ROWS, CHAINS, SAMPLES, WARMUP = 40, 4, 500, 300
COUNTS = {"num_samples": SAMPLES, "num_chains": CHAINS, "num_warmup": WARMUP, "progress": False}
# Particles are many chains at once, which takes longer.
SMC_COUNTS = {**COUNTS, "num_samples": SAMPLES // 4}


def counts(method):
    return SMC_COUNTS if method == "smc" else COUNTS


LINEAR = LinearRegression(3, noise=0.7)
MIXING = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.5, 1.0]])
X = np.random.default_rng(0).standard_normal((ROWS, 3)) @ MIXING.T
Y = X @ [1.0, -1.0, 0.5] + 0.7 * np.random.default_rng(1).standard_normal(ROWS)
WEIGHTS = np.linspace(0.2, 2.0, ROWS)


CORESET = cvi.Dataset(X, Y, WEIGHTS)
MEAN, COVARIANCE = LINEAR.posterior(CORESET)
DEVIATION = np.sqrt(np.diag(COVARIANCE))
FULL_RANK = exact.fit_by_hand(LINEAR, CORESET, exact.full_rank(MEAN, COVARIANCE))
# Without correlations, and a little off.
WIDTH, OFF_MEAN = 1.2 * DEVIATION, MEAN + 0.2 * DEVIATION
MEAN_FIELD = exact.fit_by_hand(
    LINEAR, CORESET, MeanField().init(jnp.asarray(OFF_MEAN), jnp.asarray(WIDTH)), MeanField()
)
TARGETS = {"full rank": FULL_RANK, "mean field": MEAN_FIELD, "model and data": (LINEAR, CORESET)}


@functools.cache
def drawn(method, target, key=0):
    return cvi.sample(TARGETS[target], method=method, key=key, **counts(method))


def assert_moments(drawn, mean, covariance):
    """Means and second moments within MAX_Z standard errors of what they should be."""
    # In units of the true deviations, so that float32 has digits for every product.
    scale = np.sqrt(np.diag(covariance))
    z = (np.asarray(drawn.flat, np.float64) - mean) / scale
    first, second = np.triu_indices(len(mean))
    columns = np.concatenate([z, z[..., first] * z[..., second]], axis=-1)
    truth = np.r_[np.zeros(len(mean)), (covariance / np.outer(scale, scale))[first, second]]
    number = drawn.flat.shape[0] * drawn.flat.shape[1]
    if drawn.stats:
        effective = np.minimum(chain_measures(columns)[1], number)
        assert np.min(effective) > 200
    elif "proposals" in drawn.about:
        effective = min(number, drawn.about["proposals"] * drawn.about["ess"])
    else:
        # Particles that were drawn anew and then moved are nearly, not quite, independent.
        effective = number / 2 if drawn.method == "smc" else number
    errors = columns.std(axis=(0, 1)) / np.sqrt(np.asarray(effective))
    scores = (columns.mean(axis=(0, 1)) - truth) / errors
    assert np.abs(scores).max() < MAX_Z


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", ["nuts", "hmc", "importance", "smc", "laplace"])
def test_draws_have_the_moments_of_the_exact_posterior(method, target):
    found = drawn(method, target)
    shape = (CHAINS, counts(method)["num_samples"])
    assert found.flat.shape == (*shape, 3) and found.log_density.shape == shape
    assert found.method == method and found.about["seconds"] > 0
    np.testing.assert_allclose(found.params["coef"], found.flat)
    if method in ("nuts", "hmc"):
        assert found.mixing()["r_hat"] < 1.02 and found.mixing()["divergent"] == 0.0
        assert not [words for words in found.warnings if "mixed" in words or "diverged" in words]
    else:
        assert not found.warnings
    assert_moments(found, MEAN, COVARIANCE)


def test_variational_draws_are_those_of_r_and_nothing_better():
    found = drawn("variational", "mean field")
    assert_moments(found, OFF_MEAN, np.diag(WIDTH**2))
    with pytest.raises(AssertionError):
        assert_moments(found, MEAN, COVARIANCE)
    # For a model with data r is Laplace's normal, which is exact here.
    assert_moments(drawn("variational", "model and data"), MEAN, COVARIANCE)


@pytest.mark.parametrize("method", ["nuts", "hmc", "importance", "smc"])
def test_the_log_density_is_that_of_the_posterior_up_to_a_constant(method):
    found = drawn(method, "full rank")
    gaps = found.flat - MEAN
    expected = -0.5 * np.einsum("csd,de,cse->cs", gaps, np.linalg.inv(COVARIANCE), gaps)
    differences = found.log_density - expected
    np.testing.assert_allclose(differences, differences[0, 0], atol=2e-3)


def test_the_log_density_of_variational_draws_is_that_of_r():
    found = drawn("variational", "mean field")
    expected = np.sum(-0.5 * ((found.flat - OFF_MEAN) / WIDTH) ** 2 - np.log(WIDTH), axis=-1)
    np.testing.assert_allclose(found.log_density, expected - 1.5 * math.log(2 * math.pi), atol=1e-3)


SCALES = {
    "columns": (np.array([1e-3, 1.0, 1e3]), 1.0),
    "weights": (np.ones(3), 1e6 / WEIGHTS.sum()),
    "both": (np.array([1.0, 1e3, 1e4]), 1e6 / WEIGHTS.sum()),
}


@pytest.mark.parametrize(
    "method, name",
    [("nuts", "columns"), ("nuts", "weights"), ("nuts", "both"), ("smc", "columns"), ("smc", "both")],
)
def test_extreme_scales(method, name):
    columns, weight = SCALES[name]
    data = cvi.Dataset(X * columns, Y, WEIGHTS * weight)
    mean, covariance = LINEAR.posterior(data)
    deviation = np.sqrt(np.diag(covariance))
    assert deviation.min() < 2e-3
    # An r that is off by a third of a deviation.
    fit = exact.fit_by_hand(LINEAR, data, exact.full_rank(mean + deviation / 3, covariance))
    found = cvi.sample(fit, method=method, key=1, **counts(method))
    assert_moments(found, mean, covariance)


def test_nearly_collinear_columns_do_not_stop_a_chain():
    # The covariance of r, rounded to float32, has no Cholesky factor.
    copies = cvi.Dataset(np.column_stack([X[:, 0]] * 3), X[:, 0], np.full(ROWS, 1e6))
    mean, covariance = LINEAR.posterior(copies)
    fit = exact.fit_by_hand(LINEAR, copies, exact.full_rank(mean, covariance))
    found = cvi.sample(fit, **COUNTS)
    assert found.mixing()["ess_bulk"] > 200
    sums = found.flat.sum(axis=-1)
    assert abs(sums.mean() - 1.0) < 1e-3
    np.testing.assert_allclose(np.diag(found.covariance), np.diag(covariance), rtol=0.25)


# A posterior that is not normal


POISSON = PoissonRegression(1)
EVENTS = cvi.Dataset([[1.0], [2.0], [0.5], [3.0]], [0, 0, 1, 0])


@functools.cache
def quadrature():
    """Mean and deviation of theta under the posterior of `EVENTS`, and its third standardised moment."""
    grid = np.linspace(-12.0, 8.0, 40_001)
    x, y = np.asarray(EVENTS.x, np.float64)[:, 0], np.asarray(EVENTS.y)
    rate = np.outer(grid, x)
    joint = (y * rate - np.exp(rate)).sum(axis=1) - 0.5 * grid**2
    density = np.exp(joint - scipy.special.logsumexp(joint))
    mean = density @ grid
    deviation = math.sqrt(density @ (grid - mean) ** 2)
    return mean, deviation, density @ ((grid - mean) / deviation) ** 3


@functools.cache
def skewed_fit(shift=0.2):
    mean, deviation, _ = quadrature()
    return exact.fit_by_hand(POISSON, EVENTS, exact.full_rank([mean + shift], [[1.3 * deviation**2]]))


def compilations(caplog, name=""):
    """What was said about programs of that name when they were compiled."""
    said = [record.getMessage() for record in caplog.records]
    return [words for words in said if words.startswith(f"Compiling jit({name}")]


@functools.cache
def skewed(method, shift=0.2, **changes):
    return cvi.sample(skewed_fit(shift), method=method, key=3, **{**COUNTS, **changes})


def assert_skewed(found):
    """Three moments within MAX_Z of their standard errors, which are returned."""
    mean, deviation, skewness = quadrature()
    z = (found.flat[:, :SAMPLES] - mean) / deviation
    powers = np.concatenate([z, z**2, z**3], axis=-1)
    effective = np.full(3, z.size / 2)
    if found.stats:
        effective = np.minimum(np.asarray(chain_measures(powers)[1]), z.size)
    errors = powers.std(axis=(0, 1)) / np.sqrt(effective)
    scores = (powers.mean(axis=(0, 1)) - [0.0, 1.0, skewness]) / errors
    assert np.abs(scores).max() < MAX_Z
    return errors


@pytest.mark.parametrize("method", ["nuts", "hmc", "smc", "importance"])
def test_a_skewed_posterior_agrees_with_quadrature(method):
    errors = assert_skewed(skewed(method, num_samples=SAMPLES // 2) if method == "smc" else skewed(method))
    # The test can tell this posterior from the normal with its moments.
    assert abs(quadrature()[2]) > 2.5 * errors[2]


# The random stream, chunks, compilation


@pytest.mark.parametrize("method", ["nuts", "hmc", "smc", "importance", "variational", "laplace"])
def test_draws_follow_the_key_and_nothing_else(method):
    first = drawn(method, "full rank")
    again = cvi.sample(FULL_RANK, method=method, key=jax.random.key(0), **counts(method))
    np.testing.assert_array_equal(first.flat, again.flat)
    np.testing.assert_array_equal(first.log_density, again.log_density)
    other = drawn(method, "full rank", key=1)
    # A few numbers of float32 may agree by chance, no draw does.
    assert not np.any(np.all(first.flat == other.flat, axis=-1))
    assert np.intersect1d(first.flat, other.flat).size < 10


def test_the_key_of_a_fit_is_its_own():
    sample = functools.partial(cvi.sample, method="variational", num_samples=SAMPLES)
    np.testing.assert_array_equal(sample(FULL_RANK).flat, sample(FULL_RANK).flat)
    other = dataclasses.replace(FULL_RANK, key=jax.random.key(1))
    assert not np.array_equal(sample(FULL_RANK).flat, sample(other).flat)
    # Nor are they the draws that predictions are made of.
    assert np.intersect1d(sample(FULL_RANK).flat, FULL_RANK.draws(2000)[0]).size < 10


def test_chunks_do_not_matter_and_are_one_program(monkeypatch, caplog):
    default = skewed("hmc")
    # 22 transitions do not divide 800.
    monkeypatch.setattr(chains, "NUM_CHUNKS", 37)
    with jax.log_compiles():
        other = skewed.__wrapped__("hmc")
    assert len(compilations(caplog, "advance")) == 1
    np.testing.assert_allclose(default.flat, other.flat, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(default.stats["num_steps"], other.stats["num_steps"])


@pytest.mark.parametrize("method", ["nuts", "hmc", "smc", "importance", "variational", "laplace"])
def test_a_fit_of_the_same_shapes_compiles_nothing(method, caplog):
    first = drawn(method, "full rank")
    data = cvi.Dataset(-X, Y + 1.0, WEIGHTS[::-1])
    mean, covariance = LINEAR.posterior(data)
    other = exact.fit_by_hand(LINEAR, data, exact.full_rank(mean, 1.5 * covariance))
    with jax.log_compiles():
        second = cvi.sample(other, method=method, key=5, **counts(method))
    assert compilations(caplog) == []
    assert not np.array_equal(first.flat, second.flat)


def test_without_warm_up_the_frame_is_trusted():
    found = skewed("hmc", num_samples=SAMPLES + WARMUP, num_warmup=0)
    assert found.flat.shape == (CHAINS, SAMPLES + WARMUP, 1) and found.about["step_size"] == [1.0] * CHAINS
    assert_skewed(found)


def test_particles_may_move_in_batches_of_one_program(monkeypatch, caplog):
    # 800 particles on 4 rows, 200 at a time.
    monkeypatch.setattr(tempering, "BATCH_NUMBERS", 4 * 200)
    with jax.log_compiles():
        found = skewed("smc", shift=1.5, num_samples=200)
    assert len(found.about["temperatures"]) > 1
    assert len(compilations(caplog, "next_temperature")) == 1
    assert_skewed(found)


# What is said about draws


def made_up(flat, model=None, data=None, **changes):
    """Draws that no sampler made; as of chains unless `stats` says otherwise."""
    flat = np.asarray(flat, np.float32)
    model = LinearRegression(flat.shape[-1]) if model is None else model
    data = cvi.Dataset(np.ones((1, flat.shape[-1])), [0.0]) if data is None else data
    stats = {"divergent": np.zeros(flat.shape[:2], bool)}
    fields = {"method": "nuts", "log_density": np.zeros(flat.shape[:2]), "stats": stats, "about": {}}
    return Draws(flat, model, data, **{**fields, **changes})


NORMAL = np.random.default_rng(5).standard_normal((CHAINS, SAMPLES, 3))


def slow_chains(memory):
    """NORMAL, but the last parameter remembers where it was."""
    slow = NORMAL.copy()
    for step in range(1, SAMPLES):
        slow[:, step, 2] = memory * slow[:, step - 1, 2] + math.sqrt(1 - memory**2) * slow[:, step, 2]
    return slow


def test_chains_that_are_stuck_apart_are_found():
    apart = NORMAL.copy()
    apart[0, :, 1] += 1.5
    assert made_up(NORMAL).mixing()["r_hat"] < 1.01 and not made_up(NORMAL).warnings
    found = made_up(apart)
    assert found.mixing()["r_hat"] > 1.1
    assert any("have not mixed (R-hat 1." in words for words in found.warnings)
    by_name = {row["name"]: row["r_hat"] for row in found.summary()}
    assert by_name["coef[1]"] == pytest.approx(found.mixing()["r_hat"])
    assert by_name["coef[0]"] < 1.01 and by_name["coef[2]"] < 1.01


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_parameter_that_never_moved_is_not_passed_over(index):
    still = NORMAL.copy()
    still[..., index] = 2.0
    found = made_up(still)
    assert math.isnan(found.mixing()["r_hat"]) and found.mixing()["ess_bulk"] < 1
    assert found.warnings


def test_mixing_and_summary_agree_with_arviz():
    arviz = pytest.importorskip("arviz")
    found = made_up(slow_chains(0.9))
    rows = found.summary()
    for index, row in enumerate(rows):
        column = found.flat[..., index]
        assert row["r_hat"] == pytest.approx(float(arviz.rhat(column)), abs=1e-3)
        assert row["ess_bulk"] == pytest.approx(float(arviz.ess(column, method="bulk")), rel=0.03)
        assert row["ess_tail"] == pytest.approx(float(arviz.ess(column, method="tail")), rel=0.05)
        assert row["mean"] == pytest.approx(column.mean(), abs=1e-5)
        assert row["sd"] == pytest.approx(column.std(), rel=1e-5)
        assert [row["5%"], row["95%"]] == pytest.approx(np.quantile(column, [0.05, 0.95]), abs=0.01)
    worst = found.mixing()
    assert worst["ess_bulk"] == min(row["ess_bulk"] for row in rows) < 300
    assert worst["r_hat"] == max(row["r_hat"] for row in rows)


@pytest.mark.parametrize("number", [1, 3])
def test_too_few_draws_to_judge_are_said_to_be(number):
    found = made_up(NORMAL[:, :number])
    assert math.isnan(found.mixing()["r_hat"]) and found.warnings
    assert len(found.summary()) == 3


WARNINGS = {
    "few effective": (made_up(slow_chains(0.75)), "only [23]"),
    "divergent": (
        made_up(NORMAL, stats={"divergent": np.eye(CHAINS, SAMPLES) > 0}),
        "0.2% of the transitions",
    ),
    "uneven": (
        made_up(NORMAL, stats={}, about={"khat": 0.9, "khat_threshold": 0.7, "ess": 0.2}),
        r"k-hat 0.90, above 0.70\); use method='smc' or 'nuts'.",
    ),
    "uneven after correction": (
        made_up(NORMAL, stats={}, about={"drawn": {}, "khat": 0.9, "khat_threshold": 0.7, "ess": 0.2}),
        "weights of the data are .* larger coreset",
    ),
    "uneven before correction": (
        made_up(
            NORMAL,
            stats={},
            about={
                "drawn": {"khat": 0.8, "khat_threshold": 0.7, "ess": 0.2},
                "khat": 0.1,
                "khat_threshold": 0.7,
                "ess": 0.9,
            },
        ),
        "k-hat 0.80, above 0.70.*'nuts'",
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings(name):
    found, words = WARNINGS[name]
    assert len(found.warnings) == 1
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.warnings[0])


def test_no_warning_without_reason():
    assert made_up(NORMAL, stats={}).warnings == [] and made_up(NORMAL, stats={}).mixing() == {}
    even = made_up(NORMAL, stats={}, about={"khat": 0.9, "khat_threshold": 0.7, "ess": 0.99})
    assert even.warnings == []


def test_parameters_go_by_the_names_of_the_user():
    case = registry.MODELS["callables"]
    flat = np.arange(24.0).reshape(2, 4, 3)
    found = made_up(flat, model=case.model, data=case.data, stats={})
    assert set(found.named()) == {"slope", "log_noise"}
    assert found.params["slope"].shape == (2, 4, 2) and found.params["log_noise"].shape == (2, 4)
    one = case.model.params(jnp.asarray(flat[1, 2], jnp.float32))
    np.testing.assert_array_equal(found.params["slope"][1, 2], one["slope"])
    assert {row["name"] for row in found.summary()} == {"slope[0]", "slope[1]", "log_noise"}
    named = cvi.Dataset(np.ones((1, 2)), [0.0], columns=["age", "height"])
    found = made_up(flat, model=LinearRegression(2, intercept=True), data=named, stats={})
    assert [row["name"] for row in found.summary()] == ["coef[age]", "coef[height]", "intercept"]


# Weights


def weighted(seed=0):
    """Draws of N(0, I) with the weights that make them draws of N(0.5, I)."""
    log_w = 0.5 * NORMAL.sum(axis=-1)
    log_w -= scipy.special.logsumexp(log_w)
    return made_up(NORMAL, stats={}, log_weights=log_w)


def test_weighted_moments_and_quantiles():
    found = weighted()
    effective = 1.0 / np.sum(found.weights**2)
    assert np.all(np.abs(found.mean - 0.5) < MAX_Z / math.sqrt(effective))
    assert np.all(np.abs(np.diag(found.covariance) - 1.0) < MAX_Z * math.sqrt(2.0 / effective))
    row = found.summary()[0]
    # Density 0.103 at the 5 % quantile: error sqrt(0.05 * 0.95 / n) / 0.103.
    error = math.sqrt(0.05 * 0.95 / effective) / 0.103
    assert abs(row["5%"] - (0.5 - 1.645)) < MAX_Z * error and abs(row["95%"] - (0.5 + 1.645)) < MAX_Z * error
    assert "r_hat" not in row


def test_resampling_conserves_the_moments():
    found = weighted()
    plain = found.resample(key=1)
    assert plain.log_weights is None and plain.flat.shape == found.flat.shape
    # Systematic resampling adds less noise than there is in the draws.
    error = 1.0 / math.sqrt(1.0 / np.sum(found.weights**2))
    np.testing.assert_allclose(plain.mean, found.mean, atol=error)
    np.testing.assert_allclose(plain.covariance, found.covariance, atol=2 * error)
    # Every draw is there as often as its weight says, give or take one.
    rows, counts = np.unique(plain.flat.reshape(-1, 3), axis=0, return_counts=True)
    heaviest = np.argmax(found.weights.ravel())
    times = counts[np.all(rows == found.flat.reshape(-1, 3)[heaviest], axis=1)][0]
    assert abs(times - found.weights.max() * found.weights.size) <= 1
    # No chain has more than its share of them.
    assert plain.flat.mean(axis=1).std(axis=0).max() < 0.2
    assert found.resample(key=2).flat.tolist() != plain.flat.tolist()
    unweighted = made_up(NORMAL)
    assert unweighted.resample() is unweighted


def test_arviz_gets_the_same_numbers():
    arviz = pytest.importorskip("arviz")
    found = drawn("nuts", "full rank")
    data = found.to_arviz()
    np.testing.assert_array_equal(data.posterior["coef"].values, found.flat)
    np.testing.assert_array_equal(data.sample_stats["lp"].values, found.log_density)
    np.testing.assert_array_equal(data.sample_stats["diverging"].values, found.stats["divergent"])
    rows = found.summary()
    r_hat, ess = arviz.rhat(data)["coef"].values, arviz.ess(data)["coef"].values
    assert r_hat == pytest.approx([row["r_hat"] for row in rows], abs=1e-3)
    assert ess == pytest.approx([row["ess_bulk"] for row in rows], rel=0.03)


def test_arviz_gets_weighted_draws_without_their_weights():
    pytest.importorskip("arviz")
    found = weighted()
    posterior = found.to_arviz().posterior["coef"].values
    np.testing.assert_array_equal(posterior, found.resample().flat)
    assert np.abs(posterior.mean(axis=(0, 1)) - 0.5).max() < 0.2


# Predictions


NEW_X = np.random.default_rng(7).standard_normal((6, 3))


@pytest.mark.parametrize("weights", [False, True])
def test_predictions_with_draws_are_averages_over_them(weights):
    found = weighted() if weights else drawn("variational", "full rank")
    found = dataclasses.replace(found, model=LINEAR)
    thetas, w = found.flat.reshape(-1, 3).astype(np.float64), found.weights.ravel()
    means = thetas @ NEW_X.T
    mean, variance = FULL_RANK.predict(NEW_X, draws=found, variance=True)
    np.testing.assert_allclose(mean, w @ means, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(variance, 0.49 + w @ (means - w @ means) ** 2, rtol=1e-3)
    by_draw, returned = FULL_RANK.predict(NEW_X, draws=found, samples=True)
    np.testing.assert_allclose(by_draw, means, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returned, w, rtol=1e-5)
    y = np.linspace(-1.0, 1.0, 6)
    scores = FULL_RANK.evaluate(cvi.Dataset(NEW_X, y, np.arange(1.0, 7.0)), draws=found)
    density = np.exp(-0.5 * ((y - means) / 0.7) ** 2) / (0.7 * math.sqrt(2 * math.pi))
    assert scores["nll"] == pytest.approx(
        -np.average(np.log(w @ density), weights=np.arange(1.0, 7.0)), rel=1e-4
    )
    rmse = math.sqrt(np.average((y - w @ means) ** 2, weights=np.arange(1.0, 7.0)))
    assert scores["rmse"] == pytest.approx(rmse, rel=1e-4)


def test_predictions_with_draws_of_classes_are_average_probabilities():
    case = registry.MODELS["softmax"]
    fit = exact.fit_by_hand(
        case.model, case.data, exact.full_rank(np.zeros(case.model.dim), np.eye(case.model.dim))
    )
    found = cvi.sample(fit, method="variational", num_samples=20, num_chains=2)
    x = jnp.asarray(registry.X[:5], jnp.float32)
    by_hand_mean = np.mean(
        [case.model.moments(jnp.asarray(theta), x)[0] for theta in found.flat.reshape(-1, case.model.dim)], 0
    )
    np.testing.assert_allclose(fit.predict(registry.X[:5], draws=found), by_hand_mean, rtol=1e-5)


# Refusals


# What a type checker refuses too, past it.
FIT: Any = FULL_RANK
ALONE: Any = LINEAR
REFUSALS = {
    "method": (
        lambda: cvi.sample(FULL_RANK, method="gibbs"),
        "method must be one of nuts, hmc, .* not 'gibbs'",
    ),
    "no draws": (lambda: cvi.sample(FULL_RANK, num_samples=0), "num_samples must be a whole number"),
    "no chains": (lambda: cvi.sample(FULL_RANK, num_chains=0), "num_chains must be a whole number"),
    "warm-up": (lambda: cvi.sample(FULL_RANK, num_warmup=-1), "num_warmup must be .* at least 0"),
    "fit and data": (lambda: cvi.sample(FIT, CORESET), r"write sample\(fit.model, data\)"),
    "model alone": (lambda: cvi.sample(ALONE), "takes a Fit, or a model and a Dataset"),
    "columns": (lambda: cvi.sample(LINEAR, cvi.Dataset(X[:, :2], Y)), r"shape \(2,\)"),
    "counts": (lambda: cvi.sample(POISSON, cvi.Dataset([[1.0]], [-1])), "no count"),
    "predict": (
        lambda: FULL_RANK.predict(NEW_X, draws=made_up(NORMAL[..., :2])),
        "draws have 2 parameters, but the model of this fit has 3",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_one_sentence(name):
    call, words = REFUSALS[name]
    with pytest.raises(InputError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_posterior_without_a_mode_is_refused_where_one_is_needed():
    flat = cvi.models.FromCallables(
        lambda params: 0.5 * jnp.sum(params**2) * 0.0 + params[0],
        lambda params, x, y: 0.0 * x[:, 0] * params[0],
        init=jnp.zeros(1),
    )
    with pytest.raises(InputError, match="no proper mode"):
        cvi.sample(flat, cvi.Dataset([[1.0]], [1.0]), method="importance")


def test_a_draw_at_which_the_model_breaks_down_has_no_weight():
    model = cvi.models.FromCallables(
        lambda params: -0.5 * jnp.sum(params**2),
        # NaN for one draw in six.
        lambda params, x, y: jnp.where(params[0] > 1.0, jnp.nan, -0.5 * (y - x[:, 0] * params[0]) ** 2),
        init=jnp.zeros(1),
    )
    fit = exact.fit_by_hand(model, cvi.Dataset([[1.0]], [0.0]), exact.full_rank([0.0], [[1.0]]))
    found = cvi.sample(fit, method="importance", num_samples=500, num_chains=4)
    assert found.flat.max() <= 1.0 and found.flat.std() > 0.3
    assert len(np.unique(found.flat)) > 500


def test_names_of_paths():
    tree = {"layers": [{"weight": 1.0}], "bias": 2.0}
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    assert [draws.path_name(path) for path, _ in paths] == ["bias", "layers.0.weight"]
    assert draws.path_name(()) == "theta"


def test_points_with_soft_labels_are_drawn_from_as_the_rows_that_they_stand_for():
    """A soft label counts as one row per class, of the weight that it gives to the class."""
    generator = np.random.default_rng(0)
    x, chances = generator.normal(size=(12, 2)), generator.dirichlet(np.ones(3), 12)
    model = cvi.models.SoftmaxRegression(2, 3)
    soft = cvi.Dataset(x, chances, np.full(12, 4.0))
    rows = cvi.Dataset(np.repeat(x, 3, axis=0), np.tile(np.arange(3), 12), 4.0 * chances.ravel())
    one, other = (cvi.sample(model, data, method="laplace", num_samples=50) for data in (soft, rows))
    assert np.allclose(one.flat, other.flat, atol=1e-3)
    with pytest.raises(InputError, match="Labels must be one number"):
        cvi.sample(model, cvi.Dataset(x, chances[:, :2]))
