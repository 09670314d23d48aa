"""`coresetvi sample`, `diagnose` and `plot`: what they print and write equals Python, and nothing is lost."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli, plots
from coresetvi.data import files as tables
from coresetvi.families import FullRank
from coresetvi.models import LinearRegression, LogisticRegression, SoftmaxRegression
from coresetvi.plots import fit_overview as posterior_plots

pytestmark = pytest.mark.usefixtures("quick_compilation")

X = np.random.default_rng(0).standard_normal((60, 3)).round(3)
AMOUNTS = (X @ [1.0, -1.0, 0.5] + 0.3 * np.random.default_rng(1).standard_normal(60)).round(3)
KINDS = np.where(X[:, 0] - X[:, 1] + 0.5 * AMOUNTS > 0, "yes", "no")
NAMES = ["width", "[red]length", "age"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of compiled programs far from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        yield


def run(*arguments):
    return CliRunner().invoke(cli.build_app(), [str(argument) for argument in arguments])


def strict(text):
    """The one JSON object that `text` is, with nothing that only Python would accept."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert text.count("\n") == 1
    return json.loads(text, parse_constant=refuse)


def write_csv(path, x, names, target, values):
    lines = [",".join([*names, target])]
    lines += [",".join(map(str, [*row, value])) for row, value in zip(x.tolist(), values, strict=True)]
    path.write_text("\n".join(lines) + "\n")


