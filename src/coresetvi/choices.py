"""What the command line offers, and how its words become models, constructions and sizes."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import coresetvi as cvi

from . import tables
from .constructions.base import Construction
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
# What can be learned, in words.
LEARNED = {"x": "locations", "y": "labels", "weights": "weights", "total": "the total weight"}


class Method(NamedTuple):
    """One way to a posterior: what builds it, whether it is told a size, and what it does in a few words."""

    make: Callable[..., Construction]
    sized: bool
    summary: str


# A new method is one row here: options are passed on to it if its signature has them.
METHODS = {
    "bb-psvi": Method(cvi.BBPSVI, True, "learned points and weights"),
    "bb-sparse-vi": Method(cvi.BBSparseVI, True, "random rows, learned weights"),
    "greedy-bb-sparse-vi": Method(cvi.GreedyBBSparseVI, True, "rows added one by one, learned weights"),
    "psvi": Method(cvi.PSVI, True, "learned points and weights, analytic gradients"),
    "sparse-vi": Method(cvi.SparseVI, True, "rows added one by one, analytic gradients"),
    "quasi-newton": Method(cvi.QuasiNewton, True, "random rows, weights by quasi-Newton steps"),
    "last-layer": Method(cvi.LastLayerPSVI, True, "learned points, for networks, by their last layer"),
    "dataset-distillation": Method(cvi.DatasetDistillation, True, "points that train a network in few steps"),
    "condensation": Method(cvi.Condensation, True, "points whose gradients match the data's"),
    "giga": Method(cvi.GIGA, True, "rows by geodesic ascent"),
    "frank-wolfe": Method(cvi.FrankWolfe, True, "rows by Frank-Wolfe steps"),
    "importance-sampling": Method(cvi.ImportanceSampling, True, "rows drawn by importance"),
    "hard-thresholding": Method(cvi.HardThresholding, True, "rows by iterative hard thresholding"),
    "random-subset": Method(cvi.RandomSubset, True, "random rows, weighted alike"),
    "subset-laplace": Method(cvi.SubsetLaplace, True, "random rows, Laplace's approximation"),
    "full-vi": Method(cvi.FullVI, False, "variational inference on all rows"),
    "full-laplace": Method(cvi.FullLaplace, False, "Laplace's approximation on all rows"),
}


def check_choice(option: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise InputError(f"{option} {value!r} is unknown; choose one of {', '.join(known)}")


def takes(method: str, option: str) -> bool:
    """Whether the method of that name has an option of that name.

    >>> takes("bb-psvi", "init"), takes("full-vi", "init")
    (True, False)
    """
    make = METHODS[method].make
    parameters = inspect.signature(make).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        # A function that passes its other options on to what it returns.
        parameters = {**inspect.signature(get_type_hints(make)["return"]).parameters, **parameters}
    return option in parameters


def build_construction(method: str, size: int | None = None, **options: Any) -> Construction:
    """The method of that name with the options that were given; None stands for one that was not."""
    check_choice("--method", method, METHODS)
    make, sized, _ = METHODS[method]
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if not takes(method, name):
            raise refusal(name, value, [method])
    if not sized:
        if size is not None:
            raise InputError(f"--size is not for {method}, which takes all rows; leave it out")
        return make(**given)
    if size is None:
        raise InputError(f"{method} needs to know how many points; say so with --size")
    return make(size, **given)


def refusal(option: str, value: Any, methods: Sequence[str]) -> InputError:
    """The sentence for an option that none of `methods` takes."""
    listed = " and ".join(methods)
    others = [name for name in METHODS if takes(name, option)]
    remedy = "leave it out" + (f", or use {' or '.join(others)}" if others else "")
    flag = f"--{option.replace('_', '-')}"
    if option == "learn":
        words = " and ".join(LEARNED.get(name, repr(name)) for name in sorted(value))
        return InputError(f"{listed} cannot learn {words} ({flag}); {remedy}")
    return InputError(f"{flag} is not for {listed}; {remedy}")


def beside(folder: Path, ending: str) -> Path:
    """A file next to a folder, with the folder's name and another ending.

    >>> beside(Path("work/fitted"), ".png").as_posix()
    'work/fitted.png'
    """
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}{ending}")


def split_list(option: str, text: str) -> list[str]:
    """ "a,b" as ["a", "b"]: no blanks, nothing twice."""
    parts = [part.strip() for part in text.split(",")]
    if found := list(dict.fromkeys(part for part in parts if part)):
        return found
    raise InputError(f"{option} {text!r} names nothing; write it like a,b")


def method_list(text: str) -> list[str]:
    """The names of the methods in `text`."""
    names = split_list("--methods", text)
    for name in names:
        check_choice("--methods", name, METHODS)
    return names


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


class Problem(NamedTuple):
    """A table, what its labels mean, and the model for it by name and as itself."""

    dataset: cvi.Dataset
    labels: Labels
    name: str
    model: cvi.models.Model


def read_problem(
    data: Any,
    target: str | None,
    weights: str | None,
    drop: Sequence[str] | None,
    *,
    model: str,
    classes: int | None,
    intercept: bool,
    prior_scale: float,
    noise: float | None,
    hidden: str | None,
) -> Problem:
    """The table in the file `data`, and the model that was asked for or that its target suggests."""
    check_choice("--model", model, MODELS)
    kind = "numbers" if classes == 0 else LABEL_KINDS.get(model, "classes" if classes else "auto")
    dataset, labels = tables.read_table(
        data, target, weights, drop or (), kind=kind, num_classes=classes or None
    )
    name = infer_model(labels) if model == "auto" else model
    chosen = build_model(name, dataset, labels, intercept, prior_scale, noise, hidden)
    return Problem(dataset, labels, name, chosen)


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
