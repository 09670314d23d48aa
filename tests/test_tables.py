"""Reading and writing tables: what arrives in the data set, and what every bad file is told."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from exact import entries
from pyarrow import parquet

from coresetvi.data import files, labels, tables
from coresetvi.errors import InputError

CSV = "width,length,wet,species\n1,2.5,true,rose\n3,4.5,false,iris\n5,6.5,true,rose\n"


def write(folder, name, text):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def arrow_table():
    return pa.table(
        {
            "width": [1, 3, 5],
            "length": [2.5, 4.5, 6.5],
            "wet": [True, False, True],
            "species": pa.array(["rose", "iris", "rose"]).dictionary_encode(),
        }
    )


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.CSV", "a.tsv", "a.tsv.gz", "a.parquet"])
def test_every_format_gives_the_same_data_set(tmp_path, name):
    if name.endswith(".parquet"):
        path = tmp_path / name
        parquet.write_table(arrow_table(), path)
    else:
        path = write(tmp_path, name, CSV.replace(",", "\t") if ".tsv" in name else CSV)
    data, labels = tables.read_table(path, target="species")
    assert data.columns == ("width", "length", "wet") and data.target == "species"
    np.testing.assert_array_equal(data.x, [[1, 2.5, 1], [3, 4.5, 0], [5, 6.5, 1]])
    assert data.y is not None and data.y.tolist() == [1, 0, 1]
    assert labels == tables.Labels("species", ("iris", "rose"))


def test_npz_with_and_without_names(tmp_path):
    x, y = np.arange(6.0).reshape(3, 2), np.array([-1.0, 1.0, 1.0])
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    data, labels = tables.read_table(tmp_path / "plain.npz")
    assert data.columns is None and data.target == "y" and labels.classes == (-1, 1)
    assert data.y is not None and data.y.tolist() == [0, 1, 1]
    np.savez(tmp_path / "named.npz", X=x, y=np.array(["b", "a", "b"]), weights=[1, 2, 3], columns=["p", "q"])
    data, labels = tables.read_table(tmp_path / "named.npz", drop=["p"])
    assert data.columns == ("q",) and data.weights.tolist() == [1, 2, 3] and labels.classes == ("a", "b")


def test_weights_and_dropped_columns_are_no_inputs(tmp_path):
    path = write(tmp_path, "a.csv", "a,w,id,y\n1,2,x,0\n2,3,y,1\n")
    data, _ = tables.read_table(path, target="y", weights="w", drop=["id"])
    assert data.columns == ("a",) and data.weights.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("values", "kind", "codes", "classes"),
    [
        (["b", "a", "b"], "auto", [1, 0, 1], ("a", "b")),
        ([True, False], "auto", [1, 0], (False, True)),
        ([5, 3, 9, 3], "auto", [1, 0, 2, 0], (3, 5, 9)),
        ([10**12, 7], "auto", [1, 0], (7, 10**12)),
        ([-1.0, 1.0], "auto", [0, 1], (-1, 1)),
        ([1.0, 2.0, 3.0], "auto", [1.0, 2.0, 3.0], None),
        ([1.0, 2.0, 3.0], "classes", [0, 1, 2], (1, 2, 3)),
        ([0.5, 1.0], "auto", [0.5, 1.0], None),
        (list(range(21)), "auto", list(range(21)), None),
        ([0, 1, 1], "numbers", [0.0, 1.0, 1.0], None),
        (["2.5", "1"], "numbers", [2.5, 1.0], None),
        ([f"{number}.5" for number in range(21)], "auto", [number + 0.5 for number in range(21)], None),
    ],
)
def test_labels_are_told_from_amounts(values, kind, codes, classes):
    array = np.array(values, dtype=object if isinstance(values[0], str) else None)
    found_codes, found_classes = labels.encode_labels(array, "y", kind)
    assert found_codes.tolist() == codes and found_classes == classes


@pytest.mark.parametrize("values", [[3, 5, 3], [True, False, True], ["b", "a", "b"]], ids=str)
def test_a_target_of_categories_has_their_classes(tmp_path, values):
    """Arrow's dictionaries stand for what is in them, numbers or text."""
    target = pa.array(values).dictionary_encode()
    parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": target}), tmp_path / "a.parquet")
    data, labels = tables.read_table(tmp_path / "a.parquet", target="y")
    assert labels.classes is not None and labels.classes == tuple(sorted(set(values)))
    assert [type(name) for name in labels.classes] == [type(values[0])] * 2
    assert data.y is not None and [labels.classes[code] for code in data.y.tolist()] == values


