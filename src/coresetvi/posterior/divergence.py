"""KL(coreset posterior || full posterior) and the bound of Eq. 9, from draws and one pass over the data."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..families.draws import FEWEST_JUDGED, Draws
from ..families.importance import host_weights, khat_threshold, pareto_khat
from ..families.mixing import chain_measures
from ..models.base import Model, soft_log_likelihood
from ..models.log_joint import LogJoint
from .certificate import Numbers
from .correction import log_joints_at
from .slopes import compare_slopes

# Rows whose log-likelihoods chains have to agree on.
COMPARED_ROWS = 20
# The part of the draws with the largest weights, and the log-ratio below which these are alike.
TAIL_PART, ALIKE = 0.1, 0.2
# Nats by which a place may lie below the highest draw and still count, and by which its log-likelihood of the
# data must exceed that of the coreset by more than at any draw.
BELOW, ABOVE = 3.0, 4.0
# Above this k-hat numbers have no variance, and their mean no standard error.
FINITE_VARIANCE = 0.5


def judge_posterior(
    draws: Draws,
    coreset: Dataset,
    data: Rows,
    bound: Numbers,
    tilt: np.ndarray | None = None,
    places: np.ndarray | None = None,
) -> tuple[Numbers, Numbers, Numbers, int]:
    """The coreset posterior against the full one, the bound on the log-evidence, how far chains agree on what
    these need, and at how many of `places` the full posterior has mass that the draws do not know of.

    With D = log p(data | theta) - log p(coreset | theta) over draws of the coreset posterior,
    KL(coreset posterior || full posterior) = log E[exp(D)] - E[D], and the bound is E[D] + E_r[log w].
    `tilt` says how much more often each draw was made than the coreset posterior has it (log).
    """
    shape, dim = draws.flat.shape[:2], draws.flat.shape[2]
    own = draws.flat.reshape(-1, dim)
    number = len(own)
    thetas = jax.device_put(own if places is None else np.concatenate([own, places.astype(own.dtype)]))
    reference = jnp.asarray(draws.mean, thetas.dtype)
    value, full = log_joints_at(draws.model, data, thetas, reference)
    core_value, core = LogJoint(draws.model, coreset, reference).with_value(thetas)
    full, core = np.asarray(full, np.float64), np.asarray(core, np.float64)
    with np.errstate(invalid="ignore"):
        gains = full - core
    # What was drawn from need not be the coreset posterior: it may be r, or Laplace's normal.
    rise = full[:number] - draws.log_density.ravel()
    tilt = np.zeros(number) if tilt is None else tilt
    weights = host_weights(-tilt)
    ratio, log_mean = kl_terms(rise + tilt, weights)
    change = ratio - (rise + tilt)
    effective = effective_draws(draws, rise.reshape(shape))
    inflation = number / max(effective, 1.0)
    kl = max(log_mean - float(weights @ (rise + tilt)), 0.0)
    error = weighted_error(change, weights) * math.sqrt(inflation)
    if "proposals" in draws.about:
        # Tails may be a few proposals that were picked many times.
        error = max(error, weighted_error(*pooled_copies(own, change, weights)))
    if mean_khat(rise + tilt, weights) > FINITE_VARIANCE:
        # The mean of D depends on draws further out than any: what was seen of it may be as little as half.
        error = max(error, kl)
    posterior = {
        "draws": number,
        "ess": float(1.0 / (weights @ ratio**2)),
        "khat": tail_khat(rise),
        "khat_threshold": khat_threshold(number),
        "kl": kl,
        "kl_error": error,
        **compare_slopes(draws.resample() if np.any(tilt) else draws, coreset, data),
    }
    # Both are measured from the same reference.
    mean = float(value) - float(core_value) + float(weights @ gains[:number])
    error = weighted_error(gains[:number], weights) * math.sqrt(inflation)
    elbo = {"value": mean + bound["mean"], "error": math.hypot(error, bound["error"])}
    unseen = count_unseen(full[:number], gains[:number], full[number:], gains[number:])
    return posterior, elbo, agreement(draws, rise.reshape(shape)), unseen


def count_unseen(full: np.ndarray, gain: np.ndarray, full_there: np.ndarray, gain_there: np.ndarray) -> int:
    """How many places the draws do not know of, though the full posterior is about as high as anywhere.

    `full` are full log-densities of the draws, `gain` by how much they exceed those of the coreset posterior;
    the same `there`. A coreset that knows a place has a density there that keeps step with the full one.

    >>> draws = np.array([-1.0, 0.0])
    >>> count_unseen(draws, np.array([0.1, 0.0]), np.array([-0.5, -30.0, 1.0]), np.array([20.0, 9.0, 0.2]))
    1
    """
    high = full_there >= full.max() - BELOW
    return int(np.sum(high & (gain_there >= gain.max() + ABOVE)))


def tail_khat(log_w: np.ndarray) -> float:
    """Pareto k-hat, or minus infinity where large weights hardly differ: their shape then says nothing.

    Draws of which half have no weight, and the others about the same, are no worse than half of the draws.
    """
    tail = np.sort(log_w)[-max(int(TAIL_PART * log_w.size), 2) :]
    return -math.inf if tail[-1] - tail[0] < ALIKE else pareto_khat(log_w)


def pooled_copies(
    thetas: np.ndarray, values: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values and weights of draws that differ, each with the weight of all of its copies.

    >>> values, weights = pooled_copies(np.array([[1.0], [2.0], [1.0]]), np.array([5, 6, 5]), np.ones(3) / 4)
    >>> values.tolist(), weights.tolist()
    ([5, 6], [0.5, 0.25])
    """
    _, first, which = np.unique(thetas, axis=0, return_index=True, return_inverse=True)
    return values[first], np.bincount(which.ravel(), weights)


