"""What the rows have said so far, and how much of it still counts for the coreset posterior of now.

The answer to a question stays true when the coreset moves on: the data's log-likelihood at a theta does not
change. What changes is how likely that theta is, and weights of draws say that.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..families.importance import normalise, normalised_ess
from ..inner.base import Leaves
from .base import Answer, Draft, Target, Thetas, Vector

# An earlier step counts only with more effective draws than this.
LEAST_EFFECTIVE = 4.0


class Told(NamedTuple):
    """The answers of the last steps, the latest first.

    `core` is the rise of the coreset of that time, from which the draws were; `counts` is 0 where there is
    nothing yet. `slopes` are those of the data, per unit of every parameter, if they were asked for.
    """

    thetas: Float[Array, "k s d"]
    reference: Float[Array, "k d"]
    rises: Float[Array, "k s"]
    core: Float[Array, "k s"]
    counts: Float[Array, " k"]
    slopes: Float[Array, "k s d"] | None = None


def nothing_told(thetas: Thetas, num_steps: int, *, slopes: bool = False) -> Told:
    """Room for the answers of so many steps with draws like these."""
    table = jnp.zeros((num_steps, *thetas.shape), thetas.dtype)
    rises = table[..., 0]
    return Told(table, table[:, 0], rises, rises, rises[:, 0], table if slopes else None)


def remember(told: Told, draft: Draft, answer: Answer, core: Vector, slopes: Thetas | None = None) -> Told:
    """The answers with the latest one in front, and the oldest left out."""
    latest = Told(draft.thetas, draft.reference, answer.rises, core, jnp.ones_like(told.counts[0]), slopes)
    return jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), latest, told)


def weights_now(target: Target, learned: Leaves, told: Told) -> Float[Array, "k s"]:
    """How much every draw counts for the coreset posterior of now; at most 1 in all for a step."""

    def of_step(told: Told) -> Vector:
        fine = jnp.isfinite(told.rises)
        if told.slopes is not None:
            fine &= jnp.all(jnp.isfinite(told.slopes), axis=1)
        log_w = target.core(learned, told.thetas, told.reference) - told.core
        weights = normalise(jnp.where(fine & jnp.isfinite(log_w), log_w, -1e30))
        ess = normalised_ess(weights)
        enough = jnp.where(ess * weights.shape[0] > LEAST_EFFECTIVE, ess, 0.0)
        return weights * enough * told.counts * fine

    return jax.vmap(of_step)(told)
