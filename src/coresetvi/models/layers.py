"""Networks as features and a linear last layer: what a closed form for the last layer needs to know."""

import abc
import math
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

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

    @abc.abstractmethod
    def output(self, theta: Theta, x: Array) -> Float[Array, "n outputs"]:
        """What the likelihood sees of every row."""

    def log_likelihood(self, theta, x, y):
        return self.likelihood.log_prob(self.output(theta, x), y)

    def moments(self, theta, x):
        return self.likelihood.moments(self.output(theta, x))

    @property
    def last_size(self) -> int:
        """How many numbers at the end of theta belong to the last layer."""
        inputs, outputs = self.last_shape
        return (inputs + 1) * outputs

    def last_prior_scales(self) -> Float[Array, "k outputs"]:
        """Prior standard deviations of the last layer: a row for each feature, and one for the bias."""
        inputs, outputs = self.last_shape
        return self.prior_scales()[-self.last_size :].reshape(inputs + 1, outputs)


def split_layers(theta: Theta, weight_shapes: Iterable[tuple[int, ...]]) -> list[dict[str, Array]]:
    """Weight and bias of every layer, which follow each other in theta; outputs are a weight's last axis.

    >>> [layer["weight"].shape for layer in split_layers(jnp.zeros(11), [(2, 3), (1, 1)])]
    [(2, 3), (1, 1)]
    """
    layers, offset = [], 0
    for shape in weight_shapes:
        size = math.prod(shape)
        weight = theta[offset : offset + size].reshape(shape)
        layers.append({"weight": weight, "bias": theta[offset + size : offset + size + shape[-1]]})
        offset += size + shape[-1]
    return layers


def draw_layers(key: PRNGKeyArray, weight_shapes: Iterable[tuple[int, ...]], gain: float) -> Theta:
    """Where a network starts: weights with variance gain / inputs, so that outputs are of order 1; no bias.

    Zero is a saddle of every network with a hidden layer.
    """
    parts = []
    for shape in weight_shapes:
        key, subkey = jax.random.split(key)
        scale = math.sqrt(gain / math.prod(shape[:-1]))
        parts += [jax.random.normal(subkey, (math.prod(shape),)) * scale, jnp.zeros(shape[-1])]
    return jnp.concatenate(parts)


def with_ones(features: Float[Array, "n k"]) -> Float[Array, "n l"]:
    """A column of ones for the bias."""
    ones = jnp.ones((features.shape[0], 1), dtype=features.dtype)
    return jnp.concatenate([features, ones], axis=1)
