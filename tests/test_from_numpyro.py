"""NumPyro models: densities against NumPyro itself, posteriors against NUTS on all rows, and refusals."""

import functools
import sys
from typing import Any

import equinox as eqx
import exact
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import constrain_fn, potential_energy

import coresetvi as cvi
import coresetvi.models.numpyro
from coresetvi.constructions.parametrisation import parametrise
from coresetvi.constructions.starts import start_leaves
from coresetvi.errors import InputError
from coresetvi.models import FromNumPyro
from coresetvi.models.base import soft_log_likelihood
from coresetvi.weights import Simplex

float64 = exact.float64
double = pytest.mark.usefixtures("float64")
pytestmark = pytest.mark.usefixtures("quick_compilation")

GENERATOR = np.random.default_rng(0)
ROWS = 400
X = np.column_stack([GENERATOR.standard_normal((ROWS, 2)), np.ones(ROWS)])
TRUE = np.array([1.0, -0.5, 0.3])


def logistic(x, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, scale).expand([3]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ slope), obs=y)


def poisson(x, y):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("columns", 3):
        slope = numpyro.sample("slope", dist.Normal(0.0, scale))
    numpyro.sample("y", dist.Poisson(jnp.exp(x @ slope)), obs=y)


def robust(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.StudentT(freedom, x @ slope, noise), obs=y)


def mixture(x):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    places = numpyro.sample(
        "places",
        dist.TransformedDistribution(
            dist.Normal(0.0, 3.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()
        ),
    )
    # One for both: a component with a scale of its own could shrink onto a single weighted point.
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    parts = dist.Normal(places, noise)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=x[:, 0])


