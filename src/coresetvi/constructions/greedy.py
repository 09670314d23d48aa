"""Coresets that grow by one point a step: incremental BB Sparse VI (Alg. 3) and Sparse VI (Alg. 1).

One step of the loop is one addition: r is fitted to the coreset so far, the row whose log-likelihood varies
most like what the coreset still lacks is added, and all weights are learned anew by the steps of `BBPSVI`.
There is room for all `size` points from the start, empty slots weighing nothing: nothing compiles twice.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import whole_number
from .._registry import register
from ..data.dataset import Dataset
from ..families.base import Family
from ..families.importance import defensive, log_weights, normalise
from ..inner import Inner, Laplace
from ..objectives import Objective
from ..outer.base import Optimizer, OuterStep, mean_draw
from ..outer.natural import NaturalGradient
from ..weights import Free
from .base import Construction
from .bbpsvi import BBPSVI, CoresetProblem, CoresetState
from .likelihood_vectors import centred, correlations, likelihood_table
from .schedule import decay_factor, fixed_schedule

# Numbers (rows x draws) that the search for the next point may look at: all rows of most data sets.
CANDIDATE_NUMBERS = 2**24
# Weight steps an addition, if none are given: natural gradients need few, Adam needs the paper's number.
NATURAL_STEPS, ADAM_STEPS = 10, 200
# No row: what a slot that is still empty has for its origin.
NO_ROW = -1


class GreedyState(eqx.Module):
    """A coreset with `count` of its slots in use."""

    coreset: CoresetState
    count: Array


@register
class GreedyBBSparseVI(Construction):
    """Black-box Sparse VI, incremental version (Alg. 3): `size` additions of rows, weights non-negative.

    A point already in the coreset may be chosen again, which adds none; its weight is then learned further.
    Each addition is followed by `weight_steps` steps on the weights. `num_candidates` rows are looked at for
    an addition (by default all, while they are fewer than some hundred thousand). `history["row"]` says which
    row was chosen at each step, `history["correlation"]` how well it fitted and `history["points"]` how many
    points there were then.

    >>> GreedyBBSparseVI(20).default_steps
    20
    """

    size: int
    family: Family | None
    objective: Objective | None
    inner: Inner | None
    optimizer: Optimizer | None
    weight_steps: int | None
    num_candidates: int | None
    batch_size: int | None
    corrects: ClassVar[bool] = True
    records: ClassVar[dict[str, type]] = {"row": int, "correlation": float, "points": int}

    def __init__(
        self,
        size: int,
        *,
        family: Family | None = None,
        objective: Objective | None = None,
        inner: Inner | None = None,
        optimizer: Optimizer | None = None,
        weight_steps: int | None = None,
        num_candidates: int | None = None,
        batch_size: int | None = None,
    ):
        self.size = whole_number("size", size)
        self.family, self.objective, self.inner, self.optimizer = family, objective, inner, optimizer
        self.weight_steps = None if weight_steps is None else whole_number("weight_steps", weight_steps)
        self.num_candidates = (
            None if num_candidates is None else whole_number("num_candidates", num_candidates)
        )
        self.batch_size = batch_size

    def __check_init__(self):
        self._weight_learner()  # which refuses what it cannot use

    def _weight_learner(self) -> BBPSVI:
        """The part that learns weights: everything but the choice of points."""
        return BBPSVI(
            self.size,
            family=self.family,
            learn={"weights"},
            weights=Free(),
            objective=self.objective,
            inner=self.inner,
            optimizer=self.optimizer,
            batch_size=self.batch_size,
        )

    @property
    def default_steps(self):
        return self.size

    def schedule(self, num_steps):
        # Every step adds a point, so none may be left out; and the last one is worth as much as the first.
        steps = num_steps or self.default_steps
        return fixed_schedule(steps)._replace(decay_start=steps, decay_length=0)

    def setup(self, model, data):
        learner, problem = self._weight_learner().setup(model, data)
        natural = isinstance(learner.optimizer, NaturalGradient)
        draws = learner.objective.num_samples or 1
        return self._settled(
            learner,
            self.weight_steps or (NATURAL_STEPS if natural else ADAM_STEPS),
            min(self.num_candidates or max(1, CANDIDATE_NUMBERS // draws), len(data)),
        ), problem

    def _settled(self, learner: BBPSVI, weight_steps: int | None, num_candidates: int | None):
        return GreedyBBSparseVI(
            self.size,
            family=learner.family,
            objective=learner.objective,
            inner=learner.inner,
            optimizer=learner.optimizer,
            weight_steps=weight_steps,
            num_candidates=num_candidates,
            batch_size=learner.batch_size,
        )

    def reconsider(self, settled: "GreedyBBSparseVI", info):
        other = self._weight_learner().reconsider(settled._weight_learner(), info)
        return None if other is None else self._settled(other, self.weight_steps, self.num_candidates)

    def start(self, problem: CoresetProblem, key, initial=None):
        state = self._weight_learner().start(problem, key)
        empty = jnp.zeros(self.size, dtype=problem.data.x.dtype)
        frozen = {**state.frozen, "active": empty}
        rows = jnp.full(self.size, NO_ROW)
        learned = {"weights": empty}
        state = CoresetState(
            learned=learned,
            frozen=frozen,
            psi=state.psi,
            optimizer=self._optimizer_state(problem, learned, state.psi),
            indices=rows,
            surrogate=state.surrogate,
        )
        return GreedyState(state, jnp.asarray(0))

    def _optimizer_state(self, problem, learned, psi):
        assert self.optimizer is not None
        return self.optimizer.init(learned, problem.family, psi)

    def step(self, problem: CoresetProblem, state: GreedyState, index, scale, key):
        assert self.inner is not None and self.weight_steps is not None
        num_steps = self.weight_steps
        choice_key, candidate_key, weights_key = jax.random.split(key, 3)
        learner, first = self._weight_learner(), index * num_steps
        outer = learner._outer_step(
            problem, state.coreset, first, self.inner, jax.random.split(choice_key, 3)
        )
        psi, _ = outer.solve(state.coreset.learned, state.coreset.psi)
        candidates = problem.data.batch(candidate_key, self.num_candidates or 1)
        if candidates.indices is None:  # all of the data, which do not come from elsewhere
            candidates = candidates.take(jnp.arange(len(candidates)))
        scores, memory = self._scores(problem, state, outer, psi, candidates)
        best = jnp.argmax(scores)
        coreset, count = self._add(problem, state, psi, memory, candidates, best)

        def weight_step(carry, step):
            part = decay_factor(step, 0.6 * num_steps, 0.4 * num_steps)
            step_key = jax.random.fold_in(weights_key, step)
            return learner.step(problem, carry, first + step, scale * part, step_key)

        coreset, infos = jax.lax.scan(weight_step, coreset, jnp.arange(num_steps))
        info = jax.tree.map(lambda values: values[-1], infos)
        assert state.coreset.indices is not None and candidates.indices is not None
        rows = jnp.concatenate([state.coreset.indices, candidates.indices])
        more = {"row": rows[best], "correlation": jnp.asarray(scores[best], float), "points": count}
        return GreedyState(coreset, count), info._replace(more=more)

    def _scores(self, problem, state, outer: OuterStep, psi, candidates) -> tuple[Array, Any]:
        """Correlation with the residual of all slots, then of all candidates; -inf for what cannot be had."""
        model, learned, frozen = problem.model, state.coreset.learned, state.coreset.frozen
        thetas, proposal = outer.draw(learned, psi)
        reference = mean_draw(thetas)
        term = outer.data(thetas, reference)
        core = outer.core(learned, thetas, reference)
        # No draw is ignored, however far importance weights have collapsed, or there were nothing to compare.
        weights = defensive(normalise(log_weights(core, outer.prior(thetas), proposal)))
        residual = centred((term.rises - core)[None], weights)[0]

        def scores_of(rows: Dataset) -> Float[Array, " n"]:
            return correlations(centred(likelihood_table(model, thetas, rows), weights), residual, weights)

        slots = jnp.abs(scores_of(problem.frame.build({**frozen, **learned})))
        slots = jnp.where(frozen["active"] > 0, slots, -jnp.inf)
        known = jnp.any(candidates.indices[:, None] == state.coreset.indices[None, :], axis=1)
        free = (state.count < self.size) & ~known & (candidates.weights > 0)
        new = jnp.where(free, scores_of(candidates), -jnp.inf)
        return jnp.concatenate([slots, new]), term.memory

    def _add(self, problem, state, psi, memory, candidates, best) -> tuple[CoresetState, Array]:
        """The coreset with the chosen candidate in its next slot, or as it is if a slot was chosen again."""
        frame, frozen, old = problem.frame, state.coreset.frozen, state.coreset
        is_new = best >= self.size
        place = jnp.where(is_new, state.count, self.size)  # out of range: nothing is written
        row = jnp.maximum(best - self.size, 0)

        def write(leaf, value):
            return leaf.at[place].set(jnp.asarray(value, leaf.dtype), mode="drop")

        frozen = {
            **frozen,
            "x": write(frozen["x"], (candidates.x[row] - frame.mean) / frame.scale),
            "active": write(frozen["active"], 1.0),
        }
        if "y" in frozen:
            frozen["y"] = write(frozen["y"], candidates.y[row])
        learned = {"weights": write(old.learned["weights"], 0.0)}
        coreset = CoresetState(
            learned=learned,
            frozen=frozen,
            psi=psi,
            optimizer=self._optimizer_state(problem, learned, psi),
            indices=write(old.indices, candidates.indices[row]),
            surrogate=memory,
        )
        return coreset, state.count + is_new

    def extract(self, problem: CoresetProblem, state):
        coreset, psi = self._weight_learner().extract(problem, state.coreset)
        # Empty slots are left behind; before the first addition, one of them stands for nothing.
        used = jnp.arange(max(1, int(state.count)))
        return jax.tree.map(lambda leaf: leaf[used], coreset), psi


def SparseVI(size: int, *, inner: Inner | None = None, **options: Any) -> GreedyBBSparseVI:
    """Sparse VI (Campbell & Beronov 2019, Alg. 1): the coreset posterior by Laplace's approximation.

    Its draws are taken for draws of the posterior itself, without importance weights; `inner=Mcmc()` draws by
    Markov chains instead. Takes what `GreedyBBSparseVI` takes.

    >>> SparseVI(20).inner
    Laplace()
    """
    return GreedyBBSparseVI(size, inner=Laplace() if inner is None else inner, **options)
