"""Starting points that stand where the data are."""

import itertools

import numpy as np
import pytest

import coresetvi as cvi
import coresetvi.data.clusters
from coresetvi.data.clusters import cluster, spread_rows

pytestmark = pytest.mark.usefixtures("quick_compilation")
GENERATOR = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
SIZES = (30, 50, 20)
BLOBS = np.concatenate(
    [centre + 0.1 * GENERATOR.standard_normal((size, 2)) for centre, size in zip(CENTRES, SIZES, strict=True)]
)


def test_three_blobs_give_their_most_central_rows_and_their_weights():
    found = spread_rows(cvi.Dataset(BLOBS), np.array([0, 30, 80]))
    np.testing.assert_array_equal(found.weights, SIZES)
    np.testing.assert_allclose(found.x, CENTRES, atol=0.1)
    edges = np.cumsum([0, *SIZES])
    for row, (start, stop) in zip(np.asarray(found.indices), itertools.pairwise(edges), strict=True):
        members = BLOBS[start:stop]
        nearest = start + np.argmin(np.sum((members - members.mean(0)) ** 2, axis=1))
        assert row == nearest


def test_weights_count_and_rows_of_no_weight_are_never_found():
    weights = np.ones(100)
    weights[:30] = 3.0
    weights[30:80] = 0.0
    found = spread_rows(cvi.Dataset(BLOBS, weights=weights), np.array([0, 80]))
    np.testing.assert_array_equal(found.weights, [90.0, 20.0])
    assert not np.any((np.asarray(found.indices) >= 30) & (np.asarray(found.indices) < 80))


def test_every_class_keeps_its_number_of_points_and_its_weight():
    labels = np.arange(100) % 2
    found = spread_rows(cvi.Dataset(BLOBS, labels), np.array([0, 2, 4, 1, 3]))
    assert np.asarray(found.y).tolist() == [0, 0, 0, 1, 1]
    for label in (0, 1):
        assert float(found.weights[np.asarray(found.y) == label].sum()) == 50.0
    np.testing.assert_array_equal(found.x, np.asarray(cvi.Dataset(BLOBS).x)[np.asarray(found.indices)])


def test_identical_rows_are_found_once_each():
    rows, mass = cluster(np.zeros((6, 2)), np.ones(6), np.zeros((3, 2)))
    assert len(set(rows.tolist())) == 3
    assert mass.sum() == 6.0


def test_values_are_one_more_column():
    values = np.concatenate([np.zeros(50), np.full(50, 1000.0)])
    data = cvi.Dataset(np.full((100, 1), 2.0) + 1e-3 * np.arange(100)[:, None] % 7, values)
    found = spread_rows(data, np.array([0, 99]))
    assert sorted(np.asarray(found.y).tolist()) == [0.0, 1000.0]


# The start is the same whatever the steps are, and these compile in no time.
CHEAP = {"init": "spread", "inner": cvi.inner.Joint(), "objective": cvi.objectives.ImportanceElbo(4)}


@pytest.mark.parametrize("make", [cvi.BBPSVI, cvi.BBSparseVI])
def test_a_fit_can_start_there(make, press_ctrl_c):
    construction = make(6, **CHEAP)
    press_ctrl_c(0)
    data = cvi.Dataset(BLOBS, (BLOBS[:, 0] > 5).astype(int))
    start = cvi.fit(construction, cvi.models.LogisticRegression(2), data, key=0, progress=False)
    np.testing.assert_allclose(start.coreset.weights.sum(), 100.0, rtol=1e-5)
    mass = [float(start.coreset.weights[np.asarray(start.coreset.y) == label].sum()) for label in (0, 1)]
    np.testing.assert_allclose(mass, [50.0, 50.0], rtol=1e-5)


@pytest.mark.parametrize(("weights", "total"), [(cvi.weights.Fixed(), 100.0), (cvi.weights.Unit(), 6.0)])
def test_weights_that_are_not_learned_stay_what_they_are(weights, total, press_ctrl_c):
    press_ctrl_c(0)
    data = cvi.Dataset(BLOBS, (BLOBS[:, 0] > 5).astype(int))
    construction = cvi.BBPSVI(6, learn={"x"}, weights=weights, **CHEAP)
    start = cvi.fit(construction, cvi.models.LogisticRegression(2), data, key=0, progress=False)
    np.testing.assert_allclose(start.coreset.weights, total / 6, rtol=1e-6)
