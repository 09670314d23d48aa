"""Ways to find psi* on the coreset, and to pass gradients through it."""

from .base import Inner, InnerInfo, InnerProblem
from .implicit import Alternating, Implicit, Joint
from .laplace import Laplace, Mcmc
from .unrolled import Truncated, Unrolled, default_optimizer, unroll

__all__ = [
    "Alternating",
    "Implicit",
    "Inner",
    "InnerInfo",
    "InnerProblem",
    "Joint",
    "Laplace",
    "Mcmc",
    "Truncated",
    "Unrolled",
    "default_optimizer",
    "unroll",
]
