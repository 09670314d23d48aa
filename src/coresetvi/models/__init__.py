"""Bayesian models: ready-made ones, and any other from callables, a NumPyro function or an Equinox module."""

from .base import Model
from .callables import FromCallables
from .equinox import FromEquinox
from .glm import LinearRegression, LogisticRegression, PoissonRegression, SoftmaxRegression
from .lenet import BayesianLeNet
from .nets import BayesianMLP
from .numpyro import FromNumPyro

__all__ = [
    "BayesianLeNet",
    "BayesianMLP",
    "FromCallables",
    "FromEquinox",
    "FromNumPyro",
    "LinearRegression",
    "LogisticRegression",
    "Model",
    "PoissonRegression",
    "SoftmaxRegression",
]