def made_up(model, coreset, **extra):
    """A fit that nobody fitted, with a normal of unit size for r, or the exact one."""
    mean, covariance = np.zeros(model.dim), np.eye(model.dim)
    if isinstance(model, LinearRegression):
        mean, covariance = model.posterior(coreset)
    factor = np.linalg.cholesky(covariance)
    return cvi.Fit(
        coreset=model.check(coreset),
        model=model,
        family=FullRank(),
        psi={"mean": jnp.asarray(mean, jnp.float32), "factor": jnp.asarray(factor, jnp.float32)},
        construction=None,
        history={"loss": np.array([3.0, 2.0, 1.5])} if extra else {},
        result="finished",
        key=jax.random.key(0),
        seconds={"compile": 0.0, "run": 0.0},
        about={"rows": 60, "total_weight": 60.0, "steps": 3},
        extra=extra,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Saved fits: `line` is exact on all rows, `few` on the first ten, `plane` has two inputs and classes."""
    place = tmp_path_factory.mktemp("cli")
    write_csv(place / "line.csv", X, NAMES, "amount", AMOUNTS)
    write_csv(place / "plane.csv", X[:, :2], NAMES[:2], "kind", KINDS)
    write_csv(place / "other.csv", X[:, :2], ["a", "b"], "kind", KINDS)
    options = {"columns": NAMES, "target": "amount"}
    whole = cvi.Dataset(X, AMOUNTS, **options)
    # As many rows, most of no weight: what was compiled for the others serves here too.
    few = cvi.Dataset(X, AMOUNTS, np.where(np.arange(60) < 10, 6.0, 0.0), **options)
    made_up(LinearRegression(3, noise=0.3), whole).save(place / "line")
    made_up(LinearRegression(3, noise=0.3), few).save(place / "few")
    plane = cvi.Dataset(X[:6, :2], KINDS[:6] == "yes", np.full(6, 3.0), columns=NAMES[:2], target="kind")
    made_up(LogisticRegression(2), plane, classes=["no", "yes"]).save(place / "plane")
    return place


# sample


def test_sample_equals_python(folder):
    arguments = ["--samples", 200, "--warmup", 100, "--chains", 2, "--seed", 3]
    answer = run("sample", folder / "line", *arguments, "--json")
    assert answer.exit_code == 0, answer.output
    found = strict(answer.stdout)
    draws = cvi.sample(cvi.load(folder / "line"), num_samples=200, num_warmup=100, num_chains=2, key=3)
    assert found["parameters"] == draws.summary()
    assert found["mixing"] == draws.mixing() and found["notes"] == draws.warnings
    assert [row["name"] for row in found["parameters"]] == [f"coef[{name}]" for name in NAMES]
    assert (found["method"], found["chains"], found["samples"], found["out"]) == ("nuts", 2, 200, None)
    assert found["about"]["warmup"] == 100 and found["seconds"] > 0
    # 400 draws that are nearly independent: said to be few, on standard error.
    assert all(f"note: {note}" in answer.stderr for note in found["notes"])
    people = run("sample", folder / "line", *arguments)
    assert people.exit_code == 0 and people.stdout.startswith("400 draws by nuts in ")
    for row in found["parameters"]:
        assert f"coef[{row['name'][5:-1]}]" in people.stdout and f"{row['mean']:.4g}" in people.stdout
    assert "r-hat" in people.stdout and "ess-bulk" in people.stdout


@pytest.mark.parametrize("name", ["draws.csv", "draws.tsv.gz", "deep/er/draws.parquet"])
def test_draws_are_written_as_a_table(folder, tmp_path, name):
    out = tmp_path / name
    answer = run("sample", folder / "line", "--method", "variational", "--samples", 5, "--out", out, "--json")
    assert answer.exit_code == 0, answer.output
    assert strict(answer.stdout)["out"] == str(out)
    draws = cvi.sample(cvi.load(folder / "line"), method="variational", num_samples=5, key=0)
    columns = {key: np.asarray(column) for key, column in tables.open_table(out).columns.items()}
    assert list(columns) == ["chain", "draw", "log_density", *(f"coef[{key}]" for key in NAMES)]
    assert columns["chain"].tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    assert columns["draw"].tolist() == [0, 1, 2, 3, 4] * 4
    for index, key in enumerate(NAMES):
        np.testing.assert_array_equal(
            columns[f"coef[{key}]"].astype(np.float32).reshape(4, 5), draws.flat[..., index]
        )
    np.testing.assert_allclose(columns["log_density"].reshape(4, 5), draws.log_density, rtol=1e-6)


def test_draws_are_written_for_arviz(folder, tmp_path):
    arviz = pytest.importorskip("arviz")
    arguments = [
        "sample",
        folder / "line",
        "--method",
        "variational",
        "--samples",
        5,
        "--out",
        tmp_path / "a.nc",
    ]
    assert run(*arguments).exit_code == 0
    draws = cvi.sample(cvi.load(folder / "line"), method="variational", num_samples=5, key=0)
    data = arviz.from_netcdf(tmp_path / "a.nc")
    np.testing.assert_array_equal(data.posterior["coef"].values, draws.flat)
    again = run(*arguments)
    assert again.exit_code == 2 and "exists already" in again.stderr
    assert run(*arguments, "--seed", 1, "--overwrite").exit_code == 0
    assert not np.array_equal(arviz.from_netcdf(tmp_path / "a.nc").posterior["coef"].values, draws.flat)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]


# diagnose


def test_diagnose_equals_python(folder):
    answer = run("diagnose", folder / "line", folder / "line.csv", "--json")
    assert answer.exit_code == 0, answer.output
    found = strict(answer.stdout)
    fit = cvi.load(folder / "line")
    expected = cvi.diagnose(fit, cvi.Dataset(X, AMOUNTS, columns=NAMES), key=0)
    assert found == expected.to_dict() and found["verdict"] == "trust"
    people = run("diagnose", folder / "line", folder / "line.csv")
    assert people.stdout.startswith("Trust it:") and "gradient kl" in people.stdout


def test_a_bad_coreset_is_said_to_be_and_is_no_error(folder):
    arguments = ["--held-out", folder / "line.csv", "--reference", folder / "line", "--samples", 500]
    answer = run(
        "diagnose", folder / "few", folder / "line.csv", *arguments, "--method", "variational", "--json"
    )
    assert answer.exit_code == 0, answer.output
    found = strict(answer.stdout)
    assert found["verdict"] in ("correct", "enlarge")
    assert found["held_out"]["rows"] == 60 and found["held_out"]["nll"] == found["train"]["nll"]
    assert found["reference"]["gaussian_kl"] > 0.1 and found["posterior"]["draws"] == 500


# plot


def png_size(file):
    """Width and height of a picture, which must be whole."""
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_classes_in_the_plane_get_a_map(folder, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(posterior_plots, "draw_map", spy(drawn, "map", posterior_plots.draw_map))
    monkeypatch.setattr(posterior_plots, "draw_pairs", spy(drawn, "pairs", posterior_plots.draw_pairs))
    arguments = ["plot", folder / "plane", "--data", folder / "plane.csv", "--out", tmp_path / "map.png"]
    answer = run(*arguments, "--json")
    assert answer.exit_code == 0, answer.output
    assert strict(answer.stdout) == {"out": str(tmp_path / "map.png")} and drawn == ["map"]
    assert png_size(tmp_path / "map.png") == (1650, 900)
    again = run(*arguments)
    assert again.exit_code == 2 and "exists already" in again.stderr
    assert sorted(tmp_path.iterdir()) == [tmp_path / "map.png"]
    people = run("plot", folder / "line", "--out", tmp_path / "pairs.PNG")
    assert people.exit_code == 0 and people.stdout == f"Wrote {tmp_path / 'pairs.PNG'}.\n"
    assert drawn == ["map", "pairs"] and png_size(tmp_path / "pairs.PNG") == (1650, 900)


def spy(calls, name, function):
    def called(*arguments, **options):
        calls.append(name)
        return function(*arguments, **options)

    return called


@pytest.mark.parametrize("ending, start", [("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_other_formats(folder, tmp_path, ending, start):
    fit = cvi.load(folder / "line")
    draws = cvi.sample(fit, method="variational", num_samples=20)
    plots.save_figure(posterior_plots.fit_overview(fit, draws=draws), tmp_path / f"a.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes().startswith(start)


def test_pairs_are_of_the_first_parameters_and_say_so():
    model = SoftmaxRegression(3, 3, intercept=True)
    fit = made_up(model, cvi.Dataset(X, registry.labels(X, 3)))
    draws = cvi.sample(fit, method="variational", num_samples=20)
    figure = posterior_plots.fit_overview(fit, draws=draws)
    left, right = figure.subfigs
    # No history: only the weights on the left.
    assert len(left.axes) == 1 and len(right.axes) == posterior_plots.MOST_PAIRS**2
    assert f"first 5 of {model.dim} parameters" in right.get_suptitle()
    assert sum(axes.axison for axes in right.axes) == 15


def test_a_picture_that_cannot_be_written_leaves_nothing(folder, tmp_path):
    (tmp_path / "file").write_text("")
    answer = run("plot", folder / "line", "--out", tmp_path / "file" / "a.png", "--json")
    assert answer.exit_code == 2 and "cannot be written" in strict(answer.stdout)["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# Refusals


REFUSALS = {
    "method": (["sample", "line", "--method", "gibbs"], "--method"),
    "table": (["sample", "line", "--out", "draws.xlsx"], "xlsx"),
    "directory": (["sample", "line", "--out", "line.nc/"], "line.nc is a directory"),
    "below a file": (
        ["sample", "line", "--out", "line.csv/a.nc", "--method", "variational"],
        "cannot be written",
    ),
    "no fit": (["sample", "nothing"], "nothing"),
    "diagnose method": (["diagnose", "line", "line.csv", "--method", "r"], "--method"),
    "no target": (["diagnose", "line", "other.csv"], "amount"),
    "no column": (["diagnose", "plane", "other.csv"], "width"),
    "no data": (["diagnose", "line", "nothing.csv"], "nothing.csv"),
    "no picture": (
        ["plot", "line", "--out", "line.gif"],
        "no picture; use a name that ends in .png, .pdf, .svg",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_sentences_with_an_exit_code(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    (folder / "line.nc").mkdir(exist_ok=True)
    arguments, words = REFUSALS[name]
    answer = run(*arguments, "--json")
    assert answer.exit_code == 2, answer.output
    error = strict(answer.stdout)["error"]
    assert words in error and "\n" not in error
    assert answer.stderr.strip() == f"error: {error}"


@pytest.mark.parametrize("option", [["--samples", "0"], ["--chains", "0"], ["--warmup", "-1"]])
def test_counts_that_make_no_sense_are_refused(folder, option):
    assert run("sample", folder / "line", *option).exit_code == 2


@pytest.mark.parametrize("command", ["sample", "diagnose", "plot"])
def test_help_has_examples(command):
    text = run(command, "--help").stdout
    assert "Examples:" in text and f"coresetvi {command} " in text and "--json" in text
