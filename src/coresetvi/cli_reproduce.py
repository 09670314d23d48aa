"""The command `coresetvi reproduce`: an experiment of the paper again, with the paper's numbers beside ours.

Exit codes as in `cli.py`; 1 means here that a cell failed, with its sentence on standard error.
"""

from __future__ import annotations  # see `cli.py`

import contextlib
from pathlib import Path
from typing import Annotated, Any

from . import comparison_plot
from .choices import size_list, split_list
from .console import (
    FAILED,
    INTERRUPTED,
    complain,
    enable_compilation_cache,
    print_json,
    reporting,
    say,
    show_table,
)
from .progress import Progress
from .reproduction import experiment_names, read_experiment
from .reproduction.experiment import Cell, Experiment
from .reproduction.report import SCORES, explanation, record_notes, table_lines, write_report
from .reproduction.run import Grid, run_cells

with contextlib.suppress(ImportError):
    import typer

    from .cli_options import Json

    NAMES = "|".join(experiment_names())


def reproduce(
    experiment: Annotated[str, typer.Argument(metavar=NAMES, help="What; or a .toml file like theirs.")],
    sizes: Annotated[str | None, typer.Option(metavar="N,N,N", help="Only so many points.")] = None,
    methods: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="Only these.")] = None,
    budget: Annotated[float | None, typer.Option(metavar="MINUTES", help="Time that a fit may take.")] = None,
    keys: Annotated[int | None, typer.Option(help="Fits of each kind, with keys 0, 1, ...")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for records, fits, table and pictures; default its name.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A miniature, to see that it works.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew, without old records.")] = False,
    as_json: Json = False,
) -> None:
    """Repeat an experiment of the paper. Every fit is kept: the same command goes on where it stopped.

    \b
    Examples:
      coresetvi reproduce table3 --quick
      coresetvi reproduce table3 --sizes 10,100 --methods bb-psvi,random-subset --budget 5 --keys 1
      coresetvi reproduce table3 --out results --json
    """
    with reporting(as_json):
        whole = read_experiment(experiment)
        whole = whole.miniature() if quick else whole
        chosen = whole.select(
            sizes=None if sizes is None else size_list(sizes),
            methods=None if methods is None else split_list("--methods", methods),
            keys=keys,
            budget=budget,
        )
        comparison_plot.check_matplotlib()
        enable_compilation_cache()
        out = Path(whole.name) if out is None else out
        grid, cells = Grid(chosen), chosen.cells()
        with Progress(False if as_json else None) as bar:

            def announce(cell: Cell, record: dict[str, Any] | None, left: list[Cell], seconds: float) -> None:
                remaining = duration(seconds)
                bar.show(f"{cell}; {remaining} left", len(cells) - len(left), len(cells))
                if record is not None and not as_json:
                    complain(f"{cell}: {outcome(chosen, record)}; {len(left)} left, {remaining}", word="done")

            found, interrupted = run_cells(grid, cells, out, overwrite=overwrite, announce=announce)
        # What earlier commands left in the folder belongs to the table as well.
        records = list(found.values())
        rows, files = write_report(whole, records, out)
    wanted = {cell.name for cell in cells}
    done = [record for name, record in found.items() if name in wanted]
    problem = None
    if interrupted:
        again = "the same command without --overwrite" if overwrite else "the same command"
        problem = f"interrupted with {len(done)} of {len(cells)} cells done; {again} goes on from there"
    elif failed := [record for record in done if record["result"] == "failed"]:
        problem = f"{len(failed)} of {len(cells)} cells failed; the same command tries them again"
    notes = record_notes(records)
    if as_json:
        summary: dict[str, Any] = {"experiment": whole.name, "title": whole.title, "rows": rows}
        summary |= {"records": records, "files": files, "notes": notes}
        print_json(summary | ({"error": problem} if problem else {}))
    else:
        say(whole.title)
        if rows:
            show_table(*table_lines(whole, rows), whole=True)
            for line in explanation(whole, rows):
                say(line)
        say(f"Written: {', '.join(files.values())}")
    for note in notes:
        complain(note, word="note")
    if problem:
        complain(problem)
        raise typer.Exit(INTERRUPTED if interrupted else FAILED)


def outcome(experiment: Experiment, record: dict[str, Any]) -> str:
    """How a cell went, in a few words."""
    if record["result"] == "failed":
        return f"failed, because {record['explanation']}"
    label, _ = SCORES[experiment.metric]
    value = record["fresh"].get(experiment.metric)
    score = "" if value is None else f"{label} {value:.4f} in "
    return f"{score}{duration(record['total_seconds'])}"


def duration(seconds: float) -> str:
    """A time in words, to two places.

    >>> duration(42.0), duration(150.0), duration(7500.0)
    ('42 s', '2 min', '2 h 5 min')
    """
    minutes = round(seconds / 60.0)
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
