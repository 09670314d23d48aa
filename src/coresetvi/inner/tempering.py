"""Tempered particles: from a normal as wide as the prior to a posterior, through all that lies between.

Densities b^(1-t) p^t lead from the wide normal b at t = 0 to the posterior p at t = 1. Each step goes as far
as half of the particles stay effective, draws them anew by their weights, and lets each move by Hamiltonian
Monte Carlo. Particles come from everywhere, so every mode gets its share of them, and the product of the mean
weights is an estimate of the evidence. All of it is one compiled program.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..families.base import LOG_TWO_PI, Family, Psi
from ..families.importance import normalise, normalised_ess, resample

if TYPE_CHECKING:
    from ..models.base import Model
    from ..models.log_joint import LogJoint

TARGET_ESS, BISECTIONS = 0.5, 30
TARGET_ACCEPTANCE = 0.8
MOST_TEMPERATURES = 80
MOVES, LEAPS = 3, 6
# The logarithm of as good as nothing; times zero it is still a number, which minus infinity is not.
NO_WEIGHT = -1e30
# Where a prior is flat, so many standard deviations of r are far; less than the second is never far.
FAR, NEAR = 100.0, 5.0
# Points that the prior's slopes are taken at.
PRIOR_POINTS = 33


class Tempered(NamedTuple):
    """Particles (p, d), the estimate of the log-evidence, the temperature they reached (1: all the way), how
    many steps that took, and the acceptance rate of the last moves."""

    thetas: Float[Array, "p d"]
    log_evidence: Float[Array, ""]
    temperature: Float[Array, ""]
    num_temperatures: Array
    acceptance: Float[Array, ""]


def wide_normal(
    model: "Model", family: Family, psi: Psi, key: PRNGKeyArray
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Center and width in every parameter of a normal that reaches as far as the prior does.

    Slopes of a normal's log-density are linear. The median, over points around r, of how much they change
    from one place to another therefore is the precision of a normal prior, and a typical one of others. A
    prior that is flat or turns the wrong way says nothing about how far is far.
    """
    mean = psi["mean"]
    noise = jax.random.normal(key, (PRIOR_POINTS - 2, family.noise_dim(mean.shape[0])))
    draws = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)[0]
    far = mean + FAR * (draws - mean)
    points = jnp.concatenate([mean[None], model.start(key)[None], far])
    slopes = jax.vmap(jax.grad(model.log_prior))(points)
    spread = jnp.std(draws, axis=0)
    precision = jnp.nanmedian(-(slopes[1:] - slopes[0]) / (points[1:] - points[0]), axis=0)
    width = 1.0 / jnp.sqrt(precision)
    peak = mean + slopes[0] / precision
    known = jnp.isfinite(width) & jnp.isfinite(peak) & (jnp.abs(peak - mean) <= FAR**2 * spread)
    center = jnp.where(known, peak, mean)
    width = jnp.where(known, width, FAR * spread)
    # Wherever the prior is, r must not lie outside of what is looked at.
    width = jnp.maximum(width, jnp.maximum(NEAR * spread, 0.5 * jnp.abs(mean - center)))
    return center, width


