"""A few passes over the rows: in memory, from files, from a function, on a cluster, and in one round.

Every problem is its own function, so that one of them can be run alone: `python -m benchmarks.passes noise`.
KL is that of the Laplace posteriors on the coreset and on all rows, in nats, unless a posterior is exact.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from benchmarks import cluster
from benchmarks.reference import gaussian_kl
from coresetvi.constructions.defaults import matching_draws
from coresetvi.models.local_view import Mode, find_mode, view_of
from coresetvi.models.question import BACK, Question

Record = dict[str, object]
Batches = Iterator[tuple[np.ndarray, np.ndarray]]
KEYS = (0, 1, 2)


def logistic_batches(rows: int, columns: int, length: int = 100_000) -> Callable[[], Batches]:
    """A function that makes rows of a logistic regression anew, batch by batch."""
    theta = np.random.default_rng(0).normal(size=columns) * 2.0 / np.sqrt(columns)

    def batches():
        generator = np.random.default_rng(1)
        for start in range(0, rows, length):
            count = min(length, rows - start)
            x = generator.standard_normal((count, columns), dtype=np.float32)
            x[:, 0] = 1.0
            yield x, (generator.random(count) < 1.0 / (1.0 + np.exp(-x @ theta))).astype(np.int32)

    return batches


def logistic_rows(rows: int, columns: int) -> cvi.Dataset:
    """The same rows in memory."""
    x, y = (np.concatenate(part) for part in zip(*logistic_batches(rows, columns)(), strict=True))
    return cvi.Dataset(x, y)


def laplace(model: cvi.models.Model, rows, start: Mode | None = None) -> Mode:
    """Mode and covariance of a posterior; a second search from where the first ended sharpens it."""
    theta = np.zeros(model.dim) if start is None else start.theta
    first = find_mode(model, rows, theta, np.eye(model.dim) if start is None else start.factor)
    return find_mode(model, rows, first.theta, first.factor)


def distance(model, coreset, truth: Mode) -> float:
    """KL divergence of the coreset's Laplace posterior from that of all rows."""
    own = laplace(model, coreset, truth)
    covariances = [mode.factor @ mode.factor.T for mode in (own, truth)]
    return gaussian_kl(own.theta, covariances[0], truth.theta, covariances[1])


def measured(name: str, size: int, model, rows, truth: Mode, key: int = 0) -> Record:
    """One default fit; the second of its shape, so that nothing is compiled in its time."""
    cvi.fit(cvi.BBPSVI(size), model, rows, key=key)
    began = time.perf_counter()
    fit = cvi.fit(cvi.BBPSVI(size), model, rows, key=key)
    return {
        "problem": name,
        "size": size,
        "key": key,
        "passes": fit.about["passes"],
        "seconds": time.perf_counter() - began,
        "kl": distance(model, fit.coreset, truth),
        "kl_found": float(np.nanmin(fit.history["kl"])),
        "result": fit.result,
    }


def memory() -> list[Record]:
    """1,000,000 x 10 in memory, 100 points; Newton's method for the mode with the same sums beside it."""
    model, rows = cvi.models.LogisticRegression(10), logistic_rows(1_000_000, 10)
    truth = laplace(model, rows)
    records = []
    for key in KEYS:
        began = time.perf_counter()
        mode = find_mode(model, rows, np.zeros(10), np.eye(10))
        newton = {"newton_seconds": time.perf_counter() - began, "newton_passes": mode.passes}
        records.append(measured("1,000,000 x 10", 100, model, rows, truth, key) | newton)
    return records


def files() -> list[Record]:
    """1, 3 and 10 million x 10 from Parquet, 100 points, each fit in a process of its own."""
    import pyarrow
    import pyarrow.parquet

    records = []
    with tempfile.TemporaryDirectory() as folder:
        for millions in (1, 3, 10):
            place = Path(folder) / str(millions)
            place.mkdir()
            for part, (x, y) in enumerate(logistic_batches(1_000_000 * millions, 10, 1_000_000)()):
                columns = {f"x{number}": x[:, number] for number in range(10)} | {"y": y}
                pyarrow.parquet.write_table(pyarrow.table(columns), place / f"{part:03d}.parquet")
            call = [sys.executable, "-m", "benchmarks.passes", "one-folder", str(place), str(folder)]
            # What earlier runs have compiled must not count as nothing to wait for.
            alone = {**os.environ, "CORESETVI_CACHE": "off"}
            done = subprocess.run(call, env=alone, capture_output=True, text=True, check=True)
            record = json.loads(done.stdout)
            model, rows = cvi.models.LogisticRegression(10), cvi.scan(place, target="y")
            coreset = cvi.load(Path(folder) / "fitted").coreset
            record["kl"] = distance(model, coreset, laplace(model, rows))
            records.append({"problem": f"{millions} million x 10 from Parquet"} | record)
    return records


