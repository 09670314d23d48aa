"""Proposals that reach further than r: r itself, and a Cauchy distribution of its shape.

A normal has next to no draws in the tails of a posterior that falls off more slowly, and weights of draws
that were never made look fine. Draws of the mixture reach there, and no weight of theirs is much larger than
one of r's would be.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiler import quick_jit
from ..families.base import LOG_TWO_PI, Family, Psi
from ..families.draws import Draws
from ..families.importance import (
    host_ess,
    host_weights,
    khat_threshold,
    pareto_khat,
    resample,
    smoothed_weights,
    usable,
)
from ..fitting.result import Fit
from ..models.log_joint import LogJoint
from .look import Look

# For every draw of r, so many of the Cauchy distribution.
FAR_SHARE = 1.0
# Of the draws that are kept, the part that is picked by its distance from r's mean as well.
TILTED = 0.25
# Where a smaller part of the draws is effective, chains are better, whatever k-hat is.
LEAST_ESS = 0.03


class Proposals(NamedTuple):
    """Draws of the mixture (S, d), their log-joint given the coreset, log-weights and distances from r's mean
    in r's own standard deviations; `others` are the distances of what else was asked for, and `r_value` is
    E_r[log w]."""

    thetas: np.ndarray
    log_joint: np.ndarray
    log_w: np.ndarray
    distance: np.ndarray
    others: np.ndarray
    r_value: float
    furthest_of_r: float

    @property
    def quality(self) -> dict[str, float]:
        return {
            "ess": host_ess(host_weights(self.log_w)),
            "khat": pareto_khat(self.log_w),
            "khat_threshold": khat_threshold(len(self.log_w)),
        }

    @property
    def r_kl(self) -> float:
        """KL(r || coreset posterior), with an evidence that r's tails do not cut off."""
        log_mean = float(np.logaddexp.reduce(self.log_w)) - math.log(len(self.log_w))
        return max(log_mean - self.r_value, 0.0) if self.good else 0.0

    def distance_of_data(self, look: Look) -> np.ndarray:
        """Of the look's particles of the data."""
        return self.others[-len(look.data) :]

    @property
    def good(self) -> bool:
        """Whether draws by these weights can stand for the coreset posterior."""
        quality = self.quality
        return usable(quality) and quality["ess"] >= LEAST_ESS


def propose(fit: Fit, thetas: Float[Array, "s d"], others: np.ndarray | None, key: PRNGKeyArray) -> Proposals:
    """The mixture, from draws of r; and `others` looked at in the same call."""
    number, dim = thetas.shape
    others = np.zeros((0, dim), np.float32) if others is None else others
    far = max(1, int(FAR_SHARE * number))
    drawn = measured(fit.model, fit.coreset, fit.family, fit.psi, thetas, jax.device_put(others), far, key)
    log_joint, log_r, peak = (np.asarray(part, np.float64) for part in drawn[1:])
    # Where a model breaks down there is nothing.
    log_joint = np.where(np.isnan(log_joint), -np.inf, log_joint)
    squared = np.maximum(2.0 * (peak - log_r), 0.0)
    # Student's t with one degree of freedom: the normal divided by the size of another normal number.
    log_far = peak + 0.5 * dim * (LOG_TWO_PI - math.log(math.pi)) - 0.5 * (1 + dim) * np.log1p(squared)
    log_far += math.lgamma(0.5 * (1 + dim)) - math.lgamma(0.5)
    total = number + far
    mixture = np.logaddexp(log_r + math.log(number / total), log_far + math.log(far / total))
    own = slice(0, total)
    return Proposals(
        np.asarray(drawn[0])[own],
        log_joint[own],
        (log_joint - mixture)[own],
        np.sqrt(squared[own]),
        np.sqrt(squared[total:]),
        float(np.mean((log_joint - log_r)[:number])),
        float(np.sqrt(squared[:number].max())),
    )


@quick_jit
def measured(model, coreset, family: Family, psi: Psi, thetas, others, far: int, key: PRNGKeyArray):
    """Draws of r, of the Cauchy distribution, and others, their log-joints and log r; log r at its mean."""
    mean = psi["mean"]
    size = jnp.abs(jax.random.normal(key, (far, 1), mean.dtype))
    # Their directions are those of draws of r, which are as good as any others.
    stretched = mean + (thetas[:far] - mean) / jnp.maximum(size, 1e-9)
    every = jnp.concatenate([thetas, stretched, others.astype(mean.dtype)])
    log_joint = LogJoint(model, coreset, mean).with_value(every)[1]
    return every, log_joint, jax.vmap(family.log_prob, (None, 0))(psi, every), family.log_prob(psi, mean)


def picked(fit: Fit, proposals: Proposals, number: int, key: PRNGKeyArray) -> tuple[Draws, np.ndarray, float]:
    """Draws of the coreset posterior, how much more often each was drawn than the posterior has it (log), and
    the distance of the furthest.

    A part is drawn by weight times distance: tails that hold one draw in a thousand decide about divergences,
    and are estimated from more than that one.
    """
    weights = np.exp(smoothed_weights(proposals.log_w)[0])
    factor = 1.0 + proposals.distance / math.sqrt(fit.model.dim)
    tilt = np.log1p(TILTED * (factor / (weights @ factor) - 1.0))
    chance = weights * np.exp(tilt)
    index = np.asarray(resample(jax.random.fold_in(key, 1), jnp.asarray(chance, jnp.float32), number))
    about = {"proposals": len(weights), "ess": host_ess(weights)}
    draws = Draws(
        proposals.thetas[index][None],
        fit.model,
        fit.coreset,
        "importance",
        (proposals.log_joint + tilt)[index][None],
        {},
        about,
        (-tilt[index] - np.logaddexp.reduce(-tilt[index]))[None],
    )
    return draws, tilt[index], float(proposals.distance[index].max())
