"""Slope matching: the coreset's log-likelihood is fitted to the data's at draws of the coreset posterior.

Where no normal covers the coreset posterior there is no one place around which to compare it with the data's.
But draws of it are cheap, for the coreset is small, and at each of them the data say two things: how their
log-likelihood rises, and its slope in every parameter. The variance of data - core over the draws is what the
KL divergence is made of; the slopes are d numbers per draw instead of one, so a few dozen draws pin down even
hundreds of parameters. Both are fitted by one least-squares problem in the leaves, to which what earlier
passes have said still belongs as far as their draws count for the coreset posterior of now.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._checks import positive
from .._registry import register
from ..families.base import Psi
from ..inner.base import Leaves
from ..models.question import Question
from .base import Answer, Draft, Moved, Optimizer, Target, Thetas, Vector, mean_draw, step_info
from .least_squares import levenberg_marquardt
from .nearness import deviations
from .told import Told, nothing_told, remember, weights_now

# Draws of passes whose answers are kept, about, and the fewest passes, the present one included.
KEPT_DRAWS, FEWEST_KEPT = 384, 2
# Damping below which no step of a regression goes, in units of what a leaf does to the residuals: at first,
# the least and the most; and how it changes after a pass that found things better, and after one that found
# them worse. The residuals are a sample: fitted in full, they mean nothing for the next one.
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 0.03, 1e-6, 10.0
EASIER, HARDER, BETTER = 0.4, 3.0, 0.6
# A KL so many times the best so far, and this many nats above it, is worse: it is only known to a quarter.
WORSE, SLACK = 1.5, 0.3
# How far leaves may move, in parts of `max_move`: the least, and how it changes after a pass that found
# things worse, and after another. Fitted draws say little about a posterior that has moved away from them.
LEAST_REACH, SHORTER, LONGER = 1e-3, 0.3, 1.2
MOST_REGRESSION_STEPS = 4
# Leaves per rise from which on slopes count in full.
LEAVES_PER_RISE = 4
# Part of the sum of squares at which a regression is good enough.
GOOD_PART = 1e-4


class Course(NamedTuple):
    """Where the passes stand. `tested` are the leaves that did best in the pass that was their test."""

    tested: Leaves
    tested_psi: Psi
    tested_kl: Float[Array, ""]
    last_kl: Float[Array, ""]
    damping: Float[Array, ""]
    reach: Float[Array, ""]
    told: Told


@register
class SlopeMatching(Optimizer):
    """Passes over the rows, each answered by a regression of the coreset's rises and slopes on the data's.

    It needs draws of the coreset posterior itself, as `inner.Chains` and `inner.SMC` make them. A pass that
    finds a KL divergence below `tolerance` nats per parameter is the last. No location moves by more than
    `max_move` of its column's deviations (and no log-weight by more than that) in one step of a regression.

    >>> SlopeMatching(max_move=0.2).default_steps
    60
    """

    tolerance: float = 1e-4
    max_move: float = 0.5
    uses_inner_gradient: ClassVar[bool] = False
    needs_exact_data: ClassVar[bool] = True
    needs_slopes: ClassVar[bool] = True
    needs_draws: ClassVar[bool] = True
    by_passes: ClassVar[bool] = True
    default_steps: ClassVar[int] = 60

    def __check_init__(self):
        positive(self, "tolerance", "max_move")

    def enough(self, dim: int) -> float:
        """KL divergence in nats at which a fit of so many parameters is done."""
        return self.tolerance * dim

    def init(self, learned, family, psi):
        return self.begin(learned, psi, psi["thetas"].shape[0])

    def begin(self, learned: Leaves, psi: Psi, num_draws: int) -> Course:
        """The state before a first pass that will ask about so many draws."""
        thetas = psi["thetas"]
        number = jnp.zeros((), thetas.dtype)
        passes = max(FEWEST_KEPT, KEPT_DRAWS // num_draws)
        told = nothing_told(jnp.zeros((num_draws, thetas.shape[1]), thetas.dtype), passes, slopes=True)
        far = number + jnp.inf
        return Course(learned, psi, far, far, number + FIRST_DAMPING, number + 1.0, told)

    def ask(self, target, learned, psi, state: Course):
        psi, inner = target.solve(learned, psi)
        thetas, proposal = target.draw(learned, psi)
        reference = mean_draw(thetas)
        question = Question(reference, target.family.factor(psi), thetas)
        return Draft(thetas, reference, proposal, psi, inner, question=question)

    def tell(self, target, learned, psi, state: Course, scale, draft, answer):
        factor = factor_of(draft)
        core = target.core(learned, draft.thetas, draft.reference)
        told = remember(state.told, draft, answer, core, plain_slopes(answer, factor))
        here = weights_now(target, learned, jax.tree.map(lambda leaf: leaf[:1], told))[0]
        kl = 0.5 * jnp.sum(deviations(jnp.where(here > 0, told.rises[0] - core, 0.0), here) ** 2)
        enough = kl < self.enough(factor.shape[0])
        worse = ~(kl < WORSE * state.tested_kl + SLACK)
        pace = jnp.where(kl > state.last_kl, HARDER, jnp.where(kl < BETTER * state.last_kl, EASIER, 1.0))
        damping = jnp.clip(pace * state.damping, LEAST_DAMPING, MOST_DAMPING)
        reach = jnp.clip(jnp.where(worse, SHORTER, LONGER) * state.reach, LEAST_REACH, 1.0)
        # A regression that went too far is done again from where it began, with more damping.
        base = jax.tree.map(lambda old, new: jnp.where(worse, old, new), state.tested, learned)
        flat, unravel = ravel_pytree(base)
        flat = flat.astype(factor.dtype)  # an empty one has no type of its own
        weights = weights_now(target, base, told)

        def parts_of(flat):
            return residuals(target, unravel(flat), told, weights, factor)

        rises, slopes = parts_of(flat)
        # Slopes pull together with the rises, not against them: both sums of squares count alike at first.
        # But more leaves than rises could fit these alone, and mean nothing by it: then slopes count in full.
        balance = jnp.sum(rises**2) / (jnp.sum(slopes**2) + 1e-30)
        share = jnp.sqrt(jnp.clip(balance, min(1.0, flat.size / (LEAVES_PER_RISE * rises.size)), 1.0))

        def residual_of(flat):
            rises, slopes = parts_of(flat)
            return jnp.concatenate([rises, share * slopes])

        def project(flat):
            return ravel_pytree(target.project(unravel(flat)))[0]

        before = jnp.concatenate([rises, share * slopes])
        found = levenberg_marquardt(
            residual_of,
            lambda flat: flat[:0],  # no residual is stiffer than the others
            project,
            flat,
            before,
            jax.random.key(0),
            target=jnp.where(enough, jnp.inf, GOOD_PART * jnp.sum(before**2)),
            max_steps=MOST_REGRESSION_STEPS,
            max_move=reach * self.max_move,
            least_damping=damping,
        )
        best = draft.inner.accepted & (kl < state.tested_kl)
        choose = lambda new, old: jnp.where(best, new, old)  # noqa: E731
        course = Course(
            tested=jax.tree.map(choose, learned, state.tested),
            tested_psi=jax.tree.map(choose, draft.psi, state.tested_psi),
            tested_kl=jnp.where(best, kl, state.tested_kl),
            last_kl=jnp.where(jnp.isfinite(kl), kl, state.last_kl),
            damping=damping,
            reach=reach,
            told=told,
        )
        vectors = (answer.rises, core, target.prior(draft.thetas), draft.proposal)
        info = step_info(target.objective.loss(*vectors) - answer.value, *vectors, inner=draft.inner)
        return Moved(unravel(found.flat), draft.psi, course, info._replace(kl=kl))


def factor_of(draft: Draft) -> Float[Array, "d d"]:
    """The units of a draft's question."""
    if draft.question is None:
        raise TypeError("SlopeMatching needs a draft of its own")
    return draft.question.factor


def plain_slopes(answer: Answer, factor: Float[Array, "d d"]) -> Thetas:
    """The data's slopes per unit of every parameter; the answer's are per unit of the question's factor."""
    if answer.slopes is None:
        raise TypeError("SlopeMatching needs the slopes of the data at its draws")
    return linalg.solve_triangular(factor, answer.slopes.T, lower=True, trans="T").T


def residuals(
    target: Target, leaves: Leaves, told: Told, weights: Float[Array, "k s"], factor: Float[Array, "d d"]
) -> tuple[Float[Array, " i"], Float[Array, " j"]]:
    """Deviations of data - core over the draws, and its slopes per unit of `factor`, weighted."""

    def of_pass(told: Told, weights: Vector):
        core, pull = jax.vjp(lambda thetas: target.core(leaves, thetas, told.reference), told.thetas)
        slopes = (told.slopes - pull(jnp.ones_like(core))[0]) @ factor
        counts = weights > 0
        rises = deviations(jnp.where(counts, told.rises - core, 0.0), weights)
        return rises, jnp.where(counts[:, None], jnp.sqrt(weights)[:, None] * slopes, 0.0)

    rises, slopes = jax.vmap(of_pass)(told, weights)
    return rises.ravel(), slopes.ravel()
