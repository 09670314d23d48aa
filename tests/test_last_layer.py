"""The closed form of a last layer: against numpy, against draws of r, and as something to learn with."""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.constructions.last_layer import LastLayerPlan
from coresetvi.errors import InputError
from coresetvi.families.gaussian_last_layer import (
    JITTER,
    GaussianLastLayer,
    last_layer_posterior,
    last_layer_psi,
    shared_scale,
)
from coresetvi.models import BayesianMLP
from coresetvi.models.layers import with_ones
from coresetvi.models.likelihoods import log_odds

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = BayesianMLP(2, (4,), 3, prior_scale=0.7)
GENERATOR = np.random.default_rng(0)
POINTS = cvi.Dataset(
    GENERATOR.standard_normal((7, 2)), GENERATOR.dirichlet(np.ones(3), 7), GENERATOR.uniform(1.0, 5.0, 7)
)
ROWS = cvi.Dataset(GENERATOR.standard_normal((20, 2)), GENERATOR.integers(0, 3, 20))


def theta_of(model, seed=0):
    return model.start(jax.random.key(seed))


def numpy_posterior(model, theta, points):
    """Mean and covariance by the textbook formula."""
    features = np.asarray(with_ones(model.features(theta, points.x)), np.float64)
    targets, precision = model.likelihood.outputs_of(points.y)
    weights = np.asarray(points.weights, np.float64) * precision
    prior = np.asarray(shared_scale(model), np.float64)
    precision = (features.T * weights) @ features + np.diag(1.0 / prior**2)
    covariance = np.linalg.inv(precision + JITTER * np.mean(np.diag(precision)) * np.eye(len(prior)))
    return covariance @ features.T @ (weights[:, None] * np.asarray(targets)), covariance


def test_soft_labels_stand_for_their_log_odds():
    logits = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 3.0]])
    centred = logits - logits.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(log_odds(jax.nn.softmax(jnp.asarray(logits)), 3), centred, atol=1e-6)
    # A hard label is a nearly certain soft one.
    hard, soft = log_odds(jnp.asarray([2]), 3), log_odds(jax.nn.softmax(jnp.asarray([[0.0, 0.0, 4.0]])), 3)
    np.testing.assert_allclose(hard, soft, atol=1e-6)
    two = cvi.models.BayesianMLP(2, (3,), 2).likelihood.outputs_of(jnp.asarray([[0.25, 0.75]]))[0]
    np.testing.assert_allclose(two, [[np.log(3.0)]], rtol=1e-6)


