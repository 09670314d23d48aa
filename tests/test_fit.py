"""The loop and what it leaves behind: random streams, interruptions, stopping, predictions, files."""

import dataclasses
import importlib
import math
import sys
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from exact import MAX_Z, fit_by_hand, full_rank, gaussian_kl
from registry import MODELS, SIZE, X, logistic_laplace, values

import coresetvi as cvi
import coresetvi.models.prediction
from coresetvi._info import Info
from coresetvi._registry import register
from coresetvi.constructions.base import Construction, Plan
from coresetvi.constructions.parametrisation import parametrise
from coresetvi.constructions.schedule import decay_factor, decide, fixed_schedule, open_schedule
from coresetvi.constructions.starts import start_leaves
from coresetvi.data import Dataset, concatenate
from coresetvi.errors import ArtefactError, CoresetviError, InputError, NonFiniteError
from coresetvi.families import Family, MeanField
from coresetvi.fitting import result as fitted
from coresetvi.inner import Joint, Unrolled
from coresetvi.inner.base import InnerInfo
from coresetvi.models import FromCallables, LinearRegression, LogisticRegression, Model
from coresetvi.models.score_sums import CLASS_SCORES
from coresetvi.models.sums import numbers_per_row
from coresetvi.objectives import ImportanceElbo
from coresetvi.outer.base import step_info
from coresetvi.weights import Simplex, Unit

loop = importlib.import_module("coresetvi.fitting.loop")
compiled = importlib.import_module("coresetvi.fitting.steps")
checkpoint = importlib.import_module("coresetvi.fitting.checkpoint")

pytestmark = pytest.mark.usefixtures("quick_compilation")
LINE = LinearRegression(1)
POINTS = Dataset([[1.0], [2.0], [3.0]], [1.0, 2.0, 2.5])


# A construction that only counts: what the loop does with it is easy to foresee, and it compiles in no time


@register
class Counter(Construction):
    """Counts its steps in `psi["mean"]`; `breaks` says what turns non-finite once the fuse has burnt down.

    The fuse is drawn from the trial's key, between `shortest` and `longest` steps.
    """

    breaks: str = "nothing"
    shortest: int = 5
    longest: int = 5
    slope: float = 1.0
    most_steps: int = 100
    corrects: ClassVar[bool] = True

    def settle(self, model, data):
        return CountingPlan(self, model, data, MeanField())


class CountingPlan(Plan):
    """What a `Counter` does."""

    construction: Counter
    model: Model
    data: Dataset
    family: Family

    @property
    def default_steps(self):
        return self.construction.most_steps

    def start(self, key, initial=None):
        fuse = jax.random.randint(key, (), self.construction.shortest, self.construction.longest + 1)
        return {"count": jnp.zeros(()), "fuse": fuse.astype(float)}

    def step(self, state, index, scale, key):
        burnt = state["count"] >= state["fuse"]
        loss = 1000.0 - self.construction.slope * index + jax.random.normal(key)
        if self.construction.breaks == "loss":
            loss = jnp.where(burnt, jnp.nan, loss)
        count = state["count"] + 1.0
        if self.construction.breaks == "state":
            count = jnp.where(burnt, jnp.inf, count)
        one = jnp.ones(())
        return {"count": count, "fuse": state["fuse"]}, Info(loss, one, one, scale, one, one)

    def extract(self, state):
        return self.data, {"mean": state["count"][None], "log_scale": state["fuse"][None]}


def count(construction=None, *, key: Any = 0, num_steps: int | None = 50, model=LINE, data=POINTS, **options):
    construction = Counter() if construction is None else construction
    return cvi.fit(construction, model, data, key=key, num_steps=num_steps, progress=False, **options)


def steps_in_state(fit):
    return float(fit.psi["mean"][0])


def assert_same_count(one, other):
    assert one.result == other.result
    assert steps_in_state(one) == steps_in_state(other)
    for name in one.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(one.history[name], other.history[name])


# Random streams


def test_step_i_sees_the_key_folded_with_i():
    key = jax.random.key(8)
    expected = [1000.0 - i + float(jax.random.normal(jax.random.fold_in(key, i))) for i in range(45)]
    np.testing.assert_allclose(count(key=key, num_steps=45).history["loss"], expected, rtol=1e-6)


KEYS = {"number": 7, "key": jax.random.key(7), "old-style key": jax.random.PRNGKey(7)}


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_key_may_be_a_number_or_a_key(key):
    assert_same_count(count(key=key), count(key=jax.random.key(7)))


def test_trials_have_the_keys_that_the_root_splits_into():
    together = count(key=3, num_trials=3)
    assert isinstance(together, list)
    for trial, key in zip(together, jax.random.split(jax.random.key(3), 3), strict=True):
        assert_same_count(trial, count(key=key))
    one = count(key=3, num_trials=1)
    assert isinstance(one, list)
    assert_same_count(one[0], count(key=jax.random.split(jax.random.key(3), 1)[0]))


@pytest.mark.parametrize("num_steps", [1, 19, 20, 21, 60])
def test_a_fit_takes_as_many_steps_as_it_was_told(num_steps):
    fit = count(num_steps=num_steps)
    assert steps_in_state(fit) == num_steps == fit.about["steps"]
    assert all(values.shape == (num_steps,) for values in fit.history.values())
    assert fit.result == "finished"


