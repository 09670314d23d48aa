"""The part of `docs/performance.md` that compares constructions."""

from benchmarks.tables import fixed, grouped, spread, table


def constructions(result: dict) -> list[str]:
    """Both gaps side by side: ours on our split, the paper's on theirs."""
    paper = {(row["data"], row["method"], row["size"]): row for row in result["paper"]}
    lines = [
        "## All constructions, logistic regression, everything default",
        "",
        "Three keys, mean ± standard error. A gap is the distance to full-data VI on the same split, so that",
        "ours and the paper's (its Tables 1 and 2, other splits) can be compared. KL is that of the Laplace",
        "posterior given the coreset to the one given all rows, ESS and k-hat of r against the coreset",
        "posterior with S = 1000, seconds without compilation.",
    ]
    for (data,), rows in grouped(result["rows"], "data"):
        full = [row for row in result["full"] if row["data"] == data]
        body = []
        for (method, size), group in grouped(rows, "method", "size"):
            theirs = paper.get((data, method, size))
            body.append(
                [
                    method,
                    str(size),
                    fixed([100 * row["accuracy"] for row in group], 1),
                    fixed([row["nll"] for row in group], 4),
                    fixed([row["nll_gap"] for row in group], 4),
                    "–" if theirs is None else f"{theirs['nll_gap']:.3f}",
                    fixed([100 * row["accuracy_gap"] for row in group], 1),
                    "–" if theirs is None else f"{100 * theirs['accuracy_gap']:.1f}",
                    spread([row["kl"] for row in group]),
                    fixed([row["ess"] for row in group], 2),
                    fixed([row["khat"] for row in group], 2),
                    fixed([row["seconds"] for row in group], 1),
                ]
            )
        header = ["method", "M", "accuracy, %", "NLL", "NLL gap", "paper's", "accuracy gap, %", "paper's"]
        header += ["KL, nats", "ESS", "k-hat", "s"]
        lines += ["", f"### {data}", "", *table(header, body), ""]
        lines.append(
            f"Full-data VI: accuracy {spread([100 * row['accuracy'] for row in full])} %, "
            f"NLL {spread([row['nll'] for row in full])}, KL of r to the Laplace posterior "
            f"{spread([row['r_kl'] for row in full])}, ESS {spread([row['ess'] for row in full])}, "
            f"{spread([row['seconds'] for row in full])} s."
        )
    return lines


def paper_settings(rows: list[dict]) -> list[str]:
    body = [
        [
            row["method"],
            f"{row['total_seconds']:.1f}",
            f"{row['seconds']:.1f}",
            str(row["points"]),
            f"{row['nll']:.4f}",
        ]
        for row in rows
    ]
    return [
        "## 100 additions on adult",
        "",
        "*Paper's settings*: 200 weight steps of Adam an addition, 50 inner steps, 32 draws, batches and",
        "candidates of 256 rows, mean-field.",
        "",
        *table(["method", "seconds in all", "without compilation", "points", "test NLL"], body),
    ]


def early_stopping(rows: list[dict]) -> list[str]:
    body = [
        [data, str(size), *(spread([row["nll_gap"] for row in part]) for _, part in grouped(group, "steps"))]
        for (data, size), group in grouped(rows, "data", "size")
    ]
    return [
        "### Why the paper's Subset Laplace is sometimes better",
        "",
        "The paper stops after 500 Adam steps of 0.01. That is before the mode, and the prior's mean is",
        "often a better guess than the mode of a few rows. NLL gap of a diagonal Laplace approximation on",
        "random rows weighing N/M, ten keys, mean ± standard error:",
        "",
        *table(["data", "M", "500 steps", "20,000 steps"], body),
    ]


def continual(rows: list[dict]) -> list[str]:
    body = [
        [
            replay,
            str(stage),
            spread([100 * row["full_accuracy"] for row in group]),
            spread([100 * row["accuracy"] for row in group]),
            f"{max(100 * (row['full_accuracy'] - row['accuracy']) for row in group):.1f}",
            spread([100 * row["uncorrected_accuracy"] for row in group]),
            spread([100 * row["forgetting"] for row in group]),
            f"{max(row['seconds'] for row in group):.0f}",
        ]
        for (replay, stage), group in grouped(rows, "replay", "stage")
    ]
    header = [
        "stand-in",
        "stage",
        "all rows, %",
        "coreset, %",
        "largest gap",
        "without importance weights, %",
    ]
    header += ["forgetting, %", "slowest, s"]
    return [
        "## Continual learning, four classes, budgets 10, 15, 20",
        "",
        "Accuracy on all classes seen so far, three keys, against a network that sees all rows so far.",
        "Forgetting is the largest over tasks; seconds with compilation.",
        "",
        *table(header, body),
    ]


def pruning(rows: list[dict]) -> list[str]:
    body = [
        [
            init,
            str(size),
            spread([100 * row["full_accuracy"] for row in group]),
            spread([100 * row["accuracy"] for row in group]),
            f"{max(100 * (row['full_accuracy'] - row['accuracy']) for row in group):.1f}",
            spread([100 * row["uncorrected_accuracy"] for row in group]),
            f"{max(row['seconds'] for row in group):.1f}",
        ]
        for (init, size), group in grouped(rows, "init", "size")
    ]
    header = [
        "start",
        "M",
        "full-data VI, %",
        "pruned, %",
        "largest gap",
        "without importance weights, %",
        "slowest, s",
    ]
    return [
        "## Pruning, half-moon, 250 to 100 to 20 rows",
        "",
        "`BBSparseVI(250, init=...)`; *subset* draws points by their weights as Alg. 5 does, *spread* moves",
        "what was drawn to the centres of clusters.",
        "",
        *table(header, body),
    ]


def unit_weights(rows: list[dict]) -> list[str]:
    body = [
        [
            row["data"],
            str(row["size"]),
            f"{row['length']:.2f}",
            f"{row['nll']:.4f}",
            *(
                cell
                for which in ("mode", "mean")
                for cell in (
                    f"{row[f'longest_{which}']:.2f}",
                    f"{row[f'nll_{which}']:.4f}",
                    f"{100.0 * (row[f'nll_{which}'] / row['nll'] - 1.0):+.1f} %",
                )
            ),
        ]
        for row in rows
    ]
    header = ["", "M", "mode of all rows", "its NLL"]
    header += ["longest mode", "best NLL", "gap", "longest mean", "best NLL", "gap"]
    return [
        "## What points of weight one can reach",
        "",
        "Given M points of weight one, wherever they are, the mode is no longer than sqrt(0.2785 M) and the",
        "posterior mean no longer than sqrt(d + 0.2785 M) ([why](design.md#what-unit-weights-cannot-do)).",
        "The best theta of these lengths, fitted to the test rows themselves, against the mode given all",
        "training rows:",
        "",
        *table(header, body),
    ]
