"""What surrounds the package: one version number, and data files that may be missing."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from data_files import folder_with
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version_number_everywhere():
    result = CliRunner().invoke(cli.build_app(), ["--version"])
    assert result.stdout.strip() == f"coresetvi {cvi.__version__}"
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [cvi.__version__]


def test_packaging_reads_the_version_from_the_package():
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert runpy.run_path(str(source))["__version__"] == cvi.__version__


def test_the_oldest_python_is_the_first_of_the_classifiers():
    names = [line.split(" :: ")[-1] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert PROJECT["project"]["requires-python"] == f">={names[0]}"


def test_every_bound_becomes_a_constraint():
    run = subprocess.run(
        [sys.executable, ".ci/lowest.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    bounds = dict(line.split("==") for line in run.stdout.splitlines())
    assert f"jax>={bounds['jax']}" in PROJECT["project"]["dependencies"]
    assert bounds["httpstan"] == "4.13" and "coresetvi" not in bounds
    assert set(bounds) >= {re.split(r"[>\[]", line)[0] for line in PROJECT["project"]["dependencies"]}


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CORESETVI_DATA", str(tmp_path))
    monkeypatch.delenv("CORESETVI_REQUIRE_DATA", raising=False)
    monkeypatch.setenv("CI", "true")
    return tmp_path


def test_without_data_files_tests_are_skipped_even_in_ci(empty_folder):
    with pytest.raises(pytest.skip.Exception, match=r"lacks adult\.npz"):
        folder_with("adult.npz")


def test_where_data_files_are_promised_a_missing_one_is_a_failure(empty_folder, monkeypatch):
    monkeypatch.setenv("CORESETVI_REQUIRE_DATA", "1")
    with pytest.raises(pytest.fail.Exception, match=r"lacks adult\.npz"):
        folder_with("adult.npz")
    (empty_folder / "adult.npz").touch()
    assert folder_with("adult.npz") == empty_folder
