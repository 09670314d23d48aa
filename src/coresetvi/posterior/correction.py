"""`correct`: from draws of a coreset posterior to the full posterior, by one pass over the data."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from .._checks import instance
from ..data.dataset import Dataset
from ..families.draws import Draws
from ..families.importance import khat_threshold, normalised_ess, smoothed_weights
from ..models.log_joint import LogJoint
from ..models.prediction import align


def correct(draws: Draws, data: Dataset) -> Draws:
    """The same draws, weighted so that they stand for the posterior given `data`.

    log w_s = log p(theta_s) + sum_n weight_n log p(y_n | x_n, theta_s) - log density that theta_s came from,
    Pareto-smoothed. The log-likelihood goes over the data once, in blocks. `about` of what is returned has
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
    log_w = data_log_ratios(draws, data)
    smooth, khat = smoothed_weights(log_w.ravel())
    # How the draws themselves were weighted, if by importance, is not what their correction is judged by.
    drawn = {name: draws.about[name] for name in ("khat", "khat_threshold", "ess") if name in draws.about}
    about: dict[str, object] = {
        "drawn": drawn,
        **draws.about,
        "khat": khat,
        "khat_threshold": khat_threshold(log_w.size),
        "ess": float(normalised_ess(jnp.exp(jnp.asarray(smooth)))),
        "corrected_to": len(data),
    }
    return dataclasses.replace(draws, log_weights=smooth.reshape(log_w.shape), about=about)


def data_log_ratios(draws: Draws, data: Dataset) -> np.ndarray:
    """Unnormalised log-weights (chains, draws) of the full posterior against what was drawn from."""
    instance("data", data, Dataset, "a Dataset(x, y)")
    data = draws.model.check(align(data, draws.data), fitting=False)
    thetas = jnp.asarray(draws.flat.reshape(-1, draws.flat.shape[-1]))
    rises = LogJoint(draws.model, data, jnp.asarray(draws.mean, thetas.dtype)).of_draws(thetas)
    return np.asarray(rises, np.float64).reshape(draws.flat.shape[:2]) - draws.log_density
