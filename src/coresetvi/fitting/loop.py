"""`fit`: the one loop. Compiled chunks of steps; progress, history, checkpoints and decisions between them.

It knows constructions only by their contract (`constructions/base.py`) and is not edited to add a method.
"""

import math
import os
import time
from collections.abc import Callable
from typing import overload

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import instance, short, whole_number
from .._keys import one_key
from ..constructions.base import Construction
from ..constructions.row_use import check_rows_are_taken
from ..constructions.schedule import within
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError, NonFiniteError
from ..models.base import Model
from ..models.propriety import need_enough_points
from ..models.row_checks import check_rows
from . import steps
from .checkpoint import Checkpoint
from .compilation import make_room
from .history import History
from .outcome import Ending
from .progress import Progress
from .result import Fit, collect

FilePath = str | os.PathLike[str]
Seconds = dict[str, float]


@overload
def fit(
    construction: Construction,
    model: Model,
    data: Rows,
    *,
    key: int | PRNGKeyArray,
    initial: Dataset | None = None,
    num_steps: int | None = None,
    num_trials: None = None,
    time_limit: float | None = None,
    checkpoint: FilePath | None = None,
    resume: bool = False,
    progress: bool | None = None,
    watch: Callable[[int, Callable[[], Fit]], None] | None = None,
    throw: bool = False,
) -> Fit: ...
@overload
def fit(
    construction: Construction,
    model: Model,
    data: Rows,
    *,
    key: int | PRNGKeyArray,
    initial: Dataset | None = None,
    num_steps: int | None = None,
    num_trials: int,
    time_limit: float | None = None,
    checkpoint: FilePath | None = None,
    resume: bool = False,
    progress: bool | None = None,
    watch: Callable[[int, Callable[[], list[Fit]]], None] | None = None,
    throw: bool = False,
) -> list[Fit]: ...
def fit(
    construction,
    model,
    data,
    *,
    key,
    initial=None,
    num_steps=None,
    num_trials=None,
    time_limit=None,
    checkpoint=None,
    resume=False,
    progress=None,
    watch=None,
    throw=False,
):
    """Fit `construction` for `model` on `data`; returns a `Fit`, or a list of them with `num_trials`.

    `data` are a `Dataset`, or rows that need not fit in memory (`coresetvi.scan`). `initial` gives the
    weighted points to start from, such as an earlier coreset; by default the construction chooses them.
    `num_steps=None` stops by itself once the loss no longer improves or, where every step is a pass over all
    rows (`outer.Matching`, the default for small models), once a pass finds nothing left to improve.
    `num_trials` runs that many keys at once (vmapped, one compilation). `time_limit` is the most seconds it
    may take after compilation; the slowing down at the end is fitted into them. `checkpoint` names a
    directory that is kept up to date while fitting; `resume=True` continues from it to the same outcome, bit
    for bit. Ctrl-C returns what there is. `watch(steps, look)` is called before the first step and every
    `CHUNK` steps; `look()` is what `fit` would return at that moment, with the result "running". A fit that
    turns non-finite keeps its last good state and says so in `Fit.result`; `throw=True` raises.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> fitted = cvi.fit(cvi.BBPSVI(size=8), cvi.models.LogisticRegression(2), train, key=0, num_steps=5)
    >>> fitted.coreset.x.shape, fitted.result
    ((8, 2), 'finished')
    """
    check_arguments(construction, model, data, initial, num_steps, num_trials, time_limit)
    make_room()
    root = one_key(key)
    keys = root[None] if num_trials is None else jax.random.split(root, num_trials)
    read_before = data.passes
    data = check_rows(model, data)
    if (size := getattr(construction, "size", None)) is not None:
        need_enough_points(model, data, size)
    saved = Checkpoint(checkpoint, resume, construction, model, (data, initial), keys, num_steps)
    with Progress(progress) as bar:
        began = time.perf_counter()
        run = steps.prepare(construction, model, data, keys, initial, read_before)
        compiled = time.perf_counter() - began

        def gather(history: History, ending: Ending, seconds: Seconds) -> list[Fit]:
            return [collect(run, trial, history, ending, seconds) for trial in range(len(keys))]

        def show(history: History, ending: Ending, seconds: Seconds) -> None:
            def look():
                found = gather(history, ending, dict(seconds))
                return found[0] if num_trials is None else found

            if watch is not None:
                watch(len(history), look)

        limit = math.inf if time_limit is None else time_limit
        history, ending, seconds = run_loop(run, saved, bar, num_steps, compiled, limit, show)
    fits = gather(history, ending, seconds)
    if throw and (bad := next((one for one in fits if one.result == "non_finite"), None)):
        raise NonFiniteError(bad.explanation)
    return fits[0] if num_trials is None else fits


