"""What the command line offers, and how its words become models, sizes and places."""

from pathlib import Path
from typing import Any

from ..data.files import READABLE
from ..data.labels import Labels
from ..data.rows import Rows
from ..errors import InputError
from ..families.gaussian import FullRank, LowRank, MeanField
from ..models.base import Model
from ..models.glm import LinearRegression, LogisticRegression, PoissonRegression, SoftmaxRegression
from ..models.nets import BayesianMLP

MODELS = ("auto", "logistic", "softmax", "linear", "poisson", "mlp")
FAMILIES = {
    "auto": None,
    "mean-field": MeanField(),
    "full-rank": FullRank(),
    "low-rank": LowRank(),
}
# How each model reads the target.
LABEL_KINDS = {"logistic": "classes", "softmax": "classes", "linear": "numbers", "poisson": "numbers"}


def beside(folder: Path, ending: str) -> Path:
    """A file next to a folder, with the folder's name and another ending.

    >>> beside(Path("work/fitted"), ".png").as_posix()
    'work/fitted.png'
    """
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}{ending}")


def name_of(table: Path) -> str:
    """The name of a table without its ending: what is made of it is called after it.

    >>> name_of(Path("data/people.csv")), name_of(Path("rows.CSV.gz"))
    ('people', 'rows')
    """
    ending = next((ending for ending in READABLE if table.name.lower().endswith(ending)), table.suffix)
    return table.name[: len(table.name) - len(ending)] or "table"


def split_list(option: str, text: str) -> list[str]:
    """ "a,b" as ["a", "b"]: no blanks, nothing twice."""
    parts = [part.strip() for part in text.split(",")]
    if found := list(dict.fromkeys(part for part in parts if part)):
        return found
    raise InputError(f"{option} {text!r} names nothing; write it like a,b")


def size_list(text: str) -> list[int]:
    """The sizes in `text`, smallest first."""
    sizes = set()
    for part in split_list("--sizes", text):
        if not (part.isascii() and part.isdigit() and int(part) > 0):
            raise InputError(f"--sizes has {part!r}, not a whole number of points; write it like 10,40,100")
        sizes.add(int(part))
    return sorted(sizes)


def learn_set(text: str | None) -> frozenset[str] | None:
    """The names in `text`, or None if nothing was said."""
    return None if text is None else frozenset(split_list("--learn", text))


def infer_model(labels: Labels) -> str:
    """The simplest model for such a target."""
    if labels.classes is None:
        return "linear"
    return "logistic" if len(labels.classes) == 2 else "softmax"


def build_model(
    name: str,
    dataset: Rows,
    labels: Labels,
    intercept: bool,
    prior_scale: float,
    noise: float | None,
    hidden: str | None,
) -> Model:
    """The model of that name for these columns and labels."""
    count = None if labels.classes is None else len(labels.classes)
    if noise is not None and not (name == "linear" or (name == "mlp" and count is None)):
        raise InputError(f"--noise is for regressions (linear, mlp), not for this {name}; leave it out")
    if name == "mlp":
        if not intercept:
            raise InputError("--no-intercept is not for an mlp, whose every layer has one; leave it out")
        layers = hidden_layers(hidden)
        return BayesianMLP(
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
        return LogisticRegression(dataset.dim, **common)
    if name == "softmax":
        return SoftmaxRegression(dataset.dim, count, **common)
    if name == "poisson":
        return PoissonRegression(dataset.dim, **common)
    return LinearRegression(dataset.dim, noise=1.0 if noise is None else noise, **common)


def hidden_layers(text: str | None) -> tuple[int, ...]:
    """ "20,20" as (20, 20)."""
    try:
        return (20,) if text is None else tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--hidden {text!r} is no list of layer sizes; write it like 20,20") from error
