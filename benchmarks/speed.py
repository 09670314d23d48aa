"""Step time, compile time, memory and cold start of the paper's engine: unrolled BB PSVI."""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from coresetvi.fitting.steps import CHUNK, run_chunk


def problem(dim: int, inner_steps: int):
    """Logistic regression, M = 100, S = 10, batch 256: the setting of the targets."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((10_000, dim))
    chance = 1.0 / (1.0 + np.exp(-x @ generator.standard_normal(dim) / np.sqrt(dim)))
    data = cvi.Dataset(x, (generator.random(10_000) < chance).astype(int))
    construction = cvi.BBPSVI(
        100,
        family=cvi.families.MeanField(),
        inner=cvi.inner.Unrolled(inner_steps),
        objective=cvi.objectives.ImportanceElbo(10),
        batch_size=256,
    )
    return construction, cvi.models.LogisticRegression(dim), data


def unrolled(dim: int, inner_steps: int, chunks: int = 8) -> dict[str, float]:
    """Median milliseconds a step over chunks, seconds to compile, megabytes of temporaries."""
    construction, model, data = problem(dim, inner_steps)
    key = jax.random.key(0)
    plan = construction.settle(model, data)
    state = jax.tree.map(lambda leaf: leaf[None], plan.start(key))
    carry = (state, jnp.ones(1, dtype=bool))
    numbers = [jnp.asarray(number) for number in (0, CHUNK, 10_000, 1)]
    arguments = (plan, key[None], carry, *numbers)
    began = time.perf_counter()
    jax.block_until_ready(run_chunk(*arguments))
    compiled = time.perf_counter() - began
    times = []
    for _ in range(chunks):
        began = time.perf_counter()
        jax.block_until_ready(run_chunk(*arguments))
        times.append((time.perf_counter() - began) / CHUNK * 1e3)
    program: Any = run_chunk  # jitted
    executable = program.lower(*arguments).compile()
    memory = executable.compiled.memory_analysis().temp_size_in_bytes / 2**20
    return {
        "dim": dim,
        "inner_steps": inner_steps,
        "milliseconds_a_step": float(np.median(times)),
        "seconds_to_compile": compiled,
        "temporary_megabytes": memory,
    }


COLD_START = """
import time, json, resource
began = time.time()
from benchmarks.speed import problem
import coresetvi as cvi
construction, model, data = problem(11, INNER_STEPS)
fitted = cvi.fit(construction, model, data, key=0, num_steps=20)
before_steps = time.time() - began - fitted.seconds["run"]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": before_steps, "compile": fitted.seconds["compile"], "peak": peak}))
"""


def cold_start() -> dict[str, float]:
    """Seconds from the start of a process (imports included) to the first step: empty and warm cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, JAX_COMPILATION_CACHE_DIR=folder)
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        runs = []
        for inner_steps in (100, 100, 500):
            script = COLD_START.replace("INNER_STEPS", str(inner_steps))
            done = subprocess.run(
                [sys.executable, "-c", script],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        "empty_cache_seconds": runs[0]["seconds"],
        "warm_cache_seconds": runs[1]["seconds"],
        "warm_cache_compile_seconds": runs[1]["compile"],
        "peak_megabytes": runs[0]["peak"],
        "peak_megabytes_500": runs[2]["peak"],
    }


def run() -> dict[str, object]:
    """All speed figures."""
    rows = [unrolled(11, 100), unrolled(128, 100), unrolled(11, 500)]
    base, long = rows[0], rows[2]
    cold = cold_start()
    return {
        "rows": rows,
        "time_ratio_500": long["milliseconds_a_step"] / base["milliseconds_a_step"],
        "memory_ratio_500": long["temporary_megabytes"] / base["temporary_megabytes"],
        "peak_ratio_500": cold["peak_megabytes_500"] / cold["peak_megabytes"],
        "cold_start": cold,
    }
