"""Posteriors of classifiers in the plane: maps of predictive entropy, at several instants or by samplers.

A map is kept as a string of two hexadecimal digits a pixel, 00 for no entropy and ff for that of classes that
are all alike, row by row from the bottom: small enough for a record, and what a picture is drawn from.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import coresetvi as cvi
from coresetvi.plots.maps import around, predictive_entropy
from coresetvi.plots.maps import grid as plane_grid

from .cell_fits import about, learn_tasks, make_fit
from .cells import PaperCell
from .grid import Grid

RESOLUTION = 40
MOST_DATA = 300  # rows of the data that a record keeps, to be drawn as dots
VARIATIONAL = "variational"


def plane(grid: Grid, cell: PaperCell, out: Path) -> dict[str, Any]:
    """A map for every moment and sampler: `detail` has frames, samplers, their `draws`, and the resolution.

    `frames` are evenly spread over the steps of a fit, the start and the end among them; one is the end.
    """
    detail, (train, test, *_) = grid.experiment.detail, grid.problem(cell.problem)
    resolution = int(detail.get("resolution", RESOLUTION))
    bounds = around(train)
    rows = plane_grid(bounds, resolution)[2]
    maps: list[dict[str, Any]] = []

    def keep(name: str, fit: cvi.Fit, test: cvi.Dataset, sampler: str = VARIATIONAL) -> dict[str, float]:
        draws = None if sampler == VARIATIONAL else draw(fit, sampler, cell.key, detail)
        how: dict[str, Any] = {"correct": False} if draws is None else {"draws": draws}
        entropy = predictive_entropy(fit, rows, **how)
        found = fit.evaluate(test, **how)
        points = [] if cell.size is None else point_rows(fit.coreset)
        classes = fit.model.num_classes or 2
        text = encode_entropy(entropy, classes)
        one = {"name": name, "num_classes": classes, "entropy": text, "points": points, "scores": found}
        maps.append(one)
        return found

    found: dict[str, float] = {}
    if grid.experiment.method(cell.method).driver == "continual":
        fits = learn_tasks(grid, cell)
        for fit in fits:
            seen = np.asarray(test.y) < (fit.model.num_classes or 2)
            found = keep(f"{fit.model.num_classes} classes", fit, test.take(seen))
    else:
        watch = frames_watch(grid, cell, lambda steps, fit: keep(f"step {steps:,}", fit, test))
        fits = [make_fit(grid, cell, out, watch)]
        for sampler in detail.get("samplers", (VARIATIONAL,)):
            found = keep(sampler if watch is None else "end", fits[0], test, sampler)
    kept = train.take(np.arange(min(len(train), MOST_DATA)))
    picture = {"bounds": bounds, "data": point_rows(kept), "maps": maps}
    return {**about(fits[-1]), "fresh": found, "plane": picture}


def frames_watch(
    grid: Grid, cell: PaperCell, keep: Callable[[int, cvi.Fit], Any]
) -> Callable[[int, Callable[[], cvi.Fit]], None] | None:
    """What looks at a fit at all its frames but the last, which is the fit itself; None for one frame."""
    frames, method = int(grid.experiment.detail.get("frames", 1)), grid.experiment.method(cell.method)
    if frames < 2:
        return None
    total = (grid.experiment.steps_of(cell) or 0) * (1 + len(method.stages))
    waiting = [round(number * total / (frames - 1)) for number in range(frames - 1)]

    def watch(steps: int, look: Callable[[], cvi.Fit]) -> None:
        if waiting and steps >= waiting[0]:
            del waiting[0]
            keep(steps, look())

    return watch


def draw(fit: cvi.Fit, sampler: str, key: int, detail: Mapping[str, Any]) -> cvi.Draws:
    """Draws of the posterior given the fit's points."""
    return cvi.sample(fit, method=sampler, key=key, progress=False, **detail.get("draws", {}))


def point_rows(points: cvi.Dataset) -> list[list[float]]:
    """Two coordinates, label and weight of every point, in few digits."""
    x, y, weights = points.to_numpy()
    labels = np.zeros(len(x)) if y is None else (y.argmax(axis=1) if y.ndim == 2 else y)
    numbers = np.column_stack([x, labels, weights]).astype(float)
    return [[float(f"{number:.4g}") for number in row] for row in numbers]


def points_of(rows: Sequence[Sequence[float]]) -> cvi.Dataset:
    """The points that `point_rows` wrote."""
    table = np.asarray(rows, float)
    return cvi.Dataset(table[:, :2], table[:, 2].astype(int), table[:, 3])


def encode_entropy(entropy: np.ndarray, num_classes: int) -> str:
    """Entropies in nats as hexadecimal digits.

    >>> encode_entropy(np.array([0.0, np.log(2.0)]), 2)
    '00ff'
    """
    shares = np.clip(np.asarray(entropy, float) / np.log(num_classes), 0.0, 1.0)
    return np.round(255.0 * shares).astype(np.uint8).tobytes().hex()


def decode_entropy(text: str, num_classes: int) -> np.ndarray:
    """The square of entropies that `encode_entropy` wrote, to 1 / 510 of the largest.

    >>> decode_entropy("00ff00ff", 2).round(3).tolist()
    [[0.0, 0.693], [0.0, 0.693]]
    """
    levels = np.frombuffer(bytes.fromhex(text), np.uint8).astype(float)
    side = round(len(levels) ** 0.5)
    return (levels * np.log(num_classes) / 255.0).reshape(side, side)
