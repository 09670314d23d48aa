"""`coresetvi plot`: a picture of a saved fit."""

# Typer reads its options from the annotations; as text they need no typer.
from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from .._programs import keep_programs
from ..data.files import check_file
from ..errors import InputError
from ..fitting.result import load
from ..plots import figures
from ..plots.fit_overview import overview
from .choices import beside
from .console import print_json, reporting, say

with contextlib.suppress(ImportError):
    import typer

    from .options import FitDirectory, Json

from .summary import labelled_rows

PICTURES = (".png", ".pdf", ".svg")


def plot(
    fitted: FitDirectory,
    out: Annotated[
        Path | None,
        typer.Option(help="The picture (.png, .pdf or .svg); by default beside DIR and named after it."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="A table whose rows are drawn behind the map of a fit with two inputs."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a fitted coreset: its loss, its weights, and a map of its entropy or pairs of its parameters.

    \b
    Examples:
      coresetvi plot fitted
      coresetvi plot moons --data moons.csv --out moons.pdf --overwrite
    """
    with reporting(as_json):
        out = beside(fitted, ".png") if out is None else out
        if out.suffix.lower() not in PICTURES:
            raise InputError(f"--out {out} is no picture; use a name that ends in {', '.join(PICTURES)}")
        check_file(out, overwrite=overwrite)
        keep_programs()
        fit = load(fitted)
        rows = None if data is None else labelled_rows(fit, data)
        figures.save_figure(overview(fit, data=rows), out)
    if as_json:
        print_json({"out": str(out)})
    else:
        say(f"Wrote {out}.")
