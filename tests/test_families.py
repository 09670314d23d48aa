"""Families: every member is the normal its moments say, and tangents are in posterior standard deviations."""

import functools

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree

from coresetvi._registry import decode, encode
from coresetvi.errors import InputError
from coresetvi.families import FullRank, LowRank, MeanField, Point
from coresetvi.families.base import draw_noise

float64 = exact.float64
double = pytest.mark.usefixtures("float64")
FAMILIES = [MeanField(), FullRank(), LowRank(2)]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
# A point mass is no normal: what is about densities and standard deviations does not hold for it.
or_point = pytest.mark.parametrize("family", [*FAMILIES, Point()], ids=lambda family: type(family).__name__)
DIM = 3
# Compiled as one piece: much faster than one small operation at a time.
noise_of = jax.jit(draw_noise, static_argnums=(1, 2))


@functools.cache
def random_member(family, seed=0, dim=DIM):
    """A member with scales over four orders of magnitude and, where the family can, correlations; float64."""
    assert jnp.zeros(()).dtype == jnp.float64
    generator = np.random.default_rng(seed)
    scale = jnp.asarray(10.0 ** np.linspace(-2, 2, dim))
    psi = family.init(jnp.asarray(generator.standard_normal(dim)), scale)
    tangent = jax.tree.map(lambda leaf: jnp.asarray(0.5 * generator.standard_normal(leaf.shape)), psi)
    return jax.jit(family.move)(psi, tangent)


def draws_and_scores(family, psi, noise):
    """Draws, the density they came with, and their density looked up again."""
    thetas, log_prob = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
    return thetas, log_prob, jax.vmap(lambda theta: family.log_prob(psi, theta))(thetas)


@double
@every_family
def test_log_prob_is_that_of_the_normal_with_its_moments(family):
    psi = random_member(family)
    mean, covariance = family.moments(psi)
    reference = exact.normal(mean, covariance)
    points = reference.rvs(20, random_state=1) + np.sqrt(np.diag(covariance))
    log_prob = jax.jit(jax.vmap(lambda theta: family.log_prob(psi, theta)))(jnp.asarray(points))
    np.testing.assert_allclose(log_prob, reference.logpdf(points), rtol=1e-9)


@double
@or_point
def test_sample_and_log_prob_scores_its_own_draw(family):
    psi = random_member(family)
    noise = jax.random.normal(jax.random.key(0), (50, family.noise_dim(DIM)))
    _, log_prob, again = jax.jit(draws_and_scores, static_argnums=0)(family, psi, noise)
    np.testing.assert_allclose(log_prob, again, rtol=1e-9)


@double
@every_family
def test_independent_draws_have_the_moments_within_their_monte_carlo_error(family):
    psi = random_member(family)
    size = 20_000
    noise = jax.random.normal(jax.random.key(3), (size, family.noise_dim(DIM)))
    thetas = np.asarray(jax.jit(draws_and_scores, static_argnums=0)(family, psi, noise)[0])
    mean, covariance = (np.asarray(moment) for moment in family.moments(psi))
    variance = np.diag(covariance)
    z_mean = (thetas.mean(0) - mean) / np.sqrt(variance / size)
    # Var of an entry of the sample covariance of normals with known mean: (C_ii C_jj + C_ij^2) / S.
    sample = (thetas - mean).T @ (thetas - mean) / size
    z_covariance = (sample - covariance) / np.sqrt((np.outer(variance, variance) + covariance**2) / size)
    assert np.abs(z_mean).max() < exact.MAX_Z
    assert np.abs(z_covariance).max() < exact.MAX_Z


@double
@every_family
def test_matched_draws_have_the_moments_exactly(family):
    psi = random_member(family)
    size = 4 * family.noise_dim(DIM)
    thetas, log_prob = jax.jit(family.draw, static_argnums=(2, 3))(psi, jax.random.key(5), size, DIM)
    mean, covariance = (np.asarray(moment) for moment in family.moments(psi))
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((np.mean(thetas, 0) - mean) / scale, 0.0, atol=1e-12)
    centred = (np.asarray(thetas) - mean) / scale
    np.testing.assert_allclose(centred.T @ centred / size, covariance / np.outer(scale, scale), atol=1e-12)
    assert log_prob.shape == (size,)


