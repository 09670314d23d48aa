"""Options that more than one command takes, each with its one description. Needs typer."""

from pathlib import Path
from typing import Annotated

import typer

from .choices import FAMILIES, MODELS

# What is given
DataFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="The table to fit: a .csv, .tsv (also .gz), .parquet or .npz file; or a folder of such files, "
        "or several of them with the same columns.",
    ),
]
FitDirectory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder in which coresetvi fit saved its result.")
]
Target = Annotated[
    str | None, typer.Option(help="The column to predict; in an .npz file it is y unless you name another.")
]
RowWeights = Annotated[str | None, typer.Option(help="The column that holds the weight of each row.")]
Drop = Annotated[
    list[str] | None, typer.Option(help="A column to leave out; repeat the option to leave out several.")
]
FixedColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A column that learned points leave alone, such as a group number; repeat the option for "
        "several.",
    ),
]
Memory = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="A table larger than this, such as 500MB or 2GB, is read in blocks again and again instead of "
        "being kept in memory.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="The Dask scheduler whose workers read the rows, by its address."),
]

# The model
ModelName = Annotated[
    str,
    typer.Option(metavar="|".join(MODELS), help="The model; auto chooses one by what the target holds."),
]
NoIntercept = Annotated[bool, typer.Option("--no-intercept", help="Fit the model without a constant term.")]
PriorScale = Annotated[float, typer.Option(help="The prior standard deviation of the parameters.")]
Noise = Annotated[
    float | None,
    typer.Option(help="The standard deviation of the noise in a linear or mlp regression; 1 by default."),
]
Hidden = Annotated[
    str | None,
    typer.Option(
        metavar="N,N", help="The sizes of the hidden layers of an mlp, such as 20,20; 20 by default."
    ),
]
Classes = Annotated[
    int | None,
    typer.Option(min=0, help="The number of classes, if the table does not have all; 0 means a regression."),
]

# The construction; what is not given (None, "auto") is left to it
Learn = Annotated[
    str | None,
    typer.Option(help="What the method learns: any of x, y, weights and total, separated by commas."),
]
Init = Annotated[
    str | None,
    typer.Option(
        metavar="subset|spread|noise",
        help="Where the points start: on random rows, on rows spread over the data, or on noise.",
    ),
]
FamilyName = Annotated[
    str,
    typer.Option(metavar="|".join(FAMILIES), help="The family of Gaussians that approximates the posterior."),
]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Rows per step; by default all of them, or fewer where that would be slow."),
]

# The run
Steps = Annotated[
    int | None, typer.Option(min=1, help="The number of steps; by default the fit stops once it has settled.")
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="The random seed; the same seed gives the same result.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
