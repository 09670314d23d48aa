"""Rows that need not fit in memory: from files, Arrow data sets, or a function that makes batches."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from .._checks import short, whole_number
from ..errors import InputError
from .arrow_rows import ArrowRows, is_arrow
from .cluster_client import connect
from .cluster_rows import ClusterRows
from .cluster_source import FilePartitions, FramePartitions, Partitions
from .column_limits import GivenBounds, column_bounds, fixed_columns
from .column_use import WantedColumns
from .row_files import RowFiles, check_file_to_read, find_files
from .row_source import Batches, RowSource
from .streaming import StreamedRows


def scan(
    source: object,
    *,
    target: str | None = None,
    weights: str | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int | None = None,
    client: object = None,
    fixed: Sequence[str | int] | None = None,
    bounds: GivenBounds | None = None,
) -> StreamedRows:
    """Rows that are read in blocks whenever they are needed, so that they need not fit in memory.

    `source` is a path, a pattern ("rows/*.parquet"), a folder or a list of paths of Parquet or CSV files; an
    Arrow data set or table; or a function without arguments that makes a new iterator of batches, each a
    `Dataset`, (x, y), (x, y, weights) or a data frame. `target` and `weights` name columns, and `columns`
    those of x if not all the others are meant. At most `batch_rows` rows are looked at together. Labels that
    are text become 0 … C-1 in sorted order; `classes` of the result has their names.

    `fixed` names columns of x that learned points leave alone, and `bounds` the limits of others, as for a
    `Dataset`.

    A Dask data frame stays on the workers of its cluster, and sums are made there; with `client`, a Dask
    client or the address of a scheduler, the workers read and keep the rows of files as well.

    >>> import numpy as np
    >>> def batches():
    ...     for number in range(3):
    ...         yield np.full((2, 1), number), [0, 1]
    >>> rows = scan(batches)
    >>> rows.num_rows, rows.passes, float(rows.total(lambda rows: rows.weights @ rows.x[:, 0]))
    (6, 1, 6.0)
    """
    if batch_rows is not None:
        whole_number("batch_rows", batch_rows)
    wanted = wanted_columns(target, weights, columns)
    if client is not None or is_dask_frame(source):
        found = find_partitions(source, wanted, client)
        rows: StreamedRows = ClusterRows(found, batch_rows, fixed, bounds)
    else:
        found = find_source(source, wanted)
        rows = StreamedRows(found, batch_rows, fixed, bounds)
    if found.named:
        # Names that are wrong need not wait until the rows are read.
        fixed_columns(fixed, found.columns, rows.row_shape)
        column_bounds(bounds, found.columns, rows.row_shape)
    return rows


def wanted_columns(target: object, weights: object, columns: object) -> WantedColumns:
    """What was asked for, if it makes sense by itself."""
    for argument, name in (("target", target), ("weights", weights)):
        if name is not None and not isinstance(name, str):
            raise InputError(f"{argument} must be the name of a column, not {short(name)}.")
    if target is not None and target == weights:
        raise InputError(f"target={target!r} is also given as weights=; name it only once")
    names = None
    if columns is not None:
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise InputError(f"columns must be a list of names, not {short(columns)}.")
        names = tuple(str(name) for name in columns)
        for name in names:
            if names.count(name) > 1 or name in (target, weights):
                raise InputError(f"columns has {name!r} twice, or beside target= or weights=; name it once")
        if not names:
            raise InputError("columns is empty; name at least one column")
    assert target is None or isinstance(target, str)
    assert weights is None or isinstance(weights, str)
    return WantedColumns(names, target, weights)


def find_partitions(source: object, wanted: WantedColumns, client: object) -> Partitions:
    """The rows of a source for a cluster."""
    if is_dask_frame(source):
        return FramePartitions(source, wanted, connect(client))
    found = find_source(source, wanted)
    if not isinstance(found, RowFiles):
        raise InputError(
            f"source is {short(source)}, which workers cannot read; "
            "with client=, pass files that they can read, or a Dask data frame"
        )
    return FilePartitions(found, connect(client))


def is_dask_frame(source: object) -> bool:
    """Whether this is a Dask data frame, found out without importing Dask.

    >>> is_dask_frame([1, 2])
    False
    """
    module = type(source).__module__
    return (
        module.startswith("dask.dataframe") and hasattr(source, "to_delayed") and hasattr(source, "columns")
    )


def find_source(source: object, wanted: WantedColumns) -> RowSource:
    """The kind of source that this is."""
    if isinstance(source, Iterator):
        raise InputError(
            f"source is {short(source)}, which can be read only once; pass a function that makes a new one "
            "(the generator function itself, say, without calling it)"
        )
    if isinstance(source, str | os.PathLike):
        return RowFiles(find_files(source), wanted, str(source))
    if is_arrow(source):
        return ArrowRows(source, wanted)
    if isinstance(source, list | tuple) and source:
        paths = [Path(one) for one in source if isinstance(one, str | os.PathLike)]
        if len(paths) == len(source):
            return RowFiles(listed_files(paths), wanted, f"the {len(paths)} files")
    if callable(source):
        return Batches(source, wanted)
    raise InputError(
        f"source is {short(source)}; pass files of rows, an Arrow data set, or a function that makes batches "
        "(rows in memory need no scan: use Dataset)"
    )


def listed_files(paths: Sequence[Path]) -> list[Path]:
    """Files that were named one by one, in sorted order."""
    found = sorted(paths)
    for path in found:
        check_file_to_read(path)
    if twice := [path for path in found if found.count(path) > 1]:
        raise InputError(f"{twice[0]} is named twice; name every file once")
    return found
