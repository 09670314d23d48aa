"""NumPyro models as people write them: flat priors, group numbers, known errors, few points, NaN."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.infer.util import potential_energy

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.models import FromNumPyro
from coresetvi.models.index_columns import check_codes, index_columns, program_of
from coresetvi.models.propriety import need_enough_points, need_proper

pytestmark = pytest.mark.usefixtures("quick_compilation")

GENERATOR = np.random.default_rng(0)
ROWS, NOISE = 200, 0.5
X = GENERATOR.standard_normal((ROWS, 3))
Y = X @ [1.0, -0.5, 0.3] + NOISE * GENERATOR.standard_normal(ROWS)
DATA = cvi.Dataset(X, Y)


# Flat priors


def regression_of(slopes):
    def flat(x, y):
        slope = slopes()
        numpyro.deterministic("square", jnp.sum(slope**2))
        numpyro.deterministic("middle", jnp.mean(x))
        prediction = numpyro.deterministic("prediction", x @ slope)
        numpyro.sample("y", dist.Normal(prediction, NOISE), obs=y)

    return flat


def in_a_plate():
    with numpyro.plate("columns", 3):
        return numpyro.sample("slope", dist.ImproperUniform(constraints.real, (), ()))


WAYS = {
    "event": lambda: numpyro.sample("slope", dist.ImproperUniform(constraints.real, (), (3,))),
    "batch": lambda: numpyro.sample("slope", dist.ImproperUniform(constraints.real, (3,), ())),
    "expanded": lambda: numpyro.sample(
        "slope", dist.ImproperUniform(constraints.real, (), ()).expand([3]).to_event(1)
    ),
    "plate": in_a_plate,
    "positive": lambda: numpyro.sample("slope", dist.ImproperUniform(constraints.positive, (), (3,))),
}


@pytest.mark.parametrize("way", WAYS)
def test_flat_priors_have_numpyros_density_and_start_at_zero(way):
    function = regression_of(WAYS[way])
    model = FromNumPyro(function, DATA)
    assert model.dim == 3 and model.has_flat_prior
    np.testing.assert_allclose(model.start(jax.random.key(0)), np.zeros(3), atol=0.011)
    theta = jnp.asarray([0.3, -0.2, 0.8])

    @jax.jit
    def both(theta):
        ours = model.log_prior(theta) + jnp.sum(model.log_likelihood(theta, DATA.x, DATA.y))
        return ours, -potential_energy(function, (DATA.x, DATA.y), {}, {"slope": theta})

    np.testing.assert_allclose(*both(theta), rtol=1e-5)
    assert float(model.log_prior(theta)) == pytest.approx(0.9 if way == "positive" else 0.0)


@pytest.fixture(scope="module")
def least_squares():
    """A fit with flat slopes, and the mean and covariance of its posterior."""
    model = FromNumPyro(regression_of(WAYS["event"]), DATA)
    covariance = NOISE**2 * np.linalg.inv(X.T @ X)
    fit = cvi.fit(cvi.BBPSVI(8), model, DATA, key=0, progress=False)
    return fit, np.linalg.solve(X.T @ X, X.T @ Y), covariance


def test_a_flat_regression_has_the_posterior_of_least_squares(least_squares):
    fit, mean, covariance = least_squares
    assert fit.result == "finished"
    widths = np.sqrt(np.diag(covariance))
    found_mean, found = (np.asarray(one) for one in fit.family.moments(fit.psi))
    np.testing.assert_allclose(found_mean, mean, atol=0.05 * widths.min())
    np.testing.assert_allclose(found, covariance, atol=0.05 * widths.max() ** 2)
    assert cvi.diagnose(fit, DATA, num_samples=200).verdict == "trust"


def test_draws_include_what_depends_on_parameters_only(least_squares):
    fit, mean, covariance = least_squares
    draws = cvi.sample(fit, method="importance", num_samples=500, progress=False)
    named = draws.named()
    assert set(named) == {"slope", "square"}
    np.testing.assert_allclose(named["square"], np.sum(named["slope"] ** 2, axis=-1), rtol=1e-5)
    rows = {row["name"]: row for row in draws.summary()}
    assert rows["square"]["mean"] == pytest.approx(mean @ mean + np.trace(covariance), rel=0.02)
    assert set(draws.to_arviz().posterior.data_vars) == {"slope", "square"}


# Group numbers


def whole(column):
    return column.astype(int)


INDEXED = {
    "plain": (lambda t, x: t[whole(x[:, 0])], {0: range(50)}),
    "from one": (lambda t, x: t[whole(x[:, 1]) - 1], {1: range(1, 51)}),
    "take": (lambda t, x: jnp.take(t, whole(x[..., 0])), {0: range(50)}),
    "pair": (
        lambda t, x: t[:20].reshape(5, 4)[whole(x[:, 0]), whole(x[:, 1])],
        {0: range(5), 1: range(4)},
    ),
    "row by row": (lambda t, x: jax.vmap(lambda row: t[whole(row[0])])(x), {0: range(50)}),
    "all whole": (lambda t, x: t[whole(x)[:, 1]] + x[:, 0], {1: range(50)}),
    "transposed": (lambda t, x: t[whole(x.T[0])], {0: range(50)}),
    "with a constant": (lambda t, x: t[:20].reshape(5, 4)[whole(x[:, 0]), 2], {0: range(5)}),
    "two sizes": (lambda t, x: t[whole(x[:, 0])] + t[:9][whole(x[:, 0])], {0: range(9)}),
    "inside": (lambda t, x: jax.jit(lambda t: t[whole(x[:, 0])])(t), {0: range(50)}),
    "table": (lambda t, x: t[jnp.asarray(np.arange(10) // 2)[whole(x[:, 0])]], {0: range(10)}),
    "rounded": (lambda t, x: t[whole(jnp.round(x[:, 0]))], {0: range(50)}),
    "intervals": (lambda t, x: t[whole(x[:, 0] / 10)], {}),
    "none": (lambda t, x: t[0] * x[:, 0], {}),
}
THETA, TWO = np.linspace(0.1, 2.0, 50, dtype=np.float32), np.zeros((3, 2), np.float32)
LABEL = jax.ShapeDtypeStruct((), np.float32)


def density(function):
    return lambda theta, x, y: y - function(theta, x)


def checked(function, *rows, columns=None):
    log_likelihood = density(function)
    found = index_columns(program_of(log_likelihood, THETA, TWO, TWO[:, 0]))
    check_codes(log_likelihood, THETA, np.asarray(rows, np.float32), columns, LABEL, found)


@pytest.mark.parametrize("name", INDEXED)
def test_columns_that_are_an_index_are_found_with_their_codes(name):
    function, wanted = INDEXED[name]
    found = index_columns(program_of(density(function), THETA, TWO, TWO[:, 0]))
    assert {column: groups.codes for column, groups in found.items()} == wanted
    for column, codes in wanted.items():
        row = [3.0, 3.0]
        checked(function, row)
        row[column] = codes.stop
        with pytest.raises(InputError, match=f"^Row 1 of x has {codes.stop} in column {column}, but the mod"):
            checked(function, [3.0, 3.0], row)


def test_codes_outside_of_the_groups_or_between_them_are_refused_by_name():
    plain, names = INDEXED["plain"][0], ("state", "eth")
    with pytest.raises(InputError) as caught:
        checked(plain, *[[1, 1]] * 7, [60, 1], columns=names)
    assert str(caught.value) == (
        "Row 7 of x has 60 in column 'state', but the model has groups 0 to 49; "
        "leave such rows out or make the model with more groups."
    )
    with pytest.raises(InputError, match="has -1 in column 'state', but the model has groups 0 to 49"):
        checked(plain, [-1, 1], columns=names)
    with pytest.raises(InputError, match=r"Row 0 of x has 2.5 in column 'state', .* use whole numbers"):
        checked(plain, [2.5, 1], columns=names)
    with pytest.raises(InputError, match="has 0 in column 1, but the model has groups 1 to 50"):
        checked(INDEXED["from one"][0], [3, 0])


def test_models_that_know_what_to_do_with_other_codes_may_have_them():
    checked(lambda t, x: jnp.where(x[:, 0] < 50, t[whole(x[:, 0])], 0.0), [60, 1])
    checked(lambda t, x: (x[:, 0] >= 0) * t[whole(x[:, 0])], [-1, 1])
    checked(INDEXED["rounded"][0], [2.5, 1])
    # Also used as a number: its groups are intervals.
    checked(lambda t, x: t[whole(x[:, 0])] + t[0] * x[:, 0], [2.5, 1])


def poll(states, groups):
    def function(x, y):
        spread: Any = numpyro.sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("states", states):
            state: Any = numpyro.sample("state", dist.Normal(0.0, spread))
        group: Any = numpyro.sample("group", dist.Normal(0.0, 1.0).expand([groups]))
        with numpyro.plate("rows", len(x)):
            logits = state[whole(x[:, 0])] + group[whole(x[:, 1])]
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    return function


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3)])
def test_plates_as_long_as_the_rows_of_a_trial_are_not_taken_for_rows(sizes):
    x = np.column_stack([GENERATOR.integers(0, size, 60) for size in sizes])
    data = cvi.Dataset(x, GENERATOR.integers(0, 2, 60), columns=["state", "eth"])
    model = FromNumPyro(poll(*sizes), data)
    assert dict(model.layout.latent) == {"spread": (), "state": sizes[:1], "group": sizes[1:]}
    assert [groups.codes for _, groups in model.groups] == [range(size) for size in sizes]
    if sizes == (5, 3):
        return
    with pytest.raises(InputError, match="Row 0 of x has 9 in column 'eth', but the model has groups 0 to 4"):
        model.check(cvi.Dataset([[0, 9], [1, 1]], [0, 1], columns=["state", "eth"]))
    fit = cvi.fit(cvi.RandomSubset(40), model, data, key=0, num_steps=20, progress=False)
    assert np.all(np.isfinite(fit.predict(x[:4])))
    with pytest.raises(InputError, match="Row 1 of x has 3 in column 'state', but the model has groups 0 to"):
        fit.predict([[1, 1], [3, 1]])
    with pytest.raises(InputError, match="Row 0 of x has -1 in column 'eth'"):
        fit.evaluate(cvi.Dataset([[0, -1]], [1], columns=["state", "eth"]))


# Known errors and offsets


def studies(x, y):
    effect: Any = numpyro.sample("effect", dist.Normal(0.0, 2.0).expand([3]))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(effect[whole(x[:, 0])], x[:, 1]), obs=y)


def test_effects_with_known_errors_have_their_conjugate_posterior():
    group, error = np.arange(30) % 3, GENERATOR.uniform(0.3, 2.0, 30)
    y = np.array([1.0, -1.0, 0.2])[group] + error * GENERATOR.standard_normal(30)
    data = cvi.Dataset(np.column_stack([group, error]), y)
    precision = 0.25 + np.bincount(group, error**-2)
    mean, variance = np.bincount(group, y / error**2) / precision, 1 / precision
    model = FromNumPyro(studies, data)
    draws = cvi.sample(model, data, num_samples=500, num_warmup=300, progress=False)
    np.testing.assert_allclose(draws.mean, mean, atol=0.15 * np.sqrt(variance.min()))
    np.testing.assert_allclose(np.diag(draws.covariance), variance, rtol=0.2)
    fit = cvi.fit(
        cvi.BBPSVI(30, learn={"weights"}), model, data, key=0, initial=data, num_steps=3, progress=False
    )
    found, covariance = (np.asarray(one) for one in fit.family.moments(fit.psi))
    np.testing.assert_allclose(found, mean, atol=0.05 * np.sqrt(variance.min()))
    np.testing.assert_allclose(covariance, np.diag(variance), atol=0.05 * variance.min())


def counts(x, y):
    rate: Any = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Poisson(rate * jnp.exp(x[:, 1])), obs=y)


@pytest.mark.parametrize("learn", [{"weights", "total"}, None])
def test_counts_with_an_offset_have_their_gamma_posterior(learn):
    exposure = GENERATOR.uniform(0.5, 4.0, 100)
    y = GENERATOR.poisson(1.7 * exposure)
    data = cvi.Dataset(np.column_stack([X[:100, 0], np.log(exposure)]), y)
    shape, speed = 2.0 + y.sum(), 1.0 + exposure.sum()
    fit = cvi.fit(cvi.BBPSVI(6, learn=learn), FromNumPyro(counts, data), data, key=0, progress=False)
    rate = cvi.sample(fit, method="importance", num_samples=1000, progress=False).named()["rate"]
    assert rate.mean() == pytest.approx(shape / speed, abs=0.1 * np.sqrt(shape) / speed)
    assert rate.std() == pytest.approx(np.sqrt(shape) / speed, rel=0.1)


# Fewer points than parameters


def test_too_few_points_with_a_flat_prior_are_refused_before_and_after_a_fit(least_squares):
    fit, _, _ = least_squares
    sentence = "^2 points leave 1 of 3 directions .* prior is flat there, so the posterior is not proper; use"
    with pytest.raises(InputError, match=sentence):
        cvi.fit(cvi.BBPSVI(2), fit.model, DATA, key=0)
    few = DATA.take([0, 1])
    for refused in (
        lambda: cvi.sample(fit.model, few),
        lambda: need_proper(fit.model, cvi.Dataset(X[:3], Y[:3], weights=[1.0, 2.0, 0.0])),
    ):
        with pytest.raises(InputError, match=sentence):
            refused()
    need_proper(fit.model, DATA.take([0, 1, 2]))
    need_enough_points(fit.model, DATA, 3)


def test_a_flat_mean_of_groups_needs_one_row_only():
    def groups(x, y):
        mean: Any = numpyro.sample("mean", dist.ImproperUniform(constraints.real, (), ()))
        with numpyro.plate("groups", 4):
            effect: Any = numpyro.sample("effect", dist.Normal(mean, 1.0))
        numpyro.sample("y", dist.Normal(effect[whole(x[:, 0])], 1.0), obs=y)

    data = cvi.Dataset(np.zeros((5, 1)), Y[:5])
    need_proper(FromNumPyro(groups, data), data.take([0]))


@pytest.mark.slow
@pytest.mark.parametrize("centred", [True, False])
def test_groups_that_no_point_belongs_to_keep_their_prior(centred):
    def groups(x, y):
        spread: Any = numpyro.sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("groups", 8):
            effect: Any = numpyro.sample("effect", dist.Normal(0.0, spread if centred else 1.0))
        effect = effect if centred else spread * effect
        numpyro.sample("y", dist.Normal(effect[whole(x[:, 0])], NOISE), obs=y)

    data = cvi.Dataset(np.arange(ROWS)[:, None] % 8, Y)
    fit = cvi.fit(cvi.BBPSVI(3), FromNumPyro(groups, data), data, key=0, num_steps=3, progress=False)
    assert fit.result != "finished"
    draws = cvi.sample(fit, num_samples=100, num_warmup=100, num_chains=2, progress=False)
    assert np.all(np.isfinite(draws.flat))
    assert cvi.diagnose(fit, data, num_samples=100, draws=draws).verdict != "trust"


# Places where a model is undefined


def logarithm(mean, width):
    def function(x, y):
        level: Any = numpyro.sample("level", dist.Normal(mean, width))
        numpyro.sample("y", dist.Normal(0.01 * jnp.log(level) * x[:, 0], 1.0), obs=y)

    return function


def test_a_fit_keeps_its_last_good_state_where_a_model_is_undefined_in_places():
    model = FromNumPyro(logarithm(0.5, 1.0), DATA)
    fit = cvi.fit(cvi.BBPSVI(5), model, DATA, key=0, num_steps=3, progress=False)
    assert fit.result == "non_finite"
    assert np.all(np.isfinite(fit.coreset.x)) and np.all(np.isfinite(fit.psi["mean"]))
    assert np.all(np.isfinite(fit.predict(X[:3])))


def test_draws_and_predictions_where_a_model_is_undefined_are_refused():
    model = FromNumPyro(logarithm(0.5, 1.0), DATA)
    fit = cvi.fit(cvi.RandomSubset(20), model, DATA, key=0, num_steps=2, progress=False)
    away = dataclasses.replace(fit, psi=fit.psi | {"mean": fit.psi["mean"] - 30.0})
    with pytest.raises(InputError, match="100% of the draws by nuts are where the model's density is NaN; g"):
        cvi.sample(away, num_samples=10, num_warmup=10, num_chains=2, progress=False)
    with pytest.raises(InputError, match="density is NaN wherever this fit would predict"):
        away.predict(X[:3])


def test_a_model_that_is_undefined_where_the_search_begins_is_refused():
    with pytest.raises(InputError, match="log-likelihood is NaN at the medians of the priors"):
        FromNumPyro(logarithm(-5.0, 0.1), DATA)
