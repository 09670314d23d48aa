"""Options that more than one command takes, each with its one description. Needs typer."""

from pathlib import Path
from typing import Annotated

import typer

from ..constructions.by_name import METHODS
from .choices import FAMILIES, MODELS

METHOD_LIST = "; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())

# What is given
DataFile = Annotated[Path, typer.Argument(metavar="DATA", help="Table: .csv, .tsv (.gz), .parquet or .npz.")]
FitDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory that coresetvi fit wrote.")]
Target = Annotated[str | None, typer.Option(help="Column to explain (y, in an .npz file).")]
RowWeights = Annotated[str | None, typer.Option(help="Column with a weight for every row.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")]

# The model
ModelName = Annotated[str, typer.Option(metavar="|".join(MODELS), help="Auto looks at the target.")]
NoIntercept = Annotated[bool, typer.Option("--no-intercept", help="Add no constant term.")]
PriorScale = Annotated[float, typer.Option(help="Standard deviation of the prior.")]
Noise = Annotated[float | None, typer.Option(help="Noise of linear and mlp regression; default 1.")]
Hidden = Annotated[str | None, typer.Option(help="Hidden layers of an mlp; default 20.")]
Classes = Annotated[int | None, typer.Option(min=0, help="How many; 0 makes an mlp a regression.")]

# The construction; what is not given (None, "auto") is left to it
MethodName = Annotated[str, typer.Option(metavar="NAME", help=f"How; one of these. {METHOD_LIST}.")]
MethodNames = Annotated[str, typer.Option(metavar="NAME,NAME", help=f"Some of these. {METHOD_LIST}.")]
Learn = Annotated[str | None, typer.Option(help="What to learn: x, y, weights, total; joined by commas.")]
Init = Annotated[str | None, typer.Option(metavar="subset|spread|noise", help="Where the points start.")]
FamilyName = Annotated[str, typer.Option(metavar="|".join(FAMILIES), help="Posterior's shape.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Rows a step; default all, while cheap.")]

# The run
Steps = Annotated[int | None, typer.Option(min=1, help="Steps; by default it stops by itself.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
