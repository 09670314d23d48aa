"""Tempered particles inside a fit, against sums over a grid; and when a default fit takes them by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chain_models import CHAIN_MODELS
from exact import MAX_Z

import coresetvi as cvi
from coresetvi.constructions.coverage import has_other_modes, is_concave
from coresetvi.errors import InputError
from coresetvi.families.sampled import Sampled
from coresetvi.inner.base import InnerProblem
from coresetvi.inner.tempering import temper, wide_normal
from coresetvi.models.log_joint import LogJoint

pytestmark = pytest.mark.usefixtures("quick_compilation")
FAMILY = Sampled(cvi.families.FullRank())


@pytest.fixture(scope="module")
def two_modes():
    """y ~ N(a² + 0.15 a x, 1), of which P(a < 0) is about an eighth."""
    model, data, truth, _ = CHAIN_MODELS["multimodal"]()
    found = truth()
    return model, model.check(data), float(found.weights[found.thetas[:, 0] < 0].sum())


def solved(model, data, num_particles, keys):
    """Particles of several solves, and how each of them ended."""
    problem = InnerProblem(
        lambda *_: jnp.zeros(()), FAMILY, model.dim, lambda _, reference: LogJoint(model, data, reference)
    )
    particles = cvi.inner.SMC(num_particles)
    psi = FAMILY.init(jnp.ones(model.dim), 0.2 * jnp.ones(model.dim))  # in one of the modes
    psi = particles.prepare(FAMILY, psi, model, jax.random.key(0))
    solve = jax.jit(lambda key: particles.solve(problem, {}, psi, key))
    return [solve(jax.random.key(key)) for key in range(keys)]


def test_every_mode_has_its_share_of_particles(two_modes):
    model, data, expected = two_modes
    found = solved(model, data, 256, 12)
    shares = np.array([float(jnp.mean(psi["thetas"][:, 0] < 0)) for psi, _ in found])
    assert all(bool(info.accepted) for _, info in found)
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    assert error < 0.03
    assert abs(shares.mean() - expected) < MAX_Z * error
    # Particles are made anew: the share of one solve owes nothing to another's.
    assert shares.std() > 0


def test_particles_and_their_normal_have_the_moments_of_a_conjugate_posterior():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 3)) * np.array([1.0, 5.0, 0.2])
    model = cvi.models.LinearRegression(3, noise=0.5)
    data = cvi.Dataset(x, x @ np.array([1.0, -0.3, 2.0]) + 0.5 * generator.normal(size=40))
    mean, covariance = (np.asarray(part, np.float64) for part in model.posterior(data))
    (psi, _), *others = solved(model, data, 256, 6)
    draws = np.concatenate([np.asarray(one["thetas"]) for one in (psi, *(pair[0] for pair in others))])
    units = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T).T
    # 6 x 256 draws; resampling leaves at least a third of them independent.
    assert np.abs(units.mean(axis=0)).max() < 5.0 / np.sqrt(len(draws) / 3)
    assert np.abs(np.cov(units.T) - np.eye(3)).max() < 5.0 * np.sqrt(2.0) / np.sqrt(len(draws) / 3)
    around = np.asarray(psi["factor"] @ psi["factor"].T, np.float64)
    own = np.cov(np.asarray(psi["thetas"], np.float64).T)
    assert np.allclose(np.diagonal(around), np.diagonal(own), rtol=0.02)


def test_the_evidence_is_that_of_a_conjugate_model():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(30, 2))
    model = cvi.models.LinearRegression(2, noise=0.7)
    data = cvi.Dataset(x, x @ np.array([1.0, -1.0]) + 0.7 * generator.normal(size=30))
    psi = FAMILY.init(jnp.zeros(2), jnp.ones(2))
    center, width = wide_normal(model, FAMILY, psi, jax.random.key(0))
    # The prior is N(0, I), and its slopes say so.
    assert np.allclose(center, 0.0, atol=1e-3) and np.all(width >= 0.99)
    run = jax.jit(lambda key: temper(LogJoint(model, data, jnp.zeros(2)), center, width, 256, key))
    logs = np.array([float(run(jax.random.key(key)).log_evidence) for key in range(12)])
    value = float(np.asarray(jnp.sum(model.log_likelihood(jnp.zeros(2), data.x, data.y))))
    error = logs.std(ddof=1) / np.sqrt(len(logs))
    assert abs(logs.mean() + value - float(model.log_evidence(data))) < MAX_Z * error + 0.02


def test_a_default_fit_finds_modes_that_a_normal_does_not_know(two_modes):
    model, data, expected = two_modes
    fit = cvi.fit(cvi.BBPSVI(20), model, data, key=0)
    assert isinstance(fit.construction, cvi.BBPSVI) and isinstance(fit.construction.inner, cvi.inner.SMC)
    assert fit.result == "finished" and fit.about["kl"] < 0.01
    # Runs are the chains of what is kept, and particles their draws.
    assert fit.psi["thetas"].shape == (4, 256, 1) and set(fit.psi) == {"mean", "factor", "thetas"}
    share = float(np.mean(np.asarray(fit.psi["thetas"]) < 0))
    assert abs(share - expected) < 0.06
    assert cvi.diagnose(fit, data).verdict == "trust"


def test_a_look_from_far_away_is_taken_only_where_there_may_be_something(two_modes):
    model, data, _ = two_modes
    key = jax.random.key(0)
    plan = cvi.BBPSVI(20).settle(model, data)
    state = plan.start(key)
    # Around r all is concave; only further away is it not.
    assert not is_concave(plan, state, key) and has_other_modes(plan, state, key)
    train, _ = cvi.datasets.synthetic_lr(n=100, dim=2)
    plain = cvi.BBPSVI(8).settle(cvi.models.LogisticRegression(2), train)
    assert is_concave(plain, plain.start(key), key)
    robust, rows, _, _ = CHAIN_MODELS["robust"]()
    plan = cvi.BBPSVI(20).settle(robust, robust.check(rows))
    state = plan.start(key)
    assert not is_concave(plan, state, key) and not has_other_modes(plan, state, key)


def test_too_few_particles_are_refused():
    with pytest.raises(InputError, match="num_particles must be at least 16 to be tempered, not 3"):
        cvi.inner.SMC(num_particles=3)
