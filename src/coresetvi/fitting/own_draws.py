"""Draws that a fit has of its coreset posterior, where Markov chains made them, and how far these agree."""

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..families.draws import Draws
from ..families.importance import khat_threshold
from ..families.mixing import chain_measures
from ..families.sampled import Sampled
from ..models.base import Model, soft_log_likelihood
from ..models.log_joint import LogJoint

if TYPE_CHECKING:
    from .result import Fit

# Points of the coreset whose log-likelihood chains are compared by.
WATCHED = 20


def kept_draws(fit: "Fit") -> np.ndarray | None:
    """Draws (chains, draws, d) that a fit keeps of its posterior; None if that is a normal."""
    if not isinstance(fit.family, Sampled):
        return None
    found = fit.family.draws(fit.psi)
    return None if found is None else np.asarray(found)


def as_draws(fit: "Fit", flat: np.ndarray) -> Draws:
    """The kept draws as what `coresetvi.sample` returns."""
    thetas = jnp.asarray(flat.reshape(-1, flat.shape[-1]))
    joint = LogJoint(fit.model, fit.coreset, jnp.mean(thetas, axis=0)).of_draws(thetas)
    height = np.asarray(joint).reshape(flat.shape[:2])
    about = {"kept": True, **agreement(fit.model, fit.coreset, flat, height)}
    return Draws(flat, fit.model, fit.coreset, "chains", height, {}, about)


def some_of(flat: np.ndarray, number: int, key: PRNGKeyArray) -> Array:
    """`number` of the draws in random order; all, if there are no more."""
    thetas = flat.reshape(-1, flat.shape[-1])
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist()).permutation(len(thetas))
    return jnp.asarray(thetas[order[:number]])


def agreement(model: Model, coreset: Dataset, flat: np.ndarray, height: np.ndarray) -> dict[str, float]:
    """R-hat and effective draws of the log-density and of what chains say of the coreset's points.

    Networks have many equal modes: parameters of chains need not agree, but what they predict must.
    """
    if flat.shape[1] < 4:
        return {}
    said = said_of_points(model, coreset, jnp.asarray(flat.reshape(-1, flat.shape[-1])))
    columns = np.concatenate([height[..., None], np.asarray(said).reshape(*flat.shape[:2], -1)], axis=-1)
    r_hat, bulk, _ = chain_measures(columns)
    return {"r_hat_density": float(np.nanmax(r_hat)), "ess_density": float(np.nanmin(bulk))}


def reliability_of(fit: "Fit", flat: np.ndarray) -> dict[str, int | float]:
    """What `Fit.reliability` says of draws: they weigh alike, and as many count as chains have made anew."""
    number = flat.shape[0] * flat.shape[1]
    found = as_draws(fit, flat).about
    share = min(1.0, found.get("ess_density", math.nan) / number)
    return {
        "num_samples": number,
        "ess": share,
        "khat": 0.0,
        "khat_threshold": khat_threshold(number),
        "r_hat": found.get("r_hat_density", math.nan),
    }


@quick_jit
def said_of_points(model: Model, coreset: Dataset, thetas: Array) -> Array:
    """The log-likelihood of the coreset's first points at every draw."""
    number = min(WATCHED, len(coreset))
    labels = None if coreset.y is None else coreset.y[:number]
    return jax.vmap(lambda theta: soft_log_likelihood(model, theta, coreset.x[:number], labels))(thetas)
