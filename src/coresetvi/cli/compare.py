"""The command `coresetvi compare`: methods against each other, on rows that none of them has seen.

Exit codes as in `cli.py`; 1 means here that a fit of the grid failed, with its sentence on standard error.
"""

from __future__ import annotations  # see `cli.py`

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from .._checks import check_choice
from .._programs import keep_programs
from ..constructions.by_name import METHOD_LIST, METHODS, takes
from ..data.dataset import Dataset
from ..data.files import write_table
from ..data.split import TEST_SHARE, split_rows
from ..data.tables import read_new_rows
from ..errors import InputError
from ..fitting.progress import Progress
from ..plots import comparison_figure
from ..workflows import comparison as grid
from ..workflows import records
from .choices import name_of, size_list, split_list
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

with contextlib.suppress(ImportError):
    import typer

    from .options import Json

    MethodNames = Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME", help=f"The methods to compare, separated by commas. {METHOD_LIST}."
        ),
    ]

# Columns of the table, after method and size, and the digits they deserve.
COLUMNS = {
    "accuracy": ("accuracy", ".3f"),
    "rmse": ("RMSE", ".4g"),
    "nll": ("NLL", ".4f"),
    "kl": ("KL", ".3g"),
    "ess": ("ESS", ".2f"),
    "khat": ("k-hat", ".2f"),
    "seconds": ("seconds", ".2f"),
}


@takes_task
def compare(
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for records, table and picture; by default named after DATA."),
    ] = None,
    task: TaskOptions,
    methods: MethodNames = "bb-psvi,random-subset",
    sizes: Annotated[
        str | None, typer.Option(metavar="N,N,N", help="The numbers of points, separated by commas.")
    ] = None,
    keys: Annotated[
        int, typer.Option(help="Fits per method and size, with random keys that count up from --seed.")
    ] = 3,
    test: Annotated[
        Path | None, typer.Option(help="A table of rows to score on; by default a part of DATA is held out.")
    ] = None,
    test_share: Annotated[
        float | None,
        typer.Option(help=f"The part of DATA to hold out and score on; {TEST_SHARE:g} by default."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start anew instead of keeping the fits that --out has.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare ways to make a coreset. Every fit is kept, so that the same command goes on where it stopped.

    \b
    Examples:
      coresetvi compare people.csv --target income --sizes 10,40,100
      coresetvi compare people.csv --target income --sizes 20 --methods bb-psvi,full-vi --out comparison
      coresetvi compare train.csv --test test.csv --target count --sizes 50 --keys 5 --out comparison
    """
    with reporting(as_json):
        task.check()
        names = method_list(methods)
        counts = [] if sizes is None else size_list(sizes)
        cells = grid.list_cells(names, counts, keys, task.seed)
        if test is not None and test_share is not None:
            raise InputError("--test and --test-share exclude each other; leave one of them out")
        comparison_figure.check_matplotlib()
        out = Path(f"{name_of(task.source.name)}-comparison") if out is None else out
        dataset, labels, name, model = task.read()
        if not isinstance(dataset, Dataset):
            raise InputError(
                f"{task.source} is larger than --memory {task.memory}, and compare needs all rows in memory; "
                "raise --memory, or take a part of the table"
            )
        if test is None:
            share = TEST_SHARE if test_share is None else test_share
            train, scored = split_rows(dataset, model.num_classes, share, task.seed)
        else:
            held_out = read_new_rows(test, dataset, labels.target, task.weights, task.drop or ())
            train, scored = dataset, held_out.dataset(labels.classes)
        grid.check_sizes(counts, train)
        options = task.construction_options()
        comparison = grid.make_comparison(model, train, scored, names, options, task.steps)
        prints = {cell.name: comparison.fingerprint(cell) for cell in cells}
        kept = records.open_records(out, prints, overwrite=overwrite)
        keep_programs()
        finished = {cell: record for cell, record in kept.items() if record["result"] != "failed"}
        interrupted = False
        try:
            with Progress(False if as_json else None) as bar:
                for cell in [cell for cell in cells if cell.name not in finished]:
                    bar.show(str(cell), len(finished), len(cells))
                    record = grid.run_cell(comparison, cell)
                    records.write_record(out, cell.name, prints[cell.name], record)
                    finished[cell.name] = record
        except KeyboardInterrupt:
            interrupted = True
        found = [finished[cell.name] for cell in cells if cell.name in finished]
        rows = grid.summarise(found)
        files = write_results(out, found, rows)
    notes = [*option_notes(names, comparison.options), *result_notes(found)]
    problem = None
    if interrupted:
        again = "the same command without --overwrite" if overwrite else "the same command"
        problem = f"interrupted with {len(found)} of {len(cells)} fits done; {again} goes on from there"
    elif failed := [record for record in found if record["result"] == "failed"]:
        problem = f"{len(failed)} of {len(cells)} fits failed; the same command tries them again"
    if as_json:
        summary: dict[str, object] = {"model": name, "rows_fitted": len(train), "rows_scored": len(scored)}
        summary |= {"records": found, "summary": rows, "files": files, "notes": notes}
        print_json(summary | ({"error": problem} if problem else {}))
    else:
        say(f"Model {name}, {len(train):,} rows to fit and {len(scored):,} to score on.")
        if rows:
            show_rows(rows)
            say(f"Mean and standard error of {keys} keys. Written: {', '.join(files.values())}")
    for note in notes:
        complain(note, word="note")
    if problem:
        complain(problem)
        leave(INTERRUPTED if interrupted else FAILED)


def method_list(text: str) -> list[str]:
    """The names of the methods in `text`."""
    names = split_list("--methods", text)
    for name in names:
        check_choice("methods", name, METHODS)
    return names


def write_results(out: Path, found: list[records.Record], rows: list[records.Record]) -> dict[str, str]:
    """Table and picture of the records in `out`; their names, and where the records are."""
    places = {"table": out / records.TABLE, "picture": out / records.PICTURE}
    if found:
        columns = {name: [record[name] for record in found] for name in found[0]}
        write_table(places["table"], columns, overwrite=True)
        comparison_figure.write_figure(places["picture"], rows)
    else:
        places = {}
    return {name: str(place) for name, place in (places | {"records": out / records.FOLDER}).items()}


def option_notes(methods: list[str], options: Iterable[str]) -> list[str]:
    """Which options do not concern which methods."""
    notes = []
    for option in options:
        if others := [method for method in methods if not takes(method, option)]:
            notes.append(f"--{option.replace('_', '-')} does not concern {' and '.join(others)}")
    return notes


def result_notes(found: list[records.Record]) -> list[str]:
    """What did not go well, one sentence per method and kind of trouble."""
    troubles: dict[tuple[str, str], list[str]] = {}
    for record in found:
        if record["result"] != "finished":
            troubles.setdefault((record["method"], record["result"]), []).append(record["explanation"])
    return [
        f"{method}, {len(sentences)} of its fits: {in_flags(sentences[0])}"
        for (method, _), sentences in troubles.items()
    ]


def show_rows(rows: list[records.Record]) -> None:
    """The table for people: mean and standard error in each cell."""
    names = [name for name in COLUMNS if name in rows[0]]
    lines = [
        [
            row["method"],
            "all" if row["size"] is None else f"{row['size']:,}",
            *(grid.with_error(row[name], COLUMNS[name][1]) for name in names),
        ]
        for row in rows
    ]
    show_table(["method", "size", *(COLUMNS[name][0] for name in names)], lines, whole=True)
