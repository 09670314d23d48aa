"""Rows of an Arrow data set or table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .column_files import PARQUET_BUFFER, columns_of_batch
from .column_use import WantedColumns, choose_columns, piece_of
from .files import damaged, load_pyarrow
from .pieces import Piece
from .row_source import RowSource

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset


class ArrowRows(RowSource):
    """A `pyarrow.dataset.Dataset`, with whatever files and filters are behind it, or a `pyarrow.Table`."""

    def __init__(self, data: "pyarrow.dataset.Dataset | pyarrow.Table", wanted: WantedColumns):
        self.data, self.name = data, f"the Arrow {'table' if is_table(data) else 'data set'}"
        names = [name for name in data.schema.names if not name.startswith("__index_level_")]
        self.use = choose_columns(names, wanted, self.name)
        self.columns, self.target = self.use.columns, self.use.target
        self.named, self.settled = True, self.target is None

    def identity(self) -> list[str]:
        return [path.rsplit("/", 1)[-1] for path in getattr(self.data, "files", [])]

    def read(self, length: int) -> Iterator[Piece]:
        pyarrow, count = load_pyarrow(), 0
        try:
            for batch in self._batches(length):
                if batch.num_rows:
                    yield piece_of(columns_of_batch(batch), self.use, self.name, count)
                count += batch.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise damaged(self.name, str(error)) from error

    def _batches(self, length: int) -> "Iterator[pyarrow.RecordBatch]":
        if is_table(self.data):
            yield from self.data.select(self.use.all).to_batches(max_chunksize=length)
        else:
            # Arrow would read sixteen batches ahead; our own thread reads ahead already.
            yield from self.data.to_batches(
                columns=self.use.all,
                batch_size=length,
                batch_readahead=1,
                fragment_readahead=1,
                fragment_scan_options=streaming_options(self.data),
            )


def streaming_options(data: "pyarrow.dataset.Dataset") -> "pyarrow.dataset.FragmentScanOptions | None":
    """Parquet files are to be fetched bit by bit, since a row group may be larger than memory."""
    import pyarrow.dataset

    if not isinstance(getattr(data, "format", None), pyarrow.dataset.ParquetFileFormat):
        return None
    return pyarrow.dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=PARQUET_BUFFER, pre_buffer=False
    )


def is_arrow(source: object) -> bool:
    """Whether this is an Arrow data set or table, found out without importing Arrow.

    >>> is_arrow([1, 2])
    False
    """
    if not type(source).__module__.startswith("pyarrow"):
        return False
    import pyarrow.dataset

    return isinstance(source, pyarrow.dataset.Dataset) or is_table(source)


def is_table(source: object) -> bool:
    """Whether this is an Arrow table."""
    return isinstance(source, load_pyarrow().Table)
