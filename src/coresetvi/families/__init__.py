"""Variational families r(theta; psi): normal distributions that stand for a posterior."""

from .base import Family
from .gaussian import FullRank, LowRank, MeanField, Point
from .sampled import Sampled

__all__ = ["Family", "FullRank", "LowRank", "MeanField", "Point", "Sampled"]
