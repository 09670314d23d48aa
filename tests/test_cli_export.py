"""`coresetvi export`: files for other tools, which run as they are and replace nothing."""

import json
import runpy
import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import entries
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli, export
from coresetvi.cli import export as cli_export
from coresetvi.data import files
from coresetvi.models import BayesianMLP, LogisticRegression

X = np.array([[0.5, -1.0], [1.5, 0.25], [-0.75, 2.0]])
SOFT = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of compiled programs far from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Saved fits that nobody fitted: `soft` has soft labels, `net` is a network."""
    place = tmp_path_factory.mktemp("it's a {folder}")
    family = cvi.families.MeanField()
    coreset = cvi.Dataset(X, SOFT, [4.0, 2.0, 8.0], columns=["width", "height"], target="kind")
    for name, model in (("soft", LogisticRegression(2)), ("net", BayesianMLP(2, (3,)))):
        cvi.Fit(
            coreset=coreset,
            model=model,
            family=family,
            psi=family.init(jnp.zeros(model.dim), jnp.ones(model.dim)),
            construction=None,
            history={},
            result="finished",
            key=jax.random.key(0),
            seconds={"compile": 0.0, "run": 0.0},
            about={"rows": 3, "total_weight": 14.0, "steps": 0},
            extra={"classes": ["no", "yes"]},
        ).save(place / name)
    return place


def run(*arguments):
    return CliRunner().invoke(cli.build_app(), ["export", *map(str, arguments)])


def columns_of(file):
    return {name: entries(column) for name, column in files.open_table(file).columns.items()}


@pytest.mark.parametrize("name", ["a.csv", "a.CSV.gz", "a.tsv", "a.parquet"])
def test_tables_hold_the_coreset(folder, tmp_path, name):
    answer = run(folder / "soft", "--out", tmp_path / name, "--json")
    assert answer.exit_code == 0, answer.output
    to = name.lower().split(".")[1]
    assert json.loads(answer.stdout) == {
        "to": to,
        "out": str(tmp_path / name),
        "files": [str(tmp_path / name)],
    }
    assert columns_of(tmp_path / name) == {
        "width": [0.5, 1.5, -0.75],
        "height": [-1.0, 0.25, 2.0],
        "kind_no": [0.25, 1.0, 0.5],
        "kind_yes": [0.75, 0.0, 0.5],
        "weight": [4, 2, 8],
    }


def test_sklearn_gets_hard_rows(folder, tmp_path):
    answer = run(folder / "soft", "--to", "sklearn", "--out", tmp_path / "rows.csv")
    assert answer.exit_code == 0 and answer.stdout == f"Wrote {tmp_path / 'rows.csv'}.\n"
    found = columns_of(tmp_path / "rows.csv")
    assert list(found) == ["width", "height", "kind", "sample_weight"]
    assert found["kind"] == ["no", "yes", "no", "no", "yes"] and found["sample_weight"] == [1, 3, 2, 4, 4]


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--to", "stan", "--out", "new/place"], ["new/place/model.stan", "new/place/data.json"]),
        (["--out", "people.stan"], ["people.stan", "people.json"]),
    ],
    ids=["directory", "file"],
)
def test_stan_gets_a_program_and_data(folder, tmp_path, monkeypatch, arguments, files):
    monkeypatch.chdir(tmp_path)
    answer = run(folder / "soft", *arguments)
    assert answer.exit_code == 0 and answer.stdout == f"Wrote {files[0]} and {files[1]}.\n"
    exported = export.stan(cvi.load(folder / "soft"))
    assert (tmp_path / files[0]).read_text() == exported.program
    assert json.loads((tmp_path / files[1]).read_text()) == exported.data


@pytest.mark.parametrize(
    ("to", "files"),
    [
        ("csv", ["soft.csv"]),
        ("parquet", ["soft.parquet"]),
        ("stan", ["soft_stan/model.stan", "soft_stan/data.json"]),
        ("pymc", ["soft_pymc.py"]),
        ("sklearn", ["soft_sklearn.csv"]),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_by_default_files_lie_beside_the_fit(folder, tmp_path, monkeypatch, to, files, inside):
    shutil.copytree(folder / "soft", tmp_path / "soft")
    monkeypatch.chdir(tmp_path / "soft" if inside else tmp_path)
    assert run("." if inside else "soft", "--to", to).exit_code == 0
    before = {path.name for path in (folder / "soft").iterdir()}
    assert {path.name for path in (tmp_path / "soft").iterdir()} == before
    assert all((tmp_path / file).is_file() for file in files)


@pytest.mark.usefixtures("quick_compilation")
def test_the_numpyro_script_samples(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)  # the script must find the fit from anywhere
    answer = run("soft", "--to", "numpyro", "--out", tmp_path / "nuts.py")
    assert answer.exit_code == 0 and f"Next: python {tmp_path / 'nuts.py'}" in answer.stdout
    monkeypatch.chdir(tmp_path)
    draws = runpy.run_path(str(tmp_path / "nuts.py"))["mcmc"].get_samples()["coef"]
    assert draws.shape == (1000, 2) and "coef[1]" in capsys.readouterr().out
    # Two parameters: the mean by adding up the posterior on a grid, and four standard errors of 200 draws.
    steps = np.linspace(-4, 4, 81)
    grid = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2)
    logits = grid @ X.T
    by_class = np.stack([-np.logaddexp(0, logits), -np.logaddexp(0, -logits)], -1)
    density = np.exp(-0.5 * (grid**2).sum(1) + (by_class * SOFT).sum(-1) @ [4.0, 2.0, 8.0])
    mean = density @ grid / density.sum()
    deviation = np.sqrt(density @ (grid - mean) ** 2 / density.sum())
    assert np.all(np.abs(np.asarray(draws).mean(0) - mean) < 4 * deviation / np.sqrt(200))


def test_the_pymc_script_samples(folder, tmp_path, monkeypatch, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytensor, pymc = pytest.importorskip("pytensor"), pytest.importorskip("pymc")
        sample = pymc.sample
        few = {"draws": 4, "tune": 2, "chains": 2, "cores": 1, "random_seed": 0, "progressbar": False}
        monkeypatch.setattr(pymc, "sample", lambda *_, **__: sample(**few, compute_convergence_checks=False))
        assert run(folder / "soft", "--to", "pymc", "--out", tmp_path / "nuts.py").exit_code == 0
        with pytensor.config.change_flags(cxx=""):
            draws = runpy.run_path(str(tmp_path / "nuts.py"))["draws"]
    assert draws.posterior["coef"].shape == (2, 4, 2) and "coef[height]" in capsys.readouterr().out


def test_a_network_can_go_to_numpyro_only(folder, tmp_path):
    assert run(folder / "net", "--to", "numpyro", "--out", tmp_path / "a.py").exit_code == 0
    for to, out in (("pymc", "b.py"), ("stan", "c")):
        answer = run(folder / "net", "--to", to, "--out", tmp_path / out, "--json")
        assert (
            answer.exit_code == 2
            and "BayesianMLP cannot be written for" in json.loads(answer.stdout)["error"]
        )
    assert [file.name for file in tmp_path.iterdir()] == ["a.py"]


BAD_INPUTS = {
    "no tool": (["soft", "--out", "{tmp}/a.py"], "does not tell for which tool; say it with --to csv|tsv|"),
    "unknown tool": (
        ["soft", "--out", "{tmp}/a", "--to", "jags"],
        "--to 'jags' is unknown; choose one of csv",
    ),
    "other ending": (
        ["soft", "--to", "csv", "--out", "{tmp}/a.parquet"],
        "a.parquet does not suit --to csv; use a name that ends in .csv, .csv.gz",
    ),
    "script without .py": (["soft", "--to", "pymc", "--out", "{tmp}/a"], "use a name that ends in .py"),
    "no fit": (["none", "--out", "{tmp}/a.csv"], "none does not exist; check the path"),
    "out is the fit": (
        ["soft", "--to", "stan", "--out", "soft"],
        "soft is inside the saved fit soft; choose",
    ),
    "out in the fit": (["soft", "--out", "../{folder}/soft/a.csv"], "a.csv is inside the saved fit soft"),
    "neither": (["soft"], "for which tool? say it with --to csv|tsv|parquet"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, tmp_path, monkeypatch, capsys, case):
    arguments, sentence = BAD_INPUTS[case]
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as left:
        cli.main(["export", *(text.format(tmp=tmp_path, folder=folder.name) for text in arguments), "--json"])
    answer = capsys.readouterr()
    assert left.value.code == 2 and sentence in json.loads(answer.out)["error"]
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", cli_export.TOOLS)
def test_nothing_is_replaced_unless_asked(folder, tmp_path, to):
    endings = cli_export.TOOLS[to].endings
    out = tmp_path / f"out{endings[0] if endings else '.stan'}"
    out.write_text("mine")
    refused = run(folder / "soft", "--to", to, "--out", out)
    assert refused.exit_code == 2 and "exists already" in refused.stderr and "--overwrite" in refused.stderr
    assert out.read_text() == "mine" and len(list(tmp_path.iterdir())) == 1
    assert run(folder / "soft", "--to", to, "--out", out, "--overwrite").exit_code == 0
    assert out.read_bytes() != b"mine"


def test_help_has_examples():
    text = run("--help").stdout
    assert (
        "\n    coresetvi export" in text
        and "--json" in text
        and "csv|tsv|parquet|stan|numpyro|pymc|sklearn" in text
    )
