"""The compiled halves of a step whose rows are asked from the host."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiler import quick_jit


@quick_jit
def ask(optimizer, target, learned, psi, state):
    """The first half of a step, compiled."""
    return optimizer.ask(target, learned, psi, state)


@quick_jit
def tell(optimizer, target, learned, psi, state, draft, answer):
    """The second half of a step, compiled."""
    return optimizer.tell(target, learned, psi, state, jnp.asarray(1.0), draft, answer)


def tell_exactly(*given):
    """`tell` in float64, whatever the rows are in: what it returns is in the caller's type again.

    Rows round a million times, each in its own way; a point that stands for a hundred thousand rows rounds
    once for all of them. In float32 the log-likelihood of such points would be noise where it matters.
    """
    types = {jnp.floating: jnp.result_type(float), jnp.integer: jnp.result_type(int)}
    with jax.enable_x64(True):
        moved = tell(*with_types(given, {jnp.floating: jnp.float64}))
        return with_types(moved, types)


def with_types(tree, types):
    """The tree, with its arrays of these kinds in other types; on the host, where nothing is compiled."""

    def convert(leaf):
        for kind, wanted in types.items():
            if eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, kind):
                return jnp.asarray(np.asarray(leaf).astype(wanted))
        return leaf

    return jax.tree.map(convert, tree)


@quick_jit
def solve(target, learned, psi):
    """r on the coreset, compiled."""
    return target.solve(learned, psi)
