"""Regression models: a linear predictor and an observation model."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError
from .base import Model, check_inputs, normal_log_prior
from .likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson


class LinearPredictor(Model):
    """output = x @ coef + intercept, coefficients N(0, prior_scale^2); subclasses name the response."""

    num_features: int
    intercept: bool
    prior_scale: float
    likelihood: eqx.AbstractVar[Likelihood]

    def __check_init__(self):
        if self.num_features < 1:
            raise InputError(f"A model needs at least one column, not {self.num_features}.")
        if not self.prior_scale > 0:
            raise InputError(f"prior_scale must be positive, not {self.prior_scale}.")

    @property
    def dim(self):
        return (self.num_features + self.intercept) * self.likelihood.output_size

    def _matrix(self, theta):
        return theta.reshape(self.num_features + self.intercept, self.likelihood.output_size)

    def _output(self, theta, x):
        matrix = self._matrix(theta)
        output = x @ matrix[: self.num_features]
        return output + matrix[self.num_features] if self.intercept else output

    def log_prior(self, theta):
        return normal_log_prior(theta, self.prior_scale)

    def log_likelihood(self, theta, x, y):
        return self.likelihood.log_prob(self._output(theta, x), y)

    def moments(self, theta, x):
        return self.likelihood.moments(self._output(theta, x))

    def start(self, key):
        return jnp.zeros(self.dim)

    def params(self, theta):
        matrix = self._matrix(theta)
        if self.likelihood.output_size == 1:
            matrix = matrix[:, 0]
        params = {"coef": matrix[: self.num_features]}
        if self.intercept:
            params["intercept"] = matrix[self.num_features]
        return params

    def check(self, data, *, fitting=True):
        check_inputs(data, (self.num_features,))
        return self.likelihood.check(data, fitting)


@register
class LogisticRegression(LinearPredictor):
    """Binary labels 0 / 1.

    >>> LogisticRegression(3, intercept=True).dim
    4
    """

    likelihood: Likelihood = eqx.field(init=False)
    num_classes: int | None = eqx.field(init=False)

    def __init__(self, num_features: int, *, intercept: bool = False, prior_scale: float = 1.0):
        self.num_features, self.intercept, self.prior_scale = num_features, intercept, prior_scale
        self.likelihood = Bernoulli()
        self.num_classes = 2


@register
class SoftmaxRegression(LinearPredictor):
    """Labels 0 … num_classes - 1; one coefficient vector per class.

    >>> SoftmaxRegression(3, num_classes=4).params(jnp.zeros(12))["coef"].shape
    (3, 4)
    """

    likelihood: Likelihood = eqx.field(init=False)
    num_classes: int | None

    def __init__(
        self,
        num_features: int,
        num_classes: int | None,
        *,
        intercept: bool = False,
        prior_scale: float = 1.0,
    ):
        self.num_features, self.intercept, self.prior_scale = num_features, intercept, prior_scale
        self.likelihood = Categorical(num_classes)
        self.num_classes = num_classes


@register
class PoissonRegression(LinearPredictor):
    """Counts with a log-linear rate.

    >>> doubling = jnp.log(jnp.asarray([2.0]))
    >>> mean, variance = PoissonRegression(1).moments(doubling, jnp.asarray([[1.0], [3.0]]))
    >>> mean.round(3).tolist()
    [2.0, 8.0]
    """

    likelihood: Likelihood = eqx.field(init=False)
    num_classes: int | None = eqx.field(init=False)

    def __init__(self, num_features: int, *, intercept: bool = False, prior_scale: float = 1.0):
        self.num_features, self.intercept, self.prior_scale = num_features, intercept, prior_scale
        self.likelihood = Poisson()
        self.num_classes = None


@register
class LinearRegression(LinearPredictor):
    """Real labels with known noise; the posterior and the evidence have closed forms.

    >>> data = Dataset([[1.0], [2.0]], [1.0, 2.0])
    >>> mean, covariance = LinearRegression(1).posterior(data)
    >>> mean.round(3), covariance.round(3)
    (array([0.833]), array([[0.167]]))
    """

    noise: float
    likelihood: Likelihood = eqx.field(init=False)
    num_classes: int | None = eqx.field(init=False)

    def __init__(
        self,
        num_features: int,
        *,
        noise: float = 1.0,
        intercept: bool = False,
        prior_scale: float = 1.0,
    ):
        self.num_features, self.intercept, self.prior_scale = num_features, intercept, prior_scale
        self.noise = noise
        self.likelihood = Gaussian(noise)
        self.num_classes = None

    def posterior(self, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """Exact posterior mean and covariance given weighted data, in float64.

        covariance = (X^T V X / noise^2 + I / prior_scale^2)^-1,  mean = covariance X^T V y / noise^2
        """
        design, labels, weights = self._design(data)
        precision = (design.T * weights) @ design / self.noise**2
        precision += np.eye(self.dim) / self.prior_scale**2
        covariance = np.linalg.inv(precision)
        return covariance @ (design.T @ (weights * labels)) / self.noise**2, covariance

    def log_evidence(self, data: Dataset) -> float:
        """log of the integral of p(theta) prod_n p(y_n | x_n, theta)^weight_n, in nats.

        The log-joint is exactly quadratic, so the integral is its value at the mean times a Gaussian volume.
        """
        design, labels, weights = self._design(data)
        mean, covariance = self.posterior(data)
        log_two_pi = math.log(2.0 * math.pi)
        residual = (labels - design @ mean) / self.noise
        log_joint = -0.5 * np.sum(weights * (residual**2 + log_two_pi + 2 * math.log(self.noise)))
        log_joint -= 0.5 * np.sum((mean / self.prior_scale) ** 2)
        log_joint -= self.dim * (0.5 * log_two_pi + math.log(self.prior_scale))
        log_volume = 0.5 * (self.dim * log_two_pi + np.linalg.slogdet(covariance)[1])
        return float(log_joint + log_volume)

    def _design(self, data):
        x = np.asarray(data.x, dtype=np.float64)
        if self.intercept:
            x = np.column_stack([x, np.ones(len(x))])
        return x, np.asarray(data.y, dtype=np.float64), np.asarray(data.weights, dtype=np.float64)
