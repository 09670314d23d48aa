"""Coresets for other tools: tables, NumPyro, PyMC, Stan and scikit-learn.

Every tool knows weighted rows, so every one can have the posterior of a coreset exactly. The tools themselves
are needed only where they are used, and are imported then.
"""

from .numpyro import numpyro
from .pymc import pymc
from .rows import hard_rows, table
from .sklearn import sklearn
from .stan import StanProgram, stan

__all__ = ["StanProgram", "hard_rows", "numpyro", "pymc", "sklearn", "stan", "table"]
