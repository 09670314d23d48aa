"""What cells measure, the pictures that are made of it, and the page: from tiny experiments of each kind."""

import dataclasses
import gzip
import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli
from coresetvi.configuration import encode
from coresetvi.errors import InputError
from coresetvi.workflows import records
from coresetvi_paper import (
    differences,
    entropy_maps,
    experiment_names,
    line_plots,
    measures,
    packed_records,
    page,
    read_experiment,
)
from coresetvi_paper.cells import PaperCell
from coresetvi_paper.grid import Grid, open_grid
from coresetvi_paper.result_table import summarise
from coresetvi_paper.runner import run_cells

pytestmark = pytest.mark.slow

SCORES = """
title = "Scores"
measure = "scores"
metric = "nll"
reference = "full"
metrics = ["nll", "ess_10"]
views = ["lines"]
sizes = [3, 5]
keys = 2
num_steps = 2
num_samples = 20
detail = { kl = true }
paper = [["lr", "nll", "BB PSVI", 3, 0.9, 0.01], ["lr", "nll", "Everything", "all", 0.2, 0.01]]

[[problems]]
id = "lr"
dataset = { name = "synthetic_lr", n = 60, dim = 2 }
model = { type = "LogisticRegression", num_features = 2 }
paper = { batch = { batch_size = 7, num_steps = 3 }, slow = { budget = 2.0 } }

[[problems]]
id = "far"
dataset = { name = "webspam" }
model = { type = "LogisticRegression", num_features = 128 }
optional = true

[[methods]]
id = "bb-psvi"
name = "BB PSVI"
construction = "BBPSVI"
paper = "batch"
ours = { init = "spread" }

[[methods]]
id = "full"
name = "Everything"
construction = "FullVI"
options = { family = { type = "MeanField" } }
paper = "slow"
"""
TIMES = SCORES.replace('measure = "scores"', 'measure = "times"').replace('["lines"]', '["curves"]')
TIMES = TIMES.replace("num_steps = 2\n", "num_steps = 41\n").replace("keys = 2", "keys = 1")
PLANE = """
title = "Maps"
measure = "plane"
views = ["planes", "animation"]
sizes = [4]
keys = 1
num_steps = 20
num_test = 40
detail = { frames = 3, resolution = 6 }

[[problems]]
id = "four"
dataset = { name = "four_class", n = 40 }
model = { type = "SoftmaxRegression", num_features = 2, num_classes = 4 }

[[methods]]
id = "learned"
name = "BB PSVI"
construction = "BBPSVI"
options = { optimizer = { type = "Adam" } }

[[methods]]
id = "pruned"
name = "pruned"
construction = "BBSparseVI"
options = { optimizer = { type = "Adam" } }
driver = "prune"
stages = [8]

[[methods]]
id = "full"
name = "all rows"
construction = "FullVI"
options = { family = { type = "MeanField" } }
"""
SAMPLED = PLANE.replace(
    "frames = 3,",
    'samplers = ["variational", "nuts"], draws = { num_samples = 5, num_warmup = 5, num_chains = 1 },',
).replace('"planes", "animation"', '"planes"')
TASKS = SAMPLED.split("[[methods]]")[0].replace('samplers = ["variational", "nuts"], ', "")
TASKS += """
[[methods]]
id = "tasks"
name = "tasks"
construction = "BBPSVI"
driver = "continual"
stages = [2, 3]
"""


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch, quick_compilation):
    """No data files, and a cache of our own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CORESETVI_DATA", raising=False)


def written(folder, text, name="tiny"):
    place = folder / f"{name}.toml"
    place.write_text(text)
    return str(place)


def reproduce(place, *arguments):
    return CliRunner().invoke(cli.build_app(), ["reproduce", place, *arguments])


def run_all(place, out):
    grid, notes = open_grid(read_experiment(place))
    found, _ = run_cells(grid, out)
    assert all(one["result"] != "failed" for one in found.values()), [
        one["explanation"] for one in found.values()
    ]
    return grid, found, notes


def test_scores_are_those_of_the_fit_and_gaps_those_to_the_reference(tmp_path):
    place = written(tmp_path, SCORES)
    result = reproduce(place, "--out", str(tmp_path / "out"), "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    rows = {(row["id"], row["size"]): row for row in answer["rows"]}
    assert set(rows) == {("bb-psvi", 3), ("bb-psvi", 5), ("full", None)}
    row = rows["bb-psvi", 3]
    assert row["gap"] == pytest.approx(
        row["fresh"]["nll"]["mean"] - rows["full", None]["fresh"]["nll"]["mean"]
    )
    assert row["paper_gap"] == pytest.approx(0.7) and rows["bb-psvi", 5]["paper_gap"] is None
    assert {"nll", "accuracy", "kl", "ess_10", "ess_1000", "khat"} <= set(row["fresh"])
    assert "kl" not in rows["full", None]["fresh"]
    assert (tmp_path / "out" / "tiny.png").stat().st_size > 1000
    assert any(note.startswith("far is left out: webspam") for note in answer["notes"])
    train, test = cvi.datasets.synthetic_lr(n=60, dim=2)
    asked, model = cvi.BBPSVI(3, init="spread"), cvi.models.LogisticRegression(2)
    fit = cvi.fit(asked, model, train, key=1, num_steps=2, progress=False)
    (record,) = [one for one in answer["records"] if (one["size"], one["key"]) == (3, 1)]
    assert record["fresh"]["nll"] == pytest.approx(fit.evaluate(test, num_samples=20)["nll"])
    assert record["fresh"]["ess_1000"] == pytest.approx(fit.reliability(1000)["ess"], rel=1e-3)


def test_effective_sample_size_of_a_few_draws_is_a_mean_over_many_sets():
    train, _ = cvi.datasets.synthetic_lr(n=60, dim=2)
    fit = cvi.fit(cvi.BBPSVI(3), cvi.models.LogisticRegression(2), train, key=1, num_steps=2, progress=False)
    _, log_weights = fit.draws(20)
    sets = np.exp(np.asarray(log_weights, float).reshape(2, 10) - np.max(log_weights))
    expected = np.mean(sets.sum(1) ** 2 / (sets**2).sum(1)) / 10
    assert measures.mean_ess(fit, 10, 2) == pytest.approx(float(expected), rel=1e-4)


def test_the_settings_of_the_paper_make_other_cells(tmp_path):
    place = written(tmp_path, SCORES)
    ours = read_experiment(place)
    paper = ours.with_settings("paper")
    cell = PaperCell("lr", "bb-psvi", 3, 0)
    assert paper.folder == "tiny-paper" and ours.with_settings("ours") is ours
    theirs, own = paper.construction(cell), ours.construction(cell)
    assert isinstance(theirs, cvi.BBPSVI) and isinstance(own, cvi.BBPSVI)
    assert theirs.batch_size == 7 and own.batch_size is None
    # What is left open becomes "subset" where steps are as in the paper.
    assert theirs.init is None and own.init == "spread"
    train, _ = cvi.datasets.synthetic_lr(n=100, dim=2)
    assert theirs.settle(cvi.models.LogisticRegression(2), train).init == "subset"
    unbound = dataclasses.replace(paper, num_steps=None)
    everything = PaperCell("lr", "full", None, 0)
    assert unbound.steps_of(cell) == 3 and unbound.steps_of(everything) is None
    assert unbound.minutes_of(cell) is None and unbound.minutes_of(everything) == 2.0
    assert unbound.with_settings("ours").minutes_of(everything) == ours.budget
    patient = dataclasses.replace(ours.problems[0], budget=ours.budget + 1.0)
    assert (
        dataclasses.replace(ours, num_steps=None, problems=(patient,)).minutes_of(everything)
        == patient.budget
    )
    asked = unbound.select(budget=1.0)
    assert asked.minutes_of(cell) == asked.minutes_of(everything) == 1.0
    theirs, none = ours.problems[0], dataclasses.replace(ours.problems[0], id="other", paper={})
    both = dataclasses.replace(ours, problems=(theirs, none))
    assert both.with_settings("paper").problems == (theirs,)  # the paper does not have the other one
    with pytest.raises(InputError, match="choose ours or paper"):
        ours.with_settings("theirs")
    plain = dataclasses.replace(ours, problems=(dataclasses.replace(ours.problems[0], paper={}),))
    with pytest.raises(InputError, match="no settings of the paper"):
        plain.with_settings("paper")


def test_a_view_of_an_experiment_uses_its_cells(tmp_path):
    out = tmp_path / "out"
    base = dataclasses.replace(read_experiment(written(tmp_path, SCORES)), keys=1, sizes=(3,))
    grid, _ = open_grid(base)
    run_cells(grid, out)
    view = dataclasses.replace(base, name="other", like="tiny", metric="accuracy")
    again, _ = open_grid(view)
    before = [file.stat().st_mtime_ns for file in records.record_files(out)]
    found, _ = run_cells(again, out)
    assert [file.stat().st_mtime_ns for file in records.record_files(out)] == before and len(found) == 2


def test_times_are_taken_while_it_runs(tmp_path):
    place = written(tmp_path, TIMES)
    result = reproduce(place, "--sizes", "3", "--out", str(tmp_path / "out"), "--json")
    assert result.exit_code == 0, result.output
    for record in json.loads(result.stdout)["records"]:
        seconds = record["curve"]["x"]
        assert (
            len(seconds) >= 2
            and seconds == sorted(seconds)
            and seconds[-1] == pytest.approx(record["seconds"]["run"], abs=1e-3)
        )
        assert record["curve"]["y"][-1] == pytest.approx(record["fresh"]["nll"], abs=1e-4)
    assert (tmp_path / "out" / "tiny.png").exists()


def test_losses_of_all_stages_follow_each_other(tmp_path):
    text = PLANE.replace('measure = "plane"', 'measure = "losses"').replace(
        '"planes", "animation"', '"curves"'
    )
    grid, found, _ = run_all(written(tmp_path, text), tmp_path / "out")
    assert (
        found["four-pruned-4-0"]["curve"]["x"][-1] == 40 and found["four-learned-4-0"]["curve"]["x"][-1] == 20
    )
    fit = cvi.fit(
        grid.experiment.construction(PaperCell("four", "learned", 4, 0)),
        grid.problem("four").model,
        grid.problem("four").train,
        key=0,
        num_steps=20,
        progress=False,
    )
    assert found["four-learned-4-0"]["curve"]["y"] == pytest.approx(list(-fit.history["loss"]), abs=2e-3)


def test_maps_are_kept_at_every_frame(tmp_path):
    place = written(tmp_path, PLANE)
    result = reproduce(place, "--out", str(tmp_path / "out"), "--json")
    assert result.exit_code == 0, result.output
    found = {record["method"]: record for record in json.loads(result.stdout)["records"]}
    names = {method: [one["name"] for one in record["plane"]["maps"]] for method, record in found.items()}
    assert names["learned"] == ["step 0", "step 20", "end"] and names["pruned"] == [
        "step 0",
        "step 20",
        "end",
    ]
    assert [len(one["points"]) for one in found["pruned"]["plane"]["maps"]] == [8, 8, 4]
    assert not found["full"]["plane"]["maps"][0]["points"] and len(found["full"]["plane"]["data"]) == 40
    for kind in ("png", "gif"):
        assert (tmp_path / "out" / f"tiny.{kind}").stat().st_size > 1000


def test_samplers_and_tasks_have_maps_of_their_own(tmp_path):
    _, found, _ = run_all(written(tmp_path, SAMPLED), tmp_path / "sampled")
    maps = found["four-full-all-0"]["plane"]["maps"]
    assert [one["name"] for one in maps] == ["variational", "nuts"] and maps[0]["entropy"] != maps[1][
        "entropy"
    ]
    _, found, _ = run_all(written(tmp_path, TASKS), tmp_path / "tasks")
    maps = found["four-tasks-4-0"]["plane"]["maps"]
    assert [one["num_classes"] for one in maps] == [2, 3, 4] and [len(one["points"]) for one in maps] == [
        2,
        3,
        4,
    ]


def test_entropies_survive_their_digits():
    entropy = np.random.default_rng(0).uniform(0.0, np.log(3), 25)
    back = entropy_maps.decode_entropy(entropy_maps.encode_entropy(entropy, 3), 3)
    np.testing.assert_allclose(back.ravel(), entropy, atol=np.log(3) / 509)


WRONG = {
    "measure": ('measure = "scores"', 'measure = "magic"', "unknown measure 'magic'"),
    "view": ('views = ["lines"]', 'views = ["magic"]', "unknown view 'magic'"),
    "like": ('title = "Scores"', 'title = "Scores"\nlike = "magic"', "no experiment 'magic' to be like"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_unknown_is_refused(case, tmp_path):
    old, new, words = WRONG[case]
    result = reproduce(
        written(tmp_path, SCORES.replace(old, new)), "--keys", "1", "--out", str(tmp_path / "out")
    )
    assert result.exit_code == 2 and words in result.stderr


def test_a_driver_that_makes_no_single_fit_is_refused(tmp_path):
    text = TASKS.replace('measure = "plane"', 'measure = "losses"')
    grid, _ = open_grid(read_experiment(written(tmp_path, text)))
    found, _ = run_cells(grid, tmp_path / "out")
    (record,) = found.values()
    assert record["result"] == "failed" and "driver 'continual'" in record["explanation"]


def test_all_runs_everything_and_leaves_parts_to_single_ones(tmp_path, monkeypatch):
    from coresetvi_paper import reproduce as reproduce_command

    first, second = written(tmp_path, SCORES, "first"), written(tmp_path, SAMPLED, "second")
    monkeypatch.setattr(reproduce_command, "experiment_names", lambda: [first, second])
    result = reproduce("all", "--keys", "1", "--out", str(tmp_path / "out"), "--json")
    assert result.exit_code == 0, result.output
    assert [one["experiment"] for one in json.loads(result.stdout)["experiments"]] == ["first", "second"]
    assert (tmp_path / "out" / "second" / "second.png").exists()
    assert reproduce("all", "--sizes", "3").exit_code == 2
    # Those that have no settings of the paper are not run with them.
    paper = reproduce("all", "--settings", "paper", "--keys", "1", "--out", str(tmp_path / "out"), "--json")
    assert [one["experiment"] for one in json.loads(paper.stdout)["experiments"]] == ["first-paper"]


def test_the_page_is_made_of_packed_records(tmp_path, monkeypatch):
    place = written(tmp_path, SCORES)
    assert reproduce(place, "--out", str(tmp_path / "results" / "tiny")).exit_code == 0
    settings = ["--settings", "paper", "--out", str(tmp_path / "results" / "tiny-paper")]
    assert reproduce(place, *settings).exit_code == 0
    for module in (page, packed_records):
        monkeypatch.setattr(module, "experiment_names", lambda: ["tiny"])
        monkeypatch.setattr(module, "read_experiment", lambda name: read_experiment(place))
    home = tmp_path / "paper"
    packed_records.pack(tmp_path / "results", home)
    page.write_page(home)
    text = (home / "reproduction.md").read_text()
    assert "## Scores\n\n`coresetvi reproduce tiny`" in text and "![Scores](figures/tiny.png)" in text
    assert "| lr | BB PSVI | 3 | 0.900 ± 0.010 |" in text and "paper's settings" in text
    assert "6 cells with our settings" in text and "6 cells with the settings of the paper" in text
    assert (home / "figures" / "tiny.png").exists()
    # A second time from the packs alone.
    (home / "reproduction.md").unlink()
    assert page.write_page(home).read_text() == text
    # And back to where they came from, but for those that are there already.
    again = tmp_path / "again"
    packed_records.unpack(home, again)
    for name in ("tiny", "tiny-paper"):
        files = sorted((tmp_path / "results" / name / "records").iterdir())
        assert len(files) == 6
        for file in files:
            assert json.loads((again / name / "records" / file.name).read_text()) == json.loads(
                file.read_text()
            )
    newer = again / "tiny" / "records" / "lr-full-all-0.json"
    newer.write_text("newer")
    packed_records.unpack(home, again)
    assert newer.read_text() == "newer"
    monkeypatch.setattr(page, "experiment_names", lambda: ["tiny", "other"])
    monkeypatch.setattr(
        page, "read_experiment", lambda name: dataclasses.replace(read_experiment(place), name=name)
    )
    assert "no records yet of `other`." in page.write_page(home).read_text()
    pack = home / "records" / "tiny.jsonl.gz"
    pack.write_bytes(gzip.compress(gzip.decompress(pack.read_bytes()).replace(b"0", b"1", 1)))
    with pytest.raises(InputError, match="pack the records anew"):
        page.write_page(home)
    with pytest.raises(InputError, match="is no folder"):
        packed_records.pack(tmp_path / "none", home)


def test_one_size_alone_has_an_axis_of_its_own():
    """On a logarithmic axis without a range, panels were drawn over each other."""
    experiment = dataclasses.replace(read_experiment("uci"), metrics=("nll",))
    value = {"nll": {"mean": 1.0, "standard_error": 0.1}}
    rows = [{"problem": "yacht", "method": "BB PSVI", "size": 100, "keys": 1, "fresh": value}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (axes,) = line_plots.draw_lines(experiment, rows).axes  # problems without results have no panel
    low, high = axes.get_xlim()
    assert low < 100 / 1.1 and high > 1.1 * 100


def test_sentences_tell_what_differs_and_why():
    experiment = read_experiment("table2")
    row = {"problem": "adult", "method": "v*,u", "size": 40, "fresh": {}, "paper": {}}

    def told(ours, error, paper, paper_error, gap, paper_gap):
        one = row | {
            "fresh": {"nll": {"mean": ours, "standard_error": error}},
            "gap": gap,
            "paper_gap": paper_gap,
        }
        one["paper"] = {"mean": paper, "standard_error": paper_error}
        return differences.sentences(experiment, {"ours": [one]})

    assert told(0.35, 0.01, 0.36, 0.01, 0.0, 0.0) == []
    (same,) = told(0.20, 0.001, 0.30, 0.001, 0.05, 0.05)
    assert same.startswith(r"adult, v\*,u, M = 40: NLL 0.100 better") and "data that differ" in same
    (closer,) = told(0.20, 0.001, 0.30, 0.001, 0.0, 0.1)
    assert "closer to full-data inference" in closer
    (further,) = told(0.40, 0.001, 0.30, 0.001, 0.2, 0.1)
    assert "worse" in further and "further from" in further


def made(experiment, cell):
    """How a cell is made, as text."""
    parts = (experiment.measure, experiment.detail, experiment.steps_of(cell), experiment.num_samples)
    return str((encode(experiment.construction(cell)), experiment.minutes_of(cell), *parts))


def test_experiments_that_are_alike_share_their_cells():
    for name in experiment_names():
        experiment = read_experiment(name)
        if experiment.like is None:
            continue
        base = read_experiment(experiment.like)
        mine = {cell: made(experiment, cell) for cell in experiment.cells()}
        # A view may have sizes of its own; whatever has the same name must be the same.
        assert any(cell in mine for cell in base.cells()), name
        assert mine == {cell: made(base, cell) for cell in mine}, name
        assert summarise(experiment, []) == []
        assert Grid(experiment).experiment.folder == base.name


def test_likelihoods_that_differ_widely_have_a_logarithmic_axis():
    experiment = dataclasses.replace(read_experiment("uci"), metrics=("nll",))

    def scale(*means):
        rows = [
            {"problem": "yacht", "method": "BB PSVI", "size": size, "keys": 1, "fresh": {"nll": value}}
            for size, mean in enumerate(means, start=10)
            for value in ({"mean": mean, "standard_error": None},)
        ]
        return line_plots.draw_lines(experiment, rows).axes[0].get_yscale()

    assert scale(0.2, 0.7) == "log"
    assert scale(0.2, 0.5) == scale(-0.2, 0.7) == "linear"


def test_long_lists_of_differences_are_folded_and_broken_fits_are_counted():
    told = page.folded(["- one", "- two"])
    assert told[0].startswith("<details><summary>2 cells differ") and told[-1] == "</details>"
    results = ("finished", "failed", "non_finite", "non_finite")
    found = [{"result": one, "total_seconds": 30.0, "key": 0} for one in results]
    assert page.cost({"ours": found}) == (
        "*4 cells with our settings, 1 key, 2.0 minutes in all, 1 failed, "
        "2 stopped at numbers that were not finite.*"
    )
