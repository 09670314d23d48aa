"""Weight maps: how unconstrained numbers become the weights v of the coreset points (§3.2 of the paper).

`total` is the total weight N of the data. Every map starts at N/M per point unless other starting weights
are given, and steps of order one in its raw numbers are steps of order one *relative* to that, whatever N is.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._registry import register

Vector = Float[Array, " m"]


class WeightMap(eqx.Module):
    """A map from m unconstrained numbers, which an optimiser moves, to the weights of m points.

    >>> class Squared(WeightMap):
    ...     learnable: ClassVar[bool] = True
    ...
    ...     def init(self, weights, total):
    ...         return jnp.sqrt(weights)
    ...
    ...     def __call__(self, raw, total):
    ...         return raw**2
    >>> Squared()(jnp.asarray([1.0, -3.0]), jnp.asarray(10.0)).tolist()
    [1.0, 9.0]
    """

    learnable: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def init(self, weights: Vector, total: Float[Array, ""]) -> Vector:
        """Raw numbers that give these starting weights (as far as the map can)."""

    @abc.abstractmethod
    def __call__(self, raw: Vector, total: Float[Array, ""]) -> Vector:
        """Weights from raw numbers."""

    def project(self, raw: Vector) -> Vector:
        """The nearest raw numbers that are allowed; applied after every update."""
        return raw


@register
class Simplex(WeightMap):
    """v = N softmax(raw): non-negative and summing to N ("v*" in the paper's tables).

    >>> Simplex()(jnp.log(jnp.asarray([1.0, 3.0])), jnp.asarray(100.0)).round(1).tolist()
    [25.0, 75.0]
    """

    learnable: ClassVar[bool] = True

    def init(self, weights, total):
        return jnp.log(jnp.maximum(weights, 1e-6 * total / weights.shape[0])) - jnp.log(
            total / weights.shape[0]
        )

    def __call__(self, raw, total):
        return total * jax.nn.softmax(raw)


@register
class Free(WeightMap):
    """v = (N/M) raw with raw >= 0 by projection: any non-negative weights ("v").

    >>> raw = Free().project(jnp.asarray([1.5, -0.2]))
    >>> Free()(raw, jnp.asarray(100.0)).tolist()
    [75.0, 0.0]
    """

    learnable: ClassVar[bool] = True

    def init(self, weights, total):
        return weights / (total / weights.shape[0])

    def __call__(self, raw, total):
        return (total / raw.shape[0]) * raw

    def project(self, raw):
        return jnp.maximum(raw, 0.0)


@register
class Fixed(WeightMap):
    """v = N/M: every point stands for equally many rows, and no weight is learned ("v=N/M").

    >>> Fixed()(jnp.zeros(4), jnp.asarray(100.0)).tolist()
    [25.0, 25.0, 25.0, 25.0]
    """

    learnable: ClassVar[bool] = False

    def init(self, weights, total):
        return jnp.zeros_like(weights)

    def __call__(self, raw, total):
        return jnp.full_like(raw, 1.0) * (total / raw.shape[0])


@register
class Unit(WeightMap):
    """v = 1: points count as single rows, however many they stand for; an ablation ("v=1").

    >>> Unit()(jnp.zeros(4), jnp.asarray(100.0)).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    learnable: ClassVar[bool] = False

    def init(self, weights, total):
        return jnp.zeros_like(weights)

    def __call__(self, raw, total):
        return jnp.ones_like(raw)
