"""The one loop: jitted chunks of steps; progress, history, checkpoints and decisions between them.

It knows constructions only by their contract (`constructions/base.py`) and is not edited to add a method.
The random stream of step i is `fold_in(key, i)`: neither chunking nor resuming changes it.
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from .._checks import instance, short, whole_number
from .._info import Info
from .._keys import one_key
from ..constructions.base import Construction
from ..constructions.schedule import Schedule, decay_factor, decide, within
from ..data.dataset import Dataset
from ..errors import InputError, NonFiniteError
from ..models.base import Model
from .checkpoint import Checkpoint
from .compilation import make_room
from .history import History
from .progress import Progress
from .result import Fit

CHUNK = 20


def fit(
    construction: Construction,
    model: Model,
    data: Dataset,
    *,
    key: int | PRNGKeyArray,
    initial: Dataset | None = None,
    num_steps: int | None = None,
    num_trials: int | None = None,
    time_limit: float | int | None = None,
    checkpoint: Any = None,
    resume: bool = False,
    progress: bool | None = None,
    watch: Callable[[int, Callable[[], Any]], None] | None = None,
    throw: bool = False,
) -> Any:
    """Fit `construction` for `model` on `data`; returns a `Fit`, or a list of them with `num_trials`.

    `initial` gives the weighted points to start from, such as an earlier coreset; by default the construction
    chooses them. `num_steps=None` stops by itself once the loss no longer improves. `num_trials` runs that
    many keys at once (vmapped, one compilation). `time_limit` is the most seconds it may take after
    compilation; the slowing down at the end is fitted into them. `checkpoint` names a directory that is kept
    up to date while fitting; `resume=True` continues from it to the same outcome, bit for bit. Ctrl-C returns
    what there is. `watch(steps, look)` is called before the first step and every `CHUNK` steps; `look()` is
    what `fit` would return at that moment, with the result "running". A fit that turns non-finite keeps its
    last good state and says so in `Fit.result`; `throw=True` raises.

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
    data = model.check(data)
    saved = Checkpoint(checkpoint, resume, construction, model, (data, initial), keys, num_steps)
    with Progress(progress) as bar:
        began = time.perf_counter()
        run = begin(construction, model, data, keys, initial)
        compiled = time.perf_counter() - began
        schedule = run.construction.schedule(num_steps)
        bounds = (compiled, time_limit)

        def collect(history: History, result: str, seconds: dict[str, float]) -> list[Fit]:
            return [Fit.collect(run, trial, history, result, seconds) for trial in range(len(keys))]

        def show(history: History, seconds: dict[str, float]) -> None:
            def look() -> Any:
                found = collect(history, "running", dict(seconds))
                return found[0] if num_trials is None else found

            if watch is not None:
                watch(len(history), look)

        history, result, seconds = run_loop(run, schedule, saved, bar, bounds, show)
    fits = collect(history, result, seconds)
    if throw and (bad := next((f for f in fits if f.result == "non_finite"), None)):
        raise NonFiniteError(bad.explanation)
    return fits[0] if num_trials is None else fits


def begin(
    construction: Construction,
    model: Model,
    data: Dataset,
    keys: Key[Array, " t"],
    initial: Dataset | None = None,
) -> "Run":
    """Everything ready for the first step, compiled, after one trial step if the construction asks for it."""
    settled, problem = construction.setup(model, data)
    given = () if initial is None else (initial,)
    states = [settled.start(problem, jax.random.fold_in(key, 2**31 - 1), *given) for key in keys]
    run = Run(settled, problem, jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), keys)
    # One step whose outcome is dropped: it compiles, and shows whether the construction suits the problem.
    _, info = chunk(run, 0, 1, 1, 1)
    first = jax.tree.map(lambda values: np.asarray(values)[0], info)
    instead = construction.reconsider(settled, first)
    return run if instead is None else begin(instead, model, data, keys, initial)


class Run(eqx.Module):
    """The moving part of a fit: states of all trials, stacked, and which of them are still finite."""

    construction: Construction
    problem: Any
    keys: Key[Array, " t"]
    moving: tuple[Any, Array, int]

    def __init__(self, construction, problem, state, keys):
        self.construction, self.problem, self.keys = construction, problem, keys
        self.moving = (state, jnp.ones(len(keys), dtype=bool), 0)

    @property
    def state(self) -> Any:
        """The states of all trials."""
        return self.moving[0]

    @property
    def alive(self) -> Array:
        """Which trials are still finite."""
        return self.moving[1]

    @property
    def steps(self) -> int:
        """How many steps the states have behind them."""
        return self.moving[2]

    def replace(self, state: Any, alive: Array, steps: int) -> None:
        """Move on, in place and in one assignment: an interrupt sees all of it or nothing."""
        object.__setattr__(self, "moving", (state, alive, steps))

    def trial(self, index: int) -> Any:
        """The state of one trial."""
        return jax.tree.map(lambda leaf: leaf[index], self.state)


