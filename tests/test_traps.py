"""Known defects of published code and slips of the paper (numbered as in the design), each with its test."""

import functools
import math

import equinox as eqx
import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
import scipy.stats
from jax.flatten_util import ravel_pytree

from coresetvi import BBPSVI, Dataset, Fit, FullVI
from coresetvi.families import FullRank, LowRank, MeanField
from coresetvi.families.importance import khat_threshold, normalise, normalised_ess
from coresetvi.inner import Alternating, Implicit, Unrolled
from coresetvi.models import (
    BayesianMLP,
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
    SoftmaxRegression,
)
from coresetvi.objectives import ImportanceElbo, UniformElbo
from coresetvi.outer import Adam, NaturalGradient
from coresetvi.posterior.distances import laplace_moments
from coresetvi.weights import Free

float64 = exact.float64
double = pytest.mark.usefixtures("float64")


def fit_with(model, coreset, psi, family=None):
    """A fit as if a construction had ended with this coreset and this r."""
    return Fit(
        coreset=coreset,
        model=model,
        family=family or FullRank(),
        psi=psi,
        construction=None,
        history={},
        result="finished",
        key=jax.random.key(0),
        seconds={},
        about={},
    )


def one_step(plan, state, scale=1.0, index=0):
    """The construction's own step, compiled."""
    step = eqx.filter_jit(plan.step)
    return step(state, jnp.asarray(index), jnp.asarray(scale), jax.random.key(2))


# 1. The sign of core in the importance weights is the same in training and in prediction.


@functools.cache
def linear_fit():
    """A linear-Gaussian fit whose r is half a standard deviation off the coreset posterior and too wide."""
    model, data = exact.rows("linear")
    coreset = Dataset(data.x[::2], data.y[::2], 2.0 * data.weights[::2])
    mean, covariance = model.posterior(coreset)
    return fit_with(
        model, coreset, exact.full_rank(mean + 0.5 * np.sqrt(np.diag(covariance)), 1.5 * covariance)
    )


@double
def test_trap_01_training_and_prediction_weigh_draws_alike():
    fit = linear_fit()
    thetas, log_w = fit.draws(200)
    draws, coreset = np.asarray(thetas), fit.coreset
    model = fit.model
    assert isinstance(model, LinearRegression)
    core = scipy.stats.norm.logpdf(np.asarray(coreset.y), draws @ np.asarray(coreset.x).T, model.noise)
    core = core @ np.asarray(coreset.weights)
    prior = scipy.stats.norm.logpdf(draws, scale=model.prior_scale).sum(1)
    proposal = exact.normal(*fit.family.moments(fit.psi)).logpdf(draws)
    np.testing.assert_allclose(log_w, core + prior - proposal, rtol=1e-9)
    # The loss falls by w_s for every nat that the data term of draw s rises: that is training's weight.
    vectors = [jnp.asarray(vector) for vector in (np.zeros(200), core, prior, proposal)]
    trained = -jax.jit(jax.grad(ImportanceElbo().loss))(*vectors)
    _, predicted = fit.predict(np.asarray(coreset.x), samples=True, num_samples=200)
    np.testing.assert_allclose(predicted, trained, rtol=1e-8)
    assert predicted.max() > 3.0 / 200


@double
def test_trap_01_predictions_of_a_wrong_r_are_those_of_the_coreset_posterior():
    fit = linear_fit()
    x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    draws, weights = fit.predict(x, samples=True, num_samples=20_000)
    assert isinstance(fit.model, LinearRegression)
    exact_mean, _ = fit.model.posterior(fit.coreset)
    predicted = fit.predict(x, num_samples=20_000)
    # Delta method for a self-normalised mean.
    error = np.sqrt(np.sum((weights[:, None] * (draws - predicted)) ** 2, axis=0))
    uncorrected = x @ np.asarray(fit.psi["mean"])
    assert np.abs((uncorrected - x @ exact_mean) / error).max() > 20
    assert np.abs((predicted - x @ exact_mean) / error).max() < exact.MAX_Z


# 2. The inner bound averages over draws. A sum would multiply the likelihood by their number.


