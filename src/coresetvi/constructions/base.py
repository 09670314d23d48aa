"""What the loop in `fit.py` may ask of a construction.

A construction is frozen configuration: no data, no key. `setup` settles what was left to choose and gathers
the arrays that stay the same during a fit; `start`, `step` and `extract` are the fit itself. Adding a method
means adding a class with these four functions; the loop is not edited.
"""

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from .._info import Info
from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..models.base import Model
from .schedule import Schedule, fixed_schedule, open_schedule

State = Any  # a pytree of arrays: what the next step needs


class Problem(eqx.Module):
    """What does not change during a fit."""

    model: Model
    data: Dataset
    family: Family


class Construction(eqx.Module):
    """Frozen configuration of one way to make a coreset and its posterior."""

    # Whether predictions are corrected by importance weights, or taken from r as plain inference does.
    corrects: eqx.AbstractClassVar[bool]
    # Whether `start` can be given the points to begin with.
    takes_initial: ClassVar[bool] = False
    # Names and types of what its steps record in `Info.more`.
    records: ClassVar[dict[str, type]] = {}

    @abc.abstractmethod
    def setup(self, model: Model, data: Dataset) -> tuple["Construction", Problem]:
        """This construction with every open choice settled, and the fit's constants."""

    @abc.abstractmethod
    def start(self, problem: Problem, key: PRNGKeyArray, initial: Dataset | None = None) -> State:
        """The state before the first step (on the host, once a trial), at the points `initial` if given."""

    @abc.abstractmethod
    def step(
        self, problem: Problem, state: State, index: Array, scale: Array, key: PRNGKeyArray
    ) -> tuple[State, Info]:
        """One step; `scale` is the learning-rate factor of the schedule. Pure, jitted by the loop."""

    @abc.abstractmethod
    def extract(self, problem: Problem, state: State) -> tuple[Dataset, Psi]:
        """The coreset and the parameters of r."""

    def reconsider(self, settled: "Construction", info: Info) -> "Construction | None":
        """Asked once, with the record of a trial step: another configuration to use instead, or None."""
        return None

    def on_points(self) -> "Construction | None":
        """How a fresh posterior is found on points that this construction has made, given as `initial`.

        None stands for variational inference with the fit's own family.
        """
        return None

    @property
    @abc.abstractmethod
    def default_steps(self) -> int:
        """Most steps an automatic fit takes."""

    def schedule(self, num_steps: int | None) -> Schedule:
        """When to slow down and stop: by default after `num_steps`, or once the loss no longer improves."""
        return fixed_schedule(num_steps) if num_steps else open_schedule(self.default_steps)


def with_size(construction: Construction, size: int) -> Any:
    """The same construction with another number of points."""
    return dataclasses.replace(construction, size=size)  # pyright: ignore[reportCallIssue]
