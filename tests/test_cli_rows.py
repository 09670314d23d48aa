"""Large tables on the command line: read in blocks, with the results of the same table in memory."""

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from streamed import fit_rows
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli
from coresetvi.cli.label_values import label_values
from coresetvi.cli.row_tables import TableSource, in_classes, read_rows, rows_like
from coresetvi.cli.table_size import parse_memory
from coresetvi.cli.table_writer import writing_table
from coresetvi.data import streaming
from coresetvi.data.tables import read_new_rows, read_table
from coresetvi.errors import InputError

pytestmark = pytest.mark.usefixtures("quick_compilation")
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(300, 2)).round(4)
LOGITS = 2.0 * X[:, 0] - X[:, 1]
SICK = GENERATOR.uniform(size=300) < 1.0 / (1.0 + np.exp(-LOGITS))
LABELS = {
    "text": np.where(SICK, "sick", "but well").tolist(),
    "signs": np.where(SICK, 1, -1),
    "flags": SICK,
    "floats": SICK.astype(float),
    "three": np.digitize(LOGITS, [-1.0, 1.0]) + 4,
    "amounts": (LOGITS + GENERATOR.normal(size=300)).round(3),
    "counts": GENERATOR.poisson(30.0, 300),
}
TINY = "100"  # bytes: everything is too large for that


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One file and two halves of it for every kind of label, and a fit to each of two kinds."""
    place = tmp_path_factory.mktemp("tables")
    for name, labels in LABELS.items():
        table = pyarrow.table({"id": np.arange(300), "a": X[:, 0], "b": X[:, 1], "kind": labels})
        pyarrow.parquet.write_table(table, place / f"{name}.parquet")
        pyarrow.csv.write_csv(table, place / f"{name}.csv")
        (place / name).mkdir()
        for number, part in enumerate((slice(0, 170), slice(170, 300))):
            pyarrow.parquet.write_table(table.take(np.arange(300)[part]), place / name / f"{number}.parquet")
    for name in ("text", "amounts", "three"):
        result = run("fit", place / f"{name}.parquet", *FIT, "--out", place / f"fit-{name}")
        assert result.exit_code == 0, result.stderr
    return place


FIT = ["--target", "kind", "--drop", "id", "--method", "subset-laplace", "--size", "20"]


def run(*arguments):
    return CliRunner().invoke(cli.build_app(), [str(argument) for argument in arguments])


def columns_of(path):
    return pyarrow.parquet.read_table(path).to_pydict()


@pytest.mark.parametrize(
    "text, size", [("500MB", 5e8), ("2gb", 2e9), ("1.5 KB", 1500), ("77", 77), ("3TB", 3e12)]
)
def test_memory_is_a_size(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "1XB", "GB", "1e9"])
def test_what_is_no_size_is_refused(text, folder):
    with pytest.raises(InputError, match="write it like 500MB"):
        parse_memory(text)
    for command in (
        ["fit", folder / "text.csv", "--target", "kind"],
        ["predict", folder / "fit-text", "x.csv"],
    ):
        result = run(*command, "--memory", text)
        assert result.exit_code == 2 and "write it like 500MB" in result.stderr, command


@pytest.mark.parametrize("kind", ["auto", "classes", "numbers"])
@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("ending", [".csv", ".parquet", ""])
def test_labels_are_read_as_in_memory(folder, name, kind, ending):
    source = TableSource((folder / f"{name}{ending}",), TINY)
    whole = folder / f"{name}{ending or '.parquet'}"
    assert not source.is_plain and not source.is_small
    try:
        data, labels = read_table(whole, "kind", None, ["id"], kind=kind)
    except InputError as error:
        with pytest.raises(InputError) as found:
            read_rows(source, "kind", None, ["id"], kind, None)
        if "too many" not in str(found.value):
            assert str(found.value).split(" has ")[0] == str(error).split(" has ")[0]
        return
    rows, found = read_rows(source, "kind", None, ["id"], kind, None)
    assert not isinstance(rows, cvi.Dataset) and found == labels
    assert rows.columns == ("a", "b") and rows.labels() == data.labels()
    assert np.concatenate([np.asarray(batch.y) for batch in rows.batches()]).tolist() == data.y.tolist()
    if data.labels().counts is not None:
        assert rows.one_of_each().indices.tolist() == data.one_of_each().indices.tolist()
        assert rows.one_of_each().y.tolist() == data.one_of_each().y.tolist()


def test_a_folder_of_few_rows_is_a_table_in_memory(folder):
    rows, labels = read_rows(TableSource((folder / "text",)), "kind", None, ["id"], "auto", None)
    data, known = read_table(folder / "text.parquet", "kind", None, ["id"])
    assert isinstance(rows, cvi.Dataset) and labels == known
    assert rows.fingerprint() == data.fingerprint() and rows.indices is None


def test_new_rows_are_in_the_codes_of_the_fit(folder, tmp_path):
    like = read_table(folder / "three.parquet", "kind", None, ["id"])[0]
    some = pyarrow.parquet.read_table(folder / "three.parquet").slice(0, 40)
    some = some.filter(pyarrow.array(some["kind"].to_numpy() != 4)).select(["kind", "b", "a"])
    path = tmp_path / "some.parquet"
    pyarrow.parquet.write_table(some, path)
    source = TableSource((path,), TINY)
    rows = in_classes(source, rows_like(source, like, "kind", None, ()), "kind", (4, 5, 6))
    wanted = read_new_rows(path, like, "kind").dataset((4, 5, 6))
    assert rows.columns == wanted.columns
    assert np.concatenate([np.asarray(batch.y) for batch in rows.batches()]).tolist() == wanted.y.tolist()
    assert np.concatenate([np.asarray(batch.x) for batch in rows.batches()]).tolist() == wanted.x.tolist()
    with pytest.raises(
        InputError, match="target 'kind' has 6, which the fit does not know; its classes are 4, 5"
    ):
        in_classes(source, rows_like(source, like, "kind", None, ()), "kind", (4, 5))


@pytest.mark.parametrize("name", ["text", "amounts", "three"])
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".tsv.gz"])
def test_predictions_in_blocks_are_those_in_memory(folder, tmp_path, name, ending):
    fit, table = folder / f"fit-{name}", folder / f"{name}.parquet"
    told = []
    for out, data, memory in (("all", table, "1GB"), ("blocks", folder / name, TINY)):
        path = tmp_path / f"{out}{ending}"
        result = run("predict", fit, data, "--out", path, "--memory", memory, "--json")
        assert result.exit_code == 0, result.stderr
        told.append(json.loads(result.stdout))
    if ending == ".parquet":
        one, two = columns_of(tmp_path / "all.parquet"), columns_of(tmp_path / "blocks.parquet")
        assert one.keys() == two.keys()
        for column in one:
            same = (
                one[column] == two[column]
                if column == "prediction"
                else np.allclose(one[column], two[column], rtol=1e-5)
            )
            assert same, column
    assert told[0]["rows"] == told[1]["rows"] == 300 and told[0]["target"] == told[1]["target"] == "kind"
    assert told[0]["scores"].keys() == told[1]["scores"].keys()
    for score, value in told[0]["scores"].items():
        assert told[1]["scores"][score] == pytest.approx(value, rel=1e-4)


def test_predictions_are_whole_or_not_there(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "LEAST_ROWS", 1)
    monkeypatch.setattr(streaming, "MOST_ROWS", 64)  # the first file is predicted before the second is read
    broken = tmp_path / "rows"
    broken.mkdir()
    table = pyarrow.parquet.read_table(folder / "text.parquet").drop_columns(["kind"])
    pyarrow.parquet.write_table(table, broken / "0.parquet")
    values = [None, *X[1:, 0]]
    pyarrow.parquet.write_table(table.set_column(1, "a", [values]), broken / "1.parquet")
    result = run("predict", folder / "fit-text", broken, "--out", tmp_path / "p.csv", "--memory", TINY)
    assert result.exit_code == 2 and "1.parquet" in result.stderr and "row 0" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_predictions_do_not_need_the_truth(folder, tmp_path):
    table = pyarrow.parquet.read_table(folder / "text.parquet").drop_columns(["kind"])
    pyarrow.parquet.write_table(table, tmp_path / "new.parquet")
    out = tmp_path / "p.parquet"
    result = run(
        "predict", folder / "fit-text", tmp_path / "new.parquet", "--out", out, "--memory", TINY, "--json"
    )
    assert json.loads(result.stdout)["scores"] is None and len(columns_of(out)["probability"]) == 300
    unknown = table.append_column("kind", [["neither"] * 300])
    pyarrow.parquet.write_table(unknown, tmp_path / "unknown.parquet")
    result = run(
        "predict",
        folder / "fit-text",
        tmp_path / "unknown.parquet",
        "--memory",
        TINY,
        "--out",
        out,
        "--overwrite",
    )
    assert result.exit_code == 0 and "not scored, because target 'kind' has 'neither'" in result.stderr


def test_certificates_of_large_tables(folder):
    told = []
    for data, memory in (((folder / "text.parquet",), "1GB"), (sorted((folder / "text").iterdir()), TINY)):
        result = run("diagnose", folder / "fit-text", *data, "--memory", memory, "--json", "--drop", "id")
        assert result.exit_code == 0, result.stderr
        told.append(json.loads(result.stdout))
    assert told[0]["verdict"] == told[1]["verdict"]
    for name, value in told[0]["posterior"].items():
        assert told[1]["posterior"][name] == pytest.approx(value, rel=2e-3, abs=1e-3), name


def test_a_large_table_is_fitted_as_rows(folder, tmp_path, monkeypatch):
    seen = []

    def fit(construction, model, rows, *, key, **others):
        seen.append(rows)
        return fit_rows(construction, model, rows, key)

    monkeypatch.setattr("coresetvi.cli.fit.fit_coreset", fit)
    result = run("fit", folder / "signs", *FIT, "--memory", TINY, "--out", tmp_path / "fit", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert not isinstance(seen[0], cvi.Dataset) and seen[0].labels().counts == {
        0: int((~SICK).sum()),
        1: int(SICK.sum()),
    }
    assert told["classes"] == [-1, 1] and told["rows"] == 300 and told["columns"] == ["a", "b"]
    assert cvi.load(tmp_path / "fit").extra["data"] == str(folder / "signs")


def test_what_needs_rows_in_memory_says_so(folder, tmp_path):
    table = folder / "signs.parquet"
    result = run(
        "compare", table, "--target", "kind", "--sizes", "5", "--memory", TINY, "--out", tmp_path / "c"
    )
    assert result.exit_code == 2 and "compare needs all rows in memory; raise --memory" in result.stderr


WRONG = {
    "no target": (["--drop", "id"], "which column of"),
    "another target": (["--target", "z"], "--target 'z' is not a column"),
    "another drop": (["--target", "kind", "--drop", "z"], "--drop 'z' is not a column"),
    "nothing left": (
        ["--target", "kind", "--drop", "a", "--drop", "b", "--drop", "id"],
        "no columns besides",
    ),
    "text": (["--target", "a"], "leave that column out with --drop"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_told_in_flags(folder, tmp_path, name):
    options, sentence = WRONG[name]
    result = run("fit", folder / "text", *options, "--memory", TINY, "--out", tmp_path / "fit")
    assert result.exit_code == 2 and sentence in result.stderr and not (tmp_path / "fit").exists()


def test_a_scheduler_is_passed_on(folder, monkeypatch):
    seen = {}

    def scan(source, *, client, **others):
        seen["client"] = client
        return cvi.scan(source, **others)

    monkeypatch.setattr("coresetvi.cli.row_tables.open_rows", scan)
    source = TableSource((folder / "signs.csv",), scheduler="tcp://here:8786")
    assert not source.is_plain and not source.is_small
    read_rows(source, "kind", None, ["id"], "auto", None)
    assert seen == {"client": "tcp://here:8786"}


def test_floats_are_given_up_as_classes_at_once(folder):
    rows = cvi.scan(folder / "amounts.parquet", target="kind", columns=["a", "b"])
    assert label_values(rows, "double") is None
    floats = cvi.scan(folder / "floats.parquet", target="kind", columns=["a", "b"])
    assert label_values(floats, "double").counts == (int((~SICK).sum()), int(SICK.sum()))


def test_a_table_is_written_in_pieces_or_not_at_all(tmp_path):
    with writing_table(tmp_path / "t.parquet") as write:
        write({"a": [1.5], "b": ["x"]})
        write({"a": [2.5], "b": ["y"]})
    assert columns_of(tmp_path / "t.parquet") == {"a": [1.5, 2.5], "b": ["x", "y"]}
    with pytest.raises(RuntimeError), writing_table(tmp_path / "t.csv.gz") as write:
        write({"a": [1]})
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_folder_that_is_large_is_fitted_in_a_few_passes(tmp_path, monkeypatch):
    (tmp_path / "rows").mkdir()
    for part in range(2):
        half = slice(150 * part, 150 * (part + 1))
        table = pyarrow.table({"a": X[half, 0], "b": X[half, 1], "kind": LABELS["text"][half]})
        pyarrow.parquet.write_table(table, tmp_path / "rows" / f"{part}.parquet")
    monkeypatch.chdir(tmp_path)
    words = ["fit", "rows", "--target", "kind", "--size", "12", "--memory", TINY, "--json"]
    found = CliRunner().invoke(cli.build_app(), words)
    assert found.exit_code == 0, found.output
    summary = json.loads(found.stdout)
    assert 2 <= summary["passes"] <= 12 and summary["kl"] < 0.05
    # Not "rows", which is where the tables are.
    assert cvi.load(tmp_path / "rows-fitted").about["rows"] == 300
