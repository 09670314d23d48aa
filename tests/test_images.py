"""Convolution by patches against XLA's own, LeNet against a plain loop, and what a row of it costs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.models.convolution import pooled_convolution, pooled_size
from coresetvi.models.sums import HEAVY, log_likelihood_rises, numbers_per_row, over_draws, rows_at_once

SHAPES = {
    "as LeNet's first": (28, 28, 1, 6, 5, 2),
    "as LeNet's second": (14, 14, 6, 16, 5, 0),
    "odd sides": (13, 17, 3, 4, 5, 0),
    "odd sides, padded": (11, 9, 2, 3, 5, 2),
    "small kernel": (8, 10, 2, 3, 3, 1),
}


def reference(x, kernel, bias, padding):
    """XLA's convolution, pooling and ReLU, one after the other."""
    dimensions = ("NHWC", "HWIO", "NHWC")
    pads = [(padding, padding)] * 2
    y = jax.lax.conv_general_dilated(x, kernel, (1, 1), pads, dimension_numbers=dimensions) + bias
    return jax.nn.relu(jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))


def arrays(height, width, channels, outputs, size, seed=0):
    generator = np.random.default_rng(seed)
    shapes = [(3, height, width, channels), (size, size, channels, outputs), (outputs,)]
    return [jnp.asarray(generator.standard_normal(shape), jnp.float32) for shape in shapes]


@pytest.mark.parametrize("shape", SHAPES)
def test_patches_are_a_convolution(shape):
    *sizes, padding = SHAPES[shape]
    x, kernel, bias = arrays(*sizes)
    expected = reference(x, kernel, bias, padding)
    found = pooled_convolution(x, kernel, bias, padding)
    assert found.shape == expected.shape
    assert found.shape[1:3] == tuple(pooled_size(side, sizes[-1], padding) for side in sizes[:2])
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("shape", ["as LeNet's second", "odd sides, padded"])
def test_gradients_of_patches_are_those_of_a_convolution(shape):
    *sizes, padding = SHAPES[shape]
    given = arrays(*sizes)

    def gradients(function):
        return jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a, padding))), argnums=(0, 1, 2))(*given)

    for found, expected in zip(gradients(pooled_convolution), gradients(reference), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-4 * float(jnp.abs(expected).max()))


def test_a_kernel_without_a_centre_is_refused():
    x, kernel, bias = arrays(8, 8, 1, 2, 4)
    with pytest.raises(InputError, match="odd size"):
        pooled_convolution(x, kernel, bias, 0)


# The network


def test_lenet_is_what_its_layers_say():
    model = cvi.models.BayesianLeNet((16, 14, 2), num_classes=3)
    theta = 0.2 * jax.random.normal(jax.random.key(0), (model.dim,))
    x = jax.random.normal(jax.random.key(1), (4, 16, 14, 2))
    one, two, *dense = model.params(theta)
    h = reference(reference(x, one["weight"], one["bias"], 2), two["weight"], two["bias"], 0)
    h = h.reshape(4, -1)
    for layer in dense[:-1]:
        h = jnp.maximum(h @ layer["weight"] + layer["bias"], 0.0)
    logits = h @ dense[-1]["weight"] + dense[-1]["bias"]
    np.testing.assert_allclose(model.moments(theta, x)[0], jax.nn.softmax(logits), atol=1e-5)
    y = jnp.asarray([0, 1, 2, 1])
    expected = jax.nn.log_softmax(logits)[jnp.arange(4), y]
    np.testing.assert_allclose(model.log_likelihood(theta, x, y), expected, atol=1e-5)


def test_every_parameter_of_lenet_is_used_once():
    model = cvi.models.BayesianLeNet((12, 12), num_classes=2)
    sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(model.params(jnp.zeros(model.dim)))]
    assert sum(sizes) == model.dim
    numbers = jnp.concatenate(
        [
            leaf.ravel()
            for layer in model.params(jnp.arange(float(model.dim)))
            for leaf in (layer["weight"], layer["bias"])
        ]
    )
    np.testing.assert_array_equal(numbers, np.arange(model.dim))


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (0.5, [0.5] * 5),
        ((1, 2, 3, 4, 5), [1, 2, 3, 4, 5]),
        ("fan-in", [1 / 5, 1 / math.sqrt(150), 1 / 4, 120**-0.5, 84**-0.5]),
    ],
)
def test_priors_of_lenet_cover_every_layer(scale, expected):
    model = cvi.models.BayesianLeNet((12, 12, 1), num_classes=3, prior_scale=scale)
    zero, by_layer = jnp.zeros(model.dim), 0.0
    for layer, sd in zip(model.params(zero), expected, strict=True):
        count = layer["weight"].size + layer["bias"].size
        by_layer -= count * (math.log(sd) + 0.5 * math.log(2 * math.pi))
    assert float(model.log_prior(zero)) == pytest.approx(by_layer, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image_shape": (8, 8, 1)}, "too small"),
        ({"image_shape": (28,)}, "height, width"),
        ({"prior_scale": (1.0, 2.0)}, "one a layer"),
        ({"prior_scale": -1.0}, "positive"),
        ({"prior_scale": "wide"}, "fan-in"),
        ({"num_classes": 1}, "2 classes"),
    ],
)
def test_bad_settings_are_named(options, words):
    with pytest.raises(InputError, match=words):
        cvi.models.BayesianLeNet(**options)


def test_images_of_another_shape_are_refused():
    model = cvi.models.BayesianLeNet((12, 12, 1), num_classes=2)
    with pytest.raises(InputError, match=r"\(14, 12, 1\)"):
        model.check(cvi.Dataset(np.zeros((2, 14, 12, 1)), [0, 1]))


# What a row costs


def images(rows=6):
    x = np.random.default_rng(0).standard_normal((rows, 28, 28, 1))
    return cvi.Dataset(x, np.arange(rows) % 10, np.linspace(1.0, 2.0, rows))


def test_the_cost_of_a_row_is_read_off_the_model():
    light = cvi.models.LogisticRegression(3)
    table = cvi.Dataset(np.zeros((4, 3)), [0, 1, 0, 1])
    assert numbers_per_row(light, table) < 20
    # The patches of both convolutions alone.
    assert numbers_per_row(cvi.models.BayesianLeNet(), images()) > 196 * 36 + 25 * 216
    assert rows_at_once(light, table, 10, 1000) == 100
    assert rows_at_once(cvi.models.BayesianLeNet(), images(), 10, 1000) < 2**24 // HEAVY


@pytest.mark.slow
def test_draws_of_a_heavy_model_go_one_by_one_to_the_same_result():
    model, data = cvi.models.BayesianLeNet(), images()
    thetas = jnp.stack([model.start(jax.random.key(seed)) for seed in range(3)])

    def total(theta):
        return data.weights @ model.log_likelihood(theta, data.x, data.y)

    one_by_one = over_draws(model, data, total, thetas)
    np.testing.assert_allclose(one_by_one, jax.vmap(total)(thetas), rtol=1e-5)
    assert "scan" in str(jax.make_jaxpr(lambda t: over_draws(model, data, total, t))(thetas))
    value, rises = log_likelihood_rises(model, thetas, thetas[0], data)
    np.testing.assert_allclose(value + rises, one_by_one, rtol=1e-5)
    slope = jax.grad(lambda t: jnp.sum(over_draws(model, data, total, t)))(thetas)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(total))(thetas), atol=1e-3)
