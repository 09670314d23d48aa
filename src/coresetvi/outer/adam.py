"""Adam on the learned leaves: the paper's optimiser."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from .._checks import positive
from .._registry import register
from .base import Optimizer, mean_draw, step_info


@register
class Adam(Optimizer):
    """Adam on the leaves, in standardised units: the paper's optimiser, with gradients through psi*."""

    learning_rate: float = 0.03
    uses_inner_gradient: ClassVar[bool] = True
    needs_exact_data: ClassVar[bool] = False
    default_steps: ClassVar[int] = 2000

    def __check_init__(self):
        positive(self, "learning_rate")

    def _transform(self):
        return optax.scale_by_adam(b1=0.9, b2=0.99)

    def init(self, learned, family, psi):
        return self._transform().init((learned, family.zero(psi)))

    def step(self, outer, learned, psi, opt_state, scale):
        def loss_of(moving):
            leaves, tangent = moving
            solution, inner = outer.solve(leaves, outer.family.move(psi, tangent))
            thetas, proposal = outer.draw(leaves, solution)
            reference = mean_draw(thetas)
            term = outer.data(thetas, reference)
            vectors = (term.rises, outer.core(leaves, thetas, reference), outer.prior(thetas), proposal)
            return outer.objective.loss(*vectors), (vectors, term, solution, inner)

        moving = (learned, outer.family.zero(psi))
        (loss, aux), gradient = jax.value_and_grad(loss_of, has_aux=True)(moving)
        (data, core, prior, proposal), term, solution, inner = aux
        loss = loss - term.value
        updates, new_state = self._transform().update(gradient, opt_state, moving)
        updates = jax.tree.map(lambda u: -self.learning_rate * scale * u, updates)
        # A hypergradient that the inner problem does not vouch for moves nothing but psi.
        keep = lambda new, old: jnp.where(inner.accepted, new, old)  # noqa: E731
        moved = outer.project({name: leaf + updates[0][name] for name, leaf in learned.items()})
        learned = jax.tree.map(keep, moved, learned)
        new_state = jax.tree.map(keep, new_state, opt_state)
        tangent = jax.tree.map(lambda u: jnp.where(inner.accepted, u, jnp.zeros_like(u)), updates[1])
        psi = outer.family.move(solution, tangent)
        return learned, psi, new_state, term.memory, step_info(loss, data, core, prior, proposal, inner)
