"""Sums of large batches are right, whatever jaxlib does; a process in which they are not is told."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi import _jaxlib
from coresetvi.models.log_joint import LogJoint
from coresetvi.models.row_sums import rises_of

LATE = """
import jax.numpy as jnp
(jnp.ones(3) + 1).block_until_ready()
import coresetvi as cvi
train, _ = cvi.datasets.synthetic_lr(n=50, dim=2)
cvi.fit(cvi.SubsetLaplace(10), cvi.models.LogisticRegression(2), train, key=0)
"""


def test_a_batch_that_is_known_to_go_wrong_is_right():
    assert _jaxlib.sums_are_right()


def test_log_likelihoods_of_many_draws_of_soft_labels_are_right():
    """192 draws x 200 points: compiled, against one draw at a time in float64."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 3))
    chances = generator.dirichlet(np.ones(4), 200)
    model = cvi.models.SoftmaxRegression(3, 4)
    points = cvi.Dataset(x, chances, generator.gamma(2.0, size=200))
    thetas = generator.normal(size=(192, model.dim)).astype(np.float32)
    reference = thetas.mean(axis=0)
    found = np.asarray(rises_of(model, points, jnp.asarray(thetas), jnp.asarray(reference))[1])
    joint = np.asarray(LogJoint(model, points, jnp.asarray(reference)).of_draws(jnp.asarray(thetas)))
    with jax.enable_x64(True):
        weights, y = np.asarray(points.weights, np.float64), np.asarray(points.y, np.float64)

        def value(theta):
            classes = [
                model.log_likelihood(jnp.asarray(theta, jnp.float64), jnp.asarray(x), jnp.full(200, label))
                for label in range(4)
            ]
            return weights @ np.sum(y * np.stack([np.asarray(one) for one in classes], axis=1), axis=1)

        expected = np.array([value(theta) for theta in thetas]) - value(reference)
        priors = np.array([float(model.log_prior(jnp.asarray(theta, jnp.float64))) for theta in thetas])
    assert np.allclose(found, expected, atol=2e-3, rtol=1e-5)
    assert np.allclose(joint - priors, expected, atol=2e-3, rtol=1e-5)


@pytest.mark.skipif(_jaxlib.jaxlib_version not in _jaxlib.WRONG, reason="this jaxlib adds up as it should")
def test_a_process_that_used_jax_before_is_told(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True)
    assert done.returncode and "import coresetvi first" in done.stderr.splitlines()[-1]
