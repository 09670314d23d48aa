"""Published constructions that are settings of `BBPSVI`: which leaves move, and where draws come from."""

from typing import Any

from ..errors import InputError
from ..inner import Inner, Laplace
from .gradient import BBPSVI, names_of

REAL_POINTS = frozenset({"weights", "total"})


def BBSparseVI(size: int, *, learn: Any = None, **options: Any) -> BBPSVI:
    """Black-box Sparse VI, batch version (Alg. 4): random rows, of which only the weights are learned.

    Takes what `BBPSVI` takes, except that points stay where the data are.

    >>> sorted(BBSparseVI(20).learn)
    ['total', 'weights']
    """
    learn = REAL_POINTS if learn is None else names_of(learn)
    return BBPSVI(size, learn=real_points_only("BBSparseVI", learn, options), **options)


def QuasiNewton(size: int, *, learn: Any = None, inner: Inner | None = None, **options: Any) -> BBPSVI:
    """A uniform subset whose weights follow quasi-Newton steps on the KL divergence (Naik et al., 2022).

    Gradient and Hessian are covariances under the coreset posterior, here by Laplace's approximation or, with
    `inner=Mcmc()`, by Markov chains.

    >>> QuasiNewton(20).inner
    Laplace()
    """
    learn = frozenset({"weights"}) if learn is None else names_of(learn)
    learn = real_points_only("QuasiNewton", learn, options)
    return BBPSVI(size, learn=learn, inner=Laplace() if inner is None else inner, **options)


def PSVI(size: int, *, inner: Inner | None = None, **options: Any) -> BBPSVI:
    """Pseudocoreset variational inference (Manousakas et al., 2020): pseudo-points by analytic gradients.

    The gradient of KL(coreset posterior || data posterior) is minus the covariance, under the coreset
    posterior, of d core / d phi with data - core. Draws come from the Laplace approximation, or from Markov
    chains with `inner=Mcmc()`. Takes what `BBPSVI` takes.

    >>> PSVI(20).inner
    Laplace()
    """
    return BBPSVI(size, inner=Laplace() if inner is None else inner, **options)


def real_points_only(name: str, learn: frozenset[str], options: dict[str, Any]) -> frozenset[str]:
    """`learn`, refused if it would move points that are rows of the data."""
    if moving := sorted(learn & {"x", "y"}):
        raise InputError(
            f"{name} keeps its points where the data are and cannot learn {moving[0]!r}; "
            "use BBPSVI or PSVI for that."
        )
    if options.get("init") == "noise":
        raise InputError(
            f'{name} consists of rows of the data; init must be "subset" or "spread", or use BBPSVI.'
        )
    return learn
