"""Sums of blocks added up in float64 on the host, while the next block is being computed."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import InputError


class Accumulator:
    """A running total of pytrees of numbers.

    JAX returns before it has computed. So the newest sum is left alone until the next one comes: two blocks
    are under way, and no more.

    >>> accumulator = Accumulator()
    >>> for value in (1.0, 2.0, 3.0):
    ...     accumulator.add({"sum": jnp.array(value)})
    >>> accumulator.result()
    {'sum': Array(6., dtype=float32)}
    """

    def __init__(self):
        self.newest: PyTree | None = None
        self.sums: PyTree | None = None
        self.any = False

    def add(self, sums: PyTree) -> None:
        """One more block."""
        if self.any:
            self._absorb()
        self.newest, self.any = sums, True

    def _absorb(self) -> None:
        newest = jax.tree.map(_wide, self.newest)
        self.sums = newest if self.sums is None else jax.tree.map(_plus, self.sums, newest)

    def wide(self) -> PyTree:
        """The total as numpy arrays in float64 or int64."""
        if self.any:
            self._absorb()
        self.newest, self.any = None, False
        return self.sums

    def result(self) -> PyTree:
        """The total in the float and integer types of JAX."""
        return narrow(self.wide())


def narrow(sums: PyTree) -> PyTree:
    """Sums in float64 or int64 as arrays of JAX in its own types."""
    return jax.tree.map(_narrow, sums)


def add_up(several: list[PyTree]) -> PyTree:
    """The total of such sums, in their order.

    >>> add_up([{"sum": np.array(1.0)}, {"sum": np.array(2.0)}])
    {'sum': array(3.)}
    """
    total, *others = several
    for other in others:
        total = jax.tree.map(_plus, total, other)
    return total


def _wide(leaf: jax.typing.ArrayLike) -> np.ndarray:
    values = np.asarray(leaf)
    return values.astype(np.float64 if jnp.issubdtype(values.dtype, jnp.floating) else np.int64)


def _plus(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return np.asarray(one + two)  # numpy makes a scalar of arrays without axes


def _narrow(values: np.ndarray) -> jax.Array:
    dtype = jnp.result_type(float if values.dtype == np.float64 else int)
    if values.dtype == np.int64 and np.abs(values).max(initial=0) > np.iinfo(dtype).max:
        raise InputError(f"a total is too large for {dtype}; add up floats, or set jax_enable_x64")
    return jnp.asarray(values, dtype)
