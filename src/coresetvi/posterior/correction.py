"""`correct`: from draws of a coreset posterior to the full posterior, by one pass over the data."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import instance
from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..families.draws import Draws
from ..families.importance import host_ess, khat_threshold, smoothed_weights
from ..fitting.compilation import make_room
from ..models.base import Model
from ..models.log_joint import LogJoint
from ..models.prediction import align
from ..models.row_checks import check_rows
from ..models.row_sums import rises_of

ROWS_WANTED = "a Dataset(x, y) or what coresetvi.scan returned"


def correct(draws: Draws, data: Rows) -> Draws:
    """The same draws, weighted so that they stand for the posterior given `data`.

    log w_s = log p(theta_s) + sum_n weight_n log p(y_n | x_n, theta_s) - log density that theta_s came from,
    Pareto-smoothed. The log-likelihood goes over the data once for all draws, in blocks; they need not be in
    memory (`coresetvi.scan`). `about` of what is returned has
    `khat` (above `khat_threshold` the draws do not reach far enough: enlarge the coreset) and `ess`, the
    share of the draws that still counts; its `mean`, `covariance`, `summary` and `to_arviz` are corrected.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=300, dim=2)
    >>> fit = cvi.fit(cvi.RandomSubset(100), cvi.models.LogisticRegression(2), train, key=0)
    >>> corrected = correct(cvi.sample(fit, method="variational"), train)
    >>> corrected.about["khat"] < corrected.about["khat_threshold"]
    True
    """
    instance("draws", draws, Draws, "what coresetvi.sample(fit) returned")
    instance("data", data, Rows, ROWS_WANTED)
    make_room()
    data = check_rows(draws.model, align(data, draws.data), fitting=False)
    log_w = data_log_ratios(draws, data)[1]
    smooth, khat = smoothed_weights(log_w.ravel())
    # How the draws themselves were weighted, if by importance, is not what their correction is judged by.
    drawn = {name: draws.about[name] for name in ("khat", "khat_threshold", "ess") if name in draws.about}
    about: dict[str, object] = {
        "drawn": drawn,
        **draws.about,
        "khat": khat,
        "khat_threshold": khat_threshold(log_w.size),
        "ess": host_ess(np.exp(smooth)),
        "corrected_to": len(data),
    }
    return dataclasses.replace(draws, log_weights=smooth.reshape(log_w.shape), about=about)


def data_log_ratios(draws: Draws, data: Rows) -> tuple[float, np.ndarray]:
    """The log-likelihood of the data at the draws' mean, and, measured from there, unnormalised log-weights
    (chains, draws) of the full posterior against what was drawn from. The model has checked the data."""
    thetas = jnp.asarray(draws.flat.reshape(-1, draws.flat.shape[-1]))
    value, rises = log_joints_at(draws.model, data, thetas, jnp.asarray(draws.mean, thetas.dtype))
    return float(value), np.asarray(rises, np.float64).reshape(draws.flat.shape[:2]) - draws.log_density


def log_joints_at(
    model: Model, rows: Rows, thetas: Float[Array, "s d"], reference: Float[Array, " d"]
) -> tuple[Array | np.ndarray, Array | np.ndarray]:
    """The log-likelihood of all rows at `reference`, and log-joints at all draws from there, in one pass."""
    if isinstance(rows, Dataset):
        return LogJoint(model, rows, reference).with_value(thetas)
    value, rises = rises_of(model, rows, thetas, reference)
    prior = np.asarray(log_priors(model, thetas), np.float64)
    return value, np.asarray(rises, np.float64) + prior


@quick_jit
def log_priors(model: Model, thetas: Float[Array, "s d"]) -> Float[Array, " s"]:
    """log p(theta) of every draw."""
    return jax.vmap(model.log_prior)(thetas)
