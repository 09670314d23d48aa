"""Where a coreset starts: rows of the data, rows near cluster centres, or noise."""

from collections.abc import Iterable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._checks import short
from .._keys import host_generator
from ..data.clusters import spread_rows
from ..data.dataset import Dataset, concatenate
from ..errors import InputError
from ..inner.base import Leaves
from ..models.base import Model
from ..weights import WeightMap
from .crossed_factors import exchanged
from .group_start import cells_of, covering_rows, factors_of, group_columns, raked
from .parametrisation import LEARNABLE, Parametrisation, Places, given_leaves, raw_leaves

STARTS = ("subset", "spread", "noise", "informative", "best")


def starting_leaves(
    parametrisation: Parametrisation,
    model: Model,
    data: Dataset,
    size: int,
    init: str,
    learn: frozenset[str],
    key: PRNGKeyArray,
    initial: Dataset | None,
) -> tuple[Leaves, Leaves, Array | None]:
    """Leaves that move, leaves that stay, and the rows they came from: chosen by `init`, or as given."""
    if initial is None:
        leaves, indices = start_leaves(parametrisation, data, size, init, key)
    else:
        check_initial(initial, model, data, size)
        leaves, indices = given_leaves(parametrisation, initial)
    learned = {name: leaf for name, leaf in leaves.items() if name in learn}
    frozen = {name: leaf for name, leaf in leaves.items() if name not in learn}
    return learned, frozen, indices


def start_leaves(
    parametrisation: Parametrisation, data: Dataset, size: int, start: str, key: PRNGKeyArray
) -> tuple[Leaves, Array | None]:
    """Raw leaves of the starting coreset, and the rows they came from (None for noise)."""
    if start not in STARTS:
        raise InputError(f"init must be one of {', '.join(STARTS)}, not {start!r}.")
    if start in ("informative", "best"):
        raise InputError(f'init="{start}" belongs to optimizer=Matching(); use "subset" with others.')
    generator = host_generator(key)
    if start == "noise":
        places = noise_locations(parametrisation, data, size, generator)
        y = even_labels(data, size, parametrisation.num_classes)
        return raw_leaves(
            parametrisation, places, y, start_weights(data, y, parametrisation.num_classes, size), 0.0
        ), None
    factors = factors_of(data, parametrisation.still, parametrisation.num_classes, size)
    rows = stratified_rows(data, size, parametrisation, generator)
    # No start but a given one has a total of its own: unit weights are to stay unit weights.
    if start == "spread":
        strata = cells_of(factors, np.asarray(data.weights, np.float64)).of_row if factors else None
        chosen = spread_rows(data, rows, strata)
        weights = chosen.weights
    else:
        chosen = data.take(rows)
        weights = start_weights(data, chosen.y, parametrisation.num_classes, size)
    if factors:
        weights = group_weights(data, chosen, np.asarray(weights), parametrisation, size)
    places = parametrisation.raw_locations(chosen.x)
    return raw_leaves(parametrisation, places, chosen.y, weights, 0.0), chosen.indices


def noise_locations(
    parametrisation: Parametrisation, data: Dataset, size: int, generator: np.random.Generator
) -> Places:
    """Noise in the columns that may move; the others are those of random rows."""
    x = generator.standard_normal((size, *data.x.shape[1:]))
    if not parametrisation.still:
        return {"x": x}
    weights = np.asarray(data.weights, dtype=np.float64)
    rows = generator.choice(len(data), size, p=weights / weights.sum())
    taken = parametrisation.raw_locations(data.take(rows).x)
    return {**taken, "x": x[:, parametrisation.moving]}


