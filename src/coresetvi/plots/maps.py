"""Maps of predictive entropy: where in the plane of two inputs a classifier is sure, and where not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.dataset import Dataset
from ..errors import InputError
from ..families.draws import Draws
from ..fitting.result import Fit
from .figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

Bounds = tuple[float, float, float, float]  # left, right, bottom, top

COLOUR_MAP = "cividis"  # perceptually uniform, and the same to colour-blind eyes
# Bright, to be seen on the dark of the map; the first two differ in lightness as well.
CLASS_COLOURS = ("#ff7043", "#80deea", "#ba68c8", "#aed581", "#f06292", "#bcaaa4")
CLASS_MARKERS = ("o", "s", "^", "D", "v", "P")  # for eyes and printers that do not tell colours apart
MARKS = "Small marks: data.  Large ones: points of the coreset, area by weight.  Shapes and colours: classes."
LARGEST_MARKER, SMALLEST_MARKER = 220.0, 18.0  # areas, in square points


def predictive_entropy(
    fit: Fit, x: object, *, correct: bool | None = None, draws: Draws | None = None
) -> np.ndarray:
    """Entropy in nats of the predictive distribution over classes, one number per row of `x`.

    `correct` and `draws` are those of `Fit.predict`.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.halfmoon(n=50)
    >>> fit = cvi.fit(cvi.RandomSubset(4), cvi.models.LogisticRegression(2), train, key=0, num_steps=20)
    >>> predictive_entropy(fit, test.x).shape
    (1000,)
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
) -> "QuadMesh":
    """Draw the predictive entropy of a classifier in the plane: dark where it is sure, bright where not.

    `data` are drawn faintly, the points of the coreset as marks with an area in proportion to their weight
    (`points=False` leaves them out). `entropy`, if known already, has one number for each point of
    `grid(bounds, resolution)`. Returns the image, for a colour bar; all maps share the scale 0 … log C.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.halfmoon(n=50)
    >>> fit = cvi.fit(cvi.RandomSubset(4), cvi.models.LogisticRegression(2), train, key=0, num_steps=20)
    >>> figure = new_figure(4.0, 3.0)
    >>> image = entropy_map(figure.subplots(), fit, data=train, resolution=20)
    >>> figure.colorbar(image, label="predictive entropy (nats)").vmax == np.log(2)  # nothing is known
    np.True_
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
) -> "QuadMesh":
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
    """Entropy maps side by side with one colour bar; each panel holds arguments of `entropy_map`.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.halfmoon(n=50)
    >>> fit = cvi.fit(cvi.RandomSubset(4), cvi.models.LogisticRegression(2), train, key=0, num_steps=20)
    >>> panels = [{"fit": fit, "title": "four points"}, {"fit": fit, "points": False}]
    >>> entropy_figure(panels, train, around(train), resolution=20).savefig("maps.png")
    """
    left, right, bottom, top = bounds
    width = 4.5
    figure = new_figure(width * len(panels) + 1.0, width * (top - bottom) / (right - left) + 1.25)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    images = [
        entropy_map(place, data=data, bounds=bounds, resolution=resolution, **panel)
        for place, panel in zip(axes, panels, strict=True)
    ]
    for place in axes:
        place.set_xlabel("first input", fontsize=11)
    axes[0].set_ylabel("second input", fontsize=11)
    # Inside the last map's own frame, so that it is as high as the maps are.
    bar = figure.colorbar(images[-1], cax=axes[-1].inset_axes((1.03, 0.0, 0.04, 1.0)))
    bar.set_label("predictive entropy (nats)", fontsize=11)
    figure.supxlabel(MARKS, fontsize=11)
    return figure


def _scatter(axes: "Axes", points: Dataset, sizes: float | np.ndarray, **style: Any) -> None:
    x, y, _ = points.to_numpy()
    labels = np.zeros(len(x), int) if y is None else (y.argmax(axis=1) if y.ndim == 2 else y.astype(int))
    sizes = np.broadcast_to(sizes, len(x))
    for label in np.unique(labels):
        here, number = labels == label, label % len(CLASS_COLOURS)
        marks = {"color": CLASS_COLOURS[number], "marker": CLASS_MARKERS[number]}
        axes.scatter(x[here, 0], x[here, 1], s=sizes[here], **marks, **style)
