"""`coresetvi predict`: predictions for the rows of a table."""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from ..data import files
from ..errors import InputError
from ..fitting.compilation import enable_compilation_cache
from ..fitting.result import load
from .choices import name_of
from .console import (
    complain,
    in_flags,
    print_json,
    reporting,
    say,
)
from .summary import class_labels, prediction_columns, rows_for_fit

with contextlib.suppress(ImportError):
    import typer

    from .options import FitDirectory, Json


def predict(
    fitted: FitDirectory,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A table of new rows with the columns of the fitted one.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write (.csv, .tsv, also .gz, or .parquet); by default named after DATA."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The column with the true values, to score the predictions against.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")] = False,
    as_json: Json = False,
) -> None:
    """Predict new rows with a fitted coreset. If the truth is among their columns, they are scored too.

    \b
    Examples:
      coresetvi predict people new.csv
      coresetvi predict fitted test.parquet --target income --out predictions.parquet --json
    """
    with reporting(as_json):
        out = default_file(data) if out is None else out
        files.check_output(out, overwrite=overwrite)
        if out.exists() and data.exists() and out.samefile(data):
            raise InputError(f"{out} is the table to predict; choose another name for the predictions")
        enable_compilation_cache()
        fit = load(fitted)
        rows = rows_for_fit(fit, data, target=target, need_target=target is not None)
        columns = prediction_columns(fit, rows.x)
        scores, notes = None, []
        if rows.target is not None:
            try:
                scores = fit.evaluate(rows.dataset(class_labels(fit)))
            except InputError as error:
                # Labels that nobody asked about must not cost anyone their predictions.
                if target is not None:
                    raise
                notes.append(f"not scored, because {in_flags(str(error))}")
        files.write_table(out, columns, overwrite=overwrite)
    summary = {"rows": len(rows.x), "out": str(out), "columns": list(columns)}
    summary |= {"target": rows.target if scores else None, "scores": scores, "notes": notes}
    if as_json:
        print_json(summary)
    else:
        say(f"Wrote {len(rows.x):,} predictions to {out}.")
        for name, value in (scores or {}).items():
            say(f"{name} {value:.4f}")
    for note in notes:
        complain(note, word="note")


def default_file(data: Path) -> Path:
    """Where predictions go by default: into the folder where the user is, in the format of the table.

    >>> default_file(Path("data/new.csv")).as_posix(), default_file(Path("new.npz")).as_posix()
    ('new-predictions.csv', 'new-predictions.csv')
    """
    ending = next((ending for ending in files.WRITABLE if data.name.lower().endswith(ending)), ".csv")
    return Path(f"{name_of(data)}-predictions{ending}")
