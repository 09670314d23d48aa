"""The paper stands beside the library: it is found by its entry point, and uses what any user may use."""

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import coresetvi
import coresetvi_paper
from coresetvi_paper import reproduce

FILES = sorted(Path(coresetvi_paper.__file__).parent.glob("*.py"))
HOME = Path(__file__).parents[1]


def library_names(file):
    """The dotted names of the library that a file imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] == "coresetvi")
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module.split(".")[0] == "coresetvi":
                yield from (f"{node.module}.{one.name}" for one in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_private_name_of_the_library_is_imported(file):
    private = [name for name in library_names(file) if any(part.startswith("_") for part in name.split("."))]
    assert not private


def test_the_library_does_not_know_the_paper():
    for file in Path(coresetvi.__file__).parent.rglob("*.py"):
        assert "coresetvi_paper" not in file.read_text("utf-8"), file


def test_the_command_is_an_entry_point():
    (found,) = metadata.entry_points(group="coresetvi.commands", name="reproduce")
    assert found.dist is not None and found.dist.name == "coresetvi-paper"
    assert found.load() is reproduce.reproduce


@pytest.mark.parametrize(("arguments", "needed"), [("--version", False), ("reproduce --help", True)])
def test_the_paper_is_imported_for_its_command_only(arguments, needed):
    code = """
import atexit, sys
atexit.register(lambda: print("imported" if "coresetvi_paper" in sys.modules else "not imported"))
from coresetvi.cli import main
main()
"""
    answer = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()], capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1] == ("imported" if needed else "not imported")


@pytest.mark.parametrize("page", ["README.md", "reproduction.md"])
def test_links_lead_somewhere(page):
    text = (HOME / page).read_text("utf-8")
    links = [one for one in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in one]
    assert links and not [one for one in links if not (HOME / one).exists()]
