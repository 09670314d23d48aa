"""Gaussian approximations of posteriors at their mode: a common ground on which to compare posteriors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .data import Dataset
from .families import Family, FullRank, Psi
from .inner import InnerInfo, InnerProblem, Laplace
from .likelihood_sums import log_likelihood_sums
from .models.base import Model
from .start import start_family

Moments = tuple[np.ndarray, np.ndarray]  # mean (d,) and covariance (d, d)


@eqx.filter_jit
def fit_laplace(
    family: Family, model: Model, data: Dataset, psi: Psi, key: PRNGKeyArray
) -> tuple[Psi, InnerInfo]:
    """The member of `family` at the mode of the posterior given `data`, searched from `psi`."""

    def loss(candidate, learned, noise):
        thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(candidate, noise)
        joint = log_likelihood_sums(model, thetas, data) + jax.vmap(model.log_prior)(thetas)
        return -jnp.mean(joint - proposal)

    problem = InnerProblem(loss, family, model.dim)
    return Laplace().solve(problem, {}, psi, key)


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
