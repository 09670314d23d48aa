"""Ordinary inference on points that are chosen once and then stay: what coresets are measured against.

Subclasses say which points those are. `PlainVI` fits r to them by stochastic gradients until the bound no
longer improves, `PlainLaplace` puts it at their mode; neither corrects predictions by importance weights.
"""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from .._checks import positive
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..families.base import Family, Psi
from ..families.initial import start_family
from ..inner.base import InnerInfo, InnerProblem
from ..inner.implicit import Implicit
from ..inner.mode import fit_laplace
from ..models.base import Model
from ..models.sums import log_likelihood_sums
from .base import Construction, Plan
from .defaults import (
    FEWEST_PLAIN_DRAWS,
    NEWTON_DIM,
    PLAIN_ROWS,
    laplace_family,
    plain_draws,
    plain_family,
    plain_rate,
    plain_rows,
)
from .plain_state import PlainPlan, PlainState, plain_info
from .schedule import fixed_schedule, open_schedule

# Plain inference stops when the bound has stopped improving; a look is worth it after this many steps. The
# most steps are there to end what never converges.
FIRST_LOOK, MOST_STEPS = 300, 20_000


class PlainInference(Construction):
    """r fitted to points that `choose` picks."""

    corrects: ClassVar[bool] = False
    takes_rows: ClassVar[bool] = True

    @abc.abstractmethod
    def choose(self, plan: Plan, key: PRNGKeyArray) -> Dataset | None:
        """The weighted points; None stands for all the data, as they are."""


class PlainVI(PlainInference):
    """Variational inference (Eq. 2) by Adam in the family's tangent coordinates, from a Newton solution.

    Subclasses have these three fields; declared here with values, they would come before `size` where
    arguments are counted.
    """

    family: eqx.AbstractVar[Family | None]
    learning_rate: eqx.AbstractVar[float | None]
    num_samples: eqx.AbstractVar[int | None]

    def __check_init__(self):
        if self.learning_rate is not None:
            positive(self, "learning_rate")
        if self.num_samples is not None:
            positive(self, "num_samples")

    @property
    def rows_per_step(self) -> int | None:
        """How many rows a step looks at, at most; None lets the cost of one row decide."""
        return None

    def settle(self, model: Model, data: Rows) -> Plan:
        family = self.family or plain_family(model)
        # What one row costs is seen from any of them.
        some = data if isinstance(data, Dataset) else data.sample(jax.random.key(0), 1)
        num_samples = self.num_samples or plain_draws(model, some)
        rate = self.learning_rate or plain_rate(model)
        settled = dataclasses.replace(self, family=family, num_samples=num_samples, learning_rate=rate)
        rows = self.rows_per_step or plain_rows(model, some)
        return VariationalPlan(settled, model, data, family, num_samples, rate, rows)


class VariationalPlan(PlainPlan):
    """Stochastic gradients on chosen points."""

    construction: PlainVI
    model: Model
    data: Rows
    family: Family
    num_samples: int
    learning_rate: float
    rows_per_step: int

    @property
    def default_steps(self):
        return MOST_STEPS

    def schedule(self, num_steps):
        return fixed_schedule(num_steps) if num_steps else open_schedule(MOST_STEPS, FIRST_LOOK)

    def start(self, key, initial=None):
        points_key, theta_key = jax.random.split(key)
        chosen = self.construction.choose(self, points_key) if initial is None else initial
        points = self.in_memory() if chosen is None else chosen
        psi = start_family(self.family, self.model, points, theta_key)
        if self.model.dim <= NEWTON_DIM:
            psi = newton_start(self.family, self.model, points, psi, theta_key)
        return PlainState(chosen, psi, optax.scale_by_adam(b2=0.99).init(self.family.zero(psi)))

    def step(self, state: PlainState, index, scale, key):
        model, family, points = self.model, self.family, self.points(state)
        batch_key, noise_key = jax.random.split(key)
        batch = points.batch(batch_key, min(self.rows_per_step, len(points)))
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
        return state, plain_info(data, prior, proposal, inner)


class PlainLaplace(PlainInference):
    """Laplace's approximation: one step finds the mode of the points' posterior, and the curvature there."""

    family: eqx.AbstractVar[Family | None]

    def settle(self, model: Model, data: Rows) -> Plan:
        family = self.family or laplace_family(model)
        return LaplacePlan(dataclasses.replace(self, family=family), model, data, family)


class LaplacePlan(PlainPlan):
    """One step: the mode, and the curvature there."""

    construction: PlainLaplace
    model: Model
    data: Rows
    family: Family

    @property
    def default_steps(self):
        return 1

    def schedule(self, num_steps):
        return fixed_schedule(num_steps or self.default_steps)

    def start(self, key, initial=None):
        points_key, theta_key = jax.random.split(key)
        chosen = self.construction.choose(self, points_key)
        points = self.in_memory() if chosen is None else chosen
        return PlainState(chosen, start_family(self.family, self.model, points, theta_key), ())

    def step(self, state: PlainState, index, scale, key):
        model, family, points = self.model, self.family, self.points(state)
        psi, inner = fit_laplace(family, model, points, state.psi, key)
        thetas, proposal = family.draw(psi, key, FEWEST_PLAIN_DRAWS, model.dim)
        data = log_likelihood_sums(model, thetas, points)
        prior = jax.vmap(model.log_prior)(thetas)
        return PlainState(state.points, psi, ()), plain_info(data, prior, proposal, inner)


@eqx.filter_jit
def newton_start(family: Family, model: Model, points: Dataset, psi: Psi, key: PRNGKeyArray) -> Psi:
    """The solution of the problem in fixed noise, if Newton steps find one: Adam only has to refine it.

    Steps of a few hundredths of a standard deviation would need thousands to cross the distance that a
    posterior given many rows lies away from its start.
    """
    batch = points.batch(key, min(len(points), PLAIN_ROWS))
    factor = len(points) / len(batch)

    def loss(psi, learned, noise):
        thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
        data = factor * log_likelihood_sums(model, thetas, batch)
        return -jnp.mean(data + jax.vmap(model.log_prior)(thetas) - proposal)

    found, info = Implicit().find(InnerProblem(loss, family, model.dim), {}, psi, key)
    return jax.tree.map(lambda new, old: jnp.where(info.accepted, new, old), found, psi)
