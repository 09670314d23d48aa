"""A table that is written some rows at a time, and is there as a whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..data.files import SEPARATORS, WRITABLE, check_output, check_suffix, load_pyarrow
from ..storage import whole_file

Write = Callable[[Mapping[str, object]], None]


@contextlib.contextmanager
def writing_table(path: Path, *, overwrite: bool = False) -> Iterator[Write]:
    """A function that appends columns to the CSV or Parquet file `path`; all calls have the same columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "numbers.csv"
    ...     with writing_table(file) as write:
    ...         write({"a": [1, 2]})
    ...         write({"a": [3]})
    ...     file.read_text().split()
    ['"a"', '1', '2', '3']
    """
    check_output(path, overwrite=overwrite)
    pyarrow, suffix = load_pyarrow(), check_suffix(path, WRITABLE)
    schema, writer = None, None
    with whole_file(path) as staging, contextlib.ExitStack() as stack:

        def write(columns: Mapping[str, object]) -> None:
            nonlocal schema, writer
            table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
            if writer is None:
                schema = table.schema
                if suffix == ".parquet":
                    writer = pyarrow.parquet.ParquetWriter(staging, schema)
                else:
                    packing = "gzip" if suffix.endswith(".gz") else None
                    stream = stack.enter_context(pyarrow.output_stream(str(staging), compression=packing))
                    options = pyarrow.csv.WriteOptions(delimiter=SEPARATORS[suffix])
                    writer = pyarrow.csv.CSVWriter(stream, schema, write_options=options)
                stack.enter_context(writer)
            writer.write_table(table.cast(schema))

        yield write
