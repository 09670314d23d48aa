"""Objectives on the linear-Gaussian model, where posterior, evidence and every KL have closed forms."""

import math

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import coresetvi.models.sums
import coresetvi.objectives
from coresetvi._registry import decode, encode
from coresetvi.data import Dataset
from coresetvi.errors import InputError
from coresetvi.families import FullRank
from coresetvi.families.base import draw_noise
from coresetvi.inner import InnerInfo
from coresetvi.models.sums import log_likelihood_sums
from coresetvi.objectives import ImportanceElbo, SingleSampleElbo, UniformElbo
from coresetvi.outer.base import step_info

float64 = exact.float64
double = pytest.mark.usefixtures("float64")
OBJECTIVES = [ImportanceElbo(), UniformElbo(), SingleSampleElbo()]
every_objective = pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda part: type(part).__name__)
FAMILY = FullRank()
# From twice as many antithetic pairs as dimensions on, the noise has exact second moments, and a quadratic
# integrand no Monte-Carlo error.
MATCHED = (8, 72)
noise_of = jax.jit(draw_noise, static_argnums=(1, 2))
record = jax.jit(step_info)
SOLVED = InnerInfo(jnp.zeros(()), jnp.asarray(0), jnp.asarray(True))


def setting():
    """Model, data, and a coreset whose posterior is near that of the data but clearly not equal to it."""
    model, data = exact.rows("linear")
    coreset = Dataset(data.x[::2] + 0.05, data.y[::2], 2.0 * data.weights[::2])
    return model, data, coreset


def posterior_of(model, dataset):
    return exact.full_rank(*model.posterior(dataset))


def off_center(psi, shift=0.5, stretch=1.4):
    """Another member near `psi`: a proposal that is not the coreset posterior."""
    dim = psi["mean"].shape[0]
    return FAMILY.move(
        psi, {"mean": jnp.full(dim, shift), "factor": jnp.tril(jnp.full((dim, dim), math.log(stretch)))}
    )


def four_vectors(model, data, coreset, psi, noise):
    """`data, core, prior, proposal` for draws made of this noise, from scipy's densities."""
    mean, factor = np.asarray(psi["mean"]), np.asarray(psi["factor"])
    thetas = mean + np.asarray(noise) @ factor.T

    def of(rows):
        outputs = thetas @ np.asarray(rows.x).T
        return scipy.stats.norm.logpdf(np.asarray(rows.y), outputs, model.noise) @ np.asarray(rows.weights)

    prior = scipy.stats.norm.logpdf(thetas, scale=model.prior_scale).sum(1)
    proposal = exact.normal(mean, factor @ factor.T).logpdf(thetas).reshape(-1)
    return tuple(jnp.asarray(vector) for vector in (of(data), of(coreset), prior, proposal))


def value(objective, vectors):
    return float(jax.jit(objective.loss)(*vectors))


def kl(model, one, other):
    """KL between the exact posteriors of two data sets."""
    return exact.gaussian_kl(*model.posterior(one), *model.posterior(other))


@double
@pytest.mark.parametrize("num_samples", MATCHED)
def test_importance_elbo_at_the_coreset_posterior_is_its_kl_less_the_evidence(num_samples):
    model, data, coreset = setting()
    noise = noise_of(jax.random.key(0), num_samples, model.dim)
    vectors = four_vectors(model, data, coreset, posterior_of(model, coreset), noise)
    expected = kl(model, coreset, data) - model.log_evidence(data)
    assert kl(model, coreset, data) > 0.1
    assert value(ImportanceElbo(), vectors) == pytest.approx(expected, rel=1e-10)


@double
def test_importance_elbo_with_independent_draws_agrees_within_its_monte_carlo_error():
    model, data, coreset = setting()
    size = 20_000
    noise = jax.random.normal(jax.random.key(1), (size, model.dim))
    vectors = four_vectors(model, data, coreset, posterior_of(model, coreset), noise)
    expected = kl(model, coreset, data) - model.log_evidence(data)
    error = np.std(vectors[0] - vectors[1]) / math.sqrt(size)
    assert kl(model, coreset, data) > 20 * error
    assert abs(value(ImportanceElbo(), vectors) - expected) < exact.MAX_Z * error


@double
def test_importance_elbo_of_another_proposal_adds_its_kl_to_the_coreset_posterior():
    model, data, coreset = setting()
    size = 50_000
    psi = off_center(posterior_of(model, coreset))
    noise = jax.random.normal(jax.random.key(2), (size, model.dim))
    vectors = whole, core, prior, proposal = four_vectors(model, data, coreset, psi, noise)
    extra = exact.gaussian_kl(*FAMILY.moments(psi), *model.posterior(coreset))
    expected = kl(model, coreset, data) + extra - model.log_evidence(data)
    # Delta method for a self-normalised sum plus a mean.
    log_w = np.asarray(core + prior - proposal)
    weights = np.exp(log_w - log_w.max())
    weights /= weights.sum()
    residual = np.asarray(whole - core)
    influence = size * weights * (residual - weights @ residual) + log_w
    error = influence.std() / math.sqrt(size)
    assert extra > 20 * error
    assert abs(value(ImportanceElbo(), vectors) - expected) < exact.MAX_Z * error


@double
@pytest.mark.parametrize("num_samples", [1, 3, 10])
def test_a_coreset_that_is_the_data_has_no_kl_with_any_number_of_draws(num_samples):
    model, data, _ = setting()
    noise = jax.random.normal(jax.random.key(3), (num_samples, model.dim))
    vectors = four_vectors(model, data, data, posterior_of(model, data), noise)
    assert value(ImportanceElbo(), vectors) == pytest.approx(-model.log_evidence(data), rel=1e-11)


