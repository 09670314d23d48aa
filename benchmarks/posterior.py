"""What draws on a coreset are worth: NUTS against NUTS on all rows, a million rows, half-moons."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

import coresetvi as cvi
from coresetvi import plots
from coresetvi.plots import maps
from coresetvi.posterior.distances import gaussian_kl

KEYS = (0, 1, 2)
ROWS, COLUMNS = 1_000_000, 10
# NUTS on a million rows is measured on so few transitions, and scaled.
MEASURED = 50
RESOLUTION = 60


def nuts() -> list[dict[str, object]]:
    """phishing and adult, M = 100, defaults: moments of NUTS on the coreset against NUTS on all rows."""
    rows = []
    for name in ("phishing", "adult"):
        train, test = cvi.datasets.load(name)
        model = cvi.models.LogisticRegression(train.dim)
        full = cvi.sample(model, train, num_samples=2000, key=17)
        for key in KEYS:
            fit = cvi.fit(cvi.BBPSVI(size=100), model, train, key=key)
            draws = cvi.sample(fit, num_samples=2000)
            corrected = cvi.correct(draws, train)
            certificate = cvi.diagnose(fit, train, full, draws=draws, held_out=test)
            rows.append(
                {
                    "data": name,
                    "key": key,
                    "fit_seconds": sum(fit.seconds.values()),
                    "nuts_seconds": draws.about["seconds"],
                    "full_nuts_seconds": full.about["seconds"],
                    **errors(draws, full),
                    "corrected_mean": errors(corrected, full)["mean"],
                    "standard_error": standard_error(draws, full),
                    "verdict": certificate.verdict,
                    "kl": certificate.posterior["kl"],
                    "khat": certificate.posterior["khat"],
                    "ess": certificate.posterior["ess"],
                    "kernel_stein": certificate.reference["kernel_stein"],
                    "sliced_wasserstein": certificate.reference["sliced_wasserstein"],
                }
            )
    return rows


def errors(draws: cvi.Draws, full: cvi.Draws) -> dict[str, float]:
    """Largest errors of means and deviations in the full posterior's deviations, and the two-moment KL."""
    deviation = np.sqrt(np.diag(full.covariance))
    ratio = np.sqrt(np.diag(draws.covariance)) / deviation
    return {
        "mean": float(np.max(np.abs(draws.mean - full.mean) / deviation)),
        "deviation": float(np.max(np.abs(ratio - 1.0))),
        "two_moment_kl": gaussian_kl(draws.mean, draws.covariance, full.mean, full.covariance),
    }


def standard_error(draws: cvi.Draws, full: cvi.Draws) -> float:
    """Largest Monte-Carlo error that the difference of two means has, in posterior deviations."""
    return float(np.sqrt(sum(1.0 / one.mixing()["ess_bulk"] for one in (draws, full))))


def million() -> dict[str, object]:
    """Fit M = 100 and run NUTS on it, against NUTS on a million rows; in processes of their own."""
    return {name: run_alone(name) for name in ("coreset", "rows")}


def run_alone(which: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.posterior", which]
    # What earlier runs have compiled must not count as nothing to wait for.
    alone = {**os.environ, "CORESETVI_CACHE": "off"}
    return json.loads(
        subprocess.run(command, env=alone, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    )


def million_data() -> tuple[cvi.Dataset, cvi.models.LogisticRegression]:
    train, _ = cvi.datasets.synthetic_lr(n=ROWS * 5 // 4, dim=COLUMNS, seed=0)
    assert len(train) == ROWS
    return train, cvi.models.LogisticRegression(train.dim)


def million_coreset() -> dict[str, float]:
    """Seconds of the fit and of 4 chains x (1,000 warm-up + 1,000 draws), and the memory they took."""
    train, model = million_data()
    began = time.perf_counter()
    fit = cvi.fit(cvi.BBPSVI(size=100), model, train, key=0)
    fitted = time.perf_counter()
    draws = cvi.sample(fit)
    done = time.perf_counter()
    peak = peak_bytes()
    certificate = cvi.diagnose(fit, train, draws=draws)
    return {
        "fit_seconds": fitted - began,
        "nuts_seconds": done - fitted,
        "peak_bytes": peak,
        "data_bytes": float(sum(leaf.nbytes for leaf in jax.tree.leaves((train.x, train.y, train.weights)))),
        "kl": certificate.posterior["kl"],
        "khat": certificate.posterior["khat"],
        "diagnose_seconds": time.perf_counter() - done,
        "mean_steps": float(draws.stats["num_steps"].mean()),
    }


def million_rows() -> dict[str, float]:
    """Seconds a transition of four chains takes on all rows, and as many steps as warm chains take."""
    train, model = million_data()
    # The first call compiles; the second has the same shapes.
    cvi.sample(model, train, num_samples=1, num_warmup=1, key=0)
    began = time.perf_counter()
    draws = cvi.sample(model, train, num_samples=MEASURED, num_warmup=MEASURED, key=0)
    seconds = time.perf_counter() - began
    return {
        "transitions": 2 * MEASURED,
        "seconds": seconds,
        "mean_steps": float(draws.stats["num_steps"].mean()),
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> float:
    import resource

    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def halfmoon() -> list[dict[str, object]]:
    """NUTS on 16 points of a network, learned and random, against NUTS on all: distance of entropy maps.

    The maps of the first key are drawn into `docs/halfmoon_nuts.png`.
    """
    train, _ = cvi.datasets.halfmoon()
    model = cvi.models.BayesianMLP(2, hidden=(20,))
    bounds = maps.around(train)
    grid = maps.grid(bounds, RESOLUTION)[2]
    full = cvi.sample(model, train, num_samples=500, num_warmup=500, key=5)
    rows, panels, reference = [], [], None
    for key in KEYS:
        for name, construction in (("BB PSVI", cvi.BBPSVI(16)), ("random points", cvi.RandomSubset(16))):
            fit = cvi.fit(construction, model, train, key=key)
            if reference is None:
                reference = plots.predictive_entropy(fit, grid, draws=full)
                panels.append(
                    {"fit": fit, "entropy": reference, "points": False, "title": "all 1,000 points"}
                )
            draws = cvi.sample(fit, num_samples=2500)
            entropy = plots.predictive_entropy(fit, grid, draws=draws)
            difference = float(np.mean(np.abs(entropy - reference)))
            panels.append({"fit": fit, "entropy": entropy, "title": f"16 points: {name}"})
            row = {
                "points": name,
                "key": key,
                "seconds": draws.about["seconds"],
                "entropy_difference": difference,
            }
            rows.append({**row, **draws.mixing()})
    figure = plots.entropy_figure(panels[:3], train, bounds, RESOLUTION)
    plots.save_figure(figure, Path(__file__).parent.parent / "docs" / "halfmoon_nuts.png")
    return [*rows, {"points": "all", "key": None, "seconds": full.about["seconds"], **full.mixing()}]


if __name__ == "__main__":
    print(json.dumps({"coreset": million_coreset, "rows": million_rows}[sys.argv[1]]()))
