"""Rows that a coreset starts from are drawn by their weights, and given points are taken as they are."""

import jax.numpy as jnp
import numpy as np
import pytest
from exact import MAX_Z

import coresetvi as cvi
from coresetvi.constructions.parametrisation import given_leaves, parametrise
from coresetvi.constructions.starts import even_labels, stratified_rows
from coresetvi.weights import Fixed, Free, Simplex, Unit

pytestmark = pytest.mark.usefixtures("quick_compilation")
TIMES = 4000


@pytest.mark.parametrize("classes", [None, 2])
def test_rows_are_drawn_in_proportion_to_their_weights(classes):
    """One row, or one of each class: how often each is chosen, against the multinomial's deviation."""
    weights = np.array([1.0, 2.0, 7.0, 3.0, 0.0, 1.0])
    labels = np.array([0, 0, 0, 1, 1, 1]) if classes else np.linspace(0.0, 1.0, 6)
    data = cvi.Dataset(np.arange(12.0).reshape(6, 2), labels, weights)
    frame = parametrise(data, Simplex(), frozenset({"x"}), classes)
    generator = np.random.default_rng(0)
    drawn = np.concatenate([stratified_rows(data, classes or 1, frame, generator) for _ in range(TIMES)])
    groups = [slice(0, 3), slice(3, 6)] if classes else [slice(0, 6)]
    counts = np.bincount(drawn, minlength=6)
    for group in groups:
        chances = weights[group] / weights[group].sum()
        errors = np.sqrt(TIMES * chances * (1.0 - chances))
        assert np.all(np.abs(counts[group] - TIMES * chances) <= MAX_Z * errors)


def test_labels_of_noise_are_at_even_quantiles_of_the_weighted_labels():
    labels, counts = np.array([3.0, 1.0, 8.0, 5.0]), np.array([2, 3, 4, 1])
    data = cvi.Dataset(np.zeros((4, 1)), labels, counts.astype(float))
    repeated = np.sort(np.repeat(labels, counts))
    # Of ten rows that weigh 1, five points stand for two each: the label where the middle of these lies.
    np.testing.assert_array_equal(even_labels(data, 5, None), repeated[[0, 2, 4, 6, 8]])
    np.testing.assert_array_equal(even_labels(data, 10, None), repeated)
    np.testing.assert_array_equal(even_labels(data, 1, None), repeated[[4]])


X = np.array([[1.0, 5.0], [2.0, -3.0], [0.0, 9.0], [4.0, 1.0]])
DATA = cvi.Dataset(X, [0, 1, 1, 0], [1.0, 2.0, 3.0, 4.0])
GIVEN = np.array([1.0, 6.0, 18.0])


@pytest.mark.parametrize(
    ("weight_map", "expected"),
    [(Simplex(), GIVEN), (Free(), GIVEN), (Fixed(), np.full(3, 25.0 / 3)), (Unit(), np.full(3, 25.0 / 3))],
    ids=lambda part: type(part).__name__,
)
def test_given_points_keep_their_places_and_their_total_weight(weight_map, expected):
    """Also where the total is not the data's; maps that cannot hold the weights spread it evenly."""
    frame = parametrise(DATA, weight_map, frozenset({"x"}), 2)
    points = cvi.Dataset(X[:3] + 0.5, [1, 0, 1], GIVEN)
    built = frame.build(given_leaves(frame, points)[0])
    np.testing.assert_allclose(built.x, points.x, rtol=1e-5)
    np.testing.assert_array_equal(built.y, points.y)
    np.testing.assert_allclose(built.weights, expected, rtol=1e-5)


def test_given_soft_labels_stay_what_they_are():
    frame = parametrise(DATA, Simplex(), frozenset({"x", "y"}), 2)
    soft = jnp.asarray([[0.998, 0.002], [0.3, 0.7], [0.5, 0.5]])
    built = frame.build(given_leaves(frame, cvi.Dataset(X[:3], soft, GIVEN))[0])
    np.testing.assert_allclose(np.asarray(built.y), soft, rtol=1e-5)


def test_units_of_learned_labels_are_weighted_moments():
    labels = np.array([1.0, -2.0, 0.5, 7.0])
    data = cvi.Dataset(X, labels, DATA.weights)
    frame = parametrise(data, Free(), frozenset({"y"}), None)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    mean = shares @ labels
    np.testing.assert_allclose(frame.y_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(frame.y_scale, np.sqrt(shares @ (labels - mean) ** 2), rtol=1e-6)
