"""How the log-likelihood of many rows looks around one theta, and where a posterior has its mode.

A question is an anchor, a factor that says in which units to look (theta = anchor + factor @ units, one unit
being about one posterior deviation), and other thetas. The answer is a handful of numbers, however many rows
there are: slope and curvature at the anchor in those units, and how much larger the sum is at every other
theta. Numbers are summed in those units, not converted afterwards: nearly collinear columns cancel row by
row, while float32 still has the digits.

Newton's method for the mode needs nothing else. Every pass also asks at a few points between the last place
and this one. So a step that went too far is seen in the pass that follows it, and the best point on the way
is where the search goes on.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.dataset import Dataset
from ..data.rows import Rows
from .base import Model, soft_log_likelihood, weighted_log_likelihood
from .question import BACK, LocalView, Question
from .sums import BLOCK_NUMBERS, over_draws, sum_over_blocks

# Curvature, relative to the largest, that counts as the least: float32 knows no smaller.
LEAST_CURVATURE = 1e-6
# Nats that a step must promise to be worth another pass, and that a place may be worse by rounding.
WORTHWHILE, ROUNDING = 1e-3, 1e-2
MOST_PASSES = 60
# Units of the curvature at hand that one step may cross.
LONGEST_STEP = 1e3


def slope_and_curvature(
    rise_in_units: Callable[[Float[Array, " d"]], Float[Array, ""]], question: Question
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Slope at the anchor, and curvature from slopes one unit away on either side in every direction.

    Differences over the width of the posterior say more about it than the curvature at one point, and first
    derivatives make a program half the size of one for second derivatives.
    """
    eye = jnp.eye(question.anchor.shape[0], dtype=question.anchor.dtype)
    slopes = jax.vmap(jax.grad(rise_in_units))(jnp.concatenate([0.0 * eye[:1], eye, -eye]))
    onwards, backwards = jnp.split(slopes[1:], 2)
    curvature = 0.5 * (onwards - backwards)
    return slopes[0], 0.5 * (curvature + curvature.T)


