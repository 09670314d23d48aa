"""Hilbert coresets: rows whose log-likelihood vectors add up to that of all the data, then plain inference.

A row's vector is its centred log-likelihood over draws from a first guess of the posterior. Which rows, with
which weights, is decided once, by geometry alone; the methods differ in nothing else.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from .._checks import positive, whole_number
from .._registry import register
from ..data.dataset import Dataset
from ..families.base import Family
from ..families.initial import start_family
from ..inner.mode import fit_laplace
from ..models.base import Model
from . import sparse_approximation
from .base import Plan
from .defaults import laplace_family, projections_for
from .hard_thresholding import hard_thresholding
from .likelihood_vectors import likelihood_vectors
from .plain import PlainVI
from .starts import check_size


class HilbertCoreset(PlainVI):
    """Rows and weights by `algorithm` on `num_projections` draws, then variational inference on them.

    Subclasses repeat `__init__`: type checkers would otherwise make one up from the fields, in their order.
    """

    size: int
    family: Family | None
    learning_rate: float | None
    num_samples: int | None
    num_projections: int
    algorithm: eqx.AbstractClassVar[Callable]

    def __init__(
        self,
        size: int,
        family: Family | None = None,
        learning_rate: float | None = 0.05,
        num_samples: int | None = None,
        num_projections: int = 500,
    ):
        self.size, self.family, self.learning_rate = size, family, learning_rate
        self.num_samples, self.num_projections = num_samples, num_projections

    def choose(self, plan, key):
        check_size(self.size, plan.data)
        return choose_rows(type(self).algorithm, plan, self.size, self.num_projections, key)

    def __check_init__(self):
        whole_number("size", self.size)
        positive(self, "num_projections")


@register
class GIGA(HilbertCoreset):
    """Greedy iterative geodesic ascent (Campbell & Broderick 2018): one row a step, along great circles.

    >>> GIGA(20).num_projections
    500
    """

    __init__ = HilbertCoreset.__init__
    algorithm: ClassVar[Callable] = staticmethod(sparse_approximation.giga)


@register
class FrankWolfe(HilbertCoreset):
    """Frank-Wolfe steps on the polytope of weights (Campbell & Broderick 2019): one row a step.

    >>> FrankWolfe(20).num_projections
    500
    """

    __init__ = HilbertCoreset.__init__
    algorithm: ClassVar[Callable] = staticmethod(sparse_approximation.frank_wolfe)


@register
class ImportanceSampling(HilbertCoreset):
    """Independent draws with chances in proportion to the length of a row's vector; unbiased.

    >>> ImportanceSampling(20).num_projections
    500
    """

    __init__ = HilbertCoreset.__init__
    algorithm: ClassVar[Callable] = staticmethod(sparse_approximation.importance_sampling)


@register
class HardThresholding(HilbertCoreset):
    """Iterative hard thresholding (Zhang et al., 2021): the largest of all rows' weights, refined.

    >>> HardThresholding(20).num_projections
    500
    """

    __init__ = HilbertCoreset.__init__
    algorithm: ClassVar[Callable] = staticmethod(hard_thresholding)


def choose_rows(
    algorithm: Callable, plan: Plan, size: int, num_projections: int, key: PRNGKeyArray
) -> Dataset:
    """The rows that `algorithm` picks, with its weights; rows it has no use for are left out."""
    draw_key, pick_key = jax.random.split(key)
    number = projections_for(num_projections, plan.data)
    thetas = first_guess(plan.model, plan.data, number, draw_key)
    vectors = eqx.filter_jit(likelihood_vectors)(plan.model, thetas, plan.data)
    rows, weights = algorithm(vectors, plan.data.weights, size, pick_key)
    used = jnp.flatnonzero(weights > 0)
    # If no log-likelihood varies there is nothing to approximate, and any one row of no weight will do.
    used = used if used.size else jnp.zeros(1, dtype=int)
    chosen = plan.data.take(rows[used])
    return eqx.tree_at(lambda data: data.weights, chosen, weights[used])


def first_guess(model: Model, data: Dataset, num_samples: int, key: PRNGKeyArray) -> jax.Array:
    """Draws from Laplace's approximation on all the data: the measure in which vectors are compared."""
    family = laplace_family(model)
    psi = start_family(family, model, data, key)
    psi, _ = fit_laplace(family, model, data, psi, key)
    return family.draw(psi, key, num_samples, model.dim)[0]
