"""Files and their columns: CSV, Parquet and NPZ in, CSV and Parquet out.

Nothing here looks into a column; `tables.py` does. An NPZ file holds `X` (or `x`) and, if there are labels,
`y`; `weights` and `columns` (the names of the columns of X) are optional.
"""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import InputError
from ..storage import PathLike, whole_file

if TYPE_CHECKING:
    import pyarrow

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
READABLE = (*SEPARATORS, ".parquet", ".npz")
WRITABLE = (*SEPARATORS, ".parquet")


class Table(NamedTuple):
    """Columns by name, of Arrow or numpy; `named` is False if the file had no names and positions count."""

    path: Path
    suffix: str
    columns: "dict[str, np.ndarray | pyarrow.ChunkedArray]"
    named: bool


def open_table(path: PathLike) -> Table:
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


def check_output(path: PathLike, *, overwrite: bool = False) -> None:
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
        raise InputError(f"{path} exists already; choose another name or pass overwrite=True")


def write_table(path: PathLike, columns: Mapping[str, object], *, overwrite: bool = False) -> None:
    """Write columns as CSV or Parquet, by the ending of `path`: whole or not at all."""
    check_output(path, overwrite=overwrite)
    path, pyarrow = Path(path), load_pyarrow()
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


def load_pyarrow() -> ModuleType:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise InputError('CSV and Parquet files need pyarrow; pip install "coresetvi[cli]"') from error
    return pyarrow


def _open_arrow(path: Path, suffix: str) -> Table:
    pyarrow = load_pyarrow()
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
        raise damaged(path, str(error)) from error
    _check_distinct(path, names)
    return Table(path, suffix, {name: table.column(name) for name in names}, named=True)


def _open_npz(path: Path) -> Table:
    try:
        # Opened here, because numpy leaves a broken archive open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            wanted = ("X", "x", "y", "weights", "columns")
            arrays = {name: archive[name] for name in wanted if name in archive.files}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError) as error:
        raise damaged(path, str(error)) from error
    except (ValueError, TypeError, AttributeError) as error:
        # numpy's own words would suggest to allow pickles, which can run code.
        raise damaged(path, "not an archive of plain numbers and text") from error
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


def _check_distinct(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path} has two columns named {name!r}; rename one (or add the header line)")
        seen.add(name)


def damaged(path: PathLike, reason: str) -> InputError:
    return InputError(f"{path} cannot be read ({' '.join(reason.split())}); replace it with an intact copy")
