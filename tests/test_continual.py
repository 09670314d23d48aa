"""What stands in for old rows, and which constructions can learn one task after another."""

import dataclasses

import jax
import numpy as np
import pytest
from exact import MAX_Z

import coresetvi as cvi
from coresetvi.errors import InputError

POINTS = cvi.Dataset(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [0, 1, 1], [100.0, 300.0, 600.0])
SOFTMAX = cvi.models.SoftmaxRegression(2, 2)


@pytest.mark.parametrize("key", range(3))
def test_samples_are_replayed_in_proportion_to_the_weights(key):
    learner = cvi.continual(cvi.BBPSVI(3), SOFTMAX, key=key, replay="samples", coreset=POINTS)
    rows = learner._stand_in(jax.random.key(key))
    counts, chances = np.asarray(rows.weights), np.array([0.1, 0.3, 0.6])
    assert counts.sum() == 1000
    errors = np.sqrt(1000 * chances * (1 - chances))
    assert np.all(np.abs(counts - 1000 * chances) < MAX_Z * errors)


X = np.random.default_rng(0).standard_normal((45, 2)) + 3.0 * np.repeat(np.eye(3, 2), 15, axis=0)
Y = np.repeat(np.arange(3), 15)
NETWORK = cvi.models.BayesianMLP(2, (3,), 2)
TRAINING = cvi.NetworkTraining(num_steps=4)
WITHOUT_OPEN_CHOICES = {
    "last layer": cvi.LastLayerPSVI(1, num_networks=2, batch_size=16, training=TRAINING),
    "condensation": cvi.Condensation(
        1, learn={"x", "y"}, rows_per_class=8, inner=cvi.inner.Unrolled(num_steps=2, num_samples=1)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_OPEN_CHOICES)
@pytest.mark.usefixtures("quick_compilation")
def test_a_construction_that_leaves_nothing_open_learns_task_after_task(name):
    construction = WITHOUT_OPEN_CHOICES[name]
    learner = cvi.continual(construction, NETWORK, key=0, num_steps=3, progress=False)
    for classes, budget in (((0, 1), 4), ((2,), 6)):
        rows = np.isin(Y, classes)
        fitted = learner.update(cvi.Dataset(X[rows], Y[rows]), budget)
    assert fitted.model.num_classes == learner.num_classes == 3
    assert learner.coreset is not None and learner.coreset.y is not None
    assert len(learner.coreset) == 6 and fitted.coreset is learner.coreset
    assert np.all(np.isfinite(fitted.coreset.x)) and fitted.result == "finished"
    # Labels are soft, and each still says which class its point came from.
    assert np.bincount(learner.coreset.y.argmax(axis=1), minlength=3).tolist() == [2, 2, 2]
    # It is used as it was given, but for its size.
    assert fitted.construction == dataclasses.replace(construction, size=6)


WITHOUT_SIZE = [cvi.PointsVI(), cvi.LastLayerVI(TRAINING)]


@pytest.mark.parametrize("construction", WITHOUT_SIZE, ids=lambda part: type(part).__name__)
def test_a_construction_without_a_size_is_refused_in_one_sentence(construction):
    name = type(construction).__name__
    with pytest.raises(InputError, match=rf"^{name} has no size, .*cannot grow; use BBPSVI\.$"):
        cvi.continual(construction, NETWORK, key=0)
    with pytest.raises(
        InputError, match=rf"^{name} has no size, .*cannot be pruned; use BBSparseVI or BBPSVI\.$"
    ):
        cvi.prune(construction, NETWORK, cvi.Dataset(X, Y), sizes=(4, 2), key=0)
