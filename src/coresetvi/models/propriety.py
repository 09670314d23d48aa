"""Whether flat priors and few rows leave a posterior without an integral.

Where neither the prior nor any row has a slope along some direction, at whatever parameters, the posterior is
constant along it. So slopes are taken at random parameters, and the directions that they span are counted.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from .base import Model, soft_log_likelihood

# Beyond that many parameters the count would take longer than it is worth.
MOST_DIM = 1000
# Singular values below this share of the largest are rounding errors.
ROUNDING = 1e-5
# Rows of the data that are asked how many directions a single one can tell about.
ASKED = 5


def need_proper(model: Model, points: Dataset) -> None:
    """Refuse weighted points that, with a flat prior, leave some direction of the parameters undetermined."""
    if not model.has_flat_prior or model.dim > MOST_DIM:
        return
    points = points.take(np.flatnonzero(np.asarray(points.weights) > 0))
    slopes = row_slopes(model, points, -(-(model.dim + 10) // len(points)))
    rank = directions(np.concatenate([prior_slopes(model), slopes.reshape(-1, model.dim)]))
    if rank < model.dim:
        raise InputError(improper(len(points), model.dim, model.dim - rank))


def need_enough_points(model: Model, rows: Rows, size: int) -> None:
    """Refuse a size for which, with a flat prior, no choice of points gives a proper posterior."""
    if not model.has_flat_prior or model.dim > MOST_DIM:
        return
    some = row_slopes(model, rows.sample(jax.random.key(0), ASKED), model.dim + 10)
    # What the first row tells beside the prior, such as of a scale, is no news from the others.
    first = np.concatenate([prior_slopes(model), some[:, 0]])
    known = directions(first)
    news = [directions(np.concatenate([first, some[:, row]])) - known for row in range(1, some.shape[1])]
    rank = known + (size - 1) * max(news, default=0)
    if rank < model.dim:
        raise InputError(improper(size, model.dim, model.dim - rank))


def improper(size: int, dim: int, missing: int) -> str:
    """What to tell about a posterior that is constant along some directions."""
    return (
        f"{size} points leave {missing} of {dim} directions of the parameters undetermined, and the prior is "
        "flat there, so the posterior is not proper; use more points, or give the parameters priors."
    )


def directions(slopes: np.ndarray) -> int:
    """How many directions some slopes span, whatever the units of the parameters."""
    lengths = np.linalg.norm(slopes.astype(np.float64), axis=0)
    values = np.linalg.svd(slopes / np.where(lengths > 0, lengths, 1.0), compute_uv=False)
    return int(np.sum(values > ROUNDING * max(float(values[0]), 1e-30)))


def some_thetas(model: Model, number: int) -> jax.Array:
    """Parameters about the start, where a model's density should be defined."""
    start_key, key = jax.random.split(jax.random.key(0))
    return model.start(start_key) + 0.5 * jax.random.normal(key, (number, model.dim))


def prior_slopes(model: Model) -> np.ndarray:
    """The prior's slopes at twice as many parameters as there are directions."""
    return finite(_prior_slopes(model, some_thetas(model, 2 * model.dim)))


def row_slopes(model: Model, rows: Dataset, number: int) -> np.ndarray:
    """Every row's slope at some parameters, (parameters, rows, dim)."""
    return finite(_row_slopes(model, rows, some_thetas(model, number)))


def finite(slopes: jax.Array) -> np.ndarray:
    """Slopes that are numbers; the others tell nothing."""
    return np.nan_to_num(np.asarray(slopes), nan=0.0, posinf=0.0, neginf=0.0)


@quick_jit
def _prior_slopes(model, thetas):
    return jax.vmap(jax.grad(model.log_prior))(thetas)


@quick_jit
def _row_slopes(model, rows, thetas):
    def of_one(theta, row):
        one = jax.tree.map(lambda leaf: leaf[None], row)
        return soft_log_likelihood(model, theta, *one)[0]

    return jax.vmap(lambda theta: jax.vmap(lambda row: jax.grad(of_one)(theta, row))((rows.x, rows.y)))(
        jnp.asarray(thetas)
    )
