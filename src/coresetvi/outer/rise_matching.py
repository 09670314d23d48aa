"""Rise matching: small steps on what the rows said at the draws of the last few.

Where draws of the coreset posterior itself follow it, the natural gradient of the KL divergence is a plain
regression: of data - core on the scores d core / d phi. A few dozen draws per step are hardly more than there
are leaves, and a step that fits them in full fits noise. But draws of the steps before still count, as far as
they are likely under the coreset of now, and what the data said at them is known: together they are several
hundred, and the steps can be whole ones.

Small steps, each with fresh draws, end in better coresets than a few large ones (`SlopeMatching`) where the
posterior is far from normal; they look at all rows hundreds of times.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._checks import positive
from .._registry import register
from ..inner.base import Leaves
from .base import Draft, Moved, Optimizer, Target, mean_draw, step_info
from .least_squares import at_edge
from .nearness import deviations
from .told import Told, nothing_told, remember, weights_now
from .valley import Flat

# Damping of numbers that hardly change anything, in parts of the mean of the metric's diagonal.
LEAST_PART = 1e-4
# Parts of a step that are tried; none is the last resort.
STEP_LENGTHS = (1.0, 0.5, 0.2, 0.05, 0.0)


@register
class RiseMatching(Optimizer):
    """Natural-gradient steps on the draws of the last `memory` steps, weighted to the coreset of now.

    It needs draws of the coreset posterior itself, as `inner.Chains` make them. `damping` is in parts of what
    a number does to the rises; no location moves by more than `max_move` of its column's deviations, and no
    log-weight by more than that, in one step.

    >>> RiseMatching(memory=16).default_steps
    600
    """

    memory: int = 8
    damping: float = 0.01
    max_move: float = 0.1
    uses_inner_gradient: ClassVar[bool] = False
    needs_exact_data: ClassVar[bool] = True
    needs_slopes: ClassVar[bool] = False
    needs_draws: ClassVar[bool] = True
    default_steps: ClassVar[int] = 600

    def __check_init__(self):
        positive(self, "memory", "damping", "max_move")

    def init(self, learned, family, psi):
        return nothing_told(psi["thetas"], self.memory)

    def ask(self, target, learned, psi, state: Told):
        psi, inner = target.solve(learned, psi)
        thetas, proposal = target.draw(learned, psi)
        return Draft(thetas, mean_draw(thetas), proposal, psi, inner)

    def tell(self, target, learned, psi, state: Told, scale, draft, answer):
        core = target.core(learned, draft.thetas, draft.reference)
        told = remember(state, draft, answer, core)
        weights = weights_now(target, learned, told)
        flat, unravel = ravel_pytree(learned)

        def residual_of(flat):
            return residuals(target, unravel(flat), told, weights)

        def project(flat):
            return ravel_pytree(target.project(unravel(flat)))[0]

        before = residual_of(flat)
        slopes = slopes_of_residuals(target, flat, unravel, told, weights)
        move = self._direction(slopes, project, flat, before)

        def moved_by(length):
            return project(flat + length * move)

        lengths = scale * jnp.asarray(STEP_LENGTHS, flat.dtype)
        # Where the model has no value, or the fit would get worse, the step is shorter.
        sums = jax.lax.map(lambda length: jnp.sum(residual_of(moved_by(length)) ** 2), lengths)
        best = jnp.nanargmin(jnp.where(jnp.isfinite(sums), sums, jnp.nan).at[-1].set(jnp.sum(before**2)))
        found = jnp.where(draft.inner.accepted, moved_by(lengths[best]), flat)
        vectors = (answer.rises, core, target.prior(draft.thetas), draft.proposal)
        info = step_info(target.objective.loss(*vectors) - answer.value, *vectors, inner=draft.inner)
        return Moved(unravel(found), draft.psi, told, info)

    def _direction(self, slopes, project, flat, before):
        """The damped Gauss-Newton step, at most `max_move` long in every number."""
        downhill = -before @ slopes
        slopes = jnp.where(at_edge(project, flat, downhill) | ~jnp.isfinite(downhill), 0.0, slopes)
        metric = slopes.T @ slopes
        size = jnp.diagonal(metric)
        ridge = self.damping * size + LEAST_PART * jnp.mean(size) + jnp.finfo(size.dtype).tiny
        factor = linalg.cho_factor(metric + jnp.diag(ridge))
        move = linalg.cho_solve(factor, -before @ slopes)
        return move * jnp.minimum(1.0, self.max_move / (jnp.max(jnp.abs(move), initial=0.0) + 1e-30))


def residuals(target: Target, leaves: Leaves, told: Told, weights: Float[Array, "k s"]) -> Float[Array, " i"]:
    """Deviations of data - core over the draws of every step; half their sum of squares is its KL."""

    def of_step(told: Told, weights):
        core = target.core(leaves, told.thetas, told.reference)
        return deviations(jnp.where(weights > 0, told.rises - core, 0.0), weights)

    return jax.vmap(of_step)(told, weights).ravel()


def slopes_of_residuals(
    target: Target, flat: Flat, unravel, told: Told, weights: Float[Array, "k s"]
) -> Float[Array, "i p"]:
    """Their slopes in every number of the leaves: but for the mean, every residual has a draw of its own."""

    def score(theta, reference):
        return jax.grad(lambda flat: target.core(unravel(flat), theta[None], reference)[0])(flat)

    def of_step(told: Told, weights):
        scores = jax.vmap(score, (0, None))(told.thetas, told.reference)
        scores = jnp.where(weights[:, None] > 0, scores, 0.0)
        return -jax.vmap(deviations, (1, None), out_axes=1)(scores, weights)

    slopes = jax.vmap(of_step)(told, weights)
    return slopes.reshape(-1, flat.size)
