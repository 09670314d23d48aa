"""Experiments as data: what a file says is what runs, stops and goes on, and ends in a table of records."""

import csv
import dataclasses
import doctest
import importlib
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli
from coresetvi.configuration import encode
from coresetvi.errors import InputError
from coresetvi.plots import figures as plots
from coresetvi_paper import (
    cells,
    experiment_names,
    measures,
    pictures,
    read_experiment,
    result_table,
    runner,
    toml_objects,
)
from coresetvi_paper import reproduce as reproduce_command
from coresetvi_paper.cells import PaperCell
from coresetvi_paper.experiment_files import parse

TINY = """
title = "A tiny table"
sizes = [4, 6]
keys = 2
num_steps = 2
num_samples = 7
num_test = 50
views = ["sizes"]
paper = [
  ["four", "accuracy", "Random coreset", 4, 50.0, 1.5],
  ["four", "accuracy", "Everything", "all", 90.0, 0.5],
]

[quick]
sizes = [5]
keys = 1
dataset = { n = 40 }

[[problems]]
id = "four"
dataset = { name = "four_class", n = 60 }
model = { type = "SoftmaxRegression", num_features = 2, num_classes = 4 }
transfer = { type = "SoftmaxRegression", num_features = 2, num_classes = 4, intercept = true }

[[methods]]
id = "random"
name = "Random coreset"
construction = "RandomSubset"
options = { family = { type = "MeanField" }, learning_rate = 0.1 }
transfer = [6]

[[methods]]
id = "full"
name = "Everything"
construction = "FullVI"
options = { family = { type = "MeanField" } }
retrain = false
"""
NAMES = [f"four-{part}-{key}" for key in (0, 1) for part in ("random-4", "random-6", "full-all")]


def drawn(fit, *, key, model=None, num_steps=None, time_limit=None, progress=None):
    """In the place of a fresh posterior: one that the key decides, which costs nothing."""
    assert (num_steps is None) != (time_limit is None)
    model, family = fit.model if model is None else model, cvi.families.MeanField()
    psi = family.init(jax.random.normal(key, (model.dim,)), jnp.ones(model.dim))
    return dataclasses.replace(fit, model=model, family=family, psi=psi, key=key)


def made_up(construction, model, data, *, key, num_steps=None, time_limit=None, **_):
    """In the place of a fit: rows and a posterior that the key decides."""
    size = getattr(construction, "size", len(data))
    fit = cvi.Fit(
        coreset=data.take(np.random.default_rng(key).choice(len(data), size, replace=False)),
        model=model,
        family=cvi.families.MeanField(),
        psi={},
        construction=construction,
        history={"loss": np.zeros(2)},
        result="finished",
        key=jax.random.key(key),
        seconds={"compile": 0.0, "run": 0.0},
        about={"steps": num_steps},
    )
    return drawn(fit, key=fit.key, num_steps=num_steps, time_limit=time_limit)


REAL_FIT = cvi.fit


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory, quick_compilation):
    """A cache of our own, and fits that cost nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        patch.setattr(cvi, "fit", made_up)
        patch.setattr(cvi, "retrain", drawn, raising=False)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The tiny experiment, run."""
    folder = tmp_path_factory.mktemp("reproduce")
    (folder / "tiny.toml").write_text(TINY)
    result = reproduce(folder, "--json")
    assert result.exit_code == 0, result.output
    (folder / "answer.json").write_text(result.stdout)
    return folder


@pytest.fixture
def answer(place):
    return json.loads((place / "answer.json").read_text())


@pytest.fixture
def canned(place, monkeypatch):
    """`cvi.fit` that returns the same fit every time, and the list of what it was asked for."""
    made = cvi.load(place / "out" / "fits" / "four-random-6-0")
    calls = []

    def fit(construction, model, data, *, key, **options):
        calls.append((construction, key, options))
        return dataclasses.replace(made, construction=construction)

    monkeypatch.setattr(cvi, "fit", fit)
    monkeypatch.setattr(cvi, "retrain", lambda fit, **_: fit)
    monkeypatch.setattr(plots, "save_figure", lambda figure, file: file.write_bytes(b""))
    return calls


def reproduce(folder, *arguments, out="out"):
    asked = ["reproduce", str(folder / "tiny.toml"), "--out", str(folder / out), *arguments]
    return CliRunner().invoke(cli.build_app(), asked)


def write_tiny(folder, *changes):
    text = TINY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "tiny.toml").write_text(text)


