"""The UCI regressions: scores are in the units of the original values, whatever those are."""

import dataclasses
import math
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import scipy.stats

import coresetvi as cvi
from coresetvi_paper import read_experiment
from coresetvi_paper.cells import PaperCell
from coresetvi_paper.grid import Grid
from coresetvi_paper.measures import regression
from coresetvi_paper.toml_objects import build

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_compilation")]


@pytest.fixture
def yacht(monkeypatch):
    """`yacht(factor)`: from now on the loader gives yacht with values times factor, and a constant column."""
    if not (Path(os.environ.get("CORESETVI_DATA") or "/nowhere") / "uci_yacht.npz").is_file():
        (pytest.fail if os.environ.get("CORESETVI_REQUIRE_DATA") == "1" else pytest.skip)(
            "$CORESETVI_DATA lacks uci_yacht.npz"
        )
    original = cvi.datasets.load

    def arm(factor: float):
        def load(name, **options):
            return tuple(
                cvi.Dataset(np.c_[np.asarray(data.x), np.full(len(data), 0.1)], factor * np.asarray(data.y))
                for data in original(name, **options)
            )

        monkeypatch.setattr(cvi.datasets, "load", load)
        return load("uci_yacht", split=2)

    return arm


def run(method, size, num_steps, out):
    """The record of split 2 of yacht, of which a column is constant now."""
    whole = read_experiment("uci")
    (problem,) = (one for one in whole.problems if one.id == "yacht")
    problem = dataclasses.replace(problem, model=problem.model | {"num_features": 7})
    grid = Grid(dataclasses.replace(whole, problems=(problem,), num_steps=num_steps))
    return regression(grid, PaperCell("yacht", method, size, 2), out)


def test_scores_follow_the_units_of_the_values(yacht, tmp_path):
    yacht(1.0)
    plain = run("bb-psvi", 5, 3, tmp_path)
    # A power of two changes no digit of a float: the standardised values are the same to the last one.
    yacht(8.0)
    scaled = run("bb-psvi", 5, 3, tmp_path)
    for one, other in ((plain["warm"], scaled["warm"]), (plain["fresh"], scaled["fresh"])):
        assert other["rmse"] == pytest.approx(8.0 * one["rmse"], rel=1e-6)
        assert other["noise"] == pytest.approx(8.0 * one["noise"], rel=1e-6)
        assert other["nll"] == pytest.approx(one["nll"] + math.log(8.0), abs=1e-5)
    assert plain["fresh"]["nll"] != plain["warm"]["nll"]
    assert (plain["steps"], plain["result"], plain["coreset_size"]) == (3, "finished", 5)


def test_scores_are_those_of_the_predictive_density_of_the_original_values(yacht, monkeypatch, tmp_path):
    train, test = yacht(1.0)
    kept = []
    monkeypatch.setattr(
        cvi, "fit", lambda *args, fit=cvi.fit, **options: kept.append(fit(*args, **options)) or kept[0]
    )
    record = run("random-subset", 100, 40, tmp_path)
    found = record["fresh"]
    assert (record["steps"], record["warm"], len(kept), len(kept[0].coreset)) == (40, found, 1, 100)
    x, y = np.asarray(train.x, float), np.asarray(train.y, float)
    deviation = np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1.0)
    rows = (np.asarray(test.x, float) - x.mean(axis=0)) / deviation
    thetas, _ = kept[0].draws(read_experiment("uci").num_samples)
    outputs = []
    for theta in np.asarray(thetas, float):
        first, bias, last = theta[: 7 * 50].reshape(7, 50), theta[350:400], theta[400:450]
        outputs.append(np.maximum(rows @ first + bias, 0.0) @ last + theta[450])
    mean = y.mean() + y.std() * np.array(outputs)
    noise = y.std() * np.exp(np.asarray(thetas, float)[:, -1:])
    by_draw = scipy.stats.norm.logpdf(np.asarray(test.y, float), mean, noise)
    density = np.asarray(scipy.special.logsumexp(by_draw, axis=0)) - math.log(len(thetas))
    assert found["nll"] == pytest.approx(-density.mean(), rel=1e-4)
    error = mean.mean(axis=0) - np.asarray(test.y, float)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert found["noise"] == pytest.approx(y.std() * np.exp(kept[0].psi["mean"][-1]), rel=1e-5)


def test_networks_fit_their_data_and_learn_the_noise():
    for problem in read_experiment("uci").problems:
        model = build(problem.model, problem.id)
        assert (model.num_classes, model.noise, model.hidden) == (None, None, (50,))
