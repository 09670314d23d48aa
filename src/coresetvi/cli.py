"""The command line: `coresetvi fit | predict | inspect | demo`, and the commands of `cli_*.py`.

Results go to standard output, as sentences and tables or with `--json` as one JSON object; progress, notes
and errors go to standard error. Exit codes: 0 done, 2 bad input, 1 the fit turned non-finite, 130 interrupted
(in the last two cases what there is has been saved).
"""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np

import coresetvi as cvi

from . import artefact, tables
from . import demo as demonstration
from .choices import (
    FAMILIES,
    METHODS,
    build_construction,
    check_choice,
    learn_set,
    read_problem,
)
from .cli_compare import compare
from .cli_export import export
from .cli_posterior import diagnose, plot, sample
from .cli_reproduce import reproduce
from .console import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    complain,
    enable_compilation_cache,
    print_json,
    reporting,
    say,
    show_table,
)
from .errors import InputError
from .labels import some
from .sizes import default_size
from .summary import advice, describe, fit_lines, heaviest, origin_lines, prediction_columns, score

with contextlib.suppress(ImportError):
    import typer

    from .cli_options import (
        BatchSize,
        Classes,
        DataFile,
        Drop,
        FamilyName,
        Hidden,
        Init,
        Json,
        Learn,
        MethodName,
        ModelName,
        NoIntercept,
        Noise,
        PriorScale,
        RowWeights,
        Seed,
        Steps,
        Target,
    )

EXIT_CODES = {"non_finite": FAILED, "interrupted": INTERRUPTED}
LINE = 80  # characters, on a terminal


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    if "typer" not in globals():
        complain('the command line needs typer; pip install "coresetvi[cli]"')
        raise SystemExit(FAILED)
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # column names need not fit the terminal's encoding
    try:
        code = build_app()(arguments, prog_name="coresetvi", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        # Wrong options. Their class is found by what it can do: where it lives depends on typer's version.
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "coresetvi")
        complain(f"{error.format_message()} See {command} --help.", "--json" in arguments)  # pyright: ignore
        code = BAD_INPUT
    raise SystemExit(code if isinstance(code, int) else 0)


def build_app() -> Any:
    """The commands as a typer application."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(top)
    for command in (fit, predict, inspect, sample, diagnose, plot, export, compare, reproduce, demo):
        app.command(command.__name__)(command)
    return app


def show_version(wanted: bool) -> bool:
    if wanted:
        say(f"coresetvi {cvi.__version__}")
        raise typer.Exit()
    return wanted


def top(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Bayesian coresets: a few weighted points that give the same posterior as all of the data."""


