"""Functions that call `fit` again: pruning, merging, task after task; and fits that start at given points."""

import gc
import itertools
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from exact import MAX_Z
from registry import BINARY, X, labels

import coresetvi as cvi
from coresetvi.data import Dataset
from coresetvi.errors import InputError
from coresetvi.families import FullRank
from coresetvi.inner import Joint
from coresetvi.models import LogisticRegression, SoftmaxRegression
from coresetvi.models.sums import weighted_log_likelihood
from coresetvi.objectives import ImportanceElbo
from coresetvi.weights import Free, Simplex
from coresetvi.workflows import continual_learning as lifelong
from coresetvi.workflows import pruning as drivers

merge: Any = cvi.merge  # which is also given what it must refuse
pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = LogisticRegression(2)
CHEAP = {"inner": Joint(), "objective": ImportanceElbo(4)}
ROWS_ONLY = cvi.BBSparseVI(5, learn={"weights"}, **CHEAP)
ROUNDING: Any = {"rtol": 2e-6, "atol": 2e-6}


@pytest.fixture
def as_a_user(monkeypatch):
    """Without the type checks of the tests, which would speak up before the package does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def refuses(call, *words):
    with pytest.raises(InputError) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence, sentence


# prune


def prune(construction: Any = ROWS_ONLY, sizes: Any = (12, 6, 3), data=BINARY, key=0, num_steps=2):
    return cvi.prune(construction, MODEL, data, sizes, key=key, num_steps=num_steps, progress=False)


@pytest.mark.slow
def test_pruning_keeps_rows_of_the_original_data_and_all_of_their_weight():
    last = prune()
    stages = [*last.earlier, last]
    assert [len(stage.coreset) for stage in stages] == [12, 6, 3]
    assert all(stage.earlier == () for stage in last.earlier)
    for stage in stages:
        assert stage.result == "finished" and len(stage.history["loss"]) == 2
        origin = BINARY.take(np.asarray(stage.coreset.indices))
        np.testing.assert_allclose(stage.coreset.x, origin.x, **ROUNDING)
        np.testing.assert_array_equal(stage.coreset.y, origin.y)
        assert float(stage.coreset.total_weight) == pytest.approx(len(BINARY), rel=1e-6)
    rows = [set(np.asarray(stage.coreset.indices).tolist()) for stage in stages]
    for larger, smaller in itertools.pairwise(rows):
        assert smaller < larger
    again, other = prune(), prune(key=1)
    np.testing.assert_array_equal(again.coreset.weights, last.coreset.weights)
    np.testing.assert_array_equal(again.coreset.indices, last.coreset.indices)
    assert set(np.asarray(other.earlier[0].coreset.indices).tolist()) != rows[0]


def test_an_interrupted_stage_is_the_last(press_ctrl_c):
    press_ctrl_c(0)
    stopped = prune()
    assert stopped.result == "interrupted"
    assert len(stopped.coreset) == 12 and stopped.earlier == ()


def test_points_are_kept_as_often_as_their_weights_say():
    weights = np.array([1.0, 2.0, 5.0])
    chance = weights / weights.sum()
    first_then = np.outer(chance, chance) / (1.0 - chance)[:, None]  # i is drawn, then j of what is left
    np.fill_diagonal(first_then, 0.0)
    expected = {1: chance, 2: chance + first_then.sum(axis=0)}
    coreset = Dataset([[0.0], [1.0], [2.0]], [0, 1, 1], weights, indices=[7, 8, 9])
    number = 400
    keys = jax.random.split(jax.random.key(3), number)
    for size, inclusion in expected.items():
        assert inclusion.sum() == pytest.approx(size)
        counts, rows = np.zeros(3), np.zeros(0, int)
        for key in keys:
            rows = drivers.draw_points(coreset, size, key)
            counts[rows] += 1
        assert counts.sum() == number * size
        kept = drivers.start_points(coreset, rows, 20.0, spread=False)
        np.testing.assert_array_equal(kept.indices, rows + 7)
        np.testing.assert_array_equal(kept.weights, np.float32(20.0 / size))
        error = np.sqrt(inclusion * (1.0 - inclusion) / number)
        assert np.all(np.abs(counts / number - inclusion) < MAX_Z * error)


def test_spread_points_stand_for_the_clusters_of_the_coreset():
    x = np.array([[0.0], [0.1], [0.2], [9.0], [9.1]])
    coreset = Dataset(x, [0, 0, 0, 0, 0], [1.0, 1.0, 2.0, 3.0, 3.0], indices=[3, 4, 5, 6, 7])
    kept = drivers.start_points(coreset, np.array([0, 3]), 100.0, spread=True)
    assert set(np.asarray(kept.indices).tolist()) <= {3, 4, 5, 6, 7}
    np.testing.assert_allclose(kept.weights, [40.0, 60.0], rtol=1e-6)
    assert float(kept.x[0, 0]) < 1.0 < float(kept.x[1, 0])


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: prune(sizes=(5, 10)), ("sizes must decrease", "10 follows 5")),
        (lambda: prune(sizes=(5, 5)), ("sizes must decrease",)),
        (lambda: prune(sizes=()), ("sizes is empty",)),
        (lambda: prune(sizes=(5, 2.5)), ("sizes", "2.5")),
        (lambda: prune(sizes=(5, 0)), ("sizes", "0")),
        (lambda: prune(sizes="5"), ("sizes", "'5'")),
        (lambda: prune(sizes=20), ("sizes", "20")),
        (lambda: prune(cvi.FullVI()), ("FullVI", "BBSparseVI")),
        (lambda: prune(cvi.GIGA(5)), ("GIGA", "BBSparseVI")),
        (lambda: prune(sizes=(61, 5)), ("61", "60 rows")),
    ],
)
def test_what_cannot_be_pruned_is_refused(call, words, as_a_user):
    refuses(call, *words)


# merge


def test_merging_conserves_order_weight_and_likelihood():
    generator = np.random.default_rng(0)
    soft = generator.dirichlet(np.ones(3), 4).astype(np.float32)
    soft[1] = [0.0, 1.0, 0.0]
    one = Dataset(generator.standard_normal((4, 2)), soft, [1.0, 2.0, 0.0, 3.0], indices=[4, 5, 6, 7])
    two = Dataset(generator.standard_normal((3, 2)), [2, 0, 1], [0.5, 0.0, 4.0])
    merged = merge([one, two])
    assert merged.indices is None
    assert float(merged.total_weight) == pytest.approx(10.5, rel=1e-6)
    # Two soft points of three classes, a certain one, and two hard ones; the rest weighs nothing.
    assert len(merged) == 3 + 1 + 3 + 2 and np.all(np.asarray(merged.weights) > 0)
    expected = [one.x[0]] * 3 + [one.x[1]] + [one.x[3]] * 3 + [two.x[0], two.x[2]]
    np.testing.assert_array_equal(merged.x, np.stack(expected))
    np.testing.assert_array_equal(merged.y, [0, 1, 2, 1, 0, 1, 2, 2, 1])
    model = SoftmaxRegression(2, 3)
    for theta in jax.random.normal(jax.random.key(0), (4, model.dim)):
        apart = sum(weighted_log_likelihood(model, theta, part) for part in (one, two))
        together = weighted_log_likelihood(model, theta, merged)
        assert float(together) == pytest.approx(float(apart), rel=1e-5)


def test_fits_can_be_merged_and_compressed_again():
    construction = cvi.BBPSVI(4, learn={"x", "y", "weights"}, **CHEAP)
    halves = [BINARY.take(np.arange(len(X)) % 2 == side) for side in (0, 1)]
    fits = [cvi.fit(construction, MODEL, half, key=0, num_steps=2, progress=False) for half in halves]
    merged = merge(fits)
    assert len(merged) == 2 * 4 * 2  # soft labels of two classes
    assert float(merged.total_weight) == pytest.approx(len(BINARY), rel=1e-6)
    again = cvi.fit(construction, MODEL, merged, key=0, num_steps=2, progress=False)
    assert again.result == "finished" and len(again.coreset) == 4
    assert float(again.coreset.total_weight) == pytest.approx(len(BINARY), rel=1e-6)


NAMED = Dataset([[1.0, 2.0]], [0], columns=["age", "height"])


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: merge(BINARY), ("list", "merge([")),
        (lambda: merge([]), ("no coresets",)),
        (lambda: merge([BINARY, X]), ("part of a merge", "ndarray")),
        (lambda: merge([BINARY, Dataset(X)]), ("Coreset 1", "labels")),
        (lambda: merge([BINARY, Dataset(X[:, :1], BINARY.y)]), ("data set 1", "(1,)", "(2,)")),
        (
            lambda: merge([NAMED, Dataset([[1.0, 2.0]], [0], columns=["height", "age"])]),
            ("data set 1", "'height', 'age'"),
        ),
    ],
)
def test_what_cannot_be_merged_is_refused(call, words, as_a_user):
    refuses(call, *words)


# Task after task

FOUR = labels(X, 4)
SOFTMAX = SoftmaxRegression(2, 2)


def task(*classes, rows=slice(None)):
    """The rows of these classes, as arrays that nothing else holds."""
    chosen = np.flatnonzero(np.isin(FOUR, classes))[rows]
    return X[chosen].copy(), FOUR[chosen].copy()


@pytest.fixture
def calls(monkeypatch):
    """Instead of being fitted, the initial points are returned, 1.3 times as heavy; what was asked for."""
    calls = []

    def fit(construction, model, data, *, key, initial, num_steps, progress):
        calls.append({"size": construction.size, "model": model, "data": data, "initial": initial})
        points = initial or data.take(np.arange(construction.size))
        coreset = Dataset(points.x, points.y, 1.3 * points.weights)
        psi = FullRank().init(jnp.zeros(model.dim), jnp.ones(model.dim))
        return cvi.Fit(coreset, model, FullRank(), psi, None, {}, "finished", key, {"run": 1.0}, {})

    monkeypatch.setattr(lifelong, "fit", fit)
    return calls


def learner(model=SOFTMAX, **options) -> Any:
    return cvi.continual(cvi.BBPSVI(2, **CHEAP), model, key=5, num_steps=2, progress=False, **options)


def test_new_points_are_rows_of_the_new_classes_with_the_weight_of_the_task(calls):
    lifelong_learner = learner()
    lifelong_learner.update(Dataset(*task(0, 1)), 4)
    before = lifelong_learner.coreset
    second = Dataset(*task(0, 2))  # rows of a class that is known already come along
    lifelong_learner.update(second, 7)
    assert [call["size"] for call in calls] == [4, 7]
    assert [call["model"].num_classes for call in calls] == [2, 3]
    initial = calls[1]["initial"]
    for name in ("x", "y", "weights"):
        np.testing.assert_array_equal(getattr(initial, name)[:4], getattr(before, name))
    np.testing.assert_array_equal(initial.y[4:], 2)
    rows = {tuple(row) for row in np.asarray(second.x)[np.asarray(second.y) == 2].tolist()}
    new = [tuple(row) for row in np.asarray(initial.x)[4:].tolist()]
    assert len(set(new)) == 3 and set(new) <= rows
    assert float(jnp.sum(initial.weights[4:])) == pytest.approx(len(second), rel=1e-6)
    # The coreset stands in for the first task with what it weighs.
    assert float(calls[1]["data"].total_weight) == pytest.approx(
        float(before.total_weight) + len(second), rel=1e-6
    )
    stage = lifelong_learner.history[1]
    assert (stage.num_classes, stage.size, stage.rows, stage.seconds) == (3, 7, len(second), 1.0)


def test_replayed_samples_weigh_as_much_as_the_rows_that_were_seen(calls):
    lifelong_learner = learner(replay="samples")
    seen = 0
    for classes, budget in (((0, 1), 4), ((2,), 6), ((3,), 8)):
        rows = Dataset(*task(*classes))
        lifelong_learner.update(rows, budget)
        seen += len(rows)
        weights = np.asarray(calls[-1]["data"].weights)
        np.testing.assert_array_equal(weights, np.round(weights))
        assert weights.sum() == seen


def test_forgetting_is_the_best_accuracy_minus_the_present_one(calls, monkeypatch):
    table = iter([0.9, 0.7, 0.8, 0.95, 0.6, 0.5])
    monkeypatch.setattr(cvi.Fit, "evaluate", lambda self, data, **options: {"accuracy": next(table)})
    lifelong_learner = learner()
    for classes, budget in (((0, 1), 4), ((2,), 6), ((3,), 8)):
        rows = Dataset(*task(*classes))
        lifelong_learner.update(rows, budget, test=rows)
    accuracy = [stage.accuracy for stage in lifelong_learner.history]
    forgetting = [stage.forgetting for stage in lifelong_learner.history]
    assert accuracy == [(0.9,), (0.7, 0.8), (0.95, 0.6, 0.5)]
    for found, expected in zip(forgetting, [(0.0,), (0.2, 0.0), (0.0, 0.2, 0.0)], strict=True):
        assert found == pytest.approx(expected)


REFUSED_TASKS = {
    "skips a class": (lambda: Dataset(*task(3)), 6, SOFTMAX, ("label 3", "must be 2")),
    "no new class": (lambda: Dataset(*task(0, 1)), 6, SOFTMAX, ("no new class", "0 to 1")),
    "no labels": (lambda: Dataset(task(2)[0]), 6, SOFTMAX, ("needs labels",)),
    "fixed classes": (lambda: Dataset(*task(2)), 6, MODEL, ("3 classes", "LogisticRegression")),
    "other columns": (lambda: Dataset(task(2)[0][:, :1], task(2)[1]), 6, SOFTMAX, ("(1,)", "(2,)")),
    "no growth": (lambda: Dataset(*task(2)), 4, SOFTMAX, ("budget is 4", "4 points already")),
    "half a point": (lambda: Dataset(*task(2)), 4.5, SOFTMAX, ("budget", "4.5")),
    "skips the second class": (
        lambda: Dataset(task(2, 3)[0], 2 * (task(2, 3)[1] - 1)),
        8,
        SOFTMAX,
        ("label 4", "must be 3"),
    ),
    "too few new rows": (
        lambda: cvi.merge([Dataset(*task(0)), Dataset(*task(2, rows=slice(2)))]),
        9,
        SOFTMAX,
        ("5 new", "2 rows"),
    ),
    "too few rows": (lambda: Dataset(*task(2, rows=slice(3))), 9, SOFTMAX, ("5 new points", "3 rows")),
}


@pytest.mark.parametrize("name", REFUSED_TASKS)
def test_a_task_that_cannot_follow_is_refused_and_changes_nothing(name, calls, as_a_user):
    make, budget, model, words = REFUSED_TASKS[name]
    lifelong_learner = learner(model)
    lifelong_learner.update(Dataset(*task(0, 1)), 4)
    coreset = lifelong_learner.coreset
    refuses(lambda: lifelong_learner.update(make(), budget), *words)
    assert lifelong_learner.coreset is coreset and lifelong_learner.num_classes == 2
    assert len(lifelong_learner.history) == len(calls) == 1
    if model is SOFTMAX:
        lifelong_learner.update(Dataset(*task(2)), 6)
        assert len(lifelong_learner.coreset) == 6


def arrays_within(root):
    """All arrays that can be reached from an object through containers and instances of the package."""
    found, queue, seen = [], [root], set()
    while queue:
        each = queue.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, (np.ndarray, jax.Array)):
            found.append(each)
        elif isinstance(each, dict):
            queue.extend(each.values())
        elif isinstance(each, (list, tuple)):
            queue.extend(each)
        elif type(each).__module__.startswith("coresetvi"):
            queue.extend(vars(each).values())
        elif closure := getattr(each, "__closure__", None):
            queue.extend(cell.cell_contents for cell in closure)
    return found


def test_old_rows_are_never_touched_again():
    undisturbed = learner()
    first = undisturbed.update(Dataset(*task(0, 1)), 4)
    undisturbed.update(Dataset(*task(2)), 6)

    poisoned = learner()
    x, y = task(0, 1)
    old = Dataset(x, y)
    reference = weakref.ref(old.x)
    poisoned.update(old, 4)
    held = arrays_within(poisoned)
    assert any(array.shape == (4, 2) for array in held)
    assert not any(array.ndim and len(array) == len(y) for array in held)
    del old, held
    x[:], y[:] = np.nan, -1
    gc.collect()
    assert reference() is None
    poisoned.update(Dataset(*task(2)), 6)

    resumed = learner(coreset=first.coreset)
    resumed.update(Dataset(*task(2)), 6)
    for other in (poisoned, resumed):
        assert len(other.coreset) == 6 and other.num_classes == 3
        for name in ("x", "y", "weights"):
            one, two = getattr(other.coreset, name), getattr(undisturbed.coreset, name)
            np.testing.assert_array_equal(one, two)


# Fits from given points


def given(weights=(30.0, 20.0, 10.0, 15.0, 5.0)):
    return Dataset(X[10:15] + 0.1, [0, 1, 0, 1, 1], weights)


@pytest.mark.parametrize("weights", [Simplex(), Free()], ids=["simplex", "free"])
def test_a_fit_starts_at_the_points_it_is_given(weights, press_ctrl_c):
    press_ctrl_c(0)
    construction = cvi.BBPSVI(5, weights=weights, **CHEAP)
    start = cvi.fit(construction, MODEL, BINARY, key=0, initial=given(), num_steps=4, progress=False)
    assert start.result == "interrupted" and len(start.history["loss"]) == 0
    # 80 in all, although the data weigh 60.
    for name in ("x", "y", "weights"):
        np.testing.assert_allclose(getattr(start.coreset, name), getattr(given(), name), **ROUNDING)


@pytest.mark.parametrize(
    "initial, words",
    [
        (lambda: given().take([0, 1, 2]), ("3 points", "size is 5")),
        (lambda: Dataset(np.ones((5, 3)), [0, 1, 0, 1, 1]), ("(3,)", "(2,)")),
        (lambda: Dataset(X[:5]), ("labels",)),
        (lambda: X[:5], ("initial", "ndarray")),
        (lambda: Dataset(X[:5], [0, 1, 0, 1, 7]), ("7", "classes 0 to 1")),
        (lambda: Dataset(X[:5], [0.2, 1, 0, 1, 1]), ("0.2", "classes 0 to 1")),
        (lambda: Dataset(X[:5], np.full((5, 3), 1 / 3)), ("3 classes", "model has 2")),
    ],
)
def test_points_that_do_not_fit_are_refused(initial, words, as_a_user):
    refuses(
        lambda: cvi.fit(ROWS_ONLY, MODEL, BINARY, key=0, initial=initial(), num_steps=1, progress=False),
        *words,
    )


def test_initial_points_are_part_of_what_a_checkpoint_belongs_to(tmp_path):
    def fit(initial, **options):
        return cvi.fit(
            ROWS_ONLY, MODEL, BINARY, key=0, initial=initial, num_steps=2, progress=False,
            checkpoint=tmp_path / "kept", **options,
        )  # fmt: skip

    first = fit(given())
    for other in (given((30.0, 20.0, 10.0, 15.0, 6.0)), None):
        refuses(lambda other=other: fit(other, resume=True), "kept", "other data")
    np.testing.assert_array_equal(fit(given(), resume=True).coreset.weights, first.coreset.weights)
