"""A fresh posterior on a coreset's points, and fits that have only so much time."""

import dataclasses
import functools

import numpy as np
import pytest
import registry
from exact import fit_by_hand

import coresetvi as cvi
from coresetvi.constructions.schedule import Schedule, fixed_schedule, open_schedule, within
from coresetvi.errors import InputError
from coresetvi.workflows.merging import hard_labels

pytestmark = pytest.mark.usefixtures("quick_compilation")
LINEAR = registry.MODELS["linear"]
LOGISTIC = registry.MODELS["logistic"]


def coreset_fit(model, points):
    """A fit whose r is nowhere near its points' posterior."""
    psi = {"mean": 5.0 + np.zeros(model.dim), "factor": np.eye(model.dim)}
    hard = points if points.y.ndim == 1 else cvi.Dataset(points.x, np.argmax(points.y, axis=1))
    return dataclasses.replace(fit_by_hand(model, hard, psi), coreset=points)


def test_a_fresh_posterior_is_that_of_the_points_whatever_r_was():
    points = LINEAR.data.take(np.arange(12))
    points = cvi.Dataset(points.x, points.y, np.linspace(1.0, 9.0, 12))
    fresh = cvi.retrain(coreset_fit(LINEAR.model, points), key=1)
    assert isinstance(LINEAR.model, cvi.models.LinearRegression)
    mean, covariance = LINEAR.model.posterior(points)
    found_mean, found = fresh.family.moments(fresh.psi)
    deviation = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(found_mean - mean) / deviation) < 0.02
    assert np.max(np.abs(np.sqrt(np.diag(found)) / deviation - 1.0)) < 0.02


@pytest.mark.slow
def test_a_fresh_posterior_that_starts_narrow_widens_slowly():
    """Steps of the means grow with the scales, here up to thirtyfold, and networks do not survive that."""
    narrow = cvi.families.MeanField(spread_pace=0.5, start_width=0.03)
    construction = cvi.BBPSVI(6, family=narrow, inner=cvi.inner.Unrolled(2), optimizer=cvi.outer.Adam())
    made = cvi.fit(construction, LOGISTIC.model, LOGISTIC.data, key=0, num_steps=2)
    assert made.family == narrow
    assert cvi.retrain(made, key=1, num_steps=2).family == cvi.families.MeanField(0.5 * 0.03, 0.03)


@pytest.mark.slow
def test_soft_labels_are_what_is_fitted():
    generator = np.random.default_rng(0)
    chance = generator.uniform(0.1, 0.9, 12)
    points = cvi.Dataset(
        generator.standard_normal((12, 2)), np.stack([1 - chance, chance], 1), np.full(12, 3.0)
    )
    soft = cvi.retrain(coreset_fit(LOGISTIC.model, points), key=1)
    split = cvi.fit(cvi.FullVI(), LOGISTIC.model, hard_labels(points), key=1)
    deviation = np.sqrt(np.diag(split.family.moments(split.psi)[1]))
    difference = soft.family.moments(soft.psi)[0] - split.family.moments(split.psi)[0]
    assert np.max(np.abs(difference) / deviation) < 0.05


def test_another_model_can_be_trained_on_the_same_points():
    points = LOGISTIC.data.take(np.arange(10))
    network = registry.MODELS["network, 2 classes"].model
    fresh = cvi.retrain(coreset_fit(LOGISTIC.model, points), key=1, model=network, num_steps=3)
    assert fresh.model is network
    np.testing.assert_array_equal(fresh.coreset.x, points.x)


def test_points_must_be_given():
    with pytest.raises(InputError, match="initial=points"):
        cvi.fit(cvi.PointsVI(), LOGISTIC.model, LOGISTIC.data, key=0, num_steps=1)


# Time


def test_a_schedule_is_fitted_into_the_time():
    # 100 steps took 10 s; 60 s are enough for 600, of which the last 240 slow down.
    assert within(fixed_schedule(10_000), 100, 10.0, 60.0) == Schedule(360, 240, 600, 10_000, True)
    # Enough time: nothing changes, whether the end is fixed or open.
    for schedule in (fixed_schedule(500), open_schedule(500)):
        assert within(schedule, 100, 10.0, 60.0) == schedule
    # Late already: what is left of the time is spent slowing down.
    assert within(fixed_schedule(10_000), 550, 55.0, 60.0)[:3] == (550, 50, 600)
    assert within(fixed_schedule(10_000), 700, 70.0, 60.0)[:3] == (700, 1, 701)
    # One that is slowing down goes on.
    assert within(fixed_schedule(1000), 700, 700.0, 701.0) == fixed_schedule(1000)


def test_a_fit_ends_when_its_time_is_up(tmp_path):
    call = functools.partial(
        cvi.fit, registry.CONSTRUCTIONS["joint"], LOGISTIC.model, LOGISTIC.data, key=0, num_steps=10**7
    )
    fit = call(time_limit=0.5, checkpoint=tmp_path / "kept")
    # Taken up again, it still ends where time was up, and says so.
    for one in (fit, call(time_limit=0.5, checkpoint=tmp_path / "kept", resume=True)):
        assert one.result == "time_limit"
        assert "Time was up" in one.explanation
        assert 20 <= one.about["steps"] == fit.about["steps"] < 10**6
        assert one.seconds["run"] < 5.0


@pytest.mark.parametrize("limit", [0, -1.0])
def test_a_time_limit_is_a_positive_number(limit):
    with pytest.raises(InputError, match="time_limit"):
        cvi.fit(cvi.BBPSVI(5), LOGISTIC.model, LOGISTIC.data, key=0, time_limit=limit)
