"""Coresets that grow by one point a step: incremental BB Sparse VI (Alg. 3) and Sparse VI (Alg. 1).

One step of the loop is one addition: r is fitted to the coreset so far, the row whose log-likelihood varies
most like what the coreset still lacks is added, and all weights are learned anew by the steps of `BBPSVI`.
There is room for all `size` points from the start, empty slots weighing nothing: nothing compiles twice.
"""

from typing import ClassVar, TypedDict, Unpack, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import whole_number
from .._registry import register
from ..data.dataset import Dataset
from ..families.base import Family
from ..families.importance import defensive, log_weights, normalise
from ..inner.base import Inner
from ..inner.laplace import Laplace
from ..models.base import Model
from ..objectives import Objective
from ..outer.base import Draft, Optimizer, mean_draw
from ..weights import Free
from .base import Construction, Plan, start_key
from .bbpsvi import BBPSVI
from .coreset_plan import CoresetPlan
from .defaults import candidates_for, weight_steps_for
from .learned_plan import CoresetState, LearnedPlan
from .likelihood_vectors import centred, correlations, likelihood_table
from .schedule import decay_factor, fixed_schedule

# No row: what a slot that is still empty has for its origin.
NO_ROW = -1


class GreedyState(eqx.Module):
    """A coreset with `count` of its slots in use, and the row of the data that each of them holds."""

    coreset: CoresetState
    rows: Array
    count: Array


