"""BB PSVI: coresets learned by gradients of a variational bound. One class for every row of the tables.

Which leaves move (`learn`), how weights are made (`weights`), what is minimised (`objective`), how the inner
problem is solved and differentiated (`inner`) and how steps are taken (`optimizer`) are parts; leaving one
out lets the construction choose it from the sizes of model and data alone.
"""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ..config import register
from ..coreset import LEARNABLE, STARTS, Frame, Leaves, make_frame, start_leaves
from ..data import Dataset
from ..errors import InputError
from ..families import Family, FullRank, MeanField, Psi
from ..importance import log_weights, normalise, normalised_ess
from ..inner import Alternating, Implicit, Inner, InnerProblem, Joint, Unrolled
from ..likelihood_sums import log_likelihood_sums, weighted_log_likelihood
from ..models.base import Model
from ..objectives import ImportanceElbo, Objective
from ..outer import Adam, NaturalGradient, Optimizer, OuterStep
from ..start import start_family
from ..weights import Simplex, WeightMap
from .base import Construction, Problem

# Up to this many parameters a full covariance and importance sampling are both affordable and reliable.
SMALL_MODEL = 128
# A trial solve decides whether importance sampling from r works: so many draws must leave more than so few.
PILOT_DRAWS = 256
MIN_EFFECTIVE_DRAWS = 4.0


class CoresetProblem(Problem):
    """Constants of a gradient-based fit."""

    frame: Frame


class CoresetState(eqx.Module):
    """What the next step needs. `frozen` leaves and `psi_start` never change but differ between trials."""

    learned: Leaves
    frozen: Leaves
    psi: Psi
    psi_start: Psi
    optimizer: object
    indices: Array | None


