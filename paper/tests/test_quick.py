"""The miniature of every table and figure runs from the command line and ends in its picture."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coresetvi import cli
from coresetvi_paper import experiment_names, read_experiment

DATA = Path(os.environ.get("CORESETVI_DATA", "."))
# Table 3 has a test of its own, which learns something (`test_miniature.py`).
ALONE = ("table3",)
BASES = [name for name in experiment_names() if read_experiment(name).like is None and name not in ALONE]
FILES = {"phishing": "phishing_large.npz"}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_compilation")]


def reproduce(name, out):
    result = CliRunner().invoke(cli.build_app(), ["reproduce", name, "--quick", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", BASES)
def test_miniatures_run_and_their_views_run_nothing_more(name, tmp_path, monkeypatch):
    small = read_experiment(name).miniature()
    files = [FILES[one.id] for one in small.problems if one.id in FILES]
    if missing := [file for file in files if not (DATA / file).exists()]:
        pytest.skip(f"{missing[0]} is not in $CORESETVI_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answer = reproduce(name, tmp_path / "out")
    assert len(answer["records"]) == len(small.cells())
    assert all(record["result"] != "failed" for record in answer["records"])
    assert Path(answer["files"]["picture"]).stat().st_size > 5000
    for other in experiment_names():
        if read_experiment(other).like == name:
            view = reproduce(other, tmp_path / "out")
            assert view["records"] == answer["records"]
            assert Path(view["files"]["picture"]).name == f"{other}-quick.png"
