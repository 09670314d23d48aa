"""One pass over eight million rows: in one process with one thread, and on two such workers of Dask."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from coresetvi.models.local_view import Question, ViewOfRows

ROWS, COLUMNS, DRAWS = 8_000_000, 10, 64
PARTITIONS, REPEATS, ROUNDS = 16, 5, 2
MODEL = cvi.models.LogisticRegression(COLUMNS)
# XLA reads them when a process first uses it, so they have to be in its environment from the start.
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",
}
# Dask has workers give memory back at once, and then every block of rows pays for fetching it again.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30)}


def partition(number: int):
    """One of the partitions, made where it is needed."""
    import pandas

    generator = np.random.default_rng(number)
    x = generator.normal(size=(ROWS // PARTITIONS, COLUMNS))
    chance = 1.0 / (1.0 + np.exp(-x.sum(axis=1) / 3.0))
    frame = pandas.DataFrame(x, columns=[f"x{column}" for column in range(COLUMNS)])
    return frame.assign(y=(generator.random(len(x)) < chance).astype(np.int64))


class Passes(NamedTuple):
    """Medians over several passes: seconds by the clock, and of the processor that was busiest."""

    wall: float
    processor: float
    found: list[float]


def own_time() -> list[float]:
    return [time.process_time()]


def watch(rows: cvi.data.Rows, busy: Callable[[], list[float]] = own_time) -> Passes:
    """Passes after a first one that compiles; `busy` has the processor's seconds of every process so far."""
    generator = np.random.default_rng(0)
    points = 1 / 3 + 0.01 * generator.normal(size=(DRAWS + 1, COLUMNS))
    anchor, thetas = jnp.asarray(points[0], jnp.float32), jnp.asarray(points[1:], jnp.float32)
    view, question = ViewOfRows(MODEL), Question(anchor, 0.01 * jnp.eye(COLUMNS), thetas)
    found = jax.block_until_ready(rows.total(view, question))
    wall, processor = [], []
    for _ in range(REPEATS):
        before, began = busy(), time.perf_counter()
        found = jax.block_until_ready(rows.total(view, question))
        wall.append(time.perf_counter() - began)
        processor.append(max(np.subtract(busy(), before)))
    middle = statistics.median(wall), float(statistics.median(processor))
    return Passes(*middle, [float(found.value), *found.rises.tolist()])


def in_memory() -> cvi.data.Rows:
    import pandas

    return cvi.Dataset(pandas.concat([partition(number) for number in range(PARTITIONS)]), y="y")


def streamed() -> cvi.data.Rows:
    """The same blocks as on the workers, from frames that are in memory."""
    frames = [partition(number) for number in range(PARTITIONS)]
    return cvi.scan(lambda: iter(frames), target="y")


PLACES: dict[str, Callable[[], cvi.data.Rows]] = {"in memory": in_memory, "streamed": streamed}


def alone(place: str) -> Passes:
    """In a new process with one thread."""
    script = (
        "import json; from benchmarks import cluster; "
        f"print(json.dumps(cluster.watch(cluster.PLACES[{place!r}]())))"
    )
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return Passes(*json.loads(done.stdout.splitlines()[-1]))


def on_workers(count: int) -> Passes:
    """On so many workers of this machine with one thread each."""
    import dask.config
    import dask.dataframe
    from dask.distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": KEEP_MEMORY}),
        LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address=":0", env=ONE_THREAD
        ) as cluster,
        Client(cluster) as client,
    ):

        def busy() -> list[float]:
            seconds: Any = client.run(time.process_time)
            return [seconds[worker] for worker in sorted(seconds)]

        frame = dask.dataframe.from_map(partition, range(PARTITIONS))
        return watch(cvi.scan(frame, target="y", client=client), busy)


def run() -> dict[str, object]:
    """Seconds per pass, and how much faster two workers are than one process."""
    places = {
        "one process": lambda: alone("in memory"),
        "one process, streamed": lambda: alone("streamed"),
        "one worker": lambda: on_workers(1),
        "two workers": lambda: on_workers(2),
    }
    # Load comes and goes, so every place has its turn several times.
    seen: dict[str, list[Passes]] = {name: [] for name in places}
    for _ in range(ROUNDS):
        for name, watched in places.items():
            seen[name].append(watched())
    wall = {name: statistics.median(one.wall for one in turns) for name, turns in seen.items()}
    processor = {name: statistics.median(one.processor for one in turns) for name, turns in seen.items()}
    expected, found = (np.array(seen[name][0].found) for name in ("one process", "two workers"))
    return {
        "rows": ROWS,
        "draws": DRAWS,
        "wall": wall,
        "processor": processor,
        "speed_up": wall["one process"] / wall["two workers"],
        "speed_up_over_streamed": wall["one process, streamed"] / wall["two workers"],
        "speed_up_processor": processor["one process"] / processor["two workers"],
        "largest_difference": float(np.max(np.abs(found - expected) / np.maximum(1.0, np.abs(expected)))),
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
