"""Markdown tables of numbers over keys."""

import numpy as np


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    return ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *rows]]


def spread(values) -> str:
    """Mean ± standard error over keys."""
    values = np.asarray(values, float)
    return f"{values.mean():.4g} ± {values.std(ddof=1) / np.sqrt(values.size):.1g}"


def fixed(values, digits: int) -> str:
    """Mean ± standard error over keys, with so many digits after the point."""
    values = np.asarray(values, float)
    # Adding zero turns what would be printed as -0.00 into 0.00.
    mean, error = (round(x, digits) + 0.0 for x in (values.mean(), values.std(ddof=1) / np.sqrt(values.size)))
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def grouped(rows: list[dict], *names: str) -> list[tuple[tuple, list[dict]]]:
    """Rows that agree in `names`, in order of first appearance."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.items())
