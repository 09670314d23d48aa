"""Laws that hold for every construction, model, family and weight map: tables of instances x laws.

The instances are in `registry.py`; a new one is one row there and is tried on everything here.
"""

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from registry import (
    BINARY,
    CONSTRUCTIONS,
    FAMILIES,
    GREEDY,
    MODELS,
    PLAIN,
    PSEUDOCORESETS,
    ROWS,
    SIZE,
    VARIANTS,
    WEIGHT_MAPS,
    WHOLE_DATA,
)

import coresetvi as cvi
from coresetvi._registry import decode, encode
from coresetvi.constructions import starts
from coresetvi.models import FromCallables
from coresetvi.weights import Fixed, Simplex, Unit

loop = importlib.import_module("coresetvi.fitting.steps")

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = MODELS["logistic"].model


def rows(names: Iterable[str]) -> list[Any]:
    """Names of constructions, those that are variants of another one marked as slow."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in VARIANTS else name for name in names]


every_construction = pytest.mark.parametrize("name", rows(CONSTRUCTIONS))
every_pseudocoreset = pytest.mark.parametrize("name", rows(PSEUDOCORESETS))
every_model = pytest.mark.parametrize("name", MODELS)
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
every_map = pytest.mark.parametrize("case", WEIGHT_MAPS.values(), ids=list(WEIGHT_MAPS))


def fit(name, data=BINARY, *, key=0, **options):
    model = registry.MODEL_OF.get(name, MODEL)
    return cvi.fit(CONSTRUCTIONS[name], model, data, key=key, progress=False, **options)


def assert_identical(one, other):
    """Two pytrees, bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def assert_same_fit(one, other):
    """Everything but the clock, bit for bit."""
    assert one.result == other.result
    assert_identical(one.coreset, other.coreset)
    assert_identical(one.psi, other.psi)
    records = [{name: fit.history[name] for name in fit.history if name != "seconds"} for fit in (one, other)]
    assert_identical(*records)


def differs(one, other) -> bool:
    return not np.array_equal(np.asarray(one), np.asarray(other))


def moved_psi(one, other) -> bool:
    return any(map(differs, jax.tree.leaves(one.psi), jax.tree.leaves(other.psi)))


@pytest.fixture
def start_of(press_ctrl_c, steps):
    """`start_of(name)`: a fit before its first step, which is what an interruption right then returns."""

    def start(name):
        press_ctrl_c(0)
        return fit(name, num_steps=steps)

    return start


# Random streams


@every_construction
def test_the_same_key_gives_the_same_fit_bit_for_bit(name, fitted_row, steps):
    assert_same_fit(fit(name, num_steps=steps), fitted_row(name))


@pytest.mark.parametrize("name", rows(name for name in CONSTRUCTIONS if name != "full Laplace"))
def test_another_key_gives_another_fit(name, fitted_row, steps):
    other = fit(name, key=1, num_steps=steps)
    assert moved_psi(other, fitted_row(name))
    assert differs(other.history["loss"], fitted_row(name).history["loss"])


@every_construction
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(
    name, fitted_row, steps, tmp_path, press_ctrl_c, monkeypatch
):
    fitted_row(name)  # made now, because whoever comes first would be interrupted
    place = tmp_path / "checkpoint"
    press_ctrl_c(loop.CHUNK)
    stopped = fit(name, num_steps=steps, checkpoint=place)
    monkeypatch.undo()
    assert stopped.result == "interrupted"
    assert len(stopped.history["loss"]) == loop.CHUNK
    np.testing.assert_array_equal(stopped.history["loss"], fitted_row(name).history["loss"][: loop.CHUNK])
    assert_same_fit(fit(name, num_steps=steps, checkpoint=place, resume=True), fitted_row(name))


