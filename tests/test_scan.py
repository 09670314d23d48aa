"""Rows of files and Arrow data sets are those in memory, and what is wrong with them is named."""

import gzip
import itertools
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest

import coresetvi as cvi
from coresetvi.data import column_files
from coresetvi.data.dataset import concatenate
from coresetvi.errors import InputError

RANDOM = np.random.default_rng(0)
NUM = 1000
TABLE = pyarrow.table(
    {
        "a": RANDOM.normal(size=NUM),
        "count": RANDOM.integers(0, 9, NUM),
        "flag": RANDOM.uniform(size=NUM) > 0.5,
        "y": RANDOM.integers(0, 3, NUM),
        "w": RANDOM.uniform(size=NUM),
    }
)
WHOLE = cvi.Dataset(TABLE, y="y", weights="w")


def write_parquet(folder: Path, table: pyarrow.Table = TABLE) -> str:
    """Three files: one with many row groups, an empty one, and one with a single group."""
    pyarrow.parquet.write_table(table.slice(0, 400), folder / "1.parquet", row_group_size=33)
    pyarrow.parquet.write_table(table.slice(0, 0), folder / "2.parquet")
    pyarrow.parquet.write_table(table.slice(400), folder / "3.parquet")
    return f"{folder}/*.parquet"


def write_csv(folder: Path, table: pyarrow.Table = TABLE) -> str:
    """Several small files, one of them with a header only, two of them compressed."""
    edges = [0, 300, 300, 700, 1000]
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        ending = ".gz" if number % 2 else ""
        with pyarrow.output_stream(
            str(folder / f"{number}.csv{ending}"), compression="gzip" if ending else None
        ) as stream:
            pyarrow.csv.write_csv(table.slice(start, end - start), stream)
    return str(folder)


def write_tsv(folder: Path) -> list[Path]:
    options = pyarrow.csv.WriteOptions(delimiter="\t")
    pyarrow.csv.write_csv(TABLE.slice(0, 10), folder / "1.tsv", options)
    pyarrow.csv.write_csv(TABLE.slice(10), folder / "2.tsv", options)
    return [folder / "2.tsv", folder / "1.tsv"]


def arrow_data(folder: Path) -> pyarrow.dataset.Dataset:
    write_parquet(folder)
    return pyarrow.dataset.dataset(folder, format="parquet")


def frames(folder: Path):
    return lambda: iter([TABLE.slice(0, 10).to_pandas(), TABLE.slice(10)])


SOURCES = {
    "parquet": write_parquet,
    "csv": write_csv,
    "tsv": write_tsv,
    "arrow data set": arrow_data,
    "arrow table": lambda folder: TABLE,
    "frames": frames,
}


