"""Programs that take longer to compile than to run: compiled with less care, in half of the time."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ._jaxlib import need_right_sums
from ._programs import keep_programs

Given = ParamSpec("Given")
Result = TypeVar("Result")

# XLA's older way of writing machine code for a CPU, and less care about it: half of the time again. What it
# writes is as exact, most often as fast, and at worst (logarithms and exponentials of large arrays) six times
# slower.
QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
# Numbers that a program is given, all together, up to which that is lost in the time saved: a coreset and a
# few thousand draws, but not the rows of a large data set.
FEW_NUMBERS = 2**16


def quick_jit(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """`equinox.filter_jit`, compiled quickly wherever the arguments are small.

    >>> @quick_jit
    ... def double(x):
    ...     return 2 * x
    >>> double(jnp.ones(()))
    Array(2., dtype=float32)
    """
    plain = eqx.filter_jit(function)

    @functools.cache
    def quick() -> Callable[Given, Result]:
        options: Any = {"compiler_options": quick_options()}
        return eqx.filter_jit(function, **options)

    @functools.wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        leaves = jax.tree.leaves((args, kwargs))
        # As part of another program it is compiled as that one is.
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return plain(*args, **kwargs)
        keep_programs()
        need_right_sums()
        numbers = sum(leaf.size for leaf in leaves if isinstance(leaf, jax.Array | np.ndarray))
        return (quick() if numbers <= FEW_NUMBERS else plain)(*args, **kwargs)

    return run


@functools.cache
def quick_options() -> dict[str, bool]:
    """Options for XLA; none for an accelerator, or if this XLA no longer knows them."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(jnp.negative, compiler_options=dict(QUICK))(0.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return QUICK
