"""Ordinary inference on points that are chosen once and then stay: what coresets are measured against.

Subclasses say which points those are. `PlainVI` fits r to them by stochastic gradients until the bound no
longer improves, `PlainLaplace` puts it at their mode; neither corrects predictions by importance weights.
"""

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from .._checks import positive
from .._info import Info
from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..families.gaussian import FullRank, MeanField
from ..families.initial import EXACT_CURVATURE_DIM, start_family
from ..inner import Implicit, InnerInfo, InnerProblem
from ..inner.mode import fit_laplace
from ..models.base import Model
from ..models.sums import is_heavy, log_likelihood_sums
from ..outer.base import step_info
from .base import Construction, Problem
from .defaults import HEAVY_DRAWS, HEAVY_PACE, HEAVY_ROWS, MINIBATCH_ROWS, SMALL_MODEL
from .schedule import fixed_schedule, open_schedule

# Stochastic gradients of a full covariance are reliable up to about this many parameters.
FULL_RANK_DIM = 32
# Up to this many parameters a Newton solution is looked for before the first step.
NEWTON_DIM = 64
# Steps in posterior standard deviations: as a rule, and for large networks, whose means have far to go.
RATE, LARGE_RATE = 0.05, 0.3
# Rows a step, unless the user says otherwise.
BATCH_ROWS = 4 * MINIBATCH_ROWS
# Plain inference stops when the bound has stopped improving; a look is worth it after so many steps. The most
# steps are there to end what never converges.
FIRST_LOOK, MOST_STEPS = 300, 20_000
FEWEST_DRAWS = 32


class PlainState(eqx.Module):
    """`points` are what r is fitted to, the same at every step; None for all the data.

    All the data are not carried along: the loop looks at every number of a state after every step.
    """

    points: Dataset | None
    psi: Psi
    optimizer: optax.OptState


class PlainInference(Construction):
    """r fitted to points that `choose` picks. Subclasses have the field `family`."""

    corrects: ClassVar[bool] = False

    @abc.abstractmethod
    def choose(self, problem: Problem, key: PRNGKeyArray) -> Dataset | None:
        """The weighted points; None stands for all the data, as they are."""

    def points(self, problem: Problem, state: PlainState) -> Dataset:
        """What r is fitted to."""
        return problem.data if state.points is None else state.points

    def extract(self, problem, state):
        return self.points(problem, state), state.psi


class PlainVI(PlainInference):
    """Variational inference (Eq. 2) by Adam in the family's tangent coordinates, from a Newton solution.

    Subclasses have the fields `family`, `learning_rate` and `num_samples`; declared here, they would come
    before `size` where arguments are counted.
    """

    def __check_init__(self: Any):
        if self.learning_rate is not None:
            positive(self, "learning_rate")
        if self.num_samples is not None:
            positive(self, "num_samples")

    @property
    def default_steps(self):
        return MOST_STEPS

    @property
    def rows_a_step(self) -> int | None:
        """How many rows a step looks at, at most; None lets the work for one row decide."""
        return None

    def schedule(self, num_steps):
        return fixed_schedule(num_steps) if num_steps else open_schedule(MOST_STEPS, FIRST_LOOK)

    def setup(self: Any, model, data):
        family = self.family or default_family(model)
        num_samples = self.num_samples or default_draws(model, data)
        rate = self.learning_rate or (LARGE_RATE if is_large(model) else RATE)
        settled = dataclasses.replace(self, family=family, num_samples=num_samples, learning_rate=rate)
        return settled, Problem(model, data, family)

    def start(self, problem, key, initial=None):
        points_key, theta_key = jax.random.split(key)
        chosen = self.choose(problem, points_key) if initial is None else initial
        points = problem.data if chosen is None else chosen
        psi = start_family(problem.family, problem.model, points, theta_key)
        if problem.model.dim <= NEWTON_DIM:
            psi = newton_start(problem, points, psi, theta_key)
        zero = problem.family.zero(psi)
        return PlainState(chosen, psi, optax.scale_by_adam(b2=0.99).init(zero))

    def step(self: Any, problem, state, index, scale, key):
        model, family, points = problem.model, problem.family, self.points(problem, state)
        batch_key, noise_key = jax.random.split(key)
        rows = self.rows_a_step or (HEAVY_ROWS if is_heavy(model, points) else BATCH_ROWS)
        batch = points.batch(batch_key, min(rows, len(points)))
        factor = len(points) / len(batch)

        def loss_of(tangent):
            psi = family.move(state.psi, tangent)
            thetas, proposal = family.draw(psi, noise_key, self.num_samples, model.dim)
            data = factor * log_likelihood_sums(model, thetas, batch)
            prior = jax.vmap(model.log_prior)(thetas)
            return -jnp.mean(data + prior - proposal), (data, prior, proposal)

        zero = family.zero(state.psi)
        (_, (data, prior, proposal)), gradient = jax.value_and_grad(loss_of, has_aux=True)(zero)
        updates, opt_state = optax.scale_by_adam(b2=0.99).update(gradient, state.optimizer)
        tangent = jax.tree.map(lambda u: -self.learning_rate * scale * u, updates)
        state = PlainState(state.points, family.move(state.psi, tangent), opt_state)
        inner = InnerInfo(optax.tree.norm(gradient), jnp.asarray(1), jnp.asarray(True))
        return state, record(data, prior, proposal, inner)


