"""Pictures of fits: matplotlib figures that nobody has to close and no window has to show.

Every function needs matplotlib, which `pip install "coresetvi[cli]"` brings; it is imported when first used.
"""

import contextlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .data import Dataset
from .draws import Draws
from .errors import InputError
from .fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bounds = tuple[float, float, float, float]  # left, right, bottom, top

COLOUR_MAP = "cividis"  # perceptually uniform, and the same to colour-blind eyes
# Bright, to be seen on the dark of the map; the first two differ in lightness as well.
CLASS_COLOURS = ("#ff7043", "#80deea", "#ba68c8", "#aed581", "#f06292", "#bcaaa4")
CLASS_MARKERS = ("o", "s", "^", "D", "v", "P")  # for eyes and printers that do not tell colours apart
MARKS = "Small marks: data.  Large ones: points of the coreset, area by weight.  Shapes and colours: classes."
MOST_PIXELS = 2.0e6  # many panels are looked at one by one, or from afar
LARGEST_MARKER, SMALLEST_MARKER = 220.0, 18.0  # areas, in square points


def predictive_entropy(
    fit: Fit, x: Any, *, correct: bool | None = None, draws: Draws | None = None
) -> np.ndarray:
    """Entropy in nats of the predictive distribution over classes, one number a row of `x`.

    `correct` and `draws` are those of `Fit.predict`.
    """
    if fit.model.num_classes is None:
        raise InputError("predictive entropy is for classes, but this fit is a regression; plot its variance")
    probabilities = fit.predict(x, correct=correct, draws=draws)
    if probabilities.ndim == 1:
        probabilities = np.stack([1.0 - probabilities, probabilities], axis=1)
    safe = np.clip(probabilities, 1e-12, 1.0)
    return -np.sum(safe * np.log(safe), axis=1)


def grid(bounds: Bounds, resolution: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Horizontal and vertical positions of a grid in the plane, and its points as rows.

    >>> grid((0.0, 1.0, 0.0, 1.0), resolution=2)[2].tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    left, right, bottom, top = bounds
    horizontal, vertical = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    across, up = np.meshgrid(horizontal, vertical)
    return horizontal, vertical, np.stack([across.ravel(), up.ravel()], axis=1)


def around(data: Dataset, margin: float = 0.2) -> Bounds:
    """Bounds of two-dimensional data with a margin, in parts of their larger extent."""
    x = np.asarray(data.x, dtype=float)
    low, high = x.min(axis=0), x.max(axis=0)
    room = margin * float(np.max(high - low)) or 1.0
    return float(low[0]) - room, float(high[0]) + room, float(low[1]) - room, float(high[1]) + room


def entropy_map(
    axes: "Axes",
    fit: Fit,
    *,
    data: Dataset | None = None,
    bounds: Bounds | None = None,
    resolution: int = 100,
    entropy: np.ndarray | None = None,
    points: bool = True,
    title: str = "",
) -> Any:
    """Draw the predictive entropy of a classifier in the plane: dark where it is sure, bright where not.

    `data` are drawn faintly, the points of the coreset as marks with an area in proportion to their weight
    (`points=False` leaves them out). `entropy`, if known already, has one number for each point of
    `grid(bounds, resolution)`. Returns the image, for a colour bar; all maps share the scale 0 … log C.
    """
    if fit.coreset.dim != 2:
        raise InputError(f"an entropy map needs inputs with 2 columns, but this fit has {fit.coreset.dim}")
    bounds = bounds or around(data or fit.coreset)
    if entropy is None:
        entropy = predictive_entropy(fit, grid(bounds, resolution)[2])
    return draw_plane(
        axes,
        bounds,
        entropy.reshape(resolution, resolution),
        num_classes=fit.model.num_classes or 2,
        data=data,
        points=fit.coreset if points else None,
        title=title,
    )


def draw_plane(
    axes: "Axes",
    bounds: Bounds,
    entropy: np.ndarray,
    *,
    num_classes: int,
    data: Dataset | None = None,
    points: Dataset | None = None,
    title: str = "",
) -> Any:
    """The picture of `entropy_map` from what is drawn: entropies in a square, data and weighted points."""
    left, right, bottom, top = bounds
    image = axes.pcolormesh(
        np.linspace(left, right, entropy.shape[1]),
        np.linspace(bottom, top, entropy.shape[0]),
        entropy,
        cmap=COLOUR_MAP,
        vmin=0.0,
        vmax=float(np.log(num_classes)),
        shading="gouraud",
        rasterized=True,
    )
    if data is not None:
        _scatter(axes, data, sizes=5.0, alpha=0.5, linewidths=0.0)
    if points is not None:
        weights = np.asarray(points.weights, dtype=float)
        sizes = np.maximum(LARGEST_MARKER * weights / weights.max(), SMALLEST_MARKER)
        _scatter(axes, points, sizes=sizes, linewidths=1.2, edgecolors="black", zorder=3)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=13)
    return image


