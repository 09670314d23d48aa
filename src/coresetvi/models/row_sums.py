"""Log-likelihoods and their slopes at many thetas, summed over rows wherever they are: one pass each."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..data.dataset import Dataset
from ..data.rows import Rows
from .base import Model, soft_log_likelihood
from .sums import BLOCK_NUMBERS, HEAVY, MOST_NUMBERS, log_likelihood_rises, numbers_per_row, sum_over_blocks


class RisesOfRows(eqx.Module):
    """`log_likelihood_rises` of the rows it is given, as `Rows.total` wants it."""

    model: Model

    def __call__(
        self, rows: Dataset, thetas: Float[Array, "s d"], reference: Float[Array, " d"]
    ) -> tuple[Float[Array, ""], Float[Array, " s"]]:
        return log_likelihood_rises(self.model, thetas, reference, rows)


class SlopesOfRows(eqx.Module):
    """The log-likelihood at `reference`, and its rises from there and slopes at anchor + factor @ units.

    Slopes are in those units: nearly collinear columns then cancel row by row, while float32 has the digits.
    """

    model: Model

    def __call__(
        self,
        rows: Dataset,
        reference: Float[Array, " d"],
        anchor: Float[Array, " d"],
        factor: Float[Array, "d d"],
        units: Float[Array, "s d"],
    ) -> tuple[Float[Array, ""], Float[Array, " s"], Float[Array, "s d"]]:
        numbers = numbers_per_row(self.model, rows)
        heavy = numbers >= HEAVY
        block = max(1, MOST_NUMBERS // numbers if heavy else BLOCK_NUMBERS // units.shape[0])

        def of_block(part: Dataset):
            at_reference = soft_log_likelihood(self.model, reference, part.x, part.y)

            def rise(unit):
                theta = anchor + factor @ unit
                return part.weights @ (soft_log_likelihood(self.model, theta, part.x, part.y) - at_reference)

            both = jax.value_and_grad(rise)
            found = jax.lax.map(both, units) if heavy else jax.vmap(both)(units)
            return part.weights @ at_reference, *found

        return sum_over_blocks(of_block, rows, block)


def rises_of(
    model: Model, rows: Rows, thetas: Float[Array, "s d"], reference: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " s"]]:
    """The log-likelihood of all rows at `reference`, and how much larger it is at every theta, in one pass.

    >>> from coresetvi.models.glm import LinearRegression
    >>> data = Dataset([[1.0], [2.0]], [1.0, 2.0])
    >>> rises_of(LinearRegression(1), data, jnp.asarray([[1.0], [0.0]]), jnp.ones(1))[1].tolist()
    [0.0, -2.5]
    """
    return rows.total(RisesOfRows(model), thetas, reference)


def slopes_of(model: Model, rows: Rows, thetas: Float[Array, "s d"]) -> Float[Array, "s d"]:
    """The gradient of the log-likelihood of all rows at every theta, in one pass.

    >>> from coresetvi.models.glm import LinearRegression
    >>> data = Dataset([[1.0], [2.0]], [1.0, 2.0])
    >>> slopes_of(LinearRegression(1), data, jnp.asarray([[1.0], [0.0]])).tolist()
    [[0.0], [5.0]]
    """
    return rows.total(SlopesOfRows(model), jnp.mean(thetas, axis=0), *plain_units(thetas), thetas)[2]


def plain_units(thetas: Float[Array, "s d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Anchor and factor with which units are thetas themselves."""
    dim = thetas.shape[1]
    return jnp.zeros(dim, thetas.dtype), jnp.eye(dim, dtype=thetas.dtype)
