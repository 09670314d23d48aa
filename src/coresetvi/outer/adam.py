"""Adam on the learned leaves: the paper's optimiser, with gradients through the inner solution."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from .._checks import positive
from .._registry import register
from ..inner.base import Leaves
from .base import Draft, Moved, Optimizer, Target, mean_draw, step_info

# How often a step is halved that ends where the model has no value; then nothing moves.
HALVINGS = 5


@register
class Adam(Optimizer):
    """Adam on the leaves, in standardised units: the paper's optimiser, with gradients through psi*.

    >>> Adam(learning_rate=0.01).default_steps
    2000
    """

    learning_rate: float = 0.03
    uses_inner_gradient: ClassVar[bool] = True
    needs_exact_data: ClassVar[bool] = False
    needs_slopes: ClassVar[bool] = True
    default_steps: ClassVar[int] = 2000

    def __check_init__(self):
        positive(self, "learning_rate")

    def _transform(self):
        return optax.scale_by_adam(b1=0.9, b2=0.99)

    def init(self, learned, family, psi):
        return self._transform().init((learned, family.zero(psi)))

    def ask(self, target, learned, psi, state):
        def sample(moving):
            leaves, tangent = moving
            solution, inner = target.solve(leaves, target.family.move(psi, tangent))
            return target.draw(leaves, solution), (solution, inner)

        moving = (learned, target.family.zero(psi))
        (thetas, proposal), pull, (solution, inner) = jax.vjp(sample, moving, has_aux=True)
        return Draft(thetas, mean_draw(thetas), proposal, solution, inner, pull)

    def tell(self, target, learned, psi, state, scale, draft, answer):
        def loss_of(leaves, thetas, proposal, data):
            core = target.core(leaves, thetas, draft.reference)
            vectors = (data, core, target.prior(thetas), proposal)
            return target.objective.loss(*vectors), vectors

        value_and_slopes = jax.value_and_grad(loss_of, argnums=(0, 1, 2, 3), has_aux=True)
        parts = (learned, draft.thetas, draft.proposal, answer.rises)
        (loss, vectors), (by_leaves, by_thetas, by_proposal, by_rises) = value_and_slopes(*parts)
        # The chain rule, with the data's share of it from the answer: leaves move thetas, thetas move rises.
        by_thetas = by_thetas + by_rises[:, None] * answer.slopes
        (through_leaves, through_psi), *_ = draft.pull((by_thetas, by_proposal))
        gradient = (jax.tree.map(jnp.add, by_leaves, through_leaves), through_psi)
        moving = (learned, target.family.zero(psi))
        updates, new_state = self._transform().update(gradient, state, moving)
        updates = jax.tree.map(lambda update: -self.learning_rate * scale * update, updates)
        # A hypergradient that the inner problem does not vouch for moves nothing but psi.
        accepted = draft.inner.accepted
        keep = lambda new, old: jnp.where(accepted, new, old)  # noqa: E731
        moved = shortened(target, learned, updates[0], draft)
        tangent = jax.tree.map(lambda update: jnp.where(accepted, update, jnp.zeros_like(update)), updates[1])
        return Moved(
            learned=jax.tree.map(keep, moved, learned),
            psi=target.family.move(draft.psi, tangent),
            state=jax.tree.map(keep, new_state, state),
            info=step_info(loss - answer.value, *vectors, inner=draft.inner),
        )


def shortened(target: Target, learned: Leaves, step: Leaves, draft: Draft) -> Leaves:
    """The leaves after this step, or after so much of it that the coreset still has a log-likelihood.

    A location may not cross zero, say, where the model takes its logarithm. Whether it has is seen at one
    draw.
    """

    whole = target.project({name: leaf + step[name] for name, leaf in learned.items()})

    def after(part):
        return target.project({name: leaf + part * step[name] for name, leaf in learned.items()})

    def lost(moved):
        return ~jnp.all(jnp.isfinite(target.core(moved, draft.thetas[:1], draft.reference)))

    def keep_halving(carry):
        halvings, moved = carry
        return (halvings < HALVINGS) & lost(moved)

    def halve(carry):
        halvings, _ = carry
        part = jnp.where(halvings + 1 < HALVINGS, 0.5 ** (halvings + 1.0), 0.0)
        return halvings + 1, after(part.astype(draft.thetas.dtype))

    return jax.lax.while_loop(keep_halving, halve, (jnp.asarray(0), whole))[1]
