"""Every example in a docstring runs, and every public name has one."""

import doctest
import importlib
import inspect
import os
import pkgutil

import pytest

import coresetvi
from coresetvi import _registry
from coresetvi.errors import InputError

ROOMS = ["models", "families", "weights", "objectives", "inner", "outer", "datasets", "export", "plots"]


def names_of_modules() -> list[str]:
    """Every module of the package, wherever it lies."""
    found = pkgutil.walk_packages(coresetvi.__path__, "coresetvi.")
    return ["coresetvi", *sorted(module.name for module in found if not module.name.endswith("__main__"))]


def is_missing_data(error: BaseException) -> bool:
    """Whether an example stopped because a data file is not on this machine."""
    return isinstance(error, InputError) and "was not found in" in str(error)


class Runner(doctest.DocTestRunner):
    """Runs examples; those that need a data file which is not here are told apart from failures."""

    missing: str | None = None

    def report_unexpected_exception(self, out, test, example, exc_info):
        if is_missing_data(exc_info[1]) and os.environ.get("CI") != "true":
            self.missing = str(exc_info[1])
        else:
            super().report_unexpected_exception(out, test, example, exc_info)


def run_examples(tests) -> tuple[str, str | None]:
    """What is wrong with the examples, and which data they lack."""
    report: list[str] = []
    runner = Runner(verbose=False, optionflags=doctest.FAIL_FAST)
    for test in tests:
        runner.run(test, out=report.append)
    return "".join(report), runner.missing


@pytest.mark.parametrize("name", names_of_modules())
@pytest.mark.usefixtures("quick_compilation")
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write a file
    monkeypatch.setattr(_registry, "_registry", dict(_registry._registry))  # or register a class
    report, missing = run_examples(doctest.DocTestFinder().find(importlib.import_module(name), name))
    assert not report, report
    if missing:
        pytest.skip(missing)


def test_a_wrong_example_is_reported_and_missing_data_are_not(monkeypatch):
    def example(source):
        return [doctest.DocTestParser().get_doctest(source, {"InputError": InputError}, "it", None, None)]

    monkeypatch.delenv("CI", raising=False)
    assert "Expected" in run_examples(example(">>> 1 + 1\n3\n"))[0]
    lacking = example(">>> raise InputError('x.npz was not found in /nowhere')\n")
    assert run_examples(lacking) == ("", "x.npz was not found in /nowhere")
    monkeypatch.setenv("CI", "true")
    assert "was not found" in run_examples(lacking)[0]


def public_names() -> dict[str, object]:
    """Classes and functions that a user can name, by where they are defined."""
    found = {}
    for room in [coresetvi, *(importlib.import_module(f"coresetvi.{name}") for name in ROOMS)]:
        # A module without __all__ offers what it defines itself.
        own = [name for name in vars(room) if not name.startswith("_")]
        listed = getattr(room, "__all__", None)
        for name in own if listed is None else listed:
            thing = getattr(room, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue  # a module, or a constant
            if listed is not None or thing.__module__ == room.__name__:
                found[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return found


def test_every_public_name_has_a_docstring_with_an_example():
    names = public_names()
    assert {"coresetvi.models.glm.LogisticRegression", "coresetvi.weights.Simplex"} <= names.keys()
    lacking = {name for name, thing in names.items() if ">>>" not in (thing.__doc__ or "")}
    assert lacking == set(), "these need an example (>>>) in their docstring"