def fit(
    data: DataFile,
    out: Annotated[Path, typer.Option(help="Directory for the fitted coreset.")],
    target: Target = None,
    model: ModelName = "auto",
    method: MethodName = "bb-psvi",
    size: Annotated[int | None, typer.Option(min=1, help="Points; default two a parameter.")] = None,
    weights: RowWeights = None,
    drop: Drop = None,
    no_intercept: NoIntercept = False,
    prior_scale: PriorScale = 1.0,
    noise: Noise = None,
    hidden: Hidden = None,
    classes: Classes = None,
    learn: Learn = None,
    init: Init = None,
    family: FamilyName = "auto",
    steps: Steps = None,
    batch_size: BatchSize = None,
    seed: Seed = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="Directory that keeps an unfinished fit.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from --checkpoint.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier fit.")] = False,
    as_json: Json = False,
) -> None:
    """Compress a table into weighted points. A posterior is fitted to them, and both are saved.

    \b
    Examples:
      coresetvi fit people.csv --target income --out fitted
      coresetvi fit flowers.parquet --target species --model mlp --hidden 20,20 --out fitted
      coresetvi fit visits.csv --target count --model poisson --size 50 --drop id --out fitted
    """
    with reporting(as_json):
        check_choice("--family", family, FAMILIES)
        check_choice("--method", method, METHODS)
        check_places(out, checkpoint, resume, overwrite)
        dataset, labels, name, chosen = read_problem(
            data,
            target,
            weights,
            drop,
            model=model,
            classes=classes,
            intercept=not no_intercept,
            prior_scale=prior_scale,
            noise=noise,
            hidden=hidden,
        )
        if METHODS[method].sized:
            size = size or default_size(chosen, int(np.count_nonzero(dataset.weights)))
        construction = build_construction(
            method,
            size,
            family=FAMILIES[family],
            learn=learn_set(learn),
            init=init,
            batch_size=batch_size,
        )
        enable_compilation_cache()
        fitted = cvi.fit(
            construction, chosen, dataset, key=seed, num_steps=steps, checkpoint=checkpoint, resume=resume
        )
        names = None if labels.classes is None else list(labels.classes)
        fitted = dataclasses.replace(fitted, extra={"classes": names, "data": str(data), "seed": seed})
        fitted.save(out, overwrite=overwrite)
        summary: dict[str, Any] = {**describe(fitted), "out": str(out)}
        summary["notes"] = advice(fitted, dataset, summary["reliability"])
    failed = fitted.result in EXIT_CODES
    if as_json:
        print_json(summary | ({"error": fitted.explanation} if failed else {}))
    else:
        if model == "auto":
            kind = "numbers" if names is None else f"{len(names)} classes"
            say(f"The target {labels.target!r} holds {kind}, so the model is {name} (--model changes it).")
        if not failed:
            say(fitted.explanation)
        show_table(None, fit_lines(summary))
        say(f"Saved in {out}. Next: coresetvi predict {out} DATA --out predictions.csv")
    for note in summary["notes"]:
        complain(note, word="note")
    if failed:
        complain(fitted.explanation)
        raise typer.Exit(EXIT_CODES[fitted.result])


def predict(
    fitted: Annotated[Path, typer.Argument(metavar="DIR", help="Directory that coresetvi fit wrote.")],
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
        fit = cvi.load(fitted)
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


def inspect(
    fitted: Annotated[Path, typer.Argument(metavar="DIR", help="Directory that coresetvi fit wrote.")],
    points: Annotated[int, typer.Option(min=0, help="How many of the heaviest points to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Show what a fitted coreset holds. Model, quality, origin and its heaviest points.

    \b
    Examples:
      coresetvi inspect fitted
      coresetvi inspect fitted --points 3 --json
    """
    with reporting(as_json):
        enable_compilation_cache()
        fit = cvi.load(fitted)
        summary = describe(fit) | {"about": fit.about, "points": heaviest(fit, points)}
    if as_json:
        print_json(summary)
        return
    say(fit.explanation)
    show_table(None, [*fit_lines(summary), *origin_lines(summary)])
    if summary["points"]:
        say("Its heaviest points:")
        show_points(summary["points"])


def demo(
    out: Annotated[Path, typer.Option(help="Directory for picture and coreset.")] = Path("coresetvi-demo"),
    seed: Seed = 0,
    steps: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    as_json: Json = False,
) -> None:
    """Compress 1,000 points into 20 and draw them. Two half-moons, told apart by a Bayesian network.

    \b
    Examples:
      coresetvi demo
      coresetvi demo --out /tmp/demo --seed 1 --json
    """
    with reporting(as_json):
        demonstration.check_folder(out)
        enable_compilation_cache()
        result = demonstration.run(seed, num_steps=steps)
        files = demonstration.write(result, out)
    methods = demonstration.scores(result)
    if as_json:
        print_json({"methods": methods, "files": [str(file) for file in files]})
        return
    say("Two half-moons, told apart by a Bayesian network with 20 hidden units:")
    formats = {"points": ",", "accuracy": ".3f", "nll": ".3f", "entropy_difference": ".3f", "seconds": ".1f"}
    header = ["method", "points", "accuracy", "NLL", "entropy error", "seconds"]
    show_table(
        header, [[row["method"], *(format(row[key], formats[key]) for key in formats)] for row in methods]
    )
    say("Accuracy and NLL are those of 1,000 test points; the entropy error is the mean distance of the")
    say("predictive entropy to that of full-data VI, over the area of the picture.")
    say(f"The picture is {files[0]}. Next: coresetvi inspect {files[1]}")


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


def show_points(points: list[dict[str, Any]]) -> None:
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
