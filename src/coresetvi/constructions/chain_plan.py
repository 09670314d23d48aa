"""The plan of a fit with Markov chains inside: chains follow the coreset, the rows answer, the coreset moves.

Every step is one pass over the rows, wherever they are, and the chains' positions are what the rows are asked
about. Chains that have not arrived say nothing about the coreset they are on, so before every pass they go on
until their log-density no longer rises or falls.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg
import numpy as np
from jaxtyping import Array, Float

from ..data.dataset import Dataset
from ..data.rows import Rows
from ..data.samples import sample_of
from ..families.initial import start_family
from ..families.sampled import Sampled
from ..inner.base import InnerInfo
from ..models.row_sums import SlopesOfRows
from ..outer.base import Answer, mean_draw
from ..outer.slope_matching import SlopeMatching
from .chain_draws import FIRST_ROUNDS, final_draws, follow, softened, test_draws
from .learned_plan import CoresetState, CoresetTarget, LearnedPlan
from .pass_programs import ask, tell_exactly
from .schedule import fixed_schedule
from .starts import starting_leaves

# Rows of the sample from which points are chosen, for every point, where rows are not in memory.
ROWS_PER_POINT = 4
# Solves before every pass but the first: at least, and at most.
ROUNDS = (4, 20)
# Draws that the rows are asked about: per parameter, and per chain at most, one from each of the last solves.
DRAWS_PER_PARAMETER, MOST_PER_CHAIN = 2, ROUNDS[0]
# So many passes that did not improve the KL of as many before by this part end a fit.
LOOK_PASSES, IMPROVEMENT = 6, 0.1


class ArrivedTarget(CoresetTarget):
    """The coreset's side of a step whose chains have arrived, with draws that they made since."""

    arrived: InnerInfo
    thetas: Float[Array, "s d"]

    def solve(self, learned, psi):
        return psi, self.arrived

    def draw(self, learned, psi):
        joint = self.core(learned, self.thetas, mean_draw(self.thetas)) + self.prior(self.thetas)
        return self.thetas, joint


class ChainPlan(LearnedPlan):
    """BB PSVI with chains inside, by passes."""

    optimizer: SlopeMatching
    family: Sampled
    data: Rows
    by_passes: ClassVar[bool] = True
    last_passes: ClassVar[int] = 1

    def schedule(self, num_steps):
        most = num_steps or self.default_steps
        return fixed_schedule(most)._replace(decay_start=most, decided=bool(num_steps))

    def decide(self, schedule, losses, kl):
        """The end, once a pass has found nothing left to do, or many have found no way to."""
        enough = self.optimizer.enough(self.model.dim)
        if schedule.decided or not all(is_over(trial, enough) for trial in kl.T):
            return schedule
        return schedule._replace(end=len(kl), decay_start=len(kl), decided=True)

    def start(self, key, initial=None):
        points_key, theta_key, sample_key, chain_key = jax.random.split(key, 4)
        sample = self.data
        if not isinstance(sample, Dataset):
            sample = sample_of(self.data, sample_key, ROWS_PER_POINT * self.size)
        learned, frozen, indices = starting_leaves(
            self.parametrisation, self.model, sample, self.size, self.init, self.learn, points_key, initial
        )
        if initial is None:
            learned = softened(self.parametrisation, learned)
        coreset = self.parametrisation.build({**frozen, **learned})
        psi = start_family(self.family, self.model, coreset, theta_key)
        psi = self.inner.prepare(self.family, psi, self.model, chain_key)
        state = CoresetState(learned, frozen, psi, None, indices)
        psi, _, thetas = follow(
            self, state, jax.random.fold_in(chain_key, 1), FIRST_ROUNDS, self.draws_per_chain
        )
        course = self.optimizer.begin(learned, psi, num_draws=len(thetas))
        return CoresetState(learned, frozen, psi, course, indices)

    @property
    def draws_per_chain(self) -> int:
        """Draws of every chain that the rows are asked about: together they span all directions, twice."""
        wanted = -(-DRAWS_PER_PARAMETER * self.model.dim // self.inner.num_kept)
        return 1 if self.inner.draws_anew else min(wanted, MOST_PER_CHAIN)

    def warm_up(self, state):
        """Nothing: the chains' program is compiled when they start, the others with the first pass."""

    def step(self, state: CoresetState, index, scale, key):
        psi, info, thetas = follow(self, state, key, ROUNDS, self.draws_per_chain)
        plain = self.target(state, (*jax.random.split(key), None))
        fields = {name: getattr(plain, name) for name in CoresetTarget.__dataclass_fields__}
        target = ArrivedTarget(**fields, arrived=info, thetas=thetas)
        draft = ask(self.optimizer, target, state.learned, psi, state.optimizer)
        answer = self.answer(draft)
        moved = tell_exactly(self.optimizer, target, state.learned, psi, state.optimizer, draft, answer)
        return CoresetState(moved.learned, state.frozen, moved.psi, moved.state, state.indices), moved.info

    def answer(self, draft) -> Answer:
        """What the rows say at the chains' positions: one pass."""
        anchor, factor, thetas = draft.question
        units = linalg.solve_triangular(factor, (thetas - anchor).T, lower=True).T
        value, rises, slopes = self.data.total(
            SlopesOfRows(self.model), draft.reference, anchor, factor, units
        )
        as_draws = lambda numbers: jnp.asarray(numbers, thetas.dtype)  # noqa: E731
        return Answer(as_draws(value), as_draws(rises), as_draws(slopes))

    def nearest(self, state: CoresetState):
        return float(state.optimizer.tested_kl if state.nearest is None else state.nearest)

    def finish(self, state: CoresetState, key):
        """The leaves that did best, draws of their posterior, and a last pass that tests them."""
        course = state.optimizer
        if np.isfinite(float(course.tested_kl)):
            state = CoresetState(course.tested, state.frozen, course.tested_psi, course, state.indices)
        return test_draws(self, final_draws(self, state, key))


def is_over(kl: np.ndarray, enough: float) -> bool:
    """Whether these passes have ended well, or the last of them are no better than those before.

    >>> is_over(np.array([9.0, 0.1, 0.0001]), 1e-3), is_over(np.array([9.0, 0.1, 0.05]), 1e-3)
    (True, False)
    >>> is_over(np.array([9.0] + 13 * [0.5]), 1e-3), is_over(np.array(6 * [3.0] + 5 * [4.0] + [2.0]), 1e-3)
    (True, False)
    """
    if kl[-1] < enough:
        return True
    if len(kl) < 2 * LOOK_PASSES:
        return False
    last, before = kl[-LOOK_PASSES:], kl[-2 * LOOK_PASSES : -LOOK_PASSES]
    # One pass knows the KL only to a quarter, so that the best of several is luck, but it is a sign of life.
    middle = np.nanmedian(last) < (1.0 - IMPROVEMENT) * np.nanmedian(before)
    best = np.nanmin(last) < (1.0 - IMPROVEMENT) * np.nanmin(kl[:-LOOK_PASSES])
    return not (middle or best)