@double
def test_trap_02_the_inner_solution_is_the_posterior_however_many_draws():
    construction = BBPSVI(
        5,
        family=FullRank(),
        inner=Alternating(Implicit(tolerance=1e-9, num_samples=64)),
        optimizer=Adam(),
    )
    model, data = exact.rows("linear")
    plan, before = exact.set_up(construction, model, data)
    after, info = one_step(plan, before)
    coreset, _ = plan.extract(before)
    mean, covariance = FullRank().moments(after.psi)
    exact_mean, exact_covariance = model.posterior(coreset)
    assert bool(info.accepted)
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-7)
    np.testing.assert_allclose(covariance, exact_covariance, rtol=1e-7)


@double
@pytest.mark.parametrize("num_samples", [8, 64])
def test_trap_02_the_loss_of_full_data_inference_does_not_grow_with_the_number_of_draws(num_samples):
    model, data = exact.rows("linear")
    plan, before = exact.set_up(FullVI(FullRank(), num_samples=num_samples), model, data)
    _, info = one_step(plan, before)
    # Recorded before the step, and exact, because the noise has exact second moments.
    expected = exact.gaussian_kl(*FullRank().moments(before.psi), *model.posterior(data))
    assert float(info.loss) == pytest.approx(expected - model.log_evidence(data), rel=1e-9)


# 3. Algorithm 2 normalises log-weights without exponentiating. It is a softmax.


@double
def test_trap_03_log_weights_are_exponentiated_before_they_are_normalised():
    log_w = np.array([-1000.0, -1001.0, -1003.0])
    odds = np.exp([0.0, -1.0, -3.0])
    np.testing.assert_allclose(normalise(jnp.asarray(log_w)), odds / odds.sum(), rtol=1e-12)
    zeros = jnp.zeros(3)
    trained = -jax.grad(ImportanceElbo().loss)(zeros, jnp.asarray(log_w), zeros, zeros)
    np.testing.assert_allclose(trained, odds / odds.sum(), rtol=1e-12)
    # What Algorithm 2 says would give the least likely draw the largest weight.
    assert np.argmax(log_w / log_w.sum()) == 2 != int(np.argmax(trained))


# 4. Soft labels normalise over classes, not over points.


@double
def test_trap_04_every_point_has_its_own_distribution_over_classes():
    case = exact.coreset_case(*exact.rows("softmax"), MeanField())
    logits = np.random.default_rng(0).standard_normal(case.learned["y"].shape)
    labels = np.asarray(case.coreset({**case.learned, "y": jnp.asarray(logits)}).y)
    assert labels.shape == (5, 3)
    np.testing.assert_allclose(labels, np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rtol=1e-12)
    # One point's logits say nothing about another's label.
    logits[0] += [5.0, 0.0, 0.0]
    changed = np.asarray(case.coreset({**case.learned, "y": jnp.asarray(logits)}).y)
    assert np.abs(changed[0] - labels[0]).max() > 0.1
    np.testing.assert_array_equal(changed[1:], labels[1:])


# 5. log p(theta) and log r(theta) cover every parameter, the last layer included.

MODELS = [
    LogisticRegression(2, intercept=True),
    SoftmaxRegression(2, 3, intercept=True),
    LinearRegression(2, intercept=True),
    PoissonRegression(2, intercept=True),
    BayesianMLP(2, (3, 2), 3, prior_scale=0.7),
    BayesianMLP(2, (3,), None),
]


@double
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_trap_05_the_prior_pulls_on_every_parameter(model):
    leaves = jax.tree.leaves(model.params(jnp.zeros(model.dim)))
    assert sum(np.size(leaf) for leaf in leaves) == model.dim
    theta = jnp.asarray(np.random.default_rng(1).standard_normal(model.dim))
    slope = jax.jit(jax.grad(model.log_prior))(theta)
    np.testing.assert_allclose(slope, -theta / model.prior_scale**2, rtol=1e-12)


@double
@pytest.mark.parametrize(
    "family", [MeanField(), FullRank(), LowRank(2)], ids=lambda part: type(part).__name__
)
def test_trap_05_r_is_a_density_of_every_parameter(family):
    dim = 6
    psi = family.init(jnp.zeros(dim), jnp.linspace(0.5, 2.0, dim))
    theta = jnp.asarray(np.random.default_rng(2).standard_normal(dim))
    _, covariance = family.moments(psi)
    slope = jax.jit(jax.grad(family.log_prob, argnums=1))(psi, theta)
    np.testing.assert_allclose(slope, -np.linalg.solve(covariance, theta), rtol=1e-9)


