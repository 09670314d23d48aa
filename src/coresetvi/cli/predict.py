"""`coresetvi predict`: predictions for the rows of a table."""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from ..data import files as tables
from ..data.labels import some
from ..errors import InputError
from ..fitting.compilation import enable_compilation_cache
from ..fitting.result import load
from .console import (
    complain,
    print_json,
    reporting,
    say,
)
from .summary import prediction_columns, score

with contextlib.suppress(ImportError):
    import typer

    from .options import (
        FitDirectory,
        Json,
    )


def predict(
    fitted: FitDirectory,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Table that has the columns of the fit.")],
    out: Annotated[Path, typer.Option(help="Predictions: .csv, .tsv (.gz) or .parquet.")],
    target: Annotated[str | None, typer.Option(help="Column with the truth, to score against.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")] = False,
    as_json: Json = False,
) -> None:
    """Predict new rows with a fitted coreset. If the truth is among their columns, they are scored too.

    \b
    Examples:
      coresetvi predict fitted new.csv --out predictions.csv
      coresetvi predict fitted test.parquet --target income --out predictions.parquet --json
    """
    with reporting(as_json):
        tables.check_output(out, overwrite=overwrite)
        if out.exists() and data.exists() and out.samefile(data):
            raise InputError(f"{out} is the table to predict; choose another name for the predictions")
        enable_compilation_cache()
        fit = load(fitted)
        table = tables.open_table(data)
        truth = target or ("y" if table.suffix == ".npz" else fit.coreset.target)
        if target is not None and target not in table.columns:
            listed = some(list(table.columns))
            raise InputError(f"--target {target!r} is not a column of {data}; it has {listed}")
        rows = tables.rows_for(table, fit.coreset.columns, fit.coreset.dim, truth)
        columns = prediction_columns(fit, rows)
        scores, notes = None, []
        if truth in table.columns:
            try:
                scores = score(fit, table, rows, truth)
            except InputError as error:
                # Labels that nobody asked about must not cost anyone their predictions.
                if target is not None:
                    raise
                notes.append(f"not scored, because {error}")
        tables.write_table(out, columns, overwrite=overwrite)
    summary = {"rows": len(rows), "out": str(out), "columns": list(columns)}
    summary |= {"target": truth if scores else None, "scores": scores, "notes": notes}
    if as_json:
        print_json(summary)
    else:
        say(f"Wrote {len(rows):,} predictions to {out}.")
        for name, value in (scores or {}).items():
            say(f"{name} {value:.4f}")
    for note in notes:
        complain(note, word="note")
