"""Columns of x that are group numbers: `effect[x[:, 0].astype(int)]`.

JAX takes an index outside an array to its nearest end, a negative one from its other end, and 2.5 for 2: all
without a word. So the program of a log-likelihood is read for arrays that are indexed by a column of x, which
tells the codes that the column may have. Columns that are changed before they become an index, other than by
rounding or by a shift such as `codes - 1`, are not found.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.typing import ArrayLike

from ..errors import InputError
from .index_replay import STAND_INS, mentions, replay

Label = jax.ShapeDtypeStruct | None  # the form of one label

# Doubtful rows that are tried out.
TRIED = 64


class Groups(NamedTuple):
    """The codes that a column may have; `rounded` if the model itself makes them whole."""

    codes: range
    rounded: bool


def index_columns(program: ClosedJaxpr) -> dict[int, Groups]:
    """For every cell of a row that is an index (a column, where rows are flat), the codes that it may have.

    `program` is what `program_of` returns, or another of (theta, x, y) that includes the log-likelihood.

    >>> def log_likelihood(theta, x, y):
    ...     return -0.5 * (y - theta[x[:, 1].astype(int)] * x[:, 0]) ** 2
    >>> index_columns(program_of(log_likelihood, np.zeros(4), np.zeros((3, 2)), np.zeros(3)))
    {1: Groups(codes=range(0, 4), rounded=False)}
    """
    if not mentions(program.jaxpr, "gather"):
        return {}
    seen: list[tuple[int, bool]] = []

    @jax.jit
    def numbers(theta, x, *y):
        _, lookups = replay(program, theta, x, y)
        seen[:] = [(lookup.size, lookup.codes.rounded) for lookup in lookups]
        return [lookup.codes.numbers for lookup in lookups]

    # Where x is 0, the codes are what is added to x; where every cell holds its number, they tell the cell.
    theta, x, *y = (np.zeros(form.shape, form.dtype) for form in program.in_avals)
    cells = np.arange(math.prod(x.shape[1:])).reshape(x.shape[1:])
    shifts, named = (
        [np.asarray(one) for one in numbers(theta, (x + of).astype(x.dtype), *y)] for of in (0 * cells, cells)
    )
    found: dict[int, Groups] = {}
    for (size, rounded), shift, name in zip(seen, shifts, named, strict=True):
        for cell, added in {*zip(np.ravel(name - shift).tolist(), np.ravel(shift).tolist(), strict=True)}:
            if not np.isfinite(cell) or added != round(added):
                continue
            codes = range(-int(added), size - int(added))
            before = found.get(int(cell), Groups(codes, rounded))
            within = range(max(codes.start, before.codes.start), min(codes.stop, before.codes.stop))
            found[int(cell)] = Groups(within, rounded and before.rounded)
    return found


def check_codes(
    log_likelihood: Callable,
    theta: ArrayLike,
    x: ArrayLike,
    names: tuple[str, ...] | None,
    label: Label,
    columns: dict[int, Groups],
) -> None:
    """Refuse rows whose group is not in the model, and groups that are no whole numbers.

    Rows are only refused if it makes a difference: a model may catch unknown groups itself.
    """
    x = np.asarray(x) if columns else np.zeros(0)
    for cell, groups in columns.items():
        values = x.reshape(len(x), -1)[:, cell]
        column = repr(names[cell]) if names is not None and x.ndim == 2 else str(cell)
        least, most = groups.codes.start, groups.codes.stop - 1
        outside = np.flatnonzero((values < least) | (values > most))[:TRIED]
        wrong = outside[matters(log_likelihood, theta, x[outside], label)] if len(outside) else outside
        if len(wrong):
            raise InputError(
                f"Row {wrong[0]} of x has {shortest(values[wrong[0]])} in column {column}, but the model has "
                f"groups {least} to {most}; leave such rows out or make the model with more groups."
            )
        broken = np.flatnonzero((values != np.floor(values)) & (not groups.rounded))
        if len(broken) and loses_fraction(log_likelihood, theta, x[broken[0]], label, cell):
            raise InputError(
                f"Row {broken[0]} of x has {shortest(values[broken[0]])} in column {column}, where the model "
                f"has groups {least} to {most}; use whole numbers, or jnp.floor in the model if groups are "
                "intervals."
            )


def matters(log_likelihood: Callable, theta: ArrayLike, x: np.ndarray, label: Label) -> np.ndarray:
    """Whether each row's density depends on what stands in for a group that is not there."""
    y = example_labels(label, len(x))
    program = program_of(log_likelihood, theta, x, y)

    @jax.jit
    def both(theta, x, y):
        return [replay(program, theta, x, y, stand_in)[0][0] for stand_in in range(len(STAND_INS))]

    first, second = (np.asarray(one) for one in both(theta, x, y))
    return ~np.isclose(first, second, rtol=0.0, atol=0.0, equal_nan=True)


def loses_fraction(
    log_likelihood: Callable, theta: ArrayLike, row: np.ndarray, label: Label, cell: int
) -> bool:
    """Whether a cell's fraction changes nothing; if it does, the cell is also used as a number."""
    whole = row.copy()
    whole.flat[cell] = np.trunc(whole.flat[cell])
    x, y = np.stack([row, whole]), example_labels(label, 2)
    one, other = np.asarray(jax.jit(lambda *arguments: log_likelihood(*arguments))(theta, x, y))
    return bool(one == other)


def program_of(log_likelihood: Callable, theta: ArrayLike, x: ArrayLike, y: ArrayLike | None) -> ClosedJaxpr:
    """The operations of a log-likelihood."""
    # Methods of models are no keys of JAX's caches, so it gets a function of its own.
    return jax.make_jaxpr(lambda *arguments: log_likelihood(*arguments))(theta, x, y)


def shortest(value: ArrayLike) -> str:
    """A number without digits that say nothing: 60, 2.5, 6.9999995."""
    return str(np.asarray(value)).removesuffix(".0")


def example_labels(label: Label, rows: int) -> np.ndarray | None:
    """Labels that almost any distribution can take."""
    if label is None:
        return None
    value = 0.5 if np.issubdtype(label.dtype, np.floating) else 1
    return np.full((rows, *label.shape), value, label.dtype)