# Interruptions


def test_ctrl_c_returns_the_last_good_state(press_ctrl_c):
    press_ctrl_c(2 * compiled.CHUNK)
    fit = count(num_steps=3 * compiled.CHUNK)
    assert fit.result == "interrupted"
    assert "interrupted" in fit.explanation
    assert steps_in_state(fit) == len(fit.history["loss"]) == 2 * compiled.CHUNK


def test_ctrl_c_before_the_first_step_returns_the_start(press_ctrl_c):
    press_ctrl_c(0)
    for fit in (count(), *count(num_trials=2)):
        assert fit.result == "interrupted"
        assert steps_in_state(fit) == len(fit.history["loss"]) == 0


def trace_loop(on_line):
    """Call `on_line(number)` before every line that the loop executes."""

    def local(frame, event, argument):
        if event == "line":
            on_line(frame.f_lineno)
        return local

    def enter(frame, event, argument):
        is_loop = frame.f_code.co_name == "run_loop" and frame.f_code.co_filename == loop.__file__
        return local if is_loop else None

    return enter


def test_ctrl_c_at_any_line_of_the_loop_loses_no_step(tmp_path):
    """Whatever line the interruption hits, the state fits the history and a resumed fit ends the same."""
    whole = count()
    hits = []
    before = sys.gettrace()
    try:
        sys.settrace(trace_loop(hits.append))
        count()
    finally:
        sys.settrace(before)
    lines = sorted({line for line in hits if hits.count(line) >= 2})
    assert len(lines) >= 5
    for line in lines:
        seen = []

        def interrupt(number, line=line, seen=seen):
            seen.append(number)
            if seen.count(line) == 2:
                # A signal would be handled at some later instruction, perhaps in a finaliser that drops it.
                raise KeyboardInterrupt

        place = tmp_path / str(line)
        try:
            sys.settrace(trace_loop(interrupt))
            stopped = count(checkpoint=place)
        finally:
            sys.settrace(before)
        where = f"interrupted at line {line} of {loop.__file__}"
        assert stopped.result == "interrupted", where
        assert steps_in_state(stopped) == len(stopped.history["loss"]), where
        resumed = count(checkpoint=place, resume=True)
        assert steps_in_state(resumed) == steps_in_state(whole), where
        assert_same_count(resumed, whole)