@pytest.mark.parametrize("name", ["joint", "default"])
@pytest.mark.usefixtures("float64")
def test_trials_at_once_are_the_trials_one_by_one(name):
    # In double precision, because batched products round differently and steps amplify that.
    data = cvi.Dataset(np.asarray(BINARY.x), np.asarray(BINARY.y))
    together = fit(name, data, key=5, num_steps=3, num_trials=3)
    keys = jax.random.split(jax.random.key(5), 3)
    assert len(together) == 3
    for trial, key in zip(together, keys, strict=True):
        alone = fit(name, data, key=key, num_steps=3)
        assert trial.result == alone.result == "finished"
        assert trial.construction == alone.construction
        assert jnp.array_equal(jax.random.key_data(trial.key), jax.random.key_data(key))
        one, other = (
            jax.tree.leaves((each.coreset, each.psi, each.history["loss"])) for each in (trial, alone)
        )
        for left, right in zip(one, other, strict=True):
            assert np.all(np.isfinite(left))
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-10)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert moved_psi(together[one], together[other])
        assert differs(together[one].coreset.x, together[other].coreset.x)


@pytest.mark.usefixtures("float64")
def test_double_precision_reaches_every_number():
    data = cvi.Dataset(np.asarray(BINARY.x), np.asarray(BINARY.y))
    double = fit("default", data, num_steps=3)
    for leaf in jax.tree.leaves((double.coreset, double.psi)):
        assert leaf.dtype in (jnp.float64, jnp.int32, jnp.int64)
    assert double.coreset.x.dtype == double.coreset.weights.dtype == jnp.float64
    assert double.predict(data.x).dtype == jnp.float64
    assert double.result == "finished"


# Compilation


@pytest.mark.parametrize("name", ["joint", "random subset"])
def test_a_step_is_the_same_with_and_without_jit(name):
    key = jax.random.key(3)
    plan = CONSTRUCTIONS[name].settle(MODEL, MODEL.check(BINARY))
    arguments = (plan.start(key), jnp.asarray(0), jnp.asarray(1.0), key)
    jitted, plain = eqx.filter_jit(plan.step)(*arguments), plan.step(*arguments)
    for one, other in zip(jax.tree.leaves(jitted), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["joint", "default, minibatch"])
def test_a_fit_traces_the_model_once_however_many_steps_it_takes(name, monkeypatch):
    traces, per_chunk = [], []

    def log_likelihood(params, x, y):
        traces.append(x.shape)
        return y * (x @ params) - jax.nn.softplus(x @ params)

    model = FromCallables(
        lambda params: -0.5 * jnp.sum(params**2), log_likelihood, jnp.zeros(2), num_classes=2
    )
    run_chunk = loop.run_chunk

    def counted(*arguments):
        before = len(traces)
        result = run_chunk(*arguments)
        per_chunk.append(len(traces) - before)
        return result

    monkeypatch.setattr(loop, "run_chunk", counted)

    def chunk_traces(data, key, num_steps):
        per_chunk.clear()
        cvi.fit(CONSTRUCTIONS[name], model, data, key=key, num_steps=num_steps, progress=False)
        return list(per_chunk)

    first = chunk_traces(BINARY, 0, 3 * loop.CHUNK)
    assert len(first) >= 3
    assert first[0] > 0
    assert first[1:] == [0] * (len(first) - 1)
    # Nor do other data of the same shape, another key or another number of steps.
    other = cvi.Dataset(BINARY.x + 1.0, BINARY.y)
    assert set(chunk_traces(other, 1, 2)) == {0}
    assert set(chunk_traces(other, 1, None)) == {0}


# What moves


@pytest.mark.parametrize("name", rows(name for name in CONSTRUCTIONS if name not in GREEDY))
def test_what_is_learned_moves_and_the_rest_stays(name, fitted_row, start_of):
    end = fitted_row(name)
    start = start_of(name)
    learn = getattr(end.construction, "learn", frozenset())
    assert len(start.history["loss"]) == 0
    assert moved_psi(start, end)
    assert differs(start.coreset.x, end.coreset.x) == ("x" in learn)
    assert differs(start.coreset.y, end.coreset.y) == ("y" in learn)
    assert differs(start.coreset.weights, end.coreset.weights) == bool(learn & {"weights", "total"})
    share = [fit.coreset.weights / fit.coreset.total_weight for fit in (start, end)]
    if "weights" in learn:
        assert np.all(share[0] != share[1])
    # Every point moves: a leaf that only moved in part would be a masking error.
    for part in learn & {"x", "y"}:
        assert np.all(getattr(start.coreset, part) != getattr(end.coreset, part))