@double
def test_trap_05_without_data_r_becomes_the_prior_in_every_layer():
    model = BayesianMLP(2, (2,), 3, prior_scale=0.7)
    construction = BBPSVI(
        4,
        family=MeanField(),
        learn={"x"},
        weights=Free(),
        inner=Alternating(Implicit(tolerance=1e-6, num_samples=64)),
        optimizer=Adam(),
    )
    _, data = exact.rows("softmax")
    plan, state = exact.set_up(construction, model, data)
    assert model.dim == 15  # few enough for 64 draws to have exact second moments
    state = eqx.tree_at(lambda s: s.frozen["weights"], state, jnp.zeros(4))
    after, info = one_step(plan, state)
    assert bool(info.accepted)
    # At the solution the gradient in standard deviations is the distance from it, or twice that.
    np.testing.assert_allclose(after.psi["mean"], 0.0, atol=1e-6)
    np.testing.assert_allclose(np.exp(after.psi["log_scale"]), 0.7, rtol=1e-6)


# 7. A minibatch costs O(batch), never O(N).

MANY = 100_000
MINIBATCH = {
    "adam": BBPSVI(5, batch_size=64, inner=Unrolled(num_steps=2, num_samples=4), optimizer=Adam()),
    "natural gradient": BBPSVI(5, batch_size=64, inner=Alternating(), optimizer=NaturalGradient()),
    "full-data inference": FullVI(batch_size=64),
}


@functools.cache
def set_up_on_many_rows(name):
    return exact.set_up(MINIBATCH[name], *exact.rows("logistic", num_rows=MANY))


def inner_programs(equation):
    """The programs inside one operation: loop bodies, branches, calls."""
    for parameter in equation.params.values():
        for part in parameter if isinstance(parameter, tuple | list) else [parameter]:
            program = getattr(part, "jaxpr", part)
            if hasattr(program, "eqns"):
                yield program


def large_results(program, least, skip=()):
    """Operations of a traced program whose result has at least so many numbers."""
    found = []
    for equation in program.eqns:
        sizes = [math.prod(getattr(variable.aval, "shape", ())) for variable in equation.outvars]
        if max(sizes, default=0) >= least:
            found.append(f"{equation.primitive.name} of {max(sizes)} numbers")
        if equation.primitive.name not in skip:
            for inner in inner_programs(equation):
                found += large_results(inner, least, skip)
    return found


@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize("name", MINIBATCH)
def test_trap_07_a_step_on_a_minibatch_makes_nothing_as_long_as_the_data(name, trials):
    plan, state = set_up_on_many_rows(name)
    # The data are an argument, as in a fit: reading them is free, only what is made of them counts.
    arrays, rest = eqx.partition((plan, state), eqx.is_array)

    def step(arrays, keys):
        plan, state = eqx.combine(arrays, rest)

        def one(key, extra):
            # Trials differ in their states, as they do after the first step.
            trial = eqx.tree_at(lambda s: s.psi, state, jax.tree.map(lambda leaf: leaf + extra, state.psi))
            return plan.step(trial, jnp.asarray(3), jnp.asarray(1.0), key)[1]

        extras = jnp.arange(float(trials))
        return jax.vmap(one)(keys, extras) if trials > 1 else one(keys[0], extras[0])

    program = jax.make_jaxpr(step)(arrays, jax.random.split(jax.random.key(0), trials)).jaxpr
    assert large_results(program, 64)  # the search does find what there is
    # A surrogate of the whole data may be made now and then, inside a branch that other steps do not take.
    assert large_results(program, MANY, skip=("cond",)) == []


@pytest.mark.parametrize("name", MINIBATCH)
def test_trap_07_what_a_step_hands_on_does_not_grow_with_the_data(name):
    # The loop looks at every number of the state at every step, to see whether it is finite.
    _, state = set_up_on_many_rows(name)
    assert max(np.size(leaf) for leaf in jax.tree.leaves(state) if eqx.is_array(leaf)) < MANY


