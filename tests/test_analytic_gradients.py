"""Constructions that take draws for draws of the coreset posterior: where those come from, and what follows.

The linear-Gaussian model makes every assumption true: the Laplace approximation is the coreset posterior, and
KL(coreset posterior || data posterior) is a function of the raw leaves that can be differenced.
"""

import dataclasses
from typing import Any

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from exact import MAX_Z
from jax.flatten_util import ravel_pytree
from registry import logistic_laplace

import coresetvi as cvi
from coresetvi.data import Dataset
from coresetvi.families import FullRank, MeanField
from coresetvi.inner import Laplace, Mcmc
from coresetvi.models import LogisticRegression
from coresetvi.objectives import ImportanceElbo
from coresetvi.outer import Adam, NaturalGradient
from coresetvi.outer.base import Draft
from coresetvi.weights import Free

float64 = exact.float64
pytestmark = pytest.mark.usefixtures("float64")
# Of any type, for what they make depends on names and parts.
coreset_case: Any = exact.coreset_case
rows: Any = exact.rows
set_up: Any = exact.set_up
KEY = jax.random.key(7)
SHARP = Laplace(tolerance=1e-10)
HARD_LABELS = frozenset({"x", "weights", "total"})
# The search stops at a gradient of 1e-10 posterior standard deviations.
EXACT: Any = {"rtol": 1e-8, "atol": 1e-10}


def start_of(case):
    """A member that is not the solution."""
    dim = case.model.dim
    return case.problem.family.init(np.full(dim, 0.1), np.full(dim, 0.4))


def solve(part, case, psi):
    return jax.jit(lambda psi: part.solve(case.problem, case.learned, psi, KEY))(psi)


def pair_means(values):
    """Means of antithetic pairs, which are independent of one another."""
    values = np.asarray(values, np.float64)
    half = len(values) // 2
    return 0.5 * (values[:half] + values[half:])


def standard_error(values):
    means = pair_means(values)
    return np.std(means, axis=0, ddof=1) / np.sqrt(len(means))


# Laplace's approximation


def test_laplace_of_a_linear_gaussian_coreset_is_its_posterior():
    case = coreset_case(*rows("linear"), FullRank())
    psi, info = solve(SHARP, case, start_of(case))
    for found, expected in zip(
        FullRank().moments(psi), case.model.posterior(case.coreset(case.learned)), strict=True
    ):
        np.testing.assert_allclose(found, expected, **EXACT)
    assert bool(info.accepted) and float(info.gradient_norm) <= SHARP.tolerance


def test_laplace_of_a_diagonal_family_takes_the_diagonal_of_the_precision():
    case = coreset_case(*rows("linear"), MeanField())
    psi, _ = solve(SHARP, case, start_of(case))
    mean, covariance = case.model.posterior(case.coreset(case.learned))
    scale = 1.0 / np.sqrt(np.diag(np.linalg.inv(covariance)))
    # Columns are correlated: the marginal standard deviations would be clearly larger.
    assert np.all(np.sqrt(np.diag(covariance)) > 1.05 * scale)
    np.testing.assert_allclose(psi["mean"], mean, **EXACT)
    np.testing.assert_allclose(np.exp(psi["log_scale"]), scale, **EXACT)


@pytest.mark.parametrize("learn", [HARD_LABELS, HARD_LABELS | {"y"}], ids=["hard labels", "soft labels"])
def test_laplace_of_a_logistic_coreset_is_newtons_wherever_it_starts(learn):
    case = coreset_case(*rows("logistic"), FullRank(), learn=learn)
    coreset = case.coreset(case.learned)
    labels = coreset.y if coreset.y.ndim == 1 else coreset.y[:, 1]
    mean, covariance = logistic_laplace(coreset.x, labels, coreset.weights, case.model.prior_scale)
    cold = start_of(case)
    warm = exact.full_rank(mean + 0.1 * np.sqrt(np.diag(covariance)), 1.2 * covariance)
    for psi in (cold, warm):
        found, info = solve(SHARP, case, psi)
        np.testing.assert_allclose(found["mean"], mean, **EXACT)
        np.testing.assert_allclose(FullRank().moments(found)[1], covariance, **EXACT)
        assert bool(info.accepted)


def test_laplace_that_runs_out_of_steps_is_not_accepted():
    case = coreset_case(*rows("logistic"), FullRank())
    far = FullRank().init(jnp.full(2, 30.0), jnp.full(2, 0.1))
    stopped, info = solve(Laplace(max_steps=1), case, far)
    assert not bool(info.accepted)
    assert float(info.gradient_norm) > Laplace().tolerance
    found, info = solve(Laplace(), case, far)
    assert bool(info.accepted)
    assert np.all(np.abs(stopped["mean"] - found["mean"]) > 1.0)


# Markov chains


