"""Bayesian coresets by black-box variational inference: a few weighted points, the same posterior."""

from . import data, datasets, errors, export, families, inner, models, objectives, outer, weights
from ._version import __version__
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
from .data.dataset import Coreset, Dataset
from .data.scan import scan
from .families.draws import Draws
from .fitting.loop import fit
from .fitting.result import Fit, load
from .posterior.correction import correct
from .posterior.diagnosis import diagnose
from .posterior.sampling import sample
from .posterior.size_choice import choose_size
from .workflows.continual_learning import continual
from .workflows.merging import merge
from .workflows.pruning import prune
from .workflows.retraining import retrain

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
    "__version__",
    "choose_size",
    "continual",
    "correct",
    "data",
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
    "scan",
    "weights",
]
