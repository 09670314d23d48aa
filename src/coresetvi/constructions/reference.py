"""Yardsticks: r fitted to all the data, or to a random subset, without learning any point."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ..checks import positive, whole_number
from ..config import register
from ..coreset import make_frame, start_leaves
from ..data import Dataset
from ..families import Family, FullRank, MeanField, Psi
from ..inner import Implicit, InnerInfo, InnerProblem
from ..likelihood_sums import log_likelihood_sums
from ..models.base import Model
from ..outer import describe
from ..start import start_family
from ..weights import Fixed
from .base import Construction, Problem
from .gradient import MINIBATCH_ROWS

# Stochastic gradients of a full covariance are reliable up to about this many parameters.
FULL_RANK_DIM = 32
# Up to this many parameters a Newton solution is looked for before the first step.
NEWTON_DIM = 64


class VariationalState(eqx.Module):
    """`points` is the subset that r is fitted to, the same at every step; None for all the data.

    All the data are not carried along: the loop looks at every number of a state after every step.
    """

    points: Dataset | None
    psi: Psi
    optimizer: optax.OptState


def variational_step(problem, state, scale, key, learning_rate, num_samples, batch_size):
    """One Adam step of ordinary variational inference (Eq. 2), in the family's tangent coordinates."""
    model, family = problem.model, problem.family
    points = problem.data if state.points is None else state.points
    batch_key, noise_key = jax.random.split(key)
    batch = points.batch(batch_key, min(batch_size, len(points)))
    factor = len(points) / len(batch)

    def loss_of(tangent):
        psi = family.move(state.psi, tangent)
        thetas, proposal = family.draw(psi, noise_key, num_samples, model.dim)
        data = factor * log_likelihood_sums(model, thetas, batch)
        prior = jax.vmap(model.log_prior)(thetas)
        return -jnp.mean(data + prior - proposal), (data, prior, proposal)

    zero = family.zero(state.psi)
    (loss, (data, prior, proposal)), gradient = jax.value_and_grad(loss_of, has_aux=True)(zero)
    updates, opt_state = optax.scale_by_adam(b2=0.99).update(gradient, state.optimizer)
    tangent = jax.tree.map(lambda u: -learning_rate * scale * u, updates)
    state = VariationalState(state.points, family.move(state.psi, tangent), opt_state)
    inner = InnerInfo(optax.tree.norm(gradient), jnp.asarray(1), jnp.asarray(True))
    info = describe(loss, data, data, prior, proposal, inner)
    # There is no coreset to compare with the data: its KL is not zero but unknown.
    return state, info._replace(kl=jnp.full_like(loss, jnp.nan))


@register
class FullVI(Construction):
    """Variational inference on all the data: what every coreset is measured against."""

    family: Family | None = None
    learning_rate: float = 0.05
    num_samples: int = 32
    batch_size: int | None = None
    corrects: ClassVar[bool] = False

    def __check_init__(self):
        positive(self, "learning_rate", "num_samples")
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size)

    @property
    def default_steps(self):
        return 3000

    def setup(self, model, data):
        family = self.family or default_family(model)
        batch_size = min(self.batch_size or 4 * MINIBATCH_ROWS, len(data))
        settled = FullVI(family, self.learning_rate, self.num_samples, batch_size)
        return settled, Problem(model, data, family)

    def start(self, problem, key):
        return start_variational(problem, None, key)

    def step(self, problem, state, index: Array, scale, key):
        return variational_step(
            problem, state, scale, key, self.learning_rate, self.num_samples, self.batch_size
        )

    def extract(self, problem, state):
        return problem.data, state.psi


@register
class RandomSubset(Construction):
    """Variational inference on a random subset, each of its `size` points weighing N/M."""

    size: int
    family: Family | None = None
    learning_rate: float = 0.05
    num_samples: int = 32
    corrects: ClassVar[bool] = False

    def __check_init__(self):
        positive(self, "learning_rate", "num_samples")
        whole_number("size", self.size)

    @property
    def default_steps(self):
        return 3000

    def setup(self, model, data):
        family = self.family or default_family(model)
        settled = RandomSubset(self.size, family, self.learning_rate, self.num_samples)
        return settled, Problem(model, data, family)

    def start(self, problem, key):
        points_key, theta_key = jax.random.split(key)
        frame = make_frame(problem.data, Fixed(), frozenset(), problem.model.num_classes)
        leaves, indices = start_leaves(frame, problem.data, self.size, "subset", points_key)
        return start_variational(problem, frame.build(leaves, indices), theta_key)

    def step(self, problem, state, index, scale, key):
        return variational_step(problem, state, scale, key, self.learning_rate, self.num_samples, self.size)

    def extract(self, problem, state):
        return state.points, state.psi


def default_family(model: Model) -> Family:
    """A full covariance where a few draws can still estimate it: a diagonal one is a ceiling."""
    return FullRank() if model.dim <= FULL_RANK_DIM else MeanField()


@eqx.filter_jit
def newton_start(problem: Problem, points: Dataset, psi: Psi, key) -> Psi:
    """The solution of the problem in fixed noise, if Newton steps find one: Adam only has to refine it.

    Steps of a few hundredths of a standard deviation would need thousands to cross the distance that a
    posterior given many rows lies away from its start.
    """
    model, family = problem.model, problem.family
    batch = points.batch(key, min(len(points), 4 * MINIBATCH_ROWS))
    factor = len(points) / len(batch)

    def loss(psi, learned, noise):
        thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
        data = factor * log_likelihood_sums(model, thetas, batch)
        return -jnp.mean(data + jax.vmap(model.log_prior)(thetas) - proposal)

    found, info = Implicit().find(InnerProblem(loss, family, model.dim), {}, psi, key)
    return jax.tree.map(lambda new, old: jnp.where(info.accepted, new, old), found, psi)


def start_variational(problem: Problem, points: Dataset | None, key) -> VariationalState:
    """r at its start on `points`, or on all the data."""
    given = problem.data if points is None else points
    psi = start_family(problem.family, problem.model, given, key)
    if problem.model.dim <= NEWTON_DIM:
        psi = newton_start(problem, given, psi, key)
    zero = problem.family.zero(psi)
    return VariationalState(points, psi, optax.scale_by_adam(b2=0.99).init(zero))
