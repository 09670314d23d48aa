"""What a user waits for in a new process: a fit, draws and a certificate, with an empty and a warm cache."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import coresetvi as cvi
from coresetvi.storage import cache_folder

REPEATS = 3
SIZE, ROWS, COLUMNS = 40, 5_000, 5
STAGES = ("import", "fit", "sample", "diagnose")


def phishing() -> tuple[cvi.models.Model, cvi.Dataset]:
    """About 10,000 rows, 11 columns."""
    train, _ = cvi.datasets.load("phishing")
    return cvi.models.LogisticRegression(train.dim), train


def logistic_regression(x, y) -> None:
    """Six parameters in NumPyro."""
    import numpyro
    from numpyro import distributions as dist

    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([COLUMNS]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=intercept + x @ slope), obs=y)


def numpyro_data() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    chance = 1.0 / (1.0 + np.exp(-x @ generator.normal(size=COLUMNS)))
    return x, (generator.random(ROWS) < chance).astype(np.int32)


def from_numpyro() -> tuple[cvi.models.Model, cvi.Dataset]:
    """The same, as a model of this library."""
    data = cvi.Dataset(*numpyro_data())
    return cvi.models.FromNumPyro(logistic_regression, data), data


PROBLEMS: dict[str, Callable[[], tuple[cvi.models.Model, cvi.Dataset]]] = {
    "phishing": phishing,
    "NumPyro": from_numpyro,
}


def watch(name: str, began: float) -> dict[str, float]:
    """Seconds for each stage; to make the model is part of the fit."""
    ticks = [began, time.time()]
    model, data = PROBLEMS[name]()
    fit = cvi.fit(cvi.BBPSVI(SIZE), model, data, key=0)
    ticks.append(time.time())
    draws = cvi.sample(fit)
    ticks.append(time.time())
    cvi.diagnose(fit, data, draws=draws)
    ticks.append(time.time())
    return dict(zip(STAGES, np.diff(ticks).tolist(), strict=True))


def watch_numpyro(began: float) -> dict[str, float]:
    """NumPyro's own NUTS on all rows, with as many chains and transitions as `sample` takes."""
    import jax
    from numpyro.infer import MCMC, NUTS

    ticks = [began, time.time()]
    chains = MCMC(
        NUTS(logistic_regression),
        num_warmup=1000,
        num_samples=1000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(0), *numpyro_data())
    chains.get_samples()
    ticks.append(time.time())
    return {"import": ticks[1] - ticks[0], "sample": ticks[2] - ticks[1]}


def in_new_process(call: str, cache: str) -> dict[str, float]:
    """What `call`, which may use `began`, returns there."""
    script = (
        "import time; began = time.time(); import json; from benchmarks import waiting; "
        f"print(json.dumps(waiting.{call}))"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    environment = {**kept, "XDG_CACHE_HOME": cache}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def run() -> list[dict[str, object]]:
    """Medians of three; each time an empty cache, and then the same again."""
    both = ("empty", "warm")
    calls: dict[str, tuple[str, tuple[str, ...]]] = {
        f"{name}, M = {SIZE}": (f"watch({name!r}, began)", both) for name in PROBLEMS
    }
    # NumPyro alone keeps nothing.
    calls["NUTS of NumPyro on all rows"] = ("watch_numpyro(began)", both[:1])
    # Data sets stay where they are, whatever becomes of the cache.
    os.environ.setdefault("CORESETVI_DATA", str(cache_folder()))
    rows = []
    for label, (call, states) in calls.items():
        seen: dict[str, list[dict[str, float]]] = {state: [] for state in states}
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as cache:
                for state in states:
                    seen[state].append(in_new_process(call, cache))
        for state, runs in seen.items():
            middle = {stage: statistics.median(one[stage] for one in runs) for stage in runs[0]}
            total = statistics.median(sum(one.values()) - one["import"] for one in runs)
            rows.append({"problem": label, "cache": state, **middle, "total": total})
    return rows
