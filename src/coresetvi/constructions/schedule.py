"""When to slow down and when to stop.

The learning-rate factor is 1 until the loss stops improving (or until the last part of a fixed number of
steps), then falls to 0 along half a cosine. Decisions are made between chunks, from the history alone, so a
resumed fit makes the same ones.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# Part of a fixed number of steps that is spent slowing down, and that of an automatic fit's steps so far.
DECAY_PART = 0.4
# An automatic fit may decide that it has seen enough after this part of the most steps it may take; what it
# looks at is this part of the steps so far.
FIRST_LOOK_PART = 0.1
LOOK_PART = 0.25
# In nats: no one can use a smaller improvement of the bound.
NEGLIGIBLE = 1e-3


class Schedule(NamedTuple):
    """Full speed until `decay_start`, then `decay_length` steps down to zero; `end` is the last of them."""

    decay_start: int
    decay_length: int
    end: int
    first_look: int
    decided: bool


def decay_factor(index, start, length) -> Array:
    """1 before `start`, 0 from `start + length` on, half a cosine between."""
    progress = jnp.clip((index - start + 1) / (length + 1), 0.0, 1.0)
    return 0.5 * (1.0 + jnp.cos(math.pi * progress))


def fixed_schedule(num_steps: int) -> Schedule:
    """For a number of steps that the caller chose."""
    length = math.ceil(DECAY_PART * num_steps)
    return Schedule(num_steps - length, length, num_steps, num_steps, True)


def open_schedule(most_steps: int, first_look: int | None = None) -> Schedule:
    """For an automatic fit: slows down at the latest so that `most_steps` are enough."""
    first_look = first_look or max(4, math.ceil(FIRST_LOOK_PART * most_steps))
    return fixed_schedule(most_steps)._replace(first_look=first_look, decided=False)


def decide(schedule: Schedule, losses: np.ndarray, kl: np.ndarray) -> Schedule:
    """The schedule after looking at the history (steps, trials): begin to slow down now, or go on."""
    steps = len(losses)
    if schedule.decided or steps < schedule.first_look or steps >= schedule.decay_start:
        return schedule
    window = max(schedule.first_look // 2, int(LOOK_PART * steps))
    last, before = losses[-window:], losses[-2 * window : -window]
    # Medians and the median deviation: a few steps that went astray must not look like the end.
    # Either way: a loss that rises is under way as well, to where the steps settle.
    gain = abs(float(np.median(before) - np.median(last)))
    spread = np.concatenate([last - np.median(last), before - np.median(before)])
    error = 2.0 * float(np.median(np.abs(spread))) / math.sqrt(last.size)
    settled = gain < max(error, NEGLIGIBLE) or kl[-window:].mean() < NEGLIGIBLE
    if not settled:
        return schedule
    length = max(schedule.first_look // 2, int(DECAY_PART * steps))
    return Schedule(steps, length, steps + length, schedule.first_look, True)


def within(schedule: Schedule, steps: int, seconds: float, limit: float) -> Schedule:
    """The schedule with its end brought forward so that, at the pace so far, it stays within `limit` seconds.

    One that is slowing down already goes on as it is; an infinite limit changes nothing.
    """
    if steps >= schedule.decay_start or math.isinf(limit):
        return schedule
    total = max(steps + 1, int(steps * limit / seconds))
    if total >= schedule.end:
        return schedule
    start = max(steps, total - math.ceil(DECAY_PART * total))
    return Schedule(start, total - start, total, schedule.first_look, True)
