"""Whether r covers the coreset posterior: measured where a fit starts, before its steps are compiled."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..families.importance import log_weights, normalise, normalised_ess
from ..inner.tempering import temper, wide_normal
from ..models.base import Model, weighted_log_likelihood
from ..outer.base import mean_draw

if TYPE_CHECKING:
    from .learned_plan import CoresetState, LearnedPlan

# Importance sampling from r works well if the first step's draws leave this part of them effective, and just
# about works with more than so many effective ones.
WELL_COVERED, MIN_EFFECTIVE_DRAWS = 0.5, 4.0
# Draws of r at which the curvature is looked at, and as many points further away.
CURVED_DRAWS = 8
# Particles that look from far away. One is elsewhere if it is further from r's mean than the furthest draw of
# r, so many times; more than a part of them there is no chance.
PARTICLES, BEYOND, ELSEWHERE = 128, 1.5, 0.02


def is_concave(plan: "LearnedPlan", state: "CoresetState", key: PRNGKeyArray) -> bool:
    """Whether the coreset's log-joint curves downwards in all directions, at r's mean, at draws of r, and on
    the way from there to as far as the prior reaches: then it has one mode, and a normal is not far from it.
    """
    coreset = plan.extract(state)[0]
    found = np.asarray(joint_curvatures(plan.model, plan.family, state.psi, coreset, key), np.float64)
    # Far away a model may overflow, which says nothing.
    far = found[1 + CURVED_DRAWS :]
    found = np.concatenate([found[: 1 + CURVED_DRAWS], far[np.all(np.isfinite(far), axis=(1, 2))]])
    return bool(np.all(np.isfinite(found)) and np.linalg.eigvalsh(found).max() < 0)


@quick_jit
def joint_curvatures(
    model: Model, family: Family, psi: Psi, data: Dataset, key: PRNGKeyArray
) -> Float[Array, "k d d"]:
    """The Hessian of log p(theta) + sum_n weight_n log p(y_n | x_n, theta): at r's mean, at draws of r, and
    at points on the way from r's mean to draws of a normal as wide as the prior."""
    mean, draws = psi["mean"], family.draw(psi, key, CURVED_DRAWS, model.dim)[0]
    center, width = wide_normal(model, family, psi, key)
    wide = center + width * jax.random.normal(key, (CURVED_DRAWS, model.dim), mean.dtype)
    part = jnp.linspace(0.0, 1.0, CURVED_DRAWS + 1)[1:, None]
    thetas = jnp.concatenate([mean[None], draws, mean + part * (wide - mean)])

    def joint(theta):
        return weighted_log_likelihood(model, theta, data) + model.log_prior(theta)

    return jax.lax.map(jax.hessian(joint), thetas)


@eqx.filter_jit
def effective_draws(plan: "LearnedPlan", state: "CoresetState", key: PRNGKeyArray) -> Float[Array, ""]:
    """How many of the first step's draws count for the coreset posterior; none if r is not found."""
    index = jnp.asarray(0)
    *keys, start_key = jax.random.split(jax.random.fold_in(key, index), 4)
    target = plan.target(state, keys)
    psi = plan.inner.begin(state.psi, plan.fresh_start(state), index, start_key)
    # Not by `ask`: a first pass may be asked around another place than r.
    psi, inner = target.solve(state.learned, psi)
    thetas, proposal = target.draw(state.learned, psi)
    core = target.core(state.learned, thetas, mean_draw(thetas))
    ess = normalised_ess(normalise(log_weights(core, target.prior(thetas), proposal)))
    return jnp.where(inner.accepted, ess * plan.num_samples, 0.0)


def has_other_modes(plan: "LearnedPlan", state: "CoresetState", key: PRNGKeyArray) -> bool:
    """Whether particles from far away end where r has no draws."""
    return float(part_elsewhere(plan, state, key)) > ELSEWHERE


@quick_jit
def part_elsewhere(plan: "LearnedPlan", state: "CoresetState", key: PRNGKeyArray) -> Float[Array, ""]:
    """The part of tempered particles of the coreset posterior that is further out than draws of r."""
    *keys, wide_key, run_key = jax.random.split(jax.random.fold_in(key, 0), 5)
    target, family = plan.target(state, keys), plan.family
    psi, _ = target.solve(state.learned, state.psi)
    center, width = wide_normal(plan.model, family, psi, wide_key)
    log_joint = target.inner_problem().joint(state.learned, psi["mean"])
    found = temper(log_joint, center, width, PARTICLES, run_key)

    def distance(theta):
        return family.log_prob(psi, psi["mean"]) - family.log_prob(psi, theta)

    furthest = jnp.max(jax.vmap(distance)(target.draw(state.learned, psi)[0]))
    away = jax.vmap(distance)(found.thetas) > BEYOND**2 * furthest
    return jnp.where(found.temperature >= 1.0, jnp.mean(away), 0.0)
