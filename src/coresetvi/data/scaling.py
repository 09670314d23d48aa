"""Mean and standard deviation of weighted rows: exact to the last digits, with little memory."""

import functools
from collections.abc import Iterator
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError

Values = np.ndarray | jax.Array

CHUNK = 65_536  # rows that are taken at a time


def weighted_scale(x: jax.Array, weights: jax.Array, *, traced: bool) -> tuple[jax.Array, jax.Array]:
    """Weighted mean and standard deviation of `x` over the rows, each of shape `x.shape[1:]`.

    A constant column gets |mean| (or 1, if that is zero) for its deviation. Inside `jax.jit`, where values
    are `traced`, all rows are taken at once and weights cannot be checked.
    """
    xp = jnp if traced else np
    pieces = functools.partial(_pieces, x, weights, xp)
    total = sum(w.sum() for _, w in pieces())
    if not traced and total == 0:
        raise InputError("weights are all zero; mean and deviation need a positive weight")
    mean = sum((w * x).sum(0) for x, w in pieces()) / total
    deviation = xp.sqrt(sum((w * (x - mean) ** 2).sum(0) for x, w in pieces()) / total)
    # Rounding leaves a constant column a tiny deviation, so ask whether its values differ.
    first = xp.asarray(x)[xp.argmax(xp.asarray(weights) > 0)].reshape(-1)
    varies = sum(((w > 0) & (x != first)).sum(0) for x, w in pieces())
    fallback = xp.where(mean == 0, 1.0, abs(mean))
    deviation = xp.where((varies > 0) & (deviation > 0), deviation, fallback)
    shape, dtype = x.shape[1:], x.dtype
    return (
        jnp.asarray(mean, dtype).reshape(shape),
        jnp.asarray(deviation, dtype).reshape(shape),
    )


def _pieces(x: jax.Array, weights: jax.Array, xp: ModuleType) -> Iterator[tuple[Values, Values]]:
    """(rows, dim) values and (rows, 1) weights: in chunks for numpy, all at once for JAX."""
    rows, shares = xp.asarray(x).reshape(len(x), -1), xp.asarray(weights)[:, None]
    if xp is jnp:
        yield rows, shares
        return
    for start in range(0, len(rows), CHUNK):
        chunk = slice(start, start + CHUNK)
        yield rows[chunk], shares[chunk].astype(np.float64)  # which makes every product float64
