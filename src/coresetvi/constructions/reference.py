"""Yardsticks: plain inference on all the data or on a random subset, without learning any point."""

import dataclasses
from typing import ClassVar

from jaxtyping import PRNGKeyArray

from .._checks import whole_number
from .._registry import register
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from ..families.base import Family
from ..models.base import Model
from ..weights import Fixed
from .base import Plan
from .defaults import laplace_family, plain_family
from .parametrisation import parametrise
from .plain import PlainLaplace, PlainVI
from .plain_passes import (
    FEWEST_DRAWS,
    LaplaceByPasses,
    VariationByPasses,
    check_for_passes,
    rows_to_choose_from,
)
from .starts import start_leaves


@register
class FullVI(PlainVI):
    """Variational inference on all the data: what every coreset is measured against.

    It goes on until the bound has stopped improving; `Fit.result` says if it never did. Rows that are not in
    memory are asked in a few passes, for which `learning_rate` and `batch_size` mean nothing.

    >>> FullVI(batch_size=1000).batch_size
    1000
    """

    family: Family | None
    learning_rate: float | None
    num_samples: int | None
    batch_size: int | None

    def __init__(
        self,
        family: Family | None = None,
        learning_rate: float | None = None,
        num_samples: int | None = None,
        batch_size: int | None = None,
    ):
        self.family, self.learning_rate, self.num_samples = family, learning_rate, num_samples
        self.batch_size = batch_size

    def __check_init__(self):
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size)

    @property
    def rows_per_step(self):
        return self.batch_size

    def settle(self, model: Model, data: Rows) -> Plan:
        if isinstance(data, Dataset):
            return super().settle(model, data)
        family = self.family or plain_family(model)
        check_for_passes(self, model, family)
        draws = max(self.num_samples or FEWEST_DRAWS, family.least_fixed_draws(model.dim), 4 * model.dim)
        settled = dataclasses.replace(self, family=family, num_samples=draws)
        return VariationByPasses(settled, model, data, family, draws)

    def choose(self, plan, key):
        return None


@register
class RandomSubset(PlainVI):
    """Variational inference on a random subset, each of its `size` points weighing N/M.

    >>> RandomSubset(20).size
    20
    """

    size: int
    family: Family | None
    learning_rate: float | None
    num_samples: int | None

    def __init__(
        self,
        size: int,
        family: Family | None = None,
        learning_rate: float | None = None,
        num_samples: int | None = None,
    ):
        self.size = size
        self.family, self.learning_rate, self.num_samples = family, learning_rate, num_samples

    def __check_init__(self):
        whole_number("size", self.size)

    def choose(self, plan, key):
        return random_subset(plan, self.size, key)


@register
class PointsVI(PlainVI):
    """Variational inference on given points, those that `fit` is told as `initial`, as they are.

    It is how `retrain` tries a coreset: nothing of r is left from the fit that made the points.

    >>> PointsVI().takes_initial
    True
    """

    family: Family | None
    learning_rate: float | None
    num_samples: int | None
    takes_initial: ClassVar[bool] = True

    def __init__(
        self,
        family: Family | None = None,
        learning_rate: float | None = None,
        num_samples: int | None = None,
    ):
        self.family, self.learning_rate, self.num_samples = family, learning_rate, num_samples

    def choose(self, plan, key):
        raise InputError("PointsVI needs its points; pass them as fit(..., initial=points).")


@register
class FullLaplace(PlainLaplace):
    """Laplace's approximation on all the data.

    >>> FullLaplace().corrects
    False
    """

    family: Family | None

    def __init__(self, family: Family | None = None):
        self.family = family

    def settle(self, model: Model, data: Rows) -> Plan:
        if isinstance(data, Dataset):
            return super().settle(model, data)
        family = self.family or laplace_family(model)
        check_for_passes(self, model, None)
        return LaplaceByPasses(dataclasses.replace(self, family=family), model, data, family)

    def choose(self, plan, key):
        return None


@register
class SubsetLaplace(PlainLaplace):
    """Laplace's approximation on a random subset, each of its `size` points weighing N/M.

    >>> SubsetLaplace(20).size
    20
    """

    size: int
    family: Family | None

    def __init__(self, size: int, family: Family | None = None):
        self.size, self.family = size, family

    def __check_init__(self):
        whole_number("size", self.size)

    def choose(self, plan, key):
        return random_subset(plan, self.size, key)


def random_subset(plan: Plan, size: int, key: PRNGKeyArray) -> Dataset:
    """Random rows, every class represented, each weighing N/M."""
    data = plan.data if isinstance(plan.data, Dataset) else rows_to_choose_from(plan.data, size, key)
    parametrisation = parametrise(data, Fixed(), frozenset(), plan.model.num_classes)
    leaves, indices = start_leaves(parametrisation, data, size, "subset", key)
    return parametrisation.build(leaves, indices)