@pytest.mark.parametrize("batch_rows", [None, 64])
@pytest.mark.parametrize("name", SOURCES)
def test_rows_are_those_in_memory(name, batch_rows, tmp_path):
    rows = cvi.scan(SOURCES[name](tmp_path), target="y", weights="w", batch_rows=batch_rows)
    assert rows.columns == ("a", "count", "flag") and rows.target == "y"
    found = concatenate(*rows.batches())
    for one, two in zip(found.to_numpy(), WHOLE.to_numpy(), strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.dtype == two.dtype
    assert (len(rows), rows.labels()) == (NUM, WHOLE.labels())
    for one, two in zip(rows.scale(), WHOLE.scale(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    drawn = rows.sample(jax.random.key(0), 10)
    np.testing.assert_array_equal(drawn.x, WHOLE.x[drawn.indices])
    np.testing.assert_allclose(
        rows.total(lambda rows: rows.weights @ rows.x), WHOLE.weights @ WHOLE.x, rtol=1e-5
    )
    assert rows.passes == 3  # the survey, the batches, the sum


def test_only_the_columns_asked_for_are_read(tmp_path, monkeypatch):
    table = TABLE.append_column("name", pyarrow.array(["text"] * NUM))
    rows = cvi.scan(write_parquet(tmp_path, table), columns=["flag", "a"])
    assert rows.columns == ("flag", "a") and rows.passes == 0
    seen, plain = set(), column_files.columns_of_batch
    monkeypatch.setattr(
        column_files, "columns_of_batch", lambda batch: seen.update(batch.schema.names) or plain(batch)
    )
    found = concatenate(*rows.batches())
    assert seen == {"flag", "a"}
    np.testing.assert_array_equal(found.x, WHOLE.x[:, [2, 0]])
    assert found.y is None and rows.passes == 1  # nothing has to be known of labels that are not there


@pytest.mark.parametrize("write", [write_parquet, write_csv])
def test_text_is_encoded_as_in_a_table_in_memory(write, tmp_path):
    labels = np.array(["rose", "aster", "iris"])[np.asarray(WHOLE.y)]
    table = TABLE.select(["a"]).append_column("kind", pyarrow.array(labels))
    rows = cvi.scan(write(tmp_path, table), target="kind")
    from coresetvi.data.tables import read_table

    pyarrow.parquet.write_table(table, tmp_path / "whole.parquet")
    whole, names = read_table(tmp_path / "whole.parquet", target="kind")
    assert rows.classes == names.classes == ("aster", "iris", "rose")
    np.testing.assert_array_equal(concatenate(*rows.batches()).y, whole.y)
    assert rows.labels() == whole.labels()
    assert rows.one_of_each().indices.tolist() == whole.one_of_each().indices.tolist()


def test_categories_and_decimals_and_numeric_text_count(tmp_path):
    from decimal import Decimal

    table = pyarrow.table(
        {
            "decimal": pyarrow.array([Decimal("1.5"), Decimal("2.5")]),
            "text": ["1", "2.5"],
            "y": pyarrow.array(["b", "a"]).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    rows = cvi.scan(tmp_path / "rows.parquet", target="y")
    (found,) = rows.batches()
    assert found.x.tolist() == [[1.5, 1.0], [2.5, 2.5]] and found.y.tolist() == [1, 0]


def test_numbers_of_a_csv_file_may_get_fractions_late(tmp_path, monkeypatch):
    """Arrow guesses types from the first block."""
    monkeypatch.setattr(column_files, "CSV_BLOCK", 64)
    lines = ["a,y", *["1,2"] * 50, "1.5,2.5"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    rows = cvi.scan(tmp_path / "rows.csv", target="y")
    found = concatenate(*rows.batches())
    assert found.x[-1].tolist() == [1.5] and found.y[-1] == 2.5 and not rows.labels().whole
    assert len(rows) == 51


def test_a_fingerprint_is_of_the_rows_and_the_same_elsewhere(tmp_path):
    source = write_parquet(tmp_path)
    one = cvi.scan(source, target="y").fingerprint()
    code = f"import coresetvi as cvi; print(cvi.scan({source!r}, target='y', batch_rows=10).fingerprint())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == one
    values = TABLE.column("a").to_numpy().copy()
    values[-1] += 1
    changed = TABLE.set_column(0, "a", pyarrow.array(values))
    assert cvi.scan(write_parquet(tmp_path, changed), target="y").fingerprint() != one
    assert cvi.scan(source, target="count").fingerprint() != one


# What is wrong with files, and a part of the sentence that says so; `{}` stands for the folder.


def save(name: str, **columns: object):
    """Writes one table into the folder and returns its path."""

    def write(folder: Path) -> str:
        path, table = folder / name, pyarrow.table(columns)
        pyarrow.parquet.write_table(table, path) if name.endswith("parquet") else pyarrow.csv.write_csv(
            table, path
        )
        return str(path)

    return write


def text(name: str, content: str | bytes):
    def write(folder: Path) -> str:
        raw = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(raw)
        return str(folder / name)

    return write


def together(*writers):
    def write(folder: Path) -> str:
        for writer in writers:
            writer(folder)
        return str(folder)

    return write


def folder_of_folders(folder: Path) -> str:
    (folder / "year=2020").mkdir()
    return str(folder)


NUMBERS = [1.0, 2.0, 3.0]
LATE = "a,b\n" + "1,2\n" * 50 + "old,2\n"
BAD = {
    "no such file": (lambda folder: f"{folder}/no.csv", {}, "{}/no.csv does not exist"),
    "no match": (lambda folder: f"{folder}/*.parquet", {}, "no file matches {}/*.parquet"),
    "empty folder": (str, {}, "{} is an empty folder"),
    "folders inside": (folder_of_folders, {}, "{} has the folder 'year=2020' in it"),
    "unknown ending": (text("a.xlsx", ""), {}, "{}/a.xlsx is not a file of a known kind"),
    "notes in a folder": (
        together(save("a.parquet", a=NUMBERS), text("b.txt", "")),
        {},
        "{}/b.txt is not a file",
    ),
    "not Parquet": (text("a.parquet", "hello"), {}, "{}/a.parquet cannot be read"),
    "empty CSV": (text("a.csv", ""), {}, "{}/a.csv cannot be read"),
    "ragged CSV": (text("a.csv", "a,b\n1,2\n3\n"), {}, "{}/a.csv cannot be read"),
    "not gzip": (text("a.csv.gz", "a,b\n1,2\n"), {}, "{}/a.csv.gz cannot be read"),
    "no rows": (save("a.parquet", a=pyarrow.array([], pyarrow.float64())), {}, "a.parquet has no rows"),
    "header only": (text("a.csv", "a,b\n"), {}, "a.csv has no rows"),
    "two names": (text("a.csv", "a,a\n1,2\n"), {}, "{}/a.csv has two columns named 'a'"),
    "no target": (
        save("a.parquet", a=NUMBERS),
        {"target": "y"},
        "target='y' is not a column of {}/a.parquet",
    ),
    "no weights": (save("a.csv", a=NUMBERS), {"weights": "w"}, "weights='w' is not a column of {}/a.csv"),
    "no column": (save("a.csv", a=NUMBERS), {"columns": ["b"]}, "columns has 'b', which is not a column of"),
    "only a target": (
        save("a.csv", y=NUMBERS),
        {"target": "y"},
        "{}/a.csv has no columns besides the target",
    ),
    "target twice": (save("a.csv", y=NUMBERS), {"target": "y", "weights": "y"}, "target='y' is also given"),
    "column twice": (save("a.csv", a=NUMBERS), {"columns": ["a", "a"]}, "columns has 'a' twice"),
    "columns as text": (save("a.csv", a=NUMBERS), {"columns": "a"}, "columns must be a list of names"),
    "batch_rows": (save("a.csv", a=NUMBERS), {"batch_rows": 0}, "batch_rows must be a whole number"),
    "NaN": (
        save("a.parquet", a=NUMBERS, height=[1.0, np.nan, 2.0]),
        {},
        "{}/a.parquet has a NaN in row 1, column 'height'; drop or impute that row",
    ),
    "null": (
        save("a.parquet", a=NUMBERS, n=[1, 2, None]),
        {},
        "{}/a.parquet has a NaN in row 2, column 'n'",
    ),
    "missing in CSV": (text("a.csv", "a,b\n1,2\n,3\n"), {}, "{}/a.csv has a NaN in row 1, column 'a'"),
    "infinite": (
        save("a.parquet", a=[1.0, np.inf]),
        {},
        "{}/a.parquet has an infinite value in row 1, column 'a'",
    ),
    "too large": (save("a.parquet", a=[1.0, 1e300]), {}, "{}/a.parquet has 1e+300 in row 1, column 'a', too"),
    "text": (
        save("a.parquet", a=["1", "x"]),
        {},
        "{}/a.parquet has 'x' in row 1, column 'a', not a number; leave that column out with columns=",
    ),
    "late text": (text("a.csv", LATE), {}, "{}/a.csv has 'old' in row 50, column 'a', not a number"),
    "date": (
        save("a.parquet", a=pyarrow.array([1], pyarrow.date32())),
        {},
        "{}/a.parquet has 1970-01-02 in row 0, column 'a', not a number",
    ),
    "negative weight": (
        save("a.csv", a=NUMBERS, w=[1.0, -1.0, 1.0]),
        {"weights": "w"},
        "{}/a.csv has -1.0 in row 1, column 'w'; weights must not be negative",
    ),
    "no weight": (
        save("a.csv", a=NUMBERS, w=[0.0, 0.0, 0.0]),
        {"weights": "w"},
        "the weights of {}/a.csv are all zero",
    ),
    "missing label": (
        save("a.parquet", a=NUMBERS, y=["u", None, "v"]),
        {"target": "y"},
        "{}/a.parquet has no label in row 1, column 'y'; drop that row",
    ),
    "NaN label": (
        save("a.parquet", a=NUMBERS, y=[1.0, None, 2.0]),
        {"target": "y"},
        "{}/a.parquet has a NaN in row 1, column 'y'",
    ),
    "names for labels": (
        save("a.parquet", a=np.ones(1500), y=[f"name {n}" for n in range(1500)]),
        {"target": "y"},
        "target 'y' holds text with more than 1000 different values",
    ),
    "numbers as text, and one that is none": (
        save("a.parquet", a=NUMBERS, y=["1", "nan", "2"]),
        {"target": "y"},
        "target 'y' holds text that is numbers, but not all of them fit into float32 (from nan to nan)",
    ),
    "large numbers as text": (
        save("a.parquet", a=NUMBERS, y=["1", "5000000000", "2"]),
        {"target": "y"},
        "not all of them fit into int32 (from 1 to 5e+09)",
    ),
    "column lacking": (
        together(save("a.parquet", a=NUMBERS, b=NUMBERS), save("b.parquet", a=NUMBERS)),
        {},
        "{}/b.parquet lacks the column 'b' that {}/a.parquet has",
    ),
    "column too many": (
        together(save("a.csv", a=NUMBERS), save("b.csv", a=NUMBERS, b=NUMBERS)),
        {},
        "{}/b.csv has the column 'b' that {}/a.csv lacks",
    ),
    "other types": (
        together(save("a.parquet", a=NUMBERS), save("b.parquet", a=["1", "2"])),
        {},
        "{}/b.parquet has text in column 'a', but {}/a.parquet has numbers",
    ),
    "other labels": (
        together(save("a.csv", a=NUMBERS, y=NUMBERS), save("b.csv", a=[1.0], y=["u"])),
        {"target": "y"},
        "{}/b.csv has text in column 'y', but {}/a.csv has numbers",
    ),
    "row of the file": (
        together(save("a.parquet", a=NUMBERS), save("b.parquet", a=[1.0, np.nan])),
        {},
        "{}/b.parquet has a NaN in row 1, column 'a'",
    ),
    "file twice": (lambda folder: [save("a.csv", a=NUMBERS)(folder)] * 2, {}, "{}/a.csv is named twice"),
    "a number": (lambda folder: 3, {}, "source is 3; pass files of rows"),
    "rows in memory": (lambda folder: WHOLE, {}, "source is a Dataset; pass files of rows"),
    "an array": (lambda folder: np.ones(3), {}, "source is a ndarray; pass files of rows"),
    "an iterator": (lambda folder: iter([WHOLE]), {}, "which can be read only once; pass a function"),
    "a function of one batch": (
        lambda folder: lambda: WHOLE,
        {},
        "returned a Dataset; let it return",
    ),
    "a function of nothing": (lambda folder: lambda: None, {}, "returned None; let it return an iterator"),
    "no batches": (lambda folder: lambda: iter([]), {}, "the function given to scan has no rows"),
    "a batch of text": (lambda folder: lambda: iter(["x"]), {}, "batch 0 is 'x'; make batches of (x, y)"),
    "NaN in a batch": (
        lambda folder: lambda: iter([(np.ones((2, 1)),), (np.full((2, 1), np.nan),)]),
        {},
        "batch 1: x has a NaN in row 0, column 0",
    ),
    "NaN in a frame": (
        lambda folder: lambda: iter([pyarrow.table({"a": [1.0, None]})]),
        {},
        "batch 0 has a NaN in row 1, column 'a'",
    ),
    "other columns": (
        lambda folder: lambda: iter([pyarrow.table({"a": [1.0]}), pyarrow.table({"b": [1.0]})]),
        {},
        "batch 1 has the columns 'b', but batches before it have 'a'",
    ),
    "other width": (
        lambda folder: lambda: iter([(np.ones((2, 1)),), (np.ones((2, 2)),)]),
        {},
        "shapes ((2,), None) from row 2 on, but ((1,), None) before",
    ),
    "labels only once": (
        lambda folder: lambda: iter([(np.ones((2, 1)), [0, 1]), (np.ones((2, 1)),)]),
        {},
        "shapes ((1,), None) from row 2 on, but ((1,), ()) before",
    ),
    "no labels": (
        lambda folder: lambda: iter([(np.ones((2, 1)),)]),
        {"target": "y"},
        "target='y' was given, but batch 0 has no labels",
    ),
    "negative weight in a batch": (
        lambda folder: lambda: iter([(np.ones((2, 1)), None, [1, -1])]),
        {},
        "batch 0: weights has -1.0 in row 1; weights must not be negative",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_in_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.setattr(column_files, "CSV_BLOCK", 128)
    write, arguments, words = BAD[name]
    with pytest.raises(InputError) as caught:
        len(cvi.scan(write(tmp_path), **arguments))
    message = str(caught.value)
    assert words.replace("{}", str(tmp_path)) in message
    assert "\n" not in message and message.count(". ") == 0


@pytest.mark.parametrize("kind", ["parquet", "csv", "table"])
def test_rows_are_counted_on_from_piece_to_piece(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(column_files, "CSV_BLOCK", 128)
    table = pyarrow.table({"a": [1.0] * 70 + [np.inf]})
    source = table if kind == "table" else save(f"a.{kind}", a=table.column("a"))(tmp_path)
    with pytest.raises(InputError, match="has an infinite value in row 70, column 'a'"):
        len(cvi.scan(source, batch_rows=16))


# What may happen to files between two passes.


def touch(path: Path) -> None:
    os.utime(path, ns=(0, 0))


def grow(path: Path) -> None:
    pyarrow.parquet.write_table(TABLE, path)


@pytest.mark.parametrize(
    ("happening", "words"), [(touch, "has changed"), (grow, "has changed"), (Path.unlink, "has vanished")]
)
def test_files_must_not_change_between_passes(happening, words, tmp_path):
    rows = cvi.scan(write_parquet(tmp_path), target="y")
    assert len(rows) == NUM
    happening(tmp_path / "3.parquet")
    with pytest.raises(InputError, match=f"3.parquet {words} since it was first read"):
        rows.total(lambda rows: rows.weights @ rows.x)


def test_a_function_must_make_the_same_rows_every_time():
    once = iter([(np.ones((5, 1)),)])
    rows = cvi.scan(lambda: once)
    assert len(rows) == 5
    with pytest.raises(InputError, match="gave 0 rows, but 5 when first read"):
        rows.total(lambda rows: rows.weights @ rows.x)


@pytest.mark.parametrize("lengths", [[5, 4], [5, 6]])
def test_a_function_must_make_as_many_rows_every_time(lengths):
    counts = iter(lengths)
    rows = cvi.scan(lambda: iter([(np.ones((next(counts), 1)),)]))
    assert len(rows) == 5
    with pytest.raises(InputError, match=f"gave {lengths[1]} rows, but 5 when first read"):
        rows.total(lambda rows: rows.weights @ rows.x)


def test_a_batch_whose_rows_all_weigh_nothing_is_fine():
    rows = cvi.scan(lambda: iter([(np.ones((2, 1)), None, [0, 0]), (np.ones((1, 1)), None, [3])]))
    assert rows.total_weight == 3.0 and len(rows) == 3


def test_compressed_files_are_read_by_their_ending(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    assert next(cvi.scan(tmp_path / "a.tsv.gz").batches()).x.tolist() == [[1.0, 2.0]]
