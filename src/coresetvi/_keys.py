"""Random keys: from whatever the caller has, and for numpy."""

import numbers

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ._checks import short
from .errors import InputError


def one_key(key: object) -> PRNGKeyArray:
    """A single JAX key from a whole number or from a key of either style."""
    if isinstance(key, numbers.Integral) and not isinstance(key, bool):
        return jax.random.key(int(key))
    if isinstance(key, jax.Array):
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == (2,):
            wrapped = jax.random.wrap_key_data(key)
        else:
            wrapped = key
        if wrapped.ndim == 0 and jnp.issubdtype(wrapped.dtype, jax.dtypes.prng_key):
            return wrapped
    raise InputError(f"key must be a whole number or one jax.random.key, not {short(key)}.")


def host_generator(key: PRNGKeyArray) -> np.random.Generator:
    """numpy's random numbers for a JAX key: choices of rows are made on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
