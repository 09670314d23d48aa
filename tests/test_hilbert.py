"""Sparse non-negative approximations of a sum of vectors, against NumPy references and exhaustive search."""

import itertools
import math

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from coresetvi.constructions.hard_thresholding import hard_thresholding, refine
from coresetvi.constructions.sparse_approximation import frank_wolfe, giga, importance_sampling
from coresetvi.errors import InputError

float64 = exact.float64
double = pytest.mark.usefixtures("float64")
pytestmark = pytest.mark.usefixtures("quick_compilation")


def each(*algorithms):
    return pytest.mark.parametrize("algorithm", algorithms, ids=[f.__name__ for f in algorithms])


every = each(giga, frank_wolfe, importance_sampling, hard_thresholding)
greedy = each(giga, frank_wolfe)


def instance(seed, num_rows=5, dim=3, shift=0.5):
    """Vectors of very different lengths, and weights."""
    rng = np.random.default_rng(seed)
    vectors = (rng.standard_normal((num_rows, dim)) + shift) * rng.gamma(1.0, 1.0, (num_rows, 1))
    return vectors, rng.gamma(2.0, 1.0, num_rows)


def run(algorithm, vectors, weights, size):
    """Rows with a coefficient, the coefficients of all rows, the approximation; always checks their form."""
    picks = algorithm(jnp.asarray(vectors), jnp.asarray(weights), size, jax.random.key(0))
    rows, found = map(np.asarray, picks)
    assert rows.shape == found.shape == (size,)
    assert np.all((0 <= rows) & (rows < len(vectors)) & (found >= 0) & (found < np.inf))
    picked = rows[found > 0]
    assert len(set(picked)) == len(picked)
    coefficients = np.zeros(len(vectors), found.dtype)
    coefficients[picked] = found[found > 0]
    return list(picked), coefficients, coefficients @ np.asarray(vectors)


