"""The frequentist baselines: dataset distillation and condensation, against closed forms and differences."""

from typing import Any

import equinox as eqx
import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import registry
from jax.flatten_util import ravel_pytree

import coresetvi as cvi
import coresetvi.constructions.condensation
import coresetvi.constructions.gradient_matching
from coresetvi.constructions.gradient_matching import (
    class_rows,
    class_slots,
    matching_distance,
    real_gradients,
)
from coresetvi.errors import InputError
from coresetvi.families import Point
from coresetvi.families.initial import start_family
from coresetvi.inner import Joint, Unrolled
from coresetvi.models import BayesianMLP, LinearRegression, SoftmaxRegression
from coresetvi.models.sums import weighted_log_likelihood

float64 = exact.float64
double = pytest.mark.usefixtures("float64")
# Trains nothing: psi after a step is where the step began.
STILL = Unrolled(num_steps=1, learning_rate=1e-30, num_samples=1, restart_every=2)


# The distance


def softmax_gradient(theta, x, y, weights):
    """d/dtheta of the weighted mean loss of softmax regression with intercept: (x, 1)^T (p - y) / n."""
    design = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    logits = design @ theta
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return design.T @ (weights[:, None] * (chance - np.eye(theta.shape[1])[y])) / weights.sum()


def by_hand(theta, data, x, labels):
    """The distance from its formula, in numpy: coefficients by output unit, the intercept as one group."""
    total = 0.0
    for label in np.unique(labels):
        real = np.asarray(data.y) == label
        rows = (np.asarray(data.x)[real], np.asarray(data.y)[real], np.asarray(data.weights)[real])
        mine = labels == label
        g = softmax_gradient(theta, *rows)
        s = softmax_gradient(theta, x[mine], labels[mine], np.ones(mine.sum()))
        groups = [(g[:-1, unit], s[:-1, unit]) for unit in range(theta.shape[1])] + [(g[-1], s[-1])]
        total += sum(1.0 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in groups)
    return total


@double
def test_a_step_goes_down_the_distance_of_the_formula_at_a_network_just_drawn():
    data = exact.rows("softmax")[1]
    model = Wobbly(2, 3, intercept=True, prior_scale=1.0)
    plan = cvi.Condensation(5, inner=STILL, rows_per_class=100).settle(model, data)
    # Three points of class 2, two of class 0 and none of class 1.
    chosen = [
        np.flatnonzero(np.asarray(data.y) == label)[count] for count, label in enumerate([2, 0, 2, 0, 2])
    ]
    state = plan.start(jax.random.key(1), data.take(np.array(chosen)))
    step = eqx.filter_jit(plan.step)
    key = jax.random.key(7)
    after, info = step(state, jnp.asarray(0), jnp.asarray(0.5), key)
    start = plan.parametrisation.build({**state.frozen, **state.learned})
    fresh = start_family(Point(), model, start, jax.random.split(key, 3)[2])
    np.testing.assert_allclose(after.psi["mean"], fresh["mean"], rtol=1e-12)
    theta, labels = np.asarray(fresh["mean"]).reshape(3, 3), np.asarray(start.y)
    mean, scale = np.asarray(plan.parametrisation.mean), np.asarray(plan.parametrisation.scale)

    def loss(leaf):
        return by_hand(theta, data, mean + scale * leaf, labels)

    x = np.asarray(state.learned["x"])
    assert float(info.loss) == pytest.approx(loss(x), rel=1e-7)
    slope = np.array(
        [(loss(x + nudge) - loss(x - nudge)) / 2e-5 for nudge in 1e-5 * np.eye(x.size).reshape(-1, *x.shape)]
    )
    # The first step of Adam is one learning rate long in every number.
    moved = np.asarray(after.learned["x"]) - x
    np.testing.assert_allclose(moved, -0.5 * 0.03 * np.sign(slope).reshape(x.shape), rtol=1e-3)
    again, _ = step(after, jnp.asarray(1), jnp.asarray(0.5), key)
    np.testing.assert_allclose(again.psi["mean"], after.psi["mean"], rtol=1e-12)


class Wobbly(SoftmaxRegression):
    """Softmax regression that starts at random: zero, where it starts by itself, is the same every time."""

    def start(self, key):
        return jax.random.normal(key, (self.dim,))


@double
def test_the_gradient_of_the_distance_is_its_difference_quotient():
    model, data = BayesianMLP(2, (2,), 3, activation="tanh"), exact.rows("softmax")[1]
    generator = np.random.default_rng(4)
    theta = jnp.asarray(generator.standard_normal(model.dim))
    rows = class_rows(np.asarray(data.y), (0, 1, 2), 5)
    real = jax.jit(lambda key: real_gradients(model, theta, data, rows, key))(jax.random.key(3))
    labels = np.array([0, 2, 0, 2])  # nothing of class 1
    slots = class_slots(labels, (0, 1, 2))
    logits = 2.0 * np.eye(3)[labels] + generator.standard_normal((4, 3))
    learned = {"x": jnp.asarray(generator.standard_normal((4, 2))), "y": jnp.asarray(logits)}

    def loss(learned):
        points = cvi.Dataset(learned["x"], jax.nn.softmax(learned["y"]))
        return matching_distance(model, theta, real, points, slots)

    gradient = jax.jit(jax.grad(loss))(learned)
    expected = exact.finite_difference(loss, learned)
    flat = ravel_pytree(gradient)[0]
    np.testing.assert_allclose(flat, expected, atol=1e-7 * float(np.linalg.norm(expected)))
    assert np.linalg.norm(expected) > 0.1


