"""Models: densities against scipy and numpyro, conjugate answers, and what is refused in which words."""

import math
from collections.abc import Callable
from typing import NamedTuple

import exact
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from jax.flatten_util import ravel_pytree

import coresetvi
import coresetvi.models.base
import coresetvi.models.glm
import coresetvi.models.nets
from coresetvi._registry import decode, encode
from coresetvi.data import Dataset
from coresetvi.errors import InputError
from coresetvi.models import (
    BayesianMLP,
    FromCallables,
    LinearRegression,
    LogisticRegression,
    Model,
    PoissonRegression,
    SoftmaxRegression,
)
from coresetvi.models.base import soft_log_likelihood

float64 = exact.float64
double = pytest.mark.usefixtures("float64")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((7, 3))
BINARY = np.array([0, 1, 1, 0, 1, 0, 0])
CLASSES = np.array([0, 1, 2, 3, 2, 1, 0])
COUNTS = np.array([0, 1, 5, 2, 0, 3, 12])
VALUES = GENERATOR.standard_normal(7)


# The reference: numpy from the user's own parameters to the distribution of a row, in numpyro's words.


def linear_output(params, x):
    return x @ params["coef"] + params.get("intercept", 0.0)


def network_output(activate):
    def output(params, x):
        for layer in params[:-1]:
            x = activate(x @ layer["weight"] + layer["bias"])
        return x @ params[-1]["weight"] + params[-1]["bias"]

    return output


def mean_and_log_noise(output):
    return lambda params, x: (output(params["layers"], x)[:, 0], params["log_noise"])


def one_column(output):
    return lambda params, x: output(params, x)[:, 0]


def gelu(x):
    # The tanh form, as in the paper that introduced it.
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


class Row(NamedTuple):
    """A model, labels of its kind, its number of parameters and what it must agree with."""

    model: Model
    y: np.ndarray
    dim: int
    output: Callable
    distribution: Callable
    prior_scale: float | np.ndarray = 1.0
    prior_mean: float | np.ndarray = 0.0


def bernoulli(output):
    return dist.Bernoulli(logits=output)


def categorical(output):
    return dist.Categorical(logits=output)


def normal(scale):
    return lambda output: dist.Normal(output, scale)


def poisson(output):
    return dist.Poisson(jnp.exp(output))


relu = network_output(lambda x: np.maximum(x, 0.0))
ROWS = {
    "logistic": Row(LogisticRegression(3), BINARY, 3, linear_output, bernoulli),
    "logistic with intercept": Row(
        LogisticRegression(3, intercept=True, prior_scale=2.5), BINARY, 4, linear_output, bernoulli, 2.5
    ),
    "softmax": Row(SoftmaxRegression(3, 4, prior_scale=0.3), CLASSES, 12, linear_output, categorical, 0.3),
    "softmax with intercept": Row(
        SoftmaxRegression(3, 4, intercept=True), CLASSES, 16, linear_output, categorical
    ),
    "linear": Row(LinearRegression(3, noise=0.4), VALUES, 3, linear_output, normal(0.4)),
    "linear with intercept": Row(
        LinearRegression(3, noise=2.0, intercept=True, prior_scale=3.0),
        VALUES,
        4,
        linear_output,
        normal(2.0),
        3.0,
    ),
    "poisson": Row(PoissonRegression(3), COUNTS, 3, linear_output, poisson),
    "poisson with intercept": Row(
        PoissonRegression(3, intercept=True, prior_scale=0.5), COUNTS, 4, linear_output, poisson, 0.5
    ),
    "network, 2 classes": Row(
        BayesianMLP(3, (5,), 2, prior_scale=2.0), BINARY, 4 * 5 + 6, one_column(relu), bernoulli, 2.0
    ),
    "network, 4 classes": Row(
        BayesianMLP(3, (5, 2), 4, activation="tanh"),
        CLASSES,
        4 * 5 + 6 * 2 + 3 * 4,
        network_output(np.tanh),
        categorical,
    ),
    "network, values": Row(
        BayesianMLP(3, (5,), None, noise=0.7, activation="gelu"),
        VALUES,
        4 * 5 + 6,
        one_column(network_output(gelu)),
        normal(0.7),
    ),
    "network, values, unknown noise": Row(
        BayesianMLP(3, (5,), None, noise=None, activation="tanh", prior_scale=2.0),
        VALUES,
        4 * 5 + 6 + 1,
        mean_and_log_noise(network_output(np.tanh)),
        lambda output: dist.Normal(output[0], jnp.exp(output[1])),
        np.array([2.0] * 26 + [1.0]),
        np.array([0.0] * 26 + [math.log(0.3)]),
    ),
    "network without hidden layer": Row(
        BayesianMLP(3, (), None, activation="silu"), VALUES, 4, one_column(relu), normal(1.0)
    ),
    "network, silu": Row(
        BayesianMLP(3, (2,), 2, activation="silu"),
        BINARY,
        4 * 2 + 3,
        one_column(network_output(lambda x: x * scipy.special.expit(x))),
        bernoulli,
    ),
}
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
every_classifier = pytest.mark.parametrize(
    "row",
    [row for row in ROWS.values() if row.model.num_classes],
    ids=[name for name, row in ROWS.items() if row.model.num_classes],
)


