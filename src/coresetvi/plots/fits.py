"""Pictures of one fit: its weights and its history."""

from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..fitting.result import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from .figures import new_figure


def weights_plot(fit: Fit) -> "Figure":
    """The weights of a coreset, heaviest first, and the weight that each would have if all were equal.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.halfmoon(n=50)
    >>> fit = cvi.fit(cvi.RandomSubset(4), cvi.models.LogisticRegression(2), train, key=0, num_steps=20)
    >>> weights_plot(fit).axes[0].get_title()
    '4 points, effectively 4.0'
    """
    figure = new_figure(6.0, 3.6)
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
    """Loss, estimated KL and effective sample size at every step.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.halfmoon(n=50)
    >>> fit = cvi.fit(cvi.RandomSubset(4), cvi.models.LogisticRegression(2), train, key=0, num_steps=20)
    >>> history_plot(fit).axes[0].get_ylabel()
    'loss (nats)'
    """
    names = [name for name in HISTORY_LABELS if len(fit.history.get(name, ()))]
    if not names:
        raise InputError("this fit has no history to plot; it was stopped before its first step")
    figure = new_figure(4.0 * len(names), 3.2)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        draw_history(axes, fit, name)
    return figure


def draw_history(axes: "Axes", fit: Fit, name: str) -> None:
    """One record of the history against the steps."""
    values = np.asarray(fit.history[name], dtype=float)
    axes.plot(np.arange(1, len(values) + 1), values, linewidth=1.2)
    axes.set_xlabel("step")
    axes.set_ylabel(HISTORY_LABELS[name])
