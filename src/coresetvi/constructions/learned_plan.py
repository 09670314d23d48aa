"""What all plans share that learn a coreset: their state, and the coreset's side of one step."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..families.importance import log_weights, normalise, normalised_ess
from ..families.initial import start_family
from ..inner.base import Inner, InnerProblem, Leaves
from ..models.base import Model, weighted_log_likelihood
from ..models.sums import Quadratic, log_joints, log_likelihood_rises
from ..objectives import Objective
from ..outer.base import Optimizer, OptimizerState, Target, mean_draw
from .base import Construction, Plan
from .parametrisation import Parametrisation, points_of

# Importance sampling from r works if the first step's draws leave more than this many effective ones.
MIN_EFFECTIVE_DRAWS = 4.0


class CoresetState(eqx.Module):
    """What the next step needs. `frozen` leaves never change but differ between trials."""

    learned: Leaves
    frozen: Leaves
    psi: Psi
    optimizer: OptimizerState
    indices: Array | None
    surrogate: Quadratic | None


class CoresetTarget(Target):
    """The coreset's side of one step, with its random numbers fixed."""

    model: Model
    parametrisation: Parametrisation
    frozen: Leaves
    family: Family
    objective: Objective
    inner: Inner
    num_samples: int
    inner_key: PRNGKeyArray
    noise_key: PRNGKeyArray

    def coreset(self, learned: Leaves) -> Dataset:
        """The points that these leaves stand for."""
        return self.parametrisation.build({**self.frozen, **learned})

    def inner_problem(self) -> InnerProblem:
        """The negative ELBO of r on the coreset."""

        def loss(psi, learned, noise):
            thetas, proposal = jax.vmap(self.family.sample_and_log_prob, (None, 0))(psi, noise)
            return -jnp.mean(log_joints(self.model, thetas, self.coreset(learned)) - proposal)

        return InnerProblem(loss, self.family, self.model.dim)

    def solve(self, learned, psi):
        return self.inner.solve(self.inner_problem(), learned, psi, self.inner_key)

    def draw(self, learned, psi):
        problem = self.inner_problem()
        thetas, proposal = self.inner.draws(problem, learned, psi, self.noise_key, self.num_samples)
        if self.inner.exact_draws:
            # Draws of the coreset posterior are their own proposal, up to its evidence as r puts it: all
            # weights are alike, and the gradient of the bound becomes a covariance.
            joint = self.core(learned, thetas, mean_draw(thetas)) + self.prior(thetas)
            proposal = jax.lax.stop_gradient(joint - jnp.mean(joint - proposal))
        return thetas, proposal

    def core(self, learned, thetas, reference):
        return log_likelihood_rises(self.model, thetas, reference, self.coreset(learned))[1]

    def prior(self, thetas):
        return jax.vmap(self.model.log_prior)(thetas)

    def project(self, learned):
        return self.parametrisation.project(learned)


class GradientConstruction(Construction):
    """A construction that settles into a `LearnedPlan`."""

    @abc.abstractmethod
    def settle(self, model: Model, data: Dataset) -> "LearnedPlan":
        """The plan of a fit to these data: every open choice made."""


class LearnedPlan(Plan):
    """BB PSVI with every choice made. `instead` is what to settle if r turns out not to cover its target."""

    construction: GradientConstruction
    model: Model
    data: Dataset
    family: Family
    parametrisation: Parametrisation
    size: int
    init: str
    learn: frozenset[str]
    objective: Objective
    num_samples: int
    inner: Inner
    optimizer: Optimizer
    batch_size: int
    expands: bool
    instead: GradientConstruction | None

    @property
    def default_steps(self):
        return self.optimizer.default_steps

    def target(self, state: CoresetState, keys) -> CoresetTarget:
        """The coreset's side of a step from this state."""
        inner_key, noise_key, _ = keys
        return CoresetTarget(
            model=self.model,
            parametrisation=self.parametrisation,
            frozen=state.frozen,
            family=self.family,
            objective=self.objective,
            inner=self.inner,
            num_samples=self.num_samples,
            inner_key=inner_key,
            noise_key=noise_key,
        )

    def fresh_start(self, state: CoresetState):
        """A new start of r drawn at random, as a function of a key."""

        def fresh(key):
            coreset = self.parametrisation.build({**state.frozen, **state.learned})
            return start_family(self.family, self.model, coreset, key)

        return fresh

    def reconsider(self, states, keys) -> "LearnedPlan | None":
        """Whether r covers the coreset posterior is the natural gradient's premise: measured, not guessed.

        A log-density that is concave where the fit starts gives no reason for doubt, if r may have any
        covariance. Otherwise the inner problem must converge and the importance weights must leave more than
        a few draws alive. If not, information can reach the coreset only through psi*, by nested gradients.
        What is compiled for this is a fraction of a step.
        """
        if self.instead is None:
            return None
        pairs = list(zip(states, keys, strict=True))
        if self.family.any_covariance and all(is_concave(self, state) for state, _ in pairs):
            return None
        if all(bool(r_covers(self, state, key)) for state, key in pairs):
            return None
        return self.instead.settle(self.model, self.data)

    def extract(self, state: CoresetState):
        moved = "x" in state.learned or "y" in state.learned
        leaves = {**state.frozen, **state.learned}
        return points_of(self.parametrisation, leaves, None if moved else state.indices), state.psi


def is_concave(plan: LearnedPlan, state: CoresetState) -> bool:
    """Whether the coreset's log-joint curves downwards in all directions where r starts."""
    coreset = points_of(plan.parametrisation, {**state.frozen, **state.learned})
    curvature = joint_curvature(plan.model, state.psi["mean"], coreset)
    return bool(np.linalg.eigvalsh(np.asarray(curvature, np.float64)).max() < 0)


@eqx.filter_jit
def joint_curvature(model: Model, theta: Float[Array, " d"], data: Dataset) -> Float[Array, "d d"]:
    """The Hessian of log p(theta) + sum_n weight_n log p(y_n | x_n, theta)."""
    return jax.hessian(lambda theta: weighted_log_likelihood(model, theta, data) + model.log_prior(theta))(
        theta
    )


@eqx.filter_jit
def r_covers(plan: LearnedPlan, state: CoresetState, key: PRNGKeyArray) -> Bool[Array, ""]:
    """Whether the first step's r is found, and its draws count for the coreset posterior."""
    index = jnp.asarray(0)
    *keys, start_key = jax.random.split(jax.random.fold_in(key, index), 4)
    target = plan.target(state, keys)
    psi = plan.inner.begin(state.psi, plan.fresh_start(state), index, start_key)
    # Not by `ask`: a first pass may be asked around another place than r.
    psi, inner = target.solve(state.learned, psi)
    thetas, proposal = target.draw(state.learned, psi)
    core = target.core(state.learned, thetas, mean_draw(thetas))
    ess = normalised_ess(normalise(log_weights(core, target.prior(thetas), proposal)))
    return inner.accepted & (ess * plan.num_samples > MIN_EFFECTIVE_DRAWS)