def gaussian(x):
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    deviation: Any = numpyro.sample("deviation", dist.HalfNormal(2.0).expand([2]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    numpyro.sample("x", dist.MultivariateNormal(mean, scale_tril=deviation[:, None] * factor), obs=x)


def data_of(model):
    generator = np.random.default_rng(1)
    output = X @ TRUE
    if model is logistic:
        return cvi.Dataset(X, (generator.random(ROWS) < 1 / (1 + np.exp(-output))).astype(int))
    if model is poisson:
        return cvi.Dataset(X, generator.poisson(np.exp(output)))
    if model is robust:
        return cvi.Dataset(X, output + 0.5 * generator.standard_t(3.0, ROWS))
    if model is mixture:
        first = generator.random(ROWS) < 0.35
        return cvi.Dataset(np.where(first, -2.0, 1.5) + 0.7 * generator.standard_normal(ROWS))
    return cvi.Dataset(generator.standard_normal((ROWS, 2)) @ [[1.0, 0.6], [0.0, 0.5]] + [1.0, -2.0])


PLAIN = [logistic, poisson, robust, mixture, gaussian]


# Further ways to write a model


@handlers.reparam(config={"effect": LocScaleReparam(0.0)})
def groups(x, y):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 4):
        effect: Any = numpyro.sample("effect", dist.Normal(0.0, spread))
    numpyro.deterministic("largest", jnp.max(effect))
    mean = numpyro.deterministic("mean", effect[x[:, 1].astype(int)] * x[:, 0])
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def several(x, y):
    level: Any = numpyro.sample("level", dist.Uniform(-1.0, 2.0))
    top: Any = numpyro.sample("top", dist.Uniform(level, level + 3.0))
    numpyro.factor("near", -0.5 * (top - level) ** 2)
    with numpyro.plate("parts", 2, dim=-2), numpyro.plate("rows", len(x), dim=-1):
        numpyro.sample("both", dist.Normal(level, 1.0), obs=y.T)
    with numpyro.plate("rows", len(x)):
        numpyro.factor("pull", -0.1 * (x[:, 1] - top) ** 2)
        with handlers.mask(mask=y[:, 1] > 0), handlers.scale(scale=0.5):
            numpyro.sample("pair", dist.Normal(jnp.stack([top, level]), 2.0).to_event(1), obs=y)


def classes(x, y):
    with numpyro.plate("outputs", 3), numpyro.plate("inputs", 3):
        matrix = numpyro.sample("matrix", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(x)):
        label: Any = dist.Categorical(logits=x @ matrix)  # to a type checker, perhaps None
        numpyro.sample("y", label, obs=y)


def by_columns(x):
    level = numpyro.sample("level", dist.Normal(0.0, 1.0), sample_shape=(3,))
    numpyro.sample("x", dist.Normal(level, 1.0), obs=x)


IN_GROUPS = np.column_stack([X[:, 0], GENERATOR.integers(0, 4, ROWS)])
CASES = {model.__name__: (model, data_of(model)) for model in PLAIN} | {
    "groups": (groups, cvi.Dataset(IN_GROUPS, X @ TRUE)),
    "several": (several, cvi.Dataset(X, GENERATOR.standard_normal((ROWS, 2)))),
    "classes": (classes, cvi.Dataset(X, GENERATOR.integers(0, 3, ROWS))),
    "by_columns": (by_columns, cvi.Dataset(X)),
}
every_case = pytest.mark.parametrize("name", CASES)


def case_of(name):
    """The model's function, some rows of its data, and the model."""
    return make_case(name, jax.config.read("jax_enable_x64"))


@functools.cache
def make_case(name, double):
    function, data = CASES[name]
    data = cvi.Dataset(np.asarray(data.x)[:60], None if data.y is None else np.asarray(data.y)[:60])
    return function, data, FromNumPyro(function, data)


def arguments(data):
    return (data.x,) if data.y is None else (data.x, data.y)


def position_of(model, theta):
    """Unconstrained values by name, as NumPyro wants them."""
    position, offset = {}, 0
    for name, shape in model.layout.latent:
        size = int(np.prod(shape))
        position[name] = theta[offset : offset + size].reshape(shape)
        offset += size
    return position


def some_thetas(model, number=4):
    return jnp.asarray(np.random.default_rng(2).standard_normal((number, model.dim)))


@double
@every_case
def test_prior_and_likelihood_add_up_to_numpyros_potential(name):
    function, data, model = case_of(name)
    thetas = some_thetas(model)

    @jax.jit
    @jax.vmap
    def both(theta):
        ours = model.log_prior(theta) + jnp.sum(model.log_likelihood(theta, data.x, data.y))
        return ours, -potential_energy(function, arguments(data), {}, position_of(model, theta))

    ours, theirs = both(thetas)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert np.all(np.isfinite(ours))


@double
@pytest.mark.parametrize("name", [*(model.__name__ for model in PLAIN), "groups", "classes"])
def test_every_row_has_numpyros_log_likelihood(name):
    function, data, model = case_of(name)
    thetas = some_thetas(model)
    ours = jax.jit(jax.vmap(lambda theta: model.log_likelihood(theta, data.x, data.y)))(thetas)
    samples = eqx.filter_jit(eqx.filter_vmap(model.params))(thetas)
    (theirs,) = numpyro.infer.log_likelihood(function, samples, *arguments(data)).values()
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@double
@every_case
def test_rows_do_not_see_each_other(name):
    _, data, model = case_of(name)
    theta = some_thetas(model)[0]
    of = jax.jit(lambda x, y: model.log_likelihood(theta, x, y))
    whole = np.asarray(of(data.x, data.y))
    for rows in ([7], np.append([59, 2, 2, 2, 3], np.arange(55))):
        part = data.take(rows)
        np.testing.assert_allclose(of(part.x, part.y), whole[rows], rtol=1e-9)


@pytest.mark.parametrize("name", ["mixture", "gaussian", "several"])
def test_gradients_are_finite_in_single_precision(name):
    _, data, model = case_of(name)

    def log_joint(theta):
        return model.log_prior(theta) + jnp.sum(model.log_likelihood(theta, data.x, data.y))

    thetas = jnp.concatenate([model.start(jax.random.key(0))[None], some_thetas(model).astype(jnp.float32)])
    gradients = jax.jit(jax.vmap(jax.grad(log_joint)))(thetas)
    assert gradients.dtype == jnp.float32
    assert np.all(np.isfinite(gradients)) and np.all(np.any(gradients != 0, axis=0))


@double
@every_case
def test_parameters_come_back_by_name_and_constrained(name):
    function, data, model = case_of(name)
    theta = some_thetas(model)[0]
    found = eqx.filter_jit(model.params)(theta)
    wanted = constrain_fn(function, arguments(data), {}, position_of(model, theta), return_deterministic=True)
    # A deterministic site of the rows is no parameter.
    wanted.pop("mean" if name == "groups" else "", None)
    assert found.keys() == wanted.keys()
    for key, value in found.items():
        np.testing.assert_allclose(value, wanted[key], rtol=1e-12)
    assert {"effect", "largest"} <= found.keys() or name != "groups"


def test_the_search_starts_at_prior_medians_and_is_always_the_same():
    _, data, model = case_of("poisson")
    # log of the median of LogNormal(0, 0.5), and three slopes around 0.
    np.testing.assert_allclose(model.start(jax.random.key(0)), np.zeros(4), atol=0.011)
    again = FromNumPyro(poisson, data).start(jax.random.key(1))
    np.testing.assert_array_equal(model.start(jax.random.key(0)), again)
    half_normal = case_of("logistic")[2].params(case_of("logistic")[2].start(jax.random.key(0)))["scale"]
    assert float(half_normal) == pytest.approx(0.6745, rel=0.02)


def test_only_shapes_of_the_data_are_kept_and_the_function_runs_a_few_times():
    calls = []

    def counted(x, y):
        calls.append(x.shape)
        return logistic(x, y)

    _, data = CASES["logistic"]
    model = FromNumPyro(counted, data)
    assert sum(leaf.size for leaf in jax.tree.leaves(model) if isinstance(leaf, jax.Array)) == model.dim
    assert len(calls) <= 6 and max(shape[0] for shape in calls) <= 5


# Classes


def logistic_of(change):
    def function(x, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(probs=jax.nn.sigmoid(x @ slope)), obs=change(y))

    return function


@pytest.mark.parametrize(
    "function, labels, number",
    [
        (logistic, CASES["logistic"][1].y, 2),
        (logistic, np.asarray(CASES["logistic"][1].y, float), 2),
        (logistic_of(lambda y: y.astype(int)), CASES["logistic"][1].y, 2),
        (logistic_of(lambda y: 1 - y), CASES["logistic"][1].y, None),
        (classes, CASES["classes"][1].y, 3),
        (poisson, CASES["poisson"][1].y, None),
        (robust, CASES["logistic"][1].y, None),
    ],
    ids=[
        "bernoulli",
        "floating labels",
        "converted labels",
        "other labels",
        "categorical",
        "poisson",
        "real",
    ],
)
def test_the_number_of_classes_is_found(function, labels, number):
    model = FromNumPyro(function, X, labels)
    assert model.num_classes == number
    checked = model.check(cvi.Dataset(X, labels))
    assert number is None or checked.y.dtype == jnp.int32


@double
@pytest.mark.parametrize("name", ["logistic", "classes"])
def test_soft_labels_average_over_classes(name):
    _, data, model = case_of(name)
    theta = some_thetas(model)[0]
    assert model.num_classes is not None
    soft = np.random.default_rng(4).dirichlet(np.ones(model.num_classes), len(data))
    found = eqx.filter_jit(soft_log_likelihood)(model, theta, data.x, jnp.asarray(soft))
    of = eqx.filter_jit(model.log_likelihood)
    each = [of(theta, data.x, jnp.full(len(data), label)) for label in range(model.num_classes)]
    np.testing.assert_allclose(found, np.sum(soft.T * np.stack(each), axis=0), rtol=1e-10)


# Predictions


def expected_moments(name, params, x):
    if name == "logistic":
        mean = 1 / (1 + np.exp(-x @ params["slope"]))
        return mean, mean * (1 - mean)
    if name == "poisson":
        return (np.exp(x @ params["slope"]),) * 2
    if name == "robust":
        freedom = params["freedom"]
        variance = params["noise"] ** 2 * freedom / (freedom - 2)
        return x @ params["slope"], np.full(len(x), variance)
    if name == "mixture":
        mean = params["weights"] @ params["places"]
        second = params["weights"] @ (params["noise"] ** 2 + params["places"] ** 2)
        return np.full(len(x), mean), np.full(len(x), second - mean**2)
    if name == "gaussian":
        return np.tile(params["mean"], (len(x), 1)), np.tile(params["deviation"] ** 2, (len(x), 1))
    if name == "classes":
        odds = np.exp(x @ params["matrix"])
        mean = odds / odds.sum(1, keepdims=True)
        return mean, mean * (1 - mean)
    assert name == "by_columns"
    return np.tile(params["level"], (len(x), 1)), np.ones((len(x), 3))


@double
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("groups", "several")])
def test_moments_are_those_of_the_observed_distribution(name):
    _, data, model = case_of(name)
    # Further out, where a Student-t distribution has moments.
    for theta in some_thetas(model, 2) + 2.0:
        params = {key: np.asarray(value) for key, value in model.params(theta).items()}
        for found, wanted in zip(
            eqx.filter_jit(model.moments)(theta, data.x),
            expected_moments(name, params, np.asarray(data.x)),
            strict=True,
        ):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_what_cannot_be_predicted_is_refused():
    _, data, model = case_of("several")
    with pytest.raises(InputError, match="several observed sites"):
        model.moments(model.initial, data.x)

    def no_mean(x, y):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.SoftLaplace(level, 1.0).mask(True), obs=y)
        numpyro.factor("more", -(y**2))

    model = FromNumPyro(no_mean, X, X[:, 0])
    mean, _ = model.moments(model.initial, jnp.asarray(X))
    np.testing.assert_allclose(mean, np.full(ROWS, model.initial[0]), rtol=1e-6)

    def only_factors(x):
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        numpyro.factor("all", -0.5 * (x[:, 0] - level) ** 2)

    with pytest.raises(InputError, match="no observed site"):
        FromNumPyro(only_factors, X).moments(jnp.zeros(1), jnp.asarray(X))