def skewed_case():
    """Two points that a line separates: a posterior with a long tail to the right."""
    data = Dataset([[2.0], [-1.0]], [1, 0], [2.0, 2.0])
    learn = frozenset({"weights"})
    return coreset_case(
        LogisticRegression(1, prior_scale=1.5), data, FullRank(), learn=learn, weights=Free(), size=2
    )


def powers(thetas):
    return np.asarray(thetas)[:, 0, None] ** np.arange(1, 4)


def test_chains_have_the_moments_of_a_skewed_posterior_and_laplace_has_not():
    case = skewed_case()
    coreset = case.coreset(case.learned)
    x, sign = np.asarray(coreset.x)[:, 0], 2.0 * np.asarray(coreset.y) - 1.0
    grid = np.linspace(-20.0, 20.0, 20_001)
    log_density = -0.5 * (grid / case.model.prior_scale) ** 2
    for each, side, weight in zip(x, sign, np.asarray(coreset.weights), strict=True):
        log_density -= weight * np.logaddexp(0.0, -side * each * grid)
    density = np.exp(log_density - log_density.max())
    expected = density @ powers(grid[:, None]) / density.sum()
    psi, _ = solve(SHARP, case, start_of(case))
    scores = {}
    for part in (Mcmc(num_steps=20), Laplace()):
        draw = jax.jit(lambda part=part: part.draws(case.problem, case.learned, psi, KEY, 8_000))
        thetas, proposal = draw()
        values = powers(thetas)
        scores[type(part)] = np.abs(values.mean(axis=0) - expected) / standard_error(values)
        np.testing.assert_allclose(proposal, jax.vmap(FullRank().log_prob, (None, 0))(psi, thetas))
    assert np.all(scores[Mcmc] < MAX_Z), scores[Mcmc]
    assert np.all(scores[Laplace] > 4 * MAX_Z), scores[Laplace]


def test_chains_leave_a_gaussian_posterior_as_it_is():
    case = coreset_case(*rows("linear"), FullRank())
    psi, _ = solve(SHARP, case, start_of(case))
    part = Mcmc(num_steps=3)
    thetas, _ = jax.jit(lambda: part.draws(case.problem, case.learned, psi, KEY, 8_000))()
    mean, covariance = case.model.posterior(case.coreset(case.learned))
    noise = np.linalg.solve(np.linalg.cholesky(covariance), (np.asarray(thetas) - mean).T).T
    values = np.column_stack([noise, noise**2, noise.prod(axis=1), noise**3, noise**4, noise > 1.0])
    expected = [0, 0, 1, 1, 0, 0, 0, 3, 3, *[0.158655254] * 2]
    # The chains do move, so this is not the start looked at again.
    start = np.asarray(FullRank().draw(psi, jax.random.split(KEY)[0], 8_000, 2)[0])
    assert abs(np.corrcoef(start[:, 0], thetas[:, 0])[0, 1]) < 0.5
    assert np.all(np.abs(values.mean(axis=0) - expected) < MAX_Z * standard_error(values))


# The gradient of an outer step


def kl_of(model, data):
    """KL(coreset posterior || data posterior) as a function of the coreset."""
    target = model.posterior(data)
    return lambda coreset: exact.gaussian_kl(*model.posterior(coreset), *target)


