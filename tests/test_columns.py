"""A column is read by the same rules whichever way it comes in: the same numbers, or the same sentence.

One table of columns, one of ways in; a way that cannot hold a column (Arrow has no mixtures) says so.
"""

import csv
import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from coresetvi.data import Dataset, tables
from coresetvi.errors import InputError

NAN = float("nan")
FRAMES = ["pandas", "nullable", "objects", "categories", "polars", "arrow", "dictionary"]
WAYS = [*FRAMES, "csv", "parquet", "npz"]


class Column(NamedTuple):
    """What is in it, and the numbers that come out, or which row is refused and with which words."""

    entries: list[Any]
    numbers: list[float] | None = None
    row: int = 0
    words: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()  # ways that cannot hold such a column as it is


MISSING = ("a NaN",)
COLUMNS = {
    "whole numbers": Column([1, -2, 3], [1, -2, 3]),
    "fractions": Column([0.5, -2.25, 3e5], [0.5, -2.25, 3e5]),
    "booleans": Column([True, False, True], [1, 0, 1]),
    "decimals": Column([Decimal("1.5"), Decimal("-2"), Decimal("0.25")], [1.5, -2, 0.25], not_in=("npz",)),
    "text that is numbers": Column(["1.5", "-2", "3e1"], [1.5, -2, 30]),
    "text with blanks about it": Column([" 1", "2 ", "3"], [1, 2, 3]),
    "whole numbers beyond 32 bits": Column([2**40, 1, 0], [2.0**40, 1, 0]),
    "whole numbers beyond 64 bits": Column(
        [10**30, 1, 0], [1e30, 1, 0], not_in=("polars", "arrow", "dictionary", "parquet", "npz")
    ),
    "whole numbers with null": Column([1, None, 3], row=1, words=MISSING, not_in=("npz",)),
    "fractions with null": Column([1.5, 2.5, None], row=2, words=MISSING, not_in=("npz",)),
    "booleans with null": Column([True, None, False], row=1, words=MISSING, not_in=("npz",)),
    "decimals with null": Column([Decimal("1.5"), None], row=1, words=MISSING, not_in=("npz",)),
    "text numbers with null": Column(["1.5", None, "2"], row=1, words=MISSING, not_in=("npz",)),
    "text numbers with blank": Column(["1.5", "", "2"], row=1, words=MISSING),
    "nothing but null": Column([None, None], row=0, words=MISSING, not_in=("npz",)),
    "NaN": Column([1.0, NAN], row=1, words=MISSING),
    "infinity": Column([1.0, float("-inf")], row=1, words=("an infinite value",)),
    "too large for a float": Column(
        [1, 10**400],
        row=1,
        words=("a number too large for a float",),
        not_in=("polars", "arrow", "dictionary", "parquet", "npz", "csv"),
    ),
    "words": Column(["red", "blue"], row=0, words=("'red'", "not a number")),
    "a word among numbers": Column(["1", "2", "x"], row=2, words=("'x'", "not a number")),
    "a blank before a word": Column(["1", "", "x"], row=2, words=("'x'", "not a number")),
    "names with digits": Column(["1_000", "2_000"], row=0, words=("'1_000'", "not a number")),
    "dates": Column(
        [datetime.date(2024, 1, 2), None], row=0, words=("2024-01-02", "not a number"), not_in=("npz",)
    ),
    "dates after null": Column(
        [None, datetime.datetime(2024, 1, 2)], row=1, words=("2024-01-02", "not a number"), not_in=("npz",)
    ),
    "times": Column([datetime.datetime(2024, 1, 2, 3)], row=0, words=("2024-01-02", "not a number")),
    "durations": Column([datetime.timedelta(days=2)], row=0, words=("not a number",), not_in=("csv",)),
    "lists": Column(
        [[1, 2], [3, 4]],
        row=0,
        words=("[1, 2]", "not a number"),
        not_in=("categories", "dictionary", "csv", "npz"),
    ),
    "a mixture": Column(
        [1, "u", 2.5],
        row=1,
        words=("'u'", "not a number"),
        not_in=("polars", "arrow", "dictionary", "parquet"),
    ),
}
CASES = [(name, way) for name, column in COLUMNS.items() for way in WAYS if way not in column.not_in]


def rows_of(entries: list[Any], way: str, folder: Any) -> Dataset:
    """A data set whose only input is the column, by that way."""
    if way in FRAMES:
        return Dataset(frame_of(entries, way))
    path, labels = folder / f"rows.{way}", [number % 2 for number in range(len(entries))]
    if way == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "y"])
            writer.writerows(zip(entries, labels, strict=True))
    elif way == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"a": entries, "y": labels}), path)
    else:
        dtype: Any = {datetime.datetime: "M8[ns]", datetime.timedelta: "m8[ns]"}.get(type(entries[0]))
        np.savez(path, X=np.array([entries], dtype).T, y=labels, columns=["a"])
    return tables.read_table(path, target="y", kind="numbers")[0]


def frame_of(entries: list[Any], way: str) -> Any:
    if way == "polars":
        return polars.DataFrame({"a": entries})
    if way in ("arrow", "dictionary"):
        array = pyarrow.array(entries)
        return pyarrow.table({"a": array.dictionary_encode() if way == "dictionary" else array})
    dtype: Any = {"objects": object, "categories": "category"}.get(way)
    series = pandas.Series(entries, dtype=dtype)
    return pandas.DataFrame({"a": series.convert_dtypes() if way == "nullable" else series})


@pytest.mark.parametrize(("name", "way"), CASES)
def test_every_way_in_reads_a_column_alike(name, way, tmp_path):
    column = COLUMNS[name]
    if column.numbers is not None:
        data = rows_of(column.entries, way, tmp_path)
        np.testing.assert_array_equal(data.x, np.array(column.numbers, np.float32)[:, None])
        assert data.columns == ("a",)
        return
    with pytest.raises(InputError) as caught:
        rows_of(column.entries, way, tmp_path)
    sentence = str(caught.value)
    assert "\n" not in sentence and "; " in sentence
    place = f" in row {column.row}"
    assert all(word in sentence for word in (*column.words, place)), sentence
    if way in FRAMES or column.words[0] in ("a NaN", "an infinite value"):
        assert "x has " in sentence and f"{place}, column 'a'" in sentence
    else:
        assert sentence.startswith(f"column 'a' of {tmp_path / 'rows'}.{way} has ")


TARGETS = {
    "whole numbers": ([0, 1, 1], "int32"),
    "booleans": ([True, False, True], "int32"),
    "text": (["0", "1", "1"], "int32"),
    "decimals": ([Decimal("0.5"), Decimal("1"), Decimal("-1.25")], "float32"),
}


@pytest.mark.parametrize("way", FRAMES)
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_in_a_frame_is_read_as_in_a_file(name, way, tmp_path):
    entries, dtype = TARGETS[name]
    frame = frame_of(entries, way)
    table = {"a": frame["a"], "b": [1.5, 2.5, 3.5]}
    make = {"polars": polars.DataFrame, "arrow": pyarrow.table, "dictionary": pyarrow.table}
    data = Dataset(make.get(way, pandas.DataFrame)(table), y="a")
    pyarrow.parquet.write_table(pyarrow.table({"a": entries, "b": [1.5, 2.5, 3.5]}), tmp_path / "a.parquet")
    again, labels = tables.read_table(tmp_path / "a.parquet", target="a", kind="numbers")
    assert data.y is not None and data.y.dtype == dtype and labels.classes is None
    np.testing.assert_array_equal(np.asarray(data.y), again.y)
    assert data.target == again.target == "a" and data.columns == again.columns == ("b",)