def test_a_crash_loses_no_more_than_what_was_not_yet_written(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    chunk = compiled.chunk

    def crash(run, first, *rest):
        if first >= 2 * compiled.CHUNK:
            raise RuntimeError("the machine is gone")
        return chunk(run, first, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "chunk", crash)
        with pytest.raises(RuntimeError, match="gone"):
            count(checkpoint=tmp_path / "c")
    chunks = []

    def watch(run, first, end, *rest):
        chunks.append(first)
        return chunk(run, first, end, *rest)

    monkeypatch.setattr(compiled, "chunk", watch)
    assert_same_count(count(checkpoint=tmp_path / "c", resume=True), count())
    assert 2 * compiled.CHUNK in chunks and compiled.CHUNK not in chunks[: chunks.index(2 * compiled.CHUNK)]


def test_an_infinite_time_limit_is_none():
    assert_same_count(count(time_limit=float("inf")), count())
    flat = Counter(slope=0.0, most_steps=600)
    assert_same_count(count(flat, num_steps=None, time_limit=float("inf")), count(flat, num_steps=None))


def test_an_automatic_fit_resumes_to_the_same_end(tmp_path, press_ctrl_c, monkeypatch):
    flat = Counter(slope=0.0, most_steps=600)
    whole = count(flat, num_steps=None)
    steps, chunk = len(whole.history["loss"]), compiled.CHUNK
    slowing = np.flatnonzero(whole.history["inner_gradient_norm"] < 1.0)[0]
    last = (steps - 1) // chunk * chunk
    # Interrupted before it decides to slow down, and after.
    assert 2 * chunk < slowing <= last < steps < 600
    for stop in (2 * chunk, last):
        place = tmp_path / str(stop)
        press_ctrl_c(stop)
        assert count(flat, num_steps=None, checkpoint=place).result == "interrupted"
        monkeypatch.undo()
        assert_same_count(count(flat, num_steps=None, checkpoint=place, resume=True), whole)


def test_resuming_a_finished_fit_returns_it(tmp_path):
    whole = count(checkpoint=tmp_path / "c")
    again = count(checkpoint=tmp_path / "c", resume=True)
    assert_same_count(again, whole)
    np.testing.assert_array_equal(again.history["seconds"], whole.history["seconds"])


def test_trials_are_resumed_together(tmp_path, press_ctrl_c, monkeypatch):
    whole = count(num_trials=2)
    press_ctrl_c(compiled.CHUNK)
    assert [fit.result for fit in count(num_trials=2, checkpoint=tmp_path / "c")] == ["interrupted"] * 2
    monkeypatch.undo()
    for one, other in zip(count(num_trials=2, checkpoint=tmp_path / "c", resume=True), whole, strict=True):
        assert_same_count(one, other)


def test_resuming_from_nothing_starts_at_the_beginning(tmp_path):
    assert_same_count(count(checkpoint=tmp_path / "c", resume=True), count())


def parameters(number):
    """A model of user functions with that many parameters."""
    return FromCallables(
        lambda p: -0.5 * jnp.sum(p**2), lambda p, x, y: -0.5 * (y - x[:, 0] * p[0]) ** 2, jnp.zeros(number)
    )


OTHER_CALLS = {
    "key": ({}, {"key": 1}),
    "steps": ({}, {"num_steps": 51}),
    "automatic steps": ({}, {"num_steps": None}),
    "trials": ({}, {"num_trials": 1, "key": 2}),
    "construction": ({}, {"construction": Counter(slope=2.0)}),
    "kind of construction": ({}, {"construction": cvi.RandomSubset(2, num_samples=2)}),
    "model": ({}, {"model": LinearRegression(1, prior_scale=2.0)}),
    "kind of model": ({}, {"model": parameters(1)}),
    "user functions": ({"model": parameters(1)}, {"model": parameters(2)}),
    "one input": ({}, {"data": Dataset([[1.0], [2.0], [3.1]], [1.0, 2.0, 2.5])}),
    "one label": ({}, {"data": Dataset([[1.0], [2.0], [3.0]], [1.0, 2.0, 2.4])}),
    "one weight": ({}, {"data": Dataset([[1.0], [2.0], [3.0]], [1.0, 2.0, 2.5], [1.0, 1.0, 2.0])}),
    "more rows": ({}, {"data": concatenate(POINTS, POINTS)}),
}


@pytest.mark.parametrize(("call", "other"), OTHER_CALLS.values(), ids=list(OTHER_CALLS))
def test_a_checkpoint_of_another_call_is_refused(call, other, tmp_path, press_ctrl_c, monkeypatch):
    press_ctrl_c(compiled.CHUNK)
    count(**call, checkpoint=tmp_path / "c")
    monkeypatch.undo()
    with pytest.raises(InputError, match="other data, model, settings or key"):
        count(**{**call, **other}, checkpoint=tmp_path / "c", resume=True)
    # The refusal leaves the checkpoint as it was.
    assert count(**call, checkpoint=tmp_path / "c", resume=True).result == "finished"


def test_an_existing_checkpoint_is_not_overwritten_without_being_told(tmp_path):
    count(checkpoint=tmp_path / "c")
    with pytest.raises(InputError, match=r"exists already; pass resume=True"):
        count(checkpoint=tmp_path / "c")


def test_a_saved_fit_is_no_checkpoint_and_a_checkpoint_no_saved_fit(tmp_path):
    count().save(tmp_path / "fit")
    with pytest.raises(CoresetviError, match="fit"):
        count(checkpoint=tmp_path / "fit", resume=True)
    count(checkpoint=tmp_path / "c")
    with pytest.raises(CoresetviError, match="checkpoint"):
        cvi.load(tmp_path / "c")


def test_a_progress_bar_stays_on_standard_error(capfd):
    fit = cvi.fit(Counter(), LINE, POINTS, key=0, num_steps=50, progress=True)
    assert_same_count(fit, count())
    out, _ = capfd.readouterr()
    assert out == ""


# Non-finite fits


@pytest.mark.parametrize("breaks", ["loss", "state"])
def test_a_fit_that_turns_non_finite_keeps_its_last_good_state(breaks):
    fit = count(Counter(breaks))
    assert fit.result == "non_finite"
    assert steps_in_state(fit) == 5.0
    assert "non-finite at step 5;" in fit.explanation
    # There is no point in going on.
    assert len(fit.history["loss"]) < 50


@pytest.mark.parametrize("breaks", ["loss", "state"])
def test_each_trial_has_its_own_result(breaks):
    fits = count(Counter(breaks, shortest=3, longest=90), num_trials=6)
    fuses = [int(fit.psi["log_scale"][0]) for fit in fits]
    assert min(fuses) < 50 < max(fuses)
    for fit, fuse in zip(fits, fuses, strict=True):
        assert steps_in_state(fit) == min(fuse, 50)
        assert fit.result == ("non_finite" if fuse < 50 else "finished")
        if fuse < 50:
            assert f"at step {fuse};" in fit.explanation


def test_throw_raises_what_the_explanation_says():
    with pytest.raises(NonFiniteError) as error:
        count(Counter("loss"), throw=True)
    assert str(error.value) == count(Counter("loss")).explanation
    assert count(throw=True).result == "finished"
    with pytest.raises(NonFiniteError):
        count(Counter("loss", shortest=3, longest=90), num_trials=6, throw=True)


def fenced(value_beyond, fence=0.3):
    """A linear model whose log-likelihood has `value_beyond(slope)` added where a slope is past the fence."""

    def log_likelihood(slope, x, y):
        return -0.5 * (y - x @ slope) ** 2 + value_beyond(slope[0] - fence)

    return FromCallables(lambda slope: -0.5 * jnp.sum(slope**2), log_likelihood, jnp.zeros(2))


BEYOND = {
    "a value that is NaN": lambda excess: jnp.where(excess > 0.0, jnp.nan, 0.0),
    # 0 * sqrt(0) is 0, and its derivative 0 * infinity.
    "a slope that is NaN": lambda excess: 0.0 * jnp.sqrt(jnp.maximum(-excess, 0.0)),
}


@pytest.mark.parametrize("beyond", BEYOND.values(), ids=list(BEYOND))
def test_a_model_that_breaks_on_the_way_leaves_a_finite_fit_behind(beyond):
    # The data pull the slope to 1, well past the fence; r starts narrow, at 0.
    y = X @ np.array([1.0, -1.0])
    construction = cvi.BBPSVI(SIZE, inner=Joint(), objective=ImportanceElbo(4))
    fit = cvi.fit(construction, fenced(beyond), Dataset(X, y), key=0, num_steps=60, progress=False)
    assert fit.result == "non_finite"
    for leaf in jax.tree.leaves((fit.coreset, fit.psi)):
        assert np.all(np.isfinite(leaf))
    step = int(fit.explanation.split("at step ")[1].split(";")[0])
    assert 0 < step < len(fit.history["loss"])
    assert np.all(np.isfinite(fit.history["loss"][:step]))
    # It has moved before it broke: this is the last good state, not the first.
    assert float(fit.psi["mean"][0]) > 0.0


def test_a_fit_that_is_broken_from_the_start_says_step_0():
    def log_likelihood(slope, x, y):
        return jnp.nan * (x @ slope)

    model = FromCallables(lambda slope: -0.5 * jnp.sum(slope**2), log_likelihood, jnp.zeros(2))
    construction = cvi.BBPSVI(SIZE, inner=Joint(), objective=ImportanceElbo(4))
    fit = cvi.fit(construction, model, Dataset(X, values(X)), key=0, num_steps=5, progress=False)
    assert fit.result == "non_finite"
    assert "at step 0;" in fit.explanation


# Schedules


@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 10), (7, 1), (30, 20)])
def test_the_factor_falls_from_one_to_zero_and_never_rises(start, length):
    factors = np.asarray(decay_factor(jnp.arange(start + length + 5), start, length))
    np.testing.assert_array_equal(factors[:start], 1.0)
    assert np.all(np.diff(factors[max(start - 1, 0) : start + length]) < 0.0)
    # The last step still counts; what comes after it does not.
    assert np.all(factors[: start + length] > 0.0)
    np.testing.assert_allclose(factors[start + length :], 0.0, atol=1e-7)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 10, 999])
