"""Outer optimisers: how the points and weights of a coreset move, given one step's draws.

A step has two halves. `ask` solves the inner problem and draws thetas: the question to whoever holds the
rows is how the log-likelihood of the data rises at these thetas. `tell` takes the answer and moves the
coreset. Between the two stands nothing but a `Draft` and an `Answer`, so the rows may be in memory, where
both halves and the sums over rows are one compiled program, or elsewhere.

Optimisers see the coreset through a `Target` and know nothing of models or rows. `Adam` follows the gradient
of the loss through the inner solution. `NaturalGradient` uses what is special about coresets: the variational
family is q(theta; phi) ∝ p(theta) exp(core(theta; phi)), so the score of a draw is the derivative of its
`core`, and the Fisher matrix is the covariance of those scores over the very draws at hand.
"""

import abc
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._info import Info
from ..families.base import Family, Psi
from ..families.importance import defensive, log_weights, normalise, normalised_ess
from ..inner.base import InnerInfo, Leaves
from ..models.question import LocalView, Question
from ..objectives import Objective

Vector = Float[Array, " s"]
Thetas = Float[Array, "s d"]
OptimizerState = PyTree  # a pytree of arrays, opaque outside its optimiser


class Target(eqx.Module):
    """The coreset's side of one step: everything that does not need the rows. Noise is fixed inside it.

    `core`, like the data's answer, is relative to its value at a `reference` theta, the mean of the draws:
    with a million rows the values themselves leave float32 no digits for how draws differ. Nothing is lost,
    for a bound shifts with the data's term and ignores a constant in `core`.
    """

    objective: eqx.AbstractVar[Objective]
    family: eqx.AbstractVar[Family]

    @abc.abstractmethod
    def solve(self, learned: Leaves, psi: Psi) -> tuple[Psi, InnerInfo]:
        """psi* of the inner problem, from the start `psi`."""

    @abc.abstractmethod
    def draw(self, learned: Leaves, psi: Psi) -> tuple[Thetas, Vector]:
        """Draws for the outer objective, and their log-density under r."""

    @abc.abstractmethod
    def core(self, learned: Leaves, thetas: Thetas, reference: Float[Array, " d"]) -> Vector:
        """How much larger the coreset's log-likelihood is at every theta than at the reference."""

    @abc.abstractmethod
    def prior(self, thetas: Thetas) -> Vector:
        """log p(theta) of every draw."""

    @abc.abstractmethod
    def project(self, learned: Leaves) -> Leaves:
        """The nearest leaves that are allowed."""


class ViewedTarget(Target):
    """A target for optimisers that go by passes: the coreset answers what the rows are asked."""

    @abc.abstractmethod
    def normal_noise(self) -> Thetas:
        """Standard normal noise, one number for every parameter of every draw."""

    @property
    @abc.abstractmethod
    def records(self) -> dict[str, type]:
        """Names and types of what a solve has to tell besides."""

    @abc.abstractmethod
    def core_view(self, learned: Leaves, question: Question) -> LocalView:
        """What the rows are asked, answered by the coreset."""

    @abc.abstractmethod
    def core_slope(self, learned: Leaves, question: Question) -> Float[Array, " d"]:
        """The slope of that answer alone."""

    @abc.abstractmethod
    def prior_view(self, question: Question) -> LocalView:
        """The same of the log-prior."""


class Draft(NamedTuple):
    """A step after `ask`: the thetas to be answered, and what `tell` has to know about them.

    `pull` maps slopes with respect to (thetas, proposal) back to slopes with respect to (leaves, a tangent
    of psi), for optimisers that follow gradients through the inner solution. `question` is what optimisers
    that need a `LocalView` ask.
    """

    thetas: Thetas
    reference: Float[Array, " d"]
    proposal: Vector
    psi: Psi
    inner: InnerInfo
    pull: Callable[[tuple[Thetas, Vector]], PyTree] = lambda slopes: None
    question: Question | None = None


class Answer(NamedTuple):
    """What the data say: their log-likelihood at the reference, and its rise from there to every theta.

    `slopes` are the gradients of the rises at the thetas, `view` is the answer to the draft's question, for
    optimisers that ask for them.
    """

    value: Float[Array, ""]
    rises: Vector
    slopes: Thetas | None = None
    view: LocalView | None = None


class Moved(NamedTuple):
    """A step after `tell`."""

    learned: Leaves
    psi: Psi
    state: OptimizerState
    info: Info


class Optimizer(eqx.Module):
    """Moves learned leaves (and psi) by one outer step; `scale` is the schedule's factor in 0 … 1.

    >>> import coresetvi as cvi
    >>> cvi.outer.NaturalGradient().needs_exact_data, cvi.outer.Adam().needs_slopes
    (True, True)
    """

    uses_inner_gradient: eqx.AbstractClassVar[bool]
    # Whether steps regress on the draws' residuals, so that noise in the data's answer must be kept out.
    needs_exact_data: eqx.AbstractClassVar[bool]
    # Whether `tell` needs the slopes of the rises besides the rises.
    needs_slopes: eqx.AbstractClassVar[bool]
    default_steps: eqx.AbstractClassVar[int]
    # Whether every step is one pass over all rows, so that these need not be in memory: then there are few.
    by_passes: ClassVar[bool] = False
    # Whether `tell` needs a `LocalView`.
    needs_view: ClassVar[bool] = False
    # Whether it regresses on draws of the coreset posterior itself.
    needs_draws: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, learned: Leaves, family: Family, psi: Psi) -> OptimizerState:
        """The optimiser's state before the first step."""

    @abc.abstractmethod
    def ask(self, target: Target, learned: Leaves, psi: Psi, state: OptimizerState) -> Draft:
        """The thetas at which the data's log-likelihood is wanted."""

    @abc.abstractmethod
    def tell(
        self,
        target: Target,
        learned: Leaves,
        psi: Psi,
        state: OptimizerState,
        scale: Array,
        draft: Draft,
        answer: Answer,
    ) -> Moved:
        """New leaves, psi*, the optimiser's state and the step's record, given the data's answer.

        `learned` and `psi` are those that `draft` was made from.
        """


def answered(
    rises_at: Callable[[Thetas], tuple[Vector, PyTree]], thetas: Thetas
) -> tuple[Vector, Thetas, PyTree]:
    """Rises at every theta, their slopes there, and what else `rises_at` returns.

    The rise at one theta does not depend on the others, so one pull of ones gives the slopes of all.
    """
    rises, pull, rest = jax.vjp(rises_at, thetas, has_aux=True)
    return rises, pull(jnp.ones_like(rises))[0], rest


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
        more=inner.more,
    )


def mean_draw(thetas: Thetas) -> Float[Array, " d"]:
    """The theta that a step's log-likelihoods are measured from."""
    return jax.lax.stop_gradient(jnp.mean(thetas, axis=0))
