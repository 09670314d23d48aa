"""Steps in compiled chunks: a run of all trials at once, and how it moves on.

The random stream of step i is `fold_in(key, i)`: neither chunking nor resuming changes it.
"""

import dataclasses
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from .._info import Info
from ..constructions.base import Construction, Plan, State, start_key
from ..constructions.schedule import Schedule, decay_factor
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..models.base import Model

CHUNK = 20


class Position(NamedTuple):
    """Where a run stands: the states of all trials, stacked, which of them are finite, and steps taken."""

    state: State
    alive: Array
    steps: int


@dataclasses.dataclass
class Run:
    """A plan under way. `position` is replaced as a whole: an interrupt sees all of a move, or none of it."""

    plan: Plan
    keys: Key[Array, " t"]
    position: Position
    surveys: int  # times that rows which are not in memory were read before the first step

    def trial(self, index: int) -> State:
        """The state of one trial."""
        return jax.tree.map(lambda leaf: leaf[index], self.position.state)


def prepare(
    construction: Construction,
    model: Model,
    data: Rows,
    keys: Key[Array, " t"],
    initial: Dataset | None = None,
    read_before: int = 0,
) -> Run:
    """Everything ready for the first step, and compiled. `read_before` passes are no part of this fit."""
    # Rows that are not in memory come this far only where the construction takes them.
    plan = construction.settle(model, cast(Dataset, data))
    states = [plan.start(start_key(key), initial) for key in keys]
    instead = plan.reconsider(states, keys)
    if instead is not None:
        plan = instead
        states = [plan.start(start_key(key), initial) for key in keys]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    position = Position(stacked, jnp.ones(len(keys), dtype=bool), 0)
    run = Run(plan, keys, position, data.passes - read_before)
    if plan.by_passes:
        plan.warm_up(states[0])
    else:
        chunk(run, 0, 0, 1, 1)  # no step is taken, but all of them are compiled
    return run


def advance(run: Run, schedule: Schedule) -> tuple[tuple[State, Array], Info, int]:
    """What comes after a few more steps, or one more pass: states, records, and how many steps those were."""
    first = run.position.steps
    if run.plan.by_passes:
        return *run_pass(run, first), 1
    carry, info = chunk(run, first, schedule.end, schedule.decay_start, schedule.decay_length)
    return carry, jax.tree.map(np.asarray, info), min(CHUNK, schedule.end - first)


def finish(run: Run) -> None:
    """What a plan does once, after the last step, with every trial."""
    keys = [jax.random.fold_in(key, 2**31 - 5) for key in run.keys]
    states = [run.plan.finish(run.trial(trial), key) for trial, key in enumerate(keys)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    run.position = run.position._replace(state=stacked)


def chunk(run: Run, *numbers: int):
    """`run_chunk` with its numbers as arrays, so that no value of theirs is compiled in."""
    carry = (run.position.state, run.position.alive)
    return run_chunk(run.plan, run.keys, carry, *(jnp.asarray(number) for number in numbers))


def run_pass(run: Run, index: int) -> tuple[tuple[State, Array], Info]:
    """Step `index` of every trial, asked for from the host: one pass each."""
    states, alive, infos = [], [], []
    for trial, key in enumerate(run.keys):
        state, fine = run.trial(trial), bool(run.position.alive[trial])
        new_state, info = run.plan.step(
            state, jnp.asarray(index), jnp.asarray(1.0), jax.random.fold_in(key, index)
        )
        fine = fine and bool(np.isfinite(info.loss)) and not has_nan(new_state)
        # The last good state is kept: what a broken step returned is dropped.
        states.append(new_state if fine else state)
        alive.append(fine)
        infos.append(info if fine else info._replace(loss=np.nan))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    records = jax.tree.map(lambda *leaves: np.asarray(leaves, float)[None], *infos)
    return (stacked, jnp.asarray(alive)), records


def has_nan(state: State) -> bool:
    """Whether any number of a state is none; infinity may stand for what is not known yet."""
    numbers = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return any(bool(np.isnan(np.asarray(leaf)).any()) for leaf in numbers)


@eqx.filter_jit
def run_chunk(plan, keys, carry, first, end, decay_start, decay_length):
    """`CHUNK` steps from `first`, those at or past `end` left out; every fit compiles this once."""

    def one_trial(state, alive, key, index):
        scale = decay_factor(index, decay_start, decay_length)
        step_key = jax.random.fold_in(key, index)
        new_state, info = plan.step(state, index, scale, step_key)
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
            more = {name: jnp.zeros(len(keys), kind) for name, kind in plan.records.items()}
            common = {name: blank for name in Info._fields}
            return carry, Info(**{**common, "more": more})

        return jax.lax.cond(index < end, go, skip, carry)

    return jax.lax.scan(step, carry, first + jnp.arange(CHUNK))


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
