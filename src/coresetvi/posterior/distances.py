"""How far two sets of draws are apart, and draws from a density: functions of arrays, in numpy and float64.

Distances are taken in units of the reference's standard deviations along its principal axes, so that no
parameter counts more for being measured in small units.
"""

import jax
import numpy as np
from jaxtyping import Array

from ..data.dataset import Dataset
from ..families.gaussian import FullRank
from ..families.initial import start_family
from ..inner.mode import fit_laplace
from ..models.base import Model

NUM_PROJECTIONS = 200

Moments = tuple[np.ndarray, np.ndarray]  # mean (d,) and covariance (d, d)


def relative_errors(mean, covariance, other_mean, other_covariance) -> dict[str, float]:
    """|mean - other| / |other| in Euclidean norm, and of covariances in Frobenius norm.

    >>> relative_errors(np.array([1.1]), np.eye(1), np.array([1.0]), 2 * np.eye(1))["covariance_error"]
    0.5
    """
    return {
        "mean_error": float(np.linalg.norm(mean - other_mean) / np.linalg.norm(other_mean)),
        "covariance_error": float(
            np.linalg.norm(covariance - other_covariance) / np.linalg.norm(other_covariance)
        ),
    }


def moment_errors(mean, covariance, other_mean, other_covariance) -> dict[str, float]:
    """What two moments say: relative errors, squared z-scores, errors of deviations, the KL of normals."""
    deviation, other = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(other_covariance))
    squared = ((mean - other_mean) / other) ** 2
    return {
        **relative_errors(mean, covariance, other_mean, other_covariance),
        "mean_squared_z": float(squared.mean()),
        "largest_squared_z": float(squared.max()),
        "largest_deviation_error": float(np.max(np.abs(deviation / other - 1.0))),
        "gaussian_kl": gaussian_kl(mean, covariance, other_mean, other_covariance),
    }


def whitener(covariance: np.ndarray) -> np.ndarray:
    """A matrix W such that (draws - mean) @ W has unit covariance; flat directions are left out."""
    deviation = np.sqrt(np.diag(covariance))
    # Correlations have no units: no parameter is flat for being measured in large ones.
    scale = np.where(deviation > 0, deviation, 1.0)[:, None]
    values, axes = np.linalg.eigh(covariance / (scale * scale.T))
    kept = values > 1e-12 * values.max()
    return axes[:, kept] / np.sqrt(values[kept]) / scale


def sliced_wasserstein(draws: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> float:
    """Root mean square over random directions of the 2-Wasserstein distance of projected draws.

    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> round(sliced_wasserstein(x + 0.25, x, np.random.default_rng(0)), 6)
    0.25
    """
    directions = generator.normal(size=(draws.shape[1], NUM_PROJECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    levels = (np.arange(max(len(draws), len(other))) + 0.5) / max(len(draws), len(other))
    one = np.quantile(draws @ directions, levels, axis=0, method="hazen")
    two = np.quantile(other @ directions, levels, axis=0, method="hazen")
    return float(np.sqrt(np.mean((one - two) ** 2)))


def mmd(draws: np.ndarray, other: np.ndarray) -> float:
    """Maximum mean discrepancy with a Gaussian kernel as wide as the median distance; 0 if below its noise.

    The square root of the unbiased estimate of the squared distance of the two kernel means.
    """
    within, without, between = (
        squared_distances(*pair) for pair in ((draws, draws), (other, other), (draws, other))
    )
    width = np.median(between)
    average = [np.exp(-squares / width) for squares in (within, without, between)]
    for kernel in average[:2]:
        np.fill_diagonal(kernel, 0.0)
    count, other_count = len(draws), len(other)
    squared = average[0].sum() / (count * (count - 1)) + average[1].sum() / (other_count * (other_count - 1))
    return float(np.sqrt(max(squared - 2.0 * average[2].mean(), 0.0)))


def kernel_stein(draws: np.ndarray, scores: np.ndarray) -> float:
    """Kernel Stein discrepancy of draws from a density with these scores (gradients of its logarithm).

    Inverse multiquadric kernel k(x, y) = (1 + |x - y|^2)^(-1/2); needs no draws of the density. It is zero
    for infinitely many draws of the density itself; n draws leave about sqrt(2 dim / n).
    """
    difference = draws[:, None] - draws[None]
    squares = np.sum(difference**2, axis=-1)
    base, dim = 1.0 + squares, draws.shape[1]
    kernel = base**-0.5
    # grad_x k = -(x - y) base^(-3/2) = -grad_y k
    slope = np.einsum("ijd,ijd->ij", difference, scores[:, None] - scores[None]) * base**-1.5
    trace = dim * base**-1.5 - 3.0 * squares * base**-2.5
    return float(np.sqrt(np.mean(kernel * (scores @ scores.T) + slope + trace)))


def squared_distances(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """|x - y|^2 for every pair."""
    squares = np.sum(one**2, axis=1)[:, None] + np.sum(two**2, axis=1) - 2.0 * one @ two.T
    return np.maximum(squares, 0.0)


def laplace_moments(model: Model, data: Dataset) -> Moments:
    """Mode of the posterior given weighted data, and the inverse of the curvature there.

    Exact for a linear model with Gaussian noise:

    >>> from coresetvi.models import LinearRegression
    >>> mean, covariance = laplace_moments(LinearRegression(1), Dataset([[1.0], [2.0]], [1.0, 2.0]))
    >>> round(float(mean[0]), 3), round(float(covariance[0, 0]), 3)
    (0.833, 0.167)
    """
    key = jax.random.key(0)
    psi = start_family(FullRank(), model, data, key)
    psi, _ = fit_laplace(FullRank(), model, data, psi, key)
    mean, covariance = FullRank().moments(psi)
    return np.asarray(mean), np.asarray(covariance)


def gaussian_kl(
    mean: Array | np.ndarray,
    covariance: Array | np.ndarray,
    other_mean: Array | np.ndarray,
    other_covariance: Array | np.ndarray,
) -> float:
    """KL(N(mean, covariance) || N(other_mean, other_covariance)) in nats, computed in float64.

    >>> gaussian_kl(np.ones(1), np.eye(1), np.zeros(1), np.eye(1))
    0.5
    """
    mean, covariance, other_mean, other_covariance = (
        np.asarray(part, np.float64) for part in (mean, covariance, other_mean, other_covariance)
    )
    gap = np.linalg.solve(other_covariance, other_mean - mean)
    trace = np.trace(np.linalg.solve(other_covariance, covariance))
    volumes = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return float(0.5 * (trace + (other_mean - mean) @ gap - mean.size + volumes))
