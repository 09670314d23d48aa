"""`coresetvi demo`: the demonstration."""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from .._programs import keep_programs
from . import demonstration
from .console import (
    print_json,
    reporting,
    say,
    show_table,
)

with contextlib.suppress(ImportError):
    import typer

    from .options import (
        Json,
        Seed,
    )


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the picture and the coreset.")] = Path(
        "coresetvi-demo"
    ),
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
        keep_programs()
        result = demonstration.run(seed, num_steps=steps)
        files = demonstration.write(result, out)
    methods = demonstration.score_rows(result)
    if as_json:
        print_json({"methods": methods, "files": [str(file) for file in files]})
        return
    say("Two half-moons, told apart by a Bayesian network with 20 hidden units:")
    formats = {"points": ",", "accuracy": ".3f", "nll": ".3f", "entropy_difference": ".3f", "seconds": ".1f"}
    header = ["method", "points", "accuracy", "NLL", "entropy error", "seconds"]
    show_table(
        header,
        [[str(row["method"]), *(format(row[key], formats[key]) for key in formats)] for row in methods],
    )
    say("Accuracy and NLL are those of 1,000 test points; the entropy error is the mean distance of the")
    say("predictive entropy to that of full-data VI, over the area of the picture.")
    say(f"The picture is {files[0]}. Next: coresetvi inspect {files[1]}")