def test_the_number_of_classes_can_be_larger_than_what_is_seen():
    codes, classes = labels.encode_labels(np.array([0, 2, 2]), "y", "classes", 4)
    assert codes.tolist() == [0, 2, 2] and classes == (0, 1, 2, 3)


def test_known_codes_reads_other_spellings_of_the_same_classes():
    assert labels.known_codes(np.array([2.0, 1.0]), "y", (1, 2)).tolist() == [1, 0]
    assert labels.known_codes(np.array([2, 1]), "y", ("1", "2", "x")).tolist() == [1, 0]
    assert labels.known_codes(np.array([1, 0]), "y", (False, True)).tolist() == [1, 0]
    with pytest.raises(InputError, match="has 7 in row 1, which the fit does not know; its classes are 1, 2"):
        labels.known_codes(np.array([1, 7]), "y", (1, 2))


BAD_LABELS = [
    (["a"] * 3, "auto", None, "single class \\('a'\\)"),
    ([f"n{number}" for number in range(30)], "auto", None, "30 different values.*kind='classes'"),
    (["a", "b"], "numbers", None, "has 'a' in row 0, not a number; use kind='classes'"),
    (["1", "b"], "numbers", None, "has 'b' in row 1, not a number; use kind='classes'"),
    ([1.0, 2.5], "classes", None, "has 2.5 in row 1, not a class"),
    ([0, 1, 2], "classes", 2, "has 3 classes \\(0, 1, 2\\), not the 2 of num_classes="),
]


@pytest.mark.parametrize(("values", "kind", "count", "sentence"), BAD_LABELS)
def test_labels_that_cannot_be(values, kind, count, sentence):
    array = np.array(values, dtype=object if isinstance(values[0], str) else None)
    with pytest.raises(InputError, match=sentence):
        labels.encode_labels(array, "y", kind, count)


BAD_FILES = [
    ("a.csv", "", {"target": "y"}, "cannot be read .*Empty CSV"),
    ("a.csv", "a,y\n", {"target": "y"}, "has no rows"),
    ("a.csv", "a,y\n1,2,3\n", {"target": "y"}, "cannot be read .*Expected 2 columns"),
    ("a.csv", "a,y\n1,0\n", {}, "which column .* name it with target=; it has 'a', 'y'"),
    ("a.csv", "a,y\n1,0\n", {"target": "z"}, "target='z' is not a column .*; it has 'a', 'y'"),
    ("a.csv", "a,y\n1,0\n", {"target": "y", "weights": "w"}, "weights='w' is not a column"),
    ("a.csv", "a,y\n1,0\n", {"target": "y", "drop": ["q"]}, "drop='q' is not a column"),
    ("a.csv", "a,y\n1,0\n", {"target": "y", "drop": ["y"]}, "also given as weights= or drop="),
    ("a.csv", "y\n1\n0\n", {"target": "y"}, "no columns besides the target"),
    ("a.csv", "a,a,y\n1,2,0\n", {"target": "y"}, "two columns named 'a'"),
    ("a.csv", ",a,y\n0,1,0\n1,2,1\n", {"target": "y"}, "column 0 .* has no name .*drop=\\[''\\]"),
    (
        "a.csv",
        "a,b,y\n1,x,0\n2,3,1\n",
        {"target": "y"},
        "column 'b' .* has 'x' in row 0.*drop=\\['b'\\].*one-hot",
    ),
    ("a.csv", "a,b,y\n1,3,0\n2,?,1\n", {"target": "y"}, "column 'b' .* has '\\?' in row 1"),
    ("a.csv", "a,b,y\n1,2024-01-01,0\n", {"target": "y"}, "column 'b' .* not a number"),
    ("a.csv", "a,y\n1,0\n,1\n", {"target": "y"}, "a.csv: x has a NaN in row 1, column 'a'"),
    ("a.csv", "a,y\n1,0\ninf,1\n", {"target": "y"}, "infinite value in row 1, column 'a'"),
    ("a.csv", "a,y\n1,0\n2,\n", {"target": "y"}, "target 'y' .* is missing in row 1"),
    ("a.csv", "a,y\n1,up\n2,\n", {"target": "y"}, "target 'y' .* is missing in row 1"),
    ("a.csv", "a,y\n1,2024-01-01\n", {"target": "y"}, "neither a number nor text"),
    ("a.csv", "a,w,y\n1,-2,0\n1,1,1\n", {"target": "y", "weights": "w"}, "must not be negative"),
    (
        "a.csv",
        "a,w,y\n1,many,0\n1,2,1\n",
        {"target": "y", "weights": "w"},
        "column 'w' .* has 'many' in row 0",
    ),
    ("a.xlsx", "a,y\n1,0\n", {"target": "y"}, "known kind; use a name that ends in .csv"),
    ("a.parquet", "no parquet", {"target": "y"}, "a.parquet cannot be read"),
    ("a.npz", "no archive", {}, "a.npz cannot be read \\(not an archive of plain numbers and text\\)"),
]


