"""Plain inference on rows that are not in memory: a few passes instead of thousands of steps.

Both plans begin at the mode, found by Newton's method. Variational inference goes on from there with draws of
r in fixed noise: one pass gives the slopes of the log-posterior at all of them, in units of r. Their mean is
the slope of the bound in r's mean, and by Stein's identity their mean product with the noise is the expected
curvature, whose inverse is the covariance that r should have.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._info import Info
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..data.samples import sample_of
from ..errors import InputError
from ..families.base import EXACT_CURVATURE_DIM, Family, Psi, draw_noise
from ..families.gaussian import FullRank, MeanField
from ..families.initial import start_family
from ..inner.base import InnerInfo
from ..models.base import Model
from ..models.local_view import Mode, find_mode
from ..models.row_sums import SlopesOfRows, rises_of
from .base import Construction
from .plain_state import PlainPlan, PlainState, plain_info
from .schedule import Schedule, fixed_schedule

FEWEST_DRAWS, LAPLACE_DRAWS = 64, 32
MOST_PASSES = 30
# In nats: an improvement of the bound that is worth another pass.
WORTHWHILE = 1e-3
# How much wider or narrower, in variance, r may become in one pass.
WIDEST = 10.0


class BoundTrail(eqx.Module):
    """What is carried from pass to pass: the noise of the draws, and the best r so far.

    `height` is its bound less the log-likelihood at `reference`, which is large and always the same.
    """

    noise: Float[Array, "s d"]
    reference: Float[Array, " d"]
    best: Psi
    height: Float[Array, ""]


class PlainPassPlan(PlainPlan):
    """What the two plans share. The points of a fit are a sample that weighs what all rows do.

    A fit needs points to be saved, and to know its columns by; r is that of all rows.
    """

    by_passes: ClassVar[bool] = True

    def sample_mode(self, sample: Dataset, key: PRNGKeyArray) -> Mode:
        """The mode that the sample alone would have, from where the search begins."""
        psi = start_family(FullRank(), self.model, sample, key)
        mean, factor = np.asarray(psi["mean"]), np.asarray(psi["factor"])
        return find_mode(self.model, sample, mean, factor)


class LaplaceByPasses(PlainPassPlan):
    """One step: Newton's method on all rows, and a last pass for the bound."""

    construction: Construction
    model: Model
    data: Rows
    family: Family

    @property
    def default_steps(self):
        return 1

    def schedule(self, num_steps):
        return fixed_schedule(num_steps or self.default_steps)

    def start(self, key, initial=None):
        points_key, theta_key = jax.random.split(key)
        sample = sample_of(self.data, points_key)
        mode = self.sample_mode(sample, theta_key)
        return PlainState(sample, normal_member(self.family, mode), as_floats(mode.theta, mode.factor))

    def step(self, state: PlainState, index, scale, key):
        theta, factor = state.optimizer
        mode = find_mode(self.model, self.data, np.asarray(theta), np.asarray(factor))
        psi = normal_member(self.family, mode)
        thetas, proposal = self.family.draw(psi, key, LAPLACE_DRAWS, self.model.dim)
        value, rises = rises_of(self.model, self.data, thetas, jnp.asarray(mode.theta, thetas.dtype))
        inner = InnerInfo(jnp.zeros(()), jnp.asarray(mode.passes), jnp.asarray(mode.found))
        info = info_of(self.model, value, rises, thetas, proposal, inner)
        return PlainState(state.points, psi, as_floats(mode.theta, mode.factor)), info


class VariationByPasses(PlainPassPlan):
    """Newton steps on mean and covariance of r, each from one pass."""

    construction: Construction
    model: Model
    data: Rows
    family: Family
    num_samples: int

    @property
    def default_steps(self):
        return MOST_PASSES

    def schedule(self, num_steps):
        most = num_steps or self.default_steps
        return fixed_schedule(most)._replace(decay_start=most, decided=bool(num_steps))

    def decide(self, schedule: Schedule, losses: np.ndarray, kl: np.ndarray) -> Schedule:
        """The end, once a pass has changed the bound by next to nothing."""
        if schedule.decided or len(losses) < 2 or np.any(np.abs(losses[-1] - losses[-2]) > WORTHWHILE):
            return schedule
        return schedule._replace(end=len(losses), decay_start=len(losses), decided=True)

    def start(self, key, initial=None):
        points_key, theta_key, noise_key = jax.random.split(key, 3)
        sample = sample_of(self.data, points_key)
        guess = self.sample_mode(sample, theta_key)
        mode = find_mode(self.model, self.data, guess.theta, guess.factor)
        psi = normal_member(self.family, mode)
        noise = draw_noise(noise_key, self.num_samples, self.model.dim)
        reference = jnp.asarray(mode.theta, noise.dtype)
        return PlainState(sample, psi, BoundTrail(noise, reference, psi, jnp.asarray(-jnp.inf, noise.dtype)))

    def step(self, state: PlainState, index, scale, key):
        trail: BoundTrail = state.optimizer
        psi, family = state.psi, self.family
        factor, noise = family.factor(psi), trail.noise
        value, rises, slopes = self.data.total(
            SlopesOfRows(self.model), trail.reference, psi["mean"], factor, noise
        )
        thetas, proposal, prior, prior_slopes = seen_from(self.model, family, psi, factor, noise)
        slopes = np.asarray(slopes, np.float64) + np.asarray(prior_slopes, np.float64)
        height = float(np.mean(np.asarray(rises, np.float64) + np.asarray(prior - proposal, np.float64)))
        slope, precision = slopes.mean(axis=0), expected_precision(slopes, np.asarray(noise, np.float64))
        norm = jnp.asarray(np.linalg.norm(slope), noise.dtype)
        inner = InnerInfo(norm, jnp.asarray(1), jnp.asarray(True))
        info = info_of(self.model, value, rises, thetas, proposal, inner)
        if not height > float(trail.height) - WORTHWHILE:
            # Too far: half of the way back.
            psi = jax.tree.map(lambda best, tried: 0.5 * (best + tried), trail.best, psi)
            return PlainState(state.points, psi, trail), info
        trail = BoundTrail(noise, trail.reference, psi, jnp.asarray(height, noise.dtype))
        return PlainState(state.points, newton_member(family, psi, slope, precision), trail), info

    def extract(self, state: PlainState):
        # What was asked about is what is given.
        return self.points(state), state.optimizer.best


