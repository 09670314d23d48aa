"""Programs that are compiled quickly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coresetvi import _compiler


@pytest.fixture
def fresh():
    """The options as they are found, before and after."""
    _compiler.quick_options.cache_clear()
    yield
    _compiler.quick_options.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_options_are_used_where_xla_knows_them(monkeypatch):
    assert _compiler.quick_options() == _compiler.QUICK
    _compiler.quick_options.cache_clear()
    monkeypatch.setattr(_compiler, "QUICK", {"xla_cpu_no_such_option": False})
    assert _compiler.quick_options() == {}
    _compiler.quick_options.cache_clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert _compiler.quick_options() == {}


def test_a_quick_program_is_traced_once_and_works_inside_of_others():
    traces = []

    @_compiler.quick_jit
    def double(x, times):
        traces.append(times)
        return times * x

    assert double(jnp.ones(()), 2) == double(jnp.ones(()), 2) == 2.0 and traces == [2]
    assert jax.jit(lambda x: double(x, 3))(1.0) == 3.0
    assert jax.jit(lambda x: double(jnp.ones(()), 3) + x)(1.0) == 4.0
    assert jax.grad(lambda x: double(x, 3))(1.0) == 3.0


def test_only_programs_with_few_numbers_are_quick(monkeypatch):
    monkeypatch.setattr(_compiler, "FEW_NUMBERS", 10)
    options = []
    monkeypatch.setattr(_compiler, "quick_options", lambda: options.append("asked") or {})
    total = _compiler.quick_jit(lambda pair: pair[0].sum() + pair[1].sum())
    assert total((jnp.ones(5), np.ones(6, np.float32))) == 11.0 and not options
    assert total((jnp.ones(5), np.ones(5, np.float32))) == 10.0 and options == ["asked"]


def test_a_method_can_be_quick():
    class Scale(eqx.Module):
        factor: jax.Array

        @_compiler.quick_jit
        def apply(self, x):
            return self.factor * x

    assert Scale(jnp.asarray(2.0)).apply(jnp.asarray(3.0)) == 6.0
