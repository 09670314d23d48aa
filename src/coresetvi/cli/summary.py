"""A fit in numbers and names: what the command line shows of it, as data and as lines of text."""

# Typer reads its options from the annotations; as text they need no typer.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

import jax
import numpy as np

from .._checks import some
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..data.tables import NewRows, read_new_rows
from ..families.importance import usable
from ..fitting.result import Fit
from ..models.nets import BayesianMLP
from .console import in_flags
from .row_tables import TableSource, in_classes, rows_like

# Rows that say how much a target varies.
SPREAD_ROWS = 10_000


class FitSummary(TypedDict):
    """What `fit_summary` tells, under the names that JSON has."""

    result: str
    explanation: str
    model: str
    parameters: int
    family: str
    construction: str | None
    target: str | None
    classes: Sequence[object] | None
    columns: tuple[str, ...] | None
    rows: int
    data_weight: float
    size: int
    total_weight: float
    effective_points: float
    weight_entropy: float
    steps: int
    seconds: dict[str, float]
    kl: float | None
    passes: int | None
    reliability: dict[str, int | float]


class HeavyPoint(TypedDict):
    """A point of a coreset by the names of its columns."""

    weight: float
    target: NotRequired[object]
    x: dict[str, float]


def fit_summary(fit: Fit) -> FitSummary:
    """A fit in numbers and names, for people and for JSON."""
    weights = np.asarray(fit.coreset.weights, dtype=float)
    shares = weights[weights > 0] / weights.sum()
    # The steps of a coreset that grows are worlds apart, so only the last one tells of its end.
    kl = estimated_kl(fit)
    return {
        "result": fit.result,
        "explanation": in_flags(fit.explanation),
        "model": type(fit.model).__name__,
        "parameters": fit.model.dim,
        "family": type(fit.family).__name__,
        "construction": type(fit.construction).__name__ if fit.construction is not None else None,
        "target": fit.coreset.target,
        "classes": class_labels(fit),
        "columns": fit.coreset.columns,
        "rows": fit.about["rows"],
        "data_weight": fit.about["total_weight"],
        "size": len(fit.coreset),
        "total_weight": weights.sum(),
        "effective_points": 1.0 / np.sum(shares**2),
        "weight_entropy": -np.sum(shares * np.log(shares)),
        "steps": fit.about["steps"],
        "seconds": fit.seconds,
        "kl": kl,
        "passes": fit.about.get("passes"),
        "reliability": fit.reliability(),
    }


def estimated_kl(fit: Fit) -> float | None:
    """The KL divergence of the fit's coreset, as far as its history knows it.

    By passes it is the least that one of them found, for that is the coreset that was given: the first asks
    about the start. By steps it is the mean of the last, or that of the last addition.
    """
    kl = fit.history.get("kl", np.zeros(0))
    if "passes" in fit.about:
        tested = kl[1:][np.isfinite(kl[1:])]
        return float(tested.min()) if tested.size else None
    last = kl[-1 if "points" in fit.history else -20 :]
    return float(last.mean()) if last.size and np.all(np.isfinite(last)) else None


def advice(fit: Fit, dataset: Rows, reliability: Mapping[str, int | float]) -> list[str]:
    """What a careful colleague would remark on this fit."""
    notes = []
    if not usable(reliability):
        notes.append(
            f"k-hat is {reliability['khat']:.2f}, above {reliability['khat_threshold']:.2f}: "
            "predictions lean on few draws; take more points or another --family"
        )
    if len(fit.coreset) <= fit.model.dim and not isinstance(fit.model, BayesianMLP):
        notes.append(
            f"{len(fit.coreset)} points cannot pin down {fit.model.dim} parameters; "
            f"use --size {2 * fit.model.dim} or so"
        )
    noise = getattr(fit.model, "noise", None)
    if fit.model.num_classes is None and noise is not None:
        some_of_them = dataset.sample(jax.random.key(0), SPREAD_ROWS)
        spread = float(np.std(np.asarray(some_of_them.y)))
        if not noise / 10 <= spread <= noise * 10:
            notes.append(
                f"the target varies by {spread:.3g} but --noise is {noise:g}; "
                "rescale the target, or set --noise to the size of its errors"
            )
    return notes


def heaviest(fit: Fit, count: int) -> list[HeavyPoint]:
    """The points with the largest weights, by column name, heaviest first."""
    x, y, weights = fit.coreset.to_numpy()
    x, names = x.reshape(len(x), -1), class_labels(fit)
    columns = fit.coreset.columns or [f"x{number}" for number in range(x.shape[1])]
    points: list[HeavyPoint] = []
    for row in np.argsort(-weights, kind="stable")[:count].tolist():
        weight, values = float(weights[row]), dict(zip(columns, x[row].tolist(), strict=True))
        if y is None:
            points.append(HeavyPoint(weight=weight, x=values))
            continue
        label = names[int(y[row])] if names and y.ndim == 1 else y[row].tolist()
        points.append(HeavyPoint(weight=weight, target=label, x=values))
    return points


