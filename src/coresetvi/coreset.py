"""The coreset as something to optimise: raw numbers in convenient units, and where they start.

Raw leaves are a dictionary: `x` locations in standardised units, `y` labels (class logits or standardised
values when learned, the labels themselves when not), `weights` raw numbers of the weight map, `total` the log
of the factor alpha; `active`, where there is one, is 1 for the slots in use and 0 for those still empty.
`learn` says which of them an optimiser moves; the rest are carried along unchanged.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .data import Dataset
from .errors import InputError
from .models.likelihoods import HARD_LOGIT
from .spread import spread_rows
from .weights import WeightMap

LEARNABLE = ("x", "y", "weights", "total")
STARTS = ("subset", "spread", "noise")

Leaves = dict[str, Array]


class Frame(eqx.Module):
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
        y: Any = leaves.get("y")
        if self.soft_labels:
            y = jax.nn.softmax(y, axis=-1)
        elif self.learned_values and y is not None:
            y = self.y_mean + self.y_scale * y
        weights = self.weight_map(leaves["weights"], self.total) * jnp.exp(leaves["total"])
        if "active" in leaves:
            weights = weights * leaves["active"]
        return Dataset(
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


def make_frame(data: Dataset, weight_map: WeightMap, learn: frozenset[str], num_classes: int | None) -> Frame:
    """Units from the data: column means and scales, total weight."""
    mean, scale = data.scale()
    y_mean, y_scale = jnp.zeros(()), jnp.ones(())
    learns_labels = "y" in learn and data.y is not None
    if learns_labels and num_classes is None:
        labels, weights = np.asarray(data.y, np.float64), np.asarray(data.weights, np.float64)
        center = np.average(labels, axis=0, weights=weights)
        spread = np.sqrt(np.average((labels - center) ** 2, axis=0, weights=weights))
        y_mean = jnp.asarray(center, dtype=data.x.dtype)
        y_scale = jnp.asarray(np.where(spread > 0, spread, 1.0), dtype=data.x.dtype)
    return Frame(
        weight_map=weight_map,
        num_classes=num_classes,
        soft_labels=learns_labels and num_classes is not None,
        learned_values=learns_labels and num_classes is None,
        columns=data.columns,
        target=data.target,
        mean=jnp.asarray(mean, dtype=data.x.dtype),
        scale=jnp.asarray(scale, dtype=data.x.dtype),
        y_mean=y_mean,
        y_scale=y_scale,
        total=data.total_weight,
    )


def start_leaves(
    frame: Frame, data: Dataset, size: int, start: str, key: PRNGKeyArray
) -> tuple[Leaves, Array | None]:
    """Raw leaves of the starting coreset, and the rows they came from (None for noise)."""
    if start not in STARTS:
        raise InputError(f"init must be one of {', '.join(STARTS)}, not {start!r}.")
    generator = host_generator(key)
    if start == "noise":
        x = generator.standard_normal((size, *data.x.shape[1:]))
        y = even_labels(data, size, frame.num_classes)
        return raw_leaves(frame, x, y, start_weights(data, y, frame.num_classes, size), 0.0), None
    rows = stratified_rows(data, size, frame, generator)
    # No start but a given one has a total of its own: unit weights are to stay unit weights.
    if start == "spread":
        chosen = spread_rows(data, rows)
        weights = chosen.weights
    else:
        chosen = data.take(rows)
        weights = start_weights(data, chosen.y, frame.num_classes, size)
    x = (np.asarray(chosen.x) - np.asarray(frame.mean)) / np.asarray(frame.scale)
    return raw_leaves(frame, x, chosen.y, weights, 0.0), chosen.indices


def host_generator(key: PRNGKeyArray) -> np.random.Generator:
    """numpy's random numbers for a JAX key: choices of rows are made on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())


def given_leaves(frame: Frame, coreset: Dataset) -> tuple[Leaves, Array | None]:
    """Raw leaves of a given coreset, and the rows it came from if it knows them."""
    x = (np.asarray(coreset.x) - np.asarray(frame.mean)) / np.asarray(frame.scale)
    # Maps that fix the total weight leave what the given one has above it to alpha.
    weights = frame.weight_map(frame.weight_map.init(coreset.weights, frame.total), frame.total)
    total = float(jnp.log(jnp.sum(coreset.weights) / jnp.sum(weights)))
    return raw_leaves(frame, x, coreset.y, coreset.weights, total), coreset.indices