def run_loop(
    run: steps.Run,
    saved: Checkpoint,
    bar: Progress,
    num_steps: int | None,
    compiled: float,
    time_limit: float,
    show: Callable[[History, Ending, Seconds], None],
) -> tuple[History, Ending, Seconds]:
    """Chunks until the schedule ends, everything dies or the user interrupts; moves `run` on.

    `compiled` are the seconds that compilation took, `time_limit` those that the steps may take.
    """
    history, schedule, planned, seconds = saved.restore(run, run.plan.schedule(num_steps))
    seconds["compile"] += compiled
    interrupted = False
    try:
        show(history, Ending(schedule, planned, running=True), seconds)
        while len(history) < schedule.end:
            tick = time.perf_counter()
            (state, alive), info, count = steps.advance(run, schedule)
            elapsed = time.perf_counter() - tick
            history.extend(info, count, seconds["run"], elapsed)
            run.position = steps.Position(state, alive, run.position.steps + count)
            seconds["run"] += elapsed
            if not np.any(np.asarray(alive)):
                break
            planned = run.plan.decide(planned, history["loss"], history["kl"])
            if len(history) <= schedule.decay_start:  # once it slows down, the end stays where it is
                schedule = within(planned, len(history), seconds["run"], time_limit)
            bar.update(run, schedule.end, history)
            # A pass may take an hour: none is worth doing again.
            saved.keep(run, history, (schedule, planned), seconds, now=run.plan.by_passes)
            show(history, Ending(schedule, planned, running=True), seconds)
    except KeyboardInterrupt:
        interrupted = True
        # Between two lines above, the history may be ahead of the state: the state decides.
        history.cut(run.position.steps)
    saved.keep(run, history, (schedule, planned), seconds, now=True)
    tick = time.perf_counter()
    try:
        steps.finish(run)
    except KeyboardInterrupt:
        interrupted = True
    seconds["run"] += time.perf_counter() - tick
    return history, Ending(schedule, planned, interrupted), seconds


def check_arguments(construction, model, data, initial, num_steps, num_trials, time_limit) -> None:
    """Refuse what cannot be fitted before anything is compiled."""
    instance("The first argument", construction, Construction, "a construction such as BBPSVI(size=40)")
    instance("The second argument", model, Model, "a model such as models.LogisticRegression(10)")
    instance("The third argument", data, Rows, "a Dataset(x, y), or rows from scan(...)")
    check_rows_are_taken(construction, data)
    if initial is not None:
        instance("initial", initial, Dataset, "a weighted Dataset such as fit.coreset")
        if not construction.takes_initial:
            name = type(construction).__name__
            raise InputError(f"{name} chooses its points by itself; leave initial= out, or use BBPSVI.")
    for name, number in (("num_steps", num_steps), ("num_trials", num_trials)):
        if number is not None:
            whole_number(name, number)
    if time_limit is not None and not (isinstance(time_limit, int | float) and time_limit > 0):
        raise InputError(f"time_limit must be a positive number of seconds, not {short(time_limit)}.")