# 9. With S = 10 the normalised ESS cannot fall below 0.1. S, ESS and k-hat are reported together.


@double
def test_trap_09_few_draws_cannot_show_a_bad_proposal():
    log_w = 5.0 * np.random.default_rng(3).standard_normal(100_000)
    few = [float(normalised_ess(normalise(jnp.asarray(part)))) for part in log_w[:1000].reshape(100, 10)]
    many = float(normalised_ess(normalise(jnp.asarray(log_w))))
    assert min(few) >= 0.1 - 1e-12
    assert many < 0.002


@double
def test_trap_09_reliability_reports_draws_ess_and_khat_together():
    model, data = exact.rows("linear")
    mean, covariance = model.posterior(data)
    good = fit_with(model, data, exact.full_rank(mean, covariance)).reliability()
    bad = fit_with(model, data, exact.full_rank(mean + 5.0 * np.sqrt(np.diag(covariance)), 0.2 * covariance))
    bad = bad.reliability()
    for report in (good, bad):
        assert report["num_samples"] >= 1000
        assert report["khat_threshold"] == khat_threshold(int(report["num_samples"]))
    assert good["ess"] == pytest.approx(1.0, rel=1e-9) and good["khat"] < good["khat_threshold"]
    assert bad["ess"] < 0.05 and bad["khat"] > bad["khat_threshold"]


# 10. Adam unrolled near a stationary point gives wild hypergradients unless eps_root is set.
# 11. Unrolled steps give a useful hypergradient from a warm start, not from a cold one.


@functools.cache
def linear_case():
    """A case, the exact gradient of its KL to the data posterior, and its exact solution."""
    case = exact.coreset_case(*exact.rows("linear"), FullRank())
    truth = jax.jit(jax.grad(functools.partial(conjugate_kl, case)))(case.learned)
    return case, np.asarray(ravel_pytree(truth)[0]), case.model.posterior(case.coreset(case.learned))


def conjugate_kl(case, learned):
    """KL(coreset posterior || data posterior) up to a constant, from the conjugate formulas."""
    model, points, data = case.model, case.coreset(learned), case.data
    prior = jnp.eye(model.dim) / model.prior_scale**2
    precision = (points.x.T * points.weights) @ points.x / model.noise**2 + prior
    mean = jnp.linalg.solve(precision, points.x.T @ (points.weights * points.y)) / model.noise**2
    data_mean, data_covariance = model.posterior(data)
    data_precision = jnp.asarray(np.linalg.inv(data_covariance))
    gap = mean - data_mean
    trace = jnp.trace(jnp.linalg.solve(precision, data_precision))
    return 0.5 * (trace + gap @ data_precision @ gap + jnp.linalg.slogdet(precision)[1])


@functools.cache
def unrolled_hypergradient(eps_root):
    """start -> hypergradient through a hundred Adam steps (the paper's count), compiled."""
    case, _, _ = linear_case()
    optimizer = None if eps_root is None else optax.adam(Unrolled().learning_rate, eps_root=eps_root)
    part = Unrolled(num_steps=100, num_samples=8, optimizer=optimizer)
    noise = exact.matched_noise(3, 4, 2)

    def loss(learned, psi):
        solution, _ = part.solve(case.problem, learned, psi, jax.random.key(4))
        return case.outer_loss(UniformElbo(), learned, solution, noise)

    gradient = jax.jit(jax.grad(loss))
    return lambda psi: np.asarray(ravel_pytree(gradient(case.learned, psi))[0])


@double
@pytest.mark.parametrize("distance", [0.0, 1e-6])
def test_trap_10_hypergradients_stay_tame_where_the_inner_gradient_vanishes(distance):
    _, truth, (mean, covariance) = linear_case()
    psi = exact.full_rank(mean + distance * np.sqrt(np.diag(covariance)), covariance)
    tame = unrolled_hypergradient(None)(psi)
    wild = unrolled_hypergradient(0.0)(psi)
    assert exact.cosine(tame, truth) > 0.999
    assert np.linalg.norm(tame - truth) < 0.02 * np.linalg.norm(truth)
    assert np.linalg.norm(wild) > 10.0 * np.linalg.norm(truth)


