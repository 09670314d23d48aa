"""Yardsticks: plain inference on all the data or on a random subset, without learning any point."""

from typing import ClassVar

from jaxtyping import PRNGKeyArray

from .._checks import whole_number
from .._registry import register
from ..data.dataset import Dataset
from ..errors import InputError
from ..families.base import Family
from ..weights import Fixed
from .base import Problem
from .parametrisation import make_frame
from .plain import PlainLaplace, PlainVI
from .starts import start_leaves


@register
class FullVI(PlainVI):
    """Variational inference on all the data: what every coreset is measured against.

    It goes on until the bound has stopped improving; `Fit.result` says if it never did.
    """

    family: Family | None = None
    learning_rate: float | None = None
    num_samples: int | None = None
    batch_size: int | None = None

    def __check_init__(self):
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size)

    @property
    def rows_a_step(self):
        return self.batch_size

    def choose(self, problem, key):
        return None


@register
class RandomSubset(PlainVI):
    """Variational inference on a random subset, each of its `size` points weighing N/M."""

    size: int
    family: Family | None = None
    learning_rate: float | None = None
    num_samples: int | None = None

    def __check_init__(self):
        whole_number("size", self.size)

    def choose(self, problem, key):
        return random_subset(problem, self.size, key)


@register
class PointsVI(PlainVI):
    """Variational inference on given points, those that `fit` is told as `initial`, as they are.

    It is how `retrain` tries a coreset: nothing of r is left from the fit that made the points.
    """

    family: Family | None = None
    learning_rate: float | None = None
    num_samples: int | None = None
    takes_initial: ClassVar[bool] = True

    def choose(self, problem, key):
        raise InputError("PointsVI needs its points; pass them as fit(..., initial=points).")


@register
class FullLaplace(PlainLaplace):
    """Laplace's approximation on all the data."""

    family: Family | None = None

    def choose(self, problem, key):
        return None


@register
class SubsetLaplace(PlainLaplace):
    """Laplace's approximation on a random subset, each of its `size` points weighing N/M."""

    size: int
    family: Family | None = None

    def __check_init__(self):
        whole_number("size", self.size)

    def choose(self, problem, key):
        return random_subset(problem, self.size, key)


def random_subset(problem: Problem, size: int, key: PRNGKeyArray) -> Dataset:
    """Random rows, every class represented, each weighing N/M."""
    frame = make_frame(problem.data, Fixed(), frozenset(), problem.model.num_classes)
    leaves, indices = start_leaves(frame, problem.data, size, "subset", key)
    return frame.build(leaves, indices)
