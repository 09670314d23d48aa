"""Which draws stand for the coreset posterior when it is compared with the full one.

Draws of r, weighted, are the cheapest; Markov chains do where those weights fail; and if a look from far away
finds mass where such draws have none, the particles of that look take their place, since only they know how
much of the posterior is where.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._compiler import quick_jit
from ..families.base import Family, Psi
from ..families.draws import Draws
from ..families.importance import host_ess, host_weights, resample
from ..fitting.result import Fit
from ..models.log_joint import LogJoint
from .certificate import MIXED, Numbers
from .look import Look, Setting, look_longer
from .reach import Proposals, picked
from .sampling import chains_from, sample

CHAINS = 4
# A particle lies elsewhere if it is further from r's mean than the furthest draw, so many times.
BEYOND = 1.5
# The part of the particles elsewhere that is more than chance.
ELSEWHERE = 0.02
# Runs whose evidences differ so much that fewer than this part of them count know nothing about modes.
FEWEST_RUNS = 0.2


class Chosen(NamedTuple):
    """Draws, how much more often each was drawn than the coreset posterior has it (log; None: as often), what
    the look has to say, and the part of the coreset posterior that r has no draws of."""

    draws: Draws
    tilt: np.ndarray | None
    about: Numbers
    missed: float = 0.0


def coreset_draws(
    fit: Fit,
    proposals: Proposals,
    looked: tuple[Look, Setting] | None,
    num_samples: int,
    key: PRNGKeyArray,
    progress: bool | None,
    given: Draws | None,
) -> Chosen:
    """Draws of the coreset posterior of a fit: the one place where it is decided how."""
    draws, tilt, furthest = first_choice(fit, proposals, looked, num_samples, key, progress, given)
    if looked is None:
        return Chosen(draws, tilt, {"looked_from": 0})
    look, setting = looked
    elsewhere = float(np.mean(proposals.others[: -len(look.data)] > BEYOND * furthest))
    about: Numbers = {"looked_from": len(proposals.others) - len(look.data), "elsewhere": elsewhere}
    if elsewhere < ELSEWHERE and (given is not None or mixed_well(draws)):
        away = proposals.others[: -len(look.data)]
        return Chosen(draws, tilt, about, part_missed(proposals, look, away, furthest))
    look = look_longer(fit, look, setting, num_samples, jax.random.fold_in(key, 3))
    particles, run_ess, elsewhere = pooled(fit, look, furthest, num_samples, key)
    about = {"looked_from": look.coreset[..., 0].size, "elsewhere": elsewhere, "run_ess": run_ess}
    missed = part_missed(proposals, look, distances(fit, look.coreset), furthest)
    if particles is not None:
        return Chosen(particles, None, about, missed)
    if given is None and not draws.from_chains:
        draws, tilt = chains_from(fit, spread_out(look), -(-num_samples // CHAINS), key, progress), None
    return Chosen(draws, tilt, about | {"unresolved": int(given is not None)}, missed)


def part_missed(proposals: Proposals, look: Look, distance: np.ndarray, furthest: float) -> float:
    """The part of the coreset posterior that the evidence by draws of r, or by proposals, does not count.

    `distance` is that of the look's particles of the coreset posterior.
    """
    reach = furthest if proposals.good else proposals.furthest_of_r
    away = distance.reshape(look.coreset.shape[:2]) > BEYOND * reach
    return float(host_weights(look.log_evidence) @ away.mean(axis=1))


def first_choice(
    fit: Fit,
    proposals: Proposals,
    looked: tuple[Look, Setting] | None,
    num_samples: int,
    key: PRNGKeyArray,
    progress: bool | None,
    given: Draws | None,
) -> tuple[Draws, np.ndarray | None, float]:
    """Draws, their tilt, and how far the furthest is from r's mean, before the look is asked about them."""
    if given is None and proposals.good:
        return picked(fit, proposals, num_samples, key)
    if given is not None:
        draws = given
    elif looked is None:
        draws = sample(
            fit, num_samples=-(-num_samples // CHAINS), num_chains=CHAINS, key=key, progress=progress
        )
    else:
        # Chains that start where mass was found from far away do not all begin in r's mode.
        draws = chains_from(fit, spread_out(looked[0]), -(-num_samples // CHAINS), key, progress)
    return draws, None, float(distances(fit, draws.flat).max())


def spread_out(look: Look) -> np.ndarray:
    """One particle for each chain, from all runs."""
    flat = look.coreset.reshape(-1, look.coreset.shape[-1])
    return flat[np.linspace(0, len(flat) - 1, CHAINS).astype(int)]


def mixed_well(draws: Draws) -> bool:
    """Whether chains, if they are any, agree on the parameters."""
    mixing = draws.mixing()
    return not mixing or mixing["r_hat"] <= MIXED


def distances(fit: Fit, thetas: np.ndarray) -> np.ndarray:
    """Of every theta from r's mean, in r's standard deviations."""
    log_r, peak = log_density_of_r(fit.family, fit.psi, jax.device_put(thetas.reshape(-1, fit.model.dim)))
    return np.sqrt(np.maximum(2.0 * (float(peak) - np.asarray(log_r, np.float64)), 0.0))


@quick_jit
def log_density_of_r(family: Family, psi: Psi, thetas: Array) -> tuple[Array, Array]:
    """log r at every theta, and at its mean."""
    return jax.vmap(family.log_prob, (None, 0))(psi, thetas), family.log_prob(psi, psi["mean"])


def pooled(
    fit: Fit, look: Look, furthest: float, number: int, key: PRNGKeyArray
) -> tuple[Draws | None, float, float]:
    """Particles of all runs, each run by its evidence, how many of the runs count, and which part of the
    posterior lies elsewhere; None if too few count."""
    runs, count, dim = look.coreset.shape
    weights = host_weights(look.log_evidence)
    share = host_ess(weights)
    away = (distances(fit, look.coreset) > BEYOND * furthest).reshape(runs, count).mean(axis=1)
    elsewhere = float(weights @ away)
    if not look.arrived or not share >= FEWEST_RUNS:
        return None, share, elsewhere
    # How exactly the parts of the posterior are weighed: by how much the runs differ.
    variance = float(np.sum(weights**2 * (away - elsewhere) ** 2))
    effective = elsewhere * (1.0 - elsewhere) / max(variance, 1e-12) if 0 < elsewhere < 1 else math.inf
    each = jnp.asarray(np.repeat(weights / count, count), jnp.float32)
    flat = look.coreset.reshape(-1, dim)[np.asarray(resample(jax.random.fold_in(key, 4), each, number))]
    joint = LogJoint(fit.model, fit.coreset, fit.psi["mean"]).of_draws(jnp.asarray(flat))
    about = {"proposals": number, "ess": min(effective / number, share)}
    draws = Draws(flat[None], fit.model, fit.coreset, "smc", np.asarray(joint)[None], {}, about)
    return draws, share, elsewhere
