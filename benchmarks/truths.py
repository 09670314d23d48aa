"""Truth: long chains on all rows, kept in files because they take minutes to hours.

`python -m benchmarks.truths NAME ...` draws what is not there yet; `NAME:1` is a second, independent run.
Files lie in `$CORESETVI_TRUTHS`, or where this system keeps caches; a name says how its draws were made.
"""

import json
import os
import sys
import time
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import platformdirs

import coresetvi as cvi
from benchmarks.chain_problems import PROBLEMS, Problem, problem
from coresetvi.models.log_joint import LogJoint
from coresetvi.storage import whole_file

# Draws at which a file's log-densities are compared with those of the model as it is now.
COMPARED, TOLERANCE = 8, 0.5
KEY = 1000


def folder() -> Path:
    """Where truths are kept."""
    return Path(
        os.environ.get("CORESETVI_TRUTHS") or Path(platformdirs.user_cache_dir("coresetvi")) / "truths"
    )


def place_of(known: Problem, run: int) -> Path:
    """The file of one run; other data or settings have another name."""
    arrays = [part for part in known.data.to_numpy() if part is not None]
    code = zlib.crc32(b"".join(np.ascontiguousarray(part).tobytes() for part in arrays))
    return folder() / f"{known.name}-{known.sampling}-{code:08x}-run{run}.npz"


def truth(known: Problem, run: int = 0) -> cvi.Draws:
    """Draws of the posterior given all rows; runs 0 and 1 are independent of each other."""
    place = place_of(known, run)
    if not place.exists():
        draw(known, run)
    with np.load(place) as found:
        stats = {name.removeprefix("stats."): found[name] for name in found if name.startswith("stats.")}
        about = json.loads(str(found["about"]))
        draws = cvi.Draws(
            found["flat"], known.model, known.data, known.sampling.method, found["log_density"], stats, about
        )
    compare(draws, place)
    return draws


def compare(draws: cvi.Draws, place: Path) -> None:
    """Refuse draws of a model that has changed since: its log-density would rise otherwise between them."""
    flat = draws.flat.reshape(-1, draws.flat.shape[-1])
    picked = np.linspace(0, len(flat) - 1, COMPARED).astype(int)
    joint = LogJoint(draws.model, draws.data, jnp.asarray(draws.mean, flat.dtype))
    now = np.asarray(joint.of_draws(jnp.asarray(flat[picked])), np.float64)
    off = np.ptp(now - draws.log_density.ravel()[picked])
    if not off <= TOLERANCE:
        raise ValueError(
            f"{place} holds draws of another model (log-densities differ by {off:.3g}); delete it."
        )


def draw(known: Problem, run: int) -> None:
    """Run the chains and keep them."""
    how = known.sampling
    before, began, processor = os.getloadavg()[0], time.perf_counter(), time.process_time()
    draws = cvi.sample(
        known.model,
        known.data,
        method=how.method,
        num_chains=how.chains,
        num_warmup=how.warmup,
        num_samples=how.samples,
        key=KEY + run,
        progress=False,
    )
    about = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - processor,
        "load": [before, os.getloadavg()[0]],
        "transitions": how.warmup + how.samples,
        # Of all draws, before some are left out.
        **draws.mixing(),
        "mean_steps": float(draws.stats["num_steps"].mean()),
    }
    kept = {"flat": draws.flat, "log_density": draws.log_density}
    kept |= {f"stats.{name}": values for name, values in draws.stats.items()}
    kept = {name: np.asarray(values)[:, how.thin - 1 :: how.thin] for name, values in kept.items()}
    place = place_of(known, run)
    with whole_file(place) as staging:
        np.savez(staging, allow_pickle=False, about=np.asarray(json.dumps(about)), **kept)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or PROBLEMS:
        name, _, run = wanted.partition(":")
        found = truth(problem(name), int(run or 0))
        print(json.dumps({"problem": name, "run": int(run or 0), **found.about}), flush=True)