def entropy_figure(
    panels: Sequence[dict[str, Any]], data: Dataset, bounds: Bounds, resolution: int = 100
) -> "Figure":
    """Entropy maps side by side with one colour bar; each panel holds arguments of `entropy_map`."""
    left, right, bottom, top = bounds
    width = 4.5
    figure = _figure(width * len(panels) + 1.0, width * (top - bottom) / (right - left) + 1.25)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    image: Any = None
    for place, panel in zip(axes, panels, strict=True):
        image = entropy_map(place, data=data, bounds=bounds, resolution=resolution, **panel)
        place.set_xlabel("first input", fontsize=11)
    axes[0].set_ylabel("second input", fontsize=11)
    # Inside the last map's own frame, so that it is as high as the maps are.
    bar = figure.colorbar(image, cax=axes[-1].inset_axes((1.03, 0.0, 0.04, 1.0)))
    bar.set_label("predictive entropy (nats)", fontsize=11)
    figure.supxlabel(MARKS, fontsize=11)
    return figure


def weights_plot(fit: Fit) -> "Figure":
    """The weights of a coreset, heaviest first, and the weight that each would have if all were equal."""
    figure = _figure(6.0, 3.6)
    draw_weights(figure.subplots(), fit)
    return figure


def draw_weights(axes: "Axes", fit: Fit) -> None:
    """The picture of `weights_plot` in given axes."""
    weights = np.sort(np.asarray(fit.coreset.weights, dtype=float))[::-1]
    shares = weights / weights.sum()
    axes.bar(np.arange(1, len(weights) + 1), weights, width=1.0, edgecolor="white", linewidth=0.5)
    axes.axhline(weights.mean(), color="black", linewidth=1.0, linestyle="--", label="equal weights")
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("point, heaviest first")
    axes.set_ylabel("weight")
    axes.set_title(f"{len(weights)} points, effectively {1.0 / np.sum(shares**2):.1f}")
    axes.legend(frameon=False)


HISTORY_LABELS = {"loss": "loss (nats)", "kl": "estimated KL (nats)", "ess": "effective sample size"}


def history_plot(fit: Fit) -> "Figure":
    """Loss, estimated KL and effective sample size at every step."""
    names = [name for name in HISTORY_LABELS if len(fit.history.get(name, ()))]
    if not names:
        raise InputError("this fit has no history to plot; it was stopped before its first step")
    figure = _figure(4.0 * len(names), 3.2)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        draw_history(axes, fit, name)
    return figure


def draw_history(axes: "Axes", fit: Fit, name: str) -> None:
    """One record of the history against the steps."""
    values = np.asarray(fit.history[name], dtype=float)
    axes.plot(np.arange(1, len(values) + 1), values, linewidth=1.2)
    axes.set_xlabel("step")
    axes.set_ylabel(HISTORY_LABELS[name])


def save_figure(figure: "Figure", file: Any) -> None:
    """Write a picture in the format that the name of `file` ends in, whole or not at all."""
    file = Path(file)
    staging = file.with_name(f".{uuid.uuid4().hex}{file.suffix}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        width, height = figure.get_size_inches()
        figure.savefig(staging, dpi=min(150.0, (MOST_PIXELS / (width * height)) ** 0.5))
        if file.suffix == ".png":
            _reduce_colours(staging)
        os.replace(staging, file)
    except OSError as error:
        raise InputError(f"{file} cannot be written ({error.strerror or error}); choose another") from error
    finally:
        with contextlib.suppress(OSError):
            staging.unlink()


def _reduce_colours(file: Path) -> None:
    """A palette of 256 colours in the place of all: to the eye the same, and a third of the bytes."""
    from PIL import Image  # comes with matplotlib

    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError('pictures need matplotlib; pip install "coresetvi[cli]"') from error
    # Not through pyplot, which keeps every figure and wants a display: this one goes when it is let go.
    return Figure(figsize=(width, height), layout="constrained")


def _scatter(axes: "Axes", points: Dataset, sizes: Any, **style: Any) -> None:
    x, y, _ = points.to_numpy()
    labels = np.zeros(len(x), int) if y is None else (y.argmax(axis=1) if y.ndim == 2 else y.astype(int))
    sizes = np.broadcast_to(sizes, len(x))
    for label in np.unique(labels):
        here, number = labels == label, label % len(CLASS_COLOURS)
        marks = {"color": CLASS_COLOURS[number], "marker": CLASS_MARKERS[number]}
        axes.scatter(x[here, 0], x[here, 1], s=sizes[here], **marks, **style)
