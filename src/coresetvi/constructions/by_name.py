"""Constructions by name: what can be asked for in words, and with which options."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, get_type_hints

from .._checks import check_choice
from ..errors import InputError
from .base import Construction
from .bbpsvi import BBPSVI
from .condensation import Condensation
from .greedy import GreedyBBSparseVI, SparseVI
from .hilbert import GIGA, FrankWolfe, HardThresholding, ImportanceSampling
from .last_layer import LastLayerPSVI
from .published import PSVI, BBSparseVI, DatasetDistillation, QuasiNewton
from .reference import FullLaplace, FullVI, RandomSubset, SubsetLaplace

# What can be learned, in words.
LEARNED = {"x": "locations", "y": "labels", "weights": "weights", "total": "the total weight"}


class Method(NamedTuple):
    """One way to a posterior: what builds it, whether it is told a size, and what it does in a few words."""

    make: Callable[..., Construction]
    sized: bool
    summary: str


# A new method is one row here: options are passed on to it if its signature has them.
METHODS = {
    "bb-psvi": Method(BBPSVI, True, "learned points and weights"),
    "bb-sparse-vi": Method(BBSparseVI, True, "random rows, learned weights"),
    "greedy-bb-sparse-vi": Method(GreedyBBSparseVI, True, "rows added one by one, learned weights"),
    "psvi": Method(PSVI, True, "learned points and weights, analytic gradients"),
    "sparse-vi": Method(SparseVI, True, "rows added one by one, analytic gradients"),
    "quasi-newton": Method(QuasiNewton, True, "random rows, weights by quasi-Newton steps"),
    "last-layer": Method(LastLayerPSVI, True, "learned points, for networks, by their last layer"),
    "dataset-distillation": Method(DatasetDistillation, True, "points that train a network in few steps"),
    "condensation": Method(Condensation, True, "points whose gradients match the data's"),
    "giga": Method(GIGA, True, "rows by geodesic ascent"),
    "frank-wolfe": Method(FrankWolfe, True, "rows by Frank-Wolfe steps"),
    "importance-sampling": Method(ImportanceSampling, True, "rows drawn by importance"),
    "hard-thresholding": Method(HardThresholding, True, "rows by iterative hard thresholding"),
    "random-subset": Method(RandomSubset, True, "random rows, weighted alike"),
    "subset-laplace": Method(SubsetLaplace, True, "random rows, Laplace's approximation"),
    "full-vi": Method(FullVI, False, "variational inference on all rows"),
    "full-laplace": Method(FullLaplace, False, "Laplace's approximation on all rows"),
}

# All of them in one sentence, for a help text.
METHOD_LIST = "; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())


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


def build_construction(method: str, size: int | None = None, **options: object) -> Construction:
    """The method of that name with the options that were given; None stands for one that was not."""
    check_choice("method", method, METHODS)
    make, sized, _ = METHODS[method]
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if not takes(method, name):
            raise refusal(name, value, [method])
    if not sized:
        if size is not None:
            raise InputError(f"size= is not for {method}, which takes all rows; leave it out")
        return make(**given)
    if size is None:
        raise InputError(f"{method} needs to know how many points; say so with size=")
    return make(size, **given)


def refusal(option: str, value: object, methods: Sequence[str]) -> InputError:
    """The sentence for an option that none of `methods` takes."""
    listed = " and ".join(methods)
    others = [name for name in METHODS if takes(name, option)]
    remedy = "leave it out" + (f", or use {' or '.join(others)}" if others else "")
    if option == "learn" and isinstance(value, Iterable):
        words = " and ".join(LEARNED.get(name, repr(name)) for name in sorted(value))
        return InputError(f"{listed} cannot learn {words} (learn=); {remedy}")
    return InputError(f"{option}= is not for {listed}; {remedy}")
