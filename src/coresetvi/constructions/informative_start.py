"""Starting points that say something about every direction of the posterior.

Random rows of an unbalanced table may not have a single entry in a rare column, and points that say nothing
about a direction have no gradient towards it either. What a row says is its score: the gradient of its
log-likelihood in units of the posterior, whatever the model is. First come rows whose scores add directions
to those chosen before, then rows in proportion to the length of their score, with weights that make up for
it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.dataset import Dataset
from ..models.base import Model, soft_log_likelihood

# Part of the points that go to new directions, and chance of a row that its score does not matter for.
NEW_DIRECTIONS, ANY_ROW = 0.5, 0.3
# Part of the scores' sum of squares below which nothing is left to be covered.
COVERED = 1e-8
# Rows whose scores are computed at once.
ROWS_AT_ONCE = 1024


def informative_rows(
    model: Model,
    rows: Dataset,
    size: int,
    anchor: np.ndarray,
    factor: np.ndarray,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of `size` rows, and their weights, which add up to that of all rows.

    `anchor` and `factor` are the posterior's mode and a factor of its covariance.
    """
    dtype = jnp.result_type(float)
    scores = np.asarray(
        scores_of(model, rows, jnp.asarray(anchor, dtype), jnp.asarray(factor, dtype)), np.float64
    )
    weights = np.asarray(rows.weights, np.float64)
    first = new_directions(scores * np.sqrt(weights)[:, None], int(NEW_DIRECTIONS * size), generator)
    length = weights * np.linalg.norm(scores, axis=1)
    chance = ANY_ROW * weights / weights.sum() + (1.0 - ANY_ROW) * length / max(length.sum(), 1e-300)
    chance[first] = 0.0
    chance /= chance.sum()
    rest = generator.choice(len(rows), size - len(first), replace=False, p=chance)
    # Rows of rare directions stand for themselves, the others for all the rest.
    standing = weights[rest] / chance[rest]
    standing *= (weights.sum() - weights[first].sum()) / standing.sum()
    return np.concatenate([first, rest]).astype(int), np.concatenate([weights[first], standing])


def new_directions(scores: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """Rows picked one by one, each with a chance in proportion to the part of it that is still new.

    >>> scores = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.1]])
    >>> 2 in new_directions(scores, 2, np.random.default_rng(0))
    True
    """
    left, picked = scores.copy(), []
    total = np.sum(left**2)
    for _ in range(min(most, scores.shape[1])):
        chance = np.sum(left**2, axis=1)
        chance[picked] = 0.0
        if not chance.sum() > COVERED * total:
            break
        row = int(generator.choice(len(chance), p=chance / chance.sum()))
        picked.append(row)
        direction = left[row] / np.linalg.norm(left[row])
        left -= np.outer(left @ direction, direction)
    return np.asarray(picked, dtype=int)


@eqx.filter_jit
def scores_of(
    model: Model, rows: Dataset, anchor: Float[Array, " d"], factor: Float[Array, "d d"]
) -> Float[Array, "n d"]:
    """The gradient of every row's log-likelihood at the anchor, in units of the factor."""

    def score(row):
        x, y = row

        def value(units):
            label = None if y is None else y[None]
            return soft_log_likelihood(model, anchor + factor @ units, x[None], label)[0]

        return jax.grad(value)(jnp.zeros_like(anchor))

    return jax.lax.map(score, (rows.x, rows.y), batch_size=min(ROWS_AT_ONCE, len(rows)))
