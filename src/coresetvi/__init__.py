"""Bayesian coresets by black-box variational inference: a few weighted points, the same posterior."""

from . import datasets, errors, export, families, inner, models, objectives, outer, weights
from .constructions import (
    BBPSVI,
    GIGA,
    PSVI,
    BBSparseVI,
    Condensation,
    DatasetDistillation,
    FrankWolfe,
    FullLaplace,
    FullVI,
    GreedyBBSparseVI,
    HardThresholding,
    ImportanceSampling,
    LastLayerPSVI,
    LastLayerVI,
    NetworkTraining,
    PointsVI,
    QuasiNewton,
    RandomSubset,
    SparseVI,
    SubsetLaplace,
)
from .correction import correct
from .data import Coreset, Dataset
from .diagnostics import diagnose
from .draws import Draws
from .drivers import merge, prune, retrain
from .fit import fit
from .fitted import Fit, load
from .lifelong import continual
from .posterior import sample
from .sizes import choose_size

__version__ = "0.1.0"

__all__ = [
    "BBPSVI",
    "GIGA",
    "PSVI",
    "BBSparseVI",
    "Condensation",
    "Coreset",
    "Dataset",
    "DatasetDistillation",
    "Draws",
    "Fit",
    "FrankWolfe",
    "FullLaplace",
    "FullVI",
    "GreedyBBSparseVI",
    "HardThresholding",
    "ImportanceSampling",
    "LastLayerPSVI",
    "LastLayerVI",
    "NetworkTraining",
    "PointsVI",
    "QuasiNewton",
    "RandomSubset",
    "SparseVI",
    "SubsetLaplace",
    "choose_size",
    "continual",
    "correct",
    "datasets",
    "diagnose",
    "errors",
    "export",
    "families",
    "fit",
    "inner",
    "load",
    "merge",
    "models",
    "objectives",
    "outer",
    "prune",
    "retrain",
    "sample",
    "weights",
]
