"""Gaussian approximations of posteriors at their mode: a common ground on which to compare posteriors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..families.gaussian import FullRank
from ..families.initial import start_family
from ..models.base import Model
from ..models.sums import log_likelihood_sums
from . import InnerInfo, InnerProblem, Laplace

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