# Data


@pytest.mark.parametrize(
    "name, data, words",
    [
        ("logistic", cvi.Dataset(X[:, :2], np.ones(ROWS)), r"rows of shape \(2,\), .* made for \(3,\)"),
        ("logistic", cvi.Dataset(X), "needs labels; pass Dataset"),
        ("logistic", cvi.Dataset(X, np.arange(ROWS)), "y is 2 in row 2, .* classes 0 to 1"),
        ("logistic", cvi.Dataset(X, np.zeros(ROWS)), "single class"),
        ("classes", cvi.Dataset(X, np.arange(ROWS) % 4), "y is 3 in row 3"),
        ("poisson", cvi.Dataset(X, -np.arange(ROWS)), "Row 1 .* value that site 'y' cannot take"),
        ("poisson", cvi.Dataset(X, np.arange(ROWS) / 4), "Row 1 .* value that site 'y' cannot take"),
        ("several", cvi.Dataset(X, X), r"y has rows of shape \(3,\), .* made for \(2,\)"),
        ("mixture", cvi.Dataset(X[:, 0], X[:, 1]), "made for data without labels"),
    ],
)
def test_data_that_do_not_fit_are_refused(name, data, words):
    model = case_of(name)[2]
    with pytest.raises(InputError, match=words) as caught:
        model.check(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["several", "robust", "mixture"])
