"""Importance weights: the only place in the project where they are computed.

Training (Eq. 9), prediction and diagnostics all call `log_weights` and `normalise`, so the sign of the
coreset term cannot differ between them.
"""

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

# Log-weights that differ by less are equal: what is left is the rounding of float32.
EQUAL_LOG_WEIGHTS = 1e-3
# Part of the draws that counts, above which the weights are as good as equal.
EVEN_ESS = 0.95
# Fewer large weights than the first are no tail; one of a shape below the second needs no smoothing.
FEWEST_IN_TAIL, LIGHT_TAIL = 5, 1 / 3


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


def host_weights(log_w: np.ndarray) -> np.ndarray:
    """`normalise` in numpy and float64: for judging draws, where there is nothing worth compiling.

    >>> host_weights(np.log([1.0, 3.0])).round(2).tolist()
    [0.25, 0.75]
    """
    log_w = np.asarray(log_w, np.float64)
    with np.errstate(invalid="ignore"):  # where no draw has any weight, the weights are not numbers
        return np.exp(log_w - np.logaddexp.reduce(log_w))


def host_ess(weights: np.ndarray) -> float:
    """`normalised_ess` in numpy and float64.

    >>> host_ess(np.array([0.5, 0.5, 0.0, 0.0]))
    0.5
    """
    return float(1.0 / (len(weights) * np.sum(np.asarray(weights, np.float64) ** 2)))


def defensive(weights: Float[Array, " s"]) -> Float[Array, " s"]:
    """Half the weights, half uniform: no draw is ignored, however far the weights have collapsed."""
    return 0.5 * (weights + 1.0 / weights.shape[0])


def khat_threshold(num_samples: int) -> float:
    """Largest Pareto k-hat at which `num_samples` weighted draws can be trusted."""
    if num_samples < 2:
        return -math.inf
    return min(1.0 - 1.0 / math.log10(num_samples), 0.7)


def usable(quality: Mapping[str, int | float]) -> bool:
    """Whether weights with this `ess`, `khat` and `khat_threshold` can be trusted.

    Weights that hardly differ are good whatever the shape of their tail: k-hat describes how the largest of
    them grow, not how much larger they are.

    >>> usable({"ess": 0.5, "khat": 0.8, "khat_threshold": 0.7})
    False
    """
    return quality["khat"] <= quality["khat_threshold"] or quality["ess"] >= EVEN_ESS


def pareto_khat(log_w) -> float:
    """Shape of the generalised Pareto distribution that the largest importance weights follow.

    The weights have about 1/k finite moments: below 0.5 the estimate behaves as usual, above 0.7 it cannot be
    trusted however many draws there are. Infinity where nothing can be said.
    """
    return fit_tail(log_w).shape


def smoothed_weights(log_w) -> tuple[np.ndarray, float]:
    """Normalised log-weights whose largest are replaced by quantiles of the Pareto tail, and its k-hat.

    The largest weights are noise about a tail that the fit knows better than they do. None becomes larger
    than the largest was, and tails so light that there is little to gain are left alone.

    >>> log_w, khat = smoothed_weights(np.zeros(100))
    >>> float(np.exp(log_w).sum().round(6)), khat
    (1.0, -inf)
    """
    log_w = np.asarray(log_w, dtype=np.float64)
    # A draw where the model breaks down has no weight, and must not take the others' with it.
    smooth = np.where(np.isnan(log_w), -np.inf, log_w)
    tail = fit_tail(smooth)
    if LIGHT_TAIL <= tail.shape < math.inf:
        places = np.argsort(smooth, kind="stable")[-tail.size :]
        smooth[places] = smooth.max() + np.log(np.minimum(tail.quantiles(), 1.0))
    with np.errstate(invalid="ignore"):  # where no draw has any weight, the weights are not numbers
        return smooth - np.logaddexp.reduce(smooth), tail.shape


class Tail(NamedTuple):
    """The largest `size` of some weights, in units of the very largest: generalised Pareto over `threshold`.

    A `shape` that is not finite stands alone: infinity if no tail can be fitted, minus infinity if all large
    weights are equal.
    """

    size: int
    threshold: float
    shape: float
    scale: float

    def quantiles(self) -> np.ndarray:
        """One weight for each of the tail's, from the smallest: the middles of equally likely parts."""
        levels = (np.arange(self.size) + 0.5) / self.size
        with np.errstate(over="ignore"):  # of a tail that has next to no mean, the largest may be infinite
            return self.threshold + self.scale * np.expm1(-self.shape * np.log1p(-levels)) / self.shape


def fit_tail(log_w) -> Tail:
    """The tail of importance weights: the largest min(S/5, 3 sqrt(S)) of them (Vehtari et al., 2024)."""
    log_w = np.sort(np.asarray(log_w, dtype=np.float64))
    size = int(min(log_w.size / 5, 3 * math.sqrt(log_w.size)))
    if size < FEWEST_IN_TAIL or not np.all(np.isfinite(log_w[-size - 1 :])):
        return Tail(size, math.nan, math.inf, math.nan)
    if log_w[-1] - log_w[-size - 1] < EQUAL_LOG_WEIGHTS:
        return Tail(size, 1.0, -math.inf, 0.0)
    weights = np.exp(log_w[-size - 1 :] - log_w[-1])
    shape, scale = _fit_generalised_pareto(np.maximum(weights[1:] - weights[0], 1e-300))
    return Tail(size, float(weights[0]), shape, scale)


def _fit_generalised_pareto(excess: np.ndarray) -> tuple[float, float]:
    """Shape and scale of the generalised Pareto for sorted positive `excess` (Zhang and Stephens, 2009).

    With theta = -k/sigma the likelihood profiles to one dimension; averaging theta over a fixed grid under
    its profile likelihood avoids both iteration and the unbounded maximum. A prior worth ten draws then
    pulls the shape towards 0.5.
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
    scale = float(excess.mean() if mean_theta == 0.0 else -raw / mean_theta)  # of an exponential, or not
    return raw * size / (size + 10.0) + 0.5 * 10.0 / (size + 10.0), scale


@functools.partial(jax.jit, static_argnames="number")
def resample(key: PRNGKeyArray, weights: Float[Array, " s"], number: int) -> Int[Array, " number"]:
    """Positions of `number` draws, picked by their weights, in random order.

    Systematic resampling: a comb of `number` teeth with a random start is laid over the cumulated weights, so
    a draw of normalised weight w is picked number * w times on average and never off by one or more. In
    random order, copies of a draw do not all land in one chain.

    >>> sorted(resample(jax.random.key(0), jnp.array([0.25, 0.0, 0.75]), 4).tolist())
    [0, 2, 2, 2]
    """
    start_key, order_key = jax.random.split(key)
    # Above zero: a tooth at zero would pick the first draw even if it has no weight.
    start = jnp.maximum(jax.random.uniform(start_key, (), weights.dtype), jnp.finfo(weights.dtype).eps)
    ends = jnp.cumsum(weights)
    teeth = (jnp.arange(number, dtype=weights.dtype) + start) / number
    # Rounding may let the weights add up to less than the last tooth.
    picked = jnp.searchsorted(ends, teeth * ends[-1])
    return jax.random.permutation(order_key, picked)