class PlainLaplace(PlainInference):
    """Laplace's approximation: one step finds the mode of the points' posterior, and the curvature there."""

    @property
    def default_steps(self):
        return 1

    def schedule(self, num_steps):
        return fixed_schedule(num_steps or self.default_steps)

    def setup(self: Any, model, data):
        family = self.family or (FullRank() if model.dim <= SMALL_MODEL else MeanField())
        return dataclasses.replace(self, family=family), Problem(model, data, family)

    def start(self, problem, key, initial=None):
        points_key, theta_key = jax.random.split(key)
        chosen = self.choose(problem, points_key)
        points = problem.data if chosen is None else chosen
        return PlainState(chosen, start_family(problem.family, problem.model, points, theta_key), ())

    def step(self, problem, state, index, scale, key):
        model, family, points = problem.model, problem.family, self.points(problem, state)
        psi, inner = fit_laplace(family, model, points, state.psi, key)
        thetas, proposal = family.draw(psi, key, FEWEST_DRAWS, model.dim)
        data = log_likelihood_sums(model, thetas, points)
        prior = jax.vmap(model.log_prior)(thetas)
        return PlainState(state.points, psi, ()), record(data, prior, proposal, inner)


def record(data, prior, proposal, inner: InnerInfo) -> Info:
    """A step's record. There is no coreset to compare with the data: its KL is not zero but unknown."""
    loss = -jnp.mean(data + prior - proposal)
    info = step_info(loss, data, data, prior, proposal, inner)
    return info._replace(kl=jnp.full_like(loss, jnp.nan))


def default_family(model: Model) -> Family:
    """A full covariance where a few draws can still estimate it: a diagonal one is a ceiling."""
    if is_large(model):
        return MeanField(spread_pace=HEAVY_PACE)
    return FullRank() if model.dim <= FULL_RANK_DIM else MeanField()


def is_large(model: Model) -> bool:
    """Whether r starts where curvature is only estimated, and has many of its deviations to go."""
    return model.dim > EXACT_CURVATURE_DIM


def default_draws(model: Model, data: Dataset) -> int:
    """Draws a step: for small models so many that `draw_noise` can give them exact second moments."""
    if is_heavy(model, data):
        return HEAVY_DRAWS
    return max(FEWEST_DRAWS, 4 * model.dim if model.dim <= FULL_RANK_DIM else 0)


@eqx.filter_jit
def newton_start(problem: Problem, points: Dataset, psi: Psi, key) -> Psi:
    """The solution of the problem in fixed noise, if Newton steps find one: Adam only has to refine it.

    Steps of a few hundredths of a standard deviation would need thousands to cross the distance that a
    posterior given many rows lies away from its start.
    """
    model, family = problem.model, problem.family
    batch = points.batch(key, min(len(points), BATCH_ROWS))
    factor = len(points) / len(batch)

    def loss(psi, learned, noise):
        thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
        data = factor * log_likelihood_sums(model, thetas, batch)
        return -jnp.mean(data + jax.vmap(model.log_prior)(thetas) - proposal)

    found, info = Implicit().find(InnerProblem(loss, family, model.dim), {}, psi, key)
    return jax.tree.map(lambda new, old: jnp.where(info.accepted, new, old), found, psi)