@pytest.mark.parametrize(
    "name",
    [
        *("toml_objects", "experiment_files", "result_table", "score_plots", "entropy_maps"),
        *("entropy_map_plots", "page", "reproduce"),
    ],
)
def test_examples_in_the_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(f"coresetvi_paper.{name}"))
    assert result.attempted > 0 and result.failed == 0


# What runs


def test_a_cell_is_what_the_library_gives_when_asked_by_hand(answer, place):
    record = next(one for one in answer["records"] if (one["size"], one["key"]) == (6, 1))
    train, test = cvi.datasets.four_class(n=60)
    test = test.take(np.arange(50))
    construction = cvi.RandomSubset(6, family=cvi.families.MeanField(), learning_rate=0.1)
    fit = made_up(construction, cvi.models.SoftmaxRegression(2, 4), train, key=1, num_steps=2)
    scores = {"num_samples": 7, "correct": False}
    assert record["warm"] == pytest.approx(fit.evaluate(test, **scores))
    keys = [jax.random.fold_in(jax.random.key(1), number) for number in (1, 2)]
    fresh = drawn(fit, key=keys[0], num_steps=2).evaluate(test, **scores)
    assert record["fresh"] == pytest.approx(fresh) and record["fresh"] != record["warm"]
    other = drawn(fit, key=keys[1], num_steps=2, model=cvi.models.SoftmaxRegression(2, 4, intercept=True))
    assert record["transfer"] == pytest.approx(other.evaluate(test, **scores))
    assert record["steps"] == 2 and record["result"] == "finished" and record["version"] == cvi.__version__
    assert record["peak_memory"] > 10**7 and record["total_seconds"] >= record["seconds"]["run"]
    saved = cvi.load(place / "out" / "fits" / "four-random-6-1")
    np.testing.assert_array_equal(saved.coreset.x, fit.coreset.x)
    assert record["construction"] == encode(saved.construction)


def test_all_cells_run_and_only_coresets_are_kept(answer, place):
    out = place / "out"
    assert sorted(file.stem for file in (out / "records").iterdir()) == sorted(NAMES)
    kept = sorted(folder.name for folder in (out / "fits").iterdir())
    assert kept == sorted(name for name in NAMES if "full" not in name)
    for record in answer["records"]:
        assert (record["transfer"] is not None) == (record["size"] == 6)
        assert (record["fresh"] == record["warm"]) == (record["method"] == "full")


def test_minutes_that_are_asked_for_bound_fits_of_so_many_steps_too(canned, place, tmp_path):
    write_tiny(tmp_path)
    for more, minutes in (([], None), (["--budget", "0.25", "--overwrite"], 15.0)):
        canned.clear()
        assert reproduce(tmp_path, "--keys", "1", "--methods", "random", *more).exit_code == 0
        assert [(options["num_steps"], options["time_limit"]) for _, _, options in canned] == [
            (2, minutes)
        ] * 2


def test_minutes_bound_a_fit_unless_steps_do(canned, place, tmp_path):
    write_tiny(tmp_path, ("num_steps = 2\n", ""))
    assert reproduce(tmp_path, "--budget", "0.25", "--keys", "1", "--methods", "random").exit_code == 0
    assert [options["time_limit"] for _, _, options in canned] == [15.0, 15.0]
    assert [options["checkpoint"].name for _, _, options in canned] == ["four-random-4-0", "four-random-6-0"]


def test_a_miniature_is_small(canned, tmp_path):
    write_tiny(tmp_path)
    answer = json.loads(reproduce(tmp_path, "--quick", "--json").stdout)
    assert [(one["size"], one["key"]) for one in answer["records"]] == [(None, 0), (5, 0)]
    assert answer["experiment"] == "tiny-quick" and (tmp_path / "out" / "tiny-quick.md").exists()
    assert (
        len(runner.Grid(read_experiment(str(tmp_path / "tiny.toml")).miniature()).problem("four").train) == 40
    )


def test_real_fits_are_bounded_and_leave_no_checkpoint(tmp_path, monkeypatch):
    """One cell of a network with the library's own functions."""
    monkeypatch.setattr(cvi, "fit", REAL_FIT)
    write_tiny(tmp_path)
    result = reproduce(tmp_path, "--methods", "random", "--sizes", "4", "--keys", "1", "--json")
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)["records"]
    tiny = read_experiment(str(tmp_path / "tiny.toml"))
    train, test, _, model, _ = runner.Grid(tiny).problem("four")
    fit = REAL_FIT(tiny.method("random").build(4), model, train, key=0, num_steps=2, progress=False)
    assert record["warm"] == pytest.approx(fit.evaluate(test, num_samples=7, correct=False))
    assert record["steps"] == 2 and record["seconds"]["compile"] > 0
    assert (tmp_path / "out" / "checkpoints").is_dir()
    assert not list((tmp_path / "out" / "checkpoints").iterdir())


