"""`docs/performance.md` from `results.json`."""

from pathlib import Path

from benchmarks import construction_report as more
from benchmarks import image_report, waiting_report
from benchmarks import posterior_report as draws
from benchmarks.tables import grouped, spread, table


def write_report(results: dict, path: Path) -> None:
    """Write the page; parts that were never run are left out."""
    writers = {
        "waiting": waiting_report.waiting,
        "speed": speed,
        "mean_field": mean_field,
        "exact": exact,
        "halfmoon": halfmoon,
        "constructions": more.constructions,
        "early_stopping": more.early_stopping,
        "additions": more.paper_settings,
        "continual": more.continual,
        "pruning": more.pruning,
        "nuts": draws.nuts,
        "million": draws.million,
        "network_nuts": draws.network,
        "verdicts": draws.verdicts,
        "fresh_verdicts": draws.fresh_verdicts,
        "images": image_report.images,
        "unit_weights": more.unit_weights,
    }
    lines = [
        "# Performance",
        "",
        "Written by `make bench` (`python -m benchmarks [part …]`) from `benchmarks/results.json`. Times are",
        "of one machine and one run, with its load beside them; step times are medians over chunks of steps.",
    ]
    for name, write in writers.items():
        if name in results:
            part = results[name]
            made = part["made_with"]
            lines += ["", *write(part["result"]), ""]
            lines.append(
                f"`python -m benchmarks {name}`: {part['minutes']:.1f} min, load {part['load_before']:.1f} "
                f"before and {part['load_after']:.1f} after, {made['cores']} cores, Python {made['python']}, "
                f"jax {made['jax']}, {made['timestamp'][:10]}."
            )
    path.write_text("\n".join(lines) + "\n")


def speed(result: dict) -> list[str]:
    body = [
        [
            str(row["dim"]),
            str(row["inner_steps"]),
            f"{row['milliseconds_a_step']:.2f}",
            f"{row['seconds_to_compile']:.1f}",
            f"{row['temporary_megabytes']:.2f}",
        ]
        for row in result["rows"]
    ]
    cold = result["cold_start"]
    return [
        "## Speed of the paper's engine",
        "",
        "Unrolled BB PSVI, logistic regression, M = 100, S = 10, batch 256, mean-field.",
        "",
        *table(["D", "inner steps", "ms a step", "compile and first chunk, s", "temporaries, MB"], body),
        "",
        f"500 inner steps against 100: {result['time_ratio_500']:.2f} × the time, "
        f"{result['memory_ratio_500']:.2f} × the memory for temporaries and "
        f"{result['peak_ratio_500']:.2f} × the peak memory of the process. A new process takes "
        f"{cold['empty_cache_seconds']:.1f} s from its start to the first step with an empty compilation "
        f"cache and {cold['warm_cache_seconds']:.1f} s with a warm one (imports and tracing included).",
    ]


def mean_field(rows: list[dict]) -> list[str]:
    body = [
        [
            name,
            str(size),
            spread([row["nll"] for row in group]),
            f"{group[0]['full_nll']:.4f}",
            f"{group[0]['full_r_kl']:.2f}",
            f"{max(row['nll_gap_percent'] for row in group):.2f}",
            spread([row["kl_to_full_r"] for row in group]),
            f"{max(row['seconds'] for row in group):.1f}",
        ]
        for (name, size), group in grouped(rows, "data", "size")
    ]
    header = [
        "data",
        "M",
        "test NLL",
        "full-data VI",
        "its KL",
        "largest gap, %",
        "KL(coreset r ‖ full r)",
        "slowest, s",
    ]
    return [
        "## Mean-field r, everything else default",
        "",
        "Three keys, mean ± standard error; seconds without compilation. `its KL` is that of mean-field VI",
        "on all the data to the Laplace posterior: what the family itself costs.",
        "",
        *table(header, body),
    ]


def exact(rows: list[dict]) -> list[str]:
    body = [
        [
            name,
            str(size),
            spread([row["kl"] for row in group]),
            f"{max(row['kl'] for row in group):.2g}",
            spread([row["estimated_kl"] for row in group]),
            spread([row["ess"] for row in group]),
            f"{max(row['seconds'] for row in group):.1f}",
        ]
        for (name, size), group in grouped(rows, "data", "size")
    ]
    header = [
        "data",
        "M",
        "Gaussian KL, nats",
        "worst",
        "the fit's own estimate",
        "ESS (S = 1000)",
        "slowest, s",
    ]
    return [
        "## Exact inference on the coreset, everything default",
        "",
        "KL of the Laplace posterior given the coreset to that given all the data (float64, its own code),",
        "three keys, mean ± standard error; seconds without compilation.",
        "",
        *table(header, body),
    ]


def halfmoon(rows: list[dict]) -> list[str]:
    body = [
        [
            name,
            spread([100.0 * row["accuracy"] for row in group]),
            f"{min(100.0 * row['accuracy'] for row in group):.1f}",
            spread([row["nll"] for row in group]),
            f"{max(row['seconds'] for row in group):.1f}",
        ]
        for (name,), group in grouped(rows, "method")
    ]
    return [
        "## Half-moon, Bayesian network with 20 hidden units, M = 20",
        "",
        "Everything default, three keys, mean ± standard error; seconds without compilation.",
        "",
        *table(["method", "test accuracy, %", "worst", "test NLL", "slowest, s"], body),
    ]
