"""Where r starts: at the model's own starting point, with a scale read off the curvature there."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..data.dataset import Dataset
from ..models.base import Model, soft_log_likelihood, weighted_log_likelihood
from .base import EXACT_CURVATURE_DIM, Family, Psi

# Random combinations of rows from which the curvature of a larger model is estimated.
PROBES = 8
# Starting narrower than the prior keeps the first draws of a network near its mean, where it still works.
START_WIDTH = 0.1


@eqx.filter_jit
def start_family(family: Family, model: Model, data: Dataset, key: PRNGKeyArray) -> Psi:
    """Parameters of r before the first step.

    The scale of every parameter is the smaller of a tenth of the prior's and the one that the curvature of
    the log-posterior on `data` suggests; the latter is what makes columns in any unit start well.
    """
    theta = model.start(key)
    ones = jnp.ones_like(theta)
    prior_curvature = jnp.abs(jax.jvp(jax.grad(model.log_prior), (theta,), (ones,))[1])
    scale = START_WIDTH / jnp.sqrt(jnp.maximum(prior_curvature, 1e-12))
    if theta.shape[0] <= EXACT_CURVATURE_DIM:
        curvature = diagonal_curvature(model, theta, data) + prior_curvature
    else:
        curvature = estimated_curvature(model, theta, data, key) + prior_curvature
    scale = jnp.minimum(scale, 1.0 / jnp.sqrt(jnp.maximum(curvature, 1e-12)))
    return family.start(theta, scale)


def diagonal_curvature(model: Model, theta: Float[Array, " d"], data: Dataset) -> Float[Array, " d"]:
    """|d^2 log p(data | theta) / d theta_i^2| for every i, one Hessian-vector product at a time."""
    slope = jax.linearize(jax.grad(lambda t: weighted_log_likelihood(model, t, data)), theta)[1]
    size = theta.shape[0]

    def entry(index):
        return jnp.abs(slope(jax.nn.one_hot(index, size, dtype=theta.dtype))[index])

    return jax.lax.map(entry, jnp.arange(size))


def estimated_curvature(
    model: Model, theta: Float[Array, " d"], data: Dataset, key: PRNGKeyArray
) -> Float[Array, " d"]:
    """sum_n weight_n (d log p(y_n | x_n, theta) / d theta_i)^2 for every i, estimated.

    The square of the gradient of sum_n sign_n sqrt(weight_n) log p(y_n | x_n, theta) with random signs has
    that mean: cross terms cancel.
    """

    def probe(key):
        signs = jax.random.rademacher(key, data.weights.shape, data.weights.dtype)
        factors = signs * jnp.sqrt(data.weights)

        def combination(theta):
            return jnp.sum(factors * soft_log_likelihood(model, theta, data.x, data.y))

        return jax.grad(combination)(theta) ** 2

    return jnp.mean(jax.lax.map(probe, jax.random.split(key, PROBES)), axis=0)