@double
@or_point
def test_zero_tangent_stays(family):
    psi = random_member(family)
    stayed = jax.jit(family.move)(psi, family.zero(psi))
    for before, after in zip(jax.tree.leaves(psi), jax.tree.leaves(stayed), strict=True):
        np.testing.assert_array_equal(before, after)


@double
@every_family
def test_mean_tangent_is_measured_in_standard_deviations(family):
    psi = random_member(family)
    zero = family.zero(psi)
    step = 1e-3
    shifted = [
        family.move(psi, {**zero, "mean": zero["mean"].at[index].set(step)})["mean"] - psi["mean"]
        for index in range(DIM)
    ]
    # Columns of d mean / d tangent: a factor of the covariance, or of its diagonal part.
    factor = np.stack(shifted, axis=1) / step
    _, covariance = family.moments(psi)
    if "spread" in psi:
        covariance = covariance - psi["spread"] @ psi["spread"].T
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(
        (factor @ factor.T) / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=1e-9
    )


def kl_in_tangents(family, psi):
    """The exact KL of a moved member to `psi` itself, as a function of the flat tangent."""
    mean, covariance = family.moments(psi)
    precision = jnp.linalg.inv(covariance)
    _, unravel = ravel_pytree(family.zero(psi))

    def kl(flat):
        moved_mean, moved_covariance = family.moments(family.move(psi, unravel(flat)))
        gap = moved_mean - mean
        log_volume = jnp.linalg.slogdet(moved_covariance)[1] - jnp.linalg.slogdet(covariance)[1]
        return 0.5 * (jnp.trace(precision @ moved_covariance) + gap @ precision @ gap - DIM - log_volume)

    return kl


@double
@pytest.mark.parametrize("family", [MeanField(), FullRank()], ids=lambda family: type(family).__name__)
def test_inner_hessian_at_a_gaussian_solution_is_one_or_two_whatever_the_units(family):
    psi = random_member(family)
    zero = family.zero(psi)
    flat, _ = ravel_pytree(zero)
    kl = kl_in_tangents(family, psi)
    # KL = |t|^2 / 2 in the mean, (exp(2 t) - 1) / 2 - t in a log-scale, t^2 / 2 below the diagonal of a
    # factor; entries above the diagonal do nothing.
    expected = {"mean": jnp.ones(DIM)}
    if isinstance(family, MeanField):
        expected["log_scale"] = 2.0 * jnp.ones(DIM)
    else:
        expected["factor"] = jnp.tril(jnp.ones((DIM, DIM))) + jnp.eye(DIM)
    slope, curvature = jax.jit(lambda flat: (jax.grad(kl)(flat), jax.hessian(kl)(flat)))(flat)
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)
    np.testing.assert_allclose(curvature, np.diag(ravel_pytree(expected)[0]), atol=1e-8)


@every_family
def test_init_has_the_requested_mean_and_scale(family):
    mean, scale = jnp.asarray([1.0, -2.0, 3.0]), jnp.asarray([0.01, 1.0, 100.0])
    got_mean, covariance = family.moments(family.init(mean, scale))
    correlation = np.asarray(covariance / jnp.outer(scale, scale))
    np.testing.assert_array_equal(got_mean, mean)
    # LowRank starts a little off the diagonal on purpose: a tenth of a scale in each of its columns.
    slack = 0.01 * family.rank if isinstance(family, LowRank) else 1e-6
    np.testing.assert_allclose(correlation, np.eye(DIM), atol=slack)


def test_low_rank_does_not_start_at_its_saddle():
    spread = LowRank(2).init(jnp.zeros(5), jnp.ones(5))["spread"]
    assert np.linalg.matrix_rank(np.asarray(spread), tol=1e-2) == 2


@pytest.mark.parametrize("rank", [0, -1])
def test_low_rank_refuses_a_rank_that_cannot_be(rank):
    with pytest.raises(InputError, match=f"at least 1, not {rank}"):
        LowRank(rank)


@or_point
def test_a_family_is_configuration_that_can_be_saved(family):
    assert decode(encode(family)) == family


# A point mass


@double
def test_every_draw_of_a_point_is_its_mean_with_all_the_mass():
    psi = random_member(Point())
    thetas, log_prob = Point().draw(psi, jax.random.key(0), 5, DIM)
    np.testing.assert_array_equal(thetas, np.tile(psi["mean"], (5, 1)))
    np.testing.assert_array_equal(log_prob, np.zeros(5))
    mean, covariance = Point().moments(psi)
    np.testing.assert_array_equal(mean, psi["mean"])
    np.testing.assert_array_equal(covariance, np.zeros((DIM, DIM)))


