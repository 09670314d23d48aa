"""The coreset as something to optimise: raw numbers in convenient units, and where they start.

Raw leaves are a dictionary: `x` locations in standardised units (of the columns that may move; `fixed`, where
there is one, has the others as they are in the data), `y` labels (class logits or standardised
values when learned, the labels themselves when not), `weights` raw numbers of the weight map, `total` the log
of the factor alpha; `active`, where there is one, is 1 for the slots in use and 0 for those still empty.
`learn` says which of them an optimiser moves; the rest are carried along unchanged.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import quick_jit
from ..data.arrays import is_traced
from ..data.column_limits import Bounds, check_within
from ..data.dataset import Dataset, unchecked
from ..data.rows import Rows
from ..inner.base import Leaves
from ..models.likelihoods import HARD_LOGIT
from ..weights import WeightMap

# Rows from which the units of labels are taken where not all are in memory.
UNIT_ROWS = 20_000
# Leaves that say where points are.
Places = Mapping[str, Array | np.ndarray]
LEARNABLE = ("x", "y", "weights", "total")


class Parametrisation(eqx.Module):
    """Units of the raw leaves: what turns them into a weighted data set."""

    weight_map: WeightMap
    num_classes: int | None
    soft_labels: bool
    learned_values: bool
    columns: tuple[str, ...] | None
    target: str | None
    still: tuple[int, ...] = eqx.field(static=True)  # columns that do not move
    bounds: Bounds = eqx.field(static=True)  # of columns, in the data's units
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
            self.locations(leaves),
            y,
            weights,
            columns=self.columns,
            target=self.target,
            indices=indices,
            fixed=self.still,
            bounds=self.bounds,
        )

    @property
    def moving(self) -> np.ndarray:
        """Numbers of the columns that may move."""
        return np.setdiff1d(np.arange(self.mean.shape[0]), self.still)

    def locations(self, leaves: Leaves) -> Array:
        """The points' x in the data's units, columns in their order."""
        if not self.still:
            return self.mean + self.scale * leaves["x"]
        moving = self.moving
        moved = self.mean[moving] + self.scale[moving] * leaves["x"]
        order = np.argsort(np.concatenate([moving, self.still]))
        return jnp.concatenate([moved, leaves["fixed"]], axis=-1)[..., order]

    def raw_locations(self, x: Array) -> Places:
        """The leaves of points at `x`, which is in the data's units: what `locations` undoes."""
        # On the host as far as it goes: every operation on device arrays would be compiled for this one use.
        given = (x, self.mean, self.scale)
        places, mean, scale = given if is_traced(given) else (np.asarray(part) for part in given)
        if not self.still:
            return {"x": (places - mean) / scale}
        moving = self.moving
        return {
            "x": (places[..., moving] - mean[moving]) / scale[moving],
            "fixed": places[..., np.array(self.still)],
        }

    def project(self, leaves: Leaves) -> Leaves:
        """Leaves with the weight map's constraint enforced, and locations within their bounds."""
        kept = {
            name: self.weight_map.project(leaf) if name == "weights" else leaf
            for name, leaf in leaves.items()
        }
        if self.bounds and "x" in kept:
            kept["x"] = jnp.clip(kept["x"], *self._edges())
        return kept

    def _edges(self) -> tuple[Array, Array]:
        """The lowest and highest entry of every column of the leaf `x`."""
        ends = np.tile([[-np.inf], [np.inf]], self.mean.shape[0])
        for column, low, high in self.bounds:
            ends[:, column] = low, high
        mean, scale = self.mean[self.moving], self.scale[self.moving]
        ends, bounded = ends[:, self.moving], np.isfinite(ends[:, self.moving])
        # A little inside: what is at the edge must not be rounded across it when it is put into units again.
        rounding = 4.0 * jnp.finfo(jnp.float32).eps * (jnp.abs(mean) + np.where(bounded, np.abs(ends), 0.0))
        inwards = jnp.where(bounded, rounding / scale, 0.0) * np.array([[1.0], [-1.0]])
        edges = (ends - mean) / scale + inwards
        return edges[0], edges[1]


def parametrise(
    data: Rows,
    weight_map: WeightMap,
    learn: frozenset[str],
    num_classes: int | None,
    still: tuple[int, ...] | None = None,
) -> Parametrisation:
    """Units from the data: column means and scales, total weight.

    Columns in `still`, or those that are fixed in the data, do not move.
    """
    mean, scale = data.scale()
    dtype = jnp.asarray(mean).dtype
    y_mean, y_scale = jnp.zeros(()), jnp.ones(())
    if data.bounds and not isinstance(data, Dataset):
        # Rows in memory have been looked at before; of others, some.
        some = data.sample(jax.random.key(0), UNIT_ROWS)
        check_within(np.asarray(some.x), data.bounds, data.columns, some.indices)
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
        still=data.fixed if still is None else still,
        bounds=data.bounds,
        mean=jnp.asarray(mean, dtype=dtype),
        scale=jnp.asarray(scale, dtype=dtype),
        y_mean=y_mean,
        y_scale=y_scale,
        total=jnp.asarray(data.total_weight, dtype=dtype),
    )


def given_leaves(parametrisation: Parametrisation, coreset: Dataset) -> tuple[Leaves, Array | None]:
    """Raw leaves of a given coreset, and the rows it came from if it knows them."""
    # Maps that fix the total weight leave what the given one has above it to alpha.
    weights = parametrisation.weight_map(
        parametrisation.weight_map.init(coreset.weights, parametrisation.total), parametrisation.total
    )
    total = float(jnp.log(jnp.sum(coreset.weights) / jnp.sum(weights)))
    places = parametrisation.raw_locations(coreset.x)
    return raw_leaves(parametrisation, places, coreset.y, coreset.weights, total), coreset.indices


@quick_jit
def first_weights(weight_map: WeightMap, weights: Array, total: Array) -> Array:
    """What a weight map makes these weights of, as one program instead of six."""
    return weight_map.init(weights, total)


@quick_jit
def points_of(parametrisation: Parametrisation, leaves: Leaves, indices: Array | None = None) -> Dataset:
    """`Parametrisation.build`, compiled."""
    return parametrisation.build(leaves, indices)


def raw_leaves(
    parametrisation: Parametrisation, places: Places, y: Array | None, weights: Array, total: float
) -> Leaves:
    """Raw leaves of points at these `raw_locations`, with these labels and weights."""
    dtype = parametrisation.mean.dtype
    leaves: Leaves = {name: jnp.asarray(leaf, dtype=dtype) for name, leaf in places.items()}
    leaves["total"] = jnp.asarray(total, dtype=dtype)
    leaves["weights"] = first_weights(parametrisation.weight_map, weights, parametrisation.total)
    if y is not None:
        if parametrisation.soft_labels and y.ndim == 2:
            leaves["y"] = jnp.log(jnp.maximum(y, jnp.exp(-2.0 * HARD_LOGIT)))
        elif parametrisation.soft_labels:
            leaves["y"] = HARD_LOGIT * jax.nn.one_hot(y, parametrisation.num_classes or 0, dtype=dtype)
        elif parametrisation.learned_values:
            leaves["y"] = (y - parametrisation.y_mean) / parametrisation.y_scale
        else:
            leaves["y"] = y
    return leaves