@double
def test_trap_11_a_warm_start_makes_the_unrolled_hypergradient_right():
    _, truth, (mean, covariance) = linear_case()
    warm = exact.full_rank(mean + 0.1 * np.sqrt(np.diag(covariance)), 1.1 * covariance)
    cold = FullRank().init(jnp.zeros(2), jnp.full(2, 0.4))
    gradient = unrolled_hypergradient(None)
    assert exact.cosine(gradient(warm), truth) > 0.99
    assert exact.cosine(gradient(cold), truth) < 0.5


@double
def test_trap_11_a_construction_goes_on_from_the_last_solution():
    construction = BBPSVI(
        5, family=MeanField(), inner=Unrolled(num_steps=1, learning_rate=0.01), optimizer=Adam()
    )
    plan, state = exact.set_up(construction, *exact.rows("logistic"))
    step = eqx.filter_jit(plan.step)
    first, travelled = state.psi, []
    for index in range(3):
        # No learning rate for the leaves: psi alone moves.
        state, _ = step(state, jnp.asarray(index), jnp.asarray(0.0), jax.random.key(index))
        travelled.append(float(np.linalg.norm(state.psi["log_scale"] - first["log_scale"])))
    # One step of Adam is one learning rate long; three from a warm start are about three.
    assert travelled[0] == pytest.approx(0.01 * math.sqrt(2), rel=0.05)
    assert travelled[2] == pytest.approx(3 * travelled[0], rel=0.05)


# 12. Predictive accuracy hides a bad posterior: a diagonal r predicts the mean and misses the covariance.


@double
def test_trap_12_a_diagonal_r_has_the_right_mean_and_a_kl_of_its_own():
    model, data = exact.rows("linear", num_features=4)
    x = data.x @ jnp.asarray(np.eye(4) + 2.0 * np.eye(4, k=1))  # columns that almost repeat one another
    data = Dataset(x, data.y, data.weights)
    case = exact.coreset_case(model, data, MeanField(), learn=frozenset({"x"}), weights=Free(), size=40)
    part = Implicit(tolerance=1e-9, num_samples=16)
    start = MeanField().init(jnp.zeros(4), jnp.full(4, 0.1))
    psi, info = jax.jit(lambda psi: part.find(case.problem, case.learned, psi, jax.random.key(5)))(start)
    coreset = case.coreset(case.learned)  # all of the data
    mean, covariance = model.posterior(coreset)
    precision = np.linalg.inv(covariance)
    assert bool(info.accepted)
    np.testing.assert_allclose(psi["mean"], mean, atol=1e-7)
    # Its predictions are as good as exact ones; its KL is that of a precision without off-diagonal entries.
    labels = np.asarray(data.y)
    errors = [
        np.sqrt(np.mean((labels - np.asarray(x) @ np.asarray(theta)) ** 2)) for theta in (psi["mean"], mean)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)
    kl = exact.gaussian_kl(*MeanField().moments(psi), mean, covariance)
    assert kl == pytest.approx(
        0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1]), rel=1e-6
    )
    assert kl > 0.1


# Not in the design: unit weights cannot hold a posterior that is long in units of the prior (docs/design.md).
LAMBERT = float(scipy.special.lambertw(math.exp(-1.0)).real)  # the largest z sigmoid(-z), at z = 1 + LAMBERT


@double
@pytest.mark.parametrize("size", [10, 40])
def test_no_points_of_unit_weight_put_the_mode_of_a_logistic_regression_further_out(size):
    model, longest = LogisticRegression(3), math.sqrt(LAMBERT * size)
    generator = np.random.default_rng(size)
    for scale in (0.1, 1.0, 10.0):
        direction = generator.standard_normal(3)
        x = scale * generator.standard_normal((size, 3))
        mode, _ = laplace_moments(model, Dataset(x, (x @ direction > 0).astype(int)))
        assert np.linalg.norm(mode) < longest
    # Points in one place reach it, to a thousandth of a standard deviation: modes are searched no closer.
    place = np.array([(1.0 + LAMBERT) / longest, 0.0, 0.0])
    mode, covariance = laplace_moments(model, Dataset(np.tile(place, (size, 1)), np.ones(size, int)))
    np.testing.assert_allclose(mode, [longest, 0.0, 0.0], atol=1e-3 * math.sqrt(covariance[0, 0]))
