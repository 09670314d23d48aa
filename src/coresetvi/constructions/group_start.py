"""Starts that cover the groups: columns that do not move split the rows, and each part wants its points.

A point cannot leave its group, so a group without a point at the start has none in the end, and only the
prior speaks for it. Every level of every such column (and every class) gets a row while there is room; the
rest is spread evenly, or goes by weight where factors cross or points cannot have weights of their own.
Weights are then raked: scaled until every group weighs what it does in the data.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..data.column_limits import column_facts
from ..data.dataset import Dataset, concatenate, unchecked
from ..data.rows import Rows

# Columns with more different values than this part of the rows are no groups.
MOST_LEVELS = 0.5
# Rounds of raking: two factors that cross hardly ever need more.
ROUNDS = 30
# Rows in which groups are looked for where not all are in memory.
SAMPLED = 20_000

Codes = np.ndarray  # the level of every row, 0 … L-1


class Cells(NamedTuple):
    """Rows that agree in all factors: the cell of every row; the levels, weight and rows of every cell."""

    of_row: np.ndarray
    levels: np.ndarray  # (cells, factors)
    mass: np.ndarray
    rows: np.ndarray  # how many with weight


def group_columns(data: Dataset, still: Sequence[int]) -> dict[int, np.ndarray]:
    """The different values of columns that split the rows into groups, finest first.

    >>> data = Dataset([[1.0, 0.1], [1.0, 0.2], [2.0, 0.3], [2.0, 0.4]])
    >>> {column: values.tolist() for column, values in group_columns(data, (0, 1)).items()}
    {0: [1.0, 2.0]}
    """
    weighty = np.asarray(data.weights) > 0
    x = np.asarray(data.x)[weighty]
    found = {column: np.unique(x[:, column]) for column in still}
    groups = [column for column in found if 1 < len(found[column]) <= MOST_LEVELS * len(x)]
    return {column: found[column] for column in sorted(groups, key=lambda one: -len(found[one]))}


def factors_of(data: Dataset, still: Sequence[int], num_classes: int | None, size: int) -> list[Codes]:
    """What splits the rows, as codes: groups, finest first, then classes; none if there are no groups.

    Classes within the finest groups count too, if a coreset of this size can have a point of each.
    """
    columns = group_columns(data, still) if still else {}
    factors = codes_of(data, columns)
    if factors and num_classes is not None and data.y is not None and data.y.ndim == 1:
        labels = np.unique(np.asarray(data.y), return_inverse=True)[1].reshape(-1)
        pairs = np.unique(np.stack([factors[0], labels]), axis=1, return_inverse=True)[1].reshape(-1)
        factors += [labels, pairs] if pairs.max() < size else [labels]
    return factors


def codes_of(data: Dataset, columns: Mapping[int, np.ndarray]) -> list[Codes]:
    """The level of every row in every one of these columns."""
    x = np.asarray(data.x)
    # Rows of no weight may have values of their own, which count as the last.
    return [
        np.minimum(np.searchsorted(values, x[:, column]), len(values) - 1)
        for column, values in columns.items()
    ]


def cells_of(factors: Sequence[Codes], weights: np.ndarray) -> Cells:
    """All combinations of levels that rows have."""
    levels, of_row = np.unique(np.stack(factors, axis=1), axis=0, return_inverse=True)
    of_row = of_row.reshape(-1)
    count = np.bincount(of_row, weights > 0, len(levels)).astype(int)
    return Cells(of_row, levels, np.bincount(of_row, weights, len(levels)), count)


def covering_rows(
    factors: Sequence[Codes],
    weights: np.ndarray,
    size: int,
    generator: np.random.Generator,
    *,
    even: bool = False,
) -> np.ndarray:
    """Numbers of `size` rows: every level of every factor among them if there is room, then by weight.

    If `even`, all of the finest groups get equal numbers, as far as they have rows: for points whose weights
    can make up for it, since what a group has to say takes as many points in a large one as in a small one.

    >>> groups, generator = np.array([0] * 90 + [1] * 9 + [2]), np.random.default_rng(0)
    >>> rows = covering_rows([groups], np.ones(100), 10, generator)
    >>> np.bincount(groups[rows]).tolist()
    [8, 1, 1]
    >>> np.bincount(groups[covering_rows([groups], np.ones(100), 11, generator, even=True)]).tolist()
    [5, 5, 1]
    """
    cells = cells_of(factors, weights)
    numbers = cover(cells, np.zeros(len(cells.mass), int), size, generator)
    finest = cells.levels[:, 0]
    share = np.bincount(finest, cells.mass)
    share = (share > 0).astype(float) if even else share
    for _ in range(size - numbers.sum()):
        # The group furthest below its share is served next, and in it the cell furthest below its own.
        free = numbers < cells.rows
        has_room = np.bincount(finest, free, len(share)) > 0
        need = np.where(has_room, share / (np.bincount(finest, numbers, len(share)) + 0.5), -1.0)
        inside = free & (finest == np.argmax(need))
        numbers[np.argmax(np.where(inside, cells.mass / (numbers + 0.5), -1.0))] += 1
    rows = []
    for cell in np.flatnonzero(numbers):
        members = np.flatnonzero((cells.of_row == cell) & (weights > 0))
        chance = weights[members] / weights[members].sum()
        rows.append(generator.choice(members, numbers[cell], replace=False, p=chance))
    return np.concatenate(rows)


def cover(cells: Cells, numbers: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """Rows per cell, with more added while a level has none and `size` allows it: heavy cells more likely."""
    numbers = numbers.copy()
    while numbers.sum() < size:
        new = np.where(numbers < cells.rows, uncovered(cells, numbers), 0)
        if not new.max():
            break
        best = np.where(new == new.max(), cells.mass, 0.0)
        numbers[generator.choice(len(best), p=best / best.sum())] += 1
    return numbers


def uncovered(cells: Cells, numbers: np.ndarray) -> np.ndarray:
    """How many levels of every cell have no row yet."""
    empty = [np.bincount(levels, numbers)[levels] == 0 for levels in cells.levels.T]
    return np.where(cells.rows > 0, np.sum(empty, axis=0), 0)


def mended(
    rows: np.ndarray, factors: Sequence[Codes], weights: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """The same rows, the last ones that can be spared replaced by rows of levels that had none.

    >>> groups = np.array([0, 0, 0, 1])
    >>> mended(np.array([0, 1]), [groups], np.ones(4), np.random.default_rng(0)).tolist()
    [0, 3]
    """
    cells, rows = cells_of(factors, weights), rows.copy()
    numbers = np.bincount(cells.of_row[rows], minlength=len(cells.mass))
    for place in reversed(range(len(rows))):
        if not uncovered(cells, numbers).any():
            break
        cell, fewer = cells.of_row[rows[place]], numbers.copy()
        fewer[cell] -= 1
        if uncovered(cells, fewer)[cell]:
            continue  # the only one of its level
        numbers = cover(cells, fewer, len(rows), generator)
        members = np.flatnonzero((cells.of_row == np.argmax(numbers - fewer)) & (weights > 0))
        rows[place] = generator.choice(members, p=weights[members] / weights[members].sum())
    return rows


def raked(
    weights: np.ndarray, chosen: Sequence[Codes], factors: Sequence[Codes], masses: np.ndarray
) -> np.ndarray:
    """Weights of chosen rows, scaled until levels weigh what they do among all rows; the finest exactly.

    `chosen` are the codes of these rows, `factors` and `masses` the codes and weights of all. Where not all
    levels have a row, those that have weigh more, for the total stays.

    >>> groups = np.array([0, 0, 0, 1])
    >>> raked(np.ones(2), [groups[[0, 3]]], [groups], np.ones(4)).tolist()
    [3.0, 1.0]
    """
    weights = np.maximum(np.asarray(weights, np.float64), 1e-12 * masses.sum() / len(weights))
    for _ in range(ROUNDS):
        for mine, all_rows in reversed(list(zip(chosen, factors, strict=True))):
            wanted = np.bincount(all_rows, masses)
            weights = weights * (wanted / np.maximum(np.bincount(mine, weights, len(wanted)), 1e-300))[mine]
    return weights * (masses.sum() / weights.sum())


def with_groups(sample: Dataset, data: Rows, still: Sequence[int]) -> Dataset:
    """A sample of the data in which every group has a row and weighs what it does in the data.

    Of rows that are not in memory, what the sample has is all that is known.
    """
    if not still or not isinstance(data, Dataset) or len(sample) >= len(data):
        return sample
    columns = group_columns(data, still)
    if not columns:
        return sample
    x, weights = np.asarray(data.x), np.asarray(data.weights, np.float64)
    missing: set[int] = set()
    for column, values in columns.items():
        lacking = values[~np.isin(values, np.asarray(sample.x[:, column]))]
        rows = np.flatnonzero(np.isin(x[:, column], lacking) & (weights > 0))
        missing |= set(rows[np.unique(x[rows, column], return_index=True)[1]].tolist())
    if missing:
        sample = concatenate(sample, data.take(sorted(missing)))
    old = np.asarray(sample.weights)
    new = raked(old, codes_of(sample, columns), codes_of(data, columns), weights)
    kept = jnp.asarray(np.where(old > 0, new, 0.0), old.dtype)
    return unchecked(sample.x, sample.y, kept, indices=sample.indices, **column_facts(sample))


def too_few_points(data: Rows, still: Sequence[int], size: int) -> str | None:
    """A sentence if a coreset of this size leaves groups without a point."""
    columns = group_columns(some_rows(data), still) if still else {}
    for column, values in columns.items():
        if size < len(values):
            name = column if data.columns is None else repr(data.columns[column])
            return (
                f"The coreset has {size} points for {len(values)} groups of column {name}: "
                f"{len(values) - size} groups are represented by their prior alone; "
                f"use at least {len(values)} points."
            )
    return None


def most_groups(data: Rows, still: Sequence[int]) -> int:
    """The largest number of groups that a column makes; 0 if none does."""
    columns = group_columns(some_rows(data), still) if still else {}
    return max(map(len, columns.values()), default=0)


def some_rows(data: Rows) -> Dataset:
    """All rows, or a sample of those that are not in memory."""
    return data if isinstance(data, Dataset) else data.sample(jax.random.key(0), SAMPLED)
