"""A coreset posterior as a NumPyro model."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from .._checks import instance
from ..data.frames import optional
from ..fitting.result import Fit
from ..models.base import Model, weighted_log_likelihood
from ..models.glm import LinearPredictor
from ..models.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from ..models.numpyro import FromNumPyro
from .rows import fit_rows

# The label's distribution given the linear predictor of shape (n, output_size): one line per likelihood.
RESPONSES: dict[type, Callable[[Any, Any, Any], Any]] = {
    Bernoulli: lambda dist, likelihood, output: dist.Bernoulli(logits=output[:, 0]),
    Categorical: lambda dist, likelihood, output: dist.Categorical(logits=output),
    Gaussian: lambda dist, likelihood, output: dist.Normal(output[:, 0], likelihood.noise),
    Poisson: lambda dist, likelihood, output: dist.Poisson(jnp.exp(output[:, 0])),
}


def numpyro(fit: Fit) -> Callable[[], None]:
    """A NumPyro model, called without arguments, whose posterior is that of the coreset.

    A regression has the sites of `model.params` ("coef", "intercept") and "obs", whose rows count by their
    weights (`handlers.scale`). A model that was made from a NumPyro function is that function on the coreset.
    Any other has a single site "theta", the flat vector that `fit.model.params` turns into parameters.

        kernel = numpyro.infer.NUTS(export.numpyro(fit))
        mcmc = numpyro.infer.MCMC(kernel, num_warmup=500, num_samples=1000)
        mcmc.run(jax.random.key(0))

    >>> import coresetvi as cvi
    >>> data = cvi.Dataset([[-1.0], [1.0], [2.0]], [0, 1, 1])
    >>> fit = cvi.fit(cvi.SubsetLaplace(2), cvi.models.LogisticRegression(1), data, key=0)
    >>> import numpyro.handlers as handlers
    >>> sorted(handlers.trace(handlers.seed(numpyro(fit), 0)).get_trace())
    ['coef', 'obs', 'rows']
    """
    instance("fit", fit, Fit, "a fit such as coresetvi.load(path)")
    optional("numpyro", "export.numpyro")
    return _program(fit.model, fit)


@functools.singledispatch
def _program(model: Model, fit: Fit) -> Callable[[], None]:
    """Any model: a flat vector under its own density, which is all that the library knows of it."""
    import numpyro
    import numpyro.distributions as dist

    def program() -> None:
        support = dist.constraints.real_vector
        theta = jnp.asarray(numpyro.sample("theta", dist.ImproperUniform(support, (), (model.dim,))))
        numpyro.factor("prior", model.log_prior(theta))
        numpyro.factor("obs", weighted_log_likelihood(model, theta, fit.coreset))

    return program


@_program.register(LinearPredictor)
def _regression(model: LinearPredictor, fit: Fit) -> Callable[[], None]:
    """A regression in NumPyro's own words, if its likelihood has a line above."""
    import numpyro
    import numpyro.distributions as dist

    likelihood = model.likelihood
    respond = RESPONSES.get(type(likelihood))
    if respond is None:
        return _program.dispatch(Model)(model, fit)
    rows = fit_rows(fit)
    outputs = () if likelihood.output_size == 1 else (likelihood.output_size,)

    def coefficients(name: str, *shape: int) -> Array:
        prior = dist.Normal(0.0, model.prior_scale).expand(shape).to_event(len(shape))
        return jnp.asarray(numpyro.sample(name, prior))

    def program() -> None:
        output = rows.x @ coefficients("coef", model.num_features, *outputs)
        if model.intercept:
            output = output + coefficients("intercept", *outputs)
        output = output.reshape(len(rows), likelihood.output_size)
        with numpyro.plate("rows", len(rows)), numpyro.handlers.scale(scale=rows.weights):
            numpyro.sample("obs", respond(dist, likelihood, output), obs=rows.y)

    return program


@_program.register(FromNumPyro)
def _function(model: FromNumPyro, fit: Fit) -> Callable[[], None]:
    """The user's own function; sites that count rows are weighted along the axis on which the rows lie."""
    from numpyro import handlers
    from numpyro.primitives import Messenger

    rows, axes = fit_rows(fit), dict(model.layout.observed)
    arguments = (rows.x,) if rows.y is None else (rows.x, rows.y)

    class Weighted(Messenger):
        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "sample" and msg["name"] in axes:
                # Axes count from the end, so that a scale with as many trailing ones meets the rows.
                weights = rows.weights.reshape(-1, *[1] * (-1 - axes[msg["name"]]))
                handlers.scale(scale=weights).process_message(msg)

    def program() -> None:
        with Weighted():
            model.function(*arguments)

    return program
