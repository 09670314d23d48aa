"""What all plans of plain inference share: the points that r is fitted to, its state, and its records."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from .._info import Info
from ..data.dataset import Dataset
from ..families.base import Psi
from ..inner.base import InnerInfo
from ..outer.base import step_info
from .base import Plan


class PlainState(eqx.Module):
    """`points` are what r is fitted to, the same at every step; None for all the data.

    All the data are not carried along: the loop looks at every number of a state after every step.
    """

    points: Dataset | None
    psi: Psi
    optimizer: PyTree  # what the plan needs from step to step besides


class PlainPlan(Plan):
    """What the plans of plain inference share."""

    def points(self, state: PlainState) -> Dataset:
        """What r is fitted to."""
        return self.in_memory() if state.points is None else state.points

    def in_memory(self) -> Dataset:
        """All the data, for plans that take them whole."""
        assert isinstance(self.data, Dataset)
        return self.data

    def extract(self, state: PlainState):
        return self.points(state), state.psi


def plain_info(data, prior, proposal, inner: InnerInfo) -> Info:
    """A step's record. There is no coreset to compare with the data: its KL is not zero but unknown."""
    loss = -jnp.mean(data + prior - proposal)
    info = step_info(loss, data, data, prior, proposal, inner)
    return info._replace(kl=jnp.full_like(loss, jnp.nan))
