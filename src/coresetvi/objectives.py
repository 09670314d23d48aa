"""Outer objectives: short functions of the four vectors `data`, `core`, `prior`, `proposal`.

Each holds one number per draw theta_s ~ r(.; psi): the (scaled) log-likelihood of the data, the weighted
log-likelihood of the coreset, log p(theta_s) and log r(theta_s; psi). All of them are *losses*: negative
lower bounds on the log-evidence of the data, in nats, to be minimised.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._registry import register
from .errors import InputError
from .families.importance import log_weights, normalise

Vector = Float[Array, " s"]


class Objective(eqx.Module):
    """A loss of four vectors; `num_samples=None` lets the construction choose S.

    >>> class ColdElbo(Objective):  # the entropy of r counts a tenth
    ...     num_samples: int | None = None
    ...
    ...     def loss(self, data, core, prior, proposal):
    ...         return -jnp.mean(data + prior - 0.1 * proposal)
    >>> ColdElbo().loss(*jnp.asarray([[-3.0, -1.0], [0.0, 0.0], [0.0, 0.0], [10.0, 10.0]]))
    Array(3., dtype=float32)
    """

    num_samples: eqx.AbstractVar[int | None]
    # Whether `core` occurs in it; if not, the coreset matters only through psi*.
    sees_core: ClassVar[bool] = False

    @abc.abstractmethod
    def loss(self, data: Vector, core: Vector, prior: Vector, proposal: Vector) -> Float[Array, ""]:
        """Negative lower bound on log p(y | x), in nats."""

    def __check_init__(self):
        if self.num_samples is not None and self.num_samples < 1:
            raise InputError(f"num_samples must be at least 1, not {self.num_samples}.")


@register
class ImportanceElbo(Objective):
    """The importance-weighted bound of Eq. 9.

    loss = -[ sum_s w_s (data_s - core_s) + mean_s log w_s ],   w = softmax(log w)

    It equals KL(coreset posterior || data posterior) + KL(r || coreset posterior) - log p(y | x) as S grows.

    >>> zeros = jnp.zeros(4)
    >>> ImportanceElbo().loss(zeros - 3.0, zeros, zeros, zeros)
    Array(3., dtype=float32)
    """

    num_samples: int | None = None
    sees_core: ClassVar[bool] = True

    def loss(self, data, core, prior, proposal):
        log_w = log_weights(core, prior, proposal)
        return -(jnp.sum(normalise(log_w) * (data - core)) + jnp.mean(log_w))


@register
class UniformElbo(Objective):
    """The ablation with w_s = 1/S: the classical bound of Eq. 2, in which the coreset term cancels.

    Coreset parameters then matter only through psi*, so it needs an inner problem that passes gradients.

    >>> data, core, zeros = jnp.full(4, -3.0), jnp.arange(4.0), jnp.zeros(4)
    >>> UniformElbo().loss(data, core, zeros, zeros) == UniformElbo().loss(data, 5.0 * core, zeros, zeros)
    Array(True, dtype=bool)
    """

    num_samples: int | None = None

    def loss(self, data, core, prior, proposal):
        return -jnp.mean(data + prior - proposal)


@register
class SingleSampleElbo(Objective):
    """The ablation with one draw, S = 1 ("w/o IW" in Tables 1 and 2): its only weight is 1.

    >>> SingleSampleElbo().num_samples
    1
    """

    num_samples: int | None = 1

    def __check_init__(self):
        if self.num_samples != 1:
            raise InputError("SingleSampleElbo has exactly one sample; use UniformElbo for more.")

    def loss(self, data, core, prior, proposal):
        return -jnp.mean(data + prior - proposal)
