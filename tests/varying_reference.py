"""The exact posterior of varying intercepts, in float64 numpy: for tests and benchmarks alike."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# A density is nothing so far below its maximum, in logarithms; nodes that look for it, and how often.
NOTHING, COARSE, TURNS = 30.0, 30, 3


class GivenScales(NamedTuple):
    """What is known once spread and noise are: all other sites are normal."""

    log_density: float  # of the two logarithms, up to a constant
    fixed: np.ndarray  # means of (mean, slope)
    fixed_covariance: np.ndarray
    raw: np.ndarray
    raw_variance: np.ndarray
    mean_with_raw: np.ndarray  # covariances of the mean with every raw effect


def varying_intercepts(
    group, column, y, *, mean_scale: float, slope_scale: float, nodes: int = 40
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Exact means and deviations of y = mean + spread raw[group] + slope column + noise e, by site.

    Given spread and noise, which have half-normal priors of scale 1, everything else is normal; a grid of
    their logarithms does the rest. Site `intercept` is mean + spread raw.
    """
    group = np.asarray(group).astype(int)
    column, y = (np.asarray(part, np.float64) for part in (column, y))
    counts = np.bincount(group)
    design = np.column_stack([np.ones(len(y)), column])
    gram, target, energy = design.T @ design, design.T @ y, float(y @ y)
    # Sums within groups of the two columns, and of y.
    crossed = np.stack([np.bincount(group, part) for part in design.T])
    sums = np.bincount(group, y)
    prior = np.diag([mean_scale**-2, slope_scale**-2])

    def given(log_spread: float, log_noise: float) -> GivenScales:
        spread, variance = np.exp(log_spread), np.exp(2.0 * log_noise)
        # Raw effects are independent given mean and slope, so that they are summed out one by one.
        own = 1.0 + spread**2 * counts / variance
        joined = spread * crossed / variance
        aim, raw_aim = target / variance, spread * sums / variance
        precision = prior + gram / variance - (joined / own) @ joined.T
        covariance = np.linalg.inv(precision)
        fixed = covariance @ (aim - joined @ (raw_aim / own))
        raw = (raw_aim - joined.T @ fixed) / own
        log_density = 0.5 * (aim @ fixed + raw_aim @ raw - energy / variance) - len(y) * log_noise
        log_density -= 0.5 * (np.linalg.slogdet(precision)[1] + np.sum(np.log(own)))
        # Half-normal priors, and the derivatives of the exponentials.
        log_density += log_spread + log_noise - 0.5 * (spread**2 + variance)
        pulled = -covariance @ joined / own
        raw_variance = 1.0 / own - np.sum(pulled * (joined / own), axis=0)
        return GivenScales(float(log_density), fixed, covariance, raw, raw_variance, pulled[0])

    pairs, weights = grid_of(lambda *pair: given(*pair).log_density, np.log(y.std()), nodes)
    first: dict[str, np.ndarray] = {}
    second: dict[str, np.ndarray] = {}
    for weight, pair in zip(weights, pairs, strict=True):
        part = given(*pair)
        spread, noise = np.exp(pair)
        variance = np.diag(part.fixed_covariance)
        both = variance[0] + spread**2 * part.raw_variance + 2.0 * spread * part.mean_with_raw
        found = {
            "mean": (part.fixed[0], variance[0]),
            "slope": (part.fixed[1], variance[1]),
            "raw": (part.raw, part.raw_variance),
            "intercept": (part.fixed[0] + spread * part.raw, both),
            "spread": (spread, 0.0),
            "noise": (noise, 0.0),
        }
        for name, (middle, extra) in found.items():
            first[name] = first.get(name, np.zeros(())) + weight * middle
            second[name] = second.get(name, np.zeros(())) + weight * (extra + middle**2)
    return {name: (first[name], np.sqrt(second[name] - first[name] ** 2)) for name in first}


def grid_of(
    log_density: Callable[[float, float], float], centre: float, nodes: int
) -> tuple[list[tuple[float, float]], np.ndarray]:
    """Pairs over the region where a density of two parameters is not nothing, and their weights."""
    bounds = [(centre - 10.0, centre + 3.0)] * 2
    for _ in range(TURNS):  # a coarse grid says where a finer one is needed
        sides = [np.linspace(low, high, COARSE) for low, high in bounds]
        logs = np.array([[log_density(one, other) for other in sides[1]] for one in sides[0]])
        there = logs > logs.max() - NOTHING
        bounds = []
        for axis, other in zip(sides, (1, 0), strict=True):
            near, step = axis[there.any(axis=other)], axis[1] - axis[0]
            bounds.append((float(near[0] - step), float(near[-1] + step)))
    one, other = (np.linspace(low, high, nodes) for low, high in bounds)
    pairs = [(float(first), float(second)) for first in one for second in other]
    logs = np.array([log_density(*pair) for pair in pairs])
    weights = np.exp(logs - logs.max())
    return pairs, weights / weights.sum()