class ViewOfRows(eqx.Module):
    """A `LocalView` of the rows it is given, as `Rows.total` wants it."""

    model: Model

    def __call__(self, rows: Dataset, question: Question) -> LocalView:
        dim, draws = question.anchor.shape[0], question.thetas.shape[0]
        block = max(1, BLOCK_NUMBERS // max(2 * dim + 1, draws))
        return sum_over_blocks(lambda part: self._of_block(part, question), rows, block)

    def _of_block(self, rows: Dataset, question: Question) -> LocalView:
        at_anchor = soft_log_likelihood(self.model, question.anchor, rows.x, rows.y)

        def rise(theta):
            return rows.weights @ (soft_log_likelihood(self.model, theta, rows.x, rows.y) - at_anchor)

        def rise_in_units(units):
            return rise(question.anchor + question.factor @ units)

        rises = over_draws(self.model, rows, rise, question.thetas)
        return LocalView(
            jnp.sum(rows.weights),
            rows.weights @ at_anchor,
            *slope_and_curvature(rise_in_units, question),
            rises,
        )


def slope_of_rows(model: Model, rows: Dataset, question: Question) -> Float[Array, " d"]:
    """The slope at the anchor alone, of rows that are few."""

    def total(units):
        return weighted_log_likelihood(model, question.anchor + question.factor @ units, rows)

    return jax.grad(total)(jnp.zeros_like(question.anchor))


def view_of(model: Model, rows: Rows, question: Question) -> LocalView:
    """What all rows answer, in one pass."""
    return rows.total(ViewOfRows(model), question)


def view_of_prior(model: Model, question: Question) -> LocalView:
    """The same of the log-prior."""

    def rise_in_units(units):
        return model.log_prior(question.anchor + question.factor @ units)

    value = model.log_prior(question.anchor)
    rises = jax.vmap(model.log_prior)(question.thetas) - value
    return LocalView(jnp.ones_like(value), value, *slope_and_curvature(rise_in_units, question), rises)


class Mode(NamedTuple):
    """The mode, a factor of the covariance that the curvature there gives, and how the search went."""

    theta: np.ndarray
    factor: np.ndarray
    passes: int
    found: bool


def find_mode(model: Model, rows: Rows, theta: np.ndarray, factor: np.ndarray) -> Mode:
    """The mode of the posterior given `rows`, searched from `theta`; `factor` says in which units at first.

    >>> from coresetvi.data.dataset import Dataset
    >>> from coresetvi.models.glm import LinearRegression
    >>> model, data = LinearRegression(1), Dataset([[1.0], [2.0]], [1.0, 2.0])
    >>> mode = find_mode(model, data, np.zeros(1), np.eye(1))
    >>> bool(abs(mode.theta[0] - model.posterior(data)[0][0]) < 1e-5), mode.found
    (True, True)
    """
    theta, factor, last = np.asarray(theta, np.float64), np.asarray(factor, np.float64), None
    for passes in range(1, MOST_PASSES + 1):
        question = ask_on_the_way(theta, factor, last)
        view, prior = view_of(model, rows, question), compiled_prior(model, question)
        heights = np.asarray(view.rises, np.float64) + np.asarray(prior.rises, np.float64)
        highest = np.max(heights, initial=-np.inf, where=np.isfinite(heights))
        fine = usable(view)
        if last is None and not fine:
            break
        if last is not None and (not fine or highest > ROUNDING):
            # Too far: on from the best point on the way here, or from near the last place.
            part = BACK[int(np.nanargmax(heights))] if fine else BACK[0]
            theta = theta + part * (last - theta)
            continue
        slope, step, finer = newton_step(view, prior, factor)
        promise = 0.5 * float(slope @ step)
        if promise < WORTHWHILE:
            return Mode(theta + factor @ step, triangular(finer), passes, True)
        last, theta = theta, theta + factor @ (step * min(1.0, LONGEST_STEP / np.abs(step).max()))
        factor = finer
    return Mode(theta, triangular(factor), MOST_PASSES, False)


def ask_on_the_way(theta: np.ndarray, factor: np.ndarray, last: np.ndarray | None) -> Question:
    """The question at `theta`, with thetas on the way back to the last place."""
    back = theta if last is None else last
    thetas = theta + np.outer(BACK, back - theta)
    return Question(*(jnp.asarray(part, jnp.result_type(float)) for part in (theta, factor, thetas)))


def newton_step(
    view: LocalView, prior: LocalView, factor: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slope and Newton step in the factor's units, and the factor that the curvature found here gives.

    Where the log-density curves upwards, the step follows the slope as if it curved downwards as much.
    """
    slope = np.asarray(view.slope, np.float64) + np.asarray(prior.slope, np.float64)
    precision = -np.asarray(view.curvature, np.float64) - np.asarray(prior.curvature, np.float64)
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    values = np.maximum(np.abs(values), LEAST_CURVATURE * np.abs(values).max())
    step = vectors @ ((vectors.T @ slope) / values)
    return slope, step, factor @ (vectors / np.sqrt(values))


def triangular(factor: np.ndarray) -> np.ndarray:
    """The lower triangular factor of the same covariance, with a positive diagonal."""
    _, upper = np.linalg.qr(factor.T)
    return upper.T * np.where(np.diagonal(upper) < 0, -1.0, 1.0)


def usable(view: LocalView) -> bool:
    """Whether the model has a value, a slope and a curvature at the anchor."""
    parts = (view.value, view.slope, view.curvature)
    return all(bool(np.all(np.isfinite(np.asarray(part)))) for part in parts)


@eqx.filter_jit
def compiled_prior(model: Model, question: Question) -> LocalView:
    """`view_of_prior`, compiled."""
    return view_of_prior(model, question)