@every_pseudocoreset
def test_weights_keep_what_their_map_promises(name, fitted_row):
    fit = fitted_row(name)
    weights = np.asarray(fit.coreset.weights)
    assert weights.shape == (SIZE,)
    match fit.construction.weights:
        case Simplex() if "total" not in fit.construction.learn:
            np.testing.assert_allclose(weights.sum(), ROWS, rtol=1e-6)
        case Simplex():
            assert abs(weights.sum() / ROWS - 1.0) > 1e-4  # alpha has moved away from 1
        case Fixed():
            np.testing.assert_array_equal(weights, np.float32(ROWS / SIZE))
        case Unit():
            np.testing.assert_array_equal(weights, 1.0)
    assert np.all(weights >= 0.0)


@every_construction
def test_rows_of_origin_are_known_exactly_if_points_are_rows(name, fitted_row):
    fit = fitted_row(name)
    learn = getattr(fit.construction, "learn", frozenset())
    points_are_rows = not learn & {"x", "y"} and name not in WHOLE_DATA
    assert (fit.coreset.indices is not None) == points_are_rows
    if points_are_rows:
        origin = BINARY.take(np.asarray(fit.coreset.indices))
        # To the rounding of a trip to standardised units and back.
        np.testing.assert_allclose(fit.coreset.x, origin.x, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(fit.coreset.y, origin.y)


@pytest.mark.parametrize(
    "name", rows(name for name, row in PSEUDOCORESETS.items() if "y" in (row.learn or ()))
)
def test_learned_labels_are_probabilities_over_classes(name, fitted_row):
    y = np.asarray(fitted_row(name).coreset.y)
    assert y.shape == (SIZE, 2)
    np.testing.assert_allclose(y.sum(axis=1), 1.0, rtol=1e-6)
    assert np.all((y > 0.0) & (y < 1.0))


# Order of points


@every_pseudocoreset
def test_the_order_of_the_points_does_not_matter(name, monkeypatch):
    if getattr(getattr(CONSTRUCTIONS[name], "inner", None), "draws_anew", False):
        pytest.skip("dozens of times a particle is kept or not, and rounding may decide")
    order = np.random.default_rng(0).permutation(SIZE)
    plain = fit(name, num_steps=1)

    def reordered(*arguments):
        leaves, indices = start_leaves(*arguments)
        leaves = {part: leaf[order] if leaf.ndim else leaf for part, leaf in leaves.items()}
        return leaves, None if indices is None else indices[order]

    start_leaves = starts.start_leaves
    monkeypatch.setattr(starts, "start_leaves", reordered)
    other = fit(name, num_steps=1)
    np.testing.assert_allclose(other.history["loss"], plain.history["loss"], rtol=1e-5)
    for one, two in zip(jax.tree.leaves(other.psi), jax.tree.leaves(plain.psi), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)
    for part in ("x", "y", "weights"):
        expected = np.asarray(getattr(plain.coreset, part))[order]
        np.testing.assert_allclose(getattr(other.coreset, part), expected, rtol=1e-3, atol=1e-4)


# Records


@every_construction
def test_the_history_has_a_finite_number_for_every_step(name, fitted_row, steps):
    history = fitted_row(name).history
    assert {"loss", "ess", "inner_gradient_norm", "seconds"} <= history.keys()
    for record, values in history.items():
        assert values.shape == (steps,), record
        # Without an inner problem there is no gradient of one.
        none_there = record == "inner_gradient_norm" and "joint" in repr(CONSTRUCTIONS[name]).lower()
        # Without a coreset there is nothing whose posterior could differ.
        none_there |= record == "kl" and name in PLAIN
        # One draw does not say how two posteriors differ.
        none_there |= record == "kl" and "singlesample" in repr(CONSTRUCTIONS[name]).lower()
        assert np.all(np.isnan(values) if none_there else np.isfinite(values)), record
    assert np.all(np.diff(history["seconds"]) > 0)
    assert np.all((history["ess"] > 0) & (history["ess"] <= 1.0 + 1e-6))
    assert fitted_row(name).about["steps"] == steps


# Saving


@every_construction
def test_a_saved_fit_comes_back_as_it_was(name, fitted_row, tmp_path):
    fit = fitted_row(name)
    fit.save(tmp_path / "fitted", extra={"note": "tiny"})
    loaded = cvi.load(tmp_path / "fitted")
    assert_same_fit(fit, loaded)
    assert_identical(dict(fit.history), dict(loaded.history))
    assert loaded.construction == fit.construction
    assert loaded.model == fit.model
    assert loaded.family == fit.family
    assert (loaded.seconds, loaded.about, loaded.extra) == (fit.seconds, fit.about, {"note": "tiny"})
    x = BINARY.x[:7]
    np.testing.assert_array_equal(loaded.predict(x, num_samples=50), fit.predict(x, num_samples=50))


@every_model
def test_making_a_model_warns_of_nothing(name):
    model = MODELS[name].model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if isinstance(model, FromCallables):
            registry.slope_model()
        else:
            assert decode(encode(model)) == model


@every_model
def test_every_model_can_be_saved(name, fitted_model, tmp_path):
    fit, case = fitted_model(name), MODELS[name]
    fit.save(tmp_path / "fitted")
    by_hand = {"model": case.model} if isinstance(case.model, FromCallables) else {}
    loaded = cvi.load(tmp_path / "fitted", **by_hand)
    assert loaded.model == case.model
    x = case.data.x[:7]
    for one, other in zip(
        loaded.predict(x, num_samples=50, variance=True),
        fit.predict(x, num_samples=50, variance=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@every_family
def test_every_family_can_be_fitted_and_saved(family, tmp_path):
    construction = cvi.RandomSubset(SIZE, family=family, num_samples=4)
    fit = cvi.fit(construction, MODEL, BINARY, key=0, num_steps=3, progress=False)
    fit.save(tmp_path / "fitted")
    loaded = cvi.load(tmp_path / "fitted")
    assert loaded.family == fit.family == family
    assert_same_fit(fit, loaded)
    thetas, log_w = fit.draws(50)
    assert thetas.shape == (50, 2)
    assert_identical(loaded.draws(50), (thetas, log_w))


# Weight maps


@every_map
def test_weight_maps_hold_the_weights_they_are_given(case):
    weights, total = jnp.asarray([1.0, 2.0, 4.0, 13.0]), jnp.asarray(20.0)
    raw = case.weight_map.init(weights, total)
    assert case.weight_map.learnable == case.learnable
    expected = {"Fixed": jnp.full(4, 5.0), "Unit": jnp.ones(4)}
    result = case.weight_map(raw, total)
    np.testing.assert_allclose(result, expected.get(type(case.weight_map).__name__, weights), rtol=1e-6)


@every_map
def test_weight_maps_do_not_notice_the_unit_of_the_weights(case):
    """Raw numbers are relative to N/M: a data set a million times as heavy starts at the same ones."""
    weights, total = jnp.asarray([1.0, 2.0, 4.0, 13.0]), jnp.asarray(20.0)
    np.testing.assert_allclose(
        case.weight_map.init(1e6 * weights, 1e6 * total), case.weight_map.init(weights, total), atol=1e-6
    )


@every_map
def test_projected_weights_are_never_negative_and_projecting_twice_changes_nothing(case):
    raw = jnp.asarray([-3.0, -1e-9, 0.0, 0.5, 2.0])
    once = case.weight_map.project(raw)
    assert np.all(case.weight_map(once, jnp.asarray(50.0)) >= 0.0)
    np.testing.assert_array_equal(case.weight_map.project(once), once)
    allowed = jnp.asarray([0.0, 0.5, 2.0])
    np.testing.assert_array_equal(case.weight_map.project(allowed), allowed)
