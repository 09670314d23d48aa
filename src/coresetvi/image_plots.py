"""Pictures of coresets of images, and of scores against size beside those of a paper.

Lines differ in marker, dashes and colour, as those of `comparison_plot` do. Needs matplotlib.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import plots
from .checks import whole_number
from .comparison_plot import line_styles
from .data import Dataset
from .errors import InputError
from .fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_IMAGES = 100
LABEL_COLOUR, WEIGHT_COLOUR = "#0072b2", "#d55e00"
TILE = 0.9  # inches of an image's width
# Parts of it above an image for the weight, beneath it for the label, and between tiles.
WEIGHT_ROOM, LABEL_ROOM, GAP = 0.28, 0.32, 0.1
# Grey levels are stretched between these quantiles: learned images have a few pixels far out.
LEVELS = (0.005, 0.995)


def draw_images(
    coreset: Fit | Dataset, *, most: int = MOST_IMAGES, num_classes: int | None = None, title: str = ""
) -> "Figure":
    """The images of a coreset in a grid, each over its label as bars and with its weight above it.

    Rows are (height, width) or (height, width, colours), 1 or 3 of them. Images are sorted by label, within
    it by weight, and of more than `most` the heaviest are shown, as the title says. A bar beneath an image is
    the share of a class, first class left; the orange line above it the weight, relative to the heaviest.
    """
    points = coreset.coreset if isinstance(coreset, Fit) else coreset
    if isinstance(coreset, Fit):
        num_classes = coreset.model.num_classes if num_classes is None else num_classes
    x, y, weights = points.to_numpy()
    loads = [float(weight) for weight in weights]
    if x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
        raise InputError(
            f"rows of shape {x.shape[1:]} are no images; they must be (height, width) or (height, width, "
            "colours) with 1 or 3 colours"
        )
    labels = label_shares(y, num_classes)
    shown = order(labels, weights, whole_number("most", most))
    columns = min(len(shown), max(10, math.ceil(math.sqrt(len(shown)))))
    lines = math.ceil(len(shown) / columns)
    # Positions in units of a tile's width, counted downwards; all in one pair of axes, which is quick.
    tall = x.shape[1] / x.shape[2]
    step = tall + WEIGHT_ROOM + (0.0 if labels is None else LABEL_ROOM) + GAP
    figure = plots._figure(TILE * max((1.0 + GAP) * columns, 6.0), TILE * step * lines + 0.8)
    axes = figure.subplots()
    low, top = np.quantile(x[shown], LEVELS)
    levels = (float(low), float(top) if top > low else float(low) + 1.0)
    bars, lengths = [], []
    for number, index in enumerate(shown):
        left, ceiling = (1.0 + GAP) * (number % columns), step * (number // columns) + WEIGHT_ROOM
        draw_image(axes, x[index], levels, (left, left + 1.0, ceiling + tall, ceiling))
        axes.text(left + 0.5, ceiling - 0.09, weight_text(loads[index]), fontsize=7, ha="center")
        lengths.append(box(left, loads[index] / (max(loads) or 1.0), ceiling - 0.02, -0.04))
        if labels is not None:
            ground, width = ceiling + tall + LABEL_ROOM, 1.0 / labels.shape[1]
            bars.append(box(left, 1.0, ground, 0.008))
            for place, share in enumerate(labels[index]):
                start = left + (place + 0.1) * width
                bars.append(box(start, 0.8 * width, ground, -0.9 * LABEL_ROOM * float(share)))
    draw_boxes(axes, lengths, WEIGHT_COLOUR)
    draw_boxes(axes, bars, LABEL_COLOUR)
    axes.set_xlim(0.0, (1.0 + GAP) * columns - GAP)
    axes.set_ylim(step * lines, 0.0)
    axes.set_aspect("equal")
    axes.set_axis_off()
    some = f"the {len(shown)} heaviest of {len(x)}" if len(shown) < len(x) else f"all {len(x)}"
    figure.suptitle(f"{title}{': ' if title else ''}{some} images", fontsize=11)
    about = "number and orange line: weight"
    if labels is not None:
        about += f";  blue bars: share of each of {labels.shape[1]} classes, first class left"
    figure.supxlabel(about, fontsize=9)
    return figure


def label_shares(y: np.ndarray | None, num_classes: int | None) -> np.ndarray | None:
    """Labels as shares of classes (n, C); None where there are none, or where they are no classes.

    >>> label_shares(np.array([0, 2]), None).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if y is None or y.ndim == 2:
        return y
    if not np.issubdtype(y.dtype, np.integer):
        return None
    return np.eye(num_classes or int(y.max()) + 1)[y]


def order(labels: np.ndarray | None, weights: np.ndarray, most: int) -> np.ndarray:
    """Which points to show, and in which order: the heaviest, by class and then by weight."""
    heaviest = np.argsort(-weights, kind="stable")[:most]
    if labels is None:
        return heaviest
    return heaviest[np.argsort(labels[heaviest].argmax(axis=1), kind="stable")]


def draw_image(
    axes: "Axes", image: np.ndarray, levels: tuple[float, float], extent: tuple[float, float, float, float]
) -> None:
    """One image, grey or in colour, its values stretched from `levels` to 0 … 1."""
    scaled = np.clip((image - levels[0]) / (levels[1] - levels[0]), 0.0, 1.0)
    scaled = scaled[..., 0] if image.ndim == 3 and image.shape[2] == 1 else scaled
    axes.imshow(scaled, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest", extent=extent)


def box(left: float, width: float, bottom: float, height: float) -> np.ndarray:
    """The corners of a rectangle."""
    right, top = left + width, bottom + height
    return np.array([(left, bottom), (right, bottom), (right, top), (left, top)])


def draw_boxes(axes: "Axes", boxes: Sequence[np.ndarray], colour: str) -> None:
    """Many rectangles at once."""
    from matplotlib.collections import PolyCollection

    axes.add_collection(PolyCollection(boxes, facecolors=colour, edgecolors="none"))


def weight_text(weight: float) -> str:
    """A weight in as few digits as tell it.

    >>> weight_text(4771.3), weight_text(0.01234)
    ('4,771', '0.0123')
    """
    return f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"


def draw_accuracy(
    rows: Sequence[dict[str, Any]],
    *,
    paper: Sequence[dict[str, Any]] = (),
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
    figure = plots._figure(4.4 * len(panels) + 3.0, max(4.2, 0.24 * len(styles) + 1.2))
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    lines: dict[str, Any] = {}
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


def sorted_points(rows: Sequence[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    """The rows of a method that have a number, by size."""
    known = [row for row in rows if row["method"] == method and row["value"]["mean"] is not None]
    return sorted(known, key=lambda row: (row["size"] is None, row["size"]))


def draw_line(axes: "Axes", points: Sequence[dict[str, Any]], style: dict[str, Any]) -> Any:
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


def key_words(rows: Sequence[dict[str, Any]]) -> str:
    """How many keys the rows are means of, in words.

    >>> key_words([{"keys": 3}, {"keys": 1}])
    '1 to 3 keys'
    """
    least, most = min(row["keys"] for row in rows), max(row["keys"] for row in rows)
    return f"{least} to {most} keys" if least < most else f"{most} key{'' if most == 1 else 's'}"
