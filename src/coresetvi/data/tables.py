"""A file as a data set: which of its columns are inputs, which is the target and which the weights.

Every complaint is one sentence that names the file, the column and, where there is one, the row (counted from
0) and says what to do.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._checks import some
from ..errors import InputError
from ..storage import PathLike
from .arrays import Naming, column_entries, column_numbers
from .column_limits import fixed_columns
from .dataset import Dataset
from .files import Table, open_table
from .labels import Labels, encode_labels, known_codes


def read_table(
    path: PathLike,
    target: str | None = None,
    weights: str | None = None,
    drop: Sequence[str] = (),
    *,
    kind: str = "auto",
    num_classes: int | None = None,
    fixed: Sequence[str] = (),
) -> tuple[Dataset, Labels]:
    """A file as a data set and what its labels mean; all columns but target, weights and `drop` are x.

    `kind` says how to read the target: "classes" are encoded as 0 … C-1 in sorted order, "numbers" are kept,
    and "auto" takes text, booleans and up to 20 different whole numbers for classes. `fixed` are columns that
    learned points leave alone.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "flowers.csv"
    ...     _ = file.write_text("width,length,species\\n1,2,rose\\n3,4,iris\\n")
    ...     data, labels = read_table(file, target="species")
    >>> data.columns, data.y.tolist(), labels.classes
    (('width', 'length'), [1, 0], ('iris', 'rose'))
    """
    table = open_table(path)
    names = list(table.columns)
    if target is None and table.suffix == ".npz" and "y" in names:
        target = "y"
    weights = weights_column(table, weights)
    if target is None:
        raise InputError(f"which column of {path} is the target? name it with target=; it has {some(names)}")
    check_columns(
        table, target=[target], weights=[] if weights is None else [weights], drop=drop, fixed=fixed
    )
    if target in (weights, *drop):
        raise InputError(f"target={target!r} is also given as weights= or drop=; name it only once")
    features = [name for name in names if name not in (target, weights, *drop)]
    if "" in features:
        raise InputError(
            f"column {names.index('')} of {path} has no name (often it is a saved index); "
            "name it, or leave it out with drop=['']"
        )
    x = input_rows(table, features)
    codes, classes = encode_labels(target_values(table, target), target, kind, num_classes)
    columns = features if table.named else None
    kept = fixed_columns(fixed, features, (len(features),))
    return make_dataset(table, x, codes, weights, columns, target, kept), Labels(target, classes)


class NewRows(NamedTuple):
    """Rows of a file with the columns of an earlier data set; labels are only looked at when asked for."""

    table: Table
    x: np.ndarray
    columns: Sequence[str] | None
    target: str | None  # None if the file has no such column
    weights: str | None

    def dataset(self, classes: Sequence[object] | None) -> Dataset:
        """The rows with their labels, as codes of the `classes` that a fit knows (None for numbers)."""
        if self.target is None:
            return make_dataset(self.table, self.x, None, self.weights, self.columns, None)
        values = target_values(self.table, self.target)
        if classes is None:
            codes, _ = encode_labels(values, self.target, "numbers")
        else:
            codes = known_codes(values, self.target, classes)
        return make_dataset(self.table, self.x, codes, self.weights, self.columns, self.target)


def read_new_rows(
    path: PathLike,
    like: Dataset,
    target: str | None,
    weights: str | None = None,
    drop: Sequence[str] = (),
    *,
    need_target: bool = True,
) -> NewRows:
    """Rows of a file for a model of the rows `like`: to score on, to predict, to diagnose with.

    Columns go by name, or by position if either side has no names. In an NPZ file, which has names of its
    own for them, `y` is the target and `weights` are the weights unless others are named.
    """
    table = open_table(path)
    if target not in table.columns and table.suffix == ".npz" and "y" in table.columns:
        target = "y"
    weights = weights_column(table, weights)
    if need_target and target is not None:
        check_columns(table, target=[target])
    left_out = {*drop, weights}
    others = {name: column for name, column in table.columns.items() if name not in left_out}
    x = rows_for(table._replace(columns=others), like.columns, like.dim, target)
    return NewRows(table, x, like.columns, target if target in table.columns else None, weights)


def input_rows(table: Table, columns: Sequence[str]) -> np.ndarray:
    """The named columns side by side, (rows, columns), as numbers."""
    if missing := [name for name in columns if name not in table.columns]:
        listed = ", ".join(map(repr, missing[:10]))
        raise InputError(
            f"{table.path} lacks {len(missing)} of the {len(columns)} columns that the fit needs ({listed}); "
            "add them under these names"
        )
    if not columns:
        raise InputError(f"{table.path} has no columns besides the target and weights; add at least one")
    encode = "leave the column out with drop=[{!r}], or encode it as numbers (one-hot)"
    return np.stack([_numbers(table, name, encode.format(name)) for name in columns], axis=1)


def rows_for(table: Table, columns: Sequence[str] | None, count: int, target: str | None) -> np.ndarray:
    """The rows for a fit that knows `columns`: taken by name, or by position if either side has no names."""
    if columns is None or not table.named:
        others = (target, "y", "weights") if table.suffix == ".npz" else (target,)
        columns = [name for name in table.columns if name not in others]
        if len(columns) != count:
            raise InputError(
                f"{table.path} has {len(columns)} columns of inputs, but the fit was made for {count}; "
                "pass the same columns in the same order"
            )
    return input_rows(table, columns)


def target_values(table: Table, target: str) -> np.ndarray:
    """The target as numbers, booleans or text; no entry is missing."""
    values = column_entries(table.columns[target])
    if values.dtype == object:
        missing = np.array([entry is None or entry == "" for entry in values])
        wrong = np.array([not isinstance(entry, str) for entry in values])
        if not missing.any() and wrong.any():
            raise InputError(
                f"target {target!r} of {table.path} has {values[wrong.argmax()]} in row {wrong.argmax()}, "
                "neither a number nor text; convert it"
            )
    else:
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    if missing.any():
        raise InputError(
            f"target {target!r} of {table.path} is missing in row {missing.argmax()}; drop that row"
        )
    return values


def weights_column(table: Table, weights: str | None) -> str | None:
    """The column of weights: the one that was named, or what an NPZ file calls so."""
    own = table.suffix == ".npz" and "weights" in table.columns
    return "weights" if weights is None and own else weights


def check_columns(table: Table, **arguments: Sequence[str]) -> None:
    """Refuse names that are no columns of the table, by the argument that has them."""
    for argument, names in arguments.items():
        for name in names:
            if name not in table.columns:
                listed = some(list(table.columns))
                raise InputError(f"{argument}={name!r} is not a column of {table.path}; it has {listed}")


def make_dataset(
    table: Table,
    x: np.ndarray,
    y: np.ndarray | None,
    weights: str | None,
    columns: Sequence[str] | None,
    target: str | None,
    fixed: tuple[int, ...] = (),
) -> Dataset:
    """The data set of these parts of a table; its complaints name the file."""
    row_weights = None
    if weights is not None:
        row_weights = _numbers(table, weights, "give one non-negative number per row")
    try:
        return Dataset(x, y, row_weights, columns=columns, target=target, fixed=fixed)
    except InputError as error:
        raise InputError(f"{table.path}: {error}") from error


def _numbers(table: Table, name: str, remedy: str) -> np.ndarray:
    """One column as numbers, by the rules for frames."""
    return column_numbers(table.columns[name], Naming(f"column {name!r} of {table.path}", remedy))
