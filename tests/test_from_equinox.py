"""Equinox networks as models, and `FromCallables` with every kind of tree for parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import exact
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree

import coresetvi as cvi
import coresetvi.models.equinox
from coresetvi.errors import InputError
from coresetvi.models import BayesianMLP, FromCallables, FromEquinox
from coresetvi.models.base import soft_log_likelihood
from coresetvi.models.likelihoods import Bernoulli, Categorical, Gaussian, Poisson

float64 = exact.float64
double = pytest.mark.usefixtures("float64")
pytestmark = pytest.mark.usefixtures("quick_compilation")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((60, 2))
BINARY = (X[:, 0] * X[:, 1] > 0).astype(int)
CLASSES = BINARY + (X[:, 0] > 0.5)
VALUES = np.sin(X[:, 0]) + 0.1 * GENERATOR.standard_normal(60)
COUNTS = GENERATOR.poisson(np.exp(X[:, 0]))


def network(outputs, **changes):
    settings = {"width_size": 5, "depth": 1, "activation": jnp.tanh, "key": jax.random.key(3)}
    return eqx.nn.MLP(2, outputs, **(settings | changes))


class Scaled(eqx.Module):
    """A module with every kind of field: parameters, whole numbers, a function, text, a number."""

    inner: eqx.nn.Linear
    order: jax.Array
    activation: Callable
    name: str
    factor: float

    def __init__(self):
        self.inner = eqx.nn.Linear(2, 1, key=jax.random.key(1))
        self.order = jnp.array([1, 0])
        self.activation = jnp.tanh
        self.name, self.factor = "scaled", 2.0

    def __call__(self, row):
        return self.factor * self.activation(self.inner(row[self.order]))


# Against the network that is written out


CASES = {
    "bernoulli": ("scalar", "bernoulli", 2, BINARY),
    "bernoulli, one output": (1, Bernoulli(), 2, BINARY),
    "categorical": (3, Categorical(3), 3, CLASSES),
    "gaussian": (1, Gaussian(1.0), None, VALUES),
    "gaussian by name": ("scalar", "gaussian", None, VALUES),
}
every_case = pytest.mark.parametrize("name", CASES)


def both_models(name):
    outputs, likelihood, num_classes, labels = CASES[name]
    module = network(outputs)
    written_out = BayesianMLP(2, (5,), num_classes, activation="tanh", prior_scale=0.7)
    layers = [{"weight": layer.weight.T, "bias": layer.bias} for layer in module.layers]
    theta, _ = ravel_pytree([(layer["weight"], layer["bias"]) for layer in layers])
    return FromEquinox(module, likelihood, prior=0.7), written_out, theta, cvi.Dataset(X, labels)


@double
@every_case
def test_densities_and_moments_are_those_of_the_same_network_written_out(name):
    model, reference, theta, data = both_models(name)
    assert model.dim == reference.dim and model.num_classes == reference.num_classes
    ours, data = model.start(jax.random.key(0)), model.check(data)
    np.testing.assert_allclose(model.log_prior(ours), reference.log_prior(theta), rtol=1e-12)
    np.testing.assert_allclose(
        eqx.filter_jit(model.log_likelihood)(ours, data.x, data.y),
        reference.log_likelihood(theta, data.x, data.y),
        rtol=1e-10,
    )
    for found, wanted in zip(model.moments(ours, data.x), reference.moments(theta, data.x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    if model.num_classes:
        soft = jnp.asarray(np.random.default_rng(1).dirichlet(np.ones(model.num_classes), len(data)))
        np.testing.assert_allclose(
            soft_log_likelihood(model, ours, data.x, soft),
            soft_log_likelihood(reference, theta, data.x, soft),
            rtol=1e-10,
        )


@double
def test_counts():
    model = FromEquinox(network("scalar"), "poisson")
    data = model.check(cvi.Dataset(X, COUNTS))
    rates = np.exp(jax.vmap(network("scalar"))(data.x))
    found = model.log_likelihood(model.initial, data.x, data.y)
    np.testing.assert_allclose(found, scipy.stats.poisson.logpmf(COUNTS, rates), rtol=1e-9)


def test_parameters_come_back_as_the_module():
    module = Scaled()
    model = FromEquinox(module, "gaussian")
    assert model.dim == 3
    assert eqx.tree_equal(model.params(model.start(jax.random.key(0))), module)
    moved = model.params(jnp.array([1.0, 2.0, 3.0]))
    row = jnp.array([0.5, -0.25])
    assert float(moved(row)[0]) == pytest.approx(2 * np.tanh(1.0 * -0.25 + 2.0 * 0.5 + 3.0), rel=1e-6)
    assert moved.name == "scaled" and moved.factor == 2.0


def test_convolutions_take_rows_of_any_shape():
    keys = jax.random.split(jax.random.key(0))
    layers = [
        eqx.nn.Conv2d(1, 2, 3, key=keys[0]),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.Lambda(jnp.ravel),
        eqx.nn.Linear(8, 3, key=keys[1]),
    ]
    model = FromEquinox(eqx.nn.Sequential(layers), Categorical(3))
    images = np.random.default_rng(0).standard_normal((6, 1, 4, 4))
    data = model.check(cvi.Dataset(images, [0, 1, 2, 0, 1, 2]))
    assert model.log_likelihood(model.initial, data.x, data.y).shape == (6,)
    assert model.dim == 2 * 9 + 2 + 8 * 3 + 3


# Priors


@double
def test_a_prior_may_differ_between_layers():
    module = network("scalar")
    by_layer = eqx.tree_at(lambda m: m.layers, module, (0.5, 2.0))
    by_leaf = jax.tree.map(lambda leaf: 0.3 * leaf.ndim, eqx.filter(module, eqx.is_inexact_array))
    first, last = module.layers
    for prior, scales in ((by_layer, (0.5, 0.5, 2.0, 2.0)), (by_leaf, (0.6, 0.3, 0.6, 0.3))):
        parts = zip((first.weight, first.bias, last.weight, last.bias), scales, strict=True)
        wanted = sum(scipy.stats.norm.logpdf(part, scale=scale).sum() for part, scale in parts)
        model = FromEquinox(module, "bernoulli", prior)
        assert float(model.log_prior(model.initial)) == pytest.approx(wanted, rel=1e-12)


def test_a_prior_may_be_a_function_of_the_module():
    module = network("scalar")
    model = FromEquinox(module, "bernoulli", lambda m: -jnp.sum(jnp.abs(m.layers[0].weight)))
    wanted = -float(jnp.sum(jnp.abs(module.layers[0].weight)))
    assert float(model.log_prior(model.initial)) == pytest.approx(wanted, rel=1e-6)


# What is refused


class Complex(eqx.Module):
    weight: jax.Array

    def __call__(self, row):
        return jnp.real(self.weight @ row)


def with_layer(layer):
    return eqx.nn.Sequential([eqx.nn.Linear(2, 2, key=jax.random.key(0)), layer])


def batch_norm():
    return eqx.nn.BatchNorm(2, axis_name="rows", mode="batch")


NO_MODULE: Any = jnp.tanh
REFUSED = {
    "a function": (lambda: FromEquinox(NO_MODULE, "gaussian"), "must be an Equinox module"),
    "dropout": (
        lambda: FromEquinox(with_layer(eqx.nn.Dropout(0.5)), Categorical(2)),
        "Dropout .* random; pass eqx.nn.inference_mode",
    ),
    "batch norm": (
        lambda: FromEquinox(with_layer(batch_norm()), Categorical(2)),
        "BatchNorm layer, whose state joins rows",
    ),
    "no parameters": (lambda: FromEquinox(eqx.nn.Lambda(jnp.tanh), "gaussian"), "must have parameters"),
    "complex": (lambda: FromEquinox(Complex(jnp.ones(2) * 1j), "gaussian"), "arrays of real numbers"),
    "categorical": (lambda: FromEquinox(network(3), "categorical"), r"pass likelihoods.Categorical\(3\)"),
    "unknown": (lambda: FromEquinox(network(3), "cauchy"), "bernoulli, gaussian, poisson .* not 'cauchy'"),
    "prior 0": (lambda: FromEquinox(network(1), "gaussian", 0.0), "positive numbers for scales, not '0.0'"),
    "prior nan": (lambda: FromEquinox(network(1), "gaussian", np.nan), "positive numbers"),
    "prior text": (lambda: FromEquinox(network(1), "gaussian", "wide"), "positive numbers .* 'wide'"),
    "prior with weights": (
        lambda: FromEquinox(network(1), "gaussian", network(1)),
        "positive numbers for scales",
    ),
    "another tree": (lambda: FromEquinox(network(1), "gaussian", {"a": 1.0}), "begins like the module"),
    "prior of shape": (
        lambda: FromEquinox(network(1), "gaussian", lambda m: m.layers[0].bias),
        r"one number for a module, but returned shape \(5,\)",
    ),
    "columns": (
        lambda: FromEquinox(network(1), "gaussian").check(cvi.Dataset(X[:, :1], VALUES)),
        r"module does not accept rows of shape \(1,\): ",
    ),
    "outputs": (
        lambda: FromEquinox(network(2), "bernoulli").check(cvi.Dataset(X, BINARY)),
        r"output of shape \(2,\) for a row, but Bernoulli takes 1 number;",
    ),
    "fewer outputs": (
        lambda: FromEquinox(network(2), Categorical(3)).check(cvi.Dataset(X, BINARY)),
        "Categorical takes 3 numbers;",
    ),
    "labels": (
        lambda: FromEquinox(network(1), "bernoulli").check(cvi.Dataset(X, CLASSES)),
        "classes 0 to 1",
    ),
    "no labels": (lambda: FromEquinox(network(1), Poisson()).check(cvi.Dataset(X)), "needs labels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_told_in_one_sentence(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    call, words = REFUSED[name]
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_dropout_that_is_switched_off_will_do():
    module = eqx.nn.inference_mode(with_layer(eqx.nn.Dropout(0.5)))
    model = FromEquinox(module, Categorical(2))
    data = model.check(cvi.Dataset(X, BINARY))
    assert np.all(np.isfinite(model.log_likelihood(model.initial, data.x, data.y)))


# Through a fit


def test_a_fit_predicts_and_is_saved(tmp_path):
    linear = eqx.nn.Linear(2, "scalar", key=jax.random.key(0))
    model = FromEquinox(linear, "gaussian", prior=2.0)
    data = cvi.Dataset(X, X @ [1.0, -2.0] + 0.5)
    fit = cvi.fit(cvi.BBPSVI(size=10), model, data, key=0, progress=False)
    # The posterior of a line with a normal prior is known.
    reference = cvi.models.LinearRegression(2, intercept=True, prior_scale=2.0)
    mean, covariance = reference.posterior(data)
    np.testing.assert_allclose(fit.psi["mean"], mean, atol=0.05 * np.sqrt(np.diag(covariance)).min())
    np.testing.assert_allclose(fit.predict(X), X @ mean[:2] + mean[2], atol=0.05)
    fit.save(tmp_path / "fit")
    with pytest.raises(cvi.errors.ArtefactError, match="pass the same one as load"):
        cvi.load(tmp_path / "fit")
    again = cvi.load(tmp_path / "fit", model=FromEquinox(linear, "gaussian", prior=2.0))
    np.testing.assert_array_equal(again.predict(X), fit.predict(X))


# `FromCallables`


class Pair(NamedTuple):
    slope: object
    offset: object


TREES = {
    "array": jnp.array([1.0, 2.0]),
    "numpy": np.array([1.0, 2.0], np.float16),
    "whole numbers": {"slope": np.array([1, 2]), "offset": 0},
    "nested": {"a": ({"b": [1.0, 2]}, ()), "c": None},
    "named tuple": Pair(np.float32(1.0), (2,)),
    "module": network("scalar"),
    "module with switches": Scaled(),
    "with a function": {"slope": jnp.ones(2), "link": jnp.tanh, "name": "tanh", "on": True},
}


@pytest.mark.parametrize("name", TREES)
def test_parameters_may_be_any_tree(name):
    init = TREES[name]
    model = FromCallables(
        log_prior=lambda tree: -0.5 * sum((jnp.sum(leaf**2) for leaf in numbers_of(tree)), jnp.zeros(())),
        log_likelihood=lambda tree, x, y: -(x[:, 0] ** 2) * sum(jnp.sum(leaf) for leaf in numbers_of(tree)),
        init=init,
    )
    start = model.start(jax.random.key(0))
    params = model.params(start)
    assert jax.tree.structure(params) == jax.tree.structure(init)
    for found, given in zip(jax.tree.leaves(params), jax.tree.leaves(init), strict=True):
        if isinstance(given, (str, bool)) or callable(given):
            assert found is given
        else:
            np.testing.assert_allclose(found, given, rtol=1e-6)
            assert found.dtype == jnp.float32
    data = model.check(cvi.Dataset(X, VALUES))
    wanted = -0.5 * sum(np.sum(np.square(leaf, dtype=float)) for leaf in numbers_of(init))
    assert float(eqx.filter_jit(model.log_prior)(start)) == pytest.approx(wanted, rel=1e-5)
    gradient = jax.grad(lambda theta: jnp.sum(model.log_likelihood(theta, data.x, data.y)))(start)
    np.testing.assert_allclose(gradient, np.full(model.dim, -np.sum(X[:, 0] ** 2)), rtol=1e-5)


def numbers_of(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if not (isinstance(leaf, (str, bool)) or callable(leaf))]


def test_parameters_without_a_number_are_refused():
    with pytest.raises(InputError, match="init holds no numbers"):
        FromCallables(lambda p: jnp.zeros(()), lambda p, x, y: x[:, 0], {"link": jnp.tanh})
