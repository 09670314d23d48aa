"""The examples in the docstrings of the constructions, their drivers, and what comes after a fit."""

import doctest
import importlib

import pytest

MODULES = [
    "chains",
    "constructions.greedy",
    "constructions.published",
    "correction",
    "curvature",
    "diagnostics",
    "discrepancies",
    "draws",
    "drivers",
    "laplace",
    "lifelong",
    "posterior",
    "projections",
    "sizes",
]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.usefixtures("quick_compilation")
def test_examples_in_the_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(f"coresetvi.{name}"))
    assert result.attempted > 0 and result.failed == 0
