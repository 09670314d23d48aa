"""The examples in the docstrings of the constructions and their drivers."""

import doctest
import importlib

import pytest

MODULES = [
    "constructions.greedy",
    "constructions.published",
    "drivers",
    "laplace",
    "lifelong",
    "projections",
]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.usefixtures("quick_compilation")
def test_examples_in_the_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(f"coresetvi.{name}"))
    assert result.attempted > 0 and result.failed == 0
