"""Rows that stand where the data are: near the centres of clusters, weighing what their clusters weigh."""

import numpy as np

from .column_limits import column_facts
from .dataset import Dataset

# Rounds of Lloyd's algorithm, and the rows of a class that take part in it: more change little.
ROUNDS, MOST_ROWS = 20, 20_000


def spread_rows(data: Dataset, rows: np.ndarray, strata: np.ndarray | None = None) -> Dataset:
    """The rows nearest to the cluster centres that Lloyd's algorithm finds from `rows`.

    Clusters are those of each label that has at most as many values as `rows`; otherwise the label is one
    more column. With `strata`, a number for every row, they are those of each stratum. Distances are in units
    of the columns' deviations. The weights add up to the data's.

    >>> data = Dataset([[0.0], [1.0], [2.0], [10.0]])
    >>> found = spread_rows(data, np.array([0, 3]))
    >>> found.x[:, 0].tolist(), found.weights.tolist()
    ([1.0, 10.0], [3.0, 1.0])
    """
    mean, scale = (np.asarray(part).reshape(-1) for part in data.scale())
    points = (np.asarray(data.x).reshape(len(data), -1) - mean) / scale
    weights, labels = np.asarray(data.weights, np.float64), np.zeros(len(data))
    if data.y is not None:
        labels = np.asarray(data.y, np.float64)
        if np.issubdtype(np.asarray(data.y).dtype, np.floating) or labels.ndim > 1:
            deviation = labels.std(axis=0)
            points = np.column_stack(
                [points, (labels - labels.mean(axis=0)) / np.where(deviation, deviation, 1)]
            )
            labels = np.zeros(len(data))
    labels = labels if strata is None else strata
    chosen, masses = [], []
    for label in np.unique(labels[rows]):
        members = np.flatnonzero((labels == label) & (weights > 0))
        found, mass = cluster(points[members], weights[members], points[rows[labels[rows] == label]])
        chosen.append(members[found])
        masses.append(mass)
    picked = data.take(np.concatenate(chosen))
    masses = np.concatenate(masses)
    return Dataset(picked.x, picked.y, masses, indices=picked.indices, **column_facts(picked))


def cluster(points: np.ndarray, weights: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct points near the centres of as many clusters, and the weight of each cluster."""
    part = slice(None, None, -(-len(points) // MOST_ROWS))
    some, their = points[part], weights[part]
    for _ in range(ROUNDS):
        nearest = np.argmin(distances(some, centres), axis=1)
        mass = np.bincount(nearest, their, len(centres))
        sums = np.stack([np.bincount(nearest, their * column, len(centres)) for column in some.T], axis=1)
        # A cluster that has lost its last point stays where it was.
        centres = np.where(mass[:, None] > 0, sums / np.maximum(mass, 1e-30)[:, None], centres)
    found: list[int] = []
    for row in distances(some, centres).T:
        row = row.copy()
        row[found] = np.inf
        found.append(int(np.argmin(row)))
    nearest = np.argmin(distances(points, some[found]), axis=1)
    mass = np.bincount(nearest, weights, len(found))
    rows = np.arange(len(points))[part][found]
    return rows, mass


def distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distances (points, centres)."""
    return np.sum(points**2, axis=1)[:, None] - 2.0 * points @ centres.T + np.sum(centres**2, axis=1)
