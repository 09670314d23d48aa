"""Places where the full posterior may have mass that draws of the coreset posterior never see.

Weights of draws say nothing about where there are none. Candidates for such places are particles of the
posterior of random rows that came from far away (`look.py`), and mirror images of r's mean: many models have
parameters whose sign hardly matters. The full log-density there, beside that at the draws, decides.
"""

import jax
import numpy as np
from jaxtyping import Array

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..fitting.result import Fit
from ..models.base import Model
from ..models.log_joint import LogJoint
from .chains import DENSE_DIM
from .look import Look
from .slopes import gradients_of

# Places that are looked at, always as many, so that there is one program; and those that are improved.
PLACES, IMPROVED = 24, 6
NEWTON_STEPS = 2


def places(fit: Fit, look: Look, distance: np.ndarray, data: Rows) -> np.ndarray:
    """PLACES thetas; `distance` is that of the look's particles of the data from r's mean, in r's units."""
    mean = np.asarray(fit.psi["mean"])
    dim = mean.shape[0]
    # The mode of a sample of the rows is off by sqrt(scale) standard deviations or so.
    typical = np.sqrt((1.0 + look.scale) * (dim + 4.0 * np.sqrt(2.0 * dim) + 10.0))
    strange = np.flatnonzero(distance > typical)
    found = []
    if strange.size and look.scale > 1.0 and dim <= DENSE_DIM:
        picked = strange[np.linspace(0, len(strange) - 1, IMPROVED).astype(int)]
        found.append(improved(fit.model, look.data[picked], look.rows, data))
    mirrored = np.concatenate([mean[None], np.where(np.eye(dim, dtype=bool)[: PLACES // 3], 0, mean)])
    mirrored[0] = 2.0 * look.center - mean
    for index in range(len(mirrored) - 1):
        mirrored[index + 1, index] = 2.0 * look.center[index] - mean[index]
    found.append(mirrored)
    order = np.argsort(-distance, kind="stable")
    # The furthest and, among the others, any.
    found.append(look.data[order])
    every = np.concatenate(found)
    return every[np.arange(PLACES) % len(every)].astype(mean.dtype)


def improved(model: Model, thetas: np.ndarray, rows: Dataset, data: Rows) -> np.ndarray:
    """Closer to modes of the full posterior by Newton's method, with the curvature of the random rows."""
    for _ in range(NEWTON_STEPS):
        slopes = gradients_of(model, data, jax.device_put(thetas))
        curvature = -np.asarray(hessians(model, rows, jax.device_put(thetas)), np.float64)
        steps = [newton_step(one, slope) for one, slope in zip(curvature, slopes, strict=True)]
        thetas = (thetas + np.stack(steps)).astype(thetas.dtype)
    return thetas


def newton_step(curvature: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Uphill, however the surface curves; nowhere if there is nothing to go by."""
    if not (np.all(np.isfinite(curvature)) and np.all(np.isfinite(slope))):
        return np.zeros_like(slope)
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    values = np.maximum(np.abs(values), 1e-6 * np.abs(values).max() + 1e-30)
    return vectors @ ((vectors.T @ slope) / values)


@quick_jit
def hessians(model: Model, rows: Dataset, thetas: Array) -> Array:
    """Second derivatives of the log-density of the posterior given `rows` at every theta."""
    return jax.lax.map(jax.hessian(LogJoint(model, rows, thetas[0])), thetas)