def one_folder(place: str, folder: str) -> Record:
    """A fit to the files of one folder, its peak of memory, and the time of reading and adding up alone."""
    model, rows = cvi.models.LogisticRegression(10), cvi.scan(place, target="y")
    began = time.perf_counter()
    fit = cvi.fit(cvi.BBPSVI(100), model, rows, key=0)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    fit.save(Path(folder) / "fitted", overwrite=True)
    return {
        "passes": fit.about["passes"],
        "seconds": seconds,
        "seconds_per_pass": statistics.median(np.diff(fit.history["seconds"])),
        "peak_megabytes": peak,
        "result": fit.result,
    } | reading_and_arithmetic(model, place)


def reading_and_arithmetic(model: cvi.models.Model, place: str) -> Record:
    """What a pass cannot do without: files read into matrices, and a question answered by rows in memory."""
    import pyarrow.parquet

    def read(name: Path) -> cvi.Dataset:
        table = pyarrow.parquet.read_table(name)
        x = np.stack([table[f"x{number}"].to_numpy() for number in range(10)], axis=1)
        return cvi.Dataset(x, table["y"].to_numpy())

    names = sorted(Path(place).glob("*.parquet"))
    part = read(names[0])
    began = time.perf_counter()
    for name in names:
        part = read(name)
    reading = time.perf_counter() - began
    draws = matching_draws(cvi.scan(place, target="y"))
    thetas = jax.random.normal(jax.random.key(0), (draws + len(BACK), 10)) * 1e-3
    question = Question(jnp.zeros(10), 1e-3 * jnp.eye(10), thetas)
    jax.block_until_ready(view_of(model, part, question))
    began = time.perf_counter()
    jax.block_until_ready(view_of(model, part, question))
    return {"reading": reading, "arithmetic": len(names) * (time.perf_counter() - began)}


def function() -> list[Record]:
    """100,000,000 x 10 from a function that makes batches, 100 points."""
    model, rows = cvi.models.LogisticRegression(10), cvi.scan(logistic_batches(100_000_000, 10))
    began = time.perf_counter()
    fit = cvi.fit(cvi.BBPSVI(100), model, rows, key=0)
    return [
        {
            "problem": "100 million x 10 from a function",
            "passes": fit.about["passes"],
            "seconds": time.perf_counter() - began,
            "kl_found": float(np.nanmin(fit.history["kl"])),
            "result": fit.result,
        }
    ]


def columns() -> list[Record]:
    """Many columns, and columns of very different scales."""
    records = []
    for width, size in ((50, 150), (100, 300)):
        model, rows = cvi.models.LogisticRegression(width), logistic_rows(100_000, width)
        truth = laplace(model, rows)
        records.append(measured(f"100,000 x {width}", size, model, rows, truth))
    train, _ = cvi.datasets.load("nslkdd")
    model = cvi.models.LogisticRegression(train.dim)
    records.append(measured("NSL-KDD", 300, model, train, laplace(model, train)))
    return records


