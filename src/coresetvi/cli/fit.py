"""`coresetvi fit`: a table in, a saved coreset and its posterior out."""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated

import numpy as np

from .._checks import check_choice
from .._programs import keep_programs
from ..constructions.by_name import METHOD_LIST, METHODS, build_construction
from ..constructions.defaults import default_size
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from ..fitting import artefact
from ..fitting.loop import fit as fit_coreset
from .choices import name_of
from .console import (
    FAILED,
    INTERRUPTED,
    complain,
    in_flags,
    leave,
    print_json,
    reporting,
    say,
    show_table,
)
from .shared import TaskOptions, takes_task
from .summary import advice, fit_lines, fit_summary

with contextlib.suppress(ImportError):
    import typer

    from .options import Json

    MethodName = Annotated[
        str, typer.Option(metavar="NAME", help=f"The method that makes the coreset. {METHOD_LIST}.")
    ]


EXIT_CODES = {"non_finite": FAILED, "interrupted": INTERRUPTED}


@takes_task
def fit(
    *,
    out: Annotated[
        Path | None, typer.Option(help="The folder to save the fit in; by default it is named after DATA.")
    ] = None,
    task: TaskOptions,
    method: MethodName = "bb-psvi",
    size: Annotated[
        int | None, typer.Option(min=1, help="The number of points; by default about two per parameter.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A folder that keeps the state of an unfinished fit.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the state that is kept in --checkpoint.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the fit that is in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Compress a table into weighted points. A posterior is fitted to them, and both are saved.

    \b
    Examples:
      coresetvi fit people.csv --target income
      coresetvi fit flowers.parquet --target species --model mlp --hidden 20,20 --out fitted
      coresetvi fit visits.csv --target count --model poisson --size 50 --drop id --out fitted
      coresetvi fit rows/ --target y --memory 4GB --out fitted
    """
    with reporting(as_json):
        task.check()
        check_choice("method", method, METHODS)
        if out is None:
            # The name of a folder of tables is taken, by the folder.
            table = task.source.name
            out = Path(f"{table.name}-fitted" if table.is_dir() else name_of(table))
        check_places(out, checkpoint, resume, overwrite)
        dataset, labels, name, model = task.read()
        if METHODS[method].sized:
            size = size or default_size(model, rows_with_weight(dataset))
        construction = build_construction(method, size, **task.construction_options())
        keep_programs()
        fitted = fit_coreset(
            construction,
            model,
            dataset,
            key=task.seed,
            num_steps=task.steps,
            checkpoint=checkpoint,
            resume=resume,
        )
        names = None if labels.classes is None else list(labels.classes)
        fitted = dataclasses.replace(
            fitted, extra={"classes": names, "data": str(task.source), "seed": task.seed}
        )
        fitted.save(out, overwrite=overwrite)
        summary = fit_summary(fitted)
        notes = advice(fitted, dataset, summary["reliability"])
    failed, explanation = fitted.result in EXIT_CODES, in_flags(fitted.explanation)
    if as_json:
        told = {**summary, "out": str(out), "notes": notes}
        print_json(told | ({"error": explanation} if failed else {}))
    else:
        if task.model == "auto":
            kind = "numbers" if names is None else f"{len(names)} classes"
            say(f"The target {labels.target!r} holds {kind}, so the model is {name} (--model changes it).")
        if not failed:
            say(explanation)
        show_table(None, fit_lines(summary))
        say(f"Saved in {out}. Next: coresetvi predict {out} DATA")
    for note in notes:
        complain(note, word="note")
    if failed:
        complain(explanation)
        leave(EXIT_CODES[fitted.result])


def rows_with_weight(dataset: Rows) -> int:
    """How many rows a coreset can be chosen from; of those that are not in memory, all count."""
    return int(np.count_nonzero(dataset.weights)) if isinstance(dataset, Dataset) else dataset.num_rows


def check_places(out: Path, checkpoint: Path | None, resume: bool, overwrite: bool) -> None:
    """Refuse directories that could not be written after the fit, before it costs any time."""
    artefact.check_target(out, overwrite=overwrite)
    if checkpoint is None:
        if resume:
            raise InputError("--resume needs to know from where; pass --checkpoint DIR")
        return
    one, two = out.resolve(), checkpoint.resolve()
    if one == two or one in two.parents or two in one.parents:
        raise InputError(f"--checkpoint {checkpoint} and --out {out} must be two separate directories")
