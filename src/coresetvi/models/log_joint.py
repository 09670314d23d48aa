"""The log-density of a posterior, up to a constant, as a function of theta."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from .._compiler import quick_jit
from ..data.dataset import Dataset
from .base import Model
from .sums import log_likelihood_rises


class LogJoint(eqx.Module):
    """log p(theta) + sum_n weight_n log p(y_n | x_n, theta), less the likelihood's value at `reference`.

    Near the reference the terms are small, so that float32 has digits left for their differences.
    """

    model: Model
    data: Dataset
    reference: Float[Array, " d"]

    def __call__(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        rise = log_likelihood_rises(self.model, theta[None], self.reference, self.data)[1][0]
        return self.model.log_prior(theta) + rise

    def of_draws(self, thetas: Float[Array, "s d"]) -> Float[Array, " s"]:
        """The same at every draw, in bounded memory however many rows and draws there are."""
        return self.with_value(thetas)[1]

    @quick_jit
    def with_value(self, thetas: Float[Array, "s d"]) -> tuple[Float[Array, ""], Float[Array, " s"]]:
        """The likelihood's value at `reference`, and `of_draws`."""
        value, rises = log_likelihood_rises(self.model, thetas, self.reference, self.data)
        return value, jax.vmap(self.model.log_prior)(thetas) + rises