@double
@pytest.mark.parametrize("proposal_is", ["data posterior", "coreset posterior", "another"])
def test_uniform_elbo_is_the_classical_bound(proposal_is):
    model, data, coreset = setting()
    psi = {
        "data posterior": posterior_of(model, data),
        "coreset posterior": posterior_of(model, coreset),
        "another": off_center(posterior_of(model, data)),
    }[proposal_is]
    noise = noise_of(jax.random.key(4), MATCHED[0], model.dim)
    expected = exact.gaussian_kl(*FAMILY.moments(psi), *model.posterior(data)) - model.log_evidence(data)
    loss = value(UniformElbo(), four_vectors(model, data, coreset, psi, noise))
    assert loss == pytest.approx(expected, rel=1e-10)


@double
@every_objective
def test_gradient_with_respect_to_all_four_vectors_matches_finite_differences(objective):
    size = 1 if isinstance(objective, SingleSampleElbo) else 6
    vectors = [jnp.asarray(row) for row in np.random.default_rng(5).standard_normal((4, size))]
    gradient = np.concatenate(jax.jit(jax.grad(lambda four: objective.loss(*four)))(vectors))
    np.testing.assert_allclose(
        gradient, exact.finite_difference(lambda four: objective.loss(*four), vectors), atol=1e-9
    )


@double
@every_objective
def test_with_one_draw_every_objective_is_the_same(objective):
    vectors = [jnp.asarray([number]) for number in (-3.0, -50.0, 0.7, 1.1)]
    assert value(objective, vectors) == pytest.approx(3.0 - 0.7 + 1.1, rel=1e-12)


@double
@every_objective
def test_a_constant_added_to_core_changes_nothing(objective):
    vectors = [jnp.asarray(row) for row in np.random.default_rng(6).standard_normal((4, 5))]
    shifted = [vectors[0], vectors[1] + 17.0, *vectors[2:]]
    assert value(objective, shifted) == pytest.approx(value(objective, vectors), rel=1e-11)
    # The natural gradient centres its scores, and may because of this.
    slope = jax.jit(jax.grad(objective.loss, argnums=1))(*vectors)
    assert float(jnp.sum(slope)) == pytest.approx(0.0, abs=1e-12)


@every_objective
def test_an_objective_is_configuration_that_can_be_saved(objective):
    assert decode(encode(objective)) == objective


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: SingleSampleElbo(2), "exactly one sample"),
        (lambda: SingleSampleElbo(None), "exactly one sample"),
        (lambda: ImportanceElbo(0), "num_samples must be at least 1, not 0"),
        (lambda: UniformElbo(-3), "num_samples must be at least 1, not -3"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


# The record of a step


@double
def test_recorded_kl_is_half_the_variance_of_the_residual_under_the_coreset_posterior():
    model, data, coreset = setting()
    size = 50_000
    noise = jax.random.normal(jax.random.key(7), (size, model.dim))
    vectors = four_vectors(model, data, coreset, posterior_of(model, coreset), noise)
    info = record(0.0, *vectors, SOLVED)
    # data - core is quadratic with the difference of the two posteriors' natural parameters, so its variance
    # under N(m, C) is b'Cb + tr(ACAC) / 2 for slope b at m and curvature -A.
    mean, covariance = model.posterior(coreset)
    data_mean, data_covariance = model.posterior(data)
    precision, data_precision = np.linalg.inv(covariance), np.linalg.inv(data_covariance)
    slope = data_precision @ (data_mean - mean)
    product = (data_precision - precision) @ covariance
    expected = 0.5 * (slope @ covariance @ slope + 0.5 * np.trace(product @ product))
    residual = np.asarray(vectors[0] - vectors[1])
    error = 0.5 * np.std((residual - residual.mean()) ** 2) / math.sqrt(size)
    assert abs(float(info.kl) - expected) < exact.MAX_Z * error
    assert float(info.ess) == pytest.approx(1.0, rel=1e-9)


@double
@pytest.mark.parametrize("change", [1e-2, 1e-3])
def test_recorded_kl_tends_to_the_exact_one_where_it_is_small(change):
    model, data, _ = setting()
    near = Dataset(data.x, data.y, data.weights.at[3].multiply(1.0 + change))
    truth = kl(model, near, data)
    noise = noise_of(jax.random.key(8), 20_000, model.dim)
    vectors = four_vectors(model, data, near, posterior_of(model, near), noise)
    info = record(0.0, *vectors, SOLVED)
    residual = np.asarray(vectors[0] - vectors[1])
    error = 0.5 * np.std((residual - residual.mean()) ** 2) / math.sqrt(residual.size)
    # Beyond the second order the KL differs by a relative change of the same size as the residual.
    assert abs(float(info.kl) - truth) < exact.MAX_Z * error + truth * 2.0 * residual.std()


# Sums over rows and draws


@double
@pytest.mark.parametrize("block", [1, 7, 20, 39, 40, 1000])
@pytest.mark.parametrize("model_name", ["linear", "softmax"])
def test_sums_in_blocks_count_every_row_once(monkeypatch, model_name, block):
    model, data = exact.rows(model_name)
    thetas = jax.random.normal(jax.random.key(9), (3, model.dim))
    monkeypatch.setattr(coresetvi.models.sums, "BLOCK_NUMBERS", block * 3)
    sums = jax.jit(lambda thetas: log_likelihood_sums(model, thetas, data))(thetas)
    by_row = jax.vmap(lambda theta: model.log_likelihood(theta, data.x, data.y))(thetas)
    np.testing.assert_allclose(sums, np.asarray(by_row) @ np.asarray(data.weights), rtol=1e-12)
