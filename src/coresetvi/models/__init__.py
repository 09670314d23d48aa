"""Bayesian models: ready-made ones, and `FromCallables` for any other."""

from .base import FromCallables, Model
from .glm import LinearRegression, LogisticRegression, PoissonRegression, SoftmaxRegression
from .nets import BayesianMLP

__all__ = [
    "BayesianMLP",
    "FromCallables",
    "LinearRegression",
    "LogisticRegression",
    "Model",
    "PoissonRegression",
    "SoftmaxRegression",
]
