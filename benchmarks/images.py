"""A step of BB PSVI on LeNet, and the convolution beneath it, against XLA's own."""

import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from coresetvi.fitting.steps import chunk, prepare
from coresetvi.inner import Unrolled
from coresetvi.models.convolution import pooled_convolution
from coresetvi.objectives import ImportanceElbo

STEPS, REPEATS = 2, 3

STEP_TIME = """
import json, resource
from benchmarks.images import step_time
result = step_time(INNER_SAMPLES)
result["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps(result))
"""


def run() -> dict:
    """Step times with 1 and 10 inner samples, each in a process of its own, and the convolution's."""
    steps = []
    for samples in (1, 10):
        program = STEP_TIME.replace("INNER_SAMPLES", str(samples))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        steps.append(json.loads(done.stdout.splitlines()[-1]))
    return {"steps": steps, "convolution": convolution()}


def step_time(inner_samples: int) -> dict:
    """Seconds a step: M = 100, 20 inner steps, batch 256, 10 outer samples, everything learned."""
    train, _ = cvi.datasets.mnist()
    construction = cvi.BBPSVI(
        100,
        learn={"x", "y", "weights", "total"},
        family=cvi.families.MeanField(),
        objective=ImportanceElbo(10),
        inner=Unrolled(20, num_samples=inner_samples),
        batch_size=256,
    )
    began = time.perf_counter()
    ready = prepare(construction, cvi.models.BayesianLeNet(), train, jax.random.key(0)[None])
    compiled, times = time.perf_counter() - began, []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(chunk(ready, 0, STEPS, 10_000, 1))
        times.append((time.perf_counter() - began) / STEPS)
    return {
        "inner_samples": inner_samples,
        "seconds_a_step": float(np.median(times)),
        "seconds_to_compile": compiled,
    }


def convolution() -> list[dict]:
    """Milliseconds for LeNet's two convolutions of 100 images: forward, gradient, its derivative."""
    keys = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(keys[0], (100, 28, 28, 1))
    kernels = (jax.random.normal(keys[1], (5, 5, 1, 6)), jax.random.normal(keys[2], (5, 5, 6, 16)))

    def by_xla(x, kernel, bias, padding):
        names = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), [(padding, padding)] * 2, dimension_numbers=names)
        pooled = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jax.nn.relu(pooled + bias)

    rows = []
    for name, layer in (("patches", pooled_convolution), ("XLA's convolution", by_xla)):

        def total(kernels, x, layer=layer):
            hidden = layer(x, kernels[0], jnp.zeros(6), 2)
            return jnp.mean(layer(hidden, kernels[1], jnp.zeros(16), 0) ** 2)

        def slope(x, kernels, total=total):
            return sum(jnp.sum(part**2) for part in jax.grad(total)(kernels, x))

        rows.append(
            {
                "layer": name,
                "forward": milliseconds(total, kernels, images),
                "gradient": milliseconds(jax.grad(total), kernels, images),
                "derivative": milliseconds(jax.grad(slope), images, kernels),
            }
        )
    return rows


def milliseconds(function, *arguments) -> float:
    """Median time of a compiled call."""
    compiled, times = jax.jit(function), []
    jax.block_until_ready(compiled(*arguments))
    for _ in range(15):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append((time.perf_counter() - began) * 1e3)
    return float(np.median(times))
