"""Bayesian coresets by black-box variational inference: a few weighted points, the same posterior."""

from . import datasets, errors, families, inner, models, objectives, outer, weights
from .constructions import BBPSVI, FullVI, RandomSubset
from .data import Coreset, Dataset
from .fit import fit
from .fitted import Fit, load

__version__ = "0.1.0"

__all__ = [
    "BBPSVI",
    "Coreset",
    "Dataset",
    "Fit",
    "FullVI",
    "RandomSubset",
    "datasets",
    "errors",
    "families",
    "fit",
    "inner",
    "load",
    "models",
    "objectives",
    "outer",
    "weights",
]
