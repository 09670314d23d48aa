"""The plan of a fit that learns a coreset by steps: all of them in one compiled program.

One step reads top to bottom: prepare the target, ask, let the data answer, tell. The two halves in between
are the optimiser's (`outer/base.py`), and the data's answer is a sum over rows (`outer/minibatch.py`).
"""

import jax
import jax.numpy as jnp

from ..families.initial import start_family
from ..models.sums import Quadratic
from ..outer.base import Answer, Draft, answered
from ..outer.minibatch import data_term, empty_surrogate
from .chain_draws import FIRST_ROUNDS, final_draws, follow, softened, test_draws
from .learned_plan import CoresetState, LearnedPlan
from .starts import starting_leaves


class CoresetPlan(LearnedPlan):
    """BB PSVI by steps, each on all rows or on a minibatch."""

    def start(self, key, initial=None):
        points_key, theta_key = jax.random.split(key)
        follows = self.optimizer.needs_draws and not self.inner.draws_anew
        learned, frozen, indices = starting_leaves(
            self.parametrisation, self.model, self.data, self.size, self.init, self.learn, points_key, initial
        )
        if follows and initial is None:
            learned = softened(self.parametrisation, learned)
        coreset = self.parametrisation.build({**frozen, **learned})
        psi = start_family(self.family, self.model, coreset, theta_key)
        psi = self.inner.prepare(self.family, psi, self.model, theta_key)
        if follows:
            # Chains that have not arrived say nothing about the coreset that they are on.
            begun = CoresetState(learned, frozen, psi, None, indices)
            psi = follow(self, begun, jax.random.fold_in(theta_key, 1), FIRST_ROUNDS)[0]
        return CoresetState(
            learned=learned,
            frozen=frozen,
            psi=psi,
            optimizer=self.optimizer.init(learned, self.family, psi),
            indices=indices,
            surrogate=empty_surrogate(self.model, self.data) if self.expands else None,
        )

    def step(self, state: CoresetState, index, scale, key):
        *keys, start_key = jax.random.split(key, 4)
        target = self.target(state, keys)
        psi = self.inner.begin(state.psi, self.fresh_start(state), index, start_key)
        draft = self.optimizer.ask(target, state.learned, psi, state.optimizer)
        answer, surrogate = self.answer(state, index, draft, keys)
        moved = self.optimizer.tell(target, state.learned, psi, state.optimizer, scale, draft, answer)
        info = moved.info
        if not self.family.has_density:
            # How posteriors differ cannot be told from one point: the KL is not zero but unknown.
            info = info._replace(kl=jnp.full_like(info.kl, jnp.nan))
        return CoresetState(
            learned=moved.learned,
            frozen=state.frozen,
            psi=moved.psi,
            optimizer=moved.state,
            indices=state.indices,
            surrogate=surrogate,
        ), info

    def finish(self, state: CoresetState, key):
        return test_draws(self, final_draws(self, state, key)) if self.inner.keeps_draws else state

    def nearest(self, state: CoresetState):
        return None if state.nearest is None else float(state.nearest)

    def answer(self, state: CoresetState, index, draft: Draft, keys) -> tuple[Answer, Quadratic | None]:
        """The data's answer to a draft, from all rows or from a minibatch, and what to remember of it."""
        batch = self.data.batch(keys[2], self.batch_size)
        term_at = data_term(self.model, self.data, batch, state.surrogate, index)
        if not self.optimizer.needs_slopes:
            term = term_at(draft.thetas, draft.reference)
            return Answer(term.value, term.rises), term.memory

        def rises_at(thetas):
            term = term_at(thetas, draft.reference)
            return term.rises, (term.value, term.memory)

        rises, slopes, (value, memory) = answered(rises_at, draft.thetas)
        return Answer(value, rises, slopes), memory
