"""`coresetvi predict`: predictions for the rows of a table."""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from .._programs import keep_programs
from ..data import files
from ..data.rows import Rows
from ..errors import InputError
from ..fitting.result import Fit, load
from .choices import name_of
from .console import (
    complain,
    in_flags,
    print_json,
    reporting,
    say,
)
from .row_tables import TableSource, in_classes, rows_like
from .summary import class_labels, prediction_columns, rows_for_fit
from .table_writer import writing_table

with contextlib.suppress(ImportError):
    import typer

    from .options import FitDirectory, Json, Memory, Scheduler


def predict(
    fitted: FitDirectory,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA",
            help="A table of new rows with the columns of the fitted one: a file, a folder, or files.",
        ),
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
    memory: Memory = "1GB",
    scheduler: Scheduler = None,
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
        source = TableSource(tuple(data), memory, scheduler)
        out = default_file(source.name) if out is None else out
        files.check_output(out, overwrite=overwrite)
        places = source.paths if source.is_plain else source.files
        if out.exists() and any(out.samefile(path) for path in places if path.exists()):
            raise InputError(f"{out} is the table to predict; choose another name for the predictions")
        keep_programs()
        fit = load(fitted)
        work = predict_plain if source.is_plain else predict_blocks
        done = work(fit, source, target, out, overwrite)
    scores, notes = done.scores, done.notes
    summary = {"rows": done.rows, "out": str(out), "columns": done.columns}
    summary |= {"target": done.target if scores else None, "scores": scores, "notes": notes}
    if as_json:
        print_json(summary)
    else:
        say(f"Wrote {done.rows:,} predictions to {out}.")
        for name, value in (scores or {}).items():
            say(f"{name} {value:.4f}")
    for note in notes:
        complain(note, word="note")


class Predicted(NamedTuple):
    """What was written, and how good it is if the truth is known."""

    rows: int
    columns: list[str]
    target: str | None
    scores: dict[str, float] | None
    notes: list[str]


def predict_plain(fit: Fit, source: TableSource, target: str | None, out: Path, overwrite: bool) -> Predicted:
    """Predictions for a table in memory."""
    rows = rows_for_fit(fit, source.name, target=target, need_target=target is not None)
    columns = prediction_columns(fit, rows.x)
    found = None if rows.target is None else lambda: rows.dataset(class_labels(fit))
    scores, notes = scores_of(fit, found, target)
    files.write_table(out, columns, overwrite=overwrite)
    return Predicted(len(rows.x), list(columns), rows.target, scores, notes)


def predict_blocks(
    fit: Fit, source: TableSource, target: str | None, out: Path, overwrite: bool
) -> Predicted:
    """Predictions for a table of any size, block by block."""
    known = target or fit.coreset.target
    if target is None and known not in source.header():
        known = None
    labels = rows_like(source, fit.coreset, known, None, ()) if known is not None else None
    found = None
    if known is not None and labels is not None:
        found = partial(in_classes, source, labels, known, class_labels(fit))
    scores, notes = scores_of(fit, found, target)
    # Without the target, which may be missing in rows that are only to be predicted. As many columns as the
    # fit has no names for are told from it by position.
    left_out = () if known is None else (known,)
    count, names = 0, []
    with writing_table(out, overwrite=overwrite) as write:
        for batch in rows_like(source, fit.coreset, None, None, left_out).batches():
            columns = prediction_columns(fit, np.asarray(batch.x))
            write(columns)
            count, names = count + len(batch), list(columns)
    return Predicted(count, names, known, scores, notes)


def scores_of(
    fit: Fit, labelled: Callable[[], Rows] | None, target: str | None
) -> tuple[dict[str, float] | None, list[str]]:
    """Scores of a fit on rows whose labels are known, and what is to be said if they cannot be used."""
    if labelled is None:
        return None, []
    try:
        return fit.evaluate(labelled()), []
    except InputError as error:
        # Labels that nobody asked about must not cost anyone their predictions.
        if target is not None:
            raise
        return None, [f"not scored, because {in_flags(str(error))}"]


def default_file(data: Path) -> Path:
    """Where predictions go by default: into the folder where the user is, in the format of the table.

    >>> default_file(Path("data/new.csv")).as_posix(), default_file(Path("new.npz")).as_posix()
    ('new-predictions.csv', 'new-predictions.csv')
    """
    ending = next((ending for ending in files.WRITABLE if data.name.lower().endswith(ending)), ".csv")
    return Path(f"{name_of(data)}-predictions{ending}")
