"""Yardsticks: plain inference on all the data or on a random subset, without learning any point."""

from typing import ClassVar

from jaxtyping import PRNGKeyArray

from .._checks import whole_number
from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError
from ..families.base import Family
from ..weights import Fixed
from .base import Plan
from .parametrisation import parametrise
from .plain import PlainLaplace, PlainVI
from .starts import start_leaves


@register
class FullVI(PlainVI):
    """Variational inference on all the data: what every coreset is measured against.

    It goes on until the bound has stopped improving; `Fit.result` says if it never did.

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
    parametrisation = parametrise(plan.data, Fixed(), frozenset(), plan.model.num_classes)
    leaves, indices = start_leaves(parametrisation, plan.data, size, "subset", key)
    return parametrisation.build(leaves, indices)
