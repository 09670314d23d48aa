"""What all plans share that learn a coreset: their state, and the coreset's side of one step."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ..data.dataset import Dataset
from ..families.base import Family, Psi
from ..families.initial import start_family
from ..inner.base import Inner, InnerProblem, Leaves
from ..models.base import Model
from ..models.log_joint import LogJoint
from ..models.sums import Quadratic, log_joints, log_likelihood_rises
from ..objectives import Objective
from ..outer.base import Optimizer, OptimizerState, Target, mean_draw
from .base import Construction, Plan
from .coverage import MIN_EFFECTIVE_DRAWS, WELL_COVERED, effective_draws, has_other_modes, is_concave
from .parametrisation import Parametrisation, points_of


class CoresetState(eqx.Module):
    """What the next step needs. `frozen` leaves never change but differ between trials."""

    learned: Leaves
    frozen: Leaves
    psi: Psi
    optimizer: OptimizerState
    indices: Array | None
    surrogate: Quadratic | None = None
    # KL divergence from the data's posterior that a last pass found, once a fit is over.
    nearest: Array | None = None


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

        def log_joint(learned, reference):
            return LogJoint(self.model, self.coreset(learned), reference)

        return InnerProblem(loss, self.family, self.model.dim, log_joint)

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
    """BB PSVI with every choice made.

    `instead` is what to settle if r turns out not to cover its target, and `among_modes` if there are modes
    that it does not know of.
    """

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
    among_modes: GradientConstruction | None = None

    @property
    def default_steps(self):
        return self.optimizer.default_steps

    @property
    def records(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.records

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
        """Whether r covers the coreset posterior is the premise of importance weights: measured, not guessed.

        A log-density that is concave wherever r reaches gives no reason for doubt, if r may have any
        covariance. Otherwise the inner problem must converge and the importance weights must leave enough
        draws alive. If not, chains take the place of r; where they are too dear, a few draws are enough for
        r to go on, and with fewer information can reach the coreset only through psi*, by nested gradients.
        If so, a look from far away tells whether r covers all of it; if not, tempered particles do.
        What is compiled for this is a fraction of a step.
        """
        if self.instead is None:
            return None
        pairs = list(zip(states, keys, strict=True))
        if self.family.any_covariance and all(is_concave(self, state, key) for state, key in pairs):
            return None
        other = self.instead.settle(self.model, self.data)
        enough = WELL_COVERED * self.num_samples if other.inner.keeps_draws else MIN_EFFECTIVE_DRAWS
        if not all(float(effective_draws(self, state, key)) > enough for state, key in pairs):
            return other
        # Draws of r cannot tell of modes that r does not know.
        if self.among_modes is not None and any(has_other_modes(self, state, key) for state, key in pairs):
            return self.among_modes.settle(self.model, self.data)
        return None

    def extract(self, state: CoresetState):
        moved = "x" in state.learned or "y" in state.learned
        leaves = {**state.frozen, **state.learned}
        return points_of(self.parametrisation, leaves, None if moved else state.indices), state.psi
