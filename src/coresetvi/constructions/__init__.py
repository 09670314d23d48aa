"""Ways to make a coreset, each one frozen configuration class."""

from .base import Construction
from .gradient import BBPSVI
from .reference import FullVI, RandomSubset

__all__ = ["BBPSVI", "Construction", "FullVI", "RandomSubset"]
