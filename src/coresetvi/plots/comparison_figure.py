"""The picture of a comparison: scores and distances against the size of the coreset, one line per method.

Lines differ in marker, dashes and colour: they can be told apart in grey and by colour-blind readers.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..workflows.records import Record
from . import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Style = dict[str, Any]  # keywords of matplotlib's lines
Handle = Any  # what a legend takes: an artist, or a container of several

LABELS = {"nll": "held-out NLL (nats a row)", "kl": "KL to the posterior of all rows (nats)"}
# Safe for colour-blind eyes, neighbours of different lightness, none too pale for a white page.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">", "p")
DASHES = ("-", "--", "-.", ":")
# Horizontal lines carry no markers, so their dashes are of another kind: long, with dots between.
LEVEL_DASHES = ((0, (9, 3)), (0, (9, 3, 1, 3)), (0, (9, 3, 1, 3, 1, 3)), (0, (3, 6)), (0, (1, 5)))


def comparison_figure(rows: Sequence[Record]) -> "Figure":
    """Held-out NLL and, where known, KL against size, from the rows of `workflows.comparison.summarise`.

    Error bars and bands are one standard error. Methods without a size are horizontal lines.
    """
    styles = line_styles(rows)
    drawn = {name: [row for row in rows if is_drawable(name, row)] for name in LABELS}
    panels = ["nll", *(["kl"] if drawn["kl"] else [])]
    # High enough for the legend beside it.
    figure = figures.new_figure(4.4 * len(panels) + 2.2, max(3.8, 0.22 * len(styles) + 0.8))
    lines: dict[str, Handle] = {}
    for axes, name in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set_xscale("log")
        if name == "kl":
            axes.set_yscale("log")
        for method, style in styles.items():
            if points := [row for row in drawn[name] if row["method"] == method]:
                lines.setdefault(method, _draw(axes, points, name, {"label": method, **style}))
        sizes = sorted({row["size"] for row in rows if row["size"] is not None})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        axes.set_xlabel("size of the coreset")
        axes.set_ylabel(LABELS[name])
    if order := [method for method in styles if method in lines]:
        # Outside, because there is no corner that some method may not pass through.
        handles = [lines[method] for method in order]
        figure.legend(handles, order, loc="outside right upper", frameon=False, handlelength=4.0)
    return figure


def check_matplotlib() -> None:
    """Refuse to go on without matplotlib; worth calling before the fits."""
    figures.new_figure(1.0, 1.0)


def is_drawable(name: str, row: Record) -> bool:
    """Whether a row has a finite number of that name, and a positive one for a logarithmic axis."""
    mean = row[name]["mean"]
    return mean is not None and bool(np.isfinite(mean)) and (name != "kl" or mean > 0)


def line_styles(rows: Sequence[Record]) -> dict[str, Style]:
    """How to draw each method; dashes are counted among lines of the same kind, with or without a size."""
    levels = {row["method"]: row["size"] is None for row in rows}
    styles: dict[str, Style] = {}
    for number, (method, level) in enumerate(levels.items()):
        before = sum(other == level for other in list(levels.values())[:number])
        style: Style = {"color": COLOURS[number % len(COLOURS)], "linewidth": 1.6}
        if level:
            style["linestyle"] = LEVEL_DASHES[before % len(LEVEL_DASHES)]
        else:
            style |= {"linestyle": DASHES[before % len(DASHES)], "marker": MARKERS[before % len(MARKERS)]}
        styles[method] = style
    return styles


def _draw(axes: "Axes", points: list[Record], name: str, style: Style) -> Handle:
    """One method's line, for the legend."""
    means = [row[name]["mean"] for row in points]
    errors = np.nan_to_num([row[name]["standard_error"] or 0.0 for row in points])
    if points[0]["size"] is not None:
        sizes = [row["size"] for row in points]
        return axes.errorbar(sizes, means, yerr=errors, elinewidth=1.2, markersize=6, **style)
    if errors[0]:
        bounds = (means[0] - errors[0], means[0] + errors[0])
        axes.axhspan(*bounds, color=style["color"], alpha=0.15, linewidth=0)
    return axes.axhline(means[0], **style)


def write_figure(file: str | os.PathLike[str], rows: Sequence[Record]) -> None:
    """Draw the comparison into a PNG file, whole or not at all."""
    figures.save_figure(comparison_figure(rows), file)