def theta_of(row, seed=3):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(row.dim))


def reference_of(row, theta, x=X):
    params = jax.tree.map(np.asarray, row.model.params(theta))
    return row.distribution(jax.tree.map(jnp.asarray, row.output(params, x)))


@double
@every_row
def test_log_likelihood_of_every_row_is_that_of_the_reference(row):
    theta = theta_of(row)
    got = jax.jit(row.model.log_likelihood)(theta, jnp.asarray(X), jnp.asarray(row.y))
    assert got.shape == (len(X),)
    np.testing.assert_allclose(got, reference_of(row, theta).log_prob(row.y), rtol=1e-10)


@double
@every_row
def test_log_prior_covers_every_parameter_with_its_scale(row):
    theta = theta_of(row)
    assert row.model.dim == row.dim
    expected = scipy.stats.norm.logpdf(np.asarray(theta), row.prior_mean, row.prior_scale).sum()
    assert float(row.model.log_prior(theta)) == pytest.approx(expected, rel=1e-12)


@double
@every_row
def test_moments_are_those_of_the_reference(row):
    theta = theta_of(row)
    mean, variance = jax.jit(row.model.moments)(theta, jnp.asarray(X))
    reference = reference_of(row, theta)
    if isinstance(reference, dist.CategoricalLogits):
        # Of the indicator of each class.
        expected = np.asarray(reference.probs)
        np.testing.assert_allclose(variance, expected * (1 - expected), rtol=1e-10)
    else:
        expected = reference.mean
        np.testing.assert_allclose(variance, reference.variance, rtol=1e-10)
    np.testing.assert_allclose(mean, expected, rtol=1e-10)
    assert np.shape(mean) == ((len(X), 4) if row.model.num_classes == 4 else (len(X),))


@double
@every_row
def test_params_hold_every_entry_of_theta_exactly_once(row):
    leaves, _ = ravel_pytree(row.model.params(jnp.arange(row.dim, dtype=float)))
    np.testing.assert_array_equal(np.sort(leaves), np.arange(row.dim))


@double
@every_row
def test_start_is_a_finite_theta_where_the_likelihood_has_a_slope(row):
    start = row.model.start(jax.random.key(0))
    assert start.shape == (row.dim,)

    @jax.jit
    def slope(theta):
        return jax.grad(lambda t: jnp.sum(row.model.log_likelihood(t, jnp.asarray(X), jnp.asarray(row.y))))(
            theta
        )

    gradient = np.asarray(slope(start))
    assert np.all(np.isfinite(gradient)) and np.linalg.norm(gradient) > 1e-3


