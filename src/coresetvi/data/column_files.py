"""Parquet and CSV files a stretch at a time: only the columns that are needed, never the whole file."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from .arrays import Naming, as_numbers, column_entries
from .column_use import ENCODE, ColumnUse
from .files import SEPARATORS, check_suffix, damaged, load_pyarrow

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.csv

FILE_KINDS = (".parquet", *SEPARATORS)
# Bytes of a CSV file that are parsed at once, and from which types of columns are guessed.
CSV_BLOCK = 4 * 2**20
# Bytes of one column of a Parquet file that are fetched at once: a row group may be larger than memory.
PARQUET_BUFFER = 2**20

Stretch = tuple[Mapping[str, object], int]  # columns of Arrow or numpy by name, and how many rows


class ColumnFile(abc.ABC):
    """A file of columns that has been opened; its name and schema are known."""

    path: Path
    names: list[str]
    schema: "pyarrow.Schema"

    def kind(self, name: str) -> str | None:
        """What the column holds: "numbers", "text", another type by its name; None if nothing."""
        return kind_of(self.schema.field(name).type)

    @abc.abstractmethod
    def typed(self, name: str, use: ColumnUse) -> bool:
        """Whether the type of a column is the file's own word, and must be the same in all files."""

    @abc.abstractmethod
    def batches(self, use: ColumnUse, length: int, groups: Sequence[int] | None = None) -> Iterator[Stretch]:
        """The columns in use, some rows at a time: of the whole file, or of some of its row groups."""

    def group_sizes(self) -> list[int] | None:
        """Rows in each group of rows that can be read by itself; None if the file has no such groups."""
        return None


class ParquetColumns(ColumnFile):
    """A Parquet file."""

    def __init__(self, path: Path):
        pyarrow = load_pyarrow()
        self.path = path
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                self.schema = file.schema_arrow
                # The index of a pandas frame is not data.
                self.names = [name for name in self.schema.names if not name.startswith("__index_level_")]
        except UnicodeDecodeError as error:
            raise InputError(f"{path} has column names that are not UTF-8; save it as UTF-8") from error
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise damaged(path, str(error)) from error

    def typed(self, name: str, use: ColumnUse) -> bool:
        return True

    def group_sizes(self) -> list[int] | None:
        pyarrow = load_pyarrow()
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                return [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        except (pyarrow.ArrowException, OSError) as error:
            raise damaged(self.path, str(error)) from error

    def batches(self, use: ColumnUse, length: int, groups: Sequence[int] | None = None) -> Iterator[Stretch]:
        pyarrow = load_pyarrow()
        try:
            with pyarrow.parquet.ParquetFile(self.path, buffer_size=PARQUET_BUFFER, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=length, columns=use.all, row_groups=groups):
                    yield columns_of_batch(batch), batch.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise damaged(self.path, str(error)) from error


class CsvColumns(ColumnFile):
    """A CSV or TSV file, perhaps compressed; types are guessed from its first block."""

    def __init__(self, path: Path, separator: str):
        pyarrow = load_pyarrow()
        self.path, self.separator = path, separator
        try:
            with self._open(pyarrow.csv.ConvertOptions()) as reader:
                self.schema, self.names = reader.schema, list(reader.schema.names)
        except UnicodeDecodeError as error:
            raise InputError(f"{path} has column names that are not UTF-8; save it as UTF-8") from error
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise damaged(path, str(error)) from error

    def typed(self, name: str, use: ColumnUse) -> bool:
        # Text among numbers is refused with its row, which says more than the type.
        return name == use.target

    def batches(self, use: ColumnUse, length: int, groups: Sequence[int] | None = None) -> Iterator[Stretch]:
        assert groups is None
        pyarrow = load_pyarrow()
        # Whole numbers in the first block may have fractions later on.
        types = {name: self.schema.field(name).type for name in use.all}
        wide = {
            name: pyarrow.float64()
            for name, kind in types.items()
            if pyarrow.types.is_integer(kind) or pyarrow.types.is_null(kind)
        }
        options = pyarrow.csv.ConvertOptions(include_columns=use.all, column_types={**types, **wide})
        whole = [name for name in use.all if name == use.target and pyarrow.types.is_integer(types[name])]
        try:
            with self._open(options) as reader:
                for batch in reader:
                    columns = columns_of_batch(batch)
                    yield {**columns, **{name: whole_again(columns[name]) for name in whole}}, batch.num_rows
        except pyarrow.ArrowException as error:
            self._find_text(use, types)
            raise damaged(self.path, str(error)) from error
        except OSError as error:
            raise damaged(self.path, str(error)) from error

    def _open(self, options: "pyarrow.csv.ConvertOptions") -> "pyarrow.csv.CSVStreamingReader":
        csv = load_pyarrow().csv
        return csv.open_csv(
            str(self.path),
            read_options=csv.ReadOptions(block_size=CSV_BLOCK),
            parse_options=csv.ParseOptions(delimiter=self.separator),
            convert_options=options,
        )

    def _find_text(self, use: ColumnUse, types: "Mapping[str, pyarrow.DataType]") -> None:
        """Refuse the first entry that is text in a column of numbers, if that is what is wrong."""
        pyarrow = load_pyarrow()
        numeric = [name for name in use.all if kind_of(types[name]) != "text"]
        text = {name: pyarrow.string() for name in use.all}
        options = pyarrow.csv.ConvertOptions(
            include_columns=use.all, column_types=text, strings_can_be_null=True
        )
        first = 0
        try:
            with self._open(options) as reader:
                for batch in reader:
                    for name, column in columns_of_batch(batch).items():
                        if name in numeric:
                            as_numbers(column_entries(column), Naming(str(self.path), ENCODE, (name,), first))
                    first += batch.num_rows
        except pyarrow.ArrowException:
            return


def open_columns(path: Path) -> ColumnFile:
    """A file by its ending, with its header read."""
    suffix = check_suffix(path, FILE_KINDS)
    return ParquetColumns(path) if suffix == ".parquet" else CsvColumns(path, SEPARATORS[suffix])


def columns_of_batch(batch: "pyarrow.RecordBatch") -> dict[str, "pyarrow.ChunkedArray"]:
    """The columns of an Arrow batch by name."""
    table = load_pyarrow().Table.from_batches([batch])
    return dict(zip(table.column_names, table.columns, strict=True))


def kind_of(dtype: "pyarrow.DataType") -> str | None:
    """What a column of this type holds, in a word; None if nothing."""
    types = load_pyarrow().types
    if types.is_dictionary(dtype):
        return kind_of(dtype.value_type)
    if types.is_null(dtype):
        return None
    if types.is_integer(dtype) or types.is_floating(dtype) or types.is_boolean(dtype):
        return "numbers"
    if types.is_decimal(dtype):
        return "numbers"
    if types.is_string(dtype) or types.is_large_string(dtype):
        return "text"
    return str(dtype)


def whole_again(column: "pyarrow.ChunkedArray") -> "np.ndarray | pyarrow.ChunkedArray":
    """Floats that were read from what looked like whole numbers, as whole numbers if all of them are."""
    values = column.to_numpy()
    with np.errstate(invalid="ignore"):
        found = values.astype(np.int64)
    return found if (found == values).all() else column
