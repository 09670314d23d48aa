"""The command line, as people and scripts meet it: output, exit codes, and nothing lost on the way."""

import ast
import dataclasses
import functools
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exact import entries
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli
from coresetvi.cli import choices, console
from coresetvi.cli import demonstration as demo
from coresetvi.cli.shared import TaskOptions
from coresetvi.constructions import by_name
from coresetvi.constructions.defaults import default_size
from coresetvi.data import files, tables
from coresetvi.errors import CoresetviError, InputError

SMALL = ["--size", "6", "--steps", "3"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """One cache of compiled programs for this file and the processes it starts, far from the user's own."""
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place))
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        yield place


def run(*arguments):
    return CliRunner().invoke(cli.build_app(), [str(argument) for argument in arguments])


def process(*arguments, code="from coresetvi.cli import main; main()"):
    """The command in a process of its own."""
    path = os.pathsep.join(filter(None, [str(Path(cvi.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )


def strict(text):
    """The one JSON object that `text` is, with nothing that only Python would accept."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert text.count("\n") == 1
    return json.loads(text, parse_constant=refuse)


def write_csv(path, labels, names=("width", "[red]length")):
    x = np.random.default_rng(0).normal(size=(len(labels), 2)).round(3)
    lines = [",".join([*names, "kind"])]
    lines += [f"{row[0]},{row[1]},{label}" for row, label in zip(x, labels, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables of 40 rows with two, three and countless labels, and a fit to the first."""
    place = tmp_path_factory.mktemp("cli")
    signal = np.random.default_rng(0).normal(size=(40, 2)).round(3)[:, 0]
    write_csv(place / "two.csv", np.where(signal > 0, "yes", "no"))
    write_csv(place / "three.csv", np.digitize(signal, [-0.5, 0.5]) * 10)
    write_csv(place / "amounts.csv", (2.0 * signal + 0.25).round(4))
    result = run("fit", place / "two.csv", "--target", "kind", "--out", place / "two", "--json", *SMALL)
    assert result.exit_code == 0, result.output
    (place / "two.json").write_text(result.stdout)
    return place


def test_fit_tells_what_it_did(folder):
    summary = strict((folder / "two.json").read_text())
    assert summary["model"] == "LogisticRegression" and summary["parameters"] == 3
    assert summary["classes"] == ["no", "yes"] and summary["columns"] == ["width", "[red]length"]
    assert (summary["rows"], summary["size"], summary["steps"]) == (40, 6, 3)
    assert summary["result"] == "finished" and summary["out"] == str(folder / "two")
    assert summary["kl"] is None or summary["kl"] >= 0
    assert summary["reliability"]["num_samples"] >= 1000
    fit = cvi.load(folder / "two")
    assert fit.model == cvi.models.LogisticRegression(2, intercept=True)
    assert fit.extra["classes"] == ["no", "yes"] and fit.extra["seed"] == 0


def test_the_same_seed_gives_the_same_bits_and_says_so_to_people(folder, tmp_path):
    arguments = ["fit", folder / "two.csv", "--target", "kind", *SMALL]
    again = run(*arguments, "--out", tmp_path / "again")
    other = run(*arguments, "--out", tmp_path / "other", "--seed", 1)
    assert again.exit_code == other.exit_code == 0
    first, second, third = (
        cvi.load(place) for place in (folder / "two", tmp_path / "again", tmp_path / "other")
    )
    for name in ("x", "weights"):
        np.testing.assert_array_equal(getattr(first.coreset, name), getattr(second.coreset, name))
    for name, leaf in first.psi.items():
        np.testing.assert_array_equal(leaf, second.psi[name])
    assert not np.array_equal(first.coreset.x, third.coreset.x)
    for words in (
        "holds 2 classes, so the model is logistic",
        "40 rows",
        "6 points",
        "k-hat",
        "estimated KL",
    ):
        assert words in again.stdout
    assert (
        f"Saved in {tmp_path / 'again'}. Next: coresetvi predict {tmp_path / 'again'} DATA\n" in again.stdout
    )


def test_fit_equals_python(folder):
    data, _ = tables.read_table(folder / "two.csv", target="kind")
    model = cvi.models.LogisticRegression(2, intercept=True)
    python = cvi.fit(cvi.BBPSVI(size=6), model, data, key=0, num_steps=3)
    np.testing.assert_array_equal(python.coreset.x, cvi.load(folder / "two").coreset.x)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_equals_python(folder, tmp_path, ending):
    out = tmp_path / f"predictions.{ending}"
    result = run("predict", folder / "two", folder / "two.csv", "--out", out, "--json")
    summary = strict(result.stdout)
    assert result.exit_code == 0 and summary["columns"] == ["probability", "prediction"]
    fit, (data, _) = cvi.load(folder / "two"), tables.read_table(folder / "two.csv", target="kind")
    columns = files.open_table(out).columns
    expected = fit.predict(data.x)
    np.testing.assert_array_equal(np.asarray(columns["probability"]).astype(np.float32), expected)
    assert entries(columns["prediction"]) == ["yes" if value > 0.5 else "no" for value in expected]
    assert summary["scores"] == pytest.approx(fit.evaluate(data)) and summary["target"] == "kind"


def test_predict_takes_columns_by_name_or_position(folder, tmp_path):
    data, _ = tables.read_table(folder / "two.csv", target="kind")
    x = np.asarray(data.x)
    files.write_table(
        tmp_path / "other.parquet", {"more": ["text"] * 40, "[red]length": x[:, 1], "width": x[:, 0]}
    )
    np.savez(tmp_path / "plain.npz", x=x)
    answers = []
    for source in (folder / "two.csv", tmp_path / "other.parquet", tmp_path / "plain.npz"):
        out = tmp_path / f"{source.stem}.csv"
        result = run("predict", folder / "two", source, "--out", out)
        assert result.exit_code == 0 and "Wrote 40 predictions" in result.stdout
        assert ("accuracy" in result.stdout) == (source.name == "two.csv")
        answers.append(out.read_text())
    assert answers[0] == answers[1] == answers[2]


def test_labels_that_cannot_be_scored_do_not_cost_the_predictions(folder, tmp_path):
    source = write_csv(tmp_path / "new.csv", ["perhaps"] * 3)
    out = tmp_path / "p.csv"
    result = run("predict", folder / "two", source, "--out", out, "--json")
    assert result.exit_code == 0 and out.exists()
    assert "has 'perhaps' in row 0, which the fit does not know" in strict(result.stdout)["notes"][0]
    asked = run("predict", folder / "two", source, "--out", tmp_path / "q.csv", "--target", "kind")
    assert asked.exit_code == 2 and not (tmp_path / "q.csv").exists()


@pytest.fixture
def quick(monkeypatch):
    """A construction that compiles in a few seconds, where a test is about everything around it."""

    def make(size, **_):
        return cvi.RandomSubset(size, family=cvi.families.MeanField())

    monkeypatch.setattr(demo, "BBPSVI", make)
    monkeypatch.setitem(by_name.METHODS, "bb-psvi", by_name.METHODS["bb-psvi"]._replace(make=make))


@pytest.mark.usefixtures("quick")
def test_three_classes_from_numbers(folder, tmp_path):
    fitted = run("fit", folder / "three.csv", "--target", "kind", "--out", tmp_path / "fit", *SMALL)
    assert fitted.exit_code == 0 and "model is softmax" in fitted.stdout
    assert "6 points cannot pin down 9 parameters; use --size 18" in fitted.stderr
    out = tmp_path / "p.csv"
    assert run("predict", tmp_path / "fit", folder / "three.csv", "--out", out).exit_code == 0
    columns = files.open_table(out).columns
    assert list(columns) == ["probability_0", "probability_10", "probability_20", "prediction"]
    total = sum(np.asarray(columns[name]) for name in list(columns)[:3])
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)
    assert set(entries(columns["prediction"])) <= {0, 10, 20}
    shown = run("inspect", tmp_path / "fit", "--points", 2)
    assert shown.exit_code == 0 and "[red]length" in shown.stdout and "classes 0, 10, 20" in shown.stdout


def test_amounts_checkpoint_and_resume(folder, tmp_path):
    common = ["fit", folder / "amounts.csv", "--target", "kind", "--checkpoint", tmp_path / "kept", *SMALL]
    first = run(*common, "--out", tmp_path / "a")
    assert first.exit_code == 0 and "holds numbers, so the model is linear" in first.stdout
    refused = run(*common, "--out", tmp_path / "b")
    assert refused.exit_code == 2 and "--resume" in refused.stderr and not (tmp_path / "b").exists()
    assert run(*common, "--out", tmp_path / "b", "--resume").exit_code == 0
    np.testing.assert_array_equal(cvi.load(tmp_path / "a").coreset.x, cvi.load(tmp_path / "b").coreset.x)
    out = tmp_path / "p.csv"
    assert "rmse" in run("predict", tmp_path / "a", folder / "amounts.csv", "--out", out).stdout
    mean, variance = cvi.load(tmp_path / "a").predict(
        tables.read_table(folder / "amounts.csv", target="kind")[0].x, variance=True
    )
    columns = files.open_table(out).columns
    np.testing.assert_array_equal(np.asarray(columns["mean"]).astype(np.float32), mean)
    np.testing.assert_array_equal(np.asarray(columns["variance"]).astype(np.float32), variance)


def test_inspect_counts_the_weight(folder):
    summary = strict(run("inspect", folder / "two", "--points", 3, "--json").stdout)
    weights = np.asarray(cvi.load(folder / "two").coreset.weights, dtype=float)
    shares = weights / weights.sum()
    assert summary["effective_points"] == pytest.approx(1 / np.sum(shares**2))
    assert summary["weight_entropy"] == pytest.approx(-np.sum(shares * np.log(shares)))
    assert [point["weight"] for point in summary["points"]] == sorted(weights.tolist(), reverse=True)[:3]
    assert set(summary["points"][0]["x"]) == {"width", "[red]length"}
    assert summary["points"][0]["target"] in ("no", "yes") and summary["about"]["jax"]


@pytest.mark.parametrize(("result", "code"), [("non_finite", 1), ("interrupted", 130)])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_fit_that_went_wrong_is_saved_all_the_same(folder, tmp_path, monkeypatch, result, code, as_json):
    fit = dataclasses.replace(cvi.load(folder / "two"), result=result)
    monkeypatch.setattr(cli.fit, "fit_coreset", lambda *_, **__: fit)
    arguments = ["fit", folder / "two.csv", "--target", "kind", "--out", tmp_path / "out", *SMALL]
    answer = run(*arguments, *(["--json"] if as_json else []))
    assert answer.exit_code == code and f"error: {fit.explanation}" in answer.stderr
    assert cvi.load(tmp_path / "out").result == result
    if as_json:
        assert strict(answer.stdout)["error"] == fit.explanation


@pytest.mark.parametrize(
    ("options", "construction"),
    [
        (["--method", "random-subset", "--size", "6"], cvi.RandomSubset(6)),
        (["--method", "random-subset"], cvi.RandomSubset(20)),
        (["--method", "full-vi", "--batch-size", "9"], cvi.FullVI(batch_size=9)),
        (["--learn", "x, weights", "--size", "6"], cvi.BBPSVI(6, learn={"x", "weights"})),
        (["--init", "noise", "--size", "6"], cvi.BBPSVI(6, init="noise")),
        (
            ["--family", "mean-field", "--size", "6"],
            cvi.BBPSVI(6, family=cvi.families.MeanField()),
        ),
        ([], cvi.BBPSVI(20)),
    ],
)
def test_the_construction_is_what_was_asked_for(folder, tmp_path, monkeypatch, options, construction):
    asked = []

    def fit(construction, *_, **__):
        asked.append(construction)
        return cvi.load(folder / "two")

    monkeypatch.setattr(cli.fit, "fit_coreset", fit)
    answer = run("fit", folder / "two.csv", "--target", "kind", "--out", tmp_path / "out", *options)
    assert answer.exit_code == 0 and asked == [construction]


def test_an_interrupt_before_the_first_step(folder, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.fit, "fit_coreset", interrupt)
    answer = run("fit", folder / "two.csv", "--target", "kind", "--out", tmp_path / "out")
    assert answer.exit_code == 130 and answer.stderr == "error: interrupted\n"


def test_without_out_results_are_named_after_the_table(folder, tmp_path, monkeypatch):
    """They go where the user is, and replace nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.fit, "fit_coreset", lambda *_, **__: cvi.load(folder / "two"))
    for name, saved in (("two.csv", "two"), ("rows.TSV.gz", "rows")):
        (tmp_path / "data").mkdir(exist_ok=True)
        source = tmp_path / "data" / name
        columns = {
            name: entries(column) for name, column in files.open_table(folder / "two.csv").columns.items()
        }
        files.write_table(source, columns)
        fitted = run("fit", source, "--target", "kind")
        assert fitted.exit_code == 0, fitted.output
        assert f"Saved in {saved}. Next: coresetvi predict {saved} DATA" in fitted.stdout
        assert cvi.load(tmp_path / saved).extra["data"] == str(source)
        refused = run("fit", source, "--target", "kind")
        assert refused.exit_code == 2
        assert f"{saved} exists already; choose another directory or pass --overwrite\n" in refused.stderr
        assert run("fit", source, "--target", "kind", "--overwrite").exit_code == 0
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "notes.txt").write_text("keep me")
    refused = run("fit", folder / "three.csv", "--target", "kind", "--overwrite")
    assert refused.exit_code == 2 and "three holds files that are not part of a saved fit" in refused.stderr
    np.savez(tmp_path / "data" / "new.npz", X=np.zeros((2, 2)))
    for source, out in (("two.csv", "two-predictions.csv"), ("new.npz", "new-predictions.csv")):
        arguments = ["predict", folder / "two", tmp_path / "data" / source]
        assert f" predictions to {out}.\n" in run(*arguments).stdout
        assert (tmp_path / out).is_file()
        refused = run(*arguments)
        assert refused.exit_code == 2
        assert f"{out} exists already; choose another name or pass --overwrite" in refused.stderr


def test_a_shared_option_is_one_field():
    """`fit` and `compare` have all of them, in the same words."""
    shared = [field.name for field in dataclasses.fields(TaskOptions)]
    fit, compare = (inspect.signature(command).parameters for command in (cli.fit.fit, cli.compare.compare))
    for name in shared:
        assert fit[name] == compare[name]
    assert "task" not in fit and "task" not in compare and len(shared) == 19


FIT = ["fit", "{folder}/two.csv", "--out", "{tmp}/out"]
TARGET = ["--target", "kind"]
BAD_INPUTS = {
    "no target": (FIT, "name it with --target; it has 'width', '[red]length', 'kind'"),
    "unknown target": ([*FIT, "--target", "y"], "--target 'y' is not a column"),
    "unknown weights": ([*FIT, *TARGET, "--weights", "w"], "--weights 'w' is not a column"),
    "unknown fixed column": ([*FIT, *TARGET, "--fixed", "w"], "--fixed 'w' is not a column"),
    "unknown model": ([*FIT, *TARGET, "--model", "tree"], "--model 'tree' is unknown; choose one of auto"),
    "unknown family": ([*FIT, *TARGET, "--family", "x"], "--family 'x' is unknown"),
    "unknown init": ([*FIT, *TARGET, "--init", "x"], "init must be one of"),
    "unknown method": (
        [*FIT, *TARGET, "--method", "magic"],
        "--method 'magic' is unknown; choose one of bb-psvi",
    ),
    "start of a subset": (
        [*FIT, *TARGET, "--method", "random-subset", "--init", "noise"],
        "--init is not for random-subset; leave it out, or use bb-psvi",
    ),
    "batch of a subset": (
        [*FIT, *TARGET, "--method", "random-subset", "--batch-size", "9"],
        "--batch-size is not for random-subset; leave it out, or use bb-psvi",
    ),
    "learning a subset": (
        [*FIT, *TARGET, "--method", "random-subset", "--learn", "x,weights"],
        "random-subset cannot learn weights and locations (--learn); leave it out, or use bb-psvi",
    ),
    "size of everything": (
        [*FIT, *TARGET, "--method", "full-vi", "--size", "5"],
        "--size is not for full-vi, which takes all rows; leave it out",
    ),
    "unknown to learn": ([*FIT, *TARGET, "--learn", "x,u"], "learn has the unknown name 'u'; choose from"),
    "nothing to learn": ([*FIT, *TARGET, "--learn", ","], "--learn ',' names nothing"),
    "text for linear": (
        [*FIT, *TARGET, "--model", "linear"],
        "not a number; use --model logistic or softmax",
    ),
    "logistic of three": (
        ["fit", "{folder}/three.csv", *TARGET, "--out", "{tmp}/out", "--model", "logistic"],
        "has 3 classes, but --model logistic is for 2; use softmax",
    ),
    "too many points": ([*FIT, *TARGET, "--size", "41"], "size is 41, but the data have only 40 rows"),
    "noise of classes": ([*FIT, *TARGET, "--noise", "2"], "--noise is for regressions"),
    "hidden of a line": ([*FIT, *TARGET, "--hidden", "2"], "--hidden is for an mlp"),
    "hidden no number": ([*FIT, *TARGET, "--model", "mlp", "--hidden", "a"], "write it like 20,20"),
    "mlp no intercept": ([*FIT, *TARGET, "--model", "mlp", "--no-intercept"], "not for an mlp"),
    "prior of zero": ([*FIT, *TARGET, "--prior-scale", "0"], "prior_scale must be positive"),
    "wrong classes": ([*FIT, *TARGET, "--classes", "3"], "has 2 classes ('no', 'yes'), not the 3"),
    "resume from nowhere": ([*FIT, *TARGET, "--resume"], "pass --checkpoint DIR"),
    "checkpoint is out": ([*FIT, *TARGET, "--checkpoint", "{tmp}/out/a"], "two separate directories"),
    "no data": (["fit", "{tmp}/none.csv", "--out", "{tmp}/out"], "none.csv does not exist"),
    "no fit": (["predict", "{tmp}/none", "{folder}/two.csv", "--out", "{tmp}/p.csv"], "does not exist"),
    "no fit to show": (["inspect", "{tmp}/none"], "none does not exist"),
    "lacks columns": (
        ["predict", "{folder}/two", "{tmp}/short.csv", "--out", "{tmp}/p.csv"],
        "lacks 1 of the 2 columns that the fit needs ('[red]length')",
    ),
    "unknown ending": (["predict", "{folder}/two", "{folder}/two.csv", "--out", "{tmp}/p.xls"], "known kind"),
    "no such truth": (
        ["predict", "{folder}/two", "{folder}/two.csv", "--out", "{tmp}/p.csv", "--target", "y"],
        "--target 'y' is not a column",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, tmp_path, case):
    arguments, sentence = BAD_INPUTS[case]
    (tmp_path / "short.csv").write_text("width\n1\n")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    answer = run(*(text.format(folder=folder, tmp=tmp_path) for text in arguments), "--json")
    assert answer.exit_code == 2
    assert sentence in strict(answer.stdout)["error"]
    assert answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_nothing_is_replaced_unless_asked(folder, tmp_path):
    arguments = ["fit", folder / "two.csv", "--target", "kind", *SMALL]
    out = tmp_path / "out"
    cvi.load(folder / "two").save(out)
    content = (out / "arrays.safetensors").read_bytes()
    refused = run(*arguments, "--seed", 1, "--out", out)
    assert refused.exit_code == 2 and "--overwrite" in refused.stderr
    assert (out / "arrays.safetensors").read_bytes() == content
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    assert run(*arguments, "--out", tmp_path / "mine", "--overwrite").exit_code == 2
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"
    assert run(*arguments, "--seed", 1, "--out", out, "--overwrite").exit_code == 0
    assert (out / "arrays.safetensors").read_bytes() != content

    data = tmp_path / "data.csv"
    data.write_text((folder / "two.csv").read_text())
    for options, sentence in (([], "--overwrite"), (["--overwrite"], "is the table to predict")):
        refused = run("predict", folder / "two", data, "--out", data, *options)
        assert refused.exit_code == 2 and sentence in refused.stderr
    assert data.read_text() == (folder / "two.csv").read_text()


def test_a_damaged_fit_is_a_sentence(folder, tmp_path):
    cvi.load(folder / "two").save(tmp_path / "fit")
    (tmp_path / "fit" / "arrays.safetensors").write_bytes(b"short")
    for command in (["inspect", tmp_path / "fit"], ["predict", tmp_path / "fit", "x.csv", "--out", "p.csv"]):
        answer = run(*command)
        assert answer.exit_code == 2 and "truncated or was changed" in answer.stderr
        assert "Traceback" not in answer.output


def test_models_are_built_as_asked(folder):
    amounts, numbers = tables.read_table(folder / "amounts.csv", target="kind")
    three, labels = tables.read_table(folder / "three.csv", target="kind")
    build = choices.build_model
    assert build("mlp", three, labels, True, 2.0, None, "4,3") == cvi.models.BayesianMLP(
        2, (4, 3), 3, prior_scale=2.0
    )
    assert build("mlp", amounts, numbers, True, 1.0, 0.5, None) == cvi.models.BayesianMLP(
        2, (20,), None, noise=0.5
    )
    assert build("poisson", amounts, numbers, False, 1.0, None, None) == cvi.models.PoissonRegression(2)
    assert build("linear", amounts, numbers, True, 1.0, 3.0, None) == cvi.models.LinearRegression(
        2, noise=3.0, intercept=True
    )
    wide = cvi.models.BayesianMLP(2, (200,), 3)
    assert default_size(wide, len(three)) == 40 and default_size(cvi.models.PoissonRegression(2), 40) == 20


@pytest.mark.parametrize(
    ("sentence", "flags"),
    [
        ("pass overwrite=True", "pass --overwrite"),
        ("pass resume=True to continue", "pass --resume to continue"),
        ("target='z' is not a column", "--target 'z' is not a column"),
        ("name it with target=; it has 'a'", "name it with --target; it has 'a'"),
        ("leave it out with drop=['[red] length'], or", "leave it out with --drop '[red] length', or"),
        ("leave it out with drop=['']", "leave it out with --drop ''"),
        ("say so like sizes=[10, 40, 100]", "say so like --sizes 10,40,100"),
        ("share=0.999 of 80 rows", "--test-share 0.999 of 80 rows"),
        ("batch_size= is not for it", "--batch-size is not for it"),
        ("not the 3 of num_classes=; leave it out", "not the 3 of --classes; leave it out"),
        ("pass a larger num_steps to go on.", "pass a larger --steps to go on."),
        ("use kind='numbers' for amounts", "use --model linear for amounts"),
        # What people have called so themselves stays as it is.
        ("data/target=1/a.csv has no rows", "data/target=1/a.csv has no rows"),
        ("target=1/a.csv has no rows", "target=1/a.csv has no rows"),
        ("column 'size=' has 'size=3' in row 1", "column 'size=' has 'size=3' in row 1"),
        ("inner= must be an Inner", "inner= must be an Inner"),
    ],
)
def test_the_librarys_arguments_become_flags(sentence, flags):
    assert console.in_flags(sentence) == flags and console.in_flags(flags) == flags


def test_python_reads_arguments_where_the_command_line_reads_flags(folder, tmp_path):
    """The same mistakes in both languages."""
    out = tmp_path / "out"
    table = str(folder / "two.csv")
    mistakes = [
        (
            lambda: tables.read_table(table),
            ["fit", table],
            "name it with target=; it has",
            "name it with --target; it has",
        ),
        (
            lambda: tables.read_table(table, "kind", drop=["u"]),
            ["fit", table, "--target", "kind", "--drop", "u"],
            "drop='u' is not",
            "--drop 'u' is not",
        ),
        (
            lambda: tables.read_table(table, "width"),
            ["fit", table, "--target", "width"],
            "leave the column out with drop=['kind'], or",
            "leave the column out with --drop kind, or",
        ),
        (
            lambda: by_name.build_construction("full-vi", 5),
            ["fit", table, "--target", "kind", "--method", "full-vi", "--size", "5"],
            "size= is not for full-vi",
            "--size is not for full-vi",
        ),
        (
            lambda: by_name.build_construction("random-subset", 5, batch_size=9),
            ["fit", table, "--target", "kind", "--method", "random-subset", "--batch-size", "9"],
            "batch_size= is not for random-subset",
            "--batch-size is not for random-subset",
        ),
        (
            lambda: cvi.load(folder / "two").save(folder / "two"),
            ["fit", table, "--target", "kind", "--out", str(folder / "two")],
            "or pass overwrite=True",
            "or pass --overwrite",
        ),
    ]
    for call, arguments, python, flags in mistakes:
        with pytest.raises(CoresetviError) as caught:
            call()
        assert python in str(caught.value) and "--" not in str(caught.value)
        answer = run(*arguments, *([] if "--out" in arguments else ["--out", out]))
        assert answer.exit_code == 2 and flags in answer.stderr and not out.exists()


def test_no_message_of_the_library_names_a_flag():
    root = Path(cvi.__file__).parent
    found = []
    for file in sorted(root.rglob("*.py")):
        place = file.relative_to(root)
        if place.parts[0] in ("cli",):  # commands, which may speak of their options
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            text = node.value if isinstance(node, ast.Constant) else ""
            if isinstance(node, ast.JoinedStr):  # also f"--{name}"
                parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
                text = "".join(map(str, parts))
            if isinstance(text, str) and re.search(r"(?<![\w-])--[a-z]", text):
                found.append(f"{place}:{getattr(node, 'lineno', 0)}: {text}")
    assert not found, "\n".join(found)


def test_help_has_examples():
    for command in (
        "fit",
        "predict",
        "inspect",
        "sample",
        "diagnose",
        "plot",
        "export",
        "compare",
        "demo",
    ):
        text = run(command, "--help").stdout
        assert f"\n    coresetvi {command}" in text and "--json" in text
    assert cvi.__version__ in run("--version").stdout


def test_a_cache_that_cannot_be_written_is_no_error(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run("inspect", folder / "two").exit_code == 0


def test_in_a_process_of_its_own(folder, tmp_path):
    good = process("predict", folder / "two", folder / "two.csv", "--out", tmp_path / "p.csv", "--json")
    assert good.returncode == 0 and strict(good.stdout)["rows"] == 40
    wrong = process("fit", "--json", "--size", "none")
    assert wrong.returncode == 2 and "See coresetvi fit --help" in strict(wrong.stdout)["error"]
    assert "Traceback" not in wrong.stderr


def test_names_that_the_terminal_cannot_spell(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code = (
        "from coresetvi import cli; import sys; sys.argv[1:] = ['--version']; cli.say = lambda _: print('é')"
    )
    answer = process(code=f"{code}; cli.main()")
    assert answer.returncode == 0 and answer.stdout == "\\xe9\n"


def test_without_typer_it_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from coresetvi.__main__ import main; main()"
    answer = process("fit", code=code)
    assert answer.returncode == 1 and answer.stdout == ""
    assert answer.stderr == 'error: the command line needs typer; pip install "coresetvi[cli]"\n'


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_demo_runs_twice_and_replaces_only_its_own_files(tmp_path, monkeypatch):
    out = tmp_path / "demo"
    monkeypatch.setattr(demo, "run", functools.cache(demo.run))  # what counts twice is what is written
    monkeypatch.setattr(demo, "SUBSETS", 1)
    first = run("demo", "--out", out, "--steps", 2)
    assert first.exit_code == 0, first.output
    assert "full-data VI" in first.stdout and "random subset" in first.stdout
    (out / "mine.txt").write_text("keep me")
    second = strict(run("demo", "--out", out, "--steps", 2, "--json").stdout)
    names = [row["method"] for row in second["methods"]]
    assert names == ["full-data VI", "BB PSVI coreset", "random subset (middle of 1)"]
    assert [row["points"] for row in second["methods"]] == [1000, 20, 20]
    assert second["methods"][0]["entropy_difference"] == 0
    assert (out / "halfmoon.png").read_bytes().startswith(b"\x89PNG")
    assert len(files.open_table(out / "coreset.csv").columns["weight"]) == 20
    assert cvi.load(out / "coreset").coreset.dim == 2
    assert sorted(path.name for path in out.iterdir()) == [
        "coreset",
        "coreset.csv",
        "halfmoon.png",
        "mine.txt",
    ]


def test_demo_leaves_other_peoples_files_alone(folder, tmp_path):
    (tmp_path / "halfmoon.png").write_text("a holiday")
    answer = run("demo", "--out", tmp_path)
    assert answer.exit_code == 2 and "halfmoon.png exists and was not written by" in answer.stderr
    assert (tmp_path / "halfmoon.png").read_text() == "a holiday"
    cvi.load(folder / "two").save(tmp_path / "b" / "coreset")
    with pytest.raises(InputError, match="was not written by the demonstration"):
        demo.check_folder(tmp_path / "b")
