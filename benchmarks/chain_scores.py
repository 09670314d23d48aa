"""Scores of one default fit: of networks by their predictions, of regressions by groups by their moments."""

import dataclasses
import os
import time
import warnings

import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from benchmarks.chain_problems import Moments, Problem, Record
from benchmarks.truths import place_of, truth
from coresetvi.families.mixing import chain_measures
from coresetvi.models.prediction import predictive_moments, scores
from coresetvi.plots import maps
from coresetvi.posterior.correction import data_log_ratios

RESOLUTION, MARGIN = 40, 0.5  # of the grid of inputs; the margin in deviations of the data
WARMUP, SAMPLES = 1000, 2000
# Largest errors that a verdict "trust" leaves room for, were all of its 0.1 nats in one parameter.
TRUSTED_MEAN, TRUSTED_DEVIATION = 0.45, 0.33


def timed_fit(known: Problem, size: int, key: int) -> tuple[cvi.Fit, Record]:
    """The default fit, what it took, and what it said about itself."""
    began, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fit = cvi.fit(cvi.BBPSVI(size), known.model, known.data, key=key, progress=False)
    return fit, {
        "problem": known.name,
        "size": size,
        "key": key,
        "fit_seconds": time.perf_counter() - began,
        "fit_cpu_seconds": time.process_time() - processor,
        "result": fit.result,
        "passes": fit.about.get("passes"),
        "steps": fit.about.get("steps"),
        "warnings": [str(one.message) for one in heard],
        "load": os.getloadavg()[0],
    }


# Networks


def entropies(draws: cvi.Draws, data: cvi.Dataset) -> np.ndarray:
    """Predictive entropy in nats over a grid of inputs around the data."""
    x = np.asarray(data.x, np.float64)
    low, high = x.min(axis=0) - MARGIN * x.std(axis=0), x.max(axis=0) + MARGIN * x.std(axis=0)
    inputs = maps.grid((low[0], high[0], low[1], high[1]), RESOLUTION)[2]
    flat = jnp.asarray(draws.flat.reshape(-1, draws.flat.shape[-1]))
    points = jnp.asarray(inputs, flat.dtype)
    chances = predictive_moments(draws.model, flat, jnp.asarray(draws.weights.ravel(), flat.dtype), points)[0]
    if chances.ndim == 1:
        chances = np.stack([1.0 - chances, chances], axis=1)
    safe = np.clip(np.asarray(chances, np.float64), 1e-12, 1.0)
    return -np.sum(safe * np.log(safe), axis=1)


def agreement(draws: cvi.Draws, data: cvi.Dataset) -> dict[str, float]:
    """How far entropies of one half of the chains are from the other's; and of earlier from later draws."""
    chains, length = draws.flat.shape[0] // 2, draws.flat.shape[1] // 2
    halves = {
        "entropy_of_chains": (draws.flat[:chains], draws.flat[chains:]),
        "entropy_of_times": (draws.flat[:, :length], draws.flat[:, length:]),
    }
    found = {}
    for name, parts in halves.items():
        one, other = (
            entropies(dataclasses.replace(draws, flat=part, log_density=np.zeros(part.shape[:2])), data)
            for part in parts
        )
        found[name] = float(np.mean(np.abs(one - other)))
    return found


def thinned(draws: cvi.Draws, every: int) -> cvi.Draws:
    """Every so many draws of each chain; neighbours say nearly the same."""
    some = slice(every - 1, None, every)
    stats = {name: values[:, some] for name, values in draws.stats.items()}
    return dataclasses.replace(
        draws, flat=draws.flat[:, some], log_density=draws.log_density[:, some], stats=stats
    )


def network(known: Problem, size: int, key: int) -> Record:
    """Entropy maps of chains on the coreset and on all rows, the KL, and draws left after correction."""
    fit, record = timed_fit(known, size, key)
    # Begun apart from each other, and as long as those on all rows: chains never meet, so many are needed.
    how, began = known.sampling, time.perf_counter()
    draws = cvi.sample(
        known.model,
        fit.coreset,
        method=how.method,
        num_chains=how.chains,
        num_warmup=how.warmup,
        num_samples=how.samples,
        key=key,
        progress=False,
    )
    draws = thinned(draws, how.thin)
    record["chain_seconds"] = time.perf_counter() - began
    full = truth(known)
    reference = entropies(full, known.data)
    # A second run takes as long as the first; without one, halves of the first have to do (`agreement`).
    again = truth(known, 1) if place_of(known, 1).exists() else full
    residual = data_log_ratios(draws, known.model.check(known.data))[1]
    return record | {
        "entropy": float(np.mean(np.abs(entropies(draws, known.data) - reference))),
        "entropy_floor": float(np.mean(np.abs(entropies(again, known.data) - reference))),
        **agreement(full, known.data),
        "kl": 0.5 * float(np.var(residual)),
        "ess": cvi.correct(draws, known.data).about["ess"],
        "own_nll": fit.evaluate(known.test)["nll"] if known.test else None,
        "nll": fit.evaluate(known.test, draws=draws)["nll"] if known.test else None,
        "full_nll": fit.evaluate(known.test, draws=full)["nll"] if known.test else None,
    }