# Stopping and going on


def test_what_is_finished_is_not_run_again(answer, place, monkeypatch):
    monkeypatch.setattr(cvi, "fit", None)
    assert json.loads(reproduce(place, "--json").stdout) == answer


def test_an_interrupt_leaves_what_is_finished(canned, tmp_path, monkeypatch):
    write_tiny(tmp_path)
    fit = cvi.fit

    def stopped(construction, model, data, *, key, **options):
        found = fit(construction, model, data, key=key, **options)
        return dataclasses.replace(found, result="interrupted") if len(canned) == 2 else found

    monkeypatch.setattr(cvi, "fit", stopped)
    first = reproduce(tmp_path)
    assert first.exit_code == 130 and "interrupted with 1 of 6 cells done" in first.stderr
    assert [file.stem for file in (tmp_path / "out" / "records").iterdir()] == ["four-random-4-0"]
    assert reproduce(tmp_path).exit_code == 0
    # The second cell was begun twice.
    assert len(canned) == 7 and canned[1][0] == canned[2][0]


def test_a_table_may_be_run_in_parts(canned, tmp_path):
    write_tiny(tmp_path)
    parts = [["--methods", "full", "--keys", "1"], ["--methods", "random", "--sizes", "4"], ["--sizes", "6"]]
    counts = []
    for part in parts:
        result = reproduce(tmp_path, *part, "--json")
        assert result.exit_code == 0, result.output
        counts.append([(row["id"], row["size"], row["keys"]) for row in json.loads(result.stdout)["rows"]])
    assert counts[0] == [("full", None, 1)]
    assert counts[1] == [("random", 4, 2), ("full", None, 1)]
    assert counts[2] == [("random", 4, 2), ("random", 6, 2), ("full", None, 2)]


def test_processes_share_the_cells_of_a_folder(canned, tmp_path):
    write_tiny(tmp_path)
    out = tmp_path / "out"
    (out / "records").mkdir(parents=True)
    # Other processes are at two of the cells, which are none of ours then.
    with cells.claim(out, NAMES[0]) as first, cells.claim(out, NAMES[4]) as second:
        assert first and second
        with cells.claim(out, NAMES[0]) as again:
            assert not again
        result = reproduce(tmp_path)
        assert result.exit_code == 0 and "2 of 6 cells are left to a process" in result.stderr
        made = {file.stem for file in (out / "records").glob("*.json")}
        assert made == set(NAMES) - {NAMES[0], NAMES[4]} and len(canned) == 4
        refused = reproduce(tmp_path, "--overwrite")
        assert refused.exit_code == 2 and "another process is at work" in refused.stderr
    assert {file.stem for file in (out / "records").iterdir()} == made  # no claim outlives its process
    assert reproduce(tmp_path).exit_code == 0 and len(canned) == 6


