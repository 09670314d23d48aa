"""Steps in compiled chunks: a run of all trials at once, and how it moves on.

The random stream of step i is `fold_in(key, i)`: neither chunking nor resuming changes it.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from .._info import Info
from ..constructions.base import Construction, Plan, State, start_key
from ..constructions.schedule import decay_factor
from ..data.dataset import Dataset
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

    def trial(self, index: int) -> State:
        """The state of one trial."""
        return jax.tree.map(lambda leaf: leaf[index], self.position.state)


def prepare(
    construction: Construction,
    model: Model,
    data: Dataset,
    keys: Key[Array, " t"],
    initial: Dataset | None = None,
) -> Run:
    """Everything ready for the first step, and compiled."""
    plan = construction.settle(model, data)
    states = [plan.start(start_key(key), initial) for key in keys]
    instead = plan.reconsider(states, keys)
    if instead is not None:
        plan = instead
        states = [plan.start(start_key(key), initial) for key in keys]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    run = Run(plan, keys, Position(stacked, jnp.ones(len(keys), dtype=bool), 0))
    chunk(run, 0, 0, 1, 1)  # no step is taken, but all of them are compiled
    return run


def chunk(run: Run, *numbers: int):
    """`run_chunk` with its numbers as arrays, so that no value of theirs is compiled in."""
    carry = (run.position.state, run.position.alive)
    return run_chunk(run.plan, run.keys, carry, *(jnp.asarray(number) for number in numbers))


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
