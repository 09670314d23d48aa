"""The exact Gaussian posterior of a network's last layer, and the family r that it makes.

A soft label z_m says which outputs the network should have at u_m (for classes, its centred log-odds). Taken
as an observation of those outputs with precision v_m, it gives the last layer a posterior in closed form:

    precision = Phi^T V Phi + diag(1 / prior_scale^2)         Phi = features of u, and ones for the bias
    mean      = precision^-1 Phi^T V outputs(z)

All outputs share one covariance. `docs/last_layer.md` derives what follows from it.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._registry import register
from ..data.dataset import Dataset
from ..models.layers import LastLayerModel, with_ones
from .base import LOG_TWO_PI, Family

# Relative size of what is added to the precision's diagonal: float32 has no more digits than that.
JITTER = 1e-6


class LastLayerPosterior(NamedTuple):
    """Mean (k, outputs), and lower triangular root of the precision (k, k) that all outputs share."""

    mean: Float[Array, "k c"]
    root: Float[Array, "k k"]

    def outputs(self, features: Float[Array, "n k"]) -> tuple[Float[Array, "n c"], Float[Array, " n"]]:
        """Mean of the outputs of every row, and the standard deviation that all outputs of a row share."""
        spread = jax.scipy.linalg.solve_triangular(self.root, features.T, lower=True)
        return features @ self.mean, jnp.sqrt(jnp.sum(spread**2, axis=0))

    def kl(self, prior_scale: Float[Array, " k"]) -> Float[Array, ""]:
        """KL(posterior || prior) in nats, all outputs together."""
        inverse = jax.scipy.linalg.solve_triangular(self.root, jnp.diag(1.0 / prior_scale), lower=True)
        # In units of the prior: trace of the covariance, and logarithm of its determinant.
        log_volume = -jnp.sum(jnp.log(jnp.diagonal(self.root))) - jnp.sum(jnp.log(prior_scale))
        size, outputs = self.mean.shape
        squares = jnp.sum((self.mean / prior_scale[:, None]) ** 2)
        return 0.5 * (outputs * (jnp.sum(inverse**2) - size - 2.0 * log_volume) + squares)

    def factor(self) -> Float[Array, "k k"]:
        """A root of the covariance: factor @ factor.T."""
        identity = jnp.eye(self.root.shape[0], dtype=self.root.dtype)
        return jax.scipy.linalg.solve_triangular(self.root, identity, lower=True).T


def last_layer_posterior(model: LastLayerModel, theta: Float[Array, " d"], coreset: Dataset):
    """The posterior of the last layer given the coreset, for the features that theta has."""
    features = with_ones(model.features(theta, coreset.x))
    targets, precision_of_one = model.likelihood.outputs_of(coreset.y)
    weighted = features * (precision_of_one * coreset.weights)[:, None]
    precision = features.T @ weighted + jnp.diag(1.0 / shared_scale(model) ** 2)
    precision = precision + JITTER * jnp.mean(jnp.diagonal(precision)) * jnp.eye(precision.shape[0])
    root = jnp.linalg.cholesky(precision)
    mean = jax.scipy.linalg.cho_solve((root, True), weighted.T @ targets)
    return LastLayerPosterior(mean, root)


def shared_scale(model: LastLayerModel) -> Float[Array, " k"]:
    """Prior standard deviations of the last layer, which are the same for every output."""
    return model.last_prior_scales()[:, 0]


@register
class GaussianLastLayer(Family):
    """r = a point for the features, times a normal for the last layer whose outputs share their covariance.

    theta = (features, mean + factor @ noise), with `inputs` features (the bias counts as one) and `outputs`.
    Its density is that of the last layer, with respect to the point mass at the features.
    """

    inputs: int
    outputs: int
    has_density: ClassVar[bool] = False

    def noise_dim(self, dim):
        return self.inputs * self.outputs

    def init(self, mean, scale):
        split = mean.shape[0] - self.inputs * self.outputs
        shared = jnp.exp(jnp.mean(jnp.log(scale[split:].reshape(self.inputs, self.outputs)), axis=1))
        return {
            "features": mean[:split],
            "unit": scale[:split],
            "mean": mean[split:].reshape(self.inputs, self.outputs),
            "factor": jnp.diag(shared),
        }

    def sample_and_log_prob(self, psi, noise):
        noise = noise.reshape(self.inputs, self.outputs)
        last = psi["mean"] + psi["factor"] @ noise
        return jnp.concatenate([psi["features"], last.ravel()]), self._log_density(psi, noise)

    def log_prob(self, psi, theta):
        last = theta[psi["features"].shape[0] :].reshape(self.inputs, self.outputs)
        return self._log_density(psi, jnp.linalg.solve(psi["factor"], last - psi["mean"]))

    def _log_density(self, psi, noise):
        log_volume = jnp.linalg.slogdet(psi["factor"])[1]
        return -0.5 * jnp.sum(noise**2 + LOG_TWO_PI) - self.outputs * log_volume

    def move(self, psi, tangent):
        change = jnp.tril(tangent["factor"], -1) + jnp.diag(jnp.exp(jnp.diagonal(tangent["factor"])))
        return {
            "features": psi["features"] + psi["unit"] * tangent["features"],
            "unit": psi["unit"],
            "mean": psi["mean"] + psi["factor"] @ tangent["mean"],
            "factor": psi["factor"] @ change,
        }

    def with_curvature(self, psi, product):
        # The features stay a point; the outputs' precisions are averaged, for they share one.
        split = psi["features"].shape[0]

        def block(output):
            def column(row):
                unit = jnp.zeros((self.inputs, self.outputs)).at[row, output].set(1.0)
                answer = product(jnp.concatenate([jnp.zeros(split), unit.ravel()]))
                return answer[split:].reshape(self.inputs, self.outputs)[:, output]

            return jax.lax.map(column, jnp.arange(self.inputs))

        precision = jnp.mean(jax.lax.map(block, jnp.arange(self.outputs)), axis=0)
        values, vectors = jnp.linalg.eigh(0.5 * (precision + precision.T))
        proper = values[0] > JITTER * values[-1]
        covariance_root = vectors / jnp.sqrt(jnp.maximum(values, JITTER * values[-1]))
        return {**psi, "factor": psi["factor"] @ covariance_root}, proper

    def moments(self, psi):
        split, size = psi["features"].shape[0], self.inputs * self.outputs
        covariance = jnp.kron(psi["factor"] @ psi["factor"].T, jnp.eye(self.outputs))
        whole = jnp.zeros((split + size, split + size)).at[split:, split:].set(covariance)
        return jnp.concatenate([psi["features"], psi["mean"].ravel()]), whole


def last_layer_psi(model: LastLayerModel, theta: Float[Array, " d"], coreset: Dataset):
    """Parameters of `GaussianLastLayer` at the features of theta, with the exact last layer."""
    posterior = last_layer_posterior(model, theta, coreset)
    features = theta[: model.dim - model.last_size]
    return {
        "features": features,
        "unit": model.prior_scales()[: features.shape[0]],
        "mean": posterior.mean,
        "factor": posterior.factor(),
    }
