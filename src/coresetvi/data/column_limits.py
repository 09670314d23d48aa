"""What a caller says of single columns of x: those that learned points leave alone, and bounds of others.

Group numbers and codes of categories have no gradient, or one that means nothing. Scales and exposures have
one, but it may lead to where the model has no value. Both are kept by column number, in sorted order.
"""

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    from .rows import Rows

# (column, lowest, highest), with infinity where there is no bound.
Bounds = tuple[tuple[int, float, float], ...]
Limits = tuple[int | float | None, int | float | None]
GivenBounds = Mapping[str, Limits] | Mapping[int, Limits] | Bounds
Names = Sequence[str] | None


class ColumnFacts(TypedDict):
    """What rows know of their columns."""

    columns: tuple[str, ...] | None
    target: str | None
    fixed: tuple[int, ...]
    bounds: Bounds


def fixed_columns(fixed: object, columns: Names, row_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of columns that were given by name or number.

    >>> fixed_columns(["group", 0], ["age", "group"], (2,))
    (0, 1)
    """
    if fixed is None:
        return ()
    if isinstance(fixed, str) or not isinstance(fixed, Iterable):
        raise InputError(f"fixed must be a list of columns such as ['group'], not {fixed!r}")
    return tuple(sorted({number_of(one, "fixed", columns, row_shape) for one in fixed}))


def column_bounds(bounds: object, columns: Names, row_shape: tuple[int, ...]) -> Bounds:
    """The lowest and highest value of columns, from a dictionary (or as kept); None stands for no bound.

    >>> column_bounds({"age": (0, None)}, ["height", "age"], (2,))
    ((1, 0.0, inf),)
    """
    if not bounds:
        return ()
    if isinstance(bounds, list | tuple) and all(isinstance(one, list | tuple) and one for one in bounds):
        bounds = {column: tuple(ends) for column, *ends in bounds}
    if not isinstance(bounds, Mapping):
        raise InputError(f"bounds must be a dictionary such as {{'age': (0, None)}}, not {bounds!r}")
    found: dict[int, tuple[int, float, float]] = {}
    for name, pair in bounds.items():
        number = number_of(name, "bounds", columns, row_shape)
        if number in found:
            raise InputError(f"bounds has the column {name!r} twice; name it once")
        found[number] = (number, *limits(name, pair))
    return tuple(found[number] for number in sorted(found))


def limits(name: object, pair: object) -> tuple[float, float]:
    """Two numbers, the first below the second."""
    given = tuple(pair) if isinstance(pair, list | tuple) else ()
    ends = [
        float(sign * math.inf if end is None else end)
        for end, sign in zip(given, (-1, 1), strict=False)
        if end is None or isinstance(end, numbers.Real)
    ]
    if len(given) == len(ends) == 2 and ends[0] < ends[1]:
        return ends[0], ends[1]
    raise InputError(
        f"bounds of column {name!r} must be a lowest and a highest number (or None), not {pair!r}"
    )


def number_of(one: object, argument: str, columns: Names, row_shape: tuple[int, ...]) -> int:
    """The number of one column."""
    if len(row_shape) != 1:
        raise InputError(f"{argument} is for tables, but rows of x have shape {row_shape}; leave it out")
    if isinstance(one, str):
        if columns is None:
            raise InputError(
                f"{argument} has the name {one!r}, but the columns have no names; give columns=, or a number"
            )
        if one not in columns:
            listed = ", ".join(map(repr, columns[:10])) + (" and more" if len(columns) > 10 else "")
            raise InputError(f"{argument} has {one!r}, which is no column of x; it has {listed}")
        return list(columns).index(one)
    if isinstance(one, bool) or not isinstance(one, numbers.Integral):
        raise InputError(f"{argument} has {one!r}; give names of columns, or their numbers from 0")
    if not 0 <= int(one) < row_shape[0]:
        raise InputError(f"{argument} has column {one}, but x has columns 0 to {row_shape[0] - 1}")
    return int(one)


def check_within(x: np.ndarray, bounds: Bounds, columns: Names, numbers: object = None) -> None:
    """Rows must be within their own bounds; `numbers` are theirs, if they are not counted from 0."""
    for number, low, high in bounds:
        outside = (x[:, number] < low) | (x[:, number] > high)
        if outside.any():
            row = int(outside.argmax())
            name = number if columns is None else repr(columns[number])
            place = row if numbers is None else np.asarray(numbers)[row]
            raise InputError(
                f"x has {x[row, number]:g} in row {place}, column {name}, which is outside its bounds "
                f"({low:g}, {high:g}); widen them or drop that row"
            )


def column_facts(rows: "Rows") -> ColumnFacts:
    """What rows know of their columns, as arguments for `Dataset` and `unchecked` of rows like them."""
    return {"columns": rows.columns, "target": rows.target, "fixed": rows.fixed, "bounds": rows.bounds}


def picked_facts(rows: "Rows", picked: Sequence[int], names: tuple[str, ...] | None) -> ColumnFacts:
    """The same of rows of which only some columns are left, in this order and with these names.

    >>> from coresetvi import Dataset
    >>> picked_facts(Dataset([[1.0, 2.0, 3.0]], fixed=[0, 2]), (2, 1), None)["fixed"]
    (0,)
    """
    places = {old: new for new, old in enumerate(picked)}
    fixed = sorted(places[number] for number in rows.fixed if number in places)
    bounds = sorted((places[number], low, high) for number, low, high in rows.bounds if number in places)
    return {"columns": names, "target": rows.target, "fixed": tuple(fixed), "bounds": tuple(bounds)}
