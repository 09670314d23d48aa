"""Published constructions that are settings of `BBPSVI`: what moves, where draws come from, what r is."""

from collections.abc import Iterable
from typing import TypedDict, Unpack

from ..errors import InputError
from ..families.base import Family
from ..families.gaussian import Point
from ..inner.base import Inner
from ..inner.laplace import Laplace
from ..objectives import Objective, UniformElbo
from ..outer.base import Optimizer
from ..weights import Fixed, WeightMap
from .bbpsvi import BBPSVI
from .defaults import HEAVY_INNER
from .starts import names_of

REAL_POINTS = frozenset({"weights", "total"})


class StepOptions(TypedDict, total=False):
    """How `BBPSVI` starts and takes its steps."""

    optimizer: Optimizer | None
    init: str
    batch_size: int | None


class Options(StepOptions, total=False):
    """What `BBPSVI` takes besides `size`, `learn` and `inner`."""

    family: Family | None
    weights: WeightMap | None
    objective: Objective | None


def BBSparseVI(
    size: int,
    *,
    learn: Iterable[str] | None = None,
    inner: Inner | None = None,
    **options: Unpack[Options],
) -> BBPSVI:
    """Black-box Sparse VI, batch version (Alg. 4): random rows, of which only the weights are learned.

    Takes what `BBPSVI` takes, except that points stay where the data are.

    >>> sorted(BBSparseVI(20).learn)
    ['total', 'weights']
    """
    names = REAL_POINTS if learn is None else names_of(learn)
    return BBPSVI(size, learn=real_points_only("BBSparseVI", names, options), inner=inner, **options)


def QuasiNewton(
    size: int,
    *,
    learn: Iterable[str] | None = None,
    inner: Inner | None = None,
    **options: Unpack[Options],
) -> BBPSVI:
    """A uniform subset whose weights follow quasi-Newton steps on the KL divergence (Naik et al., 2022).

    Gradient and Hessian are covariances under the coreset posterior, here by Laplace's approximation or, with
    `inner=Mcmc()`, by Markov chains.

    >>> QuasiNewton(20).inner
    Laplace()
    """
    names = frozenset({"weights"}) if learn is None else names_of(learn)
    names = real_points_only("QuasiNewton", names, options)
    return BBPSVI(size, learn=names, inner=Laplace() if inner is None else inner, **options)


def PSVI(
    size: int,
    *,
    learn: Iterable[str] | None = None,
    inner: Inner | None = None,
    **options: Unpack[Options],
) -> BBPSVI:
    """Pseudocoreset variational inference (Manousakas et al., 2020): pseudo-points by analytic gradients.

    The gradient of KL(coreset posterior || data posterior) is minus the covariance, under the coreset
    posterior, of d core / d phi with data - core. Draws come from the Laplace approximation, or from Markov
    chains with `inner=Mcmc()`. Takes what `BBPSVI` takes.

    >>> PSVI(20).inner
    Laplace()
    """
    return BBPSVI(size, learn=learn, inner=Laplace() if inner is None else inner, **options)


def DatasetDistillation(
    size: int,
    *,
    learn: Iterable[str] | None = None,
    inner: Inner | None = None,
    **options: Unpack[StepOptions],
) -> BBPSVI:
    """Dataset distillation (Wang et al., 2018): points on which a network trains well in a few steps.

    No posterior, one network: training on the points starts at a fresh random draw at every step, and what
    falls is the loss of the data after it, by gradients through all of the training. `learn={"x", "y"}`
    makes labels soft as well (Sucholutsky & Schonlau, 2019). Takes what else `BBPSVI` takes. Rates of
    `inner` are in units of the starting scale, which more data make smaller.

    >>> DatasetDistillation(20).family, sorted(DatasetDistillation(20).learn)
    (Point(), ['x'])
    """
    if fixed := sorted(options.keys() & {"family", "weights", "objective"}):
        raise InputError(
            f"DatasetDistillation trains one network on points that weigh the same and has no {fixed[0]}; "
            "leave it out, or use BBPSVI."
        )
    return BBPSVI(
        size,
        family=Point(),
        learn={"x"} if learn is None else learn,
        weights=Fixed(),
        objective=UniformElbo(1),
        inner=HEAVY_INNER if inner is None else inner,
        **options,
    )


def real_points_only(name: str, learn: frozenset[str], options: Options) -> frozenset[str]:
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
