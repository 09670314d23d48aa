"""Sentences on the cells of a table that differ from the paper's by more than chance."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .experiment import OURS, Experiment
from .result_table import PERCENT, SCORES, plain_markdown

# Differences of so many standard errors are spoken of.
WORTH_TELLING = 2.0
LOWER_IS_BETTER = ("nll", "rmse", "brier", "ece", "kl")


def sentences(experiment: Experiment, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """One for every cell of ours that differs from the paper's by more than two standard errors.

    Where the gap to full-data inference is no larger than chance either way, the data are what differs: the
    paper's splits are not known, and full-data inference does not give the paper's number on ours.
    """
    told = []
    for row in rows.get(OURS, ()):
        ours, paper = row["fresh"].get(experiment.metric), row["paper"]
        if ours is None or ours["mean"] is None or paper["mean"] is None:
            continue
        error = math.hypot(ours["standard_error"] or 0.0, paper["standard_error"] or 0.0)
        difference = ours["mean"] - paper["mean"]
        if abs(difference) <= WORTH_TELLING * error:
            continue
        told.append(sentence(experiment, row, difference, error))
    return told


def sentence(experiment: Experiment, row: Mapping[str, Any], difference: float, error: float) -> str:
    """What is different in one cell, and what of it the data can account for."""
    label, digits = SCORES[experiment.metric]
    unit = " percentage points" if experiment.metric in PERCENT else ""
    better = (difference < 0) == (experiment.metric in LOWER_IS_BETTER)
    size = "all rows" if row["size"] is None else f"M = {row['size']}"
    start = (
        f"{row['problem']}, {plain_markdown(row['method'])}, {size}: {label} "
        f"{abs(difference):{digits}}{unit} {'better' if better else 'worse'} than the paper's"
    )
    if row["gap"] is None or row["paper_gap"] is None:
        return f"{start}."
    change = row["gap"] - row["paper_gap"]
    if abs(change) <= max(WORTH_TELLING * error, 10.0 ** -int(digits[1])):
        return f"{start}; the gap to full-data inference is the same, so it is the data that differ."
    nearer = abs(row["gap"]) < abs(row["paper_gap"])
    words = "closer to" if nearer else "further from"
    return (
        f"{start}; {words} full-data inference as well (gap {row['gap']:+{digits}} against "
        f"{row['paper_gap']:+{digits}})."
    )
