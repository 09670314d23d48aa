"""Bayesian convolutional networks."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .._registry import register
from ..errors import InputError
from .base import check_inputs, normal_log_prior
from .convolution import pooled_convolution, pooled_size
from .layers import LastLayerModel, draw_layers, split_layers
from .likelihoods import Bernoulli, Categorical, Likelihood

KERNEL, CHANNELS, PADDINGS, DENSE = 5, (6, 16), (2, 0), (120, 84)
LAYERS = len(CHANNELS) + len(DENSE) + 1


@register
class BayesianLeNet(LastLayerModel):
    """LeNet: two convolutions of 5 x 5 (6 and 16 channels), each pooled, then layers of 120, 84 and classes.

    `image_shape` is (height, width) or (height, width, channels); rows of x have that shape. Every weight
    and bias has a normal prior with mean 0. `prior_scale` is its standard deviation: one number, one for each
    of the five layers, or "fan-in", 1 / sqrt(inputs of the layer).

    >>> BayesianLeNet((28, 28, 1), num_classes=10).dim
    61706
    """

    image_shape: tuple[int, ...]
    num_classes: int | None
    prior_scale: float | tuple[float, ...] | str = eqx.field(static=True)
    likelihood: Likelihood = eqx.field(init=False)

    def __init__(
        self,
        image_shape: tuple[int, ...] = (28, 28, 1),
        num_classes: int = 10,
        *,
        prior_scale: object = 1.0,
    ):
        self.image_shape = tuple(image_shape)
        self.num_classes = num_classes
        self.likelihood = Bernoulli() if num_classes == 2 else Categorical(num_classes)
        self.prior_scale = read_prior_scale(prior_scale)
        if len(self.image_shape) not in (2, 3) or min(self.image_shape) < 1:
            raise InputError(f"image_shape must be (height, width, channels), not {image_shape}.")
        if min(self.pooled_shape) < 1:
            raise InputError(
                f"Images of {self.image_shape} are too small; LeNet needs at least 12 x 12 pixels."
            )

    @property
    def pooled_shape(self) -> tuple[int, int]:
        """Height and width after both convolutions."""
        height, width = self.image_shape[:2]
        for padding in PADDINGS:
            height, width = (pooled_size(side, KERNEL, padding) for side in (height, width))
        return height, width

    @property
    def weight_shapes(self) -> list[tuple[int, ...]]:
        """Shape of every layer's weights; the last axis is that of the outputs."""
        channels = (self.image_shape[2] if len(self.image_shape) == 3 else 1, *CHANNELS)
        convolutions = [(KERNEL, KERNEL, channels[i], channels[i + 1]) for i in range(len(CHANNELS))]
        sizes = (math.prod(self.pooled_shape) * CHANNELS[-1], *DENSE, self.likelihood.output_size)
        return [*convolutions, *((sizes[i], sizes[i + 1]) for i in range(len(sizes) - 1))]

    @property
    def dim(self):
        return sum(math.prod(shape) + shape[-1] for shape in self.weight_shapes)

    @property
    def last_shape(self):
        inputs, outputs = self.weight_shapes[-1]
        return inputs, outputs

    def params(self, theta):
        return split_layers(theta, self.weight_shapes)

    def features(self, theta, x):
        layers = self.params(theta)
        x = x.reshape(x.shape[0], *self.image_shape[:2], -1)
        for layer, padding in zip(layers, PADDINGS, strict=False):
            x = pooled_convolution(x, layer["weight"], layer["bias"], padding)
        x = x.reshape(x.shape[0], -1)
        for layer in layers[len(PADDINGS) : -1]:
            x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
        return x

    def output(self, theta, x):
        last = self.params(theta)[-1]
        return self.features(theta, x) @ last["weight"] + last["bias"]

    def prior_scales(self):
        inputs = [math.prod(shape[:-1]) for shape in self.weight_shapes]
        if isinstance(self.prior_scale, str):  # "fan-in"
            scales = [1.0 / math.sqrt(size) for size in inputs]
        elif isinstance(self.prior_scale, tuple):
            scales = self.prior_scale
        else:
            scales = (self.prior_scale,) * LAYERS
        sizes = [(size + 1) * shape[-1] for size, shape in zip(inputs, self.weight_shapes, strict=True)]
        return jnp.concatenate([jnp.full(size, scale) for size, scale in zip(sizes, scales, strict=True)])

    def log_prior(self, theta):
        return normal_log_prior(theta, self.prior_scales())

    def start(self, key):
        return draw_layers(key, self.weight_shapes, gain=2.0)  # ReLU halves the variance

    def check(self, data, *, fitting=True):
        check_inputs(data, self.image_shape)
        return self.likelihood.check(data, fitting)


def read_prior_scale(scale: object) -> float | tuple[float, ...] | str:
    """`prior_scale` in the form in which it is kept, or one sentence about what is wrong with it."""
    if scale == "fan-in":
        return "fan-in"
    scales: tuple = tuple(scale) if isinstance(scale, (tuple, list)) else (scale,)
    good = len(scales) in (1, LAYERS) and all(isinstance(s, (int, float)) and s > 0 for s in scales)
    if isinstance(scale, str) or not good:
        raise InputError(
            f"prior_scale must be a positive number, {LAYERS} of them (one a layer) or 'fan-in', "
            f"not {scale!r}."
        )
    return tuple(map(float, scales)) if len(scales) > 1 else float(next(iter(scales)))