def raw_leaves(frame: Frame, x: Any, y: Any, weights: Array, total: float) -> Leaves:
    """Raw leaves of points at `x` in standardised units, with these labels and weights."""
    # On the host as far as it goes: every operation on device arrays would be compiled for this one use.
    x = jnp.asarray(x, dtype=frame.mean.dtype)
    leaves: Leaves = {"x": x, "total": jnp.asarray(total, dtype=x.dtype)}
    leaves["weights"] = frame.weight_map.init(weights, frame.total)
    if y is not None:
        if frame.soft_labels and y.ndim == 2:
            leaves["y"] = jnp.log(jnp.maximum(y, jnp.exp(-2.0 * HARD_LOGIT)))
        elif frame.soft_labels:
            leaves["y"] = HARD_LOGIT * jax.nn.one_hot(y, frame.num_classes or 0, dtype=x.dtype)
        elif frame.learned_values:
            leaves["y"] = (y - frame.y_mean) / frame.y_scale
        else:
            leaves["y"] = y
    return leaves


def stratified_rows(data: Dataset, size: int, frame: Frame, generator: np.random.Generator) -> np.ndarray:
    """Random rows without replacement, every class represented.

    Classes get equal numbers when the weights can make up for it, else numbers in proportion to their weight.
    """
    check_size(size, data)
    weights = np.asarray(data.weights, dtype=np.float64)
    if frame.num_classes is None or data.y is None:
        return generator.choice(len(data), size, replace=False, p=weights / weights.sum())
    labels = np.asarray(data.y)
    classes = [c for c in range(frame.num_classes) if np.any(weights[labels == c] > 0)]
    mass = np.array([weights[labels == c].sum() for c in classes])
    counts = np.array([np.count_nonzero(weights[labels == c]) for c in classes])
    share = np.full(len(classes), 1.0) if frame.weight_map.learnable else mass
    rows = []
    for label, number in zip(classes, allocate(size, share, counts), strict=True):
        members = np.flatnonzero((labels == label) & (weights > 0))
        chance = weights[members] / weights[members].sum()
        rows.append(generator.choice(members, number, replace=False, p=chance))
    return np.concatenate(rows)


def check_size(size: int, data: Dataset) -> None:
    """A coreset of rows cannot have more of them than the data."""
    available = int(np.count_nonzero(np.asarray(data.weights)))
    if size > available:
        raise InputError(
            f"size is {size}, but the data have only {available} rows with weight; "
            'choose a smaller size or init="noise".'
        )


def allocate(size: int, share: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Whole numbers that add up to `size`, near `share`, at most `most`, at least 1 where there is room.

    >>> allocate(5, np.array([1.0, 1.0]), np.array([1, 9]))
    array([1, 4])
    """
    numbers = np.zeros(len(share), dtype=int)
    for _ in range(size):
        # The class furthest below its share is served next; an empty one before all others.
        need = np.where(numbers < most, share / (numbers + 0.5), -1.0)
        need = np.where((numbers == 0) & (most > 0), need + 2.0 * share.sum() * (size + 1), need)
        numbers[np.argmax(need)] += 1
    return numbers


def even_labels(data: Dataset, size: int, num_classes: int | None) -> Array | None:
    """Labels for points that are not data: classes split evenly, values at even quantiles."""
    if data.y is None:
        return None
    if num_classes is not None:
        return jnp.arange(size) % num_classes
    labels, weights = np.asarray(data.y, np.float64), np.asarray(data.weights, np.float64)
    # Labels of several columns stay together; the first one sorts them.
    order = np.argsort(labels.reshape(len(labels), -1)[:, 0])
    reached = np.cumsum(weights[order])
    levels = (np.arange(size) + 0.5) / size * reached[-1]
    return jnp.asarray(labels[order][np.searchsorted(reached, levels)], dtype=data.x.dtype)


def start_weights(data: Dataset, y: Array | None, num_classes: int | None, size: int) -> Array:
    """Weights with which every class of the coreset weighs what it weighs in the data."""
    data_weights = np.asarray(data.weights, dtype=np.float64)
    weights = np.ones(size)
    if y is not None and num_classes is not None:
        mass = np.bincount(np.asarray(data.y), weights=data_weights, minlength=num_classes)
        count = np.bincount(np.asarray(y), minlength=num_classes)
        weights = (mass / np.maximum(count, 1))[np.asarray(y)]
    return jnp.asarray(weights * (data_weights.sum() / weights.sum()), dtype=data.x.dtype)
