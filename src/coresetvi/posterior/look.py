"""A look around: particles that come from far away, to find what r and the coreset do not know of.

r sits where the fit has put it. Whether the coreset posterior, or the full one, has mass elsewhere can only
be seen from elsewhere: particles start from a normal as wide as the prior, and are led through tempered
densities to the coreset posterior, and beside that to the posterior of a few random rows that weigh as much
as all. Small runs, all in one compiled program.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiler import quick_jit
from ..data.dataset import Dataset, unchecked
from ..fitting.result import Fit
from ..inner.smc import wide_start
from ..inner.tempering import LEAPS, MOVES, temper
from ..models.base import Model
from ..models.log_joint import LogJoint
from ..models.sums import HEAVY, numbers_per_row

# Runs to the coreset posterior in one call, and one more to the posterior of random rows.
RUNS = 2
PARTICLES = 64
FEWEST_PARTICLES = 16
ROWS = 200
# Numbers that all forward passes of one call may make, if it takes a typical number of temperatures.
BUDGET, TYPICAL_TEMPERATURES = 2e10, 25


class Look(NamedTuple):
    """What particles from far away have found.

    `coreset` (runs, particles, dim) are of the coreset posterior, each run with its estimate of the logarithm
    of the evidence (relative to the likelihood at r's mean); `data` (particles, dim) of the posterior of
    random `rows` which stand for `scale` times as many. `center` is the middle of where they started.
    `arrived`: no run of the coreset's was still on its way when time was up.
    """

    coreset: np.ndarray
    log_evidence: np.ndarray
    data: np.ndarray
    center: np.ndarray
    rows: Dataset
    scale: float
    arrived: bool

    @property
    def particles(self) -> np.ndarray:
        """Of the coreset posterior, then of the data's, (n, dim)."""
        return np.concatenate([self.coreset.reshape(-1, self.data.shape[1]), self.data])


class Setting(NamedTuple):
    """All that a call of `temper_runs` needs but weights and keys."""

    rows: Dataset
    reference: Array
    center: Array
    width: Array
    particles: int


def particles_for(fit: Fit, num_rows: int) -> int:
    """How many particles a run can afford: none where one row is a lot of work."""
    numbers = numbers_per_row(fit.model, fit.coreset)
    if numbers >= HEAVY:
        return 0
    passes = (
        3 * (RUNS + 1) * MOVES * (LEAPS + 1) * TYPICAL_TEMPERATURES * math.sqrt(1.0 + fit.model.dim / 10.0)
    )
    count = int(BUDGET / (passes * num_rows * numbers + passes * fit.model.dim))
    return 0 if count < FEWEST_PARTICLES else min(count, PARTICLES)


def look_around(fit: Fit, some: Dataset, num_rows: float, key: PRNGKeyArray) -> tuple[Look, Setting] | None:
    """Both looks, with random rows of `some`, which stand for `num_rows`; None where that is too dear."""
    sample_key, prior_key, run_key = (jax.random.fold_in(key, number) for number in range(3))
    few = some.sample(sample_key, ROWS)
    count = particles_for(fit, len(few) + len(fit.coreset))
    if not count:
        return None
    center, width = wide_start(fit.model, fit.family, fit.psi, prior_key)
    labels = few.y
    if labels is not None and fit.coreset.y is not None and fit.coreset.y.ndim > labels.ndim:
        labels = jax.nn.one_hot(labels, fit.coreset.y.shape[1])
    scale = num_rows / len(few)
    few = unchecked(few.x, labels, jax.device_put(scale * np.asarray(few.weights)))
    own = fit.coreset
    both = joined(own, few)
    setting = Setting(both, fit.psi["mean"], center, width, count)
    weights = np.zeros((RUNS + 1, len(both)), np.asarray(both.weights).dtype)
    weights[:RUNS, : len(own)] = np.asarray(own.weights)
    weights[RUNS, len(own) :] = np.asarray(few.weights)
    keys = jax.random.split(run_key, RUNS + 1)
    thetas, evidence, temperatures = run(fit.model, setting, weights, keys)
    arrived = bool(np.all(temperatures[:RUNS] >= 1.0))
    found = Look(thetas[:RUNS], evidence[:RUNS], thetas[RUNS], np.asarray(center), few, scale, arrived)
    return found, setting


def joined(*parts: Dataset) -> Dataset:
    """Rows of several data sets; on the host, where nothing is compiled for it."""

    def join(name: str) -> Array | None:
        leaves = [getattr(part, name) for part in parts]
        if any(leaf is None for leaf in leaves):
            return None
        return jax.device_put(np.concatenate([np.asarray(leaf) for leaf in leaves]))

    x, weights = join("x"), join("weights")
    assert x is not None and weights is not None
    return unchecked(x, join("y"), weights)


def look_longer(fit: Fit, look: Look, setting: Setting, number: int, key: PRNGKeyArray) -> Look:
    """The same look with more runs to the coreset posterior, at least `number` particles in all."""
    weights = np.zeros((RUNS + 1, len(setting.rows)), np.asarray(setting.rows.weights).dtype)
    weights[:, : len(fit.coreset)] = np.asarray(fit.coreset.weights)
    parts, evidences, arrived = [look.coreset], [look.log_evidence], look.arrived
    while sum(part.shape[0] for part in parts) * setting.particles < number:
        keys = jax.random.split(jax.random.fold_in(key, len(parts)), RUNS + 1)
        thetas, evidence, temperatures = run(fit.model, setting, weights, keys)
        parts.append(thetas)
        evidences.append(evidence)
        arrived = arrived and bool(np.all(temperatures >= 1.0))
    return look._replace(
        coreset=np.concatenate(parts), log_evidence=np.concatenate(evidences), arrived=arrived
    )


def run(model: Model, setting: Setting, weights: np.ndarray, keys: Array):
    """`temper_runs`, with answers on the host."""
    found = temper_runs(model, *setting, jax.device_put(weights), keys)
    thetas, evidence, temperatures = (np.asarray(part) for part in found)
    return thetas, evidence.astype(np.float64), temperatures


@quick_jit
def temper_runs(
    model: Model,
    rows: Dataset,
    reference: Float[Array, " d"],
    center: Float[Array, " d"],
    width: Float[Array, " d"],
    particles: int,
    weights: Float[Array, "k n"],
    keys: Array,
) -> tuple[Array, Array, Array]:
    """Particles (k, p, d) of the posterior given rows of each weights, log-evidences, last temperatures."""

    def one(weights, key):
        log_joint = LogJoint(model, unchecked(rows.x, rows.y, weights), reference)
        found = temper(log_joint, center, width, particles, key)
        return found.thetas, found.log_evidence, found.temperature

    return jax.vmap(one)(weights, keys)