# Minibatches of classes


def test_minibatches_of_classes_are_unbiased_and_small_classes_come_whole():
    labels = np.array([2, 0, -1, 2, 0, 2, 2, 2, 0, 2, 2])  # -1: a row without weight
    rows = class_rows(labels, (0, 2), 4)
    order, low, high, factor = (np.asarray(part) for part in (rows.order, rows.low, rows.high, rows.factor))
    assert low.shape == (2, 4)
    for number, label in enumerate((0, 2)):
        members = np.flatnonzero(labels == label)
        # How often each row is expected in a minibatch, times its factor: alike for all rows of the class.
        expected = np.zeros(len(labels))
        for slot in range(4):
            stratum = order[low[number, slot] : high[number, slot]]
            expected[stratum] += factor[number, slot] / len(stratum)
        assert set(np.flatnonzero(expected)) == set(members)
        np.testing.assert_allclose(expected[members], min(4, len(members)) / len(members), rtol=1e-6)


def test_points_are_listed_by_class():
    slots = class_slots(np.array([2, 0, 2, 2]), (0, 1, 2))
    np.testing.assert_array_equal(slots, [[1, -1, -1], [-1, -1, -1], [0, 2, 3]])


# What they are for


@eqx.filter_jit
def score_of_fresh_networks(model, points, test, num_steps):
    """Mean test loss of networks that start where no fit has started, after Adam steps on the points."""
    adam = optax.adam(0.02)

    def one(key):
        def step(_, carry):
            theta, state = carry
            gradient = jax.grad(lambda theta: -weighted_log_likelihood(model, theta, points))(theta)
            updates, state = adam.update(gradient, state)
            return theta + updates, state

        theta = model.start(key)
        theta, _ = jax.lax.fori_loop(0, num_steps, step, (theta, adam.init(theta)))
        return -jnp.mean(model.log_likelihood(theta, test.x, test.y))

    return jnp.mean(jax.vmap(one)(jax.random.split(jax.random.key(99), 10)))


# With the steps after which a network is looked at: distilled points are for training that is short.
LEARNERS = {
    "distillation": (cvi.DatasetDistillation(8, init="noise"), 30),
    "condensation": (cvi.Condensation(8, init="noise"), 150),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.usefixtures("quick_compilation")
def test_a_fresh_network_learns_far_more_from_the_points_than_from_their_start(name):
    construction, num_steps = LEARNERS[name]
    train, test = cvi.datasets.four_class(n=300)
    model = BayesianMLP(2, (10,), 4)
    fit = cvi.fit(construction, model, train, key=0, num_steps=200, progress=False)
    plan = construction.settle(model, train)
    start = plan.start(jax.random.fold_in(jax.random.key(0), 2**31 - 1))
    before = plan.parametrisation.build({**start.frozen, **start.learned})
    length = jnp.asarray(num_steps)
    scores = [score_of_fresh_networks(model, points, test, length) for points in (before, fit.coreset)]
    # A network that knows nothing has log 4 = 1.39.
    assert scores[0] > 1.3 and scores[1] < 0.5
    losses = fit.history["loss"]
    assert losses[-20:].mean() < 0.75 * losses[:20].mean()
    np.testing.assert_array_equal(fit.coreset.weights, np.float32(300 / 8))
    if name == "condensation":
        assert fit.evaluate(test, num_samples=2)["nll"] < 0.5  # the network that comes with the points


# Settings that are refused

FAMILY: dict[str, Any] = {"family": Point()}  # which pyright refuses, too
REFUSED = {
    "learns x, y or both, not weights": lambda: cvi.Condensation(5, learn={"weights"}),
    "learns x, y or both, not nothing": lambda: cvi.Condensation(5, learn=()),
    "size must be a whole number": lambda: cvi.Condensation(0),
    "rows_per_class must be a whole number": lambda: cvi.Condensation(5, rows_per_class=0),
    "learning_rate of Condensation must be positive": lambda: cvi.Condensation(5, learning_rate=0.0),
    "init must be one of subset": lambda: cvi.Condensation(5, init="random"),
    "Joint.. trains no network": lambda: cvi.Condensation(5, inner=Joint()),
    "LinearRegression has no classes; use a classifier": lambda: cvi.Condensation(5).settle(
        LinearRegression(2), exact.rows("linear")[1]
    ),
    "has no family; leave it out": lambda: cvi.DatasetDistillation(5, **FAMILY),
    "Fixed weights cannot be learned": lambda: cvi.DatasetDistillation(5, learn={"x", "weights"}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_settings_that_cannot_be_are_refused_in_one_sentence(words):
    with pytest.raises(InputError, match=words) as caught:
        REFUSED[words]()
    assert "\n" not in str(caught.value)


USES = {"certificate": cvi.diagnose, "chains": lambda fit, data: cvi.sample(fit, num_samples=10)}


@pytest.mark.parametrize("use", USES)
def test_a_posterior_that_is_a_point_gets_no_certificate_and_no_chains(use, fitted_row):
    with pytest.raises(InputError, match="Point does not"):
        USES[use](fitted_row("condensation"), registry.BINARY)
