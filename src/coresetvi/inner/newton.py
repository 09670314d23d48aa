"""Trust-region Newton steps on a family's parameters, with conjugate gradients and no matrices.

Everything happens in the tangent coordinates of `Family.move`, re-based at every accepted step, so the
Hessian is near the identity, a handful of conjugate-gradient iterations suffice, and the trust radius is in
posterior standard deviations.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..families.base import Psi

Vector = Float[Array, " k"]


# Nats of predicted decrease below which the loss itself may be too coarse to judge a step.
NEAR = 0.1


@runtime_checkable
class Chart(Protocol):
    """Coordinates around psi: a family, or part of one."""

    def zero(self, psi: Psi) -> PyTree:
        """The tangent that stays where it is."""
        ...

    def move(self, psi: Psi, tangent: PyTree) -> Psi:
        """The member reached from `psi` along `tangent`."""
        ...


class Solution(NamedTuple):
    """Where the search ended. `gradient_norm` is in nats per posterior standard deviation."""

    psi: Psi
    gradient_norm: Float[Array, ""]
    steps: Array


def local_loss(loss: Callable[[Psi], Array], family: Chart, psi: Psi) -> Callable[[Vector], Array]:
    """`loss` around `psi` as a function of a flat tangent vector."""
    _, unravel = ravel_pytree(family.zero(psi))
    return lambda flat: loss(family.move(psi, unravel(flat)))


def flat_zero(family: Chart, psi: Psi) -> Vector:
    """The tangent that stays, as a flat vector."""
    return ravel_pytree(family.zero(psi))[0]


def minimise(
    loss: Callable[[Psi], Array], family: Chart, psi: Psi, tolerance: float, max_steps: int
) -> Solution:
    """Minimise `loss` over the family from `psi` until the tangent gradient is below `tolerance`."""
    zero = flat_zero(family, psi)
    unravel = ravel_pytree(family.zero(psi))[1]
    slack = 8.0 * jnp.finfo(zero.dtype).eps

    def look(psi):
        return jax.value_and_grad(local_loss(loss, family, psi))(zero)

    def keep_going(carry):
        _, _, gradient, radius, step = carry
        return (jnp.linalg.norm(gradient) > tolerance) & (step < max_steps) & (radius > 1e-5)

    def advance(carry):
        psi, value, gradient, radius, step = carry
        slope = jax.grad(local_loss(loss, family, psi))
        curve = jax.linearize(slope, zero)[1]
        move, predicted = truncated_cg(curve, gradient, radius)
        candidate = family.move(psi, unravel(move))
        new_value, new_gradient = look(candidate)
        # Near the minimum the decrease drowns in rounding (of the terms, however small their sum): there, a
        # smaller gradient speaks for a step.
        noise = slack * jnp.abs(value)
        gain = (value - new_value + noise) / (predicted + noise)
        finite = jnp.isfinite(new_value) & jnp.all(jnp.isfinite(new_gradient))
        closer = (predicted < NEAR) & (jnp.linalg.norm(new_gradient) < jnp.linalg.norm(gradient))
        accept = ((gain > 0.05) | closer) & finite
        length = jnp.linalg.norm(move)
        radius = jnp.where(accept, radius, 0.25 * jnp.minimum(length, radius))
        radius = jnp.where(accept & (gain > 0.7), jnp.maximum(radius, 3.0 * length), radius)
        choose = lambda new, old: jnp.where(accept, new, old)  # noqa: E731
        psi = jax.tree.map(choose, candidate, psi)
        return psi, choose(new_value, value), choose(new_gradient, gradient), radius, step + 1

    value, gradient = look(psi)
    carry = (psi, value, gradient, jnp.asarray(2.0, zero.dtype), jnp.asarray(0))
    psi, _, gradient, _, step = jax.lax.while_loop(keep_going, advance, carry)
    return Solution(psi, jnp.linalg.norm(gradient), step)


def truncated_cg(
    curve: Callable[[Vector], Vector], gradient: Vector, radius: Array, max_steps: int = 40
) -> tuple[Vector, Array]:
    """Approximate minimiser of gradient.d + d.H.d / 2 within |d| <= radius, and the decrease it predicts.

    Stops at the boundary or along negative curvature (Steihaug), or once the residual is a small part of the
    gradient: the smaller the gradient, the smaller the part, which keeps Newton's fast convergence.
    """
    norm = jnp.linalg.norm(gradient)
    target = norm * jnp.minimum(0.1, jnp.sqrt(norm))

    def to_boundary(point, direction):
        # The positive root of |point + t direction| = radius.
        a, b = direction @ direction, point @ direction
        c = point @ point - radius**2
        return (-b + jnp.sqrt(jnp.maximum(b**2 - a * c, 0.0))) / jnp.maximum(a, 1e-30)

    def keep_going(carry):
        _, _, residual, _, step, done = carry
        return (~done) & (step < max_steps) & (jnp.linalg.norm(residual) > target)

    def advance(carry):
        point, curved, residual, direction, step, _ = carry
        product = curve(direction)
        curvature = direction @ product
        squared = residual @ residual
        length = squared / jnp.where(curvature > 0, curvature, 1.0)
        outside = jnp.linalg.norm(point + length * direction) >= radius
        done = outside | (curvature <= 0)
        length = jnp.where(done, to_boundary(point, direction), length)
        point = point + length * direction
        curved = curved + length * product
        residual = residual - length * product
        direction = residual + direction * ((residual @ residual) / jnp.maximum(squared, 1e-30))
        return point, curved, residual, direction, step + 1, done

    zero = jnp.zeros_like(gradient)
    carry = (zero, zero, -gradient, -gradient, jnp.asarray(0), jnp.asarray(False))
    point, curved, *_ = jax.lax.while_loop(keep_going, advance, carry)
    return point, -(gradient @ point + 0.5 * point @ curved)
