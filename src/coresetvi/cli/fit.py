"""`coresetvi fit`: a table in, a saved coreset and its posterior out."""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..constructions.by_name import METHODS, build_construction, check_choice
from ..constructions.defaults import default_size
from ..errors import InputError
from ..fitting import artefact
from ..fitting.compilation import enable_compilation_cache
from ..fitting.loop import fit as fit_coreset
from .choices import FAMILIES, learn_set, read_problem
from .console import (
    FAILED,
    INTERRUPTED,
    complain,
    print_json,
    reporting,
    say,
    show_table,
)
from .summary import advice, fit_lines, fit_summary

with contextlib.suppress(ImportError):
    import typer

    from .options import (
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
        fitted = fit_coreset(
            construction, chosen, dataset, key=seed, num_steps=steps, checkpoint=checkpoint, resume=resume
        )
        names = None if labels.classes is None else list(labels.classes)
        fitted = dataclasses.replace(fitted, extra={"classes": names, "data": str(data), "seed": seed})
        fitted.save(out, overwrite=overwrite)
        summary: dict[str, Any] = {**fit_summary(fitted), "out": str(out)}
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
