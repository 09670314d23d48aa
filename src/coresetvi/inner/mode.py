"""Gaussian approximations of posteriors at their mode: a common ground on which to compare posteriors."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..models.base import Model
from ..models.sums import log_likelihood_sums
from .base import InnerInfo, InnerProblem
from .laplace import Laplace


@quick_jit
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
