"""How a fit ended: decided in one place, from what the loop and the history know, and told as a sentence."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..constructions.schedule import Schedule

# An inner problem that was not solved in any of this many last steps has not converged.
LAST_STEPS = 20
# Nats between posteriors from which on an answer is not called finished.
COARSE = 0.05
# R-hat of chains inside a fit from which on they do not agree. They are short, and compared by many numbers.
UNMIXED = 1.2

# Part of r's draws below which importance weights say nothing about the coreset posterior.
COVERED = 0.5

EXPLANATIONS = {
    "finished": "The fit finished.",
    "running": "The fit is under way; this is the state after {steps} steps.",
    "interrupted": "The fit was interrupted; this is the state it had reached.",
    "non_finite": "The fit turned non-finite at step {step}; this is the last good state. "
    "Try a smaller learning rate, more samples or a tighter prior.",
    "step_limit": "The loss was still improving after {steps} steps, the most that an automatic fit takes; "
    "pass a larger num_steps to go on.",
    "time_limit": "Time was up after {steps} steps, before the fit had settled; allow it more time to go on.",
    "imprecise": "The coreset posterior is about {nearest:.2g} nats from that of all rows, and the last "
    "steps did not bring it nearer; use more points, or diagnose it before you rely on it.",
    "unmixed": "The chains on the coreset do not agree (R-hat {r_hat:.2f}), so how much of its posterior "
    "lies where is not known; use inner=SMC(), whose particles find separate modes, or more points.",
    "untested": "The passes ended before one of them had tested the coreset; allow more num_steps.",
    "inner_not_converged": "The inner problem did not reach its tolerance in the last steps "
    "(gradient norm {norm:.2g}); allow it more steps or a larger tolerance.",
}

# What is added where steps have settled on a coreset whose posterior r does not cover.
UNKNOWN = (
    " But r does not cover the coreset posterior, so how near that is to the posterior of all rows is not "
    "known; diagnose it before you rely on it."
)


class Ending(NamedTuple):
    """What the loop knows about its end: the schedule it followed, the one without a time limit, and how."""

    schedule: Schedule
    planned: Schedule
    interrupted: bool = False
    running: bool = False


def decide_result(records: Mapping[str, np.ndarray], ending: Ending, nearest: float | None = None) -> str:
    """The result of one trial: a key of `EXPLANATIONS`. What is worse to know comes first.

    `nearest` is the KL divergence that a pass found between the coreset posterior and the data's, infinite if
    none has tested it; None if steps are no passes.
    """
    losses = records["loss"]
    if len(losses) and not np.isfinite(losses[-1]):
        return "non_finite"
    if ending.running:
        return "running"
    if ending.interrupted:
        return "interrupted"
    if not np.any(records["accepted"][-LAST_STEPS:]):
        return "inner_not_converged"
    if ending.schedule.end < ending.planned.end:
        return "time_limit"
    if len(records.get("r_hat", ())) and not records["r_hat"][-1] <= UNMIXED:
        return "unmixed"
    if nearest is not None and nearest > COARSE:
        return "imprecise" if np.isfinite(nearest) else "untested"
    if nearest is not None:
        return "finished"
    return "finished" if ending.schedule.decided else "step_limit"


def explain(result: str, records: Mapping[str, np.ndarray], nearest: float | None = None) -> str:
    """A result as a sentence, with the numbers that belong to it: of the history, and what a test found."""
    losses = records.get("loss", np.zeros(0))
    broken = np.flatnonzero(~np.isfinite(losses))
    norms = records.get("inner_gradient_norm", np.zeros(0))
    kl = records.get("kl", np.zeros(0))[1:]
    kl = kl[np.isfinite(kl)]
    unknown = result == "finished" and nearest is None and kl.size and not covers(records)
    return (EXPLANATIONS[result] + (UNKNOWN if unknown else "")).format(
        step=int(broken[0]) if broken.size else 0,
        steps=losses.size,
        norm=norms[-1] if norms.size else np.nan,
        nearest=nearest if nearest is not None else kl.min() if kl.size else np.nan,
        r_hat=records["r_hat"][-1] if len(records.get("r_hat", ())) else np.nan,
    )


def covers(records: Mapping[str, np.ndarray]) -> bool:
    """Whether enough of r's draws counted for the coreset posterior in the last steps.

    >>> covers({"ess": np.array([0.1, 0.9, 0.8])}), covers({"ess": np.array([0.1, 0.12, 0.1])})
    (True, False)
    """
    last = np.asarray(records.get("ess", ()), float)[-LAST_STEPS:]
    return not last.size or bool(np.nanmedian(last) >= COVERED)
