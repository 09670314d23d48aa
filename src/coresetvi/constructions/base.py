"""What the fitting loop may ask of a construction: a configuration that settles into a plan.

A `Construction` is what the user asks for: frozen, without data or key, and with None wherever a choice is
left open. `settle` looks at the model and the data and makes every choice, once. What it returns is another
type, a `Plan`, in which nothing is open: `start`, `step` and `extract` are the fit itself. Adding a method
means adding a construction and its plan; the loop is not edited.
"""

import abc
import dataclasses
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from .._info import Info
from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..models.base import Model
from .schedule import Schedule, decide, fixed_schedule, open_schedule

State = PyTree  # a pytree of arrays: what the next step needs
Sized = TypeVar("Sized", bound="Construction")


class Construction(eqx.Module):
    """Frozen configuration of one way to make a coreset and its posterior."""

    # Whether predictions are corrected by importance weights, or taken from r as plain inference does.
    corrects: eqx.AbstractClassVar[bool]
    # Whether a fit can be given the points to begin with.
    takes_initial: ClassVar[bool] = False
    # Whether it takes rows that are not in memory (`data.rows.Rows`), or a `Dataset` only.
    takes_rows: ClassVar[bool] = False

    @abc.abstractmethod
    def settle(self, model: Model, data: Dataset) -> "Plan":
        """The plan of a fit to these data: every open choice made."""

    def on_points(self) -> "Construction | None":
        """How a fresh posterior is found on points that this construction has made, given as `initial`.

        None stands for variational inference with the fit's own family.
        """
        return None


class Plan(eqx.Module):
    """A fit with every choice made: the constants of its steps, and the steps themselves.

    `construction` holds the same choices as configuration; it is what a saved fit remembers.
    """

    construction: eqx.AbstractVar[Construction]
    model: eqx.AbstractVar[Model]
    data: eqx.AbstractVar[Dataset]  # or any rows, in plans of constructions that take them
    family: eqx.AbstractVar[Family]
    # Names and types of what its steps record in `Info.more`.
    records: ClassVar[dict[str, type]] = {}
    # Whether a step is a pass over rows that the host asks for, between two compiled halves.
    by_passes: ClassVar[bool] = False
    # How often `finish` reads the rows.
    last_passes: ClassVar[int] = 0

    @property
    @abc.abstractmethod
    def default_steps(self) -> int:
        """The most steps that an automatic fit takes."""

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray, initial: Dataset | None = None) -> State:
        """The state before the first step (on the host, once per trial), at the points `initial` if given."""

    @abc.abstractmethod
    def step(self, state: State, index: Array, scale: Array, key: PRNGKeyArray) -> tuple[State, Info]:
        """One step; `scale` is the learning-rate factor of the schedule. Pure, compiled by the loop."""

    @abc.abstractmethod
    def extract(self, state: State) -> tuple[Dataset, Psi]:
        """The coreset and the parameters of r."""

    def reconsider(self, states: list[State], keys: Key[Array, " t"]) -> "Plan | None":
        """Asked once, before anything large is compiled: another plan to follow instead, or None."""
        return None

    def finish(self, state: State, key: PRNGKeyArray) -> State:
        """Called once, after the last step: the state that the result is taken from."""
        return state

    def nearest(self, state: State) -> float | None:
        """KL divergence in nats from the data's posterior that a pass found; None if steps are no passes."""
        return None

    def warm_up(self, state: State) -> None:
        """Compile what a step by passes needs, without reading a row."""

    def schedule(self, num_steps: int | None) -> Schedule:
        """When to slow down and stop: by default after `num_steps`, or once the loss no longer improves."""
        return fixed_schedule(num_steps) if num_steps else open_schedule(self.default_steps)

    def decide(self, schedule: Schedule, losses: np.ndarray, kl: np.ndarray) -> Schedule:
        """The schedule after looking at the history (steps, trials): begin to slow down now, or go on."""
        return decide(schedule, losses, kl)


def start_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key of a fit's start; step i has `fold_in(key, i)`, and no fit has as many steps as this."""
    return jax.random.fold_in(key, 2**31 - 1)


def with_size(construction: Sized, size: int) -> Sized:
    """The same construction with another number of points."""
    return dataclasses.replace(construction, size=size)
