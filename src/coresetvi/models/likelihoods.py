"""Observation models: how a row's output (a linear predictor or a network's output) explains its label.

Each is shared by the regression models and the networks, so a new response type is written once.
"""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError

# A hard label as a soft one has this log-odds: 98 % certain of two classes, still with a slope to learn.
HARD_LOGIT = 4.0
Moments = tuple[Float[Array, "n ..."], Float[Array, "n ..."]]


class Likelihood(eqx.Module):
    """log p(y | output) for `output` of shape (n, output_size)."""

    output_size: eqx.AbstractVar[int]
    num_classes: eqx.AbstractVar[int | None]

    @abc.abstractmethod
    def log_prob(self, output: Float[Array, "n k"], y: Any) -> Float[Array, " n"]:
        """Log-probability of each label, unweighted."""

    @abc.abstractmethod
    def moments(self, output: Float[Array, "n k"]) -> Moments:
        """Mean and variance of y for each row, given one theta."""

    def outputs_of(self, y: Any) -> tuple[Float[Array, "n k"], float]:
        """Outputs that stand for (soft) labels, and the precision with which a label of weight 1 says so."""
        raise InputError(f"{type(self).__name__} labels do not say which output they stand for.")

    @abc.abstractmethod
    def check(self, data: Dataset, fitting: bool) -> Dataset:
        """`data` with labels of the right type, or one sentence about the first label that is not."""


@register
class Bernoulli(Likelihood):
    """y in {0, 1}, logit output."""

    output_size: int = 1
    num_classes: int | None = 2

    def log_prob(self, output, y):
        logit = output[:, 0]
        return y * logit - jax.nn.softplus(logit)

    def moments(self, output):
        probability = jax.nn.sigmoid(output[:, 0])
        return probability, probability * (1.0 - probability)

    def outputs_of(self, y):
        logits = log_odds(y, 2)
        return logits[:, 1:] - logits[:, :1], 1.0

    def check(self, data, fitting):
        return check_labels(data, 2, fitting)


@register
class Categorical(Likelihood):
    """y in {0, ..., C-1}, one logit per class."""

    output_size: int
    num_classes: int | None

    def __init__(self, num_classes: int | None):
        if num_classes is None or num_classes < 2:
            raise InputError(f"A classification model needs at least 2 classes, not {num_classes}.")
        self.output_size = num_classes
        self.num_classes = num_classes

    def log_prob(self, output, y):
        log_probabilities = jax.nn.log_softmax(output, axis=-1)
        return jnp.take_along_axis(log_probabilities, y[:, None], axis=-1)[:, 0]

    def moments(self, output):
        probabilities = jax.nn.softmax(output, axis=-1)
        return probabilities, probabilities * (1.0 - probabilities)

    def outputs_of(self, y):
        return log_odds(y, self.output_size), 1.0

    def check(self, data, fitting):
        return check_labels(data, self.output_size, fitting)


@register
class Gaussian(Likelihood):
    """Real y with known noise standard deviation."""

    noise: float = eqx.field(static=True)
    output_size: int = eqx.field(init=False)
    num_classes: int | None = eqx.field(init=False)

    def __init__(self, noise: float = 1.0):
        if not noise > 0:
            raise InputError(f"The noise standard deviation must be positive, not {noise}.")
        self.noise = noise
        self.output_size = 1
        self.num_classes = None

    def log_prob(self, output, y):
        residual = (y - output[:, 0]) / self.noise
        return -0.5 * (residual**2 + math.log(2.0 * math.pi)) - math.log(self.noise)

    def moments(self, output):
        return output[:, 0], jnp.full(output.shape[0], self.noise**2)

    def outputs_of(self, y):
        return y[:, None], 1.0 / self.noise**2

    def check(self, data, fitting):
        return check_values(data, lambda values: np.full(values.shape, False), "")


@register
class GaussianScale(Likelihood):
    """Real y whose noise is unknown: the outputs are its mean and the log of the noise standard deviation."""

    output_size: int = 2
    num_classes: int | None = None

    def log_prob(self, output, y):
        mean, log_noise = output[:, 0], output[:, 1]
        residual = (y - mean) * jnp.exp(-log_noise)
        return -0.5 * (residual**2 + math.log(2.0 * math.pi)) - log_noise

    def moments(self, output):
        return output[:, 0], jnp.exp(2.0 * output[:, 1])

    def check(self, data, fitting):
        return check_values(data, lambda values: np.full(values.shape, False), "")


@register
class Poisson(Likelihood):
    """Counts y = 0, 1, 2, ... with log-rate output."""

    output_size: int = 1
    num_classes: int | None = None

    def log_prob(self, output, y):
        log_rate = output[:, 0]
        return y * log_rate - jnp.exp(log_rate) - jax.scipy.special.gammaln(y + 1.0)

    def moments(self, output):
        rate = jnp.exp(output[:, 0])
        return rate, rate

    def check(self, data, fitting):
        return check_values(
            data,
            lambda values: (values < 0) | (values != np.floor(values)),
            "is no count; a Poisson model needs 0, 1, 2, …",
        )


def log_odds(y: Array, num_classes: int) -> Float[Array, "n c"]:
    """Centred log-probabilities of soft labels (n, C), or of hard ones taken as nearly certain.

    >>> log_odds(jnp.asarray([[0.5, 0.5]]), 2).tolist()
    [[0.0, 0.0]]
    """
    if y.ndim == 1:
        logits = HARD_LOGIT * jax.nn.one_hot(y, num_classes)
    else:
        logits = jnp.log(jnp.maximum(y, jnp.finfo(y.dtype).tiny))
    return logits - jnp.mean(logits, axis=1, keepdims=True)


def check_labels(data: Dataset, num_classes: int, fitting: bool = True) -> Dataset:
    """Labels as integers in 0 … num_classes - 1; a fit needs at least two of them."""
    name = f"target {data.target!r}" if data.target else "y"
    if data.y is None:
        raise InputError("This model needs labels; pass Dataset(x, y).")
    labels = np.asarray(data.y)
    if labels.ndim != 1:
        raise InputError(f"Labels must be one number a row, but {name} has shape {labels.shape}.")
    wrong = (labels != np.floor(labels)) | (labels < 0) | (labels >= num_classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{name} is {labels[row]:g} in row {row}, but the model has the classes 0 to "
            f"{num_classes - 1}; encode labels as 0 … C-1 or give the model more classes."
        )
    present = np.unique(labels[np.asarray(data.weights) > 0])
    if fitting and present.size < 2:
        raise InputError(
            f"{name} holds a single class ({present[0]:g}); "
            "a classification posterior needs rows of at least two classes."
        )
    return eqx.tree_at(lambda d: d.y, data, jnp.asarray(labels.astype(np.int32)))


def check_values(data: Dataset, is_wrong: Callable[[np.ndarray], np.ndarray], what: str) -> Dataset:
    """Real labels, one per row, all of them finite numbers."""
    name = f"target {data.target!r}" if data.target else "y"
    if data.y is None:
        raise InputError("This model needs labels; pass Dataset(x, y).")
    values = np.asarray(data.y)
    if values.ndim != 1:
        raise InputError(f"Labels must be one number a row, but {name} has shape {values.shape}.")
    wrong = is_wrong(values)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{name} is {values[row]:g} in row {row}, which {what}.")
    return eqx.tree_at(lambda d: d.y, data, jnp.asarray(values, dtype=data.x.dtype))
