"""Plain inference on rows that are not in memory finds what it finds in memory, and what is exact."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from streamed import fit_rows, problem, stream

import coresetvi as cvi
from coresetvi import families
from coresetvi.constructions import by_name
from coresetvi.constructions.row_use import check_rows_are_taken
from coresetvi.errors import InputError
from coresetvi.models.row_checks import check_rows
from coresetvi.models.row_sums import rises_of, slopes_of
from coresetvi.posterior.distances import gaussian_kl

pytestmark = pytest.mark.usefixtures("quick_compilation")


def moments(fit):
    return fit.family.moments(fit.psi)


@pytest.mark.parametrize("family", [None, families.MeanField()], ids=["full", "diagonal"])
@pytest.mark.parametrize("construction", [cvi.FullLaplace, cvi.FullVI])
def test_a_linear_regression_has_its_exact_posterior(construction, family):
    model, data = problem("linear", 2500, 3)
    streamed = stream(data)
    fit = fit_rows(construction(family=family), model, streamed)
    assert isinstance(model, cvi.models.LinearRegression)
    mean, covariance = model.posterior(data)
    if family is not None:
        # The best independent normal has the inverse of the precision's diagonal.
        covariance = np.diag(1.0 / np.diag(np.linalg.inv(np.asarray(covariance, np.float64))))
    assert gaussian_kl(*moments(fit), mean, covariance) < 1e-5
    assert fit.result == "finished"
    assert streamed.passes <= 7
    assert fit.about["rows"] == 2500 and len(fit.coreset) == 1000
    assert float(fit.coreset.total_weight) == pytest.approx(float(data.total_weight), rel=1e-5)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
@pytest.mark.parametrize("family", [families.FullRank(), families.MeanField()], ids=["full", "diagonal"])
@pytest.mark.parametrize("construction", [cvi.FullLaplace, cvi.FullVI])
def test_streamed_rows_give_what_rows_in_memory_give(construction, family, name):
    model, data = problem(name, 900, 3)
    streamed = stream(data)
    by_passes = fit_rows(construction(family=family), model, streamed)
    in_memory = cvi.fit(construction(family=family), model, data, key=0)
    assert by_passes.result == "finished"
    # Laplace's approximation is one thing; Adam ends a little way off the optimum of the bound.
    assert gaussian_kl(*moments(by_passes), *moments(in_memory)) < (
        1e-4 if construction is cvi.FullLaplace else 5e-3
    )
    assert streamed.passes <= 12
    # All rows fit into the sample, so the points are all rows, and predictions can be compared.
    assert len(by_passes.coreset) == 900
    assert np.allclose(by_passes.predict(data.x), in_memory.predict(data.x), atol=5e-3)


def test_the_bound_is_the_largest_one():
    """No r near the one that passes find has a larger bound on the same rows, by numerical integration."""
    model, data = problem("logistic", 60, 1)
    fit = fit_rows(cvi.FullVI(), model, stream(data, 13))
    mean, covariance = (np.asarray(part, np.float64) for part in moments(fit))
    nodes, shares = np.polynomial.hermite_e.hermegauss(40)

    def bound(mean, deviation):
        thetas = jnp.asarray((mean + deviation * nodes)[:, None], jnp.float32)
        reference = jnp.zeros(1)
        values = np.asarray(rises_of(model, data, thetas, reference)[1], np.float64)
        values += np.array([float(model.log_prior(theta)) for theta in thetas])
        return values @ shares / shares.sum() + np.log(deviation)

    deviation = np.sqrt(covariance[0, 0])
    best = bound(mean[0], deviation)
    for step in (-0.1, 0.1):
        assert bound(mean[0] + step * deviation, deviation) < best - 1e-3
        assert bound(mean[0], deviation * (1 + step)) < best - 1e-3
    assert np.all(np.isfinite(fit.history["loss"])) and np.diff(fit.history["loss"])[-1] < 1e-3


def test_a_step_that_lowers_the_bound_is_halved():
    model, data = problem("logistic", 60, 2)
    plan = cvi.FullVI().settle(model, check_rows(model, stream(data, 13)))
    state = plan.start(jax.random.key(0))
    wide = {**state.psi, "factor": 10.0 * state.psi["factor"]}
    best = {**state.psi, "mean": state.psi["mean"] + 0.1}
    trail = eqx.tree_at(lambda one: (one.best, one.height), state.optimizer, (best, jnp.asarray(50.0)))
    state = eqx.tree_at(lambda one: (one.psi, one.optimizer), state, (wide, trail))
    after, _ = plan.step(state, jnp.asarray(0), jnp.asarray(1.0), jax.random.key(1))
    for name, leaf in after.psi.items():
        assert np.allclose(leaf, 0.5 * (best[name] + wide[name]), rtol=1e-5)
    assert all(np.array_equal(leaf, best[name]) for name, leaf in plan.extract(after)[1].items())


@pytest.mark.parametrize("construction", [cvi.RandomSubset(12), cvi.SubsetLaplace(12)])
def test_a_subset_of_few_rows_is_the_one_drawn_in_memory(construction):
    model, data = problem("softmax", 300, 2)
    streamed = fit_rows(construction, model, stream(data))
    again = fit_rows(construction, model, check_rows(model, data))
    assert streamed.coreset.indices.tolist() == again.coreset.indices.tolist()
    assert np.allclose(streamed.coreset.x, again.coreset.x, rtol=1e-5)
    assert np.allclose(streamed.coreset.weights, float(data.total_weight) / 12, rtol=1e-5)
    assert gaussian_kl(*moments(streamed), *moments(again)) < 1e-3


def test_a_subset_of_many_rows_has_every_class():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(5000, 2)), np.zeros(5000, int)
    y[4321] = 1
    data = cvi.Dataset(x, y)
    fit = fit_rows(cvi.SubsetLaplace(10), cvi.models.LogisticRegression(2), stream(data, 500))
    assert fit.coreset.indices.tolist().count(4321) == 1
    assert np.allclose(fit.coreset.weights, 500.0, rtol=1e-3)
    larger = fit_rows(cvi.SubsetLaplace(1000), cvi.models.LinearRegression(2), stream(data, 500))
    assert len(set(larger.coreset.indices.tolist())) == 1000
    with pytest.raises(InputError, match="only 5000 rows"):
        fit_rows(cvi.SubsetLaplace(6000), cvi.models.LinearRegression(2), stream(data, 500))


def test_slopes_are_gradients():
    model, data = problem("softmax", 300, 2)
    thetas = jnp.asarray(np.random.default_rng(1).normal(size=(5, model.dim)), jnp.float32)
    exact = slopes_of(model, data, thetas)
    assert np.allclose(slopes_of(model, stream(data), thetas), exact, rtol=1e-4, atol=1e-3)
    nudge = 1e-2 * jnp.eye(model.dim)[3]
    rises = rises_of(model, stream(data), jnp.stack([thetas[0] + nudge, thetas[0] - nudge]), thetas[0])[1]
    assert float(rises[0] - rises[1]) / 2e-2 == pytest.approx(float(exact[0, 3]), rel=1e-3)


def test_what_passes_cannot_do_is_refused():
    model, data = problem("linear", 50, 2)
    with pytest.raises(InputError, match=r"FullVI .* not LowRank; choose"):
        cvi.FullVI(family=families.LowRank()).settle(model, stream(data))
    large = cvi.models.BayesianMLP(2, (200,), None)
    with pytest.raises(InputError, match=r"FullLaplace .* at most 512 parameters, and this model has"):
        cvi.FullLaplace().settle(large, stream(data))


def test_every_method_takes_rows_or_says_what_does():
    taking = {"random-subset", "subset-laplace", "full-vi", "full-laplace"}
    rows_in_files = stream(problem("linear", 50, 2)[1])
    for name, method in by_name.METHODS.items():
        construction = by_name.build_construction(name, 5 if method.sized else None)
        if name in taking:
            assert construction.takes_rows
        if construction.takes_rows:
            check_rows_are_taken(construction, rows_in_files)
        else:
            with pytest.raises(InputError, match=f"{type(construction).__name__} needs all rows in memory"):
                check_rows_are_taken(construction, rows_in_files)