def check_for_passes(construction: Construction, model: Model, family: Family | None) -> None:
    """Refuse what a few passes cannot do: very many parameters, or another r than these two."""
    name = type(construction).__name__
    if model.dim > EXACT_CURVATURE_DIM:
        raise InputError(
            f"{name} on rows that are not in memory is for at most {EXACT_CURVATURE_DIM} parameters, "
            f"and this model has {model.dim}; fit a coreset with BBPSVI, or pass a Dataset."
        )
    if family is not None and not isinstance(family, FullRank | MeanField):
        raise InputError(
            f"{name} on rows that are not in memory fits FullRank() or MeanField(), "
            f"not {type(family).__name__}; choose one of these, or pass a Dataset."
        )


def rows_to_choose_from(rows: Rows, size: int, key: PRNGKeyArray) -> Dataset:
    """A sample from which `size` rows can be chosen, every class among them; it weighs what all rows do."""
    return sample_of(rows, key, 4 * size)


def normal_member(family: Family, mode: Mode) -> Psi:
    """The member at the mode with the precision that the curvature there gives."""
    mean, factor = as_floats(mode.theta, mode.factor)
    if family.any_covariance:
        return family.around(mean, factor)
    psi = family.init(mean, jnp.linalg.norm(factor, axis=1))
    inverse = np.linalg.inv(mode.factor)
    return with_precision(family, psi, inverse.T @ inverse)


def newton_member(family: Family, psi: Psi, slope: np.ndarray, precision: np.ndarray) -> Psi:
    """r after a Newton step, given slope and expected precision in units of its factor."""
    values, vectors = np.linalg.eigh(precision)
    values = np.clip(values, 1.0 / WIDEST, WIDEST)
    step = vectors @ ((vectors.T @ slope) / values)
    factor = np.asarray(family.factor(psi), np.float64)
    inverse = np.linalg.inv(factor)
    moved = {**psi, "mean": psi["mean"] + jnp.asarray(factor @ step, psi["mean"].dtype)}
    return with_precision(family, moved, inverse.T @ (vectors * values) @ vectors.T @ inverse)


def with_precision(family: Family, psi: Psi, precision: np.ndarray) -> Psi:
    """The member with the mean of `psi` and this precision of theta, as near as the family comes to it."""
    zero = family.zero(psi)
    # In the units in which the family measures steps of its mean, where no number is very large.
    units = jax.jacobian(lambda step: family.move(psi, {**zero, "mean": step})["mean"])(zero["mean"])
    scaled = np.asarray(units, np.float64).T @ precision @ np.asarray(units, np.float64)
    matrix = jnp.asarray(scaled, psi["mean"].dtype)
    return family.with_curvature(psi, lambda vector: matrix @ vector)[0]


def expected_precision(slopes: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """-E[d slope / d noise] = -E[slope noise^T], by Stein's identity.

    >>> noise = np.array([[1.0], [-1.0]])
    >>> expected_precision(-4.0 * noise + 3.0, noise)
    array([[4.]])
    """
    product = slopes.T @ noise / len(noise)
    return -0.5 * (product + product.T)


@eqx.filter_jit
def seen_from(model: Model, family: Family, psi: Psi, factor: Array, noise: Array):
    """Draws, their log-density, and log-prior with its slopes in units of `factor`."""

    def log_prior(unit):
        return model.log_prior(psi["mean"] + factor @ unit)

    prior, slopes = jax.vmap(jax.value_and_grad(log_prior))(noise)
    thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
    return thetas, proposal, prior, slopes


def info_of(model: Model, value, rises, thetas, proposal, inner: InnerInfo) -> Info:
    """The record of a pass; the loss is put together in double precision, for `value` may be large."""
    prior = jax.vmap(model.log_prior)(thetas)
    info = plain_info(jnp.asarray(rises), prior, proposal, inner)
    bound = np.mean(np.asarray(rises, np.float64) + np.asarray(prior - proposal, np.float64))
    return info._replace(loss=-(np.float64(value) + bound))


def as_floats(*parts: np.ndarray) -> tuple[Array, ...]:
    """Arrays of JAX's own float type."""
    return tuple(jnp.asarray(part, jnp.result_type(float)) for part in parts)
