"""Bayesian neural networks."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .._registry import register
from ..errors import InputError
from .base import check_inputs, normal_log_prior
from .layers import LastLayerModel, draw_layers, split_layers
from .likelihoods import Bernoulli, Categorical, Gaussian, GaussianScale, Likelihood

# Prior of an unknown noise, in units of standardised values: log noise ~ N(log 0.3, 1). Nothing that explains
# standardised values at all leaves more than 1 to noise, and little is explained to better than a few per
# cent: two deviations reach from 0.04 to 2.2. A hundred rows weigh 200 times as much as this prior.
LOG_NOISE_MEAN, LOG_NOISE_SCALE = math.log(0.3), 1.0


@register
class BayesianMLP(LastLayerModel):
    """A fully connected network with an N(0, prior_scale^2) prior on every weight and bias.

    `hidden` gives the sizes of the hidden layers. `num_classes` 2 has one Bernoulli output, more classes a
    categorical one; None is regression with Gaussian `noise`, of which None makes a parameter as well: the
    last one, log noise ~ N(log 0.3, 1), which suits values with standard deviation 1.

    >>> BayesianMLP(2, hidden=(20,), num_classes=2).dim
    81
    >>> model = BayesianMLP(2, hidden=(20,), num_classes=None, noise=None)
    >>> model.dim, sorted(model.params(jnp.zeros(82)))
    (82, ['layers', 'log_noise'])
    """

    num_features: int
    hidden: tuple[int, ...]
    num_classes: int | None
    noise: float | None
    activation: str
    prior_scale: float
    likelihood: Likelihood = eqx.field(init=False)

    def __init__(
        self,
        num_features: int,
        hidden: tuple[int, ...] = (20,),
        num_classes: int | None = 2,
        *,
        noise: float | None = 1.0,
        activation: str = "relu",
        prior_scale: float = 1.0,
    ):
        if num_features < 1 or any(size < 1 for size in hidden):
            raise InputError(f"Layer sizes must be positive, not {num_features} and {hidden}.")
        if activation not in ACTIVATIONS:
            raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}.")
        if not prior_scale > 0:
            raise InputError(f"prior_scale must be positive, not {prior_scale}.")
        if noise is None and num_classes is not None:
            raise InputError(
                f"noise=None is for regression, but there are {num_classes} classes; leave it out."
            )
        self.num_features = num_features
        self.hidden = tuple(hidden)
        self.num_classes = num_classes
        self.noise = noise
        self.activation = activation
        self.prior_scale = prior_scale
        if num_classes is None:
            self.likelihood = GaussianScale() if noise is None else Gaussian(noise)
        elif num_classes == 2:
            self.likelihood = Bernoulli()
        else:
            self.likelihood = Categorical(num_classes)

    @property
    def layer_shapes(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of every layer."""
        # An unknown noise is an output too, but one that comes from theta itself, the same for all rows.
        sizes = (self.num_features, *self.hidden, self.likelihood.output_size - self._learns_noise)
        return list(itertools.pairwise(sizes))

    @property
    def dim(self):
        return sum((inputs + 1) * outputs for inputs, outputs in self.layer_shapes) + self._learns_noise

    @property
    def _learns_noise(self) -> bool:
        return self.noise is None

    def params(self, theta):
        layers = self._layers(theta)
        return {"layers": layers, "log_noise": theta[-1]} if self._learns_noise else layers

    def _layers(self, theta):
        return split_layers(theta, self.layer_shapes)

    @property
    def last_shape(self):
        return self.layer_shapes[-1]

    def features(self, theta, x):
        activate = ACTIVATIONS[self.activation]
        for layer in self._layers(theta)[:-1]:
            x = activate(x @ layer["weight"] + layer["bias"])
        return x

    def output(self, theta, x):
        last = self._layers(theta)[-1]
        output = self.features(theta, x) @ last["weight"] + last["bias"]
        if not self._learns_noise:
            return output
        return jnp.concatenate([output, jnp.full_like(output, theta[-1])], axis=1)

    def prior_scales(self):
        scales = jnp.full(self.dim, self.prior_scale)
        return scales.at[-1].set(LOG_NOISE_SCALE) if self._learns_noise else scales

    def log_prior(self, theta):
        if not self._learns_noise:
            return normal_log_prior(theta, self.prior_scale)
        log_noise = normal_log_prior(theta[-1:] - LOG_NOISE_MEAN, LOG_NOISE_SCALE)
        return normal_log_prior(theta[:-1], self.prior_scale) + log_noise

    def start(self, key):
        theta = draw_layers(key, self.layer_shapes, gain=1.0)
        return jnp.append(theta, LOG_NOISE_MEAN) if self._learns_noise else theta

    def check(self, data, *, fitting=True):
        check_inputs(data, (self.num_features,))
        return self.likelihood.check(data, fitting)


ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu, "silu": jax.nn.silu}
