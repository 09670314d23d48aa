"""Tables in files: CSV, Parquet and NPZ in, CSV and Parquet out.

Every complaint is one sentence that names the file, the column and, where there is one, the row (counted from
0) and says what to do. An NPZ file holds `X` (or `x`) and, if there are labels, `y`; `weights` and `columns`
(the names of the columns of X) are optional.
"""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..storage import whole_file
from .dataset import Dataset
from .labels import Labels, encode_labels, some

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
READABLE = (*SEPARATORS, ".parquet", ".npz")
WRITABLE = (*SEPARATORS, ".parquet")


class Table(NamedTuple):
    """Columns of a file by name; `named` is False if the file had no names and positions count."""

    path: Path
    suffix: str
    columns: dict[str, Any]
    named: bool


def read_table(
    path: Any,
    target: str | None = None,
    weights: str | None = None,
    drop: Sequence[str] = (),
    *,
    kind: str = "auto",
    num_classes: int | None = None,
) -> tuple[Dataset, Labels]:
    """A file as a data set and what its labels mean; all columns but target, weights and `drop` are x.

    `kind` says how to read the target: "classes" are encoded as 0 … C-1 in sorted order, "numbers" are kept,
    and "auto" takes text, booleans and up to 20 different whole numbers for classes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "flowers.csv"
    ...     _ = file.write_text("width,length,species\\n1,2,rose\\n3,4,iris\\n")
    ...     data, labels = read_table(file, target="species")
    >>> data.columns, data.y.tolist(), labels.classes
    (('width', 'length'), [1, 0], ('iris', 'rose'))
    """
    table = open_table(path)
    names = list(table.columns)
    if table.suffix == ".npz":
        target = "y" if target is None and "y" in names else target
        weights = "weights" if weights is None and "weights" in names else weights
    if target is None:
        raise InputError(f"which column of {path} is the target? name it with --target; it has {some(names)}")
    for option, name in (("--target", target), ("--weights", weights), *(("--drop", name) for name in drop)):
        if name is not None and name not in table.columns:
            raise InputError(f"{option} {name!r} is not a column of {path}; it has {some(names)}")
    if target in (weights, *drop):
        raise InputError(f"--target {target!r} is also given as --weights or --drop; name it only once")
    features = [name for name in names if name not in (target, weights, *drop)]
    if "" in features:
        raise InputError(
            f"column {names.index('')} of {path} has no name (often it is a saved index); "
            "name it, or leave it out with --drop ''"
        )
    x = input_rows(table, features)
    values = target_values(table, target)
    codes, classes = encode_labels(values, target, kind, num_classes)
    row_weights = None if weights is None else _numbers(table, weights)
    try:
        columns = features if table.named else None
        return Dataset(x, codes, row_weights, columns=columns, target=target), Labels(target, classes)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def open_table(path: Any) -> Table:
    """The columns of a CSV, Parquet or NPZ file, not yet looked into."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist; check the path")
    if path.is_dir():
        raise InputError(f"{path} is a directory; pass a file that ends in {', '.join(READABLE)}")
    suffix = check_suffix(path, READABLE)
    table = _open_npz(path) if suffix == ".npz" else _open_arrow(path, suffix)
    if not len(next(iter(table.columns.values()), ())):
        raise InputError(f"{path} has no rows; pass at least one row of data")
    return table


def check_suffix(path: Path, known: Sequence[str]) -> str:
    """How the name of the file ends, if that is one of `known`."""
    suffix = next((ending for ending in known if path.name.lower().endswith(ending)), None)
    if suffix is None:
        raise InputError(f"{path} is not a file of a known kind; use a name that ends in {', '.join(known)}")
    return suffix


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
    return np.stack([_numbers(table, name) for name in columns], axis=1)


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
    values = _to_numpy(table.columns[target])
    if values.dtype == object:
        missing = np.array([entry is None or entry == "" for entry in values])
        wrong = np.array([not isinstance(entry, str) for entry in values])
        if not missing.any() and wrong.any():
            raise InputError(
                f"target {target!r} of {table.path} has {values[wrong.argmax()]!r} in row {wrong.argmax()}, "
                "neither a number nor text; convert it"
            )
    else:
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    if missing.any():
        raise InputError(
            f"target {target!r} of {table.path} is missing in row {missing.argmax()}; drop that row"
        )
    return values


def check_output(path: Any, *, overwrite: bool = False) -> None:
    """Refuse a file that `write_table` must not or cannot write; worth calling before the work."""
    check_suffix(Path(path), WRITABLE)
    check_file(Path(path), overwrite=overwrite)


def check_file(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a path that is no place for a file, or is taken."""
    for place in path.absolute().parents:
        if place.exists() and not place.is_dir():
            raise InputError(f"{path} cannot be written because {place} is a file; choose another path")
    if path.is_dir():
        raise InputError(f"{path} is a directory; choose the name of a file")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name or pass overwrite=True (--overwrite)")


