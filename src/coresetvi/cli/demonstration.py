"""The demonstration: two half-moons, 1,000 points against 20, told by one table and one picture."""

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..constructions.base import Construction
from ..constructions.bbpsvi import BBPSVI
from ..constructions.reference import FullVI, RandomSubset
from ..data import files
from ..data.dataset import Dataset
from ..datasets.synthetic import halfmoon
from ..errors import CoresetviError, InputError
from ..families.gaussian import MeanField
from ..fitting import artefact
from ..fitting.loop import fit as fit_coreset
from ..fitting.result import Fit, load
from ..models.nets import BayesianMLP
from ..plots import figures, maps
from ..storage import PathLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = {"demo": "halfmoon"}  # kept in the saved fit: how a later run knows its own files
PICTURE, SAVED, TABLE = "halfmoon.png", "coreset", "coreset.csv"
RESOLUTION = 80
# Plain variational inference of a network from one start: enough steps to settle.
VI_STEPS = 2000
SUBSETS = 5


class Contender(NamedTuple):
    """One way to a posterior, and how it did."""

    name: str
    fit: Fit
    scores: dict[str, float]
    entropy: np.ndarray  # on the grid of the picture
    seconds: float


class Demonstration(NamedTuple):
    """Data, the methods (full-data inference first) and the bounds of the picture."""

    train: Dataset
    methods: list[Contender]
    bounds: maps.Bounds


def run(
    seed: int = 0, *, size: int = 20, num_steps: int | None = None, resolution: int = RESOLUTION
) -> Demonstration:
    """Fit a small Bayesian network to all points, to a learned coreset and to random subsets."""
    train, test = halfmoon()
    model = BayesianMLP(2, hidden=(20,), num_classes=2)
    bounds = maps.around(train)
    rows = maps.grid(bounds, resolution)[2]
    family = MeanField()
    vi_steps = num_steps or VI_STEPS

    def measure(name: str, construction: Construction, steps: int | None, num_trials: int = 1) -> Contender:
        began = time.perf_counter()
        fits = fit_coreset(construction, model, train, key=seed, num_steps=steps, num_trials=num_trials)
        seconds = time.perf_counter() - began
        # Draws of r all count alike: no Gaussian covers a network's posterior, so importance weights would
        # leave the picture to a single draw.
        ranked = [(fit.evaluate(test, correct=False), fit) for fit in fits]
        ranked.sort(key=lambda pair: pair[0]["nll"])
        test_scores, fit = ranked[len(ranked) // 2]
        return Contender(name, fit, test_scores, maps.predictive_entropy(fit, rows, correct=False), seconds)

    methods = [
        measure("full-data VI", FullVI(family=family), vi_steps),
        measure("BB PSVI coreset", BBPSVI(size=size), num_steps),
        # A learned coreset hardly depends on its key; a subset may be lucky or hopeless: take a typical one.
        measure(f"random subset (middle of {SUBSETS})", RandomSubset(size, family=family), vi_steps, SUBSETS),
    ]
    return Demonstration(train, methods, bounds)


def score_rows(result: Demonstration) -> list[dict[str, object]]:
    """One row per method; `entropy_difference` is the mean distance to full-data inference on the grid."""
    reference = result.methods[0].entropy
    return [
        {
            "method": method.name,
            "points": len(method.fit.coreset),
            **method.scores,
            "entropy_difference": float(np.mean(np.abs(method.entropy - reference))),
            "seconds": method.seconds,
            "result": method.fit.result,
        }
        for method in result.methods
    ]


def picture(result: Demonstration) -> "Figure":
    """Predictive entropy of every method, with the points that it was given."""
    panels = []
    for method in result.methods:
        points, test = len(method.fit.coreset), method.scores
        title = f"{method.name}, {points:,} points\naccuracy {test['accuracy']:.1%}, NLL {test['nll']:.3f}"
        learned = points < len(result.train)
        panels.append({"fit": method.fit, "entropy": method.entropy, "points": learned, "title": title})
    resolution = round(len(result.methods[0].entropy) ** 0.5)
    return maps.entropy_figure(panels, result.train, result.bounds, resolution)


def check_folder(folder: PathLike) -> None:
    """Refuse a folder in which a file of ours would replace one that is not."""
    folder = Path(folder)
    artefact.check_target(folder / SAVED, overwrite=True)
    present = [name for name in (PICTURE, TABLE, SAVED) if (folder / name).exists()]
    if not present:
        return
    try:
        ours = load(folder / SAVED).extra == MARK
    except CoresetviError:
        ours = False
    if not ours:
        raise InputError(
            f"{folder / present[0]} exists and was not written by the demonstration; choose another folder"
        )


def write(result: Demonstration, folder: PathLike) -> list[Path]:
    """Write picture, coreset and its points as a table into `folder`; returns their paths."""
    folder = Path(folder)
    check_folder(folder)
    fit = result.methods[1].fit
    # The coreset goes first: its mark is what lets another run replace the other two.
    dataclasses.replace(fit, extra=MARK).save(folder / SAVED, overwrite=True)
    figures.save_figure(picture(result), folder / PICTURE)
    x, y, weights = fit.coreset.to_numpy()
    columns = {"x0": x[:, 0], "x1": x[:, 1], "label": y, "weight": weights}
    files.write_table(folder / TABLE, columns, overwrite=True)
    return [folder / PICTURE, folder / SAVED, folder / TABLE]
