"""Networks as features and a linear last layer: what a closed form for the last layer needs to know."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .base import Model, Theta
from .likelihoods import Likelihood


class LastLayerModel(Model):
    """A network whose output is features(theta, x) @ weight + bias.

    Weight (k, outputs) and bias (outputs,) of that last layer are the last numbers of theta, in this order,
    and `features` does not look at them.
    """

    likelihood: eqx.AbstractVar[Likelihood]

    @property
    @abc.abstractmethod
    def last_shape(self) -> tuple[int, int]:
        """(features, outputs) of the last layer."""

    @abc.abstractmethod
    def features(self, theta: Theta, x: Array) -> Float[Array, "n k"]:
        """What the last layer sees of every row."""

    @abc.abstractmethod
    def prior_scales(self) -> Theta:
        """Standard deviation of the normal prior of every parameter."""

    @property
    def last_size(self) -> int:
        """How many numbers at the end of theta belong to the last layer."""
        inputs, outputs = self.last_shape
        return (inputs + 1) * outputs

    def last_prior_scales(self) -> Float[Array, "k outputs"]:
        """Prior standard deviations of the last layer: a row for each feature, and one for the bias."""
        inputs, outputs = self.last_shape
        return self.prior_scales()[-self.last_size :].reshape(inputs + 1, outputs)


def with_ones(features: Float[Array, "n k"]) -> Float[Array, "n l"]:
    """A column of ones for the bias."""
    ones = jnp.ones((features.shape[0], 1), dtype=features.dtype)
    return jnp.concatenate([features, ones], axis=1)
