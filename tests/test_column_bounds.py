"""Learned locations keep within bounds, and no step ends where the model has no value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.constructions.parametrisation import given_leaves, parametrise
from coresetvi.data import Dataset
from coresetvi.errors import InputError
from coresetvi.weights import Simplex

ROWS = 300
GENERATOR = np.random.default_rng(0)
Z = GENERATOR.normal(size=ROWS)
ERROR = np.exp(0.8 * GENERATOR.normal(size=ROWS) - 1.0)
Y = 0.5 + 0.7 * Z + ERROR * GENERATOR.normal(size=ROWS)
LOW, HIGH = 0.99 * float(ERROR.min()), 1.01 * float(ERROR.max())
NAMES = ["z", "error"]


def log_likelihood(p, x, y):
    """Measurements with known standard errors: no value where those are not positive."""
    return -0.5 * ((y - p[0] - p[1] * x[:, 0]) / x[:, 1]) ** 2 - jnp.log(x[:, 1])


MODEL = cvi.models.FromCallables(lambda p: -0.5 * jnp.sum(p**2), log_likelihood, jnp.zeros(2))


def rows(**given) -> Dataset:
    return Dataset(np.column_stack([Z, ERROR]), Y, columns=NAMES, **given)


@pytest.mark.parametrize("still", [(), (0,)])
def test_projection_is_in_the_units_of_the_data(still):
    x = np.column_stack([Z, np.clip(ERROR, 0.05, 2.0)])
    data = Dataset(x, Y, columns=NAMES, bounds={"error": (0.05, 2.0)})
    units = parametrise(data, Simplex(), frozenset({"x"}), None, still)
    leaves, _ = given_leaves(units, data.take(np.arange(4)))
    column = leaves["x"].shape[1] - 1
    far = leaves["x"].at[:, column].set(jnp.asarray([-100.0, 100.0, 0.0, leaves["x"][3, column]]))
    for type_ in (jnp.float32, jnp.float64):
        with jax.enable_x64(type_ == jnp.float64):
            moved = units.project({**leaves, "x": far})
            x = np.asarray(units.build(moved).x)
        assert 0.05 <= x[0, 1] < 0.0501 and 1.999 < x[1, 1] <= 2.0
    np.testing.assert_allclose(moved["x"][2:], far[2:], atol=1e-5)  # a row on the edge comes a little inside
    np.testing.assert_array_equal(moved["x"][:, :column], far[:, :column])


STEPS = {
    "passes": ({}, None),
    "natural gradients": ({"optimizer": cvi.outer.NaturalGradient(max_move=3.0), "init": "subset"}, 20),
    # Steps of three deviations would cross zero at once.
    "adam": ({"optimizer": cvi.outer.Adam(3.0), "init": "subset"}, 20),
}


@pytest.mark.parametrize("name", STEPS)
def test_no_step_ends_where_the_model_has_no_value(name):
    options, num_steps = STEPS[name]
    fit = cvi.fit(cvi.BBPSVI(6, **options), MODEL, rows(), key=0, num_steps=num_steps)
    assert fit.result != "non_finite" and np.isfinite(fit.history["loss"]).all()
    assert np.asarray(fit.coreset.x[:, 1]).min() > 0


def test_learned_points_keep_within_bounds(tmp_path):
    data = rows(bounds={"error": (LOW, HIGH), 0: (-4, 4)})
    fit = cvi.fit(
        cvi.BBPSVI(6, optimizer=cvi.outer.Adam(3.0), init="subset"), MODEL, data, key=0, num_steps=20
    )
    x = np.asarray(fit.coreset.x)
    assert LOW <= x[:, 1].min() and x[:, 1].max() <= HIGH and np.abs(x[:, 0]).max() <= 4
    assert np.isclose(x[:, 1], LOW, rtol=1e-3).any() or np.isclose(x[:, 1], HIGH, rtol=1e-3).any()
    fit.save(tmp_path / "fit")
    assert cvi.load(tmp_path / "fit", model=MODEL).coreset.bounds == data.bounds  # and no row is refused


def test_rows_outside_their_bounds_are_refused_wherever_they_are():
    scanned = cvi.scan(lambda: iter([rows()]), bounds={"error": (1.0, None)})
    with pytest.raises(InputError, match=r"row \d+, column 'error', which is outside its bounds \(1, inf\)"):
        cvi.fit(cvi.BBPSVI(6), MODEL, scanned, key=0)
