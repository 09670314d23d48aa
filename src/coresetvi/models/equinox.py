"""`FromEquinox`: a network written in Equinox, a prior on its parameters and a likelihood of its outputs."""

import numbers
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from ..errors import InputError
from .base import Model, Theta, normal_log_prior
from .likelihoods import Bernoulli, Gaussian, Likelihood, Poisson

WORDS = {"bernoulli": Bernoulli, "gaussian": Gaussian, "poisson": Poisson}


class FromEquinox(Model):
    """An Equinox module, called on one row of x at a time, whose output explains the label of the row.

    `likelihood` is an object of `models.likelihoods`, or "bernoulli", "gaussian" (noise 1) or "poisson". For
    classes it is `Categorical(num_classes)`: a module alone does not tell how many outputs it has.

    Parameters are all arrays of floating-point numbers in the module. `prior` is the standard deviation of a
    normal prior on each, or a tree of such numbers whose structure begins like the module's (one number may
    stand for a whole layer), or a function that gives the log-density of a module. The search starts at the
    module's own values.

    >>> network = eqx.nn.MLP(2, "scalar", width_size=8, depth=1, key=jax.random.key(0))
    >>> model = FromEquinox(network, "bernoulli")
    >>> model.dim, model.num_classes
    (33, 2)
    >>> model.params(jnp.zeros(33)).layers[0].weight.shape
    (8, 2)
    """

    likelihood: Likelihood
    rest: PyTree  # the module without its parameters
    unravel: Callable
    initial: Theta
    scales: Array | None
    prior_function: Callable | None
    num_classes: int | None

    def __init__(self, module: eqx.Module, likelihood: Likelihood | str, prior: PyTree = 1.0):
        check_module(module)
        self.likelihood = find_likelihood(likelihood)
        self.num_classes = self.likelihood.num_classes
        parameters, self.rest = eqx.partition(module, eqx.is_inexact_array)
        leaves = jax.tree.leaves(parameters)
        if not leaves or any(jnp.iscomplexobj(leaf) for leaf in leaves):
            raise InputError("module must have parameters, and all of them must be arrays of real numbers.")
        self.initial, self.unravel = ravel_pytree(jax.tree.map(jnp.asarray, parameters))
        # A module with numbers in place of layers is still callable; its type says that it is a tree.
        is_function = callable(prior) and type(prior) is not type(module)
        self.prior_function = prior if is_function else None
        self.scales = None if is_function else prior_scales(prior, parameters)
        if is_function and (shape := jax.eval_shape(self.log_prior, self.initial).shape) != ():
            raise InputError(f"prior must return one number for a module, but returned shape {shape}.")

    @property
    def dim(self):
        return self.initial.shape[0]

    def log_prior(self, theta):
        if self.prior_function is not None:
            return jnp.asarray(self.prior_function(self.params(theta)))
        assert self.scales is not None
        return normal_log_prior(theta, self.scales)

    def log_likelihood(self, theta, x, y):
        return self.likelihood.log_prob(self._output(theta, x), y)

    def moments(self, theta, x):
        return self.likelihood.moments(self._output(theta, x))

    def start(self, key):
        return self.initial

    def params(self, theta):
        return eqx.combine(self.unravel(theta), self.rest)

    def check(self, data, *, fitting=True):
        row = jax.ShapeDtypeStruct(data.x.shape[1:], data.x.dtype)
        try:
            shape = eqx.filter_eval_shape(lambda theta, x: self.params(theta)(x), self.initial, row).shape
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"module does not accept rows of shape {row.shape}: {reason}") from error
        size = self.likelihood.output_size
        if shape != (size,) and not (shape == () and size == 1):
            name = type(self.likelihood).__name__
            raise InputError(
                f"module gives an output of shape {shape} for a row, but {name} takes {size} "
                f"number{'s' * (size > 1)}; change its last layer or the likelihood."
            )
        return self.likelihood.check(data, fitting)

    def _output(self, theta, x):
        output = jax.vmap(self.params(theta))(x)
        return output.reshape(x.shape[0], self.likelihood.output_size)


def find_likelihood(likelihood: object) -> Likelihood:
    """A likelihood from itself or from its name."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    if isinstance(likelihood, str) and likelihood in WORDS:
        return WORDS[likelihood]()
    if likelihood == "categorical":
        raise InputError(
            "A module does not tell how many classes it has; pass likelihoods.Categorical(3), or as many "
            'as there are, instead of "categorical".'
        )
    raise InputError(
        f"likelihood must be one of {', '.join(WORDS)} or an object such as likelihoods.Categorical(3), "
        f"not {likelihood!r}."
    )


def check_module(module: object) -> None:
    """Refuse what is no module, and layers whose output depends on more than a row and the parameters."""
    if not (isinstance(module, eqx.Module) and callable(module)):
        raise InputError(
            f"module must be an Equinox module that can be called, not a {type(module).__name__}."
        )

    def is_special(node):
        # A Sequential is stateful if a layer of its is, and that layer is the one to name.
        stateful = isinstance(node, eqx.nn.StatefulLayer) and not isinstance(node, eqx.nn.Sequential)
        return isinstance(node, eqx.nn.Dropout) or (stateful and node.is_stateful())

    for layer in filter(is_special, jax.tree.leaves(module, is_leaf=is_special)):
        if not isinstance(layer, eqx.nn.Dropout):
            raise InputError(
                f"module has a {type(layer).__name__} layer, whose state joins rows; "
                "use a layer without state, such as LayerNorm."
            )
        if layer.p > 0 and layer.inference is not True:
            raise InputError(
                "module has a Dropout layer, which would make its likelihood random; "
                "pass eqx.nn.inference_mode(module)."
            )


def prior_scales(prior: PyTree, parameters: PyTree) -> Array:
    """One standard deviation for every entry of theta."""

    def fill(scale: PyTree, part: PyTree):
        def one(leaf):
            number = isinstance(scale, numbers.Real) or (eqx.is_array(scale) and scale.ndim == 0)
            if not number or isinstance(scale, bool) or not 0 < float(scale) < np.inf:
                raise InputError(f"prior must have positive numbers for scales, not {str(scale)[:40]!r}.")
            return jnp.full(leaf.shape, float(scale))

        return jax.tree.map(one, part)

    try:
        filled = jax.tree.map(fill, prior, parameters)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(
            "prior must be a number, a function, or a tree of numbers that begins like the module; "
            "make one with eqx.tree_at from the module."
        ) from error
    return ravel_pytree(filled)[0]
