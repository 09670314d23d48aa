"""Importance weights: the only place in the project where they are computed.

Training (Eq. 9), prediction and diagnostics all call `log_weights` and `normalise`, so the sign of the
coreset term cannot differ between them.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Log-weights that differ by less are equal: what is left is the rounding of float32.
EQUAL_LOG_WEIGHTS = 1e-3
# Part of the draws that counts, above which the weights are as good as equal.
EVEN_ESS = 0.95


def log_weights(
    core: Float[Array, " s"], prior: Float[Array, " s"], proposal: Float[Array, " s"]
) -> Float[Array, " s"]:
    """Unnormalised log-weights of draws from r against the coreset posterior (Eq. 6).

    log w_s = sum_m v_m log p(z_m | u_m, theta_s) + log p(theta_s) - log r(theta_s; psi)
    """
    return core + prior - proposal


def normalise(log_w: Float[Array, " s"]) -> Float[Array, " s"]:
    """Self-normalised weights: a softmax over draws.

    >>> normalise(jnp.log(jnp.array([1.0, 3.0]))).round(2)
    Array([0.25, 0.75], dtype=float32)
    """
    return jax.nn.softmax(log_w)


def normalised_ess(weights: Float[Array, " s"]) -> Float[Array, ""]:
    """Effective sample size over sample size, 1 / (S sum_s w_s^2), between 1/S and 1.

    With S draws it cannot fall below 1/S: judge a posterior with S of 1000 or more.
    """
    return 1.0 / (weights.shape[0] * jnp.sum(weights**2))


def defensive(weights: Float[Array, " s"]) -> Float[Array, " s"]:
    """Half the weights, half uniform: no draw is ignored, however far the weights have collapsed."""
    return 0.5 * (weights + 1.0 / weights.shape[0])


def khat_threshold(num_samples: int) -> float:
    """Largest Pareto k-hat at which `num_samples` weighted draws can be trusted."""
    if num_samples < 2:
        return -math.inf
    return min(1.0 - 1.0 / math.log10(num_samples), 0.7)


def usable(quality: Mapping[str, Any]) -> bool:
    """Whether weights with this `ess`, `khat` and `khat_threshold` can be trusted.

    Weights that hardly differ are good whatever the shape of their tail: k-hat describes how the largest of
    them grow, not how much larger they are.

    >>> usable({"ess": 0.5, "khat": 0.8, "khat_threshold": 0.7})
    False
    """
    return quality["khat"] <= quality["khat_threshold"] or quality["ess"] >= EVEN_ESS


def pareto_khat(log_w) -> float:
    """Shape of a generalised Pareto distribution fitted to the largest importance weights.

    The weights have about 1/k finite moments: below 0.5 the estimate behaves as usual, above 0.7 it cannot be
    trusted however many draws there are. The tail is the largest min(S/5, 3 sqrt(S)) weights; the shape is
    the profile-posterior mean of Zhang and Stephens, shrunk towards 0.5 by a prior worth ten draws.
    """
    log_w = np.sort(np.asarray(log_w, dtype=np.float64))
    num_samples = log_w.size
    tail_size = int(min(num_samples / 5, 3 * math.sqrt(num_samples)))
    if tail_size < 5:
        return math.inf
    threshold = log_w[-tail_size - 1]
    if not np.all(np.isfinite(log_w[-tail_size - 1 :])):
        return math.inf
    top = log_w[-1]
    excess = np.exp(log_w[-tail_size:] - top) - np.exp(threshold - top)
    if top - threshold < EQUAL_LOG_WEIGHTS:
        return -math.inf  # all large weights equal: the lightest tail there is
    return _fit_generalised_pareto(np.maximum(excess, 1e-300))


def smoothed_weights(log_w) -> tuple[np.ndarray, float]:
    """Normalised log-weights whose largest are replaced by quantiles of the Pareto tail, and its k-hat.

    >>> log_w, khat = smoothed_weights(np.zeros(100))
    >>> float(np.exp(log_w).sum().round(6)), khat
    (1.0, -inf)
    """
    log_w = np.asarray(log_w, dtype=np.float64)
    # A draw where the model breaks down has no weight, and must not take the others' with it.
    log_w = np.where(np.isnan(log_w), -np.inf, log_w)
    khat = pareto_khat(log_w)
    smooth = log_w
    if math.isfinite(khat):
        # Only the ratios matter, and float32 has digits for them near zero.
        smooth = np.asarray(_smooth_tail(jnp.asarray(log_w - log_w.max())), np.float64)
    return smooth - _log_sum_exp(smooth), khat


@jax.jit
def _smooth_tail(log_w: Float[Array, " s"]) -> Float[Array, " s"]:
    from blackjax.diagnostics import psis_weights

    return psis_weights(log_w)[0]


def _log_sum_exp(values: np.ndarray) -> float:
    top = float(values.max())
    return top + math.log(np.exp(values - top).sum())


def _fit_generalised_pareto(excess: np.ndarray) -> float:
    """Shape of the generalised Pareto for sorted positive `excess`.

    With theta = -k/sigma the likelihood profiles to one dimension; averaging theta over a fixed grid under
    its profile likelihood avoids both iteration and the unbounded maximum.
    """
    size = excess.size
    grid_size = 30 + int(math.sqrt(size))
    quartile = excess[int(size / 4 + 0.5) - 1]
    steps = np.arange(1, grid_size + 1) - 0.5
    theta = 1.0 / excess[-1] + (1.0 - np.sqrt(grid_size / steps)) / (3.0 * quartile)
    shape = np.mean(np.log1p(-theta[:, None] * excess), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_likelihood = size * (np.log(-theta / shape) - shape - 1.0)
    log_likelihood = np.where(np.isfinite(log_likelihood), log_likelihood, -np.inf)
    posterior = np.exp(log_likelihood - log_likelihood.max())
    mean_theta = np.sum(theta * posterior) / posterior.sum()
    raw = float(np.mean(np.log1p(-mean_theta * excess)))
    return raw * size / (size + 10.0) + 0.5 * 10.0 / (size + 10.0)
