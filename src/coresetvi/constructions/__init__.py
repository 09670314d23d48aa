"""Ways to make a coreset, each one frozen configuration."""

from .base import Construction
from .bbpsvi import BBPSVI
from .condensation import Condensation
from .greedy import GreedyBBSparseVI, SparseVI
from .hilbert import GIGA, FrankWolfe, HardThresholding, ImportanceSampling
from .last_layer import LastLayerPSVI, LastLayerVI
from .network_training import NetworkTraining
from .published import PSVI, BBSparseVI, DatasetDistillation, QuasiNewton
from .reference import FullLaplace, FullVI, PointsVI, RandomSubset, SubsetLaplace

__all__ = [
    "BBPSVI",
    "GIGA",
    "PSVI",
    "BBSparseVI",
    "Condensation",
    "Construction",
    "DatasetDistillation",
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
]
