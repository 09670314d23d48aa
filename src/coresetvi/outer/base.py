"""Outer optimisers: how the learned leaves move, given one step's draws.

Both see the same `OuterStep` and know nothing of models. `Adam` follows the gradient of the loss through the
inner solution. `NaturalGradient` uses what is special about coresets: the variational family is
q(theta; phi) ∝ p(theta) exp(core(theta; phi)), so the score of a draw is the derivative of its `core`, and
the Fisher matrix is the covariance of those scores over the very draws at hand.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._info import Info
from ..families.base import Family, Psi
from ..families.importance import defensive, log_weights, normalise, normalised_ess
from ..inner import InnerInfo
from ..inner.base import Leaves
from ..objectives import Objective
from .minibatch import DataTerm

Vector = Float[Array, " s"]


class OuterStep(NamedTuple):
    """Everything one outer step may evaluate. Noise and minibatch are fixed inside it.

    `data` and `core` are relative to their values at a `reference` theta, the mean of the draws: with a
    million rows the values themselves leave float32 no digits for how draws differ. Nothing is lost, for a
    bound shifts with `data` and does not see a constant in `core`.
    """

    solve: Callable[[Leaves, Psi], tuple[Psi, InnerInfo]]
    draw: Callable[[Leaves, Psi], tuple[Float[Array, "s d"], Vector]]
    data: Callable[[Float[Array, "s d"], Float[Array, " d"]], DataTerm]
    core: Callable[[Leaves, Float[Array, "s d"], Float[Array, " d"]], Vector]
    prior: Callable[[Float[Array, "s d"]], Vector]
    project: Callable[[Leaves], Leaves]
    objective: Objective
    family: Family


def step_info(loss, data, core, prior, proposal, inner: InnerInfo) -> Info:
    """The record of a step from its four vectors.

    KL(q || p) = log E_q[exp R] - E_q[R] with R = data - core: half the variance of R, to second order. The
    variance is taken under defensive weights: under weights that rest on one draw it would always be zero.
    Where there is but one draw, the KL is unknown.
    """
    weights = normalise(log_weights(core, prior, proposal))
    mixed = defensive(weights)
    residual = data - core
    residual = residual - jnp.sum(mixed * residual)
    kl = 0.5 * jnp.sum(mixed * residual**2)
    return Info(
        loss=loss,
        kl=kl if residual.size > 1 else jnp.full_like(kl, jnp.nan),
        ess=normalised_ess(weights),
        inner_gradient_norm=inner.gradient_norm,
        inner_steps=inner.steps,
        accepted=inner.accepted,
    )


def mean_draw(thetas: Float[Array, "s d"]) -> Float[Array, " d"]:
    """The theta that a step's log-likelihoods are measured from."""
    return jax.lax.stop_gradient(jnp.mean(thetas, axis=0))


class Optimizer(eqx.Module):
    """Moves learned leaves (and psi) by one outer step; `scale` is the schedule's factor in 0 … 1."""

    uses_inner_gradient: eqx.AbstractClassVar[bool]
    # Whether steps regress on the draws' residuals, so that noise in the data term must be kept out of them.
    needs_exact_data: eqx.AbstractClassVar[bool]
    default_steps: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def init(self, learned: Leaves, family: Family, psi: Psi) -> Any:
        """Optimiser state."""

    @abc.abstractmethod
    def step(
        self, outer: OuterStep, learned: Leaves, psi: Psi, opt_state: Any, scale: Array
    ) -> tuple[Leaves, Psi, Any, Any, Info]:
        """New leaves, psi*, optimiser state, the data term's memory and the step's record."""