MODELS = {
    "classes": (MODEL, POINTS),
    "two classes": (
        BayesianMLP(2, (4,), 2),
        cvi.Dataset(POINTS.x, POINTS.y[:, :2] / POINTS.y[:, :2].sum(1)[:, None], POINTS.weights),
    ),
    "values": (
        BayesianMLP(2, (4,), None, noise=0.5),
        cvi.Dataset(POINTS.x, GENERATOR.standard_normal(7), POINTS.weights),
    ),
    "hard labels": (MODEL, cvi.Dataset(POINTS.x, [0, 1, 2, 0, 1, 2, 0], POINTS.weights)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_posterior_is_that_of_linear_regression(name):
    model, points = MODELS[name]
    theta = theta_of(model)
    found = last_layer_posterior(model, theta, points)
    mean, covariance = numpy_posterior(model, theta, points)
    np.testing.assert_allclose(found.mean, mean, atol=2e-4)
    factor = np.asarray(found.factor())
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=2e-5)
    outputs, deviation = found.outputs(with_ones(model.features(theta, ROWS.x)))
    features = np.asarray(with_ones(model.features(theta, ROWS.x)))
    np.testing.assert_allclose(outputs, features @ mean, atol=1e-3)
    variance = np.einsum("nk,kl,nl->n", features, covariance, features)
    np.testing.assert_allclose(deviation**2, variance, rtol=1e-3)


def test_divergence_from_the_prior_is_that_of_normals():
    theta = theta_of(MODEL)
    mean, covariance = numpy_posterior(MODEL, theta, POINTS)
    prior = np.diag(np.asarray(shared_scale(MODEL), np.float64) ** 2)
    expected = 0.0
    for column in mean.T:
        ratio = np.linalg.solve(prior, covariance)
        expected += 0.5 * (
            np.trace(ratio)
            + column @ np.linalg.solve(prior, column)
            - len(column)
            - np.linalg.slogdet(ratio)[1]
        )
    found = last_layer_posterior(MODEL, theta, POINTS).kl(shared_scale(MODEL))
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_the_loss_is_the_bound_that_draws_of_r_give():
    construction = cvi.LastLayerPSVI(7, num_samples=4000)
    plan = construction.settle(MODEL, ROWS)
    theta = theta_of(MODEL)
    found = plan.loss(theta, POINTS, ROWS, jax.random.key(0))
    psi = last_layer_psi(MODEL, theta, POINTS)
    thetas, proposal = plan.family.draw(psi, jax.random.key(1), 20_000, MODEL.dim)
    data = jax.vmap(lambda t: jnp.sum(MODEL.log_likelihood(t, ROWS.x, ROWS.y)))(thetas)
    split = MODEL.dim - MODEL.last_size
    prior = jax.vmap(lambda t: MODEL.log_prior(t))(thetas) - exact_log_prior(theta[:split])
    terms = np.asarray(data + prior - proposal)
    error = 5.0 * terms.std() / np.sqrt(len(terms))
    assert float(found) == pytest.approx(-terms.mean(), abs=error)


def exact_log_prior(theta):
    return float(np.sum(-0.5 * (theta / 0.7) ** 2 - np.log(0.7) - 0.5 * np.log(2.0 * np.pi)))


def test_draws_of_the_family_have_its_moments_and_density():
    psi = last_layer_psi(MODEL, theta_of(MODEL), POINTS)
    family = GaussianLastLayer(5, 3)
    mean, covariance = family.moments(psi)
    noise = jax.random.normal(jax.random.key(0), (4000, 15))
    thetas, density = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
    split = MODEL.dim - 15
    assert np.all(np.asarray(thetas[:, :split]) == np.asarray(psi["features"]))
    last = np.asarray(thetas[:, split:], np.float64)
    found = np.cov(last.T)
    expected = np.asarray(covariance)[split:, split:]
    np.testing.assert_allclose(found, expected, atol=6.0 * np.max(np.diag(expected)) / np.sqrt(4000))
    np.testing.assert_allclose(last.mean(0), np.asarray(mean)[split:], atol=0.06)
    np.testing.assert_allclose(jax.vmap(family.log_prob, (None, 0))(psi, thetas), density, rtol=1e-3)
    exactly = exact.normal(np.asarray(mean)[split:], expected).logpdf(last[:5])
    np.testing.assert_allclose(density[:5], exactly, atol=2e-2)


@pytest.mark.usefixtures("float64")
def test_gradients_of_the_loss_are_difference_quotients():
    construction = cvi.LastLayerPSVI(7, learn={"x", "y", "weights", "total"})
    rows = cvi.Dataset(np.asarray(ROWS.x, np.float64), ROWS.y)  # anew, in double precision
    plan, state = exact.set_up(construction, MODEL, rows)
    assert isinstance(plan, LastLayerPlan)
    theta = state.pool.thetas[0]

    def loss(learned):
        coreset = plan.parametrisation.build({**state.frozen, **learned})
        return plan.loss(theta, coreset, rows, jax.random.key(3))

    gradient = jax.grad(loss)(state.learned)
    for name, leaf in state.learned.items():
        direction = jax.random.normal(jax.random.key(7), leaf.shape, leaf.dtype)
        shifted = [loss({**state.learned, name: leaf + sign * 1e-5 * direction}) for sign in (1, -1)]
        quotient = (shifted[0] - shifted[1]) / 2e-5
        assert float(jnp.sum(gradient[name] * direction)) == pytest.approx(float(quotient), rel=1e-4)


def test_networks_of_the_pool_begin_anew_one_after_the_other():
    training = cvi.NetworkTraining(num_steps=6)
    construction = cvi.LastLayerPSVI(4, num_networks=3, training=training, training_steps=2)
    plan, state = exact.set_up(construction, MODEL, ROWS)
    step = jax.jit(lambda *given: plan.step(*given))
    ages = [np.asarray(state.pool.ages).tolist()]
    for index in range(9):
        state, _ = step(state, jnp.asarray(index), jnp.asarray(1.0), jax.random.key(index))
        ages.append(np.asarray(state.pool.ages).tolist())
    assert ages[0] == [0, 2, 4]
    assert ages[3] == [2, 4, 6]
    assert ages[6] == [4, 6, 2]
    assert ages[9] == [6, 2, 4]


def test_training_follows_the_gradient_at_points_that_move_a_little():
    """Adam's first step goes by its rate along the sign of the gradient; the noise is the key's."""
    points, key = cvi.Dataset(ROWS.x[:4], ROWS.y[:4]), jax.random.key(3)
    theta = MODEL.start(jax.random.key(0))

    def stepped(jitter, points=points):
        training = cvi.NetworkTraining(jitter=jitter)
        return training.step(MODEL, points, theta, training.init(theta), key)

    def gradient(x):
        def loss(theta):
            factor = max(1.0, MODEL.dim / 4.0)
            return -factor * jnp.sum(MODEL.log_likelihood(theta, x, points.y)) - MODEL.log_prior(theta)

        return jax.grad(loss)(theta)

    noise = jax.random.normal(key, points.x.shape, points.x.dtype)
    for jitter in (0.0, 0.5):
        moved, _, norm = stepped(jitter)
        expected = gradient(points.x + jitter * jnp.std(points.x, axis=0) * noise)
        assert float(norm) == pytest.approx(float(jnp.linalg.norm(expected)), rel=1e-4)
        large = np.abs(np.asarray(expected)) > 1e-3
        np.testing.assert_allclose((theta - moved)[large], 0.003 * np.sign(expected)[large], rtol=1e-3)
    with pytest.raises(InputError, match="jitter must be zero or more"):
        cvi.NetworkTraining(jitter=-0.1)


@pytest.mark.slow
def test_points_are_learned_that_serve_a_fresh_network():
    train, test = cvi.datasets.four_class(n=300)
    model = BayesianMLP(2, (16,), 4)
    construction = cvi.LastLayerPSVI(8, init="noise", learning_rate=0.02)
    start = cvi.fit(construction, model, train, key=0, num_steps=1)
    end = cvi.fit(construction, model, train, key=0, num_steps=1500)
    before = cvi.retrain(start, key=1).evaluate(test, num_samples=100)
    after = cvi.retrain(end, key=1).evaluate(test, num_samples=100)
    assert before["accuracy"] < 0.8
    assert after["accuracy"] > 0.9
    assert after["nll"] < 0.35


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (
            cvi.models.LogisticRegression(2),
            cvi.Dataset(ROWS.x, np.arange(20) % 2),
            "does not show its last layer",
        ),
        (BayesianMLP(2, (3,), None, noise=None), cvi.Dataset(ROWS.x, np.ones(20)), "do not say which output"),
    ],
    ids=["a regression", "unknown noise"],
)
def test_models_without_a_closed_form_are_refused(model, data, words):
    with pytest.raises(InputError, match=words):
        cvi.fit(cvi.LastLayerPSVI(4), model, data, key=0, num_steps=1)
