"""Ways to make a coreset, each one frozen configuration."""

from .base import Construction
from .gradient import BBPSVI
from .greedy import GreedyBBSparseVI, SparseVI
from .hilbert import GIGA, FrankWolfe, HardThresholding, ImportanceSampling
from .published import PSVI, BBSparseVI, QuasiNewton
from .reference import FullLaplace, FullVI, RandomSubset, SubsetLaplace

__all__ = [
    "BBPSVI",
    "GIGA",
    "PSVI",
    "BBSparseVI",
    "Construction",
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
]