def test_data_that_fit_pass_unchanged(name):
    _, data, model = case_of(name)
    checked = model.check(data)
    np.testing.assert_array_equal(checked.x, data.x)
    assert data.y is None or np.array_equal(np.asarray(checked.y), data.y)
    np.testing.assert_array_equal(model.check(data.take([1]), fitting=False).x, data.x[1:2])


# What is refused


def level():
    return numpyro.sample("level", dist.Normal(0.0, 1.0))


def local_latent(x, y):
    mean = level()
    with numpyro.plate("rows", len(x)):
        own = numpyro.sample("own", dist.Normal(mean, 1.0))
        numpyro.sample("y", dist.Normal(own, 1.0), obs=y)


def partly_observed(x, y):
    numpyro.sample("y", dist.Normal(level(), 1.0), obs=y, obs_mask=y > 0)


def discrete_latent(x, y):
    which = numpyro.sample("which", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(level() * which, 1.0), obs=y)


def rows_as_event(x, y):
    numpyro.sample("y", dist.Normal(level() + x[:, 0], 1.0).to_event(1), obs=y)


def outside(x, y):
    numpyro.sample("total", dist.Normal(level(), 1.0), obs=jnp.sum(y))


def every_pair(x, y):
    numpyro.sample("y", dist.Normal(level() + x[:, :1], 1.0), obs=y)


