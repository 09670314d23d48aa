"""When an automatic fit begins to slow down: either side of every limit."""

import math

import numpy as np
import pytest

from coresetvi.constructions.schedule import LOOK_PART, NEGLIGIBLE, decide, open_schedule

STEPS, TRIALS, DEVIATION = 400, 4, 3.0
# A quarter of the steps so far, twice; what lies before has nothing to say.
WINDOW = int(LOOK_PART * STEPS)
ERROR = 2.0 * DEVIATION / math.sqrt(WINDOW * TRIALS)
SCHEDULE = open_schedule(1000)
MOVING = np.full((STEPS, TRIALS), 50.0)


def losses(gain: float, deviation: float = DEVIATION) -> np.ndarray:
    """Two windows whose medians differ by `gain`, all numbers `deviation` away from them."""
    signs = np.where(np.arange(STEPS * TRIALS).reshape(STEPS, TRIALS) % 2, 1.0, -1.0)
    level = np.where(
        np.arange(STEPS) < STEPS - 2 * WINDOW, 1e6, np.where(np.arange(STEPS) < STEPS - WINDOW, gain, 0)
    )
    return level[:, None] + deviation * signs


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["falls", "rises"])
@pytest.mark.parametrize(("part", "settled"), [(0.99, True), (1.01, False)])
def test_a_loss_has_settled_when_it_moves_less_than_its_error(sign, part, settled):
    assert decide(SCHEDULE, losses(sign * part * ERROR), MOVING).decided == settled


@pytest.mark.parametrize(("part", "settled"), [(0.99, True), (1.01, False)])
def test_without_noise_a_negligible_move_has_settled(part, settled):
    assert decide(SCHEDULE, losses(part * NEGLIGIBLE, deviation=0.0), MOVING).decided == settled


@pytest.mark.parametrize(("part", "settled"), [(0.99, True), (1.01, False)])
def test_a_negligible_divergence_over_the_last_window_is_enough(part, settled):
    kl = np.where(np.arange(STEPS)[:, None] < STEPS - WINDOW, 50.0, part * NEGLIGIBLE) * np.ones(TRIALS)
    assert decide(SCHEDULE, losses(1000.0), kl).decided == settled


def test_slowing_down_takes_two_fifths_of_the_steps_so_far():
    found = decide(SCHEDULE, losses(0.0), MOVING)
    assert (found.decay_start, found.decay_length, found.end) == (STEPS, 160, STEPS + 160)