@register
class BBPSVI(Construction):
    """Black-box pseudocoreset variational inference (§3 of the paper).

    `size` points; everything else has a default that suits the problem. `learn` is any subset of
    {"x", "y", "weights", "total"}; `init` is "subset" (random rows, every class represented) or "noise"
    (around the data mean, labels split evenly).

    >>> BBPSVI(size=20, learn={"weights", "x"}).learn == {"x", "weights"}
    True
    """

    size: int
    family: Family | None
    learn: frozenset[str] | None
    weights: WeightMap
    objective: Objective
    inner: Inner | None
    optimizer: Optimizer | None
    init: str
    batch_size: int | None

    def __init__(
        self,
        size: int,
        *,
        family: Family | None = None,
        learn: Iterable[str] | None = None,
        weights: WeightMap | None = None,
        objective: Objective | None = None,
        inner: Inner | None = None,
        optimizer: Optimizer | None = None,
        init: str = "subset",
        batch_size: int | None = None,
    ):
        self.size = size
        self.family = family
        self.learn = None if learn is None else frozenset(learn)
        self.weights = Simplex() if weights is None else weights
        self.objective = ImportanceElbo() if objective is None else objective
        self.inner = inner
        self.optimizer = optimizer
        self.init = init
        self.batch_size = batch_size

    def __check_init__(self):
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise InputError(f"size must be a whole number of at least 1, not {self.size!r}.")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {self.batch_size}.")
        if self.init not in STARTS:
            raise InputError(f"init must be one of {', '.join(STARTS)}, not {self.init!r}.")
        learn = self.learn or frozenset()
        if unknown := sorted(learn - set(LEARNABLE)):
            raise InputError(
                f"learn has the unknown name {unknown[0]!r}; choose from {', '.join(LEARNABLE)}."
            )
        if "weights" in learn and not self.weights.learnable:
            raise InputError(
                f"{type(self.weights).__name__} weights cannot be learned; "
                'leave "weights" out of learn or use Simplex() or Free().'
            )

    @property
    def default_steps(self):
        return 300 if isinstance(self.optimizer, NaturalGradient) else 2000

    def setup(self, model, data, key):
        learn = self.learn
        if learn is None:
            learn = frozenset({"x", "weights", "total"} if self.weights.learnable else {"x"})
        if "y" in learn and data.y is None:
            raise InputError('learn has "y", but the data have no labels.')
        frame = make_frame(data, self.weights, learn, model.num_classes)
        family = self.family or (FullRank() if model.dim <= SMALL_MODEL else MeanField())
        problem = CoresetProblem(model, data, family, frame)
        settled = self._settle(problem, learn, key)
        if self.family is None and not isinstance(settled.optimizer, NaturalGradient):
            # A full covariance learned from few noisy draws is worse than a diagonal one.
            problem = CoresetProblem(model, data, MeanField(), frame)
            settled = eqx.tree_at(lambda s: s.family, settled, MeanField())
        return settled, problem

    def _settle(self, problem: CoresetProblem, learn: frozenset[str], key: PRNGKeyArray) -> "BBPSVI":
        """Every open choice made, from sizes, from the parts that were given, and from one trial solve."""
        model = problem.model
        importance = isinstance(self.objective, ImportanceElbo)
        inner, optimizer = self.inner, self.optimizer
        if optimizer is None:
            undecided = importance and inner is None and model.dim <= SMALL_MODEL
            natural = isinstance(inner, Alternating) or (undecided and self._proposal_works(problem, key))
            optimizer = NaturalGradient() if natural else Adam()
        if inner is None:
            natural = isinstance(optimizer, NaturalGradient)
            inner = Alternating(Implicit()) if natural else Unrolled(num_steps=30, learning_rate=0.05)
        flows = inner.passes_gradient and optimizer.uses_inner_gradient
        if not importance and not flows:
            raise InputError(
                f"{type(self.objective).__name__} reaches the coreset only through the inner problem; "
                "use it with inner=Unrolled(), Truncated() or Implicit() and optimizer=Adam()."
            )
        if isinstance(inner, Joint) and not optimizer.uses_inner_gradient:
            raise InputError("Joint() needs optimizer=Adam(), which moves r together with the coreset.")
        objective = self.objective
        if objective.num_samples is None:
            draws = max(128, 4 * model.dim) if isinstance(optimizer, NaturalGradient) else 10
            objective = eqx.tree_at(
                lambda o: o.num_samples, objective, draws, is_leaf=lambda leaf: leaf is None
            )
        return BBPSVI(
            self.size,
            family=problem.family,
            learn=learn,
            weights=self.weights,
            objective=objective,
            inner=inner,
            optimizer=optimizer,
            init=self.init,
            batch_size=min(self.batch_size or whole_or_batch(problem.data), len(problem.data)),
        )

    def _proposal_works(self, problem: CoresetProblem, key: PRNGKeyArray) -> bool:
        """Whether r, fitted to a starting coreset, covers its posterior: the natural gradient's premise.

        Measured rather than guessed from the kind of model: the inner problem must converge, and the
        importance weights must leave more than a few draws alive.
        """
        leaves, _ = start_leaves(problem.frame, problem.data, self.size, self.init, key)
        converged, ess = try_proposal(problem, problem.frame.build(leaves), key)
        return bool(converged) and float(ess) * PILOT_DRAWS > MIN_EFFECTIVE_DRAWS

    def start(self, problem: CoresetProblem, key):
        assert self.learn is not None and self.optimizer is not None
        points_key, theta_key = jax.random.split(key)
        frame = problem.frame
        leaves, indices = start_leaves(frame, problem.data, self.size, self.init, points_key)
        psi = start_family(problem.family, problem.model, frame.build(leaves), theta_key)
        learned = {name: leaf for name, leaf in leaves.items() if name in self.learn}
        frozen = {name: leaf for name, leaf in leaves.items() if name not in self.learn}
        return CoresetState(
            learned=learned,
            frozen=frozen,
            psi=psi,
            psi_start=psi,
            optimizer=self.optimizer.init(learned, problem.family, psi),
            indices=indices,
        )

    def step(self, problem: CoresetProblem, state, index, scale, key):
        assert self.inner is not None and self.optimizer is not None
        inner_key, noise_key, batch_key = jax.random.split(key, 3)
        outer = self._outer_step(problem, state, self.inner, (inner_key, noise_key, batch_key))
        psi = self.inner.begin(state.psi, state.psi_start, index)
        learned, psi, opt_state, info = self.optimizer.step(outer, state.learned, psi, state.optimizer, scale)
        state = eqx.tree_at(lambda s: (s.learned, s.psi, s.optimizer), state, (learned, psi, opt_state))
        return state, info

    def _outer_step(self, problem, state, inner: Inner, keys) -> OuterStep:
        inner_key, noise_key, batch_key = keys
        model, data, family, frame = problem.model, problem.data, problem.family, problem.frame
        num_samples = self.objective.num_samples
        batch = data.batch(batch_key, self.batch_size)
        factor = len(data) / len(batch)

        def core(learned, thetas):
            coreset = frame.build({**state.frozen, **learned})
            return jax.vmap(lambda theta: weighted_log_likelihood(model, theta, coreset))(thetas)

        def inner_loss(psi, learned, noise):
            thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
            return -jnp.mean(core(learned, thetas) + jax.vmap(model.log_prior)(thetas) - proposal)

        inner_problem = InnerProblem(inner_loss, family, model.dim)
        return OuterStep(
            solve=lambda learned, psi: inner.solve(inner_problem, learned, psi, inner_key),
            draw=lambda psi: family.draw(psi, noise_key, num_samples, model.dim),
            data=lambda thetas: factor * log_likelihood_sums(model, thetas, batch),
            core=core,
            prior=jax.vmap(model.log_prior),
            project=frame.project,
            objective=self.objective,
            family=family,
        )

    def extract(self, problem: CoresetProblem, state):
        moved = "x" in state.learned or "y" in state.learned
        indices = None if moved else state.indices
        return problem.frame.build({**state.frozen, **state.learned}, indices), state.psi


@eqx.filter_jit
def try_proposal(problem: CoresetProblem, coreset: Dataset, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Solve the inner problem once on `coreset`; did it converge, and what is the normalised ESS of r?"""
    model, family = problem.model, problem.family
    psi = start_family(family, model, coreset, key)

    def loss(psi, learned, noise):
        thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
        return -jnp.mean(log_joint(model, thetas, coreset) - proposal)

    psi, info = Implicit().find(InnerProblem(loss, family, model.dim), {}, psi, key)
    thetas, proposal = family.draw(psi, jax.random.fold_in(key, 1), PILOT_DRAWS, model.dim)
    prior = jax.vmap(model.log_prior)(thetas)
    core = log_likelihood_sums(model, thetas, coreset)
    return info.accepted, normalised_ess(normalise(log_weights(core, prior, proposal)))


def log_joint(model: Model, thetas: Array, coreset: Dataset) -> Array:
    """log p(theta) + sum_m v_m log p(z_m | u_m, theta) for every draw."""
    core = jax.vmap(lambda theta: weighted_log_likelihood(model, theta, coreset))(thetas)
    return core + jax.vmap(model.log_prior)(thetas)


def whole_or_batch(data: Dataset) -> int:
    """Rows a step: all of them while that is cheap, for minibatch noise is what limits a coreset."""
    return len(data) if len(data) <= WHOLE_DATA_ROWS else MINIBATCH_ROWS


WHOLE_DATA_ROWS = 50_000
MINIBATCH_ROWS = 8_192
