"""Columns of x that a model has no gradient for: group numbers, codes of categories, what it does not use.

The gradient is measured, at parameters and rows drawn at random; nothing here knows what kind of model it is.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import quick_jit
from ..data.rows import Rows
from .base import Model, soft_log_likelihood

# Rows that are looked at, half of them moved by a standard deviation: where a product with another column
# stands still because that column is zero in most rows, it moves then. And sets of parameters.
ROWS, THETAS = 64, 4


def still_columns(model: Model, rows: Rows) -> tuple[int, ...]:
    """Columns whose entries the log-likelihood does not follow, whatever the parameters.

    >>> from coresetvi import Dataset
    >>> from coresetvi.models import FromCallables
    >>> def log_likelihood(theta, x, y):
    ...     group = x[:, 0].astype(int)
    ...     return -0.5 * (y - theta[group] - theta[3] * x[:, 1]) ** 2
    >>> model = FromCallables(lambda theta: -0.5 * theta @ theta, log_likelihood, jnp.zeros(4))
    >>> still_columns(model, Dataset([[0, 0.5], [1, -0.3], [2, 0.1]], [0.3, 1.2, 0.5]))
    (0,)
    """
    if len(rows.row_shape) != 1:
        return ()
    few = rows.sample(jax.random.key(0), ROWS)
    # One shape for all data sets with these columns: nothing compiles twice.
    few = few.take(np.resize(np.arange(len(few)), ROWS))
    generator = np.random.default_rng(0)
    moved = np.asarray(rows.scale()[1]) * generator.standard_normal(few.x.shape)
    moved[: ROWS // 2] = 0.0
    x = np.asarray(few.x) + moved.astype(few.x.dtype)
    found = np.asarray(stands_still(model, jnp.asarray(x), few.y))
    return tuple(np.flatnonzero(found).tolist())


@quick_jit
def stands_still(model: Model, x: Float[Array, "n k"], y: Array | None) -> Bool[Array, " k"]:
    """Whether the gradient is exactly zero, for every column; one that is not finite is not zero."""

    def slopes(key):
        start_key, noise_key = jax.random.split(key)
        theta = model.start(start_key)
        theta = theta + jax.random.normal(noise_key, theta.shape, theta.dtype)
        return jax.grad(lambda x: jnp.sum(soft_log_likelihood(model, theta, x, y)))(x)

    found = jax.vmap(slopes)(jax.random.split(jax.random.key(0), THETAS))
    return jnp.all(found == 0.0, axis=(0, 1))
