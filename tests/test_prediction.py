"""Scores of class probabilities against sums done by hand, and averages over draws in any blocks."""

import jax
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.models import prediction
from coresetvi.models.score_sums import class_scores

CHANCES = np.array(
    [
        [0.70, 0.20, 0.10],
        [0.68, 0.30, 0.02],
        [0.10, 0.81, 0.09],
        [0.05, 0.05, 0.90],
        [0.34, 0.33, 0.33],
    ]
)
LABELS = np.array([0, 1, 1, 2, 1])
WEIGHTS = np.array([1.0, 2.0, 1.0, 3.0, 1.0])


def test_class_scores_are_those_done_by_hand():
    scores = class_scores(CHANCES, LABELS, WEIGHTS)
    assert scores["accuracy"] == pytest.approx((1 + 0 + 1 + 3 + 0) / 8)
    squares = [
        0.3**2 + 0.2**2 + 0.1**2,
        0.68**2 + 0.7**2 + 0.02**2,
        0.1**2 + 0.19**2 + 0.09**2,
        0.05**2 + 0.05**2 + 0.1**2,
        0.34**2 + 0.67**2 + 0.33**2,
    ]
    assert scores["brier"] == pytest.approx(np.dot(WEIGHTS, squares) / 8)
    # 0.70 and 0.68 share the bin (10/15, 11/15]; 0.34, 0.81 and 0.90 have one each.
    shared = abs((1 - 0.70) * 1 + (0 - 0.68) * 2)
    alone = abs(1 - 0.81) * 1 + abs(1 - 0.90) * 3 + abs(0 - 0.34) * 1
    assert scores["ece"] == pytest.approx((shared + alone) / 8)


def test_confidences_are_put_into_fifteen_bins():
    """Just below and above 10/15 are two bins, so that errors of opposite sign do not cancel."""
    chances = np.array([[0.66, 0.34], [0.67, 0.33]])
    scores = class_scores(chances, np.array([0, 1]), np.ones(2))
    assert scores["ece"] == pytest.approx((0.34 + 0.67) / 2)
    # 10.1/15 and 10.9/15 are in one, where they do.
    chances = np.array([[10.1 / 15, 4.9 / 15], [10.9 / 15, 4.1 / 15]])
    scores = class_scores(chances, np.array([0, 1]), np.ones(2))
    assert scores["ece"] == pytest.approx(abs(4.9 / 15 - 10.9 / 15) / 2)


def test_a_certain_classifier_is_perfect_or_hopeless():
    sure = np.eye(2)[[0, 1, 1]]
    right = class_scores(sure, np.array([0, 1, 1]), np.ones(3))
    wrong = class_scores(sure, np.array([1, 0, 0]), np.ones(3))
    assert right == {"accuracy": 1.0, "brier": 0.0, "ece": 0.0}
    assert wrong == {"accuracy": 0.0, "brier": 2.0, "ece": 1.0}


def test_two_classes_are_scored_as_two():
    """A model with one probability a row has the scores of both columns."""
    model, rng = cvi.models.LogisticRegression(2), np.random.default_rng(0)
    data = cvi.Dataset(rng.normal(size=(20, 2)), rng.integers(0, 2, 20), rng.uniform(0.5, 2.0, 20))
    thetas, weights = jax.random.normal(jax.random.key(0), (3, 2)), np.array([0.5, 0.3, 0.2], np.float32)
    by_draw = 1.0 / (1.0 + np.exp(-np.asarray(data.x) @ np.asarray(thetas).T))
    chance = by_draw @ weights
    expected = class_scores(
        np.stack([1 - chance, chance], axis=1), np.asarray(data.y), np.asarray(data.weights)
    )
    found = prediction.scores(model, thetas, jax.numpy.asarray(weights), data)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("pairs", [1, 3, 40, 10**6, "one draw"])
@pytest.mark.usefixtures("quick_compilation")
def test_averages_do_not_depend_on_the_blocks(pairs, monkeypatch):
    """One row and draw at a time, some draws at a time, some rows at a time, or everything at once."""
    rng = np.random.default_rng(1)
    model = cvi.models.LinearRegression(2, noise=0.5)
    data = cvi.Dataset(rng.normal(size=(7, 2)), rng.normal(size=7))
    thetas = jax.random.normal(jax.random.key(2), (5, 2))
    weights = np.array([0.4, 0.0, 0.3, 0.2, 0.1], np.float32)
    numbers = 5000 if pairs == "one draw" else 12  # a heavy model, or one whose draws go together
    monkeypatch.setattr(prediction, "numbers_per_row", lambda model, data: numbers)
    monkeypatch.setattr(prediction, "numbers_made", lambda function, model, x: numbers)
    if pairs == "one draw":
        monkeypatch.setattr(prediction, "MOST_NUMBERS", 3 * numbers)
    else:
        monkeypatch.setattr(prediction, "BLOCK_NUMBERS", 12 * pairs)
    means = np.asarray(data.x, float) @ np.asarray(thetas, float).T
    mean = means @ weights
    densities = np.exp(-2.0 * (np.asarray(data.y)[:, None] - means) ** 2) / np.sqrt(2 * np.pi * 0.25)
    given = (model, thetas, jax.numpy.asarray(weights))
    found, variance = prediction.predictive_moments(*given, data.x)
    np.testing.assert_allclose(found, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, 0.25 + (means - mean[:, None]) ** 2 @ weights, rtol=1e-5)
    np.testing.assert_allclose(
        prediction.log_predictive(*given, data), np.log(densities @ weights), rtol=1e-4
    )


@pytest.mark.parametrize(("rows", "draws", "numbers"), [(10, 3, 1), (100, 7, 3), (5, 100, 2), (50, 90, 9999)])
def test_blocks_are_small_and_cover_everything_once(rows, draws, numbers, monkeypatch):
    monkeypatch.setattr(prediction, "BLOCK_NUMBERS", 120)
    monkeypatch.setattr(prediction, "MOST_NUMBERS", 50_000)
    parts = prediction._ranges(rows, draws, numbers)
    for count, ranges in zip((rows, draws), parts, strict=True):
        assert [place for first, last in ranges for place in range(first, last)] == list(range(count))
    most_rows, most_draws = (max(last - first for first, last in ranges) for ranges in parts)
    if numbers < prediction.HEAVY:
        assert most_rows * most_draws * numbers <= 120
    else:  # draws go one by one
        assert most_rows * numbers <= 50_000 and most_draws == draws


@pytest.mark.parametrize("function", [prediction._weighted_moments, prediction._log_predictive])
def test_draws_of_a_convolutional_network_share_their_memory(function):
    """No array of the program for eight draws is larger than those for one."""
    data = cvi.Dataset(np.zeros((64, 28, 28, 1)), np.zeros(64, int))
    model = cvi.models.BayesianLeNet(image_shape=(28, 28, 1), num_classes=10)
    last = data.x if function is prediction._weighted_moments else data

    def largest(draws):
        given = jax.numpy.zeros((draws, model.dim)), jax.numpy.ones(draws), last
        traced = jax.make_jaxpr(lambda *given: function.__wrapped__(model, *given))(*given)
        return max(np.prod(out.aval.shape, dtype=int) for out in equations(traced.jaxpr))

    assert largest(8) == largest(1) > 64 * 28 * 28


def equations(jaxpr):
    """What every operation of a traced function returns, the ones inside others included."""
    for equation in jaxpr.eqns:
        yield from equation.outvars
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from equations(inner)