def class_labels(fit: Fit) -> list[str | int] | None:
    """What the classes of a fit are called; fits made in Python know only numbers."""
    names = fit.extra.get("classes")
    if names is None and fit.model.num_classes is not None:
        return list(range(fit.model.num_classes))
    return names


def prediction_columns(fit: Fit, rows: np.ndarray) -> dict[str, object]:
    """Columns of a prediction file: probabilities and the likeliest class, or mean and variance."""
    names = class_labels(fit)
    if names is None:
        mean, variance = fit.predict(rows, variance=True)
        return {"mean": mean, "variance": variance}
    probabilities = fit.predict(rows)
    if probabilities.ndim == 1:
        best = (probabilities > 0.5).astype(int)
        columns: dict[str, object] = {"probability": probabilities}
    else:
        best = probabilities.argmax(axis=1)
        columns = {f"probability_{name}": probabilities[:, code] for code, name in enumerate(names)}
    return columns | {"prediction": [names[code] for code in best.tolist()]}


def fit_lines(summary: FitSummary) -> list[list[str]]:
    """A fit in a few lines."""
    quality, seconds = summary["reliability"], summary["seconds"]
    kl = "unknown" if summary["kl"] is None else f"{summary['kl']:.3g} nats to the posterior of all rows"
    time = f"{seconds['compile']:.1f} s to compile and {seconds['run']:.1f} s to run"
    # The KL is an average over the same draws, and no better than they are.
    known = usable(quality) or summary["kl"] is None
    doubt = "" if known else " (unreliable, see k-hat)"
    limit = f"good up to {quality['khat_threshold']:.2f}"
    return [
        ["model", f"{summary['model']}, {summary['parameters']} parameters, {summary['family']} posterior"],
        ["data", f"{summary['rows']:,} rows of total weight {summary['data_weight']:,.0f}"],
        ["coreset", f"{summary['size']:,} points of total weight {summary['total_weight']:,.0f}"],
        ["passes" if summary["passes"] else "steps", f"{summary['passes'] or summary['steps']:,}, {time}"],
        ["estimated KL", f"{kl}{doubt}"],
        ["effective draws", f"{quality['ess']:.1%} of {quality['num_samples']:,}"],
        ["k-hat", f"{quality['khat']:.2f} ({limit})"],
    ]


def origin_lines(summary: FitSummary, about: Mapping[str, object]) -> list[list[str]]:
    """Where a fit came from, and how its weight is spread."""
    size = summary["size"]
    classes = "" if summary["classes"] is None else f", classes {some(summary['classes'])}"
    versions = ", ".join(f"{name} {about[name]}" for name in ("coresetvi", "jax", "python") if name in about)
    return [
        ["construction", str(summary["construction"])],
        ["target", f"{summary['target']!r}{classes}"],
        ["effective points", f"{summary['effective_points']:.1f} of {size:,}"],
        ["weight entropy", f"{summary['weight_entropy']:.3f} of at most {np.log(size):.3f} nats"],
        ["made", f"{about.get('timestamp', 'at an unknown time')} by {versions}"],
    ]


def rows_for_fit(
    fit: Fit,
    path: Path,
    *,
    target: str | None = None,
    weights: str | None = None,
    drop: list[str] | None = None,
    need_target: bool = True,
) -> NewRows:
    """The rows of a table for a fit: with its columns, and its target unless another is named."""
    known = fit.coreset.target or ("y" if need_target else None)
    return read_new_rows(path, fit.coreset, target or known, weights, drop or (), need_target=need_target)


def labelled_table(fit: Fit, source: TableSource, weights: str | None, drop: list[str] | None) -> Rows:
    """The rows of a table of any size with their labels in the classes of a fit."""
    if source.is_plain:
        return labelled_rows(fit, source.name, weights, drop)
    target = fit.coreset.target or "y"
    rows = rows_like(source, fit.coreset, target, weights, drop or ())
    return in_classes(source, rows, target, class_labels(fit))


def labelled_rows(fit: Fit, path: Path, weights: str | None = None, drop: list[str] | None = None) -> Dataset:
    """The rows of a table with their labels in the classes of a fit."""
    return rows_for_fit(fit, path, weights=weights, drop=drop).dataset(class_labels(fit))
