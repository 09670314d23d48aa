"""The coreset as something to optimise: raw numbers in convenient units, and where they start.

Raw leaves are a dictionary: `x` locations in standardised units, `y` labels (class logits or standardised
values when learned, the labels themselves when not), `weights` raw numbers of the weight map, `total` the log
of the factor alpha; `active`, where there is one, is 1 for the slots in use and 0 for those still empty.
`learn` says which of them an optimiser moves; the rest are carried along unchanged.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import quick_jit
from ..data.dataset import Dataset, unchecked
from ..data.rows import Rows
from ..inner.base import Leaves
from ..models.likelihoods import HARD_LOGIT
from ..weights import WeightMap

# Rows from which the units of labels are taken where not all are in memory.
UNIT_ROWS = 20_000
LEARNABLE = ("x", "y", "weights", "total")


class Parametrisation(eqx.Module):
    """Units of the raw leaves: what turns them into a weighted data set."""

    weight_map: WeightMap
    num_classes: int | None
    soft_labels: bool
    learned_values: bool
    columns: tuple[str, ...] | None
    target: str | None
    mean: Array
    scale: Array
    y_mean: Float[Array, "..."]  # one number for every column of the labels
    y_scale: Float[Array, "..."]
    total: Float[Array, ""]

    def build(self, leaves: Leaves, indices: Array | None = None) -> Dataset:
        """The weighted (pseudo-)points that the raw leaves stand for."""
        y = leaves.get("y")
        if self.soft_labels:
            y = jax.nn.softmax(leaves["y"], axis=-1)
        elif self.learned_values and y is not None:
            y = self.y_mean + self.y_scale * y
        weights = self.weight_map(leaves["weights"], self.total) * jnp.exp(leaves["total"])
        if "active" in leaves:
            weights = weights * leaves["active"]
        return unchecked(
            self.mean + self.scale * leaves["x"],
            y,
            weights,
            columns=self.columns,
            target=self.target,
            indices=indices,
        )

    def project(self, leaves: Leaves) -> Leaves:
        """Leaves with the weight map's constraint enforced."""
        return {
            name: self.weight_map.project(leaf) if name == "weights" else leaf
            for name, leaf in leaves.items()
        }


def parametrise(
    data: Rows, weight_map: WeightMap, learn: frozenset[str], num_classes: int | None
) -> Parametrisation:
    """Units from the data: column means and scales, total weight."""
    mean, scale = data.scale()
    dtype = jnp.asarray(mean).dtype
    y_mean, y_scale = jnp.zeros(()), jnp.ones(())
    learns_labels = "y" in learn and data.labels() is not None
    if learns_labels and num_classes is None:
        # A unit may be off by a percent: a sample of rows that are not in memory will do.
        rows = data if isinstance(data, Dataset) else data.sample(jax.random.key(0), UNIT_ROWS)
        labels, weights = np.asarray(rows.y, np.float64), np.asarray(rows.weights, np.float64)
        center = np.average(labels, axis=0, weights=weights)
        spread = np.sqrt(np.average((labels - center) ** 2, axis=0, weights=weights))
        y_mean = jnp.asarray(center, dtype=dtype)
        y_scale = jnp.asarray(np.where(spread > 0, spread, 1.0), dtype=dtype)
    return Parametrisation(
        weight_map=weight_map,
        num_classes=num_classes,
        soft_labels=learns_labels and num_classes is not None,
        learned_values=learns_labels and num_classes is None,
        columns=data.columns,
        target=data.target,
        mean=jnp.asarray(mean, dtype=dtype),
        scale=jnp.asarray(scale, dtype=dtype),
        y_mean=y_mean,
        y_scale=y_scale,
        total=jnp.asarray(data.total_weight, dtype=dtype),
    )


def given_leaves(parametrisation: Parametrisation, coreset: Dataset) -> tuple[Leaves, Array | None]:
    """Raw leaves of a given coreset, and the rows it came from if it knows them."""
    x = (np.asarray(coreset.x) - np.asarray(parametrisation.mean)) / np.asarray(parametrisation.scale)
    # Maps that fix the total weight leave what the given one has above it to alpha.
    weights = parametrisation.weight_map(
        parametrisation.weight_map.init(coreset.weights, parametrisation.total), parametrisation.total
    )
    total = float(jnp.log(jnp.sum(coreset.weights) / jnp.sum(weights)))
    return raw_leaves(parametrisation, x, coreset.y, coreset.weights, total), coreset.indices


@quick_jit
def first_weights(weight_map: WeightMap, weights: Array, total: Array) -> Array:
    """What a weight map makes these weights of, as one program instead of six."""
    return weight_map.init(weights, total)


@quick_jit
def points_of(parametrisation: Parametrisation, leaves: Leaves, indices: Array | None = None) -> Dataset:
    """`Parametrisation.build`, compiled."""
    return parametrisation.build(leaves, indices)


def raw_leaves(
    parametrisation: Parametrisation, x: np.ndarray | Array, y: Array | None, weights: Array, total: float
) -> Leaves:
    """Raw leaves of points at `x` in standardised units, with these labels and weights."""
    # On the host as far as it goes: every operation on device arrays would be compiled for this one use.
    x = jnp.asarray(x, dtype=parametrisation.mean.dtype)
    leaves: Leaves = {"x": x, "total": jnp.asarray(total, dtype=x.dtype)}
    leaves["weights"] = first_weights(parametrisation.weight_map, weights, parametrisation.total)
    if y is not None:
        if parametrisation.soft_labels and y.ndim == 2:
            leaves["y"] = jnp.log(jnp.maximum(y, jnp.exp(-2.0 * HARD_LOGIT)))
        elif parametrisation.soft_labels:
            leaves["y"] = HARD_LOGIT * jax.nn.one_hot(y, parametrisation.num_classes or 0, dtype=x.dtype)
        elif parametrisation.learned_values:
            leaves["y"] = (y - parametrisation.y_mean) / parametrisation.y_scale
        else:
            leaves["y"] = y
    return leaves
