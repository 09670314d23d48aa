"""Pictures of coresets of images. Needs matplotlib."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._checks import whole_number
from ..data.dataset import Dataset
from ..errors import InputError
from ..fitting.result import Fit
from . import figures

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

    >>> coreset = Dataset(np.random.default_rng(0).random((3, 8, 8)), [0, 1, 1], weights=[5, 2, 1])
    >>> draw_images(coreset).get_suptitle()
    'all 3 images'
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
    figure = figures.new_figure(TILE * max((1.0 + GAP) * columns, 6.0), TILE * step * lines + 0.8)
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
    """Labels as shares of classes (n, C); None where there are none, or where they are not classes.

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
    """A weight in few digits.

    >>> weight_text(4771.3), weight_text(0.01234)
    ('4,771', '0.0123')
    """
    return f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"
