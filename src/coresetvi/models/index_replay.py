"""Running the program of a log-likelihood while looking where columns of x end up as an index.

The program is walked operation by operation. Beside its value, every result that is nothing but numbers of x,
moved about, rounded or shifted, keeps these numbers; when one becomes an index, they are noted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.typing import ArrayLike

# Operations that move numbers without changing them.
MOVES = {
    "slice",
    "squeeze",
    "reshape",
    "transpose",
    "broadcast_in_dim",
    "expand_dims",
    "split",
    "rev",
    "copy",
}
ROUNDINGS = {"round", "floor", "ceil"}
# Operations that are programs of their own, and the parameter that holds it.
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
# What is found, in the first and the second trial, in place of a group that is not there.
STAND_INS = (0.4, 0.9)


class Codes(NamedTuple):
    """Numbers of x on their way to become an index, as they were before they were made whole."""

    numbers: jax.Array
    rounded: bool


class Negative(NamedTuple):
    """Where codes are below 0, which is how an index from the end begins."""

    codes: Codes


class Lookup(NamedTuple):
    """An index into an axis of this length, and the codes it was taken from."""

    codes: Codes
    size: int


def mentions(jaxpr: core.Jaxpr, operation: str) -> bool:
    """Whether a program has this operation, at any depth of those that `replay` walks through."""
    return any(
        eqn.primitive.name == operation
        or (eqn.primitive.name in CALLS and mentions(inner_program(eqn).jaxpr, operation))
        for eqn in jaxpr.eqns
    )


def inner_program(eqn: core.JaxprEqn) -> core.ClosedJaxpr:
    """The program that a call runs."""
    found = eqn.params[CALLS[eqn.primitive.name]]
    return found if isinstance(found, core.ClosedJaxpr) else core.ClosedJaxpr(found, ())


def replay(program: core.ClosedJaxpr, theta, x, y, stand_in: int | None = None):
    """The outputs of a log-likelihood's program, and every index in it that is a column of x.

    With `stand_in`, that one of `STAND_INS` is what comes out where an index is outside its array.
    """
    lookups: list[Lookup] = []
    arguments = [(leaf, None) for leaf in jax.tree.leaves(theta)] + [(x, Codes(x, False))]
    outputs = walk(program, arguments + [(leaf, None) for leaf in jax.tree.leaves(y)], lookups, stand_in)
    return [value for value, _ in outputs], lookups


def walk(program: core.ClosedJaxpr, arguments: list, lookups: list[Lookup], stand_in: int | None) -> list:
    """Run a program on pairs of a value and what is known of it: `Codes`, `Negative` or None."""
    known: dict = dict(zip(program.jaxpr.invars, arguments, strict=True))
    known |= {var: (const, None) for var, const in zip(program.jaxpr.constvars, program.consts, strict=True)}

    def read(atom) -> tuple:
        return (atom.val, None) if isinstance(atom, core.Literal) else known[atom]

    for eqn in program.jaxpr.eqns:
        pairs = [read(atom) for atom in eqn.invars]
        name = eqn.primitive.name
        if name in CALLS:
            results = walk(inner_program(eqn), pairs, lookups, stand_in)
        else:
            values = run(eqn, [value for value, _ in pairs])
            tags = [None] * len(values)
            if any(tag is not None for _, tag in pairs):
                tags = follow(eqn, pairs, len(values))
            if name == "gather" and isinstance(index := pairs[1][1], Codes):
                values = [look_up(eqn, pairs[0][0], index, values[0], lookups, stand_in)]
            results = list(zip(values, tags, strict=True))
        known |= dict(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in program.jaxpr.outvars]


def run(eqn: core.JaxprEqn, values: Sequence[ArrayLike]) -> list:
    """What an operation makes of values."""
    result = eqn.primitive.bind(*values, **eqn.params)
    return list(result) if eqn.primitive.multiple_results else [result]


def follow(eqn: core.JaxprEqn, pairs: list, outputs: int) -> list:
    """What is known of an operation's results."""
    name, tags = eqn.primitive.name, [tag for _, tag in pairs]
    first = tags[0]
    if name == "select_n" and isinstance(first, Negative) and tags[1] is first.codes:
        return [first.codes]  # an index from the end: the codes are as they were
    if name == "lt" and isinstance(first, Codes) and np.ndim(pairs[1][0]) == 0:
        return [Negative(first)]
    if name == "concatenate" and any(isinstance(tag, Codes) for tag in tags):
        parts = [codes_or_nothing(*pair) for pair in pairs]
        rounded = all(part.rounded for part in parts)
        return [Codes(run(eqn, [part.numbers for part in parts])[0], rounded)]
    if name in ("add", "sub") and isinstance(first, Codes) and is_number(pairs[1][0]):
        shift = float(pairs[1][0]) * (1 if name == "add" else -1)
        return [Codes(first.numbers + shift, first.rounded)]
    if not isinstance(first, Codes):
        return [None] * outputs
    if name == "convert_element_type":
        return [first]
    if name in ROUNDINGS:
        return [Codes(run(eqn, [first.numbers])[0], True)]
    if name in MOVES:
        return [Codes(part, first.rounded) for part in run(eqn, [first.numbers])]
    return [None] * outputs


def codes_or_nothing(value: ArrayLike, tag: object) -> Codes:
    """Codes, or as many NaN for what is none."""
    return tag if isinstance(tag, Codes) else Codes(jnp.full(jnp.shape(value), jnp.nan), True)


def is_number(value: object) -> bool:
    """Whether an operand is a single number that the program itself holds."""
    return np.ndim(value) == 0 and not isinstance(value, jax.core.Tracer)  # pyright: ignore


def look_up(
    eqn: core.JaxprEqn,
    array: ArrayLike,
    index: Codes,
    found: jax.Array,
    lookups: list[Lookup],
    stand_in: int | None,
) -> jax.Array:
    """Note an index into an array; what was found there, or what stands in for it outside."""
    numbers = eqn.params["dimension_numbers"]
    sizes = np.asarray(np.shape(array)) - np.asarray(eqn.params["slice_sizes"]) + 1
    outside = False
    for position, axis in enumerate(numbers.start_index_map):
        codes = index.numbers[..., position]
        lookups.append(Lookup(Codes(codes, index.rounded), int(sizes[axis])))
        outside |= (codes < 0) | (codes > sizes[axis] - 1)  # neither is true of NaN
    if stand_in is None:
        return found
    other = STAND_INS[stand_in] if jnp.issubdtype(found.dtype, jnp.floating) else stand_in
    outside = jnp.expand_dims(jnp.asarray(outside), tuple(numbers.offset_dims))
    return jnp.where(outside, jnp.asarray(other, found.dtype), found)