def temper(
    log_joint: "LogJoint",
    center: Float[Array, " d"],
    width: Float[Array, " d"],
    particles: int,
    key: PRNGKeyArray,
) -> Tempered:
    """One run, in coordinates z in which the wide normal is N(0, I)."""

    def base(z):
        return -0.5 * jnp.sum(z**2)

    def log_ratio(z):
        return log_joint(center + width * z) - base(z)

    def log_density(z, temperature):
        return base(z) + temperature * log_ratio(z)

    values_and_slopes = jax.vmap(jax.value_and_grad(log_density), (0, None))

    def going(carry):
        return (carry[1] < 1.0) & (carry[4] < MOST_TEMPERATURES)

    def cool(carry):
        z, temperature, step_size, evidence, count, _ = carry
        resample_key, move_key = jax.random.split(jax.random.fold_in(key, count))
        ratios = jax.vmap(log_ratio)(z)
        # A particle where the model breaks down has no weight, and must not decide for the others.
        ratios = jnp.where(jnp.isfinite(ratios), ratios, NO_WEIGHT)
        rise = largest_rise(ratios, 1.0 - temperature)
        # A step that rounding would swallow still has to be one.
        rise = jnp.maximum(rise, jnp.finfo(rise.dtype).eps)
        new = jnp.where(rise >= 1.0 - temperature, 1.0, temperature + rise)
        evidence = evidence + jax.nn.logsumexp((new - temperature) * ratios) - math.log(particles)
        z = z[resample(resample_key, normalise((new - temperature) * ratios), particles)]
        scale = jnp.maximum(jnp.std(z, axis=0), 1e-15)
        z, acceptance = moved(lambda at: values_and_slopes(at, new), z, step_size * scale, move_key)
        step_size = step_size * jnp.exp(jnp.clip(2.0 * (acceptance - TARGET_ACCEPTANCE), -1.0, 0.7))
        return z, new, step_size, evidence, count + 1, acceptance

    start = jax.random.normal(jax.random.fold_in(key, MOST_TEMPERATURES), (particles, center.shape[0]))
    start = start.astype(center.dtype)
    zero = jnp.zeros((), center.dtype)
    carry = (start, zero, zero + 0.5, zero, jnp.zeros((), jnp.int32), zero)
    z, temperature, _, evidence, count, acceptance = jax.lax.while_loop(going, cool, carry)
    constant = 0.5 * center.shape[0] * LOG_TWO_PI + jnp.sum(jnp.log(width))
    return Tempered(center + width * z, evidence + constant, temperature, count, acceptance)


def moved(values_and_slopes, z: Array, scale: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
    """All particles after some Hamiltonian trajectories, and how many of the last were accepted."""

    def trajectory(carry, key):
        z, value, slope, _ = carry
        momentum_key, length_key, choice_key = jax.random.split(key, 3)
        momentum = jax.random.normal(momentum_key, z.shape, z.dtype)
        # Steps of random length, so that no direction is in step with the trajectory.
        step = scale * jax.random.uniform(length_key, (z.shape[0], 1), z.dtype, 0.3, 1.0)

        def leap(state, _):
            at, momentum, _, slope = state
            momentum = momentum + 0.5 * step * slope
            at = at + step * momentum
            value, slope = values_and_slopes(at)
            return (at, momentum + 0.5 * step * slope, value, slope), None

        end, _ = jax.lax.scan(leap, (z, momentum, value, slope), None, length=LEAPS)
        gain = end[2] - value - 0.5 * jnp.sum(end[1] ** 2 - momentum**2, axis=1)
        gain = jnp.where(jnp.isfinite(gain), gain, -jnp.inf)
        kept = jnp.log(jax.random.uniform(choice_key, gain.shape, gain.dtype)) < gain
        choose = lambda new, old: jnp.where(kept.reshape(-1, *[1] * (new.ndim - 1)), new, old)  # noqa: E731
        rate = jnp.mean(jnp.exp(jnp.minimum(gain, 0.0)))
        return (choose(end[0], z), choose(end[2], value), choose(end[3], slope), rate), None

    carry = (z, *values_and_slopes(z), jnp.zeros((), z.dtype))
    (z, _, _, rate), _ = jax.lax.scan(trajectory, carry, jax.random.split(key, MOVES))
    return z, rate


def largest_rise(ratios: Array, limit: Array) -> Array:
    """The largest rise of temperature up to `limit` at which half of the particles stay effective."""

    def effective(rise):
        return normalised_ess(normalise(rise * ratios)) >= TARGET_ESS

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        good = effective(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    low, _ = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros_like(limit), limit))
    return jnp.where(effective(limit), limit, low)
