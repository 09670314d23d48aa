"""How near two log-densities are, from their slopes and curvatures at one theta."""

import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jaxtyping import Array, Float

from ..families.base import LEAST_CURVATURE

Slope = Float[Array, " d"]
Matrix = Float[Array, "d d"]


def unit_curvature(curvature: Matrix) -> Matrix:
    """Directions in which a log-density of this curvature has curvature -1 (or +1, where it curves upwards).

    >>> unit = unit_curvature(jnp.diag(jnp.asarray([-4.0, -0.25])))
    >>> (unit.T @ jnp.diag(jnp.asarray([4.0, 0.25])) @ unit).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    values, vectors = jnp.linalg.eigh(0.5 * (curvature + curvature.T))
    size = jnp.maximum(jnp.abs(values), LEAST_CURVATURE * jnp.max(jnp.abs(values)))
    return vectors / jnp.sqrt(size)


def gaussian_kl(
    slope: Slope, precision: Matrix, other_slope: Slope, other_precision: Matrix
) -> Float[Array, ""]:
    """KL(q || p) in nats of the normals with these slopes and precisions at one theta; NaN if one is none.

    >>> eye = jnp.eye(2)
    >>> float(gaussian_kl(jnp.zeros(2), eye, jnp.asarray([1.0, 0.0]), eye))
    0.5
    """
    factor, other = jnp.linalg.cholesky(precision), jnp.linalg.cholesky(other_precision)
    half = linalg.solve_triangular(factor, other, lower=True)
    # The matrix half half^T has the eigenvalues of p's precision in units of q: 1 + e with e small, at best.
    excess = jnp.linalg.eigvalsh(half @ half.T - jnp.eye(slope.shape[0], dtype=slope.dtype))
    shift = linalg.cho_solve((factor, True), slope) - linalg.cho_solve((other, True), other_slope)
    return 0.5 * (jnp.sum(excess - jnp.log1p(excess)) + jnp.sum((other.T @ shift) ** 2))
