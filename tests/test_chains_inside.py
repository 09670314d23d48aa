"""Chains inside a fit: their draws against exact posteriors, and fits whose posterior is draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.constructions.chain_draws import ChainWatch
from coresetvi.families.sampled import Sampled
from coresetvi.inner.base import InnerProblem
from coresetvi.inner.chains import disagreement, find_lost, replace_lost
from coresetvi.models.log_joint import LogJoint

MODEL = cvi.models.LinearRegression(3, noise=0.5)


def rows(number=60, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(number, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 30.0]])
    y = x @ np.array([1.0, -1.0, 0.02]) + 0.5 * generator.normal(size=number)
    return cvi.Dataset(x, y)


def problem_of(data, model=MODEL):
    family = Sampled(cvi.families.FullRank())

    def log_joint(learned, reference):
        return LogJoint(model, data, reference)

    return InnerProblem(lambda *_: jnp.zeros(()), family, model.dim, log_joint)


@pytest.mark.parametrize("method", ["hmc", "nuts"])
def test_chains_draw_the_exact_posterior_of_a_conjugate_model(method):
    data, chains = rows(), cvi.inner.Chains(num_chains=64, num_transitions=10, method=method)
    problem = problem_of(data)
    psi = problem.family.init(jnp.zeros(3), jnp.asarray([0.1, 0.1, 0.01]))
    psi = chains.prepare(problem.family, psi, MODEL, jax.random.key(0))
    solve = jax.jit(lambda psi, key: chains.solve(problem, {}, psi, key))
    solved = []
    for number in range(60):
        solved.append(solve(psi, jax.random.key(number)))
        psi = solved[-1][0]
    info = solved[-1][1]
    draws = np.concatenate([np.asarray(one["thetas"]) for one, _ in solved[20:]])
    mean, covariance = (np.asarray(part, np.float64) for part in MODEL.posterior(data))
    # 40 x 64 draws, of which at least a thousand are independent.
    white = np.linalg.inv(np.linalg.cholesky(covariance))
    units = (draws - mean) @ white.T
    assert np.abs(units.mean(axis=0)).max() < 4 / np.sqrt(1000)
    assert np.abs(np.cov(units.T) - np.eye(3)).max() < 6 / np.sqrt(1000)
    assert 0.6 < float(info.more["acceptance"]) < 0.95
    assert 1.0 <= float(info.more["r_hat"]) < 1.1
    assert float(info.more["replaced"]) == 0.0
    # The units that chains walk in are the posterior's own.
    factor = np.asarray(psi["factor"], np.float64)
    scaled = white @ factor @ factor.T @ white.T
    assert 0.5 < np.linalg.eigvalsh(scaled).min() <= np.linalg.eigvalsh(scaled).max() < 2.0


def test_a_lost_chain_goes_on_from_the_place_of_another():
    height = jnp.asarray([-1.0, -2.0, jnp.nan, -500.0, -3.0, -jnp.inf])
    lost = find_lost(height, dim=4)
    assert lost.tolist() == [False, False, True, True, False, True]
    thetas = jnp.arange(6.0)[:, None]
    moved = replace_lost(thetas, lost, jax.random.key(0))[:, 0].tolist()
    assert [moved[index] for index in (0, 1, 4)] == [0.0, 1.0, 4.0]
    assert all(moved[index] in (0.0, 1.0, 4.0) for index in (2, 3, 5))


def test_disagreement_is_gelman_and_rubins():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(8, 1000, 2))
    values[0, :, 1] += 3.0  # one chain elsewhere, in the second feature only
    mean, square = jnp.asarray(values.mean(axis=1)), jnp.asarray((values**2).mean(axis=1))
    within, between = values[..., 1].var(axis=1).mean(), values[..., 1].mean(axis=1).var()
    assert float(disagreement(mean, square)) == pytest.approx(np.sqrt(1 + between / within), rel=1e-3)
    assert float(disagreement(mean[:, :1], square[:, :1])) < 1.01


def test_chains_that_still_climb_have_not_arrived():
    watch = ChainWatch(3, 100)
    assert not any(watch.has_arrived(10.0 * step, 1.0) for step in range(30))
    assert any(watch.has_arrived(300.0, 1.0) for _ in range(60))


@pytest.fixture(scope="module")
def hierarchy():
    """Varying intercepts in a model of callables, whose posterior given the scales is normal."""
    generator = np.random.default_rng(3)
    group = np.repeat(np.arange(12), [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 34])
    x = np.stack([group, generator.normal(size=120)], axis=1)
    y = 0.7 * generator.normal(size=12)[group] + 0.5 * x[:, 1] + 0.6 * generator.normal(size=120)

    def log_prior(theta):
        scale = theta[13]
        effects = jnp.sum(-0.5 * (theta[:12] / jnp.exp(scale)) ** 2 - scale)
        return effects - 0.5 * (theta[12] / 2.0) ** 2 - 0.5 * (scale / 0.5) ** 2

    def log_likelihood(theta, x, y):
        middle = theta[x[:, 0].astype(int)] + theta[12] * x[:, 1]
        return -0.5 * ((y - middle) / 0.6) ** 2

    return cvi.models.FromCallables(log_prior, log_likelihood, jnp.zeros(14)), cvi.Dataset(x, y)


@pytest.fixture(scope="module")
def fitted(hierarchy):
    model, data = hierarchy
    construction = cvi.BBPSVI(24, inner=cvi.inner.Chains(num_chains=48))
    return cvi.fit(construction, model, data, key=0)


def exact_moments(data):
    """Mean and deviation of every parameter: normal given the log-scale, and the log-scale on a grid."""
    x, y = np.asarray(data.x, np.float64), np.asarray(data.y, np.float64)
    design = np.concatenate([np.eye(12)[x[:, 0].astype(int)], x[:, 1:]], axis=1)
    logs, means, squares = [], [], []
    grid = np.linspace(-2.5, 2.5, 401)
    for scale in grid:
        prior = np.diag([*np.full(12, np.exp(-2 * scale)), 0.25])
        precision = design.T @ design / 0.36 + prior
        covariance = np.linalg.inv(precision)
        mean = covariance @ design.T @ y / 0.36
        logs.append(
            0.5 * mean @ precision @ mean
            - 0.5 * np.linalg.slogdet(precision)[1]
            - 12 * scale
            - 0.5 * (scale / 0.5) ** 2
        )
        means.append(np.append(mean, scale))
        squares.append(np.append(mean**2 + np.diagonal(covariance), scale**2))
    weights = np.exp(np.asarray(logs) - max(logs))
    weights /= weights.sum()
    mean = weights @ np.asarray(means)
    return mean, np.sqrt(weights @ np.asarray(squares) - mean**2)


def test_a_fit_with_chains_has_the_exact_posterior_of_a_hierarchy(hierarchy, fitted):
    _, data = hierarchy
    assert fitted.result == "finished", fitted.explanation
    # Two points per group are enough for all that the data say, and the steps find them.
    assert fitted.history["kl"][-1] < 1e-6 and len(fitted.history["kl"]) < 200
    # The group of every point is one of the data's.
    assert set(np.asarray(fitted.coreset.x[:, 0]).tolist()) == set(range(12))
    mean, deviation = exact_moments(data)
    draws = cvi.sample(fitted, method="chains", num_samples=250, num_chains=4)
    flat = draws.flat.reshape(-1, 14)
    assert np.abs((flat.mean(axis=0) - mean) / deviation).max() < 0.2
    assert np.abs(flat.std(axis=0) / deviation - 1).max() < 0.15


def test_a_fit_with_chains_keeps_draws_and_uses_them(hierarchy, fitted, tmp_path):
    model, data = hierarchy
    assert isinstance(fitted.family, Sampled)
    assert fitted.psi["thetas"].ndim == 3 and fitted.psi["thetas"].shape[0] == 48
    assert set(fitted.psi) == {"mean", "factor", "thetas"}
    thetas, log_w = fitted.draws(200)
    assert thetas.shape == (200, 14) and float(jnp.ptp(log_w)) == 0.0
    quality = fitted.reliability()
    assert quality["ess"] > 0.3 and quality["r_hat"] < 1.1
    fitted.save(tmp_path / "fitted")
    again = cvi.load(tmp_path / "fitted", model=model)
    assert np.array_equal(again.psi["thetas"], fitted.psi["thetas"])
    certificate = cvi.diagnose(again, data)
    assert certificate.verdict == "trust", str(certificate)
    assert certificate.posterior["kl"] < 0.05


def test_history_tells_how_the_chains_did(fitted):
    steps = len(fitted.history["kl"])
    for name in ("acceptance", "r_hat", "replaced", "height", "width"):
        assert fitted.history[name].shape == (steps,)
    assert np.all((fitted.history["acceptance"] > 0.4) & (fitted.history["acceptance"] <= 1.0))


def test_chains_serve_natural_gradients_too():
    data = rows(200)
    construction = cvi.BBPSVI(
        12, inner=cvi.inner.Chains(num_chains=32, num_transitions=4), optimizer=cvi.outer.NaturalGradient()
    )
    fit = cvi.fit(construction, MODEL, data, key=0, num_steps=80)
    assert np.median(fit.history["kl"][-10:]) < 0.05 and fit.psi["thetas"].shape == (32, 32, 3)


def test_chains_serve_matching_too():
    data = rows(200)
    construction = cvi.BBPSVI(
        12, inner=cvi.inner.Chains(num_chains=64, num_transitions=60), optimizer=cvi.outer.Matching()
    )
    fit = cvi.fit(construction, MODEL, data, key=0)
    assert fit.result == "finished" and fit.psi["thetas"].shape[0] == 64


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_chains": 2}, "num_chains must be at least 4"),
        ({"method": "gibbs"}, "method must be one of nuts, hmc"),
        ({"acceptance": 1.5}, "acceptance must be below 1"),
    ],
)
def test_settings_that_make_no_chains_are_refused(arguments, sentence):
    with pytest.raises(cvi.errors.InputError, match=sentence):
        cvi.inner.Chains(**arguments)


@pytest.mark.parametrize("optimizer", [cvi.outer.SlopeMatching(), cvi.outer.RiseMatching()])
def test_matching_draws_without_chains_is_refused(optimizer):
    construction = cvi.BBPSVI(8, inner=cvi.inner.Implicit(), optimizer=optimizer)
    with pytest.raises(cvi.errors.InputError, match="needs draws of the coreset posterior"):
        cvi.fit(construction, MODEL, rows(), key=0)