def mean_khat(values: np.ndarray, weights: np.ndarray) -> float:
    """k-hat of the tail of values below their median, as independent draws without weights have it."""
    order = np.argsort(values)
    levels = np.cumsum(weights[order])
    # Quantiles at equal steps take the place of draws.
    even = np.interp((np.arange(len(values)) + 0.5) / len(values), levels, values[order])
    with np.errstate(divide="ignore"):
        return pareto_khat(np.log(np.maximum(np.median(even) - even, 0.0)))


def effective_draws(draws: Draws, rise: np.ndarray) -> float:
    """How many independent draws these are worth to the mean of `rise`."""
    if draws.from_chains:
        return min(float(rise.size), float(chain_measures(rise[..., None])[1][0]))
    if "proposals" in draws.about:
        # Draws by importance come more than once.
        share = draws.about.get("drawn", draws.about)["ess"]
        return min(float(rise.size), share * draws.about["proposals"])
    return float(rise.size)


def kl_terms(log_w: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """w / mean(w) for every draw, and log mean(w)."""
    weights = np.full(log_w.size, 1.0 / log_w.size) if weights is None else weights
    top = log_w.max()
    scaled = np.exp(log_w - top)
    mean = weights @ scaled
    return scaled / mean, float(top + np.log(mean))


def weighted_error(values: np.ndarray, weights: np.ndarray) -> float:
    """The standard error of a weighted mean."""
    return float(np.sqrt(np.sum(weights**2 * (values - weights @ values) ** 2)))


def agreement(draws: Draws, rise: np.ndarray) -> Numbers:
    """R-hats of what a divergence is made of: the log-density of the draws, and the log-ratios."""
    if not draws.from_chains or rise.shape[1] < FEWEST_JUDGED:
        return {}
    columns = np.stack([np.asarray(draws.log_density, np.float64), rise], axis=-1)
    r_hat = chain_measures(columns)[0]
    return {"r_hat_density": float(r_hat[0]), "r_hat_ratio": float(r_hat[1])}


def row_agreement(draws: Draws, rows: Dataset) -> Numbers:
    """The worst R-hat over log-likelihoods of a few rows: whether chains agree on predictions."""
    if not draws.from_chains or draws.flat.shape[1] < FEWEST_JUDGED:
        return {}
    few = rows.take(np.unique(np.linspace(0, len(rows) - 1, COMPARED_ROWS).astype(int)))
    columns = np.asarray(row_log_likelihoods(draws.model, jax.device_put(draws.flat), few))
    return {"r_hat_rows": float(np.max(chain_measures(columns)[0]))}


@quick_jit
def row_log_likelihoods(model: Model, flat: Array, rows: Dataset) -> Array:
    """(chains, draws, rows)."""

    def one(theta):
        return soft_log_likelihood(model, theta, rows.x, rows.y)

    return jax.lax.map(one, flat.reshape(-1, flat.shape[-1]), batch_size=64).reshape(*flat.shape[:2], -1)
