"""Scores against the size of a coreset, beside those of a paper."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coresetvi.errors import InputError
from coresetvi.plots import figures
from coresetvi.plots.comparison_figure import Handle, Style, line_styles
from coresetvi.workflows.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_scores(
    rows: Sequence[Record],
    *,
    paper: Sequence[Record] = (),
    label: str = "accuracy (%)",
    title: str = "",
) -> "Figure":
    """A score against the size of the coreset, ours in one panel and the paper's in another beside it.

    A row has `method`, `size` (None for all rows of the data: a horizontal line), `value` with `mean` and
    `standard_error` (None for one key), and ours `keys`, the number of fits. A method looks the same in both
    panels, which share their axes.
    """
    if not rows:
        raise InputError("there is no result to draw; run at least one fit")
    panels = {"ours": list(rows)} | ({"paper": list(paper)} if paper else {})
    everything = [row for one in panels.values() for row in one]
    styles = line_styles(everything)
    figure = figures.new_figure(4.4 * len(panels) + 3.0, max(4.2, 0.24 * len(styles) + 1.2))
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    lines: dict[str, Handle] = {}
    sizes = sorted({row["size"] for row in everything if row["size"] is not None})
    for place, (name, found) in zip(axes, panels.items(), strict=True):
        place.set_xscale("log")
        if sizes:  # said before anything is drawn, because one size alone has no extent
            place.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
        place.grid(axis="y", color="0.85", linewidth=0.8)
        for method, style in styles.items():
            if points := sorted_points(found, method):
                lines.setdefault(method, draw_line(place, points, style))
        place.set_title(name if name == "paper" else f"ours, {key_words(rows)}", fontsize=11)
        place.set_xlabel("size of the coreset")
    axes[0].set_xticks(sizes, [f"{size:,}" for size in sizes])
    for place in axes:
        place.tick_params(axis="x", labelsize=8)
        place.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes[0].set_ylabel(label)
    names = [method for method in styles if method in lines]
    figure.legend([lines[name] for name in names], names, loc="outside right center", frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure


def sorted_points(rows: Sequence[Record], method: str) -> list[Record]:
    """The rows of a method that have a number, by size."""
    known = [row for row in rows if row["method"] == method and row["value"]["mean"] is not None]
    return sorted(known, key=lambda row: (row["size"] is None, row["size"]))


def draw_line(axes: "Axes", points: Sequence[Record], style: Style) -> Handle:
    """One method's means with one standard error either way; a single number without a size is a level."""
    means = np.array([row["value"]["mean"] for row in points], dtype=float)
    errors = np.array([row["value"]["standard_error"] or 0.0 for row in points], dtype=float)
    if points[0]["size"] is None:
        axes.axhspan(
            means[0] - errors[0], means[0] + errors[0], color=style["color"], alpha=0.15, linewidth=0
        )
        return axes.axhline(means[0], **style)
    sizes = [row["size"] for row in points]
    return axes.errorbar(sizes, means, yerr=errors, elinewidth=1.2, capsize=2.5, markersize=6, **style)


def key_words(rows: Sequence[Record]) -> str:
    """How many keys the rows are means of, in words.

    >>> key_words([{"keys": 3}, {"keys": 1}])
    '1 to 3 keys'
    """
    least, most = min(row["keys"] for row in rows), max(row["keys"] for row in rows)
    return f"{least} to {most} keys" if least < most else f"{most} key{'' if most == 1 else 's'}"
