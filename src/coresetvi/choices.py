"""What the command line offers, and how its words become models, families and sizes."""

from collections.abc import Iterable
from typing import Any

import numpy as np

import coresetvi as cvi

from .errors import InputError
from .labels import Labels

MODELS = ("auto", "logistic", "softmax", "linear", "poisson", "mlp")
FAMILIES = {
    "auto": None,
    "mean-field": cvi.families.MeanField(),
    "full-rank": cvi.families.FullRank(),
    "low-rank": cvi.families.LowRank(),
}
# How each model reads the target.
LABEL_KINDS = {"logistic": "classes", "softmax": "classes", "linear": "numbers", "poisson": "numbers"}
# Size of a coreset that was not asked for: this many points a parameter, within these limits.
POINTS_PER_PARAMETER, FEWEST_POINTS, MOST_POINTS = 2, 20, 500


def check_choice(option: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise InputError(f"{option} {value!r} is unknown; choose one of {', '.join(known)}")


def infer_model(labels: Labels) -> str:
    """The simplest model for such a target."""
    if labels.classes is None:
        return "linear"
    return "logistic" if len(labels.classes) == 2 else "softmax"


def build_model(
    name: str,
    dataset: cvi.Dataset,
    labels: Labels,
    intercept: bool,
    prior_scale: float,
    noise: float | None,
    hidden: str | None,
) -> cvi.models.Model:
    """The model of that name for these columns and labels."""
    count = None if labels.classes is None else len(labels.classes)
    if noise is not None and not (name == "linear" or (name == "mlp" and count is None)):
        raise InputError(f"--noise is for regressions (linear, mlp), not for this {name}; leave it out")
    if name == "mlp":
        if not intercept:
            raise InputError("--no-intercept is not for an mlp, whose every layer has one; leave it out")
        layers = hidden_layers(hidden)
        return cvi.models.BayesianMLP(
            dataset.dim, layers, count, noise=1.0 if noise is None else noise, prior_scale=prior_scale
        )
    if hidden is not None:
        raise InputError(f"--hidden is for an mlp, but the model is {name}; leave it out or use --model mlp")
    common: dict[str, Any] = {"intercept": intercept, "prior_scale": prior_scale}
    if name == "logistic":
        if count != 2:
            raise InputError(
                f"target {labels.target!r} has {count} classes, but --model logistic is for 2; use softmax"
            )
        return cvi.models.LogisticRegression(dataset.dim, **common)
    if name == "softmax":
        return cvi.models.SoftmaxRegression(dataset.dim, count, **common)
    if name == "poisson":
        return cvi.models.PoissonRegression(dataset.dim, **common)
    return cvi.models.LinearRegression(dataset.dim, noise=1.0 if noise is None else noise, **common)


def hidden_layers(text: str | None) -> tuple[int, ...]:
    """ "20,20" as (20, 20)."""
    try:
        return (20,) if text is None else tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--hidden {text!r} is no list of layer sizes; write it like 20,20") from error


def default_size(model: cvi.models.Model, dataset: cvi.Dataset) -> int:
    """Enough points to pin down every parameter, while that is few."""
    wanted = min(max(POINTS_PER_PARAMETER * model.dim, FEWEST_POINTS), MOST_POINTS)
    return min(wanted, int(np.count_nonzero(dataset.weights)))
