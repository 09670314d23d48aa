"""Ways to find psi* on the coreset, and to pass gradients through it."""

from .base import Inner, InnerInfo, InnerProblem
from .chains import Chains
from .implicit import Alternating, Implicit, Joint
from .laplace import Laplace, Mcmc
from .smc import SMC
from .unrolled import Truncated, Unrolled, default_optimizer, unroll

__all__ = [
    "SMC",
    "Alternating",
    "Chains",
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
