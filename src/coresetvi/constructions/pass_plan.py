"""The plan of a fit whose every step is one pass over the rows, wherever they are.

The two halves of a step are compiled; between them the rows are asked, from the host. Before the first pass a
random sample of the rows says where the posterior is, roughly, and which rows make good starting points.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiler import quick_jit
from .._keys import host_generator
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..data.samples import first_rows, sample_of
from ..families.base import draw_noise
from ..families.initial import start_family
from ..inner.base import Leaves
from ..models.base import Model
from ..models.local_view import (
    Mode,
    ViewOfRows,
    ask_on_the_way,
    find_mode,
    slope_of_rows,
    view_of,
    view_of_prior,
)
from ..models.question import LocalView
from ..outer.base import Answer, ViewedTarget
from ..outer.matching import IMPROVEMENT, LITTLE, Matching
from ..outer.nearness import gaussian_kl
from .group_start import factors_of, mended, with_groups
from .informative_start import informative_rows
from .learned_plan import CoresetState, CoresetTarget, LearnedPlan
from .parametrisation import Parametrisation, raw_leaves
from .pass_programs import ask, solve, tell_exactly
from .schedule import Schedule, fixed_schedule
from .starts import check_size, group_weights, starting_leaves

# Rows of the first sample for every point of the coreset, at least.
ROWS_PER_POINT = 4
# Clusters are looked for among so many rows. Their centres weigh about alike, which makes regressions easy;
# informative rows must be so many times nearer to be preferred.
MOST_CLUSTERED, NEARER = 5_000, 2.0
# So many passes in vain end a fit.
VAIN_PASSES = 3


class PassTarget(CoresetTarget, ViewedTarget):
    """The coreset's side of a pass."""

    def normal_noise(self):
        return draw_noise(self.noise_key, self.num_samples, self.model.dim)

    @property
    def records(self):
        return self.inner.records

    def core_view(self, learned, question):
        return ViewOfRows(self.model)(self.coreset(learned), question)

    def core_slope(self, learned, question):
        return slope_of_rows(self.model, self.coreset(learned), question)

    def prior_view(self, question):
        return view_of_prior(self.model, question)


