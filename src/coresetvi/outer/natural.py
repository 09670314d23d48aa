"""Natural-gradient steps in the coreset's own exponential family."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._checks import positive
from .._registry import register
from ..families.base import Psi
from ..families.importance import defensive, log_weights, normalise
from ..inner.base import Leaves
from .base import Draft, Moved, Optimizer, mean_draw, step_info

# Parts of a step that the line search tries; none is the last resort.
STEP_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0)


class Footing(NamedTuple):
    """Where the natural gradient last stood safely, the loss there, and the part of a step it dares.

    `returned` says that the last step went back to it.
    """

    learned: Leaves
    psi: Psi
    loss: Float[Array, ""]
    reach: Float[Array, ""]
    returned: Array


@register
class NaturalGradient(Optimizer):
    """Natural-gradient steps in the coreset's own exponential family, with a line search on the same draws.

    With scores J_s = d core_s / d phi, centred, and m_s the mean of the importance weight and 1/S,

        (sum_s m_s J_s J_s^T + lambda I) step = - d loss / d phi,    lambda = damping trace(K) / S

    with K the Gram matrix of the weighted scores: the damped Gauss-Newton step for the regression of
    data_s - core_s on the scores, solved in the space of draws (S x S). At a coreset whose posterior equals
    the data's the residuals vanish, and the Monte-Carlo noise with them, so the steps converge without decay
    where the coreset is large enough.

    >>> NaturalGradient(max_move=0.2).default_steps
    600
    """

    damping: float = 1e-3
    max_move: float = 0.5
    uses_inner_gradient: ClassVar[bool] = False
    needs_exact_data: ClassVar[bool] = True
    needs_slopes: ClassVar[bool] = False
    default_steps: ClassVar[int] = 600

    def __check_init__(self):
        positive(self, "damping", "max_move")

    def init(self, learned, family, psi):
        number = jnp.zeros((), dtype=jax.tree.leaves(psi)[0].dtype)
        return Footing(learned, psi, loss=number + jnp.inf, reach=number + 1.0, returned=jnp.asarray(False))

    def ask(self, target, learned, psi, state):
        psi, inner = target.solve(learned, psi)
        thetas, proposal = target.draw(learned, psi)
        return Draft(thetas, mean_draw(thetas), proposal, psi, inner)

    def tell(self, target, learned, psi, state, scale, draft, answer):
        thetas, proposal, inner = draft.thetas, draft.proposal, draft.inner
        data, prior = answer.rises, target.prior(thetas)
        flat, unravel = ravel_pytree(learned)

        def core_at(leaves):
            return target.core(unravel(leaves), thetas, draft.reference)

        def loss_at(core):
            return target.objective.loss(data, core, prior, proposal)

        core = core_at(flat)
        loss, slope = jax.value_and_grad(loss_at)(core)
        scores = self._scores(target, flat, unravel, draft)
        scores = jnp.where(self._blocked(target, flat, unravel, slope @ scores), 0.0, scores)
        move = self._direction(scores, core, prior, proposal, slope)
        info = step_info(loss - answer.value, data, core, prior, proposal, inner)
        slipped, footing = self._look_back(state, learned, draft.psi, info, thetas.shape[0])
        lengths = scale * footing.reach * jnp.asarray(STEP_LENGTHS, dtype=flat.dtype)

        def projected(length):
            return ravel_pytree(target.project(unravel(flat + length * move)))[0]

        losses = jax.lax.map(lambda length: loss_at(core_at(projected(length))), lengths)
        best = jnp.nanargmin(losses)
        usable = inner.accepted & jnp.isfinite(losses[best])
        moved = unravel(jnp.where(usable, projected(lengths[best]), flat))
        choose = lambda back, on: jnp.where(slipped, back, on)  # noqa: E731
        return Moved(
            learned=jax.tree.map(choose, footing.learned, moved),
            psi=jax.tree.map(choose, footing.psi, draft.psi),
            state=footing,
            info=info,
        )

    def _look_back(self, last, learned, psi, info, num_samples):
        """Did the last step make things worse on fresh draws? Then go back, and reach less far from there.

        Worse means by more than a nat and three standard errors of the bound, whose spread over draws is
        about sqrt(2 kl). A step that has just gone back is at the footing itself, whose loss was only an
        estimate: the new one takes its place.
        """
        error = jnp.sqrt(2.0 * info.kl / (num_samples * info.ess))
        worse = info.loss > last.loss + 1.0 + 3.0 * error
        slipped = worse & info.accepted & ~last.returned
        # Slowly onwards: doubled after every good step, the reach would be too large again at every third.
        reach = jnp.minimum(1.0, jnp.where(last.returned, 2.0, 1.2) * last.reach)
        here = Footing(learned, psi, info.loss, reach, jnp.zeros_like(worse))
        back = last._replace(reach=0.25 * last.reach, returned=jnp.ones_like(worse))
        footing = jax.tree.map(lambda old, new: jnp.where(slipped, old, new), back, here)
        # Where the inner problem was not solved, the loss says nothing.
        keep = lambda old, new: jnp.where(info.accepted, new, old)  # noqa: E731
        return slipped, jax.tree.map(keep, last, footing)

    def _scores(self, target, flat, unravel, draft):
        def score(theta):
            return jax.grad(lambda leaves: target.core(unravel(leaves), theta[None], draft.reference)[0])(
                flat
            )

        return jax.vmap(score)(draft.thetas)

    def _blocked(self, target, flat, unravel, gradient):
        """Numbers on the edge of what is allowed whose gradient pushes outwards: they stay, the rest moves.

        A step that is solved for all numbers and then cut off at the edge need not go downhill.
        """
        nudged = unravel(flat - 1e-3 * jnp.sign(gradient))
        at_edge = (ravel_pytree(target.project(nudged))[0] == flat) & (gradient != 0.0)
        # What has no gradient here, though it has a value, stays as well: it would take all others with it.
        return at_edge | ~jnp.isfinite(gradient)

    def _direction(self, scores, core, prior, proposal, slope):
        # No draw is ignored by the metric, so its contribution to the slope stays bounded.
        mixed = defensive(normalise(log_weights(core, prior, proposal)))
        scores = scores - mixed @ scores
        root = jnp.sqrt(mixed)
        scaled = scores * root[:, None]
        gram = scaled @ scaled.T
        ridge = self.damping * jnp.trace(gram) / gram.shape[0] + jnp.finfo(gram.dtype).tiny
        # d loss / d phi = scores^T slope (the slopes of a bound that ignores constants in core sum to zero).
        factor = jax.scipy.linalg.cho_factor(gram + ridge * jnp.eye(gram.shape[0]))
        move = -scaled.T @ jax.scipy.linalg.cho_solve(factor, slope / root)
        return move * jnp.minimum(1.0, self.max_move / (jnp.max(jnp.abs(move), initial=0.0) + 1e-30))
