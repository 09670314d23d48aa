"""Every example in a docstring runs, and every public name has one."""

import doctest
import importlib
import pkgutil

import pytest

import coresetvi

ROOMS = ["models", "families", "weights", "objectives", "inner", "outer", "datasets", "export", "plots"]

# Public names whose docstrings have no example yet. To write one is to take its line out.
TO_DO: set[str] = set()


def names_of_modules() -> list[str]:
    """Every module of the package, found where it is installed."""
    found = pkgutil.walk_packages(coresetvi.__path__, "coresetvi.")
    return ["coresetvi", *sorted(module.name for module in found if not module.name.endswith("__main__"))]


def examples_of(name: str) -> list[doctest.DocTest]:
    """The examples that one module defines, as `doctest` finds them."""
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder().find(module, name) if test.examples]


@pytest.mark.parametrize("name", names_of_modules())
@pytest.mark.usefixtures("quick_compilation")
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write a file
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in examples_of(name):
        runner.run(test, out=report.append)
    assert not report, "".join(report)