def test_a_process_that_dies_lets_go_of_its_cell(tmp_path):
    """However it ends: here it is killed, which leaves its file behind."""
    (tmp_path / "records").mkdir()
    code = f"""
import pathlib, time
from coresetvi_paper.cells import claim
with claim(pathlib.Path({str(tmp_path)!r}), "a-b-1-0") as mine:
    print(mine, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        with cells.claim(tmp_path, "a-b-1-0") as mine:
            assert not mine
        assert cells.is_busy(tmp_path)
        other.kill()
    assert list((tmp_path / "records").iterdir())
    assert not cells.is_busy(tmp_path)
    with cells.claim(tmp_path, "a-b-1-0") as mine:
        assert mine
    assert not list((tmp_path / "records").iterdir())


def test_only_what_is_ours_is_deleted(canned, tmp_path):
    write_tiny(tmp_path)
    assert reproduce(tmp_path, "--keys", "1", "--methods", "random").exit_code == 0
    fits = tmp_path / "out" / "fits"
    (fits / NAMES[0] / "notes.txt").write_text("mine")
    old = sorted(file.name for file in (fits / NAMES[1]).iterdir())
    assert old == sorted(runner.FIT_FILES)
    for name in NAMES[:2]:
        runner.remove_fit(fits / name)
    assert [file.name for file in (fits / NAMES[0]).iterdir()] == ["notes.txt"]
    assert not (fits / NAMES[1]).exists()


def test_a_cell_that_another_process_has_made_meanwhile_is_not_made_again(canned, tmp_path, monkeypatch):
    write_tiny(tmp_path)
    fit, began = cvi.fit, []

    def slow(*arguments, **options):
        if not began:  # while our first cell is under way, the other process makes all others
            began.append(True)
            assert reproduce(tmp_path).exit_code == 0
        return fit(*arguments, **options)

    monkeypatch.setattr(cvi, "fit", slow)
    assert reproduce(tmp_path).exit_code == 0 and len(canned) == 6


@pytest.mark.parametrize("error", [InputError("there is no room; use less"), MemoryError("there is no room")])
def test_a_cell_that_fails_is_recorded_and_the_others_go_on(error, canned, tmp_path, monkeypatch):
    write_tiny(tmp_path)
    fit = cvi.fit

    def broken(construction, model, data, *, key, **options):
        if key == 1 and getattr(construction, "size", None) == 4:
            raise error
        return fit(construction, model, data, key=key, **options)

    with monkeypatch.context() as patch:
        patch.setattr(cvi, "fit", broken)
        first = reproduce(tmp_path)
    assert first.exit_code == 1 and "1 of 6 cells failed" in first.stderr
    assert first.stderr.count("there is no room") == 2  # when it happens, and at the end
    report_text = (tmp_path / "out" / "tiny.md").read_text()
    assert "1 (1 failed)" in report_text and "four, random, 4 points, key 1: " in report_text
    count = len(canned)
    second = reproduce(tmp_path, "--json")
    assert second.exit_code == 0 and len(canned) == count + 1
    assert [row["failed"] for row in json.loads(second.stdout)["rows"]] == [0, 0, 0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_samples = 7", "num_samples = 8", "other ways to score"),
        ("learning_rate = 0.1", "learning_rate = 0.2", "other settings of the method"),
        ("n = 60", "n = 61", "other data"),
        ("num_classes = 4 }", "num_classes = 4, prior_scale = 2.0 }", "another model"),
    ],
)
def test_records_of_something_else_are_refused(old, new, words, place, tmp_path, monkeypatch):
    write_tiny(tmp_path, (old, new))
    monkeypatch.setattr(cvi, "fit", None)
    asked = ["reproduce", str(tmp_path / "tiny.toml"), "--out", str(place / "out")]
    result = CliRunner().invoke(cli.build_app(), asked)
    assert result.exit_code == 2 and f"is of {words}; choose another --out" in result.stderr


def test_overwrite_starts_anew(canned, tmp_path):
    write_tiny(tmp_path)
    for extra in ([], ["--overwrite"]):
        assert reproduce(tmp_path, "--keys", "1", *extra).exit_code == 0
    assert len(canned) == 6


# The table


def test_the_table_is_that_of_the_records(answer, place):
    rows = {(row["id"], row["size"]): row for row in answer["rows"]}
    assert list(rows) == [("random", 4), ("random", 6), ("full", None)]
    pair = [one for one in answer["records"] if one["size"] == 4]
    assert len(pair) == 2
    for protocol in ("fresh", "warm"):
        for name, factor in (("accuracy", 100), ("nll", 1), ("ece", 1), ("brier", 1)):
            one, two = (factor * record[protocol][name] for record in pair)
            found = rows["random", 4][protocol][name]
            assert found["mean"] == pytest.approx((one + two) / 2)
            assert found["standard_error"] == pytest.approx(abs(one - two) / 2)
    assert rows["random", 4]["paper"] == {"mean": 50.0, "standard_error": 1.5}
    assert rows["random", 6]["paper"] == {"mean": None, "standard_error": None}
    assert rows["full", None]["paper"]["mean"] == 90.0
    assert set(answer["files"]) == {"records", "table", "csv", "picture"}  # flat rows are no images


def test_markdown_and_csv_have_the_same_numbers(answer, place):
    lines = [line for line in (place / "out" / "tiny.md").read_text().splitlines() if line.startswith("| ")]
    header, _, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    with open(place / "out" / "tiny.csv", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert header[:6] == ["method", "M", "keys", "accuracy %", "paper %", "warm %"] and len(cells) == 3
    for line, flat, row in zip(cells, table, answer["rows"], strict=True):
        shown, number = dict(zip(header, line, strict=True)), row["fresh"]["accuracy"]
        assert shown["accuracy %"] == f"{number['mean']:.2f} ± {number['standard_error']:.2f}"
        assert float(flat["fresh_accuracy_mean"]) == pytest.approx(number["mean"])
        assert float(flat["fresh_ece_standard_error"]) == pytest.approx(row["fresh"]["ece"]["standard_error"])
        assert flat["method"] == shown["method"] == row["method"]
    assert cells[0][4] == "50.00 ± 1.50" and cells[1][4] == "-" and cells[2][1] == "all"


def test_images_are_drawn_once_from_what_was_saved(answer, place, tmp_path):
    """Rows of shape (2, 3) are images as well."""
    fit = cvi.load(place / "out" / "fits" / "four-random-4-0")
    rows = cvi.Dataset(np.arange(24.0).reshape(4, 2, 3), fit.coreset.y, fit.coreset.weights)
    dataclasses.replace(fit, coreset=rows).save(tmp_path / "fits" / "four-random-4-0")
    record = next(one for one in answer["records"] if one["size"] == 4) | {"row_shape": [2, 3]}
    tiny = parse("tiny", table())
    assert pictures.images(tiny, [], [record], tmp_path) == {"images": tmp_path / "images"}
    (file,) = (tmp_path / "images").iterdir()
    before = file.stat().st_mtime_ns
    assert pictures.images(tiny, [], [record], tmp_path) and file.stat().st_mtime_ns == before
    assert pictures.images(tiny, [], [record], tmp_path / "elsewhere") == {}


def test_another_model_gets_images_as_rows():
    images = cvi.Dataset(np.arange(24.0).reshape(2, 3, 4, 1), [0, 1], [1.0, 2.0], target="digit")
    rows = measures.flat(images)
    np.testing.assert_array_equal(rows.x, np.arange(24.0).reshape(2, 12))
    assert rows.weights.tolist() == [1.0, 2.0] and rows.target == "digit" and measures.flat(rows) is rows


def test_mixed_versions_are_mentioned(answer):
    one, two = answer["records"][:2]
    assert result_table.record_notes([one, two]) == []
    (note,) = result_table.record_notes([one, two | {"version": "0.0.7"}])
    assert note == f"records of several versions: 0.0.7, {cvi.__version__}"


def test_the_console_shows_the_table_and_what_was_done(canned, tmp_path):
    write_tiny(tmp_path)
    result = reproduce(tmp_path, "--keys", "1")
    assert "A tiny table" in result.stdout and "Random coreset" in result.stdout
    assert result.stderr.splitlines()[0].startswith("done: four, random, 4 points, key 0: accuracy 0.")
    assert "; 2 left, " in result.stderr.splitlines()[0]


def test_time_left_is_that_of_cells_alike():
    tiny = dataclasses.replace(parse("tiny", table()), num_steps=None, budget=3.0)
    done = {"problem": "four", "result": "finished"}
    known = [
        {**done, "method": "random", "size": 4, "total_seconds": 10.0},
        {**done, "method": "random", "size": 4, "total_seconds": 20.0},
        {**done, "method": "random", "size": 6, "total_seconds": 60.0},
        {**done, "method": "random", "size": 6, "total_seconds": 0.0, "result": "failed"},
    ]
    cells = [
        PaperCell("four", "random", 4, 2),
        PaperCell("four", "random", 6, 1),
        PaperCell("four", "random", 8, 0),
    ]
    assert runner.time_left(tiny, cells, known) == pytest.approx(15.0 + 60.0 + 30.0)
    assert runner.time_left(tiny, [PaperCell("four", "full", None, 0)], known) == pytest.approx(30.0)
    assert runner.time_left(tiny, cells, []) == pytest.approx(3 * 2 * 180.0)


# What a file may say


def table(**changes):
    problem = {"id": "four", "dataset": {"name": "four_class"}, "model": {"type": "SoftmaxRegression"}}
    methods = (
        {"id": "random", "name": "r", "construction": "RandomSubset"},
        {"id": "full", "name": "f", "construction": "FullVI"},
    )
    return {"title": "t", "sizes": (3,), "problems": (problem,), "methods": methods} | changes


METHOD = {"id": "a", "name": "a", "construction": "GIGA"}
WRONG = {
    "no title": ({"title": None}, "lacks the entry 'title'"),
    "unknown entry": ({"colour": "red"}, "unknown entry 'colour'"),
    "no methods": ({"methods": ()}, r"no \[\[methods\]\]"),
    "construction": ({"methods": ({**METHOD, "construction": "Magic"},)}, "unknown construction 'Magic'"),
    "abstract": ({"methods": ({**METHOD, "construction": "Construction"},)}, "unknown construction 'Const"),
    "option": ({"methods": ({**METHOD, "options": {"colour": 1}},)}, "method 'a' cannot be built: .*colour"),
    "value": ({"sizes": (0,)}, "method 'random' cannot be built: size"),
    "entry of a method": ({"methods": ({**METHOD, "size": 3},)}, "method 'a' of tiny has the unknown entry"),
    "id": ({"methods": ({**METHOD, "id": "A b"},)}, "the id 'A b'"),
    "twice": ({"methods": (METHOD, METHOD)}, "the id 'a' twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_description_is_refused(case):
    changes, words = WRONG[case]
    given = {name: value for name, value in table(**changes).items() if value is not None}
    with pytest.raises(InputError, match=words):
        found = parse("tiny", given)
        for cell in found.cells():
            found.method(cell.method).build(cell.size)


def test_objects_come_from_the_registry_alone():
    inner = {"type": "Unrolled", "num_steps": 20, "num_samples": 1}
    assert toml_objects.build({"inner": inner}, "it") == {"inner": cvi.inner.Unrolled(20, num_samples=1)}
    for bad in ({"type": "Path"}, {"type": "Unrolled", "colour": 1}, {"type": "Unrolled", "num_steps": 0}):
        with pytest.raises(InputError, match="it cannot be built"):
            toml_objects.build(bad, "it")


BAD_INPUTS = {
    "method": (["--methods", "random,magic"], "--methods has 'magic'"),
    "size": (["--sizes", "ten"], "--sizes has 'ten'"),
    "keys": (["--keys", "0"], "--keys is 0"),
    "budget": (["--budget", "0"], "--budget is 0 minutes"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_one_sentence(case, tmp_path):
    write_tiny(tmp_path)
    arguments, sentence = BAD_INPUTS[case]
    answer = reproduce(tmp_path, *arguments, "--json")
    assert answer.exit_code == 2 and sentence in json.loads(answer.stdout)["error"]
    assert answer.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "words"), [("table9", "choose .*table3"), ("none.toml", "cannot be read")])
def test_an_unknown_experiment_is_refused(name, words):
    with pytest.raises(InputError, match=words):
        read_experiment(name)


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_of_the_package_can_be_built(name):
    whole = read_experiment(name)
    for one in (whole, whole.miniature()):
        for cell in one.cells():
            assert one.method(cell.method).build(cell.size)
        for problem in one.problems:
            assert isinstance(toml_objects.build(problem.model, name), cvi.models.Model)
            assert problem.dataset["name"] in cvi.datasets.names()
    assert all(len(line) == 6 and line[0] in {one.id for one in whole.problems} for line in whole.paper)


def test_the_row_that_the_paper_copied_is_no_target():
    whole = read_experiment("table2")
    numbers = {
        (problem, method): result_table.paper_number(whole, problem, method, 40)["mean"]
        for problem in ("phishing", "adult")
        for method in ("v*,u", "v*,u,alpha")
    }
    assert numbers == {
        ("phishing", "v*,u"): 0.348,
        ("phishing", "v*,u,alpha"): 0.342,
        ("adult", "v*,u"): None,
        ("adult", "v*,u,alpha"): 0.34,
    }


def test_table3_has_the_numbers_of_the_paper():
    whole = read_experiment("table3")
    assert len(whole.paper) == 40 and whole.sizes == (10, 30, 50, 80, 100, 250)
    found = {
        (method.id, size): result_table.paper_number(whole, "mnist", method.name, size)["mean"]
        for method in whole.methods
        for size in whole.sizes_of(method)
    }
    assert {method for (method, _), mean in found.items() if mean is None} == {"last-layer"}
    some = [("bb-psvi", 10), ("bb-psvi-hard", 250), ("soft-distillation", 100), ("full-vi", None)]
    assert [found[place] for place in some] == [52.97, 91.3, 82.7, 99.13]


def test_durations_are_in_words():
    assert [reproduce_command.duration(seconds) for seconds in (89.0, 91.0, 3599.0)] == [
        "89 s",
        "2 min",
        "1 h 0 min",
    ]
