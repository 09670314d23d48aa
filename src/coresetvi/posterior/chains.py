"""Markov chains by BlackJAX: NUTS and HMC with window adaptation, all chains at once.

Warm-up and sampling are one compiled program that runs in chunks: a column of the schedule says what each
transition may adapt. Between chunks there is time for a progress bar and for Ctrl-C.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._compiler import quick_jit
from ..fitting.progress import Progress
from ..inner.transitions import TRANSITIONS
from ..models.log_joint import LogJoint

# Up to this many parameters the mass matrix is dense: correlated posteriors then cost no more than others.
DENSE_DIM = 50
TARGET_ACCEPTANCE = 0.8
# HMC draws the length of every trajectory from 1 to this, so that no direction is in step with it.
MOST_HMC_STEPS = 16
NUM_CHUNKS = 20
# Rows up to which transitions are compiled quickly rather than well: there are thousands of them.
FEW_ROWS = 2000
# What a transition may adapt: the step size; that and the mass matrix; the same at a window's end; at last
# the step size settles; and then nothing changes.
FAST, SLOW, WINDOW_END, SETTLE, SAMPLE = range(5)


class Whitening(eqx.Module):
    """Coordinates z in which a posterior is roughly N(0, I): theta = center + factor z.

    `factor` is a lower triangle, or a vector of scales. Adaptation shrinks mass matrices towards a fixed
    size, which is right only in such units.
    """

    center: Float[Array, " d"]
    factor: Array

    @property
    def dense(self) -> bool:
        return self.factor.ndim == 2

    def out(self, z: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """theta for z."""
        return self.center + (z @ self.factor.T if self.dense else z * self.factor)

    def into(self, thetas: Float[Array, "c d"]) -> Float[Array, "c d"]:
        """z for thetas."""
        away = thetas - self.center
        if not self.dense:
            return away / self.factor
        return jax.scipy.linalg.solve_triangular(self.factor, away.T, lower=True).T


class Tuning(NamedTuple):
    """One chain's step size and mass matrix, and what is known for better ones."""

    step_size: Array
    inverse_mass: Array
    step_state: PyTree
    mass_state: PyTree


def run_chains(
    method: str,
    log_joint: LogJoint,
    frame: Whitening,
    starts: Float[Array, "c d"] | PRNGKeyArray,
    key: PRNGKeyArray,
    *,
    num_chains: int,
    num_warmup: int,
    num_samples: int,
    progress: bool | None,
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], dict[str, object]]:
    """Draws (chains, draws, dim), their log-density, statistics of every draw, and what warm-up found.

    `starts`, one per chain, are in the frame's coordinates; a key draws them from N(0, I) there.
    """
    # On a coreset, compilation takes longer than a thousand transitions; on many rows it hardly counts.
    run = advance_on_few_rows if len(log_joint.data) <= FEW_ROWS else advance_on_many_rows
    schedule = build_schedule(num_warmup, num_samples)
    length = math.ceil(len(schedule) / NUM_CHUNKS)
    actions = np.full(length * math.ceil(len(schedule) / length), SAMPLE, np.int32)
    actions[: len(schedule)] = schedule
    carry = begin(log_joint, frame, starts, num_chains)
    pieces = []
    with Progress(progress) as bar:
        for first in range(0, len(actions), length):
            # Numpy's: to make JAX's of them would be one more program.
            turn = np.asarray(first, np.int32), actions[first : first + length]
            carry, piece = run(method, log_joint, frame, carry, key, *turn)
            pieces.append(jax.device_get(piece))
            done = min(first + length, len(schedule))
            bar.show("warming up" if done < num_warmup else "sampling", done, len(schedule))
    kept = slice(num_warmup, num_warmup + num_samples)
    position, log_density, stats = jax.tree.map(
        lambda *parts: np.swapaxes(np.concatenate(parts)[kept], 0, 1), *pieces
    )
    return position, log_density, stats, {"step_size": np.asarray(carry[1].step_size).tolist()}


