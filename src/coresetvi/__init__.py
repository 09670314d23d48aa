"""Bayesian coresets by black-box variational inference: a few weighted points, the same posterior."""

from . import datasets, errors, families, inner, models, objectives, outer, weights
from .constructions import (
    BBPSVI,
    GIGA,
    PSVI,
    BBSparseVI,
    FrankWolfe,
    FullLaplace,
    FullVI,
    GreedyBBSparseVI,
    HardThresholding,
    ImportanceSampling,
    QuasiNewton,
    RandomSubset,
    SparseVI,
    SubsetLaplace,
)
from .data import Coreset, Dataset
from .drivers import merge, prune
from .fit import fit
from .fitted import Fit, load
from .lifelong import continual

__version__ = "0.1.0"

__all__ = [
    "BBPSVI",
    "GIGA",
    "PSVI",
    "BBSparseVI",
    "Coreset",
    "Dataset",
    "Fit",
    "FrankWolfe",
    "FullLaplace",
    "FullVI",
    "GreedyBBSparseVI",
    "HardThresholding",
    "ImportanceSampling",
    "QuasiNewton",
    "RandomSubset",
    "SparseVI",
    "SubsetLaplace",
    "continual",
    "datasets",
    "errors",
    "families",
    "fit",
    "inner",
    "load",
    "merge",
    "models",
    "objectives",
    "outer",
    "prune",
    "weights",
]