@double
def test_a_point_moves_in_units_of_its_starting_scale_and_keeps_them():
    scale = jnp.asarray([0.01, 1.0, 100.0])
    psi = Point().init(jnp.asarray([1.0, -2.0, 3.0]), scale)
    moved = Point().move(psi, {"mean": jnp.asarray([2.0, 0.5, -1.0])})
    np.testing.assert_allclose(moved["mean"], [1.02, -1.5, -97.0], rtol=1e-12)
    np.testing.assert_array_equal(moved["unit"], scale)


@double
def test_a_point_takes_its_units_from_curvature():
    psi = Point().init(jnp.zeros(2), jnp.asarray([0.1, 10.0]))
    precision = jnp.asarray([[4.0, 1.0], [1.0, 25.0]])  # in the units of psi
    bent, proper = Point().with_curvature(psi, lambda vector: precision @ vector)
    assert bool(proper)
    np.testing.assert_allclose(bent["unit"], [0.1 / 2.0, 10.0 / 5.0], rtol=1e-12)
    np.testing.assert_array_equal(bent["mean"], psi["mean"])


# Noise


@pytest.mark.parametrize("dim", [0, 3])
@pytest.mark.parametrize("num_samples", [1, 2, 7, 12, 64])
def test_noise_has_the_requested_shape(num_samples, dim):
    shape = jax.eval_shape(lambda key: draw_noise(key, num_samples, dim), jax.random.key(0)).shape
    assert shape == (num_samples, dim)


@pytest.mark.parametrize("num_samples", [6, 14])
def test_noise_comes_in_antithetic_pairs(num_samples):
    first, second = np.split(np.asarray(noise_of(jax.random.key(0), num_samples, 3)), 2)
    np.testing.assert_array_equal(first, -second)


def test_odd_noise_is_even_noise_with_one_draw_left_out():
    even, odd = (noise_of(jax.random.key(0), number, 3) for number in (14, 13))
    np.testing.assert_array_equal(odd, even[:13])


@double
@pytest.mark.parametrize("num_samples, matched", [(10, False), (12, True)])
def test_second_moment_is_exact_from_two_pairs_a_dimension_on(num_samples, matched):
    noise = np.asarray(noise_of(jax.random.key(1), num_samples, 3))
    error = np.abs(noise.T @ noise / num_samples - np.eye(3)).max()
    assert error < 1e-12 if matched else error > 1e-2


@pytest.mark.parametrize("num_samples", [1, 128])
def test_noise_is_standard_normal_over_keys(num_samples):
    # One number of each set, so that the numbers tested are independent.
    keys = jax.random.split(jax.random.key(7), 4000)
    numbers = jax.jit(jax.vmap(lambda key: draw_noise(key, num_samples, 2)[0, 1]))(keys)
    assert scipy.stats.kstest(np.asarray(numbers), "norm").pvalue > 1e-5


def test_different_keys_give_different_noise():
    one, other = (noise_of(jax.random.key(seed), 14, 3) for seed in (0, 1))
    assert np.abs(np.asarray(one - other)).max() > 0.1


def test_a_narrow_start_has_steps_of_the_usual_length_and_the_same_curvature():
    mean, scale, precision = jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]), jnp.array([4.0, 0.25])
    usual, narrow = MeanField(), MeanField(start_width=0.1)
    psi = narrow.start(mean, scale)
    np.testing.assert_allclose(jnp.exp(psi["log_scale"]), 0.1 * scale, rtol=1e-6)
    tangent = {"mean": jnp.array([0.3, 0.7]), "log_scale": jnp.zeros(2)}
    moved, expected = narrow.move(psi, tangent), usual.move(usual.start(mean, scale), tangent)
    np.testing.assert_allclose(moved["mean"], expected["mean"], rtol=1e-6)
    # In the tangent units of the mean, which are the deviations of the usual start.
    found, proper = narrow.with_curvature(psi, lambda vector: scale**2 * precision * vector)
    assert proper
    np.testing.assert_allclose(jnp.exp(found["log_scale"]), precision**-0.5, rtol=1e-6)
    assert narrow.for_many_steps() == MeanField(0.1, 0.1) and usual.for_many_steps() == usual