def stratified_rows(
    data: Dataset, size: int, parametrisation: Parametrisation, generator: np.random.Generator
) -> np.ndarray:
    """Random rows without replacement, every class represented.

    Classes get equal numbers when the weights can make up for it, else numbers in proportion to their weight.
    Where columns that do not move split the rows into groups, those are covered first.
    """
    check_size(size, data)
    weights = np.asarray(data.weights, dtype=np.float64)
    if factors := factors_of(data, parametrisation.still, parametrisation.num_classes, size):
        # Where factors cross, what they confound counts by weight, and so do points; else every group has as
        # much to say as any other.
        crossed = len(group_columns(data, parametrisation.still)) > 1
        even = parametrisation.weight_map.learnable and not crossed
        rows = covering_rows(factors, weights, size, generator, even=even)
        return exchanged(rows, factors, weights, generator)
    if parametrisation.num_classes is None or data.y is None:
        return generator.choice(len(data), size, replace=False, p=weights / weights.sum())
    labels = np.asarray(data.y)
    classes = [c for c in range(parametrisation.num_classes) if np.any(weights[labels == c] > 0)]
    mass = np.array([weights[labels == c].sum() for c in classes])
    counts = np.array([np.count_nonzero(weights[labels == c]) for c in classes])
    share = np.full(len(classes), 1.0) if parametrisation.weight_map.learnable else mass
    rows = []
    for label, number in zip(classes, allocate(size, share, counts), strict=True):
        members = np.flatnonzero((labels == label) & (weights > 0))
        chance = weights[members] / weights[members].sum()
        rows.append(generator.choice(members, number, replace=False, p=chance))
    return np.concatenate(rows)


def group_weights(
    data: Dataset, chosen: Dataset, weights: np.ndarray, parametrisation: Parametrisation, size: int
) -> Array:
    """Weights of chosen rows, scaled so that groups and classes weigh what they do in the data."""
    both = concatenate(data, chosen)
    factors = factors_of(both, parametrisation.still, parametrisation.num_classes, size)
    first = [codes[: len(data)] for codes in factors]
    found = raked(
        weights, [codes[len(data) :] for codes in factors], first, np.asarray(data.weights, np.float64)
    )
    return jnp.asarray(found, data.x.dtype)


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


def check_initial(initial: Dataset, model: Model, data: Dataset, size: int) -> None:
    """Points to start from must be as many as the coreset has, and of the data's kind."""
    num_classes = model.num_classes
    if len(initial) != size:
        raise InputError(f"initial has {len(initial)} points, but size is {size}; make them equal.")
    if initial.x.shape[1:] != data.x.shape[1:]:
        raise InputError(
            f"initial has points of shape {initial.x.shape[1:]}, but the data's rows have {data.x.shape[1:]}."
        )
    if initial.columns and data.columns and initial.columns != data.columns:
        raise InputError(f"initial has the columns {initial.columns}, but the data have {data.columns}.")
    if (initial.y is None) != (data.y is None):
        raise InputError("Only one of initial and the data has labels; give both or neither.")
    if initial.y is not None and initial.y.ndim == 2 and num_classes is not None:
        if initial.y.shape[1] != num_classes:
            raise InputError(
                f"initial has labels over {initial.y.shape[1]} classes, but the model has {num_classes}."
            )
    else:
        model.check(initial, fitting=False)


def check_leaves(learn: frozenset[str], weights: WeightMap, init: str | None) -> None:
    """What is to be learned must exist and be free to move, and the start must have a name."""
    if init is not None and init not in STARTS:
        raise InputError(f"init must be one of {', '.join(STARTS)}, not {init!r}.")
    if unknown := sorted(learn - set(LEARNABLE)):
        raise InputError(f"learn has the unknown name {unknown[0]!r}; choose from {', '.join(LEARNABLE)}.")
    if "weights" in learn and not weights.learnable:
        raise InputError(
            f"{type(weights).__name__} weights cannot be learned; "
            'leave "weights" out of learn or use Simplex() or Free().'
        )


def names_of(learn: object) -> frozenset[str]:
    """`learn` as a set of names; a single word would fall apart into letters."""
    if isinstance(learn, str) or not isinstance(learn, Iterable):
        raise InputError(f"learn must be a set of names such as {{'x', 'weights'}}, not {short(learn)}.")
    return frozenset(learn)