def build_schedule(num_warmup: int, num_samples: int) -> np.ndarray:
    """What each transition may adapt: windows as Stan has them, then sampling.

    >>> build_schedule(100, 2)[[0, 50, 99, 100]].tolist()
    [0, 1, 3, 4]
    """
    from blackjax.adaptation.window_adaptation import build_schedule as windows

    if num_warmup == 0:
        return np.full(num_samples, SAMPLE)
    stages = np.asarray(windows(num_warmup))
    actions = np.where(stages[:, 0] == 0, FAST, np.where(stages[:, 1], WINDOW_END, SLOW))
    actions[-1] = SETTLE
    return np.concatenate([actions, np.full(num_samples, SAMPLE)])


@quick_jit
def begin(log_joint: LogJoint, frame: Whitening, starts: Array, num_chains: int) -> tuple[PyTree, Tuning]:
    """The chains' states, and a tuning as if the frame were right; a key draws the starts."""
    from blackjax.mcmc import hmc

    if jnp.issubdtype(starts.dtype, jax.dtypes.prng_key):
        starts = jax.random.normal(starts, (num_chains, frame.center.shape[0]))
    mass, step = adaptations(frame.dense)

    def one(start):
        mass_state = mass[0](start.shape[0])
        tuning = Tuning(jnp.asarray(1.0), mass_state.inverse_mass_matrix, step[0](1.0), mass_state)
        return hmc.init(start, lambda z: log_joint(frame.out(z))), tuning

    # Python's numbers leave weak types behind, which would change with the first chunks: one more
    # compilation of `advance` for each change.
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), jax.vmap(one)(starts))


def advance(
    method: str,
    log_joint: LogJoint,
    frame: Whitening,
    carry: tuple[PyTree, Tuning],
    key: PRNGKeyArray,
    first: Array | np.ndarray,
    actions: Array | np.ndarray,
):
    """Some transitions of all chains; (draws, log-density, statistics) with the transitions in front."""
    num_chains = carry[0].position.shape[0]
    transition = TRANSITIONS[method]

    def log_density(z):
        return log_joint(frame.out(z))

    def step(carry, turn):
        states, tunings = carry
        number, action = turn
        keys = jax.random.split(jax.random.fold_in(key, number), num_chains)

        def one(key, state, tuning):
            length = jax.random.randint(jax.random.fold_in(key, 1), (), 1, MOST_HMC_STEPS + 1)
            return transition(key, state, log_density, tuning.step_size, tuning.inverse_mass, length)

        states, info = jax.vmap(one)(keys, states, tunings)
        tunings = jax.vmap(adapt, (None, None, 0, 0, 0))(
            frame.dense, action, tunings, states.position, info.acceptance_rate
        )
        stats = {
            "divergent": info.is_divergent,
            "acceptance_rate": info.acceptance_rate,
            "num_steps": info.num_integration_steps,
            "energy": info.energy,
        }
        return (states, tunings), (frame.out(states.position), states.logdensity, stats)

    numbers = first + jnp.arange(actions.shape[0])
    return jax.lax.scan(step, carry, (numbers, actions))


advance_on_few_rows, advance_on_many_rows = quick_jit(advance), eqx.filter_jit(advance)


def adaptations(dense: bool) -> tuple[tuple[Callable, ...], tuple[Callable, ...]]:
    """BlackJAX's estimators of the mass matrix and of the step size."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return mass_matrix_adaptation(not dense), dual_averaging_adaptation(TARGET_ACCEPTANCE)


def adapt(dense: bool, action: Array, tuning: Tuning, position: Array, acceptance: Array) -> Tuning:
    """The tuning after a transition, as far as `action` allows."""
    mass, step = adaptations(dense)

    def fast(tuning):
        state = step[1](tuning.step_state, acceptance)
        return tuning._replace(step_state=state, step_size=jnp.exp(state.log_step_size))

    def slow(tuning):
        return fast(tuning)._replace(mass_state=mass[1](tuning.mass_state, position))

    def window_end(tuning):
        tuning = slow(tuning)
        mass_state = mass[2](tuning.mass_state)
        step_state = step[0](step[2](tuning.step_state))
        return Tuning(
            jnp.exp(step_state.log_step_size), mass_state.inverse_mass_matrix, step_state, mass_state
        )

    def settle(tuning):
        tuning = fast(tuning)
        return tuning._replace(step_size=step[2](tuning.step_state))

    return jax.lax.switch(action, (fast, slow, window_end, settle, lambda tuning: tuning), tuning)
