"""Gradients of the coreset posterior and of the full one at the draws: what importance weights cannot see.

Draws of a posterior that is too narrow never reach where the full one goes on, so their weights look even and
its KL small. Gradients do not have that blind spot: those of a normal are linear in theta, with its precision
as slope. A linear regression of gradients on the draws therefore finds the normal that each posterior looks
like from here, however narrow the draws are, and exactly if it is one. Both regressions share the draws, so
what their randomness adds cancels where the posteriors agree.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..families.draws import Draws
from ..models.base import Model
from ..models.log_joint import LogJoint
from ..models.row_sums import slopes_of
from .distances import gaussian_kl

# Draws that gradients are taken at, at least so many and so many a parameter.
FEWEST, PER_PARAMETER = 256, 4
# Samplers of the coreset posterior itself: their draws must be as wide as its slopes say, up to this factor
# (of variances), or it is no normal and its slopes describe none.
OWN, FACTOR = ("nuts", "hmc", "importance", "smc"), 3.0


def compare_slopes(draws: Draws, coreset: Dataset, data: Rows) -> dict[str, float]:
    """`gradient_kl` of the normals that the two posteriors look like, and `gradient_khat`.

    The latter is 1 - (smallest ratio of the coreset posterior's variance to the full one's): the k-hat of
    importance weights between two such normals. Empty if there are too few draws for the parameters, or if
    the coreset posterior does not look like a normal at all (more modes than one, or heavy tails).
    """
    flat = draws.flat.reshape(-1, draws.flat.shape[-1])
    dim = flat.shape[1]
    wanted = max(FEWEST, PER_PARAMETER * (dim + 1))
    if wanted > len(flat):
        return {}
    thetas = flat[np.linspace(0, len(flat) - 1, wanted).astype(int)].astype(np.float64)
    mean, scale = thetas.mean(axis=0), thetas.std(axis=0)
    if not np.all(scale > 0):
        return {}
    unit = (thetas - mean) / scale
    at = jnp.asarray(thetas, draws.flat.dtype)
    own, full = (gradients_of(draws.model, rows, at) * scale for rows in (coreset, data))
    (center, precision), (full_center, full_precision) = normal_view(unit, own), normal_view(unit, full)
    if not is_positive(precision) or (draws.method in OWN and not looks_normal(unit, own, precision)):
        return {}
    if not is_positive(full_precision):
        return {"gradient_kl": np.inf, "gradient_khat": 1.0}
    covariance, full_covariance = np.linalg.inv(precision), np.linalg.inv(full_precision)
    ratios = np.linalg.eigvals(full_precision @ covariance).real
    return {
        "gradient_kl": max(gaussian_kl(center, covariance, full_center, full_covariance), 0.0),
        "gradient_khat": float(1.0 - ratios.min()),
    }


def normal_view(points: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of the normal whose log-density has these gradients at these points.

    >>> points = np.array([[-1.0], [0.0], [1.0]])
    >>> normal_view(points, -4.0 * (points - 0.5))
    (array([0.5]), array([[4.]]))
    """
    design = np.column_stack([np.ones(len(points)), points])
    found = np.linalg.lstsq(design, slopes, rcond=None)[0]
    precision = -0.5 * (found[1:] + found[1:].T)
    return np.linalg.solve(precision, found[0]), precision


def looks_normal(points: np.ndarray, slopes: np.ndarray, precision: np.ndarray) -> bool:
    """Whether draws have about the covariance that slopes ask for, and slopes are more of a line than not.

    >>> points = np.random.default_rng(0).normal(size=(500, 2))
    >>> looks_normal(points, -points, np.eye(2)), looks_normal(points, -9 * points, 9 * np.eye(2))
    (True, False)
    """
    ratios = np.linalg.eigvals(precision @ np.atleast_2d(np.cov(points.T))).real
    # So many directions seen in so few draws have some that look narrow or wide by chance.
    most = FACTOR * (1.0 + math.sqrt(points.shape[1] / len(points))) ** 2
    rest = slopes - slopes.mean(axis=0) + (points - points.mean(axis=0)) @ precision
    straight = np.all(rest.var(axis=0) <= 0.5 * slopes.var(axis=0))
    return bool(straight and np.all(ratios < most) and np.all(ratios > 1.0 / most))


def is_positive(matrix: np.ndarray) -> bool:
    return bool(np.all(np.isfinite(matrix)) and np.linalg.eigvalsh(matrix).min() > 0)


def gradients_of(model: Model, rows: Rows, thetas: jax.Array) -> np.ndarray:
    """The gradient of the log-density of the posterior given `rows` at every draw, in one pass.

    >>> from coresetvi.models import LinearRegression
    >>> data = Dataset([[1.0], [2.0]], [1.0, 2.0])
    >>> gradients_of(LinearRegression(1), data, jnp.asarray([[1.0], [0.0]])).tolist()
    [[-1.0], [5.0]]
    """
    if isinstance(rows, Dataset):
        found = gradients(LogJoint(model, rows, jnp.mean(thetas, axis=0)), thetas)
        return np.asarray(found, np.float64)
    prior = np.asarray(prior_gradients(model, thetas), np.float64)
    return np.asarray(slopes_of(model, rows, thetas), np.float64) + prior


@quick_jit
def gradients(log_joint: LogJoint, thetas: jax.Array) -> jax.Array:
    """The gradient of the log-density at every draw, a few draws at a time."""
    return jax.lax.map(jax.grad(log_joint), thetas, batch_size=16)


@quick_jit
def prior_gradients(model: Model, thetas: jax.Array) -> jax.Array:
    """The gradient of the log-prior at every draw."""
    return jax.vmap(jax.grad(model.log_prior))(thetas)
