"""Rows in which crossed factors go together as they do in all rows.

Where two columns that do not move cross, such as state and age, what the posterior makes of one effect hangs
on the other as far as rows share both. A few points per state stand for all of its rows, so which levels of
the other factors they have decides how much effects are confounded, and no weight can mend that later. Rows
are exchanged within their finest group until pairs of levels weigh as nearly what they do in the data as they
can: in units of the information matrix, in which a pair counts by the product of its levels' weights.
"""

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np

from .group_start import Cells, Codes, cells_of

# Rounds over all points: hardly any exchange is left to be made after a few.
ROUNDS = 10
# Part of the sum of squares that an exchange must gain; less is rounding.
LEAST_GAIN = 1e-9


class PairTables:
    """How much more weight pairs of levels have among the points than in the data, for all pairs of factors.

    A factor with itself gives its own levels; two factors stand twice in a matrix, and count twice.
    """

    def __init__(self, cells: Cells):
        counts = cells.levels.max(axis=0) + 1
        masses = [
            np.bincount(cells.levels[:, factor], cells.mass, count) for factor, count in enumerate(counts)
        ]
        self._pairs = list(combinations_with_replacement(range(len(counts)), 2))
        # Where a pair of levels stands in its table, for every cell.
        self._place = [cells.levels[:, one] * counts[two] + cells.levels[:, two] for one, two in self._pairs]
        self._unit = [
            (1.0 + (one != two)) / np.maximum(np.outer(masses[one], masses[two]).ravel(), 1e-300)
            for one, two in self._pairs
        ]
        self._excess = [
            -np.bincount(place, cells.mass, len(u)) for place, u in zip(self._place, self._unit, strict=True)
        ]

    def add(self, cell: int, weight: float) -> None:
        """Put so much weight on a cell."""
        for place, excess in zip(self._place, self._excess, strict=True):
            excess[place[cell]] += weight

    def cost(self, cells: np.ndarray, weight: float) -> np.ndarray:
        """By how much the sum of squares would grow with so much more weight on each of these cells."""
        found = np.zeros(len(cells))
        for place, excess, unit in zip(self._place, self._excess, self._unit, strict=True):
            here = place[cells]
            found += weight * (2.0 * excess[here] + weight) * unit[here]
        return found

    def mismatch(self) -> float:
        """The sum of squares."""
        return sum(
            float(np.sum(excess**2 * unit)) for excess, unit in zip(self._excess, self._unit, strict=True)
        )


def exchanged(
    rows: np.ndarray, factors: Sequence[Codes], weights: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """As many rows of every finest group, exchanged until pairs of levels go together as they do in all rows.

    No level loses its only row.

    >>> state, age = np.repeat([0, 1], 50), np.tile([0, 1], 50)
    >>> rows = exchanged(np.array([0, 2, 51, 53]), [state, age], np.ones(100), np.random.default_rng(0))
    >>> state[rows].tolist(), sorted(age[rows[:2]].tolist()), sorted(age[rows[2:]].tolist())
    ([0, 0, 1, 1], [0, 1], [0, 1])
    """
    if len(factors) < 2:
        return rows
    cells = cells_of(factors, weights)
    finest = cells.levels[:, 0]
    members = [np.flatnonzero((finest == group) & (cells.rows > 0)) for group in range(finest.max() + 1)]
    chosen, free = cells.of_row[rows], cells.rows.copy()
    np.subtract.at(free, chosen, 1)
    group = finest[chosen]
    share = np.bincount(finest, cells.mass)[group] / np.bincount(group)[group]
    tables = PairTables(cells)
    for cell, weight in zip(chosen.tolist(), share.tolist(), strict=True):
        tables.add(cell, weight)
    enough = LEAST_GAIN * max(tables.mismatch(), 1.0)
    held = [np.bincount(levels[chosen], minlength=levels.max() + 1) for levels in cells.levels.T]
    for _ in range(ROUNDS):
        before = chosen.copy()
        for point in generator.permutation(len(chosen)):
            old, weight = int(chosen[point]), float(share[point])
            tables.add(old, -weight)
            others = members[group[point]]
            allowed = free[others] > 0
            for levels, number in zip(cells.levels.T, held, strict=True):
                number[levels[old]] -= 1
                if not number[levels[old]]:  # the only point of its level
                    allowed &= levels[others] == levels[old]
            others = others[allowed | (others == old)]
            costs = tables.cost(others, weight)
            better = costs.min() < costs[others == old][0] - enough
            new = int(others[np.argmin(costs)]) if better else old
            tables.add(new, weight)
            free[old] += 1
            free[new] -= 1
            chosen[point] = new
            for levels, number in zip(cells.levels.T, held, strict=True):
                number[levels[new]] += 1
        if np.array_equal(chosen, before):
            break
    return rows_of(chosen, rows, cells, weights, generator)


def rows_of(
    chosen: np.ndarray, rows: np.ndarray, cells: Cells, weights: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Rows of these cells, all different; a point whose cell is still its own keeps its row."""
    stays = cells.of_row[rows] == chosen
    found, taken = np.where(stays, rows, -1), set(rows[stays].tolist())
    for point in np.flatnonzero(~stays):
        members = np.flatnonzero((cells.of_row == chosen[point]) & (weights > 0))
        members = members[[row not in taken for row in members.tolist()]]
        found[point] = generator.choice(members, p=weights[members] / weights[members].sum())
        taken.add(int(found[point]))
    return found