def regression_network(known: Problem, size: int, key: int) -> Record:
    """Test NLL (nats, in the units of the original values) against that of chains on all rows."""
    assert known.test is not None
    fit, record = timed_fit(known, size, key)
    full = truth(known)
    chains = len(full.flat) // 2
    halves = [held_out_nll(full, known.test, part) for part in (slice(0, chains), slice(chains, None))]
    nll, full_nll = fit.evaluate(known.test)["nll"], held_out_nll(full, known.test, slice(None))
    return record | {
        "nll": nll + np.log(known.unit),
        "full_nll": full_nll + np.log(known.unit),
        "nll_gap": nll - full_nll,
        "nll_floor": abs(halves[0] - halves[1]),
    }


def held_out_nll(draws: cvi.Draws, test: cvi.Dataset, some: slice) -> float:
    """NLL of some of the chains."""
    flat = jnp.asarray(draws.flat[some].reshape(-1, draws.flat.shape[-1]))
    return scores(draws.model, flat, jnp.full(len(flat), 1.0 / len(flat)), draws.model.check(test))["nll"]


# Regressions by groups


def groups(known: Problem, size: int, key: int) -> Record:
    """Moments of every parameter, the certificate, and the time, against NUTS on all rows."""
    fit, record = timed_fit(known, size, key)
    began, processor = time.perf_counter(), time.process_time()
    draws = cvi.sample(fit, num_samples=SAMPLES, num_warmup=WARMUP, progress=False)
    record["chain_seconds"] = time.perf_counter() - began
    record["chain_cpu_seconds"] = time.process_time() - processor
    certificate = cvi.diagnose(fit, known.data)
    corrected = cvi.correct(draws, known.data)
    full = truth(known)
    right = moments_of(full) if known.exact is None else known.exact()
    found = errors(draws, right)
    fixed = errors(corrected, right)
    noise = monte_carlo_error(draws) + (monte_carlo_error(full) if known.exact is None else 0.0)
    about = full.about
    # As many transitions on all rows as on the coreset.
    share = (WARMUP + SAMPLES) / about["transitions"]
    times = {f"full_{name}": share * about[name] for name in ("seconds", "cpu_seconds")}
    spent = float(str(record["fit_cpu_seconds"])) + float(str(record["chain_cpu_seconds"]))
    return record | {
        **found,
        "monte_carlo_error": float(np.sqrt(noise)),
        "corrected_mean": fixed["mean"],
        "corrected_ess": corrected.about["ess"],
        "verdict": certificate.verdict,
        "verdict_kl": certificate.posterior["kl"],
        "verdict_right": verdict_is_right(certificate.verdict, found, fixed),
        "residual_kl": 0.5 * float(np.var(data_log_ratios(draws, known.model.check(known.data))[1])),
        "r_hat": draws.mixing()["r_hat"],
        **times,
        "share_of_time": spent / times["full_cpu_seconds"],
        "full_r_hat": about["r_hat"],
    }


def moments_of(draws: cvi.Draws) -> Moments:
    """Mean and deviation of every site, in the user's own coordinates."""
    weights = draws.weights
    found = {}
    for name, values in draws.named().items():
        values = np.asarray(values, np.float64)
        mean = np.tensordot(weights, values, axes=2)
        found[name] = (mean, np.sqrt(np.tensordot(weights, (values - mean) ** 2, axes=2)))
    return found


def errors(draws: cvi.Draws, right: Moments) -> dict[str, float | str]:
    """Largest errors of means, in true deviations, and of deviations, in parts of them; and where."""
    found = moments_of(draws)
    means = {name: np.abs(found[name][0] - right[name][0]) / right[name][1] for name in found}
    deviations = {name: np.abs(found[name][1] / right[name][1] - 1.0) for name in found}
    worst = {}
    for label, values in (("mean", means), ("deviation", deviations)):
        site = max(values, key=lambda name, values=values: float(np.max(values[name])))
        worst |= {label: float(np.max(values[site])), f"{label}_site": site}
    return worst


def monte_carlo_error(draws: cvi.Draws) -> float:
    """The variance, in true ones, that the mean of the slowest scalar has; over all named scalars."""
    columns = [np.reshape(one, (*one.shape[:2], -1)) for one in draws.named().values()]
    return 1.0 / float(np.min(chain_measures(np.concatenate(columns, axis=-1))[1]))


def verdict_is_right(verdict: str, found: dict, fixed: dict) -> bool:
    """Whether the true errors are as small, or as large, as the verdict says."""
    good = found["mean"] <= TRUSTED_MEAN and found["deviation"] <= TRUSTED_DEVIATION
    if verdict == "correct":
        return fixed["mean"] <= TRUSTED_MEAN
    return good if verdict == "trust" else not good
