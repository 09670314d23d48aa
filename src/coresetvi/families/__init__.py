"""Variational families r(theta; psi): normal distributions that stand for a posterior."""

from .base import Family
from .gaussian import FullRank, LowRank, MeanField, Point

__all__ = ["Family", "FullRank", "LowRank", "MeanField", "Point"]
