"""`coresetvi inspect`: what a saved fit holds."""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
from typing import Annotated

import numpy as np

from .._programs import keep_programs
from ..fitting.result import load
from .console import (
    in_flags,
    print_json,
    reporting,
    say,
    show_table,
)
from .summary import HeavyPoint, fit_lines, fit_summary, heaviest, origin_lines

with contextlib.suppress(ImportError):
    import typer

    from .options import (
        FitDirectory,
        Json,
    )


LINE = 80  # characters, on a terminal


def inspect(
    fitted: FitDirectory,
    points: Annotated[
        int, typer.Option(min=0, help="The number of points to show, the heaviest first.")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show what a fitted coreset holds: its model, quality, origin and heaviest points.

    \b
    Examples:
      coresetvi inspect fitted
      coresetvi inspect fitted --points 3 --json
    """
    with reporting(as_json):
        keep_programs()
        fit = load(fitted)
        summary, shown = fit_summary(fit), heaviest(fit, points)
    if as_json:
        print_json({**summary, "about": fit.about, "points": shown})
        return
    say(in_flags(fit.explanation))
    show_table(None, [*fit_lines(summary), *origin_lines(summary, fit.about)])
    if shown:
        say("Its heaviest points:")
        show_points(shown)


def show_points(points: list[HeavyPoint]) -> None:
    """As many columns as fit into a line; `--json` has them all."""
    names, room = list(points[0]["x"]), LINE - 24
    ends = np.cumsum([max(len(name), 9) + 2 for name in names])
    shown = names[: max(1, int(np.sum(ends <= room)))]
    rows = [
        [
            f"{point['weight']:,.4g}",
            str(point.get("target", "")),
            *(f"{point['x'][name]:.4g}" for name in shown),
        ]
        for point in points
    ]
    show_table(["weight", "target", *shown], rows)
    if len(names) > len(shown):
        say(f"{len(names) - len(shown)} more columns are not shown (--json has them all).")
