"""Comparisons: a grid of fits that can stop and go on, a table, a picture, and numbers checked by hand."""

import dataclasses
import json
import os
import sys

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli
from coresetvi.constructions import by_name
from coresetvi.data import files, tables
from coresetvi.data import split as held_out
from coresetvi.errors import InputError
from coresetvi.plots import comparison_figure
from coresetvi.posterior import distances as laplace
from coresetvi.posterior.distances import gaussian_kl
from coresetvi.workflows import comparison as compare
from coresetvi.workflows import records

METHODS = ["random-subset", "full-vi", "other"]
GRID = ["--sizes", "8,5,8", "--methods", ",".join(METHODS), "--keys", "2", "--steps", "2"]


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory, quick_compilation):
    """A method that nothing here knows, a Laplace approximation that costs nothing, a cache of our own."""

    def other(size, *, family=None, init="subset"):
        return cvi.RandomSubset(size, family=family, learning_rate=0.05 if init == "subset" else 0.2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        patch.setitem(by_name.METHODS, "other", by_name.Method(other, True, "one more"))
        patch.setattr(compare, "laplace_moments", lambda _, data: (np.array([len(data)]), np.eye(1)))
        patch.setattr(compare, "gaussian_kl", lambda mean, _, full, __: float(full[0] - mean[0]) / 100)
        yield


def run(*arguments):
    return CliRunner().invoke(cli.build_app(), [str(argument) for argument in arguments])


def write_csv(path, labels, seed=0, names=("width", "length")):
    x = np.random.default_rng(seed).normal(size=(len(labels), 2)).round(3)
    lines = [f"{row[0]},{row[1]},{label}" for row, label in zip(x, labels, strict=True)]
    path.write_text("\n".join([",".join([*names, "kind"]), *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of 80 rows, and a comparison of it as JSON and as text."""
    place = tmp_path_factory.mktemp("compare")
    signal = np.random.default_rng(0).normal(size=(80, 2))[:, 0]
    write_csv(place / "table.csv", np.where(signal > 0.5, "yes", "no"))
    asked = ["compare", place / "table.csv", "--target", "kind", *GRID, "--out", place / "out"]
    result = run(*asked, "--family", "mean-field", "--json")
    assert result.exit_code == 0, result.output
    (place / "answer.json").write_text(result.stdout)
    return place


@pytest.fixture
def answer(folder):
    return json.loads((folder / "answer.json").read_text())


@pytest.fixture
def canned(folder, monkeypatch):
    """`cvi.fit` that returns the same fit every time and remembers what it was asked for."""
    data, _ = tables.read_table(folder / "table.csv", target="kind")
    construction = cvi.RandomSubset(5, family=cvi.families.MeanField())
    made = cvi.fit(construction, cvi.models.LogisticRegression(2, intercept=True), data, key=0, num_steps=2)
    calls = []

    def fit(construction, model, data, *, key, num_steps, progress):
        assert progress is False
        calls.append((construction, key, num_steps))
        return dataclasses.replace(made, construction=construction)

    monkeypatch.setattr(compare, "fit_coreset", fit)
    return calls


def ask(folder, out, *more, grid=GRID):
    return ["compare", folder / "table.csv", "--target", "kind", *grid, "--out", out, *more]


def test_every_cell_has_a_record(answer):
    cells = [(record["method"], record["size"], record["key"]) for record in answer["records"]]
    by_key = [("random-subset", 5), ("random-subset", 8), ("full-vi", None), ("other", 5), ("other", 8)]
    assert cells == [(method, size, key) for key in (0, 1) for method, size in by_key]
    assert (answer["rows_fitted"], answer["rows_scored"], answer["model"]) == (72, 8, "logistic")
    for record in answer["records"]:
        assert record["result"] == "finished" and record["steps"] == 2
        assert 0 <= record["accuracy"] <= 1 and record["nll"] > 0 and 0 < record["ess"] <= 1
        assert record["seconds"] > 0 and record["compile_seconds"] > 0
        assert record["coreset_size"] == (record["size"] or 72)
        assert record["total_weight"] == pytest.approx(72, rel=1e-5)
        # The stand-in for the Laplace approximation only counts rows.
        assert record["kl"] == (None if record["size"] is None else (72 - record["size"]) / 100)


def test_a_record_is_what_python_says(folder, answer):
    data, _ = tables.read_table(folder / "table.csv", target="kind")
    model = cvi.models.LogisticRegression(2, intercept=True)
    train, test = held_out.split_rows(data, 2)
    construction = cvi.RandomSubset(8, family=cvi.families.MeanField())
    fit = cvi.fit(construction, model, train, key=1, num_steps=2)
    record = next(one for one in answer["records"] if (one["size"], one["key"]) == (8, 1))
    scores, quality = fit.evaluate(test), fit.reliability(1000)
    assert {name: record[name] for name in scores} == pytest.approx(scores)
    assert [record["ess"], record["khat"]] == pytest.approx([quality["ess"], quality["khat"]])


def test_mean_and_standard_error_by_hand(answer):
    assert compare.mean_and_error([1.0, 2.0, 6.0]) == {
        "mean": 3.0,
        "standard_error": pytest.approx(np.sqrt((4 + 1 + 9) / 2) / np.sqrt(3)),
    }
    assert compare.mean_and_error([2.0, None]) == {"mean": 2.0, "standard_error": None}
    assert compare.mean_and_error([None]) == {"mean": None, "standard_error": None}
    row = answer["summary"][1]
    pair = [one["nll"] for one in answer["records"] if (one["method"], one["size"]) == ("random-subset", 8)]
    assert (row["method"], row["size"], row["fits"]) == ("random-subset", 8, 2)
    assert row["nll"]["mean"] == pytest.approx(sum(pair) / 2)
    # Of two values the deviation is their distance over the root of two, and its error that once more.
    assert row["nll"]["standard_error"] == pytest.approx(abs(pair[0] - pair[1]) / 2)


def test_csv_has_what_the_records_have(folder, answer):
    columns = files.open_table(answer["files"]["table"]).columns
    assert list(columns) == list(answer["records"][0])
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*map(list, columns.values()), strict=True)]
    assert [{name: value.as_py() for name, value in row.items()} for row in rows] == answer["records"]
    for record in answer["records"]:
        name = compare.Cell(record["method"], record["size"], record["key"]).name
        kept = json.loads((folder / "out" / "records" / f"{name}.json").read_text())
        assert kept["record"] == record
    assert (folder / "out" / "records" / "full-vi-all-1.json").exists()


def test_the_second_call_fits_nothing(folder, answer, canned):
    again = run(*ask(folder, folder / "out", "--family", "mean-field", "--json"))
    assert again.exit_code == 0 and canned == []
    assert json.loads(again.stdout)["records"] == answer["records"]
    text = run(*ask(folder, folder / "out", "--family", "mean-field")).stdout
    row = answer["summary"][2]
    accuracy = f"{row['accuracy']['mean']:.3f} ± {row['accuracy']['standard_error']:.3f}"
    line = next(line for line in text.splitlines() if line.startswith("full-vi"))
    assert line.split()[1] == "all" and accuracy in line and " - " in line
    assert text.splitlines()[1].split() == "method size accuracy NLL KL ESS k-hat seconds".split()
    assert str(folder / "out" / "comparison.png") in text


def test_a_larger_grid_fits_only_what_is_new(folder, tmp_path, canned):
    small = ["--sizes", "5", "--methods", "other", "--keys", "1", "--steps", "2"]
    assert run(*ask(folder, tmp_path, grid=small)).exit_code == 0
    assert [(call[0].size, call[1], call[2]) for call in canned] == [(5, 0, 2)]
    larger = ["--sizes", "5,8", "--methods", "other,full-vi", "--keys", "2", "--steps", "2"]
    assert run(*ask(folder, tmp_path, grid=larger)).exit_code == 0
    assert len(canned) == 6
    assert run(*ask(folder, tmp_path, "--overwrite", grid=small)).exit_code == 0
    assert len(canned) == 7
    assert [file.name for file in (tmp_path / "records").iterdir()] == ["other-5-0.json"]


@pytest.mark.parametrize("inside", [False, True])
def test_an_interrupt_keeps_what_is_done(folder, tmp_path, canned, monkeypatch, inside):
    fit = compare.fit_coreset

    def interrupted(*arguments, **named):
        result = fit(*arguments, **named)
        if len(canned) < 4:
            return result
        if not inside:
            raise KeyboardInterrupt
        return dataclasses.replace(result, result="interrupted")  # what the loop makes of Ctrl-C

    with monkeypatch.context() as patch:
        patch.setattr(compare, "fit_coreset", interrupted)
        first = run(*ask(folder, tmp_path))
    assert first.exit_code == 130
    assert "interrupted with 3 of 10 fits done; the same command goes on from there" in first.stderr
    assert "random-subset  8" in first.stdout and "full-vi" in first.stdout and "other" not in first.stdout
    assert len(list((tmp_path / "records").iterdir())) == 3 and (tmp_path / "comparison.png").exists()
    second = run(*ask(folder, tmp_path, "--json"))
    assert second.exit_code == 0 and len(canned) == 4 + 7
    assert len(json.loads(second.stdout)["records"]) == 10


def test_an_interrupt_before_the_first_fit(folder, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "fit_coreset", interrupt)
    answer = run(*ask(folder, tmp_path, "--overwrite", "--json"))
    assert answer.exit_code == 130
    summary = json.loads(answer.stdout)
    assert "the same command without --overwrite goes on" in summary["error"]
    assert summary["records"] == [] and list(summary["files"]) == ["records"]


def test_a_fit_that_fails_does_not_lose_the_others(folder, tmp_path, canned, monkeypatch):
    fit = compare.fit_coreset

    def picky(construction, *arguments, **named):
        if getattr(construction, "size", None) == 8:
            raise InputError("eight is too many; use five")
        return fit(construction, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(compare, "fit_coreset", picky)
        answer = run(*ask(folder, tmp_path, "--json"))
    summary = json.loads(answer.stdout)
    assert answer.exit_code == 1 and "4 of 10 fits failed" in summary["error"]
    assert "note: random-subset, 2 of its fits: eight is too many; use five\n" in answer.stderr
    failed = [record for record in summary["records"] if record["result"] == "failed"]
    assert [record["size"] for record in failed] == [8] * 4
    assert {record["explanation"] for record in failed} == {"eight is too many; use five"}
    assert all(record["nll"] is None for record in failed)
    assert len(canned) == 6
    # They are tried again, the others are not.
    assert run(*ask(folder, tmp_path)).exit_code == 0 and len(canned) == 6 + 4


def test_a_missing_mode_costs_only_the_kl(monkeypatch):
    def fail(*_):
        raise InputError("no mode")

    rows = cvi.Dataset([[0.0]])
    small = compare.Comparison(cvi.models.LinearRegression(1), rows, rows)
    cell = compare.Cell("other", 1, 0)
    assert compare.coreset_kl(small, cell, rows) == 0.0
    large = compare.Comparison(cvi.models.LinearRegression(129), rows, rows)
    assert compare.coreset_kl(large, cell, rows) is None
    monkeypatch.setattr(compare, "posterior_kl", fail)
    assert compare.coreset_kl(small, cell, rows) is None


def test_kl_of_a_linear_model_by_hand(monkeypatch):
    monkeypatch.setattr(compare, "laplace_moments", laplace.laplace_moments)
    monkeypatch.setattr(compare, "gaussian_kl", gaussian_kl)
    generator = np.random.default_rng(0)
    data = cvi.Dataset(generator.normal(size=(30, 2)), generator.normal(size=30))
    coreset = cvi.Dataset(data.x[:6], data.y[:6], np.full(6, 5.0))
    moments = []
    for points in (coreset, data):
        x, y, weights = (np.asarray(part, float) for part in points.to_numpy())
        covariance = np.linalg.inv(np.eye(2) + (x.T * weights) @ x)
        moments.append((covariance @ (x.T @ (weights * y)), covariance))
    (mean, spread), (full_mean, full_spread) = moments
    precision, shift = np.linalg.inv(full_spread), full_mean - mean
    expected = np.trace(precision @ spread) - 2 + shift @ precision @ shift
    expected -= np.log(np.linalg.det(spread) / np.linalg.det(full_spread))
    model = cvi.models.LinearRegression(2)
    kl = compare.posterior_kl(model, coreset, laplace.laplace_moments(model, data))
    assert kl == pytest.approx(expected / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--prior-scale", "2"], "is of another model"),
        (["--seed", "1"], "is of other data"),
        (["--family", "mean-field", "--steps", "3"], "is of another number of steps"),
        (["--init", "noise"], "is of other settings of the method"),
    ],
)
def test_records_of_something_else_are_refused(folder, canned, more, words):
    """The records there were made with --family mean-field and --steps 2."""
    if "--init" in more:
        more = [*more, "--family", "mean-field"]
    answer = run(*ask(folder, folder / "out", *more))
    assert answer.exit_code == 2 and canned == []
    assert words in answer.stderr and "choose another --out or start anew with --overwrite" in answer.stderr


def test_records_of_another_version_are_refused(folder, monkeypatch):
    monkeypatch.setattr(compare, "__version__", "99")
    answer = run(*ask(folder, folder / "out", "--family", "mean-field"))
    assert answer.exit_code == 2 and "another version of coresetvi" in answer.stderr


@pytest.mark.parametrize("content", ["", "[1]", '{"record": {}}', None])
def test_a_damaged_record_is_a_sentence(folder, tmp_path, canned, content):
    assert run(*ask(folder, tmp_path)).exit_code == 0
    file = tmp_path / "records" / "other-5-1.json"
    whole = file.read_text()
    file.write_text(whole.replace('"key": 1', '"key": 2') if content is None else content)
    (tmp_path / "records" / "notes.json").write_text("not a record, and none of our business")
    answer = run(*ask(folder, tmp_path, "--json"))
    assert answer.exit_code == 2 and "Traceback" not in answer.output
    assert f"{file} cannot be read" in json.loads(answer.stdout)["error"]
    assert "delete it, or start anew with --overwrite" in answer.stderr
    file.unlink()
    count = len(canned)
    assert run(*ask(folder, tmp_path)).exit_code == 0 and len(canned) == count + 1
    assert file.read_text() == whole


def test_other_peoples_files_are_left_alone(folder, tmp_path, canned):
    (tmp_path / "comparison.csv").write_text("mine")
    refused = run(*ask(folder, tmp_path))
    assert refused.exit_code == 2 and "exists, but no records that it was made from" in refused.stderr
    assert (tmp_path / "comparison.csv").read_text() == "mine" and canned == []
    (tmp_path / "file").write_text("")
    assert "is a file; choose another --out" in run(*ask(folder, tmp_path / "file")).stderr


def test_numbers_that_json_does_not_know(folder, tmp_path, canned, monkeypatch):
    monkeypatch.setattr(cvi.Fit, "reliability", lambda *_: {"ess": 0.5, "khat": np.inf})
    one = ["--sizes", "5", "--methods", "other", "--keys", "1"]
    for _ in range(2):
        answer = run(*ask(folder, tmp_path, "--json", grid=one))
        assert answer.exit_code == 0 and json.loads(answer.stdout)["records"][0]["khat"] is None
        assert " inf " in run(*ask(folder, tmp_path, grid=one)).stdout
    assert len(canned) == 1


def test_figure(answer):
    figure = comparison_figure.comparison_figure(answer["summary"])
    assert isinstance(figure, Figure)
    nll, kl = figure.axes
    assert nll.get_xscale() == kl.get_xscale() == kl.get_yscale() == "log" and nll.get_yscale() == "linear"
    assert len(nll.lines) == 3 and len(nll.containers) == 2
    assert len(kl.lines) == len(kl.containers) == 2  # without a coreset there is no KL
    subset, level = nll.lines[0], nll.lines[1]
    assert np.asarray(subset.get_xdata()).tolist() == [5, 8]
    assert np.asarray(subset.get_ydata()).tolist() == [row["nll"]["mean"] for row in answer["summary"][:2]]
    assert np.asarray(level.get_ydata()).tolist() == [answer["summary"][2]["nll"]["mean"]] * 2
    bars = nll.containers[0]
    assert isinstance(bars, ErrorbarContainer)
    segment = bars.lines[2][0].get_segments()[0]
    low, high = sorted(segment[:, 1])
    assert (high - low) / 2 == pytest.approx(answer["summary"][0]["nll"]["standard_error"])
    assert [text.get_text() for text in figure.legends[0].texts] == METHODS
    assert [text.get_text() for text in nll.get_xticklabels()] == ["5", "8"]


def test_figure_without_kl_and_with_many_methods():
    def number(mean):
        return {"mean": mean, "standard_error": None}

    rows = [{"method": "a", "size": 5, "nll": number(1.0), "kl": number(None)}]
    assert len(comparison_figure.comparison_figure(rows).axes) == 1
    rows[0]["kl"] = number(0.0)  # not on a logarithmic axis
    assert len(comparison_figure.comparison_figure(rows).axes) == 1
    assert len(comparison_figure.comparison_figure([]).axes) == 1
    rows = [
        {"method": str(n), "size": None if n > 8 else 5, "nll": number(1.0), "kl": number(1.0)}
        for n in range(12)
    ]
    styles = comparison_figure.line_styles(rows)
    looks = {(style.get("marker"), style["linestyle"]) for style in styles.values()}
    assert len(looks) == 12
    markers = [style["marker"] for style in styles.values() if "marker" in style]
    assert len(set(markers)) == len(markers) == 9


def test_without_matplotlib_nothing_is_fitted(folder, tmp_path, canned, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = run(*ask(folder, tmp_path))
    assert answer.exit_code == 2 and "pictures need matplotlib" in answer.stderr and canned == []


def test_split_keeps_the_classes_in_proportion():
    y = np.repeat([0, 1, 2], [60, 30, 10])
    data = cvi.Dataset(np.arange(100.0), y)
    train, test = held_out.split_rows(data, 3, 0.2, seed=1)
    assert train.indices is not None and test.indices is not None
    rows = np.concatenate([train.indices, test.indices])
    assert sorted(rows.tolist()) == list(range(100)) and len(test) == 20
    counts = np.bincount(np.asarray(test.y), minlength=3)
    assert np.all(np.abs(counts - [12, 6, 2]) <= 1)
    same, other = held_out.split_rows(data, 3, 0.2, seed=1)[1], held_out.split_rows(data, 3, 0.2, seed=2)[1]
    np.testing.assert_array_equal(same.x, test.x)
    assert not np.array_equal(other.x, test.x)
    # Numbers are not classes, and a class of one row stays to be fitted.
    assert len(held_out.split_rows(data, None, 0.3)[1]) == 30
    rare = cvi.Dataset(np.arange(6.0), [0, 0, 0, 0, 0, 1])
    for seed in range(10):
        assert 1 in np.asarray(held_out.split_rows(rare, 2, 0.5, seed)[0].y)


def test_without_out_the_folder_is_named_after_the_table(folder, tmp_path, canned, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["compare", folder / "table.csv", "--target", "kind", *GRID]
    assert "Written: table-comparison/comparison.csv" in run(*asked).stdout
    assert len(canned) == 10 and run(*asked).exit_code == 0 and len(canned) == 10
    refused = run(*asked, "--prior-scale", "2")
    assert refused.exit_code == 2 and "choose another --out or start anew with --overwrite" in refused.stderr


def test_a_file_to_score_on(folder, tmp_path, canned):
    test = write_csv(tmp_path / "test.csv", ["yes", "yes", "yes"], seed=3)
    more = ["--test", test, "--json", "--keys", "1"]
    answer = json.loads(run(*ask(folder, tmp_path / "out", *more)).stdout)
    assert (answer["rows_fitted"], answer["rows_scored"]) == (80, 3)
    # In another order and with one more column, by position and with weights: the same rows.
    data = cvi.Dataset(np.zeros((1, 2)), [0], columns=["width", "length"])
    expected = tables.read_new_rows(test, data, "kind").dataset(("no", "yes"))
    assert np.asarray(expected.y).tolist() == [1, 1, 1]
    x = np.asarray(expected.x)
    columns = {"kind": ["yes"] * 3, "length": x[:, 1], "more": ["a"] * 3, "width": x[:, 0], "w": [1, 2, 3]}
    files.write_table(tmp_path / "other.csv", columns)
    other = tables.read_new_rows(tmp_path / "other.csv", data, "kind", "w", ["more"]).dataset(("no", "yes"))
    np.testing.assert_allclose(other.x, x, rtol=1e-6)
    assert np.asarray(other.weights).tolist() == [1, 2, 3]
    np.savez(tmp_path / "plain.npz", x=x, y=np.ones(3), weights=np.ones(3))
    rows = tables.read_new_rows(tmp_path / "plain.npz", data, "kind")
    plain = rows.dataset(None)
    np.testing.assert_array_equal(plain.x, x)
    assert (rows.target, rows.weights, plain.target) == ("y", "weights", "y")
    # Rows without labels are for predictions only.
    (tmp_path / "bare.csv").write_text("length,width\n1,2\n")
    bare = tables.read_new_rows(tmp_path / "bare.csv", data, "kind", need_target=False)
    assert bare.target is None and bare.x.tolist() == [[2, 1]] and bare.dataset(("no", "yes")).y is None
    with pytest.raises(InputError, match="target='kind' is not a column of"):
        tables.read_new_rows(tmp_path / "bare.csv", data, "kind")


def test_an_option_goes_to_the_methods_that_have_it(folder, tmp_path, canned):
    answer = run(*ask(folder, tmp_path, "--init", "noise", "--batch-size", "7"))
    assert answer.exit_code == 0
    assert {call[0].learning_rate for call in canned} == {None, 0.2}
    assert "note: --init does not concern random-subset and full-vi" in answer.stderr
    assert "note: --batch-size does not concern random-subset and other" in answer.stderr


COMPARE = ["compare", "{folder}/table.csv", "--out", "{tmp}/out"]
SIZES = [*COMPARE, "--target", "kind", "--sizes", "5"]
BAD_INPUTS = {
    "unknown method": ([*SIZES, "--methods", "full-vi,magic"], "--methods 'magic' is unknown; choose one of"),
    "no method": ([*SIZES, "--methods", " ,"], "--methods ' ,' names nothing"),
    "no sizes": ([*COMPARE, "--target", "kind"], "bb-psvi needs to know how many points"),
    "empty sizes": ([*COMPARE, "--sizes", ""], "--sizes '' names nothing"),
    "half a point": ([*COMPARE, "--sizes", "5,2.5"], "--sizes has '2.5', not a whole number"),
    "no points": ([*COMPARE, "--sizes", "0"], "--sizes has '0', not a whole number"),
    "fewer points": ([*COMPARE, "--sizes", "5,-3"], "--sizes has '-3'"),
    "odd digits": ([*COMPARE, "--sizes", "²"], "--sizes has '²'"),
    "too many points": ([*SIZES, "--sizes", "5,72,73,99"], "--sizes has 73, but there are only 72 rows"),
    "no keys": ([*SIZES, "--keys", "0"], "--keys 0 leaves nothing to fit; use at least 1"),
    "no part": ([*SIZES, "--test-share", "0"], "--test-share 0 is not a part of the rows"),
    "all": ([*SIZES, "--test-share", "1"], "--test-share 1 is not a part of the rows"),
    "nearly all": ([*SIZES, "--test-share", "0.999"], "--test-share 0.999 of 80 rows leaves too few to fit"),
    "too little": ([*SIZES, "--test-share", "0.001"], "of 80 rows leaves too few to score on"),
    "two tests": ([*SIZES, "--test-share", "0.1", "--test", "x.csv"], "exclude each other"),
    "no test": ([*SIZES, "--test", "{tmp}/none.csv"], "none.csv does not exist"),
    "other columns": (
        [*SIZES, "--test", "{tmp}/other.csv"],
        "lacks 1 of the 2 columns that the fit needs ('length')",
    ),
    "other target": ([*SIZES, "--test", "{tmp}/short.csv"], "--target 'kind' is not a column of"),
    "other classes": ([*SIZES, "--test", "{tmp}/odd.csv"], "has 'perhaps' in row 0"),
    "nothing learns": (
        [*SIZES, "--methods", "random-subset,full-vi", "--learn", "x"],
        "random-subset and full-vi cannot learn locations (--learn); leave it out, or use bb-psvi",
    ),
    "unknown family": ([*SIZES, "--family", "x"], "--family 'x' is unknown"),
    "unknown to learn": ([*SIZES, "--learn", "u"], "learn has the unknown name 'u'"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_one_sentence_and_nothing_is_written(folder, tmp_path, case):
    arguments, sentence = BAD_INPUTS[case]
    write_csv(tmp_path / "other.csv", ["yes"], names=("width", "depth"))
    write_csv(tmp_path / "odd.csv", ["perhaps"])
    (tmp_path / "short.csv").write_text("width,length\n1,2\n")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    answer = run(*(text.format(folder=folder, tmp=tmp_path) for text in arguments), "--json")
    assert answer.exit_code == 2, answer.output
    assert sentence in json.loads(answer.stdout)["error"]
    assert answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_record_is_whole_or_absent(tmp_path, monkeypatch):
    prints: records.Fingerprint = dict.fromkeys(records.PARTS, "same")
    assert records.open_records(tmp_path, {"a-5-0": prints}) == {}
    records.write_record(tmp_path, "a-5-0", prints, {"khat": np.inf, "size": None})
    assert records.open_records(tmp_path, {"a-5-0": prints}) == {"a-5-0": {"khat": np.inf, "size": None}}

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_room)
    with pytest.raises(InputError, match=r"a-5-1.json cannot be written \(No space left on device\)"):
        records.write_record(tmp_path, "a-5-1", prints, {})
    assert [file.name for file in (tmp_path / "records").iterdir()] == ["a-5-0.json"]
