"""What the tests of the paper share."""

import gc
import os

import jax
import pytest

# Tests neither read what other runs have compiled nor leave anything behind.
os.environ["CORESETVI_CACHE"] = "off"


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
    """Programs go with their module: thousands of them in one process would be dropped in mid-test."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module")
def quick_compilation():
    """Most of the time would go into optimising code that then runs for a millisecond."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