@pytest.mark.parametrize(("name", "text", "options", "sentence"), BAD_FILES)
def test_bad_files_are_told_in_one_sentence(tmp_path, name, text, options, sentence):
    path = write(tmp_path, name, text)
    with pytest.raises(InputError, match=sentence) as caught:
        tables.read_table(path, **options)
    assert "\n" not in str(caught.value) and "--" not in str(caught.value)


def test_files_that_are_not_there_or_not_whole(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv does not exist"):
        files.open_table(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is a directory"):
        files.open_table(tmp_path)
    whole = write(tmp_path, "a.csv.gz", CSV)
    whole.write_bytes(whole.read_bytes()[:30])
    with pytest.raises(InputError, match="cannot be read"):
        files.open_table(whole)
    latin = tmp_path / "latin.csv"
    latin.write_bytes("größe,y\n1,0\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        files.open_table(latin)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"y": [0, 1]}, "has no array X"),
        ({"X": [1.0, 2.0], "y": [0, 1]}, "X of .* has shape \\(2,\\)"),
        ({"X": [[1.0], [2.0]], "y": [0, 1, 1]}, "y of .* has shape \\(3,\\), but X has 2 rows"),
        ({"X": [[1.0], [2.0]], "y": [0, 1], "columns": ["a", "b"]}, "2 names in columns, but X has 1"),
        ({"X": [[1.0], [2.0]]}, "name it with target="),
        ({"X": np.array([[1.0], [None]], dtype=object), "y": [0, 1]}, "not an archive of plain numbers"),
    ],
)
def test_bad_archives(tmp_path, arrays, sentence):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=sentence):
        tables.read_table(tmp_path / "a.npz")


def test_long_lists_of_columns_are_cut(tmp_path):
    names = [f"c{number}" for number in range(14)]
    path = write(tmp_path, "a.csv", ",".join(names) + "\n" + ",".join("1" * 14) + "\n")
    with pytest.raises(InputError, match="'c9' and 4 more"):
        tables.read_table(path, target="y")


def test_rows_for_a_fit_go_by_name_or_by_position(tmp_path):
    path = write(tmp_path, "a.csv", "extra,b,a,y\n9,2,1,0\n")
    table = files.open_table(path)
    assert tables.rows_for(table, ("a", "b"), 2, "y").tolist() == [[1, 2]]
    assert tables.rows_for(table, None, 3, "y").tolist() == [[9, 2, 1]]
    with pytest.raises(InputError, match="has 3 columns of inputs, but the fit was made for 2"):
        tables.rows_for(table, None, 2, "y")
    with pytest.raises(InputError, match="lacks 1 of the 2 columns that the fit needs \\('c'\\)"):
        tables.rows_for(table, ("a", "c"), 2, "y")
    np.savez(tmp_path / "a.npz", X=[[1.0, 2.0]], y=[0])
    assert tables.rows_for(files.open_table(tmp_path / "a.npz"), ("a", "b"), 2, "y").tolist() == [[1, 2]]


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.tsv", "out.parquet"])
def test_what_is_written_reads_back(tmp_path, name):
    path = tmp_path / "new" / name
    numbers = np.array([0.1, 1 / 3, 1e-9], dtype=np.float32)
    files.write_table(path, {"number": numbers, "label": ["a", "b,c", 'd"e']})
    back = files.open_table(path).columns
    np.testing.assert_array_equal(np.asarray(back["number"]).astype(np.float32), numbers)
    assert entries(back["label"]) == ["a", "b,c", 'd"e']
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_nothing_is_overwritten_by_accident(tmp_path):
    path = write(tmp_path, "out.csv", "keep me")
    with pytest.raises(InputError, match="exists already; choose another name or pass overwrite=True"):
        files.write_table(path, {"a": [1]})
    assert path.read_text() == "keep me"
    files.write_table(path, {"a": [1]}, overwrite=True)
    assert path.read_text() == '"a"\n1\n'
    for bad, sentence in [("out.xlsx", "known kind"), ("out.csv/a.csv", "is a file"), ("", "known kind")]:
        with pytest.raises(InputError, match=sentence):
            files.check_output(tmp_path / bad)
