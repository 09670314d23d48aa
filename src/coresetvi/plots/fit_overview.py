"""One picture of a whole fit: how it went, what weighs how much, and the posterior it leaves."""

from typing import TYPE_CHECKING

import numpy as np

from ..data.dataset import Dataset
from ..families.draws import Draws, scalars
from ..families.importance import usable
from ..fitting.result import Fit
from ..posterior.sampling import sample
from .figures import new_figure
from .fits import draw_history, draw_weights
from .maps import around, entropy_map, grid, predictive_entropy

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

# Parameters in a pair plot: more make panels that nobody can read.
MOST_PAIRS = 5
SHOWN_DRAWS = 2000
RESOLUTION = 100
BLUE, ORANGE = "#0072b2", "#d55e00"


def overview(fit: Fit, *, data: Dataset | None = None, draws: Draws | None = None) -> "Figure":
    """Loss and weights beside what fits the model: entropy in the plane, or pairs of parameters.

    Classes with two inputs get the map of predictive entropy, with `data`, if given, as dots; anything else
    gets pairs of its first parameters. Draws are taken from the fit if none are given.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.halfmoon(n=50)
    >>> fit = cvi.fit(cvi.RandomSubset(4), cvi.models.LogisticRegression(2), train, key=0, num_steps=20)
    >>> overview(fit, data=train, draws=cvi.sample(fit, method="variational")).savefig("overview.png")
    """
    draws = trusted_draws(fit) if draws is None else draws
    figure = new_figure(11.0, 6.0)
    left, right = figure.subfigures(1, 2, width_ratios=(1.0, 1.6), squeeze=False)[0]
    if len(fit.history.get("loss", ())):
        top, bottom = left.subplots(2, 1)
        draw_history(top, fit, "loss")
        top.set_title(f"{type(fit.construction).__name__ if fit.construction else 'fit'}: {fit.result}")
    else:
        bottom = left.subplots()
    draw_weights(bottom, fit)
    if fit.model.num_classes is not None and fit.coreset.x.shape[1:] == (2,):
        draw_map(right, fit, data, draws)
    else:
        draw_pairs(right, draws)
    return figure


def trusted_draws(fit: Fit) -> Draws:
    """Draws by importance where that works, and by NUTS where it does not."""
    method = "importance" if usable(fit.reliability()) else "nuts"
    return sample(fit, method=method, num_samples=500, progress=False)


def draw_map(figure: "FigureBase", fit: Fit, data: Dataset | None, draws: Draws) -> None:
    """Predictive entropy of the draws in the plane of the inputs."""
    axes = figure.subplots()
    bounds = around(data or fit.coreset)
    entropy = predictive_entropy(fit, grid(bounds, RESOLUTION)[2], draws=draws)
    image = entropy_map(axes, fit, data=data, bounds=bounds, resolution=RESOLUTION, entropy=entropy)
    names = fit.coreset.columns or ("first input", "second input")
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.set_title(f"Predictive entropy ({draws.method}); large marks: coreset, area by weight")
    figure.colorbar(image, ax=axes, label="predictive entropy (nats)", shrink=0.8)


def draw_pairs(figure: "FigureBase", draws: Draws) -> None:
    """Histograms of parameters, and scatters of each pair of them."""
    plain = draws.resample()
    columns = [
        (label, values.ravel())
        for name, leaf in plain.named().items()
        for label, values in scalars(name, leaf, plain.data.columns)
    ]
    shown = columns[:MOST_PAIRS]
    every = max(1, len(shown[0][1]) // SHOWN_DRAWS)
    axes = figure.subplots(len(shown), len(shown), squeeze=False)
    for row, (label, values) in enumerate(shown):
        for column, (other, across) in enumerate(shown):
            place = axes[row, column]
            if column > row:
                place.set_axis_off()
                continue
            if column == row:
                place.hist(values, bins=40, color=BLUE)
                place.axvline(float(np.mean(values)), color=ORANGE, linewidth=1.2)
                place.set_yticks([])
            else:
                place.plot(
                    across[::every],
                    values[::every],
                    ".",
                    markersize=1.5,
                    alpha=0.4,
                    color=BLUE,
                    rasterized=True,
                )
                if column:
                    place.set_yticklabels([])
            place.tick_params(labelsize=7)
            place.locator_params(nbins=4)
            if row == len(shown) - 1:
                place.set_xlabel(other, fontsize=9)
            else:
                place.set_xticklabels([])
            if column == 0 and row:
                place.set_ylabel(label, fontsize=9)
    more = f"; first {len(shown)} of {len(columns)} parameters" if len(columns) > len(shown) else ""
    figure.suptitle(f"Draws of the coreset posterior ({draws.method}){more}")
