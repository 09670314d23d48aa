"""What the algorithms may ask of a model, and nothing else.

Inside, parameters are one flat vector `theta` of length `dim`; `params(theta)` gives the user's pytree back.
The contract that keeps everything black-box: `log_likelihood(theta, x, y) -> (n,)` is per datum, unweighted
and unscaled. Callers weight and scale.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from ..data import Dataset
from ..errors import InputError
from .likelihoods import Moments, check_labels

Theta = Float[Array, " d"]


class Model(eqx.Module):
    """A differentiable Bayesian model of independent rows."""

    num_classes: eqx.AbstractVar[int | None]

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Length of the flat parameter vector."""

    @abc.abstractmethod
    def log_prior(self, theta: Theta) -> Float[Array, ""]:
        """log p(theta), every parameter included."""

    @abc.abstractmethod
    def log_likelihood(self, theta: Theta, x: Array, y: Array | None) -> Float[Array, " n"]:
        """log p(y_n | x_n, theta) for every row."""

    @abc.abstractmethod
    def moments(self, theta: Theta, x: Array) -> Moments:
        """Mean and variance of y for every row given theta: (n,), or (n, C) class probabilities."""

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray) -> Theta:
        """Where a search for the posterior may begin."""

    @abc.abstractmethod
    def params(self, theta: Theta) -> Any:
        """The flat vector as the pytree that the user thinks in."""

    @abc.abstractmethod
    def check(self, data: Dataset, *, fitting: bool = True) -> Dataset:
        """`data` ready for this model, or an InputError that names what is wrong.

        Data to score (`fitting=False`) may lack what a fit needs, such as a second class.
        """


def soft_log_likelihood(model: Model, theta: Theta, x: Array, y: Array | None) -> Float[Array, " n"]:
    """`log_likelihood`, also for labels that are probabilities over classes (Supp. A).

    A soft label z_m contributes sum_c z_mc log p(c | u_m, theta): normalised over *classes*, never over
    points. Only `y` differs between the classes, so XLA runs the model's forward pass once.
    """
    if y is None or y.ndim == 1 or model.num_classes is None:
        return model.log_likelihood(theta, x, y)

    def of_class(label):
        return model.log_likelihood(theta, x, jnp.full(x.shape[0], label))

    by_class = jax.vmap(of_class)(jnp.arange(model.num_classes))
    return jnp.sum(y * by_class.T, axis=-1)


def check_inputs(data: Dataset, shape: tuple[int, ...]) -> None:
    """Rows of x must have the shape that the model was made for."""
    if data.x.shape[1:] != shape:
        raise InputError(
            f"x has rows of shape {data.x.shape[1:]}, but the model was made for {shape}; "
            "make the model with the data's number of columns."
        )


def normal_log_prior(theta: Theta, scale: float | Theta) -> Float[Array, ""]:
    """log N(theta; 0, scale^2), constants included; `scale` is one for all or one for each."""
    return jnp.sum(jax.scipy.stats.norm.logpdf(theta, scale=scale))


def is_numeric(leaf: Any) -> bool:
    """Whether a leaf of the user's parameters holds numbers; True and False are switches."""
    return eqx.is_array_like(leaf) and not jnp.issubdtype(jnp.result_type(leaf), jnp.bool_)


class FromCallables(Model):
    """Any model from two functions of the user's own parameter pytree.

    `log_prior(params)` is a scalar; `log_likelihood(params, x, y)` one number a row. `init` is an example of
    the parameters, any pytree: its structure and shapes are kept and the search starts there. Its numbers
    become floating-point parameters; what is none, such as a function, text or True, stays as it is.
    `predict(params, x)`, if given, returns the mean of y for each row, or a pair (mean, variance).

    >>> model = FromCallables(
    ...     log_prior=lambda p: -0.5 * jnp.sum(p["slope"] ** 2),
    ...     log_likelihood=lambda p, x, y: -0.5 * (y - x @ p["slope"]) ** 2,
    ...     init={"slope": jnp.zeros(3)},
    ... )
    >>> model.dim
    3
    """

    prior_function: Callable
    likelihood_function: Callable
    predict_function: Callable | None
    unravel: Callable
    rest: Any  # what of the parameters' tree is no number
    initial: Theta
    num_classes: int | None

    def __init__(
        self,
        log_prior: Callable[[Any], Array],
        log_likelihood: Callable[[Any, Array, Array | None], Array],
        init: Any,
        *,
        predict: Callable[[Any, Array], Any] | None = None,
        num_classes: int | None = None,
    ):
        parameters, self.rest = eqx.partition(init, is_numeric)
        floating = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=float), parameters)
        self.initial, self.unravel = ravel_pytree(floating)
        if self.initial.size == 0:
            raise InputError("init holds no numbers; give an example of the parameters.")
        self.prior_function = log_prior
        self.likelihood_function = log_likelihood
        self.predict_function = predict
        self.num_classes = num_classes

    @property
    def dim(self):
        return self.initial.shape[0]

    def log_prior(self, theta):
        return jnp.asarray(self.prior_function(self.params(theta)))

    def log_likelihood(self, theta, x, y):
        return self.likelihood_function(self.params(theta), x, y)

    def moments(self, theta, x):
        if self.predict_function is None:
            raise InputError("This model cannot predict; give FromCallables a predict= function.")
        answer = self.predict_function(self.params(theta), x)
        if isinstance(answer, tuple):
            return answer
        return answer, jnp.full_like(answer, jnp.nan)

    def start(self, key):
        return self.initial

    def params(self, theta):
        return eqx.combine(self.unravel(theta), self.rest)

    def check(self, data, *, fitting=True):
        if self.num_classes is not None:
            data = check_labels(data, self.num_classes, fitting)
        try:
            shape = jax.eval_shape(self.log_likelihood, self.initial, data.x, data.y).shape
        except (TypeError, ValueError) as error:
            first_line = str(error).splitlines()[0]
            raise InputError(f"log_likelihood does not accept these data: {first_line}") from error
        if shape != (len(data),):
            raise InputError(
                f"log_likelihood must return one number a row, shape ({len(data)},), "
                f"but returned shape {shape}; do not sum over rows."
            )
        prior_shape = jax.eval_shape(self.log_prior, self.initial).shape
        if prior_shape != ():
            raise InputError(f"log_prior must return a scalar, but returned shape {prior_shape}.")
        return data