@every_row
def test_a_model_is_configuration_that_can_be_saved(row):
    assert decode(encode(row.model)) == row.model


@every_row
def test_check_accepts_labels_of_the_right_kind_however_they_are_typed(row):
    for labels in (row.y, row.y.astype(np.float32)):
        checked = row.model.check(Dataset(X, labels))
        assert jnp.issubdtype(checked.y.dtype, jnp.integer) is bool(row.model.num_classes)
        np.testing.assert_allclose(checked.y, row.y, rtol=1e-6)


def test_an_unknown_noise_comes_last_and_is_the_same_model_at_every_known_one():
    known = BayesianMLP(3, (5,), None, noise=0.7)
    unknown = BayesianMLP(3, (5,), None, noise=None)
    weights = jnp.asarray(np.random.default_rng(6).standard_normal(known.dim))
    theta = jnp.append(weights, math.log(0.7))
    np.testing.assert_allclose(
        unknown.log_likelihood(theta, jnp.asarray(X), jnp.asarray(VALUES)),
        known.log_likelihood(weights, jnp.asarray(X), jnp.asarray(VALUES)),
        rtol=1e-5,
    )
    for one, other in zip(
        unknown.moments(theta, jnp.asarray(X)), known.moments(weights, jnp.asarray(X)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.usefixtures("quick_compilation")
def test_a_fit_finds_the_noise_and_a_saved_one_remembers_it(tmp_path):
    generator = np.random.default_rng(7)
    x = generator.standard_normal((300, 2))
    data = Dataset(x, np.abs(x[:, 0]) - 0.5 * x[:, 1] + 0.15 * generator.standard_normal(300))
    model = BayesianMLP(2, (16,), None, noise=None)
    construction = coresetvi.FullVI(learning_rate=0.2, num_samples=8)
    fit = coresetvi.fit(construction, model, data, key=0, num_steps=500, progress=False)
    # It starts at 0.3. Its posterior deviation is 4 %, and a network that is not certain adds to it.
    assert math.exp(fit.psi["mean"][-1]) == pytest.approx(0.16, abs=0.02)
    fit.save(tmp_path / "fit")
    loaded = coresetvi.load(tmp_path / "fit")
    assert loaded.model == model
    assert loaded.evaluate(data) == fit.evaluate(data)


# Soft labels


@double
@every_classifier
def test_a_soft_label_is_the_mean_log_likelihood_over_classes(row):
    model, theta = row.model, theta_of(row)
    classes = model.num_classes
    soft = np.random.default_rng(4).dirichlet(np.ones(classes), len(X))
    got = jax.jit(lambda soft: soft_log_likelihood(model, theta, jnp.asarray(X), soft))(jnp.asarray(soft))
    reference = reference_of(row, theta)
    by_class = np.stack([reference.log_prob(np.full(len(X), label)) for label in range(classes)], axis=1)
    np.testing.assert_allclose(got, (soft * by_class).sum(1), rtol=1e-10)


@double
@every_classifier
def test_a_certain_soft_label_is_the_hard_one(row):
    model, theta = row.model, theta_of(row)
    of = jax.jit(lambda y: soft_log_likelihood(model, theta, jnp.asarray(X), y))
    np.testing.assert_allclose(
        of(jnp.asarray(np.eye(model.num_classes)[row.y])), of(jnp.asarray(row.y)), rtol=1e-12
    )


# Conjugate answers


LINEAR = [
    LinearRegression(3),
    LinearRegression(3, noise=0.4, prior_scale=2.5),
    LinearRegression(3, noise=2.0, intercept=True, prior_scale=0.5),
]
every_linear = pytest.mark.parametrize("model", LINEAR, ids=["plain", "scaled", "with intercept"])


def design(model):
    return np.column_stack([X, np.ones(len(X))]) if model.intercept else X


@double
@every_linear
def test_evidence_is_the_marginal_likelihood(model):
    features = design(model)
    marginal = model.noise**2 * np.eye(len(X)) + model.prior_scale**2 * features @ features.T
    expected = scipy.stats.multivariate_normal(np.zeros(len(X)), marginal).logpdf(VALUES)
    assert model.log_evidence(Dataset(X, VALUES)) == pytest.approx(expected, rel=1e-10)


@double
@every_linear
def test_evidence_and_posterior_with_any_weights(model):
    weights = np.array([0.3, 1.0, 2.5, 4.0, 0.7, 1.9, 1e-3])
    data = Dataset(X, VALUES, weights)
    features, noise = design(model), model.noise / np.sqrt(weights)
    # N(y; f, s^2)^v = N(y; f, s^2 / v) (2 pi s^2)^(-v/2) (2 pi s^2 / v)^(1/2).
    marginal = np.diag(noise**2) + model.prior_scale**2 * features @ features.T
    excess = 0.5 * np.log(2 * np.pi * noise**2) - 0.5 * weights * np.log(2 * np.pi * model.noise**2)
    expected = scipy.stats.multivariate_normal(np.zeros(len(X)), marginal).logpdf(VALUES) + excess.sum()
    assert model.log_evidence(data) == pytest.approx(expected, rel=1e-10)
    # The posterior by conditioning the joint normal of theta and y.
    gain = model.prior_scale**2 * features.T @ np.linalg.inv(marginal)
    mean, covariance = model.posterior(data)
    np.testing.assert_allclose(mean, gain @ VALUES, rtol=1e-9)
    prior = model.prior_scale**2 * np.eye(model.dim)
    np.testing.assert_allclose(
        covariance, prior - gain @ features * model.prior_scale**2, rtol=1e-8, atol=1e-12
    )


@double
@every_linear
def test_weight_two_is_the_row_twice(model):
    weighted = Dataset(X, VALUES, [2, 1, 1, 3, 1, 0, 1])
    repeated = weighted.take([0, 0, 1, 2, 3, 3, 3, 4, 6])
    repeated = Dataset(repeated.x, repeated.y)
    assert model.log_evidence(weighted) == pytest.approx(model.log_evidence(repeated), rel=1e-12)
    for one, other in zip(model.posterior(weighted), model.posterior(repeated), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@double
@every_linear
def test_posterior_evidence_and_densities_are_consistent_at_every_theta(model):
    # Bayes' rule: log-likelihood + log-prior = log-posterior + log-evidence, wherever it is evaluated.
    data = Dataset(X, VALUES, np.linspace(0.5, 2.0, len(X)))
    posterior = scipy.stats.multivariate_normal(*model.posterior(data))
    for theta in np.random.default_rng(5).standard_normal((4, model.dim)):
        joint = data.weights @ model.log_likelihood(jnp.asarray(theta), data.x, data.y)
        joint = float(joint + model.log_prior(jnp.asarray(theta)))
        assert joint == pytest.approx(posterior.logpdf(theta) + model.log_evidence(data), rel=1e-9)


# What is refused

FLOATS = VALUES + 0.5
REFUSED = [
    (LogisticRegression(3), Dataset(X, BINARY + 1), "y is 2 in row 1, .* classes 0 to 1; encode labels"),
    (LogisticRegression(3), Dataset(X, 2 * BINARY - 1), "y is -1 in row 0, .* classes 0 to 1"),
    (SoftmaxRegression(3, 3), Dataset(X, CLASSES), "y is 3 in row 3, .* classes 0 to 2"),
    (SoftmaxRegression(3, 4), Dataset(X, CLASSES + 0.5), "y is 0.5 in row 0"),
    (BayesianMLP(3, (2,), 2), Dataset(X, CLASSES), "y is 2 in row 2, .* classes 0 to 1"),
    (LogisticRegression(3), Dataset(X, np.zeros(7, int)), r"y holds a single class \(0\)"),
    (LogisticRegression(3), Dataset(X, BINARY, 1 - BINARY), r"y holds a single class \(0\)"),
    (LogisticRegression(3), Dataset(X, np.eye(2)[BINARY]), r"one number a row, but y has shape \(7, 2\)"),
    (LogisticRegression(3), Dataset(X, BINARY + 1, target="spam"), "target 'spam' is 2 in row 1"),
    (PoissonRegression(3), Dataset(X, COUNTS - 1), "y is -1 in row 0, which is no count; .* 0, 1, 2"),
    (LinearRegression(3), Dataset(X, np.stack([VALUES, VALUES], 1)), r"but y has shape \(7, 2\)"),
    *[
        (row.model, Dataset(X), "needs labels; pass Dataset")
        for row in (ROWS["logistic"], ROWS["linear"], ROWS["poisson"], ROWS["network, 4 classes"])
    ],
    *[
        (row.model, Dataset(X[:, :2], row.y), r"rows of shape \(2,\), but the model was made for \(3,\)")
        for row in (ROWS["logistic"], ROWS["softmax"], ROWS["linear"], ROWS["network, values"])
    ],
    (LinearRegression(3), Dataset(X.reshape(7, 3, 1), VALUES), r"rows of shape \(3, 1\)"),
]


@pytest.mark.parametrize("model, data, words", REFUSED, ids=[words for _, _, words in REFUSED])
def test_data_that_do_not_fit_are_refused_in_one_sentence(model, data, words):
    with pytest.raises(InputError, match=words) as caught:
        model.check(data)
    assert "\n" not in str(caught.value)


BAD_SETTINGS = [
    (lambda: LogisticRegression(0), "at least one column, not 0"),
    (lambda: LogisticRegression(3, prior_scale=0.0), "prior_scale must be positive, not 0.0"),
    (lambda: PoissonRegression(3, prior_scale=math.nan), "prior_scale must be positive, not nan"),
    (lambda: SoftmaxRegression(3, 1), "at least 2 classes, not 1"),
    (lambda: SoftmaxRegression(3, None), "at least 2 classes, not None"),
    (lambda: LinearRegression(3, noise=-1.0), "noise standard deviation must be positive, not -1.0"),
    (lambda: BayesianMLP(3, (5, 0)), r"Layer sizes must be positive, not 3 and \(5, 0\)"),
    (lambda: BayesianMLP(0), "Layer sizes must be positive"),
    (lambda: BayesianMLP(3, num_classes=1), "at least 2 classes, not 1"),
    (lambda: BayesianMLP(3, num_classes=None, noise=0.0), "noise standard deviation must be positive"),
    (lambda: BayesianMLP(3, (5,), 2, noise=None), "noise=None is for regression, but there are 2 classes"),
    (
        lambda: BayesianMLP(3, activation="sine"),
        "activation must be one of relu, tanh, gelu, silu, not 'sine'",
    ),
    (lambda: BayesianMLP(3, prior_scale=-2.0), "prior_scale must be positive, not -2.0"),
]


@pytest.mark.parametrize("make, words", BAD_SETTINGS, ids=[words for _, words in BAD_SETTINGS])
def test_settings_that_cannot_be_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


# Models of the user's own functions


def user_parameters():
    """A pytree with every kind of container, a whole number and a number without an axis."""
    return {"slope": (np.array([1, 2, 3]), [0.5]), "log_noise": 0}


def user_log_prior(params):
    (slope, (offset,)) = params["slope"]
    return -0.5 * (jnp.sum(slope**2) + offset**2 + params["log_noise"] ** 2)


def user_log_likelihood(params, x, y):
    (slope, (offset,)) = params["slope"]
    return jax.scipy.stats.norm.logpdf(y, x @ slope + offset, jnp.exp(params["log_noise"]))


def user_model(**changes):
    settings = {"log_prior": user_log_prior, "log_likelihood": user_log_likelihood, "init": user_parameters()}
    return FromCallables(**(settings | changes))


@double
def test_any_pytree_of_parameters_will_do():
    model = user_model()
    assert model.dim == 5
    start = model.start(jax.random.key(0))
    params = model.params(start)
    assert jax.tree.structure(params) == jax.tree.structure(user_parameters())
    for leaf, given in zip(jax.tree.leaves(params), jax.tree.leaves(user_parameters()), strict=True):
        np.testing.assert_array_equal(leaf, given)
        assert leaf.dtype == jnp.float64
    data = model.check(Dataset(X, VALUES))
    expected = scipy.stats.norm.logpdf(VALUES, X @ [1, 2, 3] + 0.5)
    np.testing.assert_allclose(model.log_likelihood(start, data.x, data.y), expected, rtol=1e-12)
    assert float(model.log_prior(start)) == pytest.approx(-0.5 * (14 + 0.25), rel=1e-12)


@double
def test_predictions_are_the_users_own():
    theta = jnp.asarray([0.0, 1.0, 2.0, 3.0, 0.5])
    x = jnp.asarray(X)
    with pytest.raises(InputError, match="cannot predict; give FromCallables a predict= function"):
        user_model().moments(theta, x)
    mean, variance = user_model(predict=lambda params, x: x @ params["slope"][0]).moments(theta, x)
    np.testing.assert_allclose(mean, X @ [1, 2, 3], rtol=1e-12)
    assert np.all(np.isnan(variance)) and variance.shape == mean.shape
    pair = user_model(predict=lambda params, x: (x[:, 0], x[:, 1])).moments(theta, x)
    np.testing.assert_array_equal(np.stack(pair), X.T[:2])


def fail(params, x, y):
    raise ValueError("bad shape\nwith a long story")


USER_MISTAKES = [
    (
        {"log_likelihood": lambda p, x, y: jnp.sum(user_log_likelihood(p, x, y))},
        r"shape \(7,\).* shape \(\); do not sum",
    ),
    ({"log_likelihood": lambda p, x, y: 0.0}, r"one number a row, .* returned shape \(\)"),
    ({"log_likelihood": lambda p, x, y: user_log_likelihood(p, x, y)[:, None]}, r"returned shape \(7, 1\)"),
    ({"log_likelihood": lambda p, x, y: x @ jnp.ones(5)}, "does not accept these data"),
    ({"log_likelihood": fail}, "does not accept these data: bad shape$"),
    (
        {"log_prior": lambda p: -0.5 * p["slope"][0] ** 2},
        r"log_prior must return a scalar, but returned shape \(3,\)",
    ),
    ({"num_classes": 2}, "classes 0 to 1"),
]


@pytest.mark.parametrize("changes, words", USER_MISTAKES, ids=[words for _, words in USER_MISTAKES])
def test_mistakes_in_the_users_functions_are_told_apart(changes, words):
    with pytest.raises(InputError, match=words) as caught:
        user_model(**changes).check(Dataset(X, VALUES + 10.0))
    assert "\n" not in str(caught.value)


def test_labels_of_a_users_classifier_are_checked_and_soft_ones_work():
    model = user_model(log_likelihood=lambda p, x, y: jnp.where(y == 1, -1.0, -3.0), num_classes=2)
    assert model.check(Dataset(X, BINARY)).y.dtype == jnp.int32
    soft = soft_log_likelihood(
        model, model.initial, jnp.asarray(X), jnp.tile(jnp.asarray([0.25, 0.75]), (7, 1))
    )
    np.testing.assert_allclose(soft, -1.5, rtol=1e-6)


def test_data_without_labels_are_passed_on_as_none():
    seen = []

    def log_likelihood(params, x, y):
        seen.append(y)
        return -0.5 * jnp.sum(x**2, axis=1)

    user_model(log_likelihood=log_likelihood).check(Dataset(X))
    assert seen == [None]