def each_trial(function):
    """`function` over the leading axis of all but its last argument; plain, not vmapped, for one trial.

    A batch axis of length one would turn matrix products into batched ones, which are slower.
    """

    def mapped(state, alive, keys, index):
        if len(keys) > 1:
            return jax.vmap(function, (0, 0, 0, None))(state, alive, keys, index)
        single = jax.tree.map(lambda leaf: leaf[0], (state, alive, keys))
        return jax.tree.map(lambda leaf: leaf[None], function(*single, index))

    return mapped


def chunk(run: Run, *numbers: int):
    """`run_chunk` with its numbers as arrays, so that no value of theirs is compiled in."""
    parts = (run.construction, run.problem, run.keys, (run.state, run.alive))
    return run_chunk(*parts, *(jnp.asarray(number) for number in numbers))


@eqx.filter_jit
def run_chunk(construction, problem, keys, carry, first, end, decay_start, decay_length):
    """`CHUNK` steps from `first`, those at or past `end` left out; every fit compiles this once."""

    def one_trial(state, alive, key, index):
        scale = decay_factor(index, decay_start, decay_length)
        step_key = jax.random.fold_in(key, index)
        new_state, info = construction.step(problem, state, index, scale, step_key)
        finite = jnp.isfinite(info.loss)
        for leaf in jax.tree.leaves(new_state):
            finite &= jnp.all(jnp.isfinite(leaf))
        alive = alive & finite
        # The last good state is kept: what a broken step returned is dropped.
        state = jax.tree.map(lambda new, old: jnp.where(alive, new, old), new_state, state)
        info = info._replace(loss=jnp.where(alive, info.loss, jnp.nan))
        common = jax.tree.map(lambda number: jnp.asarray(number, float), info._replace(more={}))
        return state, alive, common._replace(more=info.more)

    def step(carry, index):
        def go(carry):
            state, alive = carry
            state, alive, info = each_trial(one_trial)(state, alive, keys, index)
            return (state, alive), info

        def skip(carry):
            blank = jnp.full(len(keys), jnp.nan)
            more = {name: jnp.zeros(len(keys), kind) for name, kind in construction.records.items()}
            common = {name: blank for name in Info._fields}
            return carry, Info(**{**common, "more": more})

        return jax.lax.cond(index < end, go, skip, carry)

    return jax.lax.scan(step, carry, first + jnp.arange(CHUNK))


def run_loop(
    run: Run,
    schedule: Schedule,
    saved: Checkpoint,
    bar: Progress,
    bounds: tuple[float, float | int | None],
    show: Callable[[History, dict[str, float]], None],
):
    """Chunks until the schedule ends, everything dies or the user interrupts; updates `run` in place.

    `bounds` are the seconds that compilation took and those that the steps may take.
    """
    compiled, time_limit = bounds
    history, schedule, planned, seconds = saved.restore(run, schedule)
    seconds["compile"] += compiled
    result = "finished"
    try:
        show(history, seconds)
        while len(history) < schedule.end:
            tick = time.perf_counter()
            numbers = (len(history), schedule.end, schedule.decay_start, schedule.decay_length)
            (state, alive), info = chunk(run, *numbers)
            info = jax.tree.map(np.asarray, info)
            elapsed = time.perf_counter() - tick
            count = min(CHUNK, schedule.end - len(history))
            history.extend(info, count, seconds["run"], elapsed)
            run.replace(state, alive, run.steps + count)
            seconds["run"] += elapsed
            if not np.any(np.asarray(alive)):
                result = "non_finite"
                break
            planned = decide(planned, history["loss"], history["kl"])
            if len(history) <= schedule.decay_start:  # once it slows down, the end stays where it is
                schedule = planned
                if time_limit is not None:
                    schedule = within(planned, len(history), seconds["run"], time_limit)
            bar.update(len(history), schedule.end, history)
            saved.keep(run, history, (schedule, planned), seconds)
            show(history, seconds)
        if result == "finished" and schedule.end < planned.end:
            result = "time_limit"
        elif result == "finished" and not schedule.decided:
            result = "step_limit"
    except KeyboardInterrupt:
        result = "interrupted"
        # Between two lines above, the history may be ahead of the state: the state decides.
        history.cut(run.steps)
    saved.keep(run, history, (schedule, planned), seconds, now=True)
    return history, result, seconds


def check_arguments(construction, model, data, initial, num_steps, num_trials, time_limit) -> None:
    """Refuse what cannot be fitted before anything is compiled."""
    instance("The first argument", construction, Construction, "a construction such as BBPSVI(size=40)")
    instance("The second argument", model, Model, "a model such as models.LogisticRegression(10)")
    instance("The third argument", data, Dataset, "a Dataset(x, y)")
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
