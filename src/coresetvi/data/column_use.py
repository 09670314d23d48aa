"""Which columns of a table are inputs, target and weights, and a stretch of such a table as numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._checks import some
from ..errors import InputError
from .arrays import Naming, as_numbers, check_finite, check_range, column_entries, is_whole
from .pieces import Piece

ENCODE = "leave that column out with columns=, or encode it as numbers (one-hot)"


class WantedColumns(NamedTuple):
    """What the caller of `scan` asked for; columns=None means all that are neither target nor weights."""

    columns: tuple[str, ...] | None = None
    target: str | None = None
    weights: str | None = None


class ColumnUse(NamedTuple):
    """The columns of a table by their use."""

    columns: tuple[str, ...]
    target: str | None
    weights: str | None

    @property
    def all(self) -> list[str]:
        """Every column that is read, inputs first."""
        others = [name for name in (self.target, self.weights) if name is not None]
        return [*self.columns, *others]


def choose_columns(names: Sequence[str], wanted: WantedColumns, subject: str) -> ColumnUse:
    """The use that was asked for of a table with columns `names`; `subject` is what messages call it.

    >>> choose_columns(["age", "sick"], WantedColumns(target="sick"), "people.csv")
    ColumnUse(columns=('age',), target='sick', weights=None)
    """
    if twice := next((name for name in names if list(names).count(name) > 1), None):
        raise InputError(f"{subject} has two columns named {twice!r}; rename one (or add the header line)")
    for argument, name in (("target", wanted.target), ("weights", wanted.weights)):
        if name is not None and name not in names:
            raise InputError(f"{argument}={name!r} is not a column of {subject}; it has {some(list(names))}")
    others = (wanted.target, wanted.weights)
    if wanted.columns is None:
        columns = tuple(name for name in names if name not in others)
    else:
        columns = wanted.columns
        for name in columns:
            if name not in names:
                raise InputError(
                    f"columns has {name!r}, which is not a column of {subject}; it has {some(list(names))}"
                )
    if not columns:
        raise InputError(f"{subject} has no columns besides the target and weights; add at least one")
    return ColumnUse(columns, wanted.target, wanted.weights)


def piece_of(table: Mapping[str, object], use: ColumnUse, subject: str, first: int) -> Piece:
    """Rows of a table, checked; `first` is the number of the first of them in `subject`.

    >>> piece_of({"age": np.array([1, 2])}, ColumnUse(("age",), None, None), "people.csv", 0).x.tolist()
    [[1.0], [2.0]]
    """
    dtype = jnp.result_type(float)
    entries = [numbers_of(table[name], name, subject, first) for name in use.columns]
    x = np.empty((len(entries[0]), len(entries)), dtype)
    with np.errstate(over="ignore"):
        for position, values in enumerate(entries):
            x[:, position] = values
    # All at once, which is quick; only a bad entry makes us look for its column.
    if not np.isfinite(x).all():
        for position, (name, values) in enumerate(zip(use.columns, entries, strict=True)):
            check_finite(values, x[:, position], Naming(subject, "", (name,), first))
    y = None
    if use.target is not None:
        y = label_entries(table[use.target], use.target, subject, first)
    weights = np.ones(len(x), dtype)
    if use.weights is not None:
        values = numbers_of(table[use.weights], use.weights, subject, first)
        weights = check_weights(values, Naming(subject, "", (use.weights,), first))
    return Piece(x, y, weights)


def numbers_of(column: object, name: str, subject: str, first: int) -> np.ndarray:
    """One column as numbers, by the rules of `arrays.py`."""
    return as_numbers(column_entries(column), Naming(subject, ENCODE, (name,), first))


def label_entries(column: object, name: str, subject: str, first: int) -> np.ndarray:
    """Labels as whole numbers, floats, or text; no entry is missing."""
    entries, naming = shared_entries(column), Naming(subject, "", (name,), first)
    if entries.dtype == object:
        # To look at different entries only is much quicker; what is not text may not go into a set.
        if set(map(type, entries.tolist())) == {str} and all(map(str.strip, set(entries.tolist()))):
            return entries
        row = next(row for row, entry in enumerate(entries) if not (isinstance(entry, str) and entry.strip()))
        if entries[row] is None or isinstance(entries[row], str):
            raise InputError(f"{naming.has('no label', (row,))}; drop that row")
        entries = as_numbers(entries, naming._replace(remedy="use numbers or text for labels"))
    return check_labels_of_numbers(entries, naming)


def shared_entries(column: object) -> np.ndarray:
    """The entries of a column; equal texts of Arrow are one object, which is much quicker to make."""
    if not hasattr(column, "dictionary_encode") or "string" not in str(getattr(column, "type", "")):
        return column_entries(column)
    table: Any = column
    encoded = table.combine_chunks().dictionary_encode()
    if encoded.null_count:
        return column_entries(column)
    words = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    return words[encoded.indices.to_numpy()]


def check_labels_of_numbers(entries: np.ndarray, naming: Naming) -> np.ndarray:
    """Labels in the integer or float type of JAX."""
    if is_whole(entries):
        dtype = np.dtype(jnp.result_type(int))
        check_range(entries, dtype, naming)
        return entries.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        converted = entries.astype(jnp.result_type(float), copy=False)
    check_finite(entries, converted, naming)
    return converted


def check_weights(entries: np.ndarray, naming: Naming) -> np.ndarray:
    """Weights in the float type of JAX, none of them negative. All of a piece may be zero."""
    with np.errstate(over="ignore"):
        converted = entries.astype(jnp.result_type(float), copy=False)
    check_finite(entries, converted, naming)
    if (converted < 0).any():
        row = int((converted < 0).argmax())
        raise InputError(f"{naming.has(converted[row], (row,))}; weights must not be negative")
    return converted