def subsampled(x, y):
    mean = level()
    with numpyro.plate("rows", len(x), subsample_size=2) as index:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[index])


def learned(x, y):
    numpyro.sample("y", dist.Normal(level(), numpyro.param("noise", 1.0)), obs=y)


def summed_factor(x, y):
    mean = level()
    numpyro.factor("all", -jnp.sum((y - mean) ** 2))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def prior_of_the_data(x, y):
    mean = numpyro.sample("mean", dist.Normal(jnp.mean(y), 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def standardised(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(slope * (x[:, 0] - jnp.mean(x[:, 0])), 1.0), obs=y)


def of_the_row_before(x, y):
    before = jnp.concatenate([jnp.zeros(1), y[:-1]])
    numpyro.sample("y", dist.Normal(level() * before, 1.0), obs=y)


def scaled_parameter(x, y):
    with handlers.scale(scale=0.5):
        mean = level()
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def scaled_by_rows(x, y):
    mean = level()
    with handlers.scale(scale=1000 / len(x)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def fixed_size(x, y):
    mean = level()
    with numpyro.plate("rows", 400):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def concrete(x, y):
    groups = int(jnp.max(x))
    numpyro.sample("y", dist.Normal(level() * groups, 1.0), obs=y)


def only_prior(x, y):
    level()


def no_parameters(x, y):
    numpyro.sample("y", dist.Normal(x[:, 0], 1.0), obs=y)


def sometimes(x, y):
    mean = level()
    if len(x) > 3:
        numpyro.sample("more", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def a_chain(x, y):
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))

    def move(place, value):
        numpyro.sample("y", dist.Normal(place, noise), obs=value)
        return value, None

    scan(move, 0.0, y)


def no_y(x):
    pass


REFUSED = {
    local_latent: "'own' is a latent variable of every row.*; marginalise it",
    partly_observed: "'y_unobserved' is a latent variable of every row",
    discrete_latent: "'which' is a discrete unknown; sum it out, .*MixtureSameFamily",
    rows_as_event: "observed site 'y' is not one number a row; .*plate",
    outside: "observed site 'total' is not one number a row",
    every_pair: r"site 'y' has the shape \(5, 5\) for 5 rows.*same shape",
    subsampled: "Plate 'rows' takes a subsample; leave subsample_size out",
    learned: "'noise' is a numpyro.param without a prior",
    summed_factor: "'all' adds up the rows",
    prior_of_the_data: "prior of site 'mean' depends on the data",
    standardised: "changes with the other rows",
    of_the_row_before: "changes with the other rows",
    scaled_parameter: "'level' is a parameter under handlers.scale",
    scaled_by_rows: "'y' is scaled by a factor that changes with the number of rows",
    fixed_size: "does not accept these data: Incompatible shapes",
    concrete: "asks for values of the data while it is traced",
    only_prior: "observes nothing",
    no_parameters: "has no parameters",
    sometimes: "'more' is there for some numbers of rows only",
    a_chain: "'y' is inside a scan",
    no_y: r"does not accept these data: no_y\(\) takes 1 positional argument",
    "text": "must be a NumPyro model function, not a str",
}


@pytest.mark.parametrize(
    "function, words", REFUSED.items(), ids=[getattr(function, "__name__", "text") for function in REFUSED]
)
def test_models_without_independent_rows_are_refused_in_one_sentence(function, words, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(InputError, match=words) as caught:
        FromNumPyro(function, X, X[:, 0] + X[:, 1])
    assert "\n" not in str(caught.value)


def crossed(x, y):
    mean = level()
    with numpyro.plate("again", len(x), dim=-1), numpyro.plate("rows", len(x), dim=-2):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=jnp.broadcast_to(y[:, None], (len(x), len(x))))


def test_a_plate_can_be_named():
    named = FromNumPyro(logistic, X, CASES["logistic"][1].y, plate="rows")
    assert named.layout == FromNumPyro(logistic, X, CASES["logistic"][1].y).layout
    with pytest.raises(InputError, match=r"'sheep' does not have one entry a row .* do: 'rows'"):
        FromNumPyro(logistic, X, CASES["logistic"][1].y, plate="sheep")
    with pytest.raises(InputError, match=r"'columns' does not have one entry a row .* do: none"):
        FromNumPyro(poisson, X, CASES["poisson"][1].y, plate="columns")
    with pytest.raises(InputError, match=r"shape \(5, 5\)"):
        FromNumPyro(crossed, X, X[:, 0])
    model = FromNumPyro(crossed, X, X[:, 0], plate="rows")
    found = model.log_likelihood(jnp.zeros(1), jnp.asarray(X[:6]), jnp.asarray(X[:6, 0]))
    np.testing.assert_allclose(found, 6 * dist.Normal(0.0, 1.0).log_prob(X[:6, 0]), rtol=1e-5)


def test_without_numpyro_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(InputError, match=r'pip install "coresetvi\[numpyro\]"'):
        FromNumPyro(logistic, X, X[:, 0])


# Labels of several columns


@pytest.mark.parametrize("init", ["subset", "spread", "noise"])
@pytest.mark.parametrize("kind", [float, int])
def test_labels_of_several_columns_start_and_move_together(init, kind):
    # The second column is a function of the first, so a pair that is torn apart shows.
    first = np.arange(ROWS) % 7
    data = cvi.Dataset(X, np.stack([first, 100 - 3 * first], axis=1).astype(kind))
    frame = parametrise(data, Simplex(), frozenset({"x", "y", "weights"}), None)
    leaves, _ = start_leaves(frame, data, 10, init, jax.random.key(0))
    np.testing.assert_allclose(leaves["y"][:, 0], -leaves["y"][:, 1], rtol=1e-4, atol=1e-5)
    labels = np.asarray(frame.build(leaves).y)
    assert labels.shape == (10, 2) and len(np.unique(labels[:, 0].round(3))) > 2
    np.testing.assert_allclose(labels[:, 1], 100 - 3 * labels[:, 0], rtol=1e-4)


# Through a fit with nothing but defaults


@pytest.mark.slow
def test_nuts_on_the_coreset_of_a_hierarchical_model_finds_the_posterior_of_all_rows():
    function, data = CASES["logistic"]
    model = FromNumPyro(function, data)
    fit = cvi.fit(cvi.BBPSVI(size=20), model, data, key=0, progress=False)
    coreset = fit.coreset

    def potential(theta):
        rows = model.log_likelihood(theta, coreset.x, coreset.y)
        return -model.log_prior(theta) - coreset.weights @ rows

    mcmc = MCMC(NUTS(potential_fn=potential), num_warmup=300, num_samples=1500, progress_bar=False)
    mcmc.run(jax.random.key(0), init_params=model.initial)
    thetas = np.asarray(mcmc.get_samples())
    # Given all rows: 10,000 draws of NUTS, errors below 0.03 deviations.
    mean, deviation = np.array([-0.195, 1.055, -0.512, 0.375]), np.array([0.395, 0.139, 0.122, 0.115])
    np.testing.assert_array_less(np.abs(thetas.mean(0) - mean) / deviation, 0.25)
    np.testing.assert_array_less(np.abs(np.log(thetas.std(0) / deviation)), 0.2)
    assert fit.evaluate(data)["accuracy"] > 0.6


def test_a_fit_without_labels_is_saved_and_read_back_with_its_model(tmp_path):
    function, data = CASES["by_columns"]
    model = FromNumPyro(function, data)
    fit = cvi.fit(cvi.RandomSubset(30), model, data, key=0, num_steps=2, progress=False)
    fit.save(tmp_path / "fit")
    with pytest.raises(cvi.errors.ArtefactError, match="pass the same one as load"):
        cvi.load(tmp_path / "fit")
    again = cvi.load(tmp_path / "fit", model=model)
    assert again.coreset.y is None
    np.testing.assert_array_equal(again.predict(data.x[:5]), fit.predict(data.x[:5]))
    assert fit.evaluate(data) == again.evaluate(data)
