"""Room for compiled programs."""

import jax
import jax.numpy as jnp
import pytest

import coresetvi as cvi
from coresetvi.fitting import compilation


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """`pretend(used, limit)`: this process has so many maps of so many."""

    def arrange(used, limit):
        (tmp_path / "maps").write_text("a map\n" * used)
        (tmp_path / "limit").write_text(f"{limit}\n")
        monkeypatch.setattr(compilation, "MAPS", tmp_path / "maps")
        monkeypatch.setattr(compilation, "LIMIT", tmp_path / "limit")

    return arrange


def compiled_programs():
    calls = []

    @jax.jit
    def double(x):
        calls.append(x)
        return 2 * x

    return double, calls


def test_programs_are_dropped_only_when_there_are_too_many(pretend):
    double, traces = compiled_programs()
    double(jnp.ones(3))
    pretend(59, 100)
    assert not compilation.make_room()
    double(jnp.ones(3))
    assert len(traces) == 1
    pretend(60, 100)
    assert compilation.make_room()
    double(jnp.ones(3))
    assert len(traces) == 2


def test_a_system_that_does_not_count_maps_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "MAPS", tmp_path / "nothing")
    assert not compilation.make_room()
    monkeypatch.undo()
    (tmp_path / "limit").write_text("many")
    monkeypatch.setattr(compilation, "LIMIT", tmp_path / "limit")
    assert not compilation.make_room()


def test_a_fit_makes_room_before_it_compiles(pretend):
    double, traces = compiled_programs()
    double(jnp.ones(3))
    pretend(60, 100)
    train, _ = cvi.datasets.synthetic_lr(n=30, dim=2)
    fitted = cvi.fit(cvi.FullLaplace(), cvi.models.LogisticRegression(2), train, key=0, progress=False)
    assert fitted.result == "finished"
    double(jnp.ones(3))
    assert len(traces) == 2
