"""A release of jaxlib that adds up wrongly, and how to use it all the same.

On CPUs, jaxlib 0.10.2 hands sums to a library that gets every result of a batch wrong from the 32,769th on
(jax-ml/jax issue 39103): log-likelihoods of many draws at many rows would be wrong without a word. XLA does
not use that library if it is told so before its first program.
"""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib.version import __version__ as jaxlib_version

from .errors import CoresetviError

WRONG = ("0.10.2",)
FLAG = "--" + "xla_cpu_experimental_ynn_fusion_type" + "="
# Results of a batch, the last of which is wrong.
BATCH = 32_769


def avoid_wrong_sums() -> None:
    """Tell XLA, as long as it listens: when this package is imported."""
    flags = os.environ.get("XLA_FLAGS", "")
    if jaxlib_version in WRONG and FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {FLAG}".strip()


@functools.cache
def need_right_sums() -> None:
    """Refuse to go on if XLA was told too late. Other releases are not asked."""
    if jaxlib_version in WRONG and jax.default_backend() == "cpu" and not sums_are_right():
        raise CoresetviError(
            f"jaxlib {jaxlib_version} adds up wrongly on CPUs, and JAX was used before coresetvi could "
            "prevent it; import coresetvi first, or install another jaxlib."
        )


def sums_are_right() -> bool:
    """Whether a batch of sums that is known to go wrong does not.

    >>> sums_are_right()
    True
    """
    rows = np.zeros((BATCH, 3), np.float32)
    rows[-1] = 1.0
    square = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))
    return float(square(rows)[-1]) == 3.0


avoid_wrong_sums()
