"""`FromCallables`: any model from two functions of the user's own parameters."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from ..errors import InputError
from .base import Model, Theta
from .likelihoods import check_labels


def is_numeric(leaf: object) -> bool:
    """Whether a leaf of the user's parameters holds numbers; True and False are switches."""
    return eqx.is_array_like(leaf) and not jnp.issubdtype(jnp.result_type(leaf), jnp.bool_)


class FromCallables(Model):
    """Any model from two functions of the user's own parameter pytree.

    `log_prior(params)` is a scalar; `log_likelihood(params, x, y)` gives one number per row. `init` is an
    example of the parameters, any pytree: its structure and shapes are kept and the search starts there. Its
    numbers become floating-point parameters; anything else, such as a function, text or True, stays as it is.
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
    rest: PyTree  # what of the parameters' tree is no number
    initial: Theta
    num_classes: int | None

    def __init__(
        self,
        log_prior: Callable[[PyTree], Array],
        log_likelihood: Callable[[PyTree, Array, Array | None], Array],
        init: PyTree,
        *,
        predict: Callable[[PyTree, Array], Array | tuple[Array, Array]] | None = None,
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
