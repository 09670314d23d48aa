"""`coresetvi diagnose`: can a saved fit be trusted?"""

# Typer reads its options from the annotations; as text they need no typer.
from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from .._checks import check_choice
from .._programs import keep_programs
from ..fitting.result import load
from ..posterior.diagnosis import diagnose as certify
from ..posterior.sampling import SAMPLERS
from ..posterior.sampling import sample as draw
from .console import print_json, reporting, say, show_table

with contextlib.suppress(ImportError):
    import typer

    from .options import Drop, FitDirectory, Json, Memory, RowWeights, Scheduler, Seed

from .row_tables import TableSource
from .summary import labelled_table


def diagnose(
    fitted: FitDirectory,
    data: Annotated[
        list[Path],
        typer.Argument(metavar="DATA", help="The table that was fitted: a file, a folder, or several files."),
    ],
    held_out: Annotated[
        Path | None, typer.Option(help="A table of rows that were not fitted, to score on.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="The folder of another saved fit, to compare this one with.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(SAMPLERS),
            help="Judge draws of this sampler; by default draws of the fitted approximation.",
        ),
    ] = None,
    weights: RowWeights = None,
    drop: Drop = None,
    samples: Annotated[
        int, typer.Option(min=100, help="The number of draws to weigh against the data.")
    ] = 1000,
    seed: Seed = 0,
    memory: Memory = "1GB",
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Say whether a fitted coreset can be trusted. Its posterior is weighed against that of all rows.

    \b
    Examples:
      coresetvi diagnose fitted people.csv
      coresetvi diagnose fitted train.parquet --held-out test.parquet --method nuts
      coresetvi diagnose small people.csv --reference large --json
    """
    with reporting(as_json):
        if method is not None:
            check_choice("method", method, SAMPLERS)
        keep_programs()
        fit = load(fitted)
        other = None if reference is None else load(reference)
        rows = labelled_table(fit, TableSource(tuple(data), memory, scheduler), weights, drop)
        test = None
        if held_out is not None:
            test = labelled_table(fit, TableSource((held_out,), memory, scheduler), weights, drop)
        draws = None if method is None else draw(fit, method=method, key=seed)
        certificate = certify(fit, rows, other, draws=draws, held_out=test, num_samples=samples, key=seed)
    if as_json:
        print_json(certificate.to_dict())
    else:
        say(certificate.sentence)
        show_table(["", "", ""], certificate.lines())