def test_a_fixed_schedule_slows_down_just_in_time(num_steps):
    schedule = fixed_schedule(num_steps)
    assert schedule.end == num_steps == schedule.decay_start + schedule.decay_length
    assert decide(schedule, np.ones((num_steps, 1)), np.zeros((num_steps, 1))) == schedule


def falling(steps, rate=1.0):
    return 100.0 - rate * np.arange(steps)[:, None] + np.zeros((1, 2))


def noise(steps):
    return np.random.default_rng(steps).standard_normal((steps, 2))


@pytest.mark.parametrize("rate", [1.0, -1.0], ids=["falls", "rises"])
def test_a_loss_that_still_moves_is_left_alone(rate):
    schedule = open_schedule(300)
    for steps in range(1, 300):
        assert decide(schedule, falling(steps, rate) + noise(steps), np.ones((steps, 2))) == schedule


def test_one_draw_says_nothing_about_the_kl_and_so_does_not_end_a_fit():
    solved = InnerInfo(jnp.zeros(()), jnp.asarray(1), jnp.asarray(True))
    one, two = (step_info(jnp.zeros(()), *[jnp.ones(num)] * 4, inner=solved).kl for num in (1, 2))
    assert np.isnan(one)
    assert two == 0.0
    schedule = open_schedule(300)
    assert decide(schedule, falling(120), np.full((120, 2), np.nan)) == schedule


NO_GAIN = {
    "the loss is flat": (np.tile([[1.0, 2.0], [2.0, 1.0]], (60, 1)), np.ones((120, 2))),
    "the coreset is perfect": (falling(120), np.zeros((120, 2))),
}


@pytest.mark.parametrize(("losses", "kl"), NO_GAIN.values(), ids=list(NO_GAIN))
def test_a_fit_that_gains_nothing_slows_down(losses, kl):
    decided = decide(open_schedule(300), losses, kl)
    assert decided.decided
    assert decided.decay_start == 120
    assert 120 < decided.end < 300
    # Decided once: nothing that comes later changes it.
    assert decide(decided, falling(140), np.ones((140, 2))) == decided


