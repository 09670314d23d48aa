"""How near two log-densities are, from their slopes and curvatures at one theta, and from draws around it."""

import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jaxtyping import Array, Float

from ..families.base import LEAST_CURVATURE
from ..models.question import LocalView, Question

Slope = Float[Array, " d"]
Matrix = Float[Array, "d d"]
Numbers = Float[Array, " s"]


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


def deviations(values: Numbers, weights: Numbers) -> Numbers:
    """Deviations from the weighted mean, so that the sum of their squares is the weighted variance."""
    total = jnp.maximum(jnp.sum(weights), 1e-30)
    return jnp.sqrt(weights) * (values - jnp.sum(weights * values) / total)


def nearness(
    view: LocalView, core: LocalView, prior: LocalView, question: Question, weights: Numbers, draws: int
) -> Float[Array, ""]:
    """KL(coreset posterior || data posterior) in nats: exact for normals, and from the draws beyond them."""
    residual = view.rises[:draws] - core.rises[:draws]
    plain = 0.5 * jnp.sum(deviations(residual, weights) ** 2)
    normal = gaussian_kl(
        core.slope + prior.slope,
        -core.curvature - prior.curvature,
        view.slope + prior.slope,
        -view.curvature - prior.curvature,
    )
    delta = question.thetas[:draws] - question.anchor
    units = linalg.solve_triangular(question.factor, delta.T, lower=True).T
    slope, curvature = view.slope - core.slope, view.curvature - core.curvature
    quadratic = units @ slope + 0.5 * jnp.sum((units @ curvature) * units, axis=1)
    beyond = 0.5 * jnp.sum(deviations(residual - quadratic, weights) ** 2)
    return jnp.where(jnp.isfinite(normal), normal + beyond, plain)
