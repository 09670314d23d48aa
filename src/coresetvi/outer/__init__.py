"""Outer optimisers: how the points and weights of a coreset move, given one step's draws."""

from .adam import Adam
from .base import Optimizer
from .matching import Matching
from .natural import NaturalGradient
from .rise_matching import RiseMatching
from .slope_matching import SlopeMatching

__all__ = ["Adam", "Matching", "NaturalGradient", "Optimizer", "RiseMatching", "SlopeMatching"]
