"""A miniature of Table 3 on a few hundred real images: it fails if learning does not work."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

import coresetvi as cvi
from coresetvi_paper import read_experiment
from coresetvi_paper.grid import Grid
from coresetvi_paper.runner import run_cells

IMAGES = Path(os.environ.get("CORESETVI_DATA", ".")) / "train-images-idx3-ubyte.gz"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not IMAGES.exists(), reason="MNIST is not in $CORESETVI_DATA"),
]
STEPS, TRAINING_STEPS = 800, 400
# Fewer steps than the table has, so larger ones.
SETTINGS = {"learning_rate": 0.02, "training": {"type": "NetworkTraining", "num_steps": TRAINING_STEPS}}
# By how much learned images must beat those that they started from, and random ones.
MARGIN = 0.06


@pytest.fixture(scope="module")
def grid() -> Grid:
    table = read_experiment("table3").miniature().select(methods=["last-layer"])
    methods = tuple(dataclasses.replace(method, options=SETTINGS) for method in table.methods)
    return Grid(dataclasses.replace(table, methods=methods, num_steps=STEPS, num_test=1000, num_samples=10))


def fresh_accuracy(fit: cvi.Fit, test: cvi.Dataset) -> float:
    fresh = cvi.retrain(fit, key=100, num_steps=TRAINING_STEPS)
    return fresh.evaluate(test, num_samples=10)["accuracy"]


def test_learned_images_beat_their_start_and_random_ones(grid, tmp_path):
    (cell,) = grid.experiment.cells()
    records, interrupted = run_cells(grid, tmp_path)
    assert not interrupted
    record = records[cell.name]
    assert record["result"] == "finished", record.get("explanation")
    saved = cvi.load(tmp_path / "fits" / cell.name)
    assert saved.coreset.x.shape == (10, 28, 28, 1)
    np.testing.assert_allclose(np.asarray(saved.coreset.y).sum(axis=1), 1.0, rtol=1e-5)
    problem, construction = grid.problem(cell.problem), grid.experiment.method(cell.method).build(cell.size)
    # After one small step the points are what a fit begins with; other keys begin with other random images.
    begun = [cvi.fit(construction, problem.model, problem.train, key=key, num_steps=1) for key in range(3)]
    learned, start, *random = [fresh_accuracy(fit, problem.test) for fit in (saved, *begun)]
    assert learned > start + MARGIN
    assert learned > np.mean(random) + MARGIN
