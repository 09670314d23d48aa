"""Matching: everything that one pass over the rows says is fitted before the next pass is asked for.

Under a fixed r, making the coreset's log-likelihood look like the data's is a least-squares problem in the
leaves alone: no weights collapse, so the coreset posterior may jump by many of its deviations at once, like a
Newton step. What is matched around r's mean: slope and curvature, in units in which the data's posterior has
unit curvature, so that their squares are the variance of data - core; and the rises at the draws themselves,
for what a quadratic cannot say. The next pass, at draws of the new r, is the test of what was fitted to the
last.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._checks import positive
from .._registry import register
from ..families.base import LOG_TWO_PI, Psi
from ..families.importance import defensive, log_weights, normalise, normalised_ess
from ..inner.base import Leaves, solved
from ..models.question import BACK, LocalView, Question
from .base import Answer, Draft, Moved, Optimizer, Target, Thetas, Vector, ViewedTarget, mean_draw, step_info
from .least_squares import levenberg_marquardt
from .nearness import deviations, nearness, unit_curvature

# Nats by which a point on the way must beat the place that was reached, for it to have been too far.
TOO_FAR = 1.0
# Half the sum of squares at which a regression is good enough: the draws of one pass say no more. While the
# coreset is far off, what a pass says is soon out of date: then this part of the KL found is good enough.
GOOD_FIT, GOOD_PART, FAR = 1e-4, 1e-3, 10.0
MOST_REGRESSION_STEPS = 60
# A pass that improved the best KL by less than this part was in vain; one of those is the last where there is
# little left to gain: so many times what is wanted.
IMPROVEMENT, LITTLE = 0.2, 3.0


class Heard(NamedTuple):
    """Draws of the last pass and what the data said about them: still true, whatever the coreset is now."""

    thetas: Thetas
    reference: Float[Array, " d"]
    proposal: Vector
    rises: Vector
    counts: Float[Array, ""]  # 0 before there is any


class Journey(NamedTuple):
    """Where the passes stand.

    `given` says that the next pass is asked around `anchor`, in units of `factor`, instead of around r:
    before the coreset is any good, and after a step that went too far. `tested` are the leaves that did best
    in a pass that was their test, with `tested_psi` and the KL divergence `tested_kl` found there.
    """

    given: Array
    anchor: Float[Array, " d"]
    factor: Float[Array, "d d"]
    origin: Float[Array, " d"]
    tested: Leaves
    tested_psi: Psi
    tested_kl: Float[Array, ""]
    heard: Heard


@register
class Matching(Optimizer):
    """A few passes over the rows, each answered in full by a regression of the coreset on what it said.

    A pass that finds a KL divergence below `tolerance` nats per parameter is the last. No location moves by
    more than `max_move` of its column's deviations (and no log-weight by more than that) in one step of a
    regression.

    >>> Matching(tolerance=0.001).default_steps
    12
    """

    tolerance: float = 1e-4
    max_move: float = 2.0
    uses_inner_gradient: ClassVar[bool] = False
    needs_exact_data: ClassVar[bool] = True
    needs_slopes: ClassVar[bool] = False
    by_passes: ClassVar[bool] = True
    needs_view: ClassVar[bool] = True
    default_steps: ClassVar[int] = 12

    def __check_init__(self):
        positive(self, "tolerance", "max_move")

    def enough(self, dim: int) -> float:
        """KL divergence in nats at which a fit of so many parameters is done."""
        return self.tolerance * dim

    def init(self, learned, family, psi):
        mean, factor = family.moments(psi)[0], family.factor(psi)
        return self.begin_at(learned, psi, mean, factor, given=False)

    def begin_at(self, learned, psi, anchor, factor, given: bool = True, num_samples: int = 1) -> Journey:
        """The state before the first pass, which is asked around `anchor` if `given`."""
        number = jnp.zeros((), anchor.dtype)
        nothing = jnp.zeros(num_samples, anchor.dtype)
        heard = Heard(jnp.tile(anchor, (num_samples, 1)), anchor, nothing, nothing, number)
        return Journey(jnp.asarray(given), anchor, factor, anchor, learned, psi, number + jnp.inf, heard)

    def blank(self, state: Journey, psi: Psi, records: dict[str, type]) -> tuple[Draft, Answer]:
        """A draft and an answer in the shapes of real ones, which move nothing: to compile `tell` with."""
        draws, dim = state.heard.thetas.shape
        number = jnp.full_like(state.anchor, jnp.nan)
        numbers = jnp.full((draws + len(BACK), dim), jnp.nan, number.dtype)
        question = Question(number, state.factor, numbers)
        view = LocalView(number[0], number[0], number, state.factor * jnp.nan, numbers[:, 0])
        # Of the very types that `ask` returns, or the program would be compiled again for the first pass.
        inner = solved(number, records)
        draft = Draft(state.heard.thetas, number, state.heard.proposal, psi, inner, question=question)
        return draft, Answer(view.value, view.rises, view=view)

    def ask(self, target, learned, psi, state: Journey):
        target = by_passes(target)

        def around_anchor():
            units = target.normal_noise()
            proposal = -0.5 * jnp.sum(units**2 + LOG_TWO_PI, axis=1)
            proposal = proposal - jnp.linalg.slogdet(state.factor)[1]
            there = {**psi, **target.family.around(state.anchor, state.factor)}
            return state.anchor + units @ state.factor.T, proposal, state.factor, there, empty

        def around_r():
            solution, inner = target.solve(learned, psi)
            thetas, proposal = target.draw(learned, solution)
            inner = jax.tree.map(lambda leaf, kind: jnp.asarray(leaf, kind.dtype), inner, empty)
            return thetas, proposal, target.family.factor(solution), solution, inner

        empty = solved(state.anchor, target.records)
        thetas, proposal, factor, psi, inner = jax.lax.cond(state.given, around_anchor, around_r)
        reference = jnp.where(state.given, state.anchor, mean_draw(thetas))
        on_the_way = reference + jnp.outer(jnp.asarray(BACK, reference.dtype), state.origin - reference)
        question = Question(reference, factor, jnp.concatenate([thetas, on_the_way]))
        return Draft(thetas, reference, proposal, psi, inner, question=question)

    def tell(self, target, learned, psi, state: Journey, scale, draft, answer):
        target, (question, view) = by_passes(target), heard_answer(draft, answer)
        draws = draft.thetas.shape[0]
        prior = target.prior_view(question)
        core = target.core_view(learned, question)
        too_far, part = self._look_back(view, prior, draws)
        weights = self._weights(state, core.rises, prior.rises, draft, draws)
        kl = nearness(view, core, prior, question, weights, draws)
        test = ~state.given & draft.inner.accepted & jnp.isfinite(kl)
        enough = self.enough(question.anchor.shape[0])
        vain = (state.tested_kl < LITTLE * enough) & ~(kl < (1.0 - IMPROVEMENT) * state.tested_kl)
        settled = test & ~too_far & ((kl < enough) | vain)
        still = settled | too_far | ~finite(view)
        good = jnp.where(still, jnp.inf, GOOD_FIT + GOOD_PART * jnp.minimum(kl, FAR))
        flat = self._match(target, learned, core, state.heard, question, view, prior, weights, good)
        best = test & (kl < state.tested_kl)
        choose = lambda yes: lambda new, old: jnp.where(yes, new, old)  # noqa: E731
        heard = Heard(draft.thetas, draft.reference, draft.proposal, view.rises[:draws], jnp.ones_like(kl))
        new_state = Journey(
            given=too_far,
            anchor=question.anchor + part * (state.origin - question.anchor),
            factor=question.factor,
            origin=jnp.where(too_far, state.origin, question.anchor),
            tested=jax.tree.map(choose(best), learned, state.tested),
            tested_psi=jax.tree.map(choose(best), draft.psi, state.tested_psi),
            tested_kl=jnp.where(best, kl, state.tested_kl),
            heard=jax.tree.map(choose(test), heard, state.heard),
        )
        log_prior = prior.value + prior.rises[:draws]
        vectors = (view.rises[:draws], core.rises[:draws], log_prior, draft.proposal)
        info = step_info(target.objective.loss(*vectors) - view.value, *vectors, inner=draft.inner)
        # While r is not the coreset's own, what the draws say is no estimate of how posteriors differ.
        info = info._replace(kl=jnp.where(test, kl, jnp.maximum(kl, info.kl)))
        moved = ravel_pytree(learned)[1](flat)
        return Moved(moved, draft.psi, new_state, info)

    def _look_back(self, view: LocalView, prior: LocalView, draws: int):
        """Whether a point on the way here was better than this one, and which part of the way back it is."""
        heights = (view.rises + prior.rises)[draws:]
        heights = jnp.where(jnp.isfinite(heights), heights, -jnp.inf)
        broken = ~finite(view)
        part = jnp.asarray(BACK, heights.dtype)[jnp.argmax(heights)]
        return broken | (jnp.max(heights) > TOO_FAR), jnp.where(broken, BACK[0], part)

    def _weights(self, state, core, prior, draft, draws):
        """How much every draw counts: by its importance weight, once r is the coreset's own."""
        log_w = log_weights(core[:draws], prior[:draws], draft.proposal)
        return jnp.where(state.given, 1.0 / draws, defensive(normalise(log_w)))

    def _match(self, target, learned, core, heard, question, view, prior, weights, good):
        """Leaves whose log-likelihood looks like the data's did in this pass, and in the last."""
        flat, unravel = ravel_pytree(learned)
        flat = flat.astype(view.slope.dtype)  # an empty one has no type of its own
        draws = weights.shape[0]
        unit = unit_curvature(view.curvature + prior.curvature)
        upper = np.triu_indices(unit.shape[0])
        # The variance of units' B units / 2 is half the sum of squares of B: off the diagonal, of pairs.
        share = jnp.where(jnp.asarray(upper[0] == upper[1]), jnp.sqrt(0.5), 1.0)
        core_before = target.core(learned, heard.thetas, heard.reference)
        earlier = normalise(log_weights(core_before, target.prior(heard.thetas), heard.proposal))
        earlier = earlier * normalised_ess(earlier) * heard.counts

        def slope_of(flat):
            return unit.T @ (view.slope - target.core_slope(unravel(flat), question))

        def residual(core: LocalView, core_before: Vector):
            slope = unit.T @ (view.slope - core.slope)
            curvature = unit.T @ (view.curvature - core.curvature) @ unit
            # No posterior depends on the value itself, but points with the likelihood of rows stay plausible,
            # and their log-evidence is the data's.
            level = (view.value - core.value) / view.weight
            parts = [slope, curvature[upper] * share, level[None]]
            parts.append(deviations(view.rises[:draws] - core.rises[:draws], weights))
            parts.append(deviations(heard.rises - core_before, earlier))
            return jnp.concatenate(parts)

        def residual_of(flat):
            leaves = unravel(flat)
            before = target.core(leaves, heard.thetas, heard.reference)
            return residual(target.core_view(leaves, question), before)

        def project(flat):
            return ravel_pytree(target.project(unravel(flat)))[0]

        found = levenberg_marquardt(
            residual_of,
            slope_of,
            project,
            flat,
            residual(core, core_before),
            jax.random.key(0),
            target=2.0 * good,
            max_steps=MOST_REGRESSION_STEPS,
            max_move=self.max_move,
        )
        return found.flat


def by_passes(target: Target) -> ViewedTarget:
    """The target, if its plan goes by passes."""
    if not isinstance(target, ViewedTarget):
        raise TypeError("Matching needs a plan by passes")
    return target


def heard_answer(draft: Draft, answer: Answer) -> tuple[Question, LocalView]:
    """What was asked, and what the rows said."""
    if draft.question is None or answer.view is None:
        raise TypeError("Matching needs the answer to its question: rows that are asked by passes")
    return draft.question, answer.view


def finite(view: LocalView) -> Array:
    """Whether the model has a value, a slope and a curvature where the rows were asked."""
    return (
        jnp.all(jnp.isfinite(view.slope)) & jnp.all(jnp.isfinite(view.curvature)) & jnp.isfinite(view.value)
    )
