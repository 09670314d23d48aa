"""Fits that many tests look at, made once."""

import functools
import gc
import os

import jax
import pytest
import registry

import coresetvi as cvi
from coresetvi.fitting import steps as compiled

# Tests neither read what other runs have compiled nor leave anything behind.
os.environ["CORESETVI_CACHE"] = "off"
# More than one chunk, and not a whole number of them.
STEPS = compiled.CHUNK + 6


@functools.cache
def fit_row(name: str) -> cvi.Fit:
    construction, case = registry.CONSTRUCTIONS[name], registry.MODELS["logistic"]
    model = registry.MODEL_OF.get(name, case.model)
    return cvi.fit(construction, model, case.data, key=0, num_steps=STEPS, progress=False)


@functools.cache
def fit_model(name: str) -> cvi.Fit:
    case = registry.MODELS[name]
    construction = registry.CONSTRUCTIONS["random subset"]
    return cvi.fit(construction, case.model, case.data, key=0, num_steps=3, progress=False)


@pytest.fixture(scope="session")
def fitted_row():
    """`fitted_row(name)`: the construction of that name, fitted to the logistic data with key 0."""
    return fit_row


@pytest.fixture(scope="session")
def fitted_model():
    """`fitted_model(name)`: the model of that name, fitted to a random subset of its data."""
    return fit_model


@pytest.fixture(scope="session")
def steps():
    """How many steps the fits of `fitted_row` take."""
    return STEPS


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


@pytest.fixture
def float64():
    """Double precision inside one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def press_ctrl_c(monkeypatch):
    """`press_ctrl_c(n)`: from now on, a fit is interrupted in the chunk that follows its first n steps."""

    def arm(num_steps: int) -> None:
        advance = compiled.advance

        def interrupted(run, schedule):
            if run.position.steps >= num_steps:
                raise KeyboardInterrupt
            return advance(run, schedule)

        monkeypatch.setattr(compiled, "advance", interrupted)

    return arm
