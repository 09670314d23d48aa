"""The UCI regressions: scores are in the units of the original values, whatever those are."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import scipy.stats

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.reproduction import uci

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture
def yacht(monkeypatch):
    """`yacht(factor)`: from now on the loader gives yacht with values times factor, and a constant column."""
    if not (Path(os.environ.get("CORESETVI_DATA") or "/nowhere") / "uci_yacht.npz").is_file():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "$CORESETVI_DATA lacks uci_yacht.npz"
        )
    pair = cvi.datasets.uci("yacht", 2)

    def arm(factor: float):
        def load(name, split):
            assert (name, split) == ("yacht", 2)
            return tuple(
                cvi.Dataset(np.c_[np.asarray(data.x), np.full(len(data), 0.1)], factor * np.asarray(data.y))
                for data in pair
            )

        monkeypatch.setattr(cvi.datasets, "uci", load)
        return load("yacht", 2)

    return arm


def test_scores_follow_the_units_of_the_values(yacht):
    yacht(1.0)
    plain = uci.run_uci("yacht", 2, "bb-psvi", 5, key=3, num_steps=3)
    # A power of two changes no digit of a float: the standardised values are the same to the last one.
    yacht(8.0)
    scaled = uci.run_uci("yacht", 2, "bb-psvi", 5, key=3, num_steps=3)
    for one, other in ((plain, scaled), (plain["fresh"], scaled["fresh"])):
        assert other["rmse"] == pytest.approx(8.0 * one["rmse"], rel=1e-6)
        assert other["noise"] == pytest.approx(8.0 * one["noise"], rel=1e-6)
        assert other["nll"] == pytest.approx(one["nll"] + math.log(8.0), abs=1e-5)
    assert plain["fresh"]["nll"] != plain["nll"]
    assert (plain["steps"], plain["result"], plain["seconds"] > 0) == (3, "finished", True)


def test_scores_are_those_of_the_predictive_density_of_the_original_values(yacht, monkeypatch):
    train, test = yacht(1.0)
    kept = []
    monkeypatch.setattr(
        cvi, "fit", lambda *args, fit=cvi.fit, **options: kept.append(fit(*args, **options)) or kept[0]
    )
    found = uci.run_uci("yacht", 2, "random-subset", 100, key=0, num_steps=40)
    assert (found["steps"], found["fresh"], len(kept[0].coreset)) == (40, None, 100)
    x, y = np.asarray(train.x, float), np.asarray(train.y, float)
    deviation = np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1.0)
    rows = (np.asarray(test.x, float) - x.mean(axis=0)) / deviation
    thetas, _ = kept[0].draws()
    outputs = []
    for theta in np.asarray(thetas, float):
        first, bias, last = theta[: 7 * 50].reshape(7, 50), theta[350:400], theta[400:450]
        outputs.append(np.maximum(rows @ first + bias, 0.0) @ last + theta[450])
    mean = y.mean() + y.std() * np.array(outputs)
    noise = y.std() * np.exp(np.asarray(thetas, float)[:, -1:])
    by_draw = scipy.stats.norm.logpdf(np.asarray(test.y, float), mean, noise)
    density = scipy.special.logsumexp(by_draw, axis=0) - math.log(len(thetas))
    assert found["nll"] == pytest.approx(-density.mean(), rel=1e-4)
    error = mean.mean(axis=0) - np.asarray(test.y, float)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert found["noise"] == pytest.approx(y.std() * np.exp(kept[0].psi["mean"][-1]), rel=1e-5)


@pytest.mark.parametrize(
    ("method", "size", "sentence"),
    [
        ("giga", 5, "there is no method 'giga'; choose one of bb-psvi, random-subset, full-vi"),
        ("full-vi", 5, "size is 5, which does not go with full-vi; leave it None"),
        ("bb-psvi", None, "size is None, which does not go with bb-psvi; say how many points"),
    ],
)
def test_what_cannot_be_run_is_refused(method, size, sentence):
    with pytest.raises(InputError) as caught:
        uci.run_uci("yacht", 0, method, size, key=0)
    assert str(caught.value) == sentence