def write_table(path: Any, columns: dict[str, Any], *, overwrite: bool = False) -> None:
    """Write columns as CSV or Parquet, by the ending of `path`: whole or not at all."""
    check_output(path, overwrite=overwrite)
    path, pyarrow = Path(path), _pyarrow()
    suffix = check_suffix(path, WRITABLE)
    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    with whole_file(path) as staging:
        if suffix == ".parquet":
            pyarrow.parquet.write_table(table, staging)
        else:
            options = pyarrow.csv.WriteOptions(delimiter=SEPARATORS[suffix])
            packing = "gzip" if suffix.endswith(".gz") else None
            with pyarrow.output_stream(str(staging), compression=packing) as stream:
                pyarrow.csv.write_csv(table, stream, options)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise InputError('CSV and Parquet files need pyarrow; pip install "coresetvi[cli]"') from error
    return pyarrow


def _open_arrow(path: Path, suffix: str) -> Table:
    pyarrow = _pyarrow()
    try:
        if suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            options = pyarrow.csv.ParseOptions(delimiter=SEPARATORS[suffix])
            table = pyarrow.csv.read_csv(str(path), parse_options=options)
        # The index of a pandas frame is not data.
        names = [name for name in table.column_names if not name.startswith("__index_level_")]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} has column names that are not UTF-8; save it as UTF-8") from error
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    _check_distinct(path, names)
    return Table(path, suffix, {name: table.column(name) for name in names}, named=True)


def _open_npz(path: Path) -> Table:
    try:
        # Opened here, because numpy leaves a broken archive open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            wanted = ("X", "x", "y", "weights", "columns")
            arrays = {name: archive[name] for name in wanted if name in archive.files}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError) as error:
        raise _damaged(path, str(error)) from error
    except (ValueError, TypeError, AttributeError) as error:
        # numpy's own words would suggest to allow pickles, which can run code.
        raise _damaged(path, "not an archive of plain numbers and text") from error
    x = arrays.get("X", arrays.get("x"))
    if x is None:
        raise InputError(f"{path} has no array X; save the rows as X and the labels as y")
    if x.ndim != 2:
        raise InputError(f"X of {path} has shape {x.shape}; give it one row per datum and one column each")
    names = [str(name) for name in arrays.get("columns", np.zeros(0)).reshape(-1)]
    if names and len(names) != x.shape[1]:
        raise InputError(f"{path} has {len(names)} names in columns, but X has {x.shape[1]}; give one each")
    columns = dict(zip(names or [f"x{number}" for number in range(x.shape[1])], x.T, strict=True))
    _check_distinct(path, [*names, *(name for name in ("y", "weights") if name in arrays)])
    for name in ("y", "weights"):
        if name in arrays:
            if arrays[name].shape not in ((len(x),), (len(x), 1)):
                raise InputError(
                    f"{name} of {path} has shape {arrays[name].shape}, but X has {len(x)} rows; "
                    "give it one entry per row"
                )
            columns[name] = arrays[name].reshape(-1)
    return Table(path, ".npz", columns, named=bool(names))


def _numbers(table: Table, name: str) -> np.ndarray:
    """One column as floats; what is no number is named. A missing entry becomes NaN, refused by Dataset."""
    values = _to_numpy(table.columns[name])
    if values.dtype != object:
        return values.astype(float)
    remedy = f"leave the column out with --drop {name}, or encode it as numbers (one-hot)"
    for row, entry in enumerate(values):
        if isinstance(entry, str):
            try:
                float(entry)
                continue
            except ValueError:
                pass
        if entry is not None:
            raise InputError(
                f"column {name!r} of {table.path} has {entry!r} in row {row}, not a number; {remedy}"
            )
    return np.array([np.nan if entry is None else float(entry) for entry in values])


def _to_numpy(column: Any) -> np.ndarray:
    """Numbers and booleans as they are, with NaN for what is missing; anything else as objects."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "biuf":
            return column
        return column.astype(object)
    pyarrow = _pyarrow()
    kind = pyarrow.types
    if kind.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind.is_decimal(column.type) or kind.is_null(column.type):
        column = column.cast(pyarrow.float64())
    if kind.is_boolean(column.type) and column.null_count:
        column = column.cast(pyarrow.int8())
    if kind.is_boolean(column.type) or kind.is_integer(column.type) or kind.is_floating(column.type):
        return column.to_numpy()
    return np.array([*column.to_pylist(), None], dtype=object)[:-1]  # one more, lest equal lists be stacked


def _check_distinct(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path} has two columns named {name!r}; rename one (or add the header line)")
        seen.add(name)


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} cannot be read ({' '.join(reason.split())}); replace it with an intact copy")