NUM_DRAWS = 20_000
PARTS = {"objective": ImportanceElbo(NUM_DRAWS), "family": FullRank(), "inner": SHARP, "optimizer": Adam()}
LEARNERS = {
    "PSVI": cvi.PSVI(5, learn={"x", "y", "weights", "total"}, **PARTS),
    "Sparse VI": cvi.SparseVI(5, **PARTS)._weight_learner(),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_the_gradient_of_a_step_is_that_of_the_exact_kl(name):
    model, data = rows("linear")
    plan, state = set_up(LEARNERS[name], model, data)
    if name == "Sparse VI":
        # As in the middle of a greedy fit: two slots are still empty, whatever their raw weights.
        state = dataclasses.replace(
            state, frozen={**state.frozen, "active": jnp.asarray([1.0, 1.0, 0.0, 1.0, 0.0])}
        )
    kl = kl_of(model, data)
    assert kl(plan.parametrisation.build({**state.frozen, **state.learned})) > 0.1
    expected = exact.finite_difference(
        lambda learned: kl(plan.parametrisation.build({**state.frozen, **learned})),
        state.learned,
        compiled=True,
    )
    moved, info = jax.jit(lambda: plan.step(state, jnp.asarray(0), jnp.asarray(1.0), KEY))()
    # After one step Adam's running mean is a tenth of the gradient.
    gradient = 10.0 * np.asarray(ravel_pytree(moved.optimizer.mu[0])[0])

    # What each draw contributes to -Cov(d core / d phi, data - core) tells the error of the average.
    flat, unravel = ravel_pytree(state.learned)
    keys = jax.random.split(KEY, 3)
    outer = plan.target(state, keys)

    @jax.jit
    def contributions():
        psi, inner = outer.solve(state.learned, state.psi)
        thetas, proposal = outer.draw(state.learned, psi)
        reference = jnp.mean(thetas, axis=0)
        draft = Draft(thetas, reference, proposal, psi, inner)
        rises = plan.answer(state, jnp.asarray(0), draft, keys)[0].rises
        residual = rises - outer.core(state.learned, thetas, reference)
        scores = jax.vmap(
            jax.grad(lambda leaves, theta: outer.core(unravel(leaves), theta[None], reference)[0]), (None, 0)
        )(flat, thetas)
        return -(scores - scores.mean(axis=0)) * (residual - residual.mean())[:, None]

    error = standard_error(contributions())
    assert np.linalg.norm(error) < 0.04 * np.linalg.norm(expected)
    assert np.all(np.abs(gradient - expected) <= MAX_Z * error + 1e-7)
    assert exact.cosine(gradient, expected) > 0.999
    # Means of quadratics have no error over draws with exact second moments.
    bound = kl(plan.parametrisation.build({**state.frozen, **state.learned})) - model.log_evidence(data)
    assert float(info.loss) == pytest.approx(bound, rel=1e-9)


# Weights at the edge


def test_weights_that_are_pushed_below_zero_stay_and_the_rest_moves_without_them(monkeypatch):
    model, data = rows("linear")
    case = coreset_case(model, data, FullRank(), learn=frozenset({"weights"}), weights=Free(), seed=1)
    used, unused = np.array([0, 3, 4]), np.array([1, 2])
    raw = jnp.asarray([1.0, 0.0, 0.0, 1.0, 1.0])
    fewer = case._replace(
        learned={"weights": raw[used] * 3 / 5},
        frozen={name: leaf[used] if leaf.ndim else leaf for name, leaf in case.frozen.items()},
    )
    case = case._replace(learned={"weights": raw})
    psi = exact.full_rank(*model.posterior(case.coreset(case.learned)))
    noise = exact.matched_noise(5, 40, 2)
    slope = exact.finite_difference(
        lambda learned: case.outer_loss(ImportanceElbo(), learned, psi, noise), case.learned
    )
    assert np.all(slope[unused] > 0.1)
    # Raw weights count in units of N/M, which differ; a bound on moves would be in those units.
    optimizer = NaturalGradient(max_move=1e9)

    def weights_after(case):
        outer = case.target(ImportanceElbo(), noise)
        state = optimizer.init(case.learned, FullRank(), psi)
        learned = jax.jit(lambda learned: exact.take_step(optimizer, outer, learned, psi, state, 1.0).learned)
        return np.asarray(case.coreset(learned(case.learned)).weights)

    moved, alone = weights_after(case), weights_after(fewer)
    np.testing.assert_array_equal(moved[unused], 0.0)
    np.testing.assert_allclose(moved[used], alone, rtol=1e-8)
    assert np.all(np.abs(alone - np.asarray(case.coreset(case.learned).weights)[used]) > 0.1)
    # Cutting off a step that was solved for all points is another step.
    monkeypatch.setattr(NaturalGradient, "_blocked", lambda *_: jnp.zeros(5, bool))
    assert np.max(np.abs(weights_after(case)[used] - alone)) > 0.1


@pytest.mark.slow
def test_quasi_newton_finds_the_best_weights_that_are_not_negative():
    model, data = rows("linear", num_rows=30, num_features=4, seed=3)
    fit = cvi.fit(cvi.QuasiNewton(8, weights=Free()), model, data, key=1, num_steps=40, progress=False)
    points = data.take(np.asarray(fit.coreset.indices))
    x, y = (np.asarray(part, np.float64) for part in (points.x, points.y))
    target = model.posterior(data)

    def kl_at(weights):
        precision = (x.T * weights) @ x / model.noise**2 + np.eye(4) / model.prior_scale**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ (x.T @ (weights * y)) / model.noise**2
        return exact.gaussian_kl(mean, covariance, *target)

    even = np.full(8, float(data.total_weight) / 8)
    starts = [even, *np.random.default_rng(0).gamma(1.0, even[0], (5, 8))]
    options = {"method": "L-BFGS-B", "bounds": [(0, None)] * 8}
    # The divergence is not convex in the weights, so one search might end in the wrong valley.
    best = min(scipy.optimize.minimize(kl_at, start, **options).fun for start in starts)
    assert best > 0.05  # eight weights cannot make up for fourteen moments
    assert kl_at(even) > best + 0.5
    found = kl_at(np.asarray(fit.coreset.weights))
    assert best - 1e-6 <= found < best + 1e-2
