"""Rows spread over two devices give the sums of one, and stay where they are."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.errors import InputError

TWO_DEVICES = """
import re
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
import coresetvi as cvi
from coresetvi.data.sharded import sharded_sum
from coresetvi.models.local_view import Question, ViewOfRows

assert len(jax.devices()) == 2
random = np.random.default_rng(0)
num = 40_001  # odd, and more than one block of 16,384 rows on each device
x, y = random.normal(size=(num, 4)), random.integers(0, 2, num)
data = cvi.Dataset(x, y, random.uniform(size=num), columns=list("abcd"), target="y")
rows = cvi.data.shard(data)

# Each device holds one half.
assert [part.data.shape for part in rows._data.x.addressable_shards] == [(20_001, 4)] * 2
assert rows.devices == jax.devices() and len(rows) == num

model = cvi.models.LogisticRegression(4)
question = Question(jnp.zeros(4), 0.01 * jnp.eye(4), jnp.asarray(random.normal(size=(64, 4)), jnp.float32))
view = ViewOfRows(model)
for one, two in zip(data.total(view, question), rows.total(view, question), strict=True):
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5 * np.abs(one).max())
    assert len(two.devices()) == 1
# Also from what the caller has put on one device, and of whole numbers.
factor = jax.device_put(jnp.float32(2.0), jax.devices()[1])
def double(some, factor):
    return factor * (some.weights @ some.x), some.y @ (some.weights > 0)

found = rows.total(double, factor)
np.testing.assert_allclose(found[0], 2 * data.weights @ data.x, rtol=1e-4, atol=1e-2)
assert found[1] == y.sum()

# No row leaves its device; without care, all would.
def collectives(program):
    text = program.compile().compiled.as_text()
    return set(re.findall("all-gather|all-to-all|collective-permute|all-reduce", text))

assert collectives(sharded_sum.lower(view, (question,), rows._data, rows._mesh)) == {"all-reduce"}
assert "all-gather" in collectives(eqx.filter_jit(view).lower(rows._data, question))

for one, two in zip(data.scale(), rows.scale(), strict=True):
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(rows.total_weight, data.total_weight, rtol=1e-5)
assert rows.labels() == data.labels() and rows.fingerprint() == data.fingerprint()
for count in (5, num):
    one, two = (some.sample(jax.random.key(0), count) for some in (data, rows))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.indices, two.indices)
np.testing.assert_array_equal(data.one_of_each().x, rows.one_of_each().x)
(batch,) = rows.batches()
np.testing.assert_array_equal(batch.x, data.x)
print("fine")
"""


def test_two_devices_add_up_their_own_rows():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES], env={**os.environ, **flags}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_one_device_is_enough():
    data = cvi.Dataset([[1.0], [2.0], [4.0]], [0, 1, 1])
    rows = cvi.data.shard(data, jax.devices()[:1])
    np.testing.assert_array_equal(rows.total(lambda some: some.weights @ some.x), [7.0])


@pytest.mark.parametrize("devices", [[], [3]])
def test_devices_that_are_none(devices):
    with pytest.raises(InputError, match=r"give some of jax\.devices"):
        cvi.data.shard(cvi.Dataset([[1.0]]), devices)


def test_only_rows_in_memory_can_be_spread():
    stream = cvi.scan(lambda: iter([np.ones((2, 1))]))
    with pytest.raises(InputError, match="only a Dataset in memory"):
        cvi.data.shard(stream)