def giga_reference(vectors, weights, size):
    """Best of all rows in each step: the point nearest to the target in the cone of y and that row."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    length = np.linalg.norm(weights @ vectors)
    target = weights @ vectors / length
    order, amounts = [], np.zeros(len(vectors))
    for _ in range(size):
        current = amounts @ units
        fits = [scipy.optimize.nnls(np.stack([current, unit], axis=1), target) for unit in units]
        row = int(np.argmin([error for _, error in fits]))
        (stay, move), _ = fits[row]
        amounts = stay * amounts + move * np.eye(len(vectors))[row]
        order.append(row)
    return list(dict.fromkeys(order)), length * amounts / np.linalg.norm(vectors, axis=1)


@double
@pytest.mark.parametrize("size, num_rows, dim", [(1, 5, 3), (2, 5, 3), (3, 5, 3), (4, 5, 3), (25, 40, 12)])
def test_giga_makes_the_choices_of_a_search_over_all_rows(size, num_rows, dim):
    for seed in range(6):
        vectors, weights = instance(seed, num_rows, dim)
        order, expected = giga_reference(vectors, weights, size)
        rows, coefficients, _ = run(giga, vectors, weights, size)
        assert rows == order
        np.testing.assert_allclose(coefficients, expected, rtol=1e-6, atol=1e-9)


def test_giga_at_the_target_changes_nothing_more():
    # In the plane two steps reach it; in float32, rounding then leaves something to follow, but not for long.
    for seed in range(20):
        vectors, weights = (array.astype(np.float32) for array in instance(seed, 5, 2))
        _, coefficients, approximation = run(giga, vectors, weights, 10)
        assert np.linalg.norm(approximation - weights @ vectors) < 1e-5 * np.linalg.norm(weights @ vectors)
        np.testing.assert_array_equal(coefficients, run(giga, vectors, weights, 60)[1])


def frank_wolfe_reference(vectors, weights, size):
    lengths = np.linalg.norm(vectors, axis=1)
    target, corners = weights @ vectors, np.diag(weights @ lengths / lengths)
    coefficients = np.zeros(len(vectors))
    for index in range(size):
        gradient = -2 * vectors @ (target - coefficients @ vectors)
        corner = corners[np.argmin(corners @ gradient)]
        # A parabola through three points of the segment.
        points = [coefficients + move * (corner - coefficients) for move in (0, 0.5, 1)]
        losses = [np.sum((target - point @ vectors) ** 2) for point in points]
        curvature, slope, _ = np.polyfit((0, 0.5, 1), losses, 2)
        move = 1.0 if index == 0 else np.clip(-slope / (2 * curvature), 0, 1)
        coefficients = coefficients + move * (corner - coefficients)
    return coefficients


@double
@pytest.mark.parametrize("size", [4, 20])
def test_frank_wolfe_agrees_with_a_reference_and_stays_in_the_polytope(size):
    for seed in range(6):
        vectors, weights = instance(seed)
        coefficients = run(frank_wolfe, vectors, weights, size)[1]
        np.testing.assert_allclose(coefficients, frank_wolfe_reference(vectors, weights, size), atol=1e-7)
        lengths = np.linalg.norm(vectors, axis=1)
        assert coefficients @ lengths == pytest.approx(weights @ lengths, rel=1e-13)


@double
@greedy
def test_errors_fall_with_size_and_obey_the_bound(algorithm):
    # Each step of exact search lowers f = |L / sigma - y|^2 to f - f^2 / D^2 or less, and f <= D^2 at the
    # first corner; so 1 / f grows by 1 / D^2 a step. Geodesic ascent happens to stay below this bound too.
    vectors, weights = instance(1, 40, 12)
    lengths = np.linalg.norm(vectors, axis=1)
    units, last = vectors / lengths[:, None], math.inf
    diameter = np.linalg.norm(units[:, None] - units, axis=2).max()
    for size in (1, 2, 5, 25):
        error = np.linalg.norm(run(algorithm, vectors, weights, size)[2] - weights @ vectors)
        assert error <= min(last, weights @ lengths * diameter / math.sqrt(size))
        last = error


@double
def test_importance_sampling_is_unbiased_for_every_coefficient():
    vectors, weights = instance(2)
    vectors[1], weights[3] = 0.0, 0.0
    keys = jax.random.split(jax.random.key(7), 2000)
    sample = jax.vmap(lambda key: importance_sampling(jnp.asarray(vectors), jnp.asarray(weights), 4, key))
    (rows, found), coefficients = sample(keys), np.zeros((2000, 5))
    np.add.at(coefficients, (np.arange(2000)[:, None], rows), found)
    assert np.all(coefficients[:, [1, 3]] == 0)
    weights[1] = 0.0  # the weight of a zero vector is of no account
    for draws, truth in [(coefficients, weights), (coefficients @ vectors, weights @ vectors)]:
        error = draws.std(axis=0) / math.sqrt(2000)
        assert np.all(np.abs(draws.mean(axis=0) - truth) <= exact.MAX_Z * error)


@double
def test_refinement_is_non_negative_least_squares():
    for seed in range(10):
        vectors, weights = instance(seed, 5, 8)
        target = weights @ vectors - 3.0
        expected, _ = scipy.optimize.nnls(vectors.T, target)
        found = jax.jit(refine)(jnp.asarray(vectors @ vectors.T), jnp.asarray(vectors @ target), jnp.ones(5))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def best_pair(vectors, target):
    """Least error of two rows with coefficients >= 0: both or one of them."""
    errors = []
    for support in [list(pair) for count in (1, 2) for pair in itertools.combinations(range(6), count)]:
        solution, *_ = np.linalg.lstsq(vectors[support].T, target)
        if np.all(solution >= 0):
            errors.append(np.linalg.norm(target - solution @ vectors[support]))
    return min(errors)


@double
@pytest.mark.parametrize(
    "dim, shift, factor, share", [(100, 0.1, 1 + 1e-6, 1.0), (8, 0.1, 2.5, 0.85), (4, 1.0, 7.0, 0.3)]
)
def test_hard_thresholding_against_all_pairs_of_rows(dim, shift, factor, share):
    # Of 30 instances, `share` reach the best pair and none has more than `factor` times its error. With rows
    # nearly at right angles, as in 100 dimensions, thresholding is exact; for rows that resemble one another
    # (few dimensions, large shift) it is a heuristic, and often misses.
    ratios = []
    for seed in range(30):
        vectors, weights = instance(seed, 6, dim, shift)
        target = weights @ vectors
        error = np.linalg.norm(run(hard_thresholding, vectors, weights, 2)[2] - target)
        ratios.append(error / best_pair(vectors, target))
    assert 1 - 1e-9 < min(ratios) <= max(ratios) < factor
    assert np.mean(np.array(ratios) < 1 + 1e-4) >= share


@double
@each(giga, frank_wolfe, hard_thresholding)
def test_a_sum_in_the_cone_of_three_rows_is_found(algorithm):
    # The pairs of opposite rows cancel; what is left is a combination of the three axes.
    pairs = np.random.default_rng(0).standard_normal((4, 3))
    vectors = np.concatenate([np.diag([1.0, 4.0, 0.5]), pairs, -pairs])
    weights = np.r_[3.0, 1.0, 9.0, np.ones(8)]
    size = 3 if algorithm is hard_thresholding else 200
    np.testing.assert_allclose(run(algorithm, vectors, weights, size)[2], weights @ vectors, rtol=1e-9)


@double
@every
def test_coefficients_scale_with_the_weights_and_follow_the_rows(algorithm):
    vectors, weights = instance(8)
    _, coefficients, _ = run(algorithm, vectors, weights, 4)
    scaled = run(algorithm, vectors, 7.3 * weights, 4)[1]
    np.testing.assert_allclose(scaled, 7.3 * coefficients, rtol=1e-8, atol=1e-12)
    if algorithm is not importance_sampling:
        order = [3, 0, 4, 1, 2]
        permuted = run(algorithm, vectors[order], weights[order], 4)[1]
        np.testing.assert_allclose(permuted, coefficients[order], rtol=1e-8, atol=1e-12)


@double
@greedy
def test_weight_two_is_the_same_row_twice(algorithm):
    # Not so for hard thresholding: both copies have the same gradient, and each takes a slot.
    vectors, weights = instance(10)
    once = run(algorithm, vectors, weights + np.eye(5)[2] * weights, 4)[2]
    twice = run(algorithm, np.r_[vectors, vectors[2:3]], np.r_[weights, weights[2]], 4)[2]
    np.testing.assert_allclose(twice, once, rtol=1e-8)


@every
@pytest.mark.parametrize("size", [1, 8])
def test_rows_that_weigh_nothing_are_never_picked(algorithm, size):
    # Size 8 is more than there are rows; one row that is left must be matched exactly, in float32 too.
    vectors, _ = instance(11)
    vectors[3] = 0.0
    for weights in ([0.0, 2.0, 0.0, 1.0, 5.0], [0.0, 2.0, 0.0, 1.0, 0.0]):
        weights = np.array(weights, np.float32)
        rows, _, approximation = run(algorithm, vectors.astype(np.float32), weights, size)
        assert rows and set(rows) <= {1, 4} & set(np.flatnonzero(weights))
    np.testing.assert_allclose(approximation, 2.0 * vectors[1], rtol=1e-5)


@every
def test_degenerate_input(algorithm):
    ones = np.ones(5, np.float32)
    same = np.outer(ones, np.array([1, -2, 3], np.float32))
    with pytest.raises(InputError, match="at least one row"):
        run(algorithm, same, ones, 0)
    np.testing.assert_allclose(run(algorithm, same, ones, 8)[2], 5 * same[0], rtol=1e-5)
    assert run(algorithm, 0 * same, ones, 8)[0] == []
    assert run(algorithm, same, 0 * ones, 8)[0] == []
    # Rows that cancel: nothing to approximate, and nothing undefined.
    run(algorithm, np.outer(np.array([1, -1, 1, -1, 0], np.float32), same[0]), ones, 8)


@every
def test_the_unit_of_the_vectors_does_not_matter_in_float32(algorithm):
    vectors, weights = (array.astype(np.float32) for array in instance(12))
    small, usual, large = (run(algorithm, np.ldexp(vectors, unit), weights, 8)[1] for unit in (-80, 0, 80))
    np.testing.assert_allclose([small, large], [usual, usual], rtol=1e-5)
