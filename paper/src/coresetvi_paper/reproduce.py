"""The command `coresetvi reproduce`: an experiment of the paper again, with the paper's numbers beside ours.

The library finds it by the entry point in `pyproject.toml`. Exit codes are those of `coresetvi.cli`; 1 means
here that a cell failed, with its sentence on standard error.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from coresetvi.cli.choices import size_list, split_list
from coresetvi.cli.console import (
    FAILED,
    INTERRUPTED,
    complain,
    print_json,
    reporting,
    say,
    show_table,
)
from coresetvi.cli.options import Json
from coresetvi.errors import InputError
from coresetvi.fitting.progress import Progress
from coresetvi.plots import comparison_figure

from .cells import PaperCell
from .experiment import OURS, PAPER, Experiment
from .experiment_files import experiment_names, read_experiment
from .grid import open_grid
from .result_table import SCORES, explanation, record_notes, table_lines, write_report
from .runner import run_cells

EVERYTHING = "all"
NAMES = "|".join(experiment_names())


def reproduce(
    experiment: Annotated[
        str, typer.Argument(metavar=f"{NAMES}|{EVERYTHING}", help="What; or a .toml file like theirs.")
    ],
    sizes: Annotated[str | None, typer.Option(metavar="N,N,N", help="Only so many points.")] = None,
    methods: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="Only these.")] = None,
    settings: Annotated[
        str, typer.Option(metavar=f"{OURS}|{PAPER}", help="Whose hyper-parameters, where the paper has any.")
    ] = OURS,
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
      coresetvi reproduce table1 --settings paper
      coresetvi reproduce table1 & coresetvi reproduce table1    # two processes share the fits
      coresetvi reproduce all --quick --out miniatures
      coresetvi reproduce table3 --out results --json
    """
    with reporting(as_json):
        everything = experiment == EVERYTHING
        if everything and (sizes or methods):
            raise InputError("--sizes and --methods are for one experiment; leave them out, or name it")
        chosen = []
        for name in experiment_names() if everything else [experiment]:
            whole = read_experiment(name)
            if not everything or settings == OURS or whole.has_paper_settings:
                whole = whole.with_settings(settings)
                chosen.append(whole.miniature() if quick else whole)
        comparison_figure.check_matplotlib()
        done: set[Path] = set()
        answers = []
        for whole in chosen:
            selected = whole.select(
                sizes=None if sizes is None else size_list(sizes),
                methods=None if methods is None else split_list("--methods", methods),
                keys=keys,
                budget=budget,
            )
            place = Path(whole.folder) if out is None else out / whole.folder if everything else out
            # Two views of the same cells share a folder: only the first of them may empty it.
            anew = overwrite and place not in done
            answers.append(run_one(whole, selected, place, anew, as_json))
            done.add(place)
            if answers[-1]["interrupted"]:
                break
    problems = [answer["error"] for answer in answers if "error" in answer]
    if as_json:
        print_json({"experiments": answers} if everything else answers[0])
    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(INTERRUPTED if answers[-1]["interrupted"] else FAILED)


def run_one(
    whole: Experiment, selected: Experiment, out: Path, overwrite: bool, as_json: bool
) -> dict[str, Any]:
    """Run the `selected` cells and report on all that the folder has of `whole`; the answer for machines."""
    grid, notes = open_grid(selected)
    cells = grid.experiment.cells()
    with Progress(False if as_json else None) as bar:

        def announce(
            cell: PaperCell, record: dict[str, Any] | None, left: list[PaperCell], seconds: float
        ) -> None:
            remaining = duration(seconds)
            bar.show(f"{cell}; {remaining} left", len(cells) - len(left), len(cells))
            if record is not None and not as_json:
                complain(f"{cell}: {outcome(selected, record)}; {len(left)} left, {remaining}", word="done")

        found, interrupted = run_cells(grid, out, overwrite=overwrite, announce=announce)
    # What earlier commands left in the folder belongs to the table as well.
    records = list(found.values())
    rows, files = write_report(whole, records, out)
    wanted = {cell.name for cell in cells}
    done = [record for name, record in found.items() if name in wanted]
    answer: dict[str, Any] = {"experiment": whole.name, "title": whole.title, "rows": rows}
    answer |= {"records": records, "files": files, "notes": notes + record_notes(records)}
    answer["interrupted"] = interrupted
    others = len(cells) - len(done)
    if others and not interrupted:
        answer["notes"].append(f"{others} of {len(cells)} cells are left to a process that is at them")
    if interrupted:
        again = "the same command without --overwrite" if overwrite else "the same command"
        answer["error"] = (
            f"interrupted with {len(done)} of {len(cells)} cells done; {again} goes on from there"
        )
    elif failed := [record for record in done if record["result"] == "failed"]:
        answer["error"] = f"{len(failed)} of {len(cells)} cells failed; the same command tries them again"
    if not as_json:
        say(whole.title)
        if rows:
            show_table(*table_lines(whole, rows), whole=True)
            for line in explanation(whole, rows):
                say(line)
        say(f"Written: {', '.join(files.values())}")
    for note in answer["notes"]:
        complain(note, word="note")
    return answer


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
