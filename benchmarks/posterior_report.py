"""The parts of `docs/performance.md` about draws and certificates."""

from benchmarks.posterior import MEASURED, ROWS
from benchmarks.tables import grouped, spread, table

TRANSITIONS = 2000  # of each chain: 1,000 of warm-up and 1,000 draws


def nuts(rows: list[dict]) -> list[str]:
    body = [
        [
            row["data"],
            str(row["key"]),
            f"{row['mean']:.3f}",
            f"{row['corrected_mean']:.3f}",
            f"{row['standard_error']:.3f}",
            f"{100 * row['deviation']:.1f}",
            f"{row['two_moment_kl']:.4f}",
            f"{row['kl']:.2g}",
            f"{row['khat']:.2f}",
            row["verdict"],
            f"{row['fit_seconds']:.0f} + {row['nuts_seconds']:.0f}",
            f"{row['full_nuts_seconds']:.0f}",
        ]
        for row in rows
    ]
    header = ["data", "key", "mean error, sd", "corrected", "Monte-Carlo error", "sd error, %"]
    header += ["two-moment KL", "KL by weights", "k-hat", "verdict", "fit + NUTS, s", "NUTS on all rows, s"]
    return [
        "## NUTS on a coreset of 100 points against NUTS on all rows",
        "",
        "Defaults, 4 × 2,000 draws each. Errors are the largest over the parameters, in posterior standard",
        "deviations; the Monte-Carlo error is one standard error of the difference of two means.",
        "*corrected* is after `coresetvi.correct`. The first key of each data set compiles.",
        "",
        *table(header, body),
    ]


def million(result: dict) -> list[str]:
    core, rows = result["coreset"], result["rows"]
    whole = rows["seconds"] * TRANSITIONS / rows["transitions"]
    fewer = whole * core["mean_steps"] / rows["mean_steps"]
    ours = core["fit_seconds"] + core["nuts_seconds"]
    megabytes = [core[name] / 1e6 for name in ("peak_bytes", "data_bytes")]
    return [
        f"## A million rows: {ROWS:,} × 10, logistic regression, M = 100",
        "",
        f"Fit {core['fit_seconds']:.1f} s and 4 chains of 1,000 + 1,000 transitions on it "
        f"{core['nuts_seconds']:.1f} s, compilation included: {ours:.1f} s. NUTS on all rows with the same "
        f"settings: {rows['transitions']} transitions of 4 chains took {rows['seconds']:.1f} s (without "
        f"compilation, {rows['mean_steps']:.1f} leapfrog steps a draw after only {MEASURED} of warm-up; "
        f"{core['mean_steps']:.1f} on the coreset), so {TRANSITIONS:,} would take {whole:.0f} s: "
        f"{whole / ours:.0f} × as long, or {fewer / ours:.0f} × if they took as few leapfrog steps as on the "
        "coreset.",
        "",
        f"Peak memory of the process that fits and draws: {megabytes[0]:.0f} MB, of which the data are "
        f"{megabytes[1]:.0f}. KL to the full posterior {core['kl']:.2g} nats, k-hat {core['khat']:.2f} "
        f"(`diagnose`: {core['diagnose_seconds']:.0f} s).",
    ]


def network(rows: list[dict]) -> list[str]:
    small = [row for row in rows if row["key"] is not None]
    body = [
        [
            name,
            spread([row["entropy_difference"] for row in group]),
            f"{max(row['seconds'] for row in group):.1f}",
            f"{max(row['r_hat'] for row in group):.2f}",
            f"{100 * max(row['divergent'] for row in group):.2f}",
        ]
        for (name,), group in grouped(small, "points")
    ]
    full = next(row for row in rows if row["key"] is None)
    return [
        "## NUTS on 16 points of the half-moons, a network with 20 hidden units",
        "",
        "4 × 2,500 draws after 1,000 of warm-up, three keys. The entropy difference is the mean distance in",
        "nats of the predictive entropy to that of NUTS on all rows (4 × 500 draws after 500), over the area",
        "of the picture.",
        "",
        "![Predictive entropy of NUTS on all points, 16 learned and 16 random ones](halfmoon_nuts.png)",
        "",
        *table(["points", "entropy difference", "slowest NUTS, s", "largest R-hat", "divergent, %"], body),
        "",
        f"NUTS on all rows: {full['seconds']:.0f} s, R-hat {full['r_hat']:.2f}. Hidden units can be swapped,",
        "so chains of a network need not agree on single weights.",
    ]


def verdicts(rows: list[dict]) -> list[str]:
    right = sum(row["verdict"] == row["true_verdict"] for row in rows)
    body = []
    for (kind, model), group in grouped(rows, "kind", "model"):
        correct = sum(row["verdict"] == row["true_verdict"] for row in group)
        words = ", ".join(sorted({row["true_verdict"] for row in group}))
        body.append([kind, model, words, f"{correct} of {len(group)}"])
    wrong = [row for row in rows if row["verdict"] != row["true_verdict"]]
    lines = [
        f"{row['kind']}, {row['model']}, key {row['key']}: {row['verdict']} instead of {row['true_verdict']} "
        f"(true KL {row['true_kl']:.3g}, of r {row['true_r_kl']:.3g}, from the full posterior "
        f"{row['true_back_kl']:.3g} nats)."
        for row in wrong
    ]
    return [
        f"## Verdicts of the certificate: {right} of {len(rows)} right",
        "",
        "Problems with known answers: linear regressions by closed forms, logistic and Poisson regressions",
        "with two parameters by summation on a grid.",
        "",
        *table(["coreset", "model", "true verdicts", "right"], body),
        *(["", *lines] if lines else []),
    ]


def fresh_verdicts(rows: list[dict]) -> list[str]:
    right = sum(row["verdict"] == row["true_verdict"] for row in rows)
    wrongly = [row for row in rows if row["verdict"] == "trust" and row["true_kl"] > 0.5]
    good = [row for row in rows if row["true_verdict"] == "trust"]
    refused = sum(row["verdict"] != "trust" for row in good)
    body = [
        [
            row["kind"],
            row["model"],
            row["construction"],
            f"{row['true_kl']:.3g}",
            f"{row['kl']:.3g} ± {row['kl_error']:.1g}",
            f"{row['true_r_kl']:.3g}",
            f"{row['r_kl']:.3g}",
            row["true_verdict"],
            row["verdict"],
            "right" if row["verdict"] == row["true_verdict"] else "wrong",
        ]
        for row in rows
    ]
    head = ["posterior", "model", "coreset", "true KL", "KL", "true KL of r", "KL of r", "true verdict"]
    return [
        f"## Verdicts on fresh problems: {right} of {len(rows)} right",
        "",
        "No setting of the certificate was chosen on these. Right is the verdict that the exact KLs ask for:",
        "trust if the KL of the coreset posterior to the full one is at most 0.1, and so is that of r to the",
        "coreset posterior (where draws of that are not kept); of others enlarge if KL(full || coreset",
        "posterior) is above log 1,000 or k-hat of a million exact draws above 0.7; else correct.",
        f"Trusted at a true KL above 0.5: {len(wrongly)}. Good coresets refused: {refused} of {len(good)}.",
        "",
        *table([*head, "verdict", ""], body),
    ]
