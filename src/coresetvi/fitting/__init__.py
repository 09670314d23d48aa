"""One fit from beginning to end: the loop, its history and checkpoints, and the `Fit` that it leaves."""

from .loop import fit
from .result import Fit, load

__all__ = ["Fit", "fit", "load"]