class PassPlan(LearnedPlan):
    """BB PSVI in a few passes."""

    optimizer: Matching
    data: Rows
    by_passes: ClassVar[bool] = True

    def schedule(self, num_steps):
        most = num_steps or self.default_steps
        return fixed_schedule(most)._replace(decay_start=most, decided=bool(num_steps))

    def decide(self, schedule: Schedule, losses: np.ndarray, kl: np.ndarray) -> Schedule:
        """The end, once a pass has found nothing left to do, or the last few have found no way to."""
        enough = self.optimizer.enough(self.model.dim)
        if schedule.decided or not all(is_over(trial, enough) for trial in kl.T):
            return schedule
        return schedule._replace(end=len(kl), decay_start=len(kl), decided=True)

    def start(self, key, initial=None):
        points_key, theta_key, sample_key = jax.random.split(key, 3)
        sample = sample_of(self.data, sample_key, ROWS_PER_POINT * self.size)
        sample = with_groups(sample, self.data, self.parametrisation.still)
        mode = self.sample_mode(sample, theta_key)
        learned, frozen, indices = self.starting_leaves(sample, mode, points_key, initial)
        dtype = sample.x.dtype
        anchor, factor = jnp.asarray(mode.theta, dtype), jnp.asarray(mode.factor, dtype)
        psi = self.family.around(anchor, factor)
        psi = self.inner.prepare(self.family, psi, self.model, theta_key)
        trail = self.optimizer.begin_at(learned, psi, anchor, factor, num_samples=self.num_samples)
        return CoresetState(learned, frozen, psi, trail, indices, surrogate=None)

    def sample_mode(self, sample: Dataset, key) -> Mode:
        """Where the posterior given a sample has its mode."""
        psi = start_family(self.family, self.model, sample, key)
        mean, covariance = self.family.moments(psi)
        scale = np.sqrt(np.diagonal(np.asarray(covariance)))
        mode = find_mode(self.model, sample, np.asarray(mean), np.diag(scale))
        if np.all(np.isfinite(mode.theta)) and np.all(np.isfinite(mode.factor)):
            return mode
        return Mode(np.asarray(mean), np.diag(scale), mode.passes, found=False)

    def starting_leaves(self, sample: Dataset, mode: Mode, key, initial):
        """Leaves that move, leaves that stay, and the rows they came from."""
        given = (self.parametrisation, self.model, sample, self.size)
        if initial is None and not mode.found and self.init in ("best", "informative"):
            return starting_leaves(*given, "subset", self.learn, key, initial)
        if initial is not None or self.init not in ("best", "informative"):
            return starting_leaves(*given, self.init, self.learn, key, initial)
        check_size(self.size, sample)
        informative = self.informative_leaves(sample, mode, key)
        if self.init == "informative":
            return informative
        few = first_rows(sample, max(MOST_CLUSTERED, ROWS_PER_POINT * self.size))
        few = with_groups(few, sample, self.parametrisation.still)
        spread = starting_leaves(*given[:2], few, self.size, "spread", self.learn, key, None)
        question = ask_on_the_way(mode.theta, mode.factor, None)
        view = view_of(self.model, sample, question)
        near, other = (
            float(distance_of(self.parametrisation, {**learned, **frozen}, self.model, question, view))
            for learned, frozen, _ in (informative, spread)
        )
        return informative if NEARER * near < other or np.isnan(other) else spread

    def informative_leaves(self, sample: Dataset, mode: Mode, key):
        """Rows that say most about the posterior."""
        generator, units = host_generator(key), self.parametrisation
        rows, weights = informative_rows(self.model, sample, self.size, mode.theta, mode.factor, generator)
        factors = factors_of(sample, units.still, units.num_classes, self.size)
        if factors:
            rows = mended(rows, factors, np.asarray(sample.weights, np.float64), generator)
        chosen = sample.take(rows)
        if factors:
            weights = group_weights(sample, chosen, weights, units, self.size)
        leaves = raw_leaves(
            units, units.raw_locations(chosen.x), chosen.y, jnp.asarray(weights, chosen.x.dtype), 0.0
        )
        learned = {name: leaf for name, leaf in leaves.items() if name in self.learn}
        frozen = {name: leaf for name, leaf in leaves.items() if name not in self.learn}
        return learned, frozen, chosen.indices

    def target(self, state: CoresetState, keys) -> PassTarget:
        plain = super().target(state, keys)
        return PassTarget(**{field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)})

    def warm_up(self, state: CoresetState) -> None:
        """Compile both halves of a step, at the same time, with an answer that moves nothing."""
        target = self.target(state, (*jax.random.split(jax.random.key(0)), None))
        before = (self.optimizer, target, state.learned, state.psi, state.optimizer)
        draft, answer = self.optimizer.blank(state.optimizer, state.psi, self.records)
        with ThreadPoolExecutor(2) as pool:
            told = pool.submit(tell_exactly, *before, draft, answer)
            ask(*before)
            told.result()

    def step(self, state: CoresetState, index, scale, key):
        inner_key, noise_key = jax.random.split(key)
        target = self.target(state, (inner_key, noise_key, None))
        draft = ask(self.optimizer, target, state.learned, state.psi, state.optimizer)
        view = view_of(self.model, self.data, draft.question)
        answer = Answer(view.value, view.rises, view=view)
        moved = tell_exactly(self.optimizer, target, state.learned, state.psi, state.optimizer, draft, answer)
        return CoresetState(
            moved.learned, state.frozen, moved.psi, moved.state, state.indices, surrogate=None
        ), moved.info

    def nearest(self, state: CoresetState):
        return float(state.optimizer.tested_kl)

    def extract(self, state: CoresetState):
        trail = state.optimizer
        if np.isfinite(float(trail.tested_kl)):
            # What was tested is what is given.
            state = eqx.tree_at(lambda s: (s.learned, s.psi), state, (trail.tested, trail.tested_psi))
        else:
            keys = jax.random.split(jax.random.key(0), 2)
            psi, info = solve(self.target(state, (*keys, None)), state.learned, state.psi)
            if bool(info.accepted):
                state = eqx.tree_at(lambda s: s.psi, state, psi)
        return super().extract(state)


def is_over(kl: np.ndarray, enough: float) -> bool:
    """Whether these passes have ended well, or the last few of them in vain.

    >>> is_over(np.array([9.0, 0.1, 0.0001]), 1e-3), is_over(np.array([9.0, 0.1, 0.05]), 1e-3)
    (True, False)
    >>> is_over(np.array([9.0, 0.1, 0.2, 0.3, 0.2]), 1e-3)
    True
    """
    if kl[-1] < enough:
        return True
    vain = 1 if np.nanmin(kl) < LITTLE * enough else VAIN_PASSES
    if len(kl) <= vain + 1:
        return False
    best, before = np.nanmin(kl[-vain:]), np.nanmin(kl[:-vain])
    return not best < (1.0 - IMPROVEMENT) * before


@quick_jit
def distance_of(parametrisation: Parametrisation, leaves: Leaves, model: Model, question, view: LocalView):
    """KL divergence in nats of these points' posterior from that of rows with this view, taken for normal."""
    prior = view_of_prior(model, question)
    core = ViewOfRows(model)(parametrisation.build(leaves), question)
    parts = [(one.slope + prior.slope, -one.curvature - prior.curvature) for one in (core, view)]
    return gaussian_kl(*parts[0], *parts[1])
