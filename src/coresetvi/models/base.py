"""What the algorithms may ask of a model, and nothing else.

Inside, parameters are one flat vector `theta` of length `dim`; `params(theta)` gives the user's pytree back.
The contract that keeps everything black-box: `log_likelihood(theta, x, y) -> (n,)` is per datum, unweighted
and unscaled. Callers weight and scale.
"""

import abc
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..errors import InputError

if TYPE_CHECKING:
    from ..data.dataset import Dataset

Theta = Float[Array, " d"]


class Model(eqx.Module):
    """A differentiable Bayesian model of independent rows.

    >>> import coresetvi as cvi
    >>> model = cvi.models.LogisticRegression(2, intercept=True)
    >>> theta = jnp.asarray([1.0, -1.0, 0.5])
    >>> {name: leaf.tolist() for name, leaf in model.params(theta).items()}
    {'coef': [1.0, -1.0], 'intercept': 0.5}
    >>> model.log_likelihood(theta, jnp.ones((3, 2)), jnp.asarray([0, 1, 1])).shape  # one number per row
    (3,)
    """

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
    def moments(self, theta: Theta, x: Array) -> tuple[Float[Array, "n ..."], Float[Array, "n ..."]]:
        """Mean and variance of y for every row given theta: (n,), or (n, C) class probabilities."""

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray) -> Theta:
        """Where a search for the posterior may begin."""

    @abc.abstractmethod
    def params(self, theta: Theta) -> PyTree:
        """The flat vector as the user's own pytree of parameters."""

    @abc.abstractmethod
    def check(self, data: "Dataset", *, fitting: bool = True) -> "Dataset":
        """`data` ready for this model, or an InputError that names what is wrong.

        Data to score (`fitting=False`) may lack what a fit needs, such as a second class.
        """

    @property
    def has_flat_prior(self) -> bool:
        """Whether `log_prior` may be constant in some direction, so that few rows leave no posterior."""
        return False

    def check_x(self, x: Array, columns: tuple[str, ...] | None) -> None:
        """An InputError that names the row if there is one that the model cannot tell anything about."""
        return None


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


def weighted_log_likelihood(model: Model, theta: Float[Array, " d"], data: "Dataset") -> Float[Array, ""]:
    """sum_n weight_n log p(y_n | x_n, theta), for hard or soft labels."""
    return data.weights @ soft_log_likelihood(model, theta, data.x, data.y)


def check_inputs(data: "Dataset", shape: tuple[int, ...]) -> None:
    """Rows of x must have the shape that the model was made for."""
    if data.x.shape[1:] != shape:
        raise InputError(
            f"x has rows of shape {data.x.shape[1:]}, but the model was made for {shape}; "
            "make the model with the data's number of columns."
        )


def normal_log_prior(theta: Theta, scale: float | Theta) -> Float[Array, ""]:
    """log N(theta; 0, scale^2), constants included; `scale` is one for all or one for each."""
    return jnp.sum(jax.scipy.stats.norm.logpdf(theta, scale=scale))