@register
class GreedyBBSparseVI(Construction):
    """Black-box Sparse VI, incremental version (Alg. 3): `size` additions of rows, weights non-negative.

    A point already in the coreset may be chosen again, which adds none; its weight is then learned further.
    Each addition is followed by `weight_steps` steps on the weights. `num_candidates` rows are looked at for
    an addition (by default all, while they are fewer than some hundred thousand). `history["row"]` says which
    row was chosen at each step, `history["correlation"]` how well it fitted and `history["points"]` how many
    points there were then.

    >>> GreedyBBSparseVI(20, weight_steps=5).weight_steps
    5
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

    def settle(self, model: Model, data: Dataset) -> "GreedyPlan":
        return self._with_learner(self._weight_learner()._settle(model, data, by_passes=False))

    def _with_learner(self, learner: LearnedPlan) -> "GreedyPlan":
        """The plan whose weights are learned by `learner`."""
        weight_steps = self.weight_steps or weight_steps_for(learner.optimizer)
        candidates = min(
            self.num_candidates or candidates_for(learner.num_samples, learner.data), len(learner.data)
        )
        settled = GreedyBBSparseVI(
            self.size,
            family=learner.family,
            objective=learner.objective,
            inner=learner.inner,
            optimizer=learner.optimizer,
            weight_steps=weight_steps,
            num_candidates=candidates,
            batch_size=learner.batch_size,
        )
        return GreedyPlan(
            settled,
            learner.model,
            learner.data,
            learner.family,
            cast(CoresetPlan, learner),  # by steps, as was asked for
            weight_steps,
            candidates,
            self,
        )


class GreedyPlan(Plan):
    """Additions of rows, each followed by steps of `learner` on the weights.

    `asked` is the construction as the user left it, in case another learner is needed.
    """

    construction: GreedyBBSparseVI
    model: Model
    data: Dataset
    family: Family
    learner: CoresetPlan
    weight_steps: int
    num_candidates: int
    asked: GreedyBBSparseVI
    records: ClassVar[dict[str, type]] = {"row": int, "correlation": float, "points": int}

    @property
    def default_steps(self):
        return self.learner.size

    def schedule(self, num_steps):
        # Every step adds a point, so none may be left out; and the last one is worth as much as the first.
        steps = num_steps or self.default_steps
        return fixed_schedule(steps)._replace(decay_start=steps, decay_length=0)

    def reconsider(self, states, keys):
        # Judged by as many random rows as there will be points: an empty coreset's posterior is the prior.
        others = self.learner.reconsider([self.learner.start(start_key(key)) for key in keys], keys)
        return None if others is None else self.asked._with_learner(others)

    def start(self, key, initial=None):
        state = self.learner.start(key)
        empty = jnp.zeros(self.learner.size, dtype=self.data.x.dtype)
        learned = {"weights": empty}
        coreset = CoresetState(
            learned=learned,
            frozen={**state.frozen, "active": empty},
            psi=state.psi,
            optimizer=self.learner.optimizer.init(learned, self.family, state.psi),
            indices=None,
            surrogate=state.surrogate,
        )
        return GreedyState(coreset, jnp.full(self.learner.size, NO_ROW), jnp.asarray(0))

    def step(self, state: GreedyState, index, scale, key):
        choice_key, candidate_key, weights_key = jax.random.split(key, 3)
        first = index * self.weight_steps
        candidates = self.data.batch(candidate_key, self.num_candidates)
        # All of the data do not come from elsewhere: their numbers are their places.
        rows = jnp.arange(len(candidates)) if candidates.indices is None else candidates.indices
        scores, psi, surrogate = self._scores(state, first, candidates, rows, choice_key)
        best = jnp.argmax(scores)
        added = self._add(state, psi, surrogate, candidates, rows, best)

        def weight_step(carry, step):
            part = decay_factor(step, 0.6 * self.weight_steps, 0.4 * self.weight_steps)
            step_key = jax.random.fold_in(weights_key, step)
            return self.learner.step(carry, first + step, scale * part, step_key)

        coreset, infos = jax.lax.scan(weight_step, added.coreset, jnp.arange(self.weight_steps))
        info = jax.tree.map(lambda values: values[-1], infos)
        chosen = jnp.concatenate([state.rows, rows])[best]
        more = {"row": chosen, "correlation": jnp.asarray(scores[best], float), "points": added.count}
        return GreedyState(coreset, added.rows, added.count), info._replace(more=more)

    def _scores(self, state: GreedyState, index, candidates: Dataset, rows, key):
        """Correlation with the residual of all slots, then of all candidates; -inf for what cannot be had.

        Also psi* of the coreset so far, and what the data's answer remembers.
        """
        coreset, keys = state.coreset, jax.random.split(key, 3)
        learned, target = coreset.learned, self.learner.target(coreset, keys)
        psi, inner = target.solve(learned, coreset.psi)
        thetas, proposal = target.draw(learned, psi)
        draft = Draft(thetas, mean_draw(thetas), proposal, psi, inner)
        answer, surrogate = self.learner.answer(coreset, index, draft, keys)
        core = target.core(learned, thetas, draft.reference)
        # No draw is ignored, however far importance weights have collapsed, or there were nothing to compare.
        weights = defensive(normalise(log_weights(core, target.prior(thetas), proposal)))
        residual = centred((answer.rises - core)[None], weights)[0]

        def scores_of(rows: Dataset) -> Float[Array, " n"]:
            table = centred(likelihood_table(self.model, thetas, rows), weights)
            return correlations(table, residual, weights)

        slots = jnp.abs(scores_of(target.coreset(learned)))
        slots = jnp.where(coreset.frozen["active"] > 0, slots, -jnp.inf)
        known = jnp.any(rows[:, None] == state.rows[None, :], axis=1)
        free = (state.count < self.learner.size) & ~known & (candidates.weights > 0)
        new = jnp.where(free, scores_of(candidates), -jnp.inf)
        return jnp.concatenate([slots, new]), psi, surrogate

    def _add(self, state: GreedyState, psi, surrogate, candidates: Dataset, rows, best) -> GreedyState:
        """The coreset with the chosen candidate in its next slot, or as it is if a slot was chosen again."""
        old, size, units = state.coreset, self.learner.size, self.learner.parametrisation
        is_new = best >= size
        place = jnp.where(is_new, state.count, size)  # out of range: nothing is written
        row = jnp.maximum(best - size, 0)

        def write(leaf, value):
            return leaf.at[place].set(jnp.asarray(value, leaf.dtype), mode="drop")

        places = units.raw_locations(candidates.x[row])
        frozen = {
            **old.frozen,
            **{name: write(old.frozen[name], place) for name, place in places.items()},
            "active": write(old.frozen["active"], 1.0),
        }
        if candidates.y is not None:
            frozen["y"] = write(old.frozen["y"], candidates.y[row])
        learned = {"weights": write(old.learned["weights"], 0.0)}
        coreset = CoresetState(
            learned=learned,
            frozen=frozen,
            psi=psi,
            optimizer=self.learner.optimizer.init(learned, self.family, psi),
            indices=None,
            surrogate=surrogate,
        )
        return GreedyState(coreset, write(state.rows, rows[row]), state.count + is_new)

    def extract(self, state: GreedyState):
        leaves = {**state.coreset.frozen, **state.coreset.learned}
        coreset = self.learner.parametrisation.build(leaves, state.rows)
        # Empty slots are left behind; before the first addition, one of them stands for nothing.
        used = jnp.arange(max(1, int(state.count)))
        return jax.tree.map(lambda leaf: leaf[used], coreset), state.coreset.psi


class GreedyOptions(TypedDict, total=False):
    """What `GreedyBBSparseVI` takes besides `size` and `inner`."""

    family: Family | None
    objective: Objective | None
    optimizer: Optimizer | None
    weight_steps: int | None
    num_candidates: int | None
    batch_size: int | None


def SparseVI(size: int, *, inner: Inner | None = None, **options: Unpack[GreedyOptions]) -> GreedyBBSparseVI:
    """Sparse VI (Campbell & Beronov 2019, Alg. 1): the coreset posterior by Laplace's approximation.

    Its draws are taken for draws of the posterior itself, without importance weights; `inner=Mcmc()` draws by
    Markov chains instead. Takes what `GreedyBBSparseVI` takes.

    >>> SparseVI(20).inner
    Laplace()
    """
    return GreedyBBSparseVI(size, inner=Laplace() if inner is None else inner, **options)
