"""Which rows a draw picks, and how they are picked from an array."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PRNGKeyArray

from ..errors import InputError


def rows_of(leaf: jax.Array, rows: jax.Array) -> jax.Array:
    """These rows of an array; by numpy where the host has it, for JAX would compile every shape."""
    traced = isinstance(leaf, Tracer) or isinstance(rows, Tracer)
    if traced or {device.platform for device in leaf.devices()} != {"cpu"}:
        return jnp.take(leaf, rows, axis=0)
    return jax.device_put(np.asarray(leaf)[np.asarray(rows)])


def draw_rows(key: PRNGKeyArray, num_rows: int, count: int) -> np.ndarray:
    """The numbers of `count` different rows in random order; of all, in order, if there are no more.

    >>> draw_rows(jax.random.key(0), 3, 5)
    array([0, 1, 2])
    """
    if count < 1:
        raise InputError(f"count is {count}; draw at least one row")
    if count >= num_rows:
        return np.arange(num_rows)
    # numpy needs time and memory for `count` numbers only, JAX for a permutation of all rows.
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    return generator.choice(num_rows, count, replace=False)


def strata_rows(key: jax.Array, num_rows: int, count: int) -> tuple[jax.Array, np.ndarray]:
    """One uniformly drawn row from each of `count` strata, and by how much its stratum is above average."""
    # Python's own sizes and 64-bit numpy: b * n overflows 32 bits, and a float32 position
    # could not reach every row beyond 2**24.
    edges = np.arange(count + 1, dtype=np.int64) * num_rows // count
    bounds = edges.astype(jnp.result_type(int))
    rows = jax.random.randint(key, (count,), bounds[:-1], bounds[1:])
    return rows, np.diff(edges) * (count / num_rows)
