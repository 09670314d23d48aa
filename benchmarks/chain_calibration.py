"""Simulation-based calibration (Talts et al., 2018) of a default coreset with chains on it.

Parameters are drawn from the prior, rows from the model given them; among draws of the posterior given the
coreset of these rows, ranks of the true values must then be uniform. Wrong coresets have other histograms.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from benchmarks.chain_problems import MEAN_SCALE, SLOPE_SCALE, Record, varying_intercepts

REPLICATIONS = 200
# Draws among which the true value has a rank from 0 to this number.
RANKED, BINS = 99, 10
CHAINS, WARMUP, SAMPLES = 4, 300, 300
COMPILED = "/jax/core/compile/backend_compile_duration"
GROUPS, GROUP_ROWS = 8, (30, 20, 16, 12, 10, 6, 4, 2)
FEATURES, ROWS = 3, 200


class Calibration(NamedTuple):
    """A model, the size of its coresets, draws of its prior and of rows given them, and what is ranked."""

    model: cvi.models.Model
    size: int
    draw: Callable[[np.random.Generator], tuple[np.ndarray, cvi.Dataset]]
    # Which values are ranked: the flat parameters, or what a model makes of them.
    values: Callable[[np.ndarray], np.ndarray]
    labels: tuple[str, ...]


def logistic() -> Calibration:
    """Logistic regression: an intercept and two slopes, 200 rows, 20 points."""

    def draw(generator):
        x, theta = design(generator), generator.normal(size=FEATURES)
        return theta, cvi.Dataset(x, (generator.random(ROWS) < 1.0 / (1.0 + np.exp(-x @ theta))).astype(int))

    return regression(cvi.models.LogisticRegression(FEATURES), draw)


def poisson() -> Calibration:
    """Poisson regression with a prior of scale 0.5, 200 rows, 20 points."""

    def draw(generator):
        x, theta = design(generator), 0.5 * generator.normal(size=FEATURES)
        return theta, cvi.Dataset(x, generator.poisson(np.exp(x @ theta)))

    return regression(cvi.models.PoissonRegression(FEATURES, prior_scale=0.5), draw)


def design(generator: np.random.Generator) -> np.ndarray:
    x = generator.normal(size=(ROWS, FEATURES)).astype(np.float32)
    x[:, 0] = 1.0
    return x


def regression(model: cvi.models.Model, draw: Callable) -> Calibration:
    return Calibration(model, 20, draw, lambda flat: flat, tuple(f"coef {i}" for i in range(FEATURES)))


def varying() -> Calibration:
    """Varying intercepts: 8 groups of 2 to 30 rows, 24 points; intercepts are ranked, not raw ones."""
    group = np.repeat(np.arange(GROUPS), GROUP_ROWS)
    function = varying_intercepts(GROUPS)
    example = cvi.Dataset(np.stack([group, group % 2], axis=1).astype(np.float32), 0.5 + 0.1 * group)
    model = cvi.models.FromNumPyro(function, example)
    sites = ("mean", "slope", "spread", "noise", "intercept")

    def draw(generator):
        mean, slope = MEAN_SCALE * generator.normal(), SLOPE_SCALE * generator.normal()
        spread, noise = np.abs(generator.normal(size=2))
        intercepts = mean + spread * generator.normal(size=GROUPS)
        floor = generator.random(len(group)) < 0.3
        y = intercepts[group] + slope * floor + noise * generator.normal(size=len(group))
        x = np.stack([group, floor], axis=1).astype(np.float32)
        return np.array([mean, slope, spread, noise, *intercepts]), cvi.Dataset(x, y.astype(np.float32))

    @jax.jit
    def sites_of(flat):
        params = jax.vmap(model.params)(flat)
        return jnp.concatenate([jnp.reshape(params[name], (len(flat), -1)) for name in sites], axis=1)

    labels = (*sites[:4], *(f"intercept {number}" for number in range(GROUPS)))
    return Calibration(model, 24, draw, lambda flat: np.asarray(sites_of(flat)), labels)


CALIBRATIONS: dict[str, Callable[[], Calibration]] = {
    part.__name__: part for part in (logistic, poisson, varying)
}


def ranks_of(known: Calibration, replications: int) -> tuple[np.ndarray, list[int], dict[str, int]]:
    """Ranks (replications, values); programs compiled up to each replication; and how fits ended."""
    programs = 0

    def count(event: str, duration_secs: float, **kwargs: str | int) -> None:
        nonlocal programs
        programs += event == COMPILED

    jax.monitoring.register_event_duration_secs_listener(count)
    ranks, compiled, results = [], [], {}
    for number in range(replications):
        generator = np.random.default_rng([5, number])
        right, data = known.draw(generator)
        fit = cvi.fit(cvi.BBPSVI(known.size), known.model, data, key=number, progress=False)
        draws = cvi.sample(
            fit, num_chains=CHAINS, num_warmup=WARMUP, num_samples=SAMPLES, key=number, progress=False
        )
        flat = draws.flat.reshape(-1, known.model.dim)
        picked = flat[np.linspace(0, len(flat) - 1, RANKED).astype(int)]
        ranks.append(np.sum(known.values(picked) < right, axis=0))
        compiled.append(programs)
        results[fit.result] = results.get(fit.result, 0) + 1
    jax.monitoring.unregister_event_duration_listener(count)
    return np.stack(ranks), compiled, results


def counts_of(ranks: np.ndarray) -> np.ndarray:
    """Ranks per bin, (values, bins); RANKED + 1 possible ranks fall into bins of equal length."""
    width = (RANKED + 1) // BINS
    return np.stack([np.bincount(column // width, minlength=BINS) for column in ranks.T])


def run(replications: int = REPLICATIONS, names: tuple[str, ...] = tuple(CALIBRATIONS)) -> list[Record]:
    """Calibrate every model, print a line for each, and draw `docs/sbc.png`."""
    from scipy import stats

    records, panels = [], []
    for name in names:
        known = CALIBRATIONS[name]()
        ranks, compiled, results = ranks_of(known, replications)
        counts = counts_of(ranks)
        chances = stats.chisquare(counts, axis=1).pvalue
        smallest = float(np.min(chances) * len(chances))
        record: Record = {
            "model": name,
            "replications": replications,
            "p_value": min(1.0, smallest),
            "uniform": smallest > 0.01,
            "worst": known.labels[int(np.argmin(chances))],
            "results": results,
            # Shapes never change: after the first few replications nothing may be compiled.
            "programs": [compiled[0], compiled[len(compiled) // 4], compiled[-1]],
            "compiles_again": compiled[-1] > compiled[len(compiled) // 4],
            "counts": counts.tolist(),
        }
        print(json.dumps(record), flush=True)
        records.append(record)
        panels += [(f"{name}: {label}", row) for label, row in zip(known.labels, counts, strict=True)]
    if replications == REPLICATIONS and set(names) == set(CALIBRATIONS):
        draw_histograms(panels, replications, Path(__file__).parent.parent / "docs" / "sbc.png")
    return records


def draw_histograms(panels: list[tuple[str, np.ndarray]], replications: int, path: Path) -> None:
    """One panel per value, with the band that holds 99 % of the counts of a uniform distribution."""
    from scipy import stats

    from coresetvi import plots
    from coresetvi.plots.figures import new_figure

    columns = 6
    rows = -(-len(panels) // columns)
    figure = new_figure(2.2 * columns, 1.7 * rows)
    low, high = stats.binom.interval(0.99, replications, 1.0 / BINS)
    edges = np.linspace(0, RANKED + 1, BINS + 1)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(places, panels, strict=False):
        axes.axhspan(low, high, color="#d7e3ea")
        axes.stairs(panel[1], edges, fill=True, color="#35637c", alpha=0.85)
        axes.set_title(panel[0], fontsize=9)
        axes.set_ylim(0, max(1.8 * high / 1.5, 1.05 * panel[1].max()))
        axes.tick_params(labelsize=7)
    figure.supxlabel(f"rank of the true value among {RANKED} draws; band: 99 % of uniform counts", fontsize=9)
    plots.save_figure(figure, path)


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else REPLICATIONS, tuple(sys.argv[2:]) or tuple(CALIBRATIONS))