def dummies() -> list[Record]:
    """26 correlated dummy columns and a constant, 5,000 rows, unknown noise, 100 points."""
    generator = np.random.default_rng(0)
    base = generator.integers(0, 4, 5_000)
    chances = generator.dirichlet(np.full(9, 0.5), size=3)
    parts = [np.ones(5_000)]
    for chance in chances:
        level = np.array([generator.choice(9, p=np.roll(chance, shift)) for shift in base])
        parts += [level == number for number in range(1, 9)]
    parts += [base > 1, base == 0]
    x = np.stack(parts, axis=1).astype(np.float32)
    y = x @ generator.normal(size=x.shape[1]) + 0.7 * generator.normal(size=len(x))

    def regression(x, y):
        import numpyro
        from numpyro import distributions as dist

        slope = numpyro.sample("slope", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(10.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(x @ slope, noise), obs=y)

    rows = cvi.Dataset(x, y.astype(np.float32))
    model = cvi.models.FromNumPyro(regression, rows)
    return [measured("26 dummies", 100, model, rows, laplace(model, rows), key) for key in KEYS]


def noise() -> list[Record]:
    """Linear regression, five columns, 2,000 rows, 20 points: exact posteriors, noise of 1 to 0.001."""
    records = []
    for level in (1.0, 0.1, 0.01, 0.001):
        generator = np.random.default_rng(1)
        x = generator.normal(size=(2_000, 5)).astype(np.float32)
        signal = x @ generator.normal(size=5)
        deviation = level * signal.std()
        y = signal + deviation * generator.normal(size=2_000)
        model = cvi.models.LinearRegression(5, noise=float(deviation))
        rows = cvi.Dataset(x, y.astype(np.float32))
        for key in range(5):
            fit = cvi.fit(cvi.BBPSVI(20), model, rows, key=key)
            kl = gaussian_kl(*model.posterior(fit.coreset), *model.posterior(rows))
            records.append(
                {"noise": level, "key": key, "kl": kl, "passes": fit.about["passes"], "result": fit.result}
            )
    return records


def counts() -> list[Record]:
    """Poisson regression, 500 rows, 20 points, 200 seeds with mean counts from 0.2 to 5."""
    records = []
    model = cvi.models.PoissonRegression(4)
    for seed in range(200):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(500, 4)).astype(np.float32)
        x[:, 0] = 1.0
        slope = np.concatenate([[np.log(0.2 * 25.0 ** (seed / 199))], 0.4 * generator.normal(size=3)])
        rows = cvi.Dataset(x, generator.poisson(np.exp(x @ slope)))
        fit = cvi.fit(cvi.BBPSVI(20), model, rows, key=seed)
        kl = distance(model, fit.coreset, laplace(model, rows))
        records.append({"seed": seed, "kl": kl, "passes": fit.about["passes"], "result": fit.result})
    bad = [record for record in records if float(str(record["kl"])) > 0.1]
    finished = [record for record in bad if record["result"] == "finished"]
    worst = max(float(str(record["kl"])) for record in records)
    return [{"fits": len(records), "bad": len(bad), "bad_and_finished": len(finished), "worst": worst}]


def tables() -> list[Record]:
    """phishing and adult, ten keys: the worst of them."""
    records = []
    for name in ("phishing", "adult"):
        train, _ = cvi.datasets.load(name)
        model = cvi.models.LogisticRegression(train.dim)
        truth = laplace(model, train)
        for size in (20, 40, 100):
            fits = [cvi.fit(cvi.BBPSVI(size), model, train, key=key) for key in range(10)]
            distances = [distance(model, fit.coreset, truth) for fit in fits]
            records.append(
                {
                    "data": name,
                    "size": size,
                    "median_kl": statistics.median(distances),
                    "worst_kl": max(distances),
                    "most_passes": max(fit.about["passes"] for fit in fits),
                    "median_seconds": statistics.median(fit.seconds["run"] for fit in fits),
                    "results": sorted({fit.result for fit in fits}),
                }
            )
    return records


def one_round() -> list[Record]:
    """1,000,000 x 10 in ten shards that are asked once: a coreset each, merged and compressed again."""
    model, rows = cvi.models.LogisticRegression(10), logistic_rows(1_000_000, 10)
    truth = laplace(model, rows)
    shards = [rows.take(np.arange(start, 1_000_000, 10)) for start in range(10)]
    merged = cvi.merge([cvi.fit(cvi.BBPSVI(100), model, shard, key=0) for shard in shards])
    again = cvi.fit(cvi.BBPSVI(100), model, merged, key=0)
    few = cvi.fit(cvi.BBPSVI(100), model, rows, key=0)
    return [
        {"problem": "merged, 1,000 points", "kl": distance(model, merged, truth)},
        {"problem": "merged and compressed to 100", "kl": distance(model, again.coreset, truth)},
        {"problem": "few passes, 100 points", "kl": distance(model, few.coreset, truth)},
    ]


PROBLEMS: dict[str, Callable[[], list[Record]]] = {
    part.__name__: part
    for part in (memory, files, columns, dummies, noise, counts, tables, one_round, function)
}


PROBLEMS["cluster"] = lambda: [cluster.run()]


def run() -> dict[str, list[Record]]:
    """Everything but the hundred million rows, which take long and are to be asked for by name."""
    return {name: part() for name, part in PROBLEMS.items() if name != "function"}


if __name__ == "__main__":
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if sys.argv[1:2] == ["one-folder"]:
        print(json.dumps(one_folder(*sys.argv[2:])))
        sys.exit()
    for wanted in sys.argv[1:]:
        for record in PROBLEMS[wanted]():
            print(json.dumps(record), flush=True)