@pytest.mark.parametrize("most", [20, 300, 2000])
def test_an_automatic_fit_never_takes_more_than_the_most_steps(most):
    schedule = open_schedule(most)
    assert schedule.end == most
    for steps in range(1, most, max(1, most // 50)):
        assert decide(schedule, np.zeros((steps, 1)), np.zeros((steps, 1))).end <= most


def test_decisions_depend_on_the_history_alone_and_do_not_change_it():
    losses, kl = noise(100), np.ones((100, 2))
    copies = losses.copy(), kl.copy()
    assert decide(open_schedule(300), losses, kl) == decide(open_schedule(300), *copies)
    np.testing.assert_array_equal(losses, copies[0])
    np.testing.assert_array_equal(kl, copies[1])


def test_the_factor_of_the_schedule_reaches_the_steps():
    schedule = fixed_schedule(30)
    expected = decay_factor(jnp.arange(30), schedule.decay_start, schedule.decay_length)
    np.testing.assert_allclose(count(num_steps=30).history["inner_gradient_norm"], expected, rtol=1e-5)


# Good coresets


@pytest.fixture(scope="module")
def easy():
    """The default on 500 rows, and the data."""
    train, _ = cvi.datasets.synthetic_lr(n=625, dim=3)
    assert len(train) == 500
    return cvi.fit(cvi.BBPSVI(size=20), LogisticRegression(3), train, key=0, progress=False), train


def test_the_default_matches_the_posterior(easy):
    fit, data = easy
    coreset = fit.coreset
    target = logistic_laplace(data.x, data.y, data.weights, 1.0)
    assert gaussian_kl(*logistic_laplace(coreset.x, coreset.y, coreset.weights, 1.0), *target) < 0.05
    # And so does r, which is fitted to the coreset and not to a Laplace approximation of it.
    mean, covariance = fit.family.moments(fit.psi)
    assert gaussian_kl(mean, covariance, *target) < 0.1


def test_the_default_knows_that_it_matches(easy):
    fit, _ = easy
    loss, kl = fit.history["loss"], fit.history["kl"]
    assert loss[-1] < loss[0] - 0.5
    assert kl[-1] < 0.05 < kl[0]
    trust = fit.reliability()
    assert trust["ess"] > 0.9
    assert trust["khat"] < trust["khat_threshold"]


def test_an_easy_fit_stops_by_itself(easy):
    fit, _ = easy
    assert fit.result == "finished"
    assert len(fit.history["loss"]) < fit.construction.optimizer.default_steps
    assert all(seconds > 0.0 for seconds in fit.seconds.values())


def test_full_vi_does_not_stop_while_it_still_gains():
    """On a linear model the bound is the evidence once r is the posterior, and until then it is not."""
    model, x = LinearRegression(2), registry.inputs(seed=4)
    data = Dataset(x, x @ np.array([1.0, -1.0]) + np.random.default_rng(0).standard_normal(len(x)))
    construction = cvi.FullVI(learning_rate=0.01, num_samples=8)
    fit = cvi.fit(construction, model, data, key=0, progress=False)
    assert abs(fit.history["loss"][-5:].mean() + model.log_evidence(data)) < 0.05
    assert gaussian_kl(*fit.family.moments(fit.psi), *model.posterior(data)) < 0.05


# Predictions, against the closed form of the linear model


def by_hand(model, coreset, mean, covariance, **changes):
    """A fit whose r is the normal with these moments."""
    return fit_by_hand(model, coreset, full_rank(mean, covariance), **changes)


LINEAR = LinearRegression(2, noise=0.7, intercept=True)
CORESET = Dataset(X[:9], values(X)[:9], np.linspace(0.5, 6.0, 9))
MEAN, COVARIANCE = LINEAR.posterior(CORESET)
NEW_X = registry.inputs(12, seed=9)
DESIGN = np.column_stack([NEW_X, np.ones(12)])
# Mean and variance of x @ theta under the posterior.
EXACT_MEAN, EXACT_SPREAD = DESIGN @ MEAN, np.sum((DESIGN @ COVARIANCE) * DESIGN, axis=1)
NUM_SAMPLES = 20_000


def test_predictions_are_the_exact_ones_if_r_is_the_posterior():
    fit = by_hand(LINEAR, CORESET, MEAN, COVARIANCE)
    mean, variance = fit.predict(NEW_X, variance=True, num_samples=NUM_SAMPLES)
    assert np.all(np.abs(mean - EXACT_MEAN) < MAX_Z * np.sqrt(EXACT_SPREAD / NUM_SAMPLES))
    # The variance of a new y: the noise, plus that of the mean, whose estimate has a relative error.
    error = EXACT_SPREAD * math.sqrt(2.0 / NUM_SAMPLES)
    assert np.all(np.abs(variance - (0.7**2 + EXACT_SPREAD)) < MAX_Z * error)
    np.testing.assert_array_equal(fit.predict(NEW_X, num_samples=NUM_SAMPLES), mean)


def test_a_wrong_r_is_corrected_by_the_importance_weights():
    shift = 0.5 * np.sqrt(np.diag(COVARIANCE))
    fit = by_hand(LINEAR, CORESET, MEAN + shift, COVARIANCE)
    draws, weights = fit.predict(NEW_X, samples=True, num_samples=NUM_SAMPLES)
    mean = fit.predict(NEW_X, num_samples=NUM_SAMPLES)
    np.testing.assert_allclose(mean, weights @ draws, rtol=1e-4)
    error = np.sqrt(np.sum(weights[:, None] ** 2 * (draws - mean) ** 2, axis=0))
    assert np.all(np.abs(mean - EXACT_MEAN) < MAX_Z * error)
    # Without the weights nearly every row would be wrong.
    assert np.mean(np.abs(draws.mean(0) - EXACT_MEAN) > 2 * MAX_Z * error) > 0.8


def test_the_correction_can_be_left_out_and_plain_variational_inference_has_none():
    shifted = by_hand(LINEAR, CORESET, MEAN + 0.2, COVARIANCE)
    plain = dataclasses.replace(shifted, construction=cvi.RandomSubset(9))
    draws, _ = shifted.predict(NEW_X, samples=True)
    corrected, uncorrected = shifted.predict(NEW_X), shifted.predict(NEW_X, correct=False)
    np.testing.assert_allclose(uncorrected, draws.mean(0), rtol=1e-4)
    assert np.all(np.abs(corrected - uncorrected) > 0.01)
    np.testing.assert_array_equal(plain.predict(NEW_X), uncorrected)
    np.testing.assert_array_equal(plain.predict(NEW_X, correct=True), corrected)
    new = Dataset(NEW_X, EXACT_MEAN)
    assert plain.evaluate(new) == shifted.evaluate(new, correct=False) != shifted.evaluate(new)


def test_the_log_weights_are_those_of_the_coreset_posterior():
    """For an exact posterior, log w is the log-evidence of the coreset, whatever the draw."""
    fit = by_hand(LINEAR, CORESET, MEAN, COVARIANCE)
    thetas, log_w = fit.draws(100)
    assert thetas.shape == (100, 3)
    np.testing.assert_allclose(log_w, LINEAR.log_evidence(CORESET), rtol=1e-4)


def test_an_exact_r_is_trusted():
    """All weights are equal but for rounding: nothing about them has a heavy tail."""
    trust = by_hand(LINEAR, CORESET, MEAN, COVARIANCE).reliability()
    assert trust["num_samples"] == fitted.NUM_DRAWS
    assert trust["ess"] == pytest.approx(1.0, abs=1e-4)
    assert trust["khat"] < trust["khat_threshold"]


def test_an_r_that_is_much_too_narrow_is_not_trusted():
    trust = by_hand(LINEAR, CORESET, MEAN, 0.09 * COVARIANCE).reliability()
    assert trust["ess"] < 0.3
    assert trust["khat"] > trust["khat_threshold"]


def test_scores_are_the_exact_ones():
    fit = by_hand(LINEAR, CORESET, MEAN, COVARIANCE)
    y = EXACT_MEAN + np.linspace(-2.0, 2.0, 12)
    weights = np.linspace(1.0, 3.0, 12)
    scores = fit.evaluate(Dataset(NEW_X, y, weights), num_samples=NUM_SAMPLES)

    def normal(variance):
        return np.exp(-0.5 * (y - EXACT_MEAN) ** 2 / variance) / np.sqrt(2.0 * np.pi * variance)

    density = normal(0.7**2 + EXACT_SPREAD)
    # The second moment of p(y | theta) has a closed form too, and with it the error of its average.
    second = normal(0.7**2 / 2.0 + EXACT_SPREAD) / (2.0 * 0.7 * math.sqrt(math.pi))
    error = np.average(np.sqrt((second / density**2 - 1.0) / NUM_SAMPLES), weights=weights)
    assert abs(scores["nll"] - np.average(-np.log(density), weights=weights)) < MAX_Z * error
    rmse = math.sqrt(np.average((y - EXACT_MEAN) ** 2, weights=weights))
    assert abs(scores["rmse"] - rmse) < MAX_Z * math.sqrt(EXACT_SPREAD.max() / NUM_SAMPLES)


def test_all_the_data_with_unit_weights_are_the_best_coreset():
    data = Dataset(X, values(X))
    full = by_hand(LINEAR, data, *LINEAR.posterior(data))
    mean = full.predict(NEW_X, num_samples=NUM_SAMPLES)
    exact_mean, exact_covariance = LINEAR.posterior(data)
    spread = np.sum((DESIGN @ exact_covariance) * DESIGN, axis=1)
    assert np.all(np.abs(mean - DESIGN @ exact_mean) < MAX_Z * np.sqrt(spread / NUM_SAMPLES))


def test_nothing_to_learn_is_either_refused_or_gives_the_posterior_of_the_points():
    data = Dataset(X, values(X))
    try:
        construction = cvi.BBPSVI(len(data), learn=(), weights=Unit())
        fit = cvi.fit(construction, LINEAR, data, key=0, num_steps=3, progress=False)
    except InputError as error:
        assert "learn" in str(error)
    else:
        assert gaussian_kl(*fit.family.moments(fit.psi), *LINEAR.posterior(data)) < 0.01


def test_points_without_weight_change_no_prediction():
    fit = by_hand(LINEAR, CORESET, MEAN + 0.1, COVARIANCE)
    absurd = Dataset([[50.0, -50.0]], [1000.0])
    joined = concatenate(absurd, fit.coreset, absurd)
    padded = Dataset(joined.x, joined.y, np.r_[0.0, np.asarray(CORESET.weights), 0.0])
    other = dataclasses.replace(fit, coreset=padded)
    np.testing.assert_allclose(other.predict(NEW_X), fit.predict(NEW_X), rtol=1e-4, atol=1e-4)


def test_the_order_of_the_points_changes_no_prediction():
    fit = by_hand(LINEAR, CORESET, MEAN + 0.1, COVARIANCE)
    other = dataclasses.replace(fit, coreset=fit.coreset.take(np.arange(9)[::-1]))
    np.testing.assert_allclose(other.predict(NEW_X), fit.predict(NEW_X), rtol=1e-4, atol=1e-4)


def test_predictions_do_not_depend_on_the_size_of_the_blocks(monkeypatch):
    fit, scored = by_hand(LINEAR, CORESET, MEAN, COVARIANCE), Dataset(NEW_X, EXACT_MEAN)
    whole = fit.predict(NEW_X, variance=True), fit.evaluate(scored)
    rows_of_all_draws = 5 * fitted.NUM_DRAWS * numbers_per_row(LINEAR, scored)
    monkeypatch.setattr(coresetvi.models.prediction, "BLOCK_NUMBERS", rows_of_all_draws)
    blocked = fit.predict(NEW_X, variance=True), fit.evaluate(scored)
    np.testing.assert_allclose(blocked[0], whole[0], rtol=1e-5)
    assert blocked[1]["nll"] == pytest.approx(whole[1]["nll"], rel=1e-5)
    # The rmse, a hundredth of the means, inherits their rounding.
    rounding = 1e-5 * float(np.max(np.abs(whole[0][0])))
    assert blocked[1]["rmse"] == pytest.approx(whole[1]["rmse"], abs=rounding)
    # Fewer numbers than one row has draws: now draws come in blocks too.
    monkeypatch.setattr(coresetvi.models.prediction, "BLOCK_NUMBERS", rows_of_all_draws // 50)
    np.testing.assert_allclose(fit.predict(NEW_X, variance=True), whole[0], rtol=1e-5)
    assert fit.evaluate(scored)["nll"] == pytest.approx(whole[1]["nll"], rel=1e-5)


def test_predictions_repeat_themselves_and_follow_the_key():
    fit = by_hand(LINEAR, CORESET, MEAN, COVARIANCE)
    np.testing.assert_array_equal(fit.predict(NEW_X), fit.predict(NEW_X))
    assert not np.array_equal(fit.predict(NEW_X), fit.predict(NEW_X, key=jax.random.key(1)))


def unfitted(name):
    """The model of that name with an r that nobody fitted: predictions do not care where it came from."""
    case, family = MODELS[name], MeanField()
    mean = jnp.linspace(-0.5, 0.5, case.model.dim)
    psi = family.init(mean, jnp.full(case.model.dim, 0.2))
    return fit_by_hand(case.model, case.data.take(np.arange(20)), psi, family)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_have_the_promised_shapes(name):
    fit, case = unfitted(name), MODELS[name]
    x = case.data.x[:7]
    mean, variance = fit.predict(x, variance=True, num_samples=50)
    draws, weights = fit.predict(x, samples=True, num_samples=50)
    assert mean.shape == variance.shape == (7, *case.per_row)
    assert draws.shape == (50, 7, *case.per_row)
    assert weights.shape == (50,)
    assert weights.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(mean, np.tensordot(weights, draws, 1), rtol=1e-4, atol=1e-5)
    # A data set will do in place of x, and its labels do not matter.
    np.testing.assert_array_equal(fit.predict(case.data.take(np.arange(7)), num_samples=50), mean)
    assert np.all(variance > 0.0)
    if case.model.num_classes is not None:
        assert np.all((mean > 0.0) & (mean < 1.0))
        # What is certain about a class is all there is: the variance of a new 0 or 1 is p (1 - p).
        np.testing.assert_allclose(variance, mean * (1.0 - mean), rtol=1e-3, atol=1e-5)
    if case.per_row:
        np.testing.assert_allclose(mean.sum(-1), 1.0, rtol=1e-5)
    if name == "poisson":
        assert np.all(mean > 0.0)
    scores = fit.evaluate(case.data, num_samples=50)
    others = ["rmse"] if case.model.num_classes is None else CLASS_SCORES
    assert scores.keys() == {"nll", *others}
    assert np.all(np.isfinite(list(scores.values())))


def test_scores_of_classes_are_those_of_the_predicted_probabilities():
    for name in ("logistic", "softmax"):
        fit, data = unfitted(name), MODELS[name].data
        chance = fit.predict(data.x, num_samples=50)
        if chance.ndim == 1:
            chance = np.stack([1.0 - chance, chance], axis=1)
        y = np.asarray(data.y)
        scores = fit.evaluate(data, num_samples=50)
        assert scores["nll"] == pytest.approx(-np.log(chance[np.arange(len(y)), y]).mean(), rel=1e-4)
        assert scores["accuracy"] == pytest.approx(np.mean(chance.argmax(1) == y))


def test_held_out_rows_may_all_be_of_one_class():
    """A posterior needs two classes; a score does not."""
    fit, data = unfitted("logistic"), MODELS["logistic"].data
    ones = data.take(np.flatnonzero(np.asarray(data.y) == 1))
    scores = fit.evaluate(ones, num_samples=50)
    chance = fit.predict(ones.x, num_samples=50)
    assert scores["nll"] == pytest.approx(-np.log(chance).mean(), rel=1e-4)
    assert scores["accuracy"] == pytest.approx(np.mean(chance > 0.5))


def test_columns_in_another_order_are_not_taken_for_the_right_ones():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"width": X[:, 0], "height": X[:, 1]})
    coreset = Dataset(frame.iloc[:9], values(X)[:9], np.asarray(CORESET.weights))
    fit = by_hand(LINEAR, coreset, MEAN, COVARIANCE)
    right = fit.predict(frame)
    try:
        other = fit.predict(frame[["height", "width"]])
    except InputError as error:
        assert "height" in str(error)
    else:
        np.testing.assert_allclose(other, right, rtol=1e-6)


def test_reliability_is_defined_for_a_single_draw():
    trust = by_hand(LINEAR, CORESET, MEAN, COVARIANCE).reliability(1)
    assert trust["num_samples"] == 1
    assert trust["ess"] == pytest.approx(1.0)


# Files


def test_a_model_of_user_functions_must_be_passed_again(tmp_path):
    fit = unfitted("callables")
    fit.save(tmp_path / "fitted")
    with pytest.raises(
        ArtefactError, match=r"user functions.* pass the same one as load\(path, model="
    ) as error:
        cvi.load(tmp_path / "fitted")
    assert "\n" not in str(error.value)
    loaded = cvi.load(tmp_path / "fitted", model=MODELS["callables"].model)
    x = MODELS["callables"].data.x
    np.testing.assert_array_equal(loaded.predict(x, num_samples=50), fit.predict(x, num_samples=50))


def test_names_are_remembered(tmp_path):
    pandas = pytest.importorskip("pandas")
    data = Dataset(pandas.DataFrame({"width": X[:, 0], "height": X[:, 1], "price": values(X)}), "price")
    frame = parametrise(data, Simplex(), frozenset({"x"}), None)
    coreset = frame.build(*start_leaves(frame, data, 4, "subset", jax.random.key(0)))
    fit = by_hand(LINEAR, coreset, MEAN, COVARIANCE)
    fit.save(tmp_path / "fitted")
    for each in (fit, cvi.load(tmp_path / "fitted")):
        assert each.coreset.columns == ("width", "height")
        assert each.coreset.target == "price"
        np.testing.assert_array_equal(each.coreset.y, data.y[each.coreset.indices])


def test_a_part_that_no_file_can_hold_does_not_stop_a_save(tmp_path):
    optax = pytest.importorskip("optax")
    construction = cvi.BBPSVI(SIZE, inner=Unrolled(optimizer=optax.sgd(0.01)))
    fit = by_hand(LINEAR, CORESET, MEAN, COVARIANCE, construction=construction)
    fit.save(tmp_path / "fitted")
    loaded = cvi.load(tmp_path / "fitted")
    assert loaded.construction is None
    np.testing.assert_array_equal(loaded.predict(NEW_X), fit.predict(NEW_X))


# Watching

WATCHED: dict[str, Any] = {"inner": Joint(), "objective": ImportanceElbo(4)}


def watched(num_trials=None, **options) -> tuple[Any, list[tuple[int, Any]]]:
    """A fit of 50 steps, and what was seen of it on the way."""
    seen = []
    train, _ = cvi.datasets.synthetic_lr(n=60, dim=2)
    fitted_ = cvi.fit(
        cvi.BBPSVI(4, **WATCHED),
        LogisticRegression(2),
        train,
        key=0,
        num_steps=50,
        num_trials=num_trials,
        progress=False,
        watch=lambda steps, look: seen.append((steps, look())),
        **options,
    )
    return fitted_, seen


def test_a_fit_can_be_watched_without_being_changed():
    end, seen = watched()
    train, _ = cvi.datasets.synthetic_lr(n=60, dim=2)
    construction = cvi.BBPSVI(4, **WATCHED)
    alone = cvi.fit(construction, LogisticRegression(2), train, key=0, num_steps=50, progress=False)
    np.testing.assert_array_equal(end.coreset.x, alone.coreset.x)
    assert [steps for steps, _ in seen] == [0, 20, 40, 50]
    for steps, look in seen:
        assert look.result == "running" and look.about["steps"] == steps == len(look.history["loss"])
        assert f"after {steps} steps" in look.explanation
    np.testing.assert_array_equal(seen[-1][1].coreset.x, end.coreset.x)
    assert not np.array_equal(seen[1][1].coreset.x, end.coreset.x)
    assert len(seen[1][1].history["loss"]) == 20 and seen[1][1].seconds["run"] < end.seconds["run"]


def test_all_trials_are_watched_at_once():
    ends, seen = watched(num_trials=2)
    assert [len(look) for _, look in seen] == [2, 2, 2, 2]
    for end, last in zip(ends, seen[-1][1], strict=True):
        np.testing.assert_array_equal(end.coreset.x, last.coreset.x)


def test_pruning_counts_the_steps_of_all_stages():
    train, _ = cvi.datasets.synthetic_lr(n=60, dim=2)
    seen = []
    options = {"sizes": (8, 4), "key": 0, "num_steps": 20, "progress": False}
    watch = lambda steps, look: seen.append((steps, len(look().coreset)))  # noqa: E731
    cvi.prune(cvi.BBSparseVI(8, **WATCHED), LogisticRegression(2), train, watch=watch, **options)
    assert seen == [(0, 8), (20, 8), (20, 4), (40, 4)]
