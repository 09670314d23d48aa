"""Bayesian neural networks."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from ..config import register
from ..errors import InputError
from .base import Model, check_inputs, normal_log_prior
from .likelihoods import Bernoulli, Categorical, Gaussian, Likelihood


@register
class BayesianMLP(Model):
    """A fully connected network with an N(0, prior_scale^2) prior on every weight and bias.

    `hidden` gives the sizes of the hidden layers. `num_classes` 2 has one Bernoulli output, more classes a
    categorical one; None is regression with Gaussian `noise`.

    >>> BayesianMLP(2, hidden=(20,), num_classes=2).dim
    81
    """

    num_features: int
    hidden: tuple[int, ...]
    num_classes: int | None
    noise: float
    activation: str
    prior_scale: float
    likelihood: Likelihood = eqx.field(init=False)

    def __init__(
        self,
        num_features: int,
        hidden: tuple[int, ...] = (20,),
        num_classes: int | None = 2,
        *,
        noise: float = 1.0,
        activation: str = "relu",
        prior_scale: float = 1.0,
    ):
        if num_features < 1 or any(size < 1 for size in hidden):
            raise InputError(f"Layer sizes must be positive, not {num_features} and {hidden}.")
        if activation not in ACTIVATIONS:
            raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}.")
        if not prior_scale > 0:
            raise InputError(f"prior_scale must be positive, not {prior_scale}.")
        self.num_features = num_features
        self.hidden = tuple(hidden)
        self.num_classes = num_classes
        self.noise = noise
        self.activation = activation
        self.prior_scale = prior_scale
        if num_classes is None:
            self.likelihood = Gaussian(noise)
        elif num_classes == 2:
            self.likelihood = Bernoulli()
        else:
            self.likelihood = Categorical(num_classes)

    @property
    def layer_shapes(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of every layer."""
        sizes = (self.num_features, *self.hidden, self.likelihood.output_size)
        return list(itertools.pairwise(sizes))

    @property
    def dim(self):
        return sum((inputs + 1) * outputs for inputs, outputs in self.layer_shapes)

    def params(self, theta):
        layers, offset = [], 0
        for inputs, outputs in self.layer_shapes:
            weight = theta[offset : offset + inputs * outputs].reshape(inputs, outputs)
            offset += inputs * outputs
            layers.append({"weight": weight, "bias": theta[offset : offset + outputs]})
            offset += outputs
        return layers

    def _output(self, theta, x):
        activate = ACTIVATIONS[self.activation]
        *hidden, last = self.params(theta)
        for layer in hidden:
            x = activate(x @ layer["weight"] + layer["bias"])
        return x @ last["weight"] + last["bias"]

    def log_prior(self, theta):
        return normal_log_prior(theta, self.prior_scale)

    def log_likelihood(self, theta, x, y):
        return self.likelihood.log_prob(self._output(theta, x), y)

    def moments(self, theta, x):
        return self.likelihood.moments(self._output(theta, x))

    def start(self, key):
        # Zero is a saddle of every network with a hidden layer; fan-in scaled draws keep outputs of order 1.
        parts = []
        for inputs, outputs in self.layer_shapes:
            key, subkey = jax.random.split(key)
            parts.append(jax.random.normal(subkey, (inputs * outputs,)) / math.sqrt(inputs))
            parts.append(jnp.zeros(outputs))
        return jnp.concatenate(parts)

    def check(self, data, *, fitting=True):
        check_inputs(data, (self.num_features,))
        return self.likelihood.check(data, fitting)


ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu, "silu": jax.nn.silu}
