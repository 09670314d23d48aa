"""Lines: scores against the size of a coreset or the dimension of a problem, and curves of single fits."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coresetvi.errors import InputError
from coresetvi.plots import figures
from coresetvi.plots.comparison_figure import line_styles

from .entropy_map_plots import wrapped
from .experiment import Experiment
from .score_plots import draw_line, key_words, sorted_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "accuracy": "accuracy (%)",
    "rmse": "RMSE",
    "nll": "held-out NLL (nats a row)",
    "ece": "expected calibration error",
    "brier": "Brier score",
    "kl": "KL to the posterior of all rows (nats)",
    "ess_10": "normalised ESS, 10 draws",
    "ess_1000": "normalised ESS, 1,000 draws",
    "khat": "Pareto k-hat of 1,000 draws",
}
# Draws weigh at least one of themselves: the least that a normalised ESS can be.
FLOORS = {"ess_10": 0.1, "ess_1000": 0.001}
LOGARITHMIC = ("kl", "ess_1000")
WIDE = 3.0  # likelihoods that differ by more than this factor are drawn on a logarithmic axis
MARGIN = 1.25  # on a logarithmic axis, either side

Rows = Sequence[Mapping[str, Any]]


def draw_lines(experiment: Experiment, rows: Rows) -> "Figure":
    """One panel a score and a problem; where problems have positions, one a score."""
    metrics = experiment.metrics or (experiment.metric,)
    positions = {one.id: one.position for one in experiment.problems if one.position is not None}
    usable = [row for row in rows if any(metric in row["fresh"] for metric in metrics)]
    if not usable:
        raise InputError("there is no result to draw; run at least one fit")
    there = {row["problem"] for row in usable}  # optional problems may not be
    names = [None] if positions else [one.id for one in experiment.problems if one.id in there]
    styles = line_styles([dict(row) for row in usable])
    figure = figures.new_figure(3.8 * len(names) + 2.8, 3.1 * len(metrics) + 0.6)
    grid = figure.subplots(len(metrics), len(names), squeeze=False, sharex=True)
    handles: dict[str, Any] = {}
    for row, (metric, line) in enumerate(zip(metrics, grid, strict=True)):
        for name, axes in zip(names, line, strict=True):
            drawn = [
                {
                    **one,
                    "value": one["fresh"][metric],
                    "size": positions[one["problem"]] if positions else one["size"],
                }
                for one in usable
                if metric in one["fresh"] and name in (None, one["problem"])
            ]
            panel(axes, drawn, styles, handles)
            finish(axes, metric, drawn)
            if row == 0 and name is not None:
                axes.set_title(name, fontsize=11)
        line[0].set_ylabel(LABELS[metric])
    for axes in grid[-1]:
        axes.set_xlabel("dimension" if positions else "size of the coreset")
    order = [method for method in styles if method in handles]
    figure.legend([handles[name] for name in order], order, loc="outside right center", frameon=False)
    keys = key_words([dict(row) for row in usable])
    figure.suptitle(wrapped(f"{experiment.title} ({keys})", figure), fontsize=11)
    return figure


def panel(axes: "Axes", drawn: list[dict[str, Any]], styles: dict[str, Any], handles: dict[str, Any]) -> None:
    """The lines of all methods."""
    axes.set_xscale("log")
    if sizes := [row["size"] for row in drawn if row["size"] is not None]:
        axes.set_xlim(min(sizes) / MARGIN, max(sizes) * MARGIN)  # one size alone has no range of its own
    axes.grid(axis="y", color="0.85", linewidth=0.8)
    for method, style in styles.items():
        if points := sorted_points(drawn, method):
            handles.setdefault(method, draw_line(axes, points, style))


def finish(axes: "Axes", metric: str, drawn: list[dict[str, Any]]) -> None:
    """Ticks at the sizes there are, and the scale that suits the score."""
    ticks = sorted({row["size"] for row in drawn if row["size"] is not None})
    if ticks:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.tick_params(axis="x", labelsize=8)
        axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    means = [row["value"]["mean"] for row in drawn if row["value"]["mean"] is not None]
    if metric in LOGARITHMIC:
        axes.set_yscale("log")
    elif metric == "nll" and means and max(means) > WIDE * min(means) > 0.0:
        axes.set_yscale("log")
        from matplotlib.ticker import LogLocator

        axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 3.0, 5.0)))
        for ticks in ("major", "minor"):  # 0.2, not 2 x 10^-1
            getattr(axes.yaxis, f"set_{ticks}_formatter")("{x:g}")
    if metric in FLOORS:
        axes.axhline(FLOORS[metric], color="0.5", linewidth=1.0, linestyle=(0, (1, 2)))
        place = {"xy": (0.02, FLOORS[metric]), "xycoords": ("axes fraction", "data"), "fontsize": 8}
        axes.annotate("least possible", xytext=(0, 2), textcoords="offset points", color="0.35", **place)
        axes.set_ylim(bottom=None if metric in LOGARITHMIC else 0.0, top=1.05)


def draw_curves(experiment: Experiment, found: Rows) -> "Figure":
    """The curve of every record: keys of a method look alike, the first one is the strongest."""
    names = {one.id: one.name for one in experiment.methods}
    there = {record["method"] for record in found}
    styles = line_styles([{"method": name, "size": 1} for one, name in names.items() if one in there])
    problems = [one.id for one in experiment.problems if any(r["problem"] == one.id for r in found)]
    figure = figures.new_figure(4.6 * len(problems) + 2.4, 4.0)
    handles: dict[str, Any] = {}
    drawing = experiment.drawing
    for name, axes in zip(problems, figure.subplots(1, len(problems), squeeze=False)[0], strict=True):
        for record in (one for one in found if one["problem"] == name):
            style = {**styles[names[record["method"]]], "markevery": [-1], "markersize": 6}
            style["alpha"] = 1.0 if record["key"] == 0 else 0.35
            y = np.asarray(record["curve"]["y"], float) * drawing.get("factor", 1.0)
            (line,) = axes.plot(record["curve"]["x"], y, **style)
            handles.setdefault(names[record["method"]], line)
        axes.set_xscale(drawing.get("x_scale", "linear"))
        axes.set_yscale(drawing.get("y_scale", "linear"))
        axes.set_title(name, fontsize=11)
        axes.set_xlabel(drawing.get("x_label", "outer step"))
        axes.grid(axis="y", color="0.85", linewidth=0.8)
    figure.axes[0].set_ylabel(drawing.get("y_label", "objective (nats)"))
    order = [name for name in styles if name in handles]
    figure.legend([handles[name] for name in order], order, loc="outside right center", frameon=False)
    keys = len({record["key"] for record in found})
    title = f"{experiment.title} ({keys} key{'' if keys == 1 else 's'})"
    figure.suptitle(wrapped(title, figure), fontsize=11)
    return figure
