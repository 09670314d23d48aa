"""`coresetvi sample`: draws from the posterior of a saved fit."""

# Typer reads its options from the annotations; as text they need no typer.
from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from typing import Annotated

import numpy as np

from .._checks import check_choice
from .._programs import keep_programs
from ..data import files
from ..errors import InputError
from ..families.draws import Draws, scalars
from ..fitting.result import load
from ..posterior.sampling import SAMPLERS
from ..posterior.sampling import sample as draw
from ..storage import whole_file
from .console import complain, print_json, reporting, say, show_table

with contextlib.suppress(ImportError):
    import typer

    from .options import FitDirectory, Json, Seed


MOST_LINES = 40
FORMATS = {"mean": ".4g", "sd": ".4g", "5%": ".4g", "95%": ".4g", "r_hat": ".3f"}
FORMATS |= {"ess_bulk": ".0f", "ess_tail": ".0f"}


def sample(
    fitted: FitDirectory,
    method: Annotated[str, typer.Option(metavar="|".join(SAMPLERS), help="The sampler.")] = "nuts",
    samples: Annotated[int, typer.Option(min=1, help="The number of draws per chain.")] = 1000,
    chains: Annotated[int, typer.Option(min=1, help="The number of chains.")] = 4,
    warmup: Annotated[
        int,
        typer.Option(min=0, help="The number of steps in which nuts and hmc adapt before the first draw."),
    ] = 1000,
    out: Annotated[
        Path | None,
        typer.Option(help="A file to write the draws to: .csv, .tsv (also .gz), .parquet, or .nc for ArviZ."),
    ] = None,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")] = False,
    as_json: Json = False,
) -> None:
    """Draw from the posterior of a fitted coreset, and show each parameter and how well the chains mixed.

    \b
    Examples:
      coresetvi sample fitted
      coresetvi sample fitted --out draws.parquet --samples 2000
      coresetvi sample fitted --method smc --json
    """
    with reporting(as_json):
        check_choice("method", method, SAMPLERS)
        if out is not None:
            check_draws_file(out, overwrite)
        keep_programs()
        fit = load(fitted)
        draws = draw(fit, method=method, num_samples=samples, num_chains=chains, num_warmup=warmup, key=seed)
        rows = draws.summary()
        if out is not None:
            write_draws(draws, out, overwrite)
    summary = {"method": method, "chains": chains, "samples": samples, "out": out and str(out)}
    summary |= {"seconds": draws.about["seconds"], "mixing": draws.mixing(), "about": draws.about}
    notes = draws.warnings
    if as_json:
        print_json(summary | {"parameters": rows, "notes": notes})
    else:
        say(f"{chains * samples:,} draws by {method} in {draws.about['seconds']:.1f} s:")
        names = ["name", *(name for name in FORMATS if name in rows[0])]
        shown = [
            [row["name"], *(format(row[name], FORMATS[name]) for name in names[1:])]
            for row in rows[:MOST_LINES]
        ]
        show_table([name.replace("_", "-") for name in names], shown)
        if len(rows) > MOST_LINES:
            say(f"{len(rows) - MOST_LINES} more parameters are not shown (--json has them all).")
        if out is not None:
            say(f"Wrote {out}.")
    for note in notes:
        complain(note, word="note")


def check_draws_file(out: Path, overwrite: bool) -> None:
    """Refuse a file for draws that could not be written, before they cost any time."""
    if out.suffix != ".nc":
        files.check_output(out, overwrite=overwrite)
        return
    files.check_file(out, overwrite=overwrite)
    if importlib.util.find_spec("arviz") is None:
        raise InputError(f'{out} needs ArviZ; pip install "coresetvi[arviz]"')


def write_draws(draws: Draws, out: Path, overwrite: bool) -> None:
    """Draws as a table with one column per parameter, or as an ArviZ file."""
    if out.suffix == ".nc":
        data = draws.to_arviz()
        with whole_file(out) as staging:
            try:
                data.to_netcdf(str(staging))
            except (ImportError, ValueError) as error:
                raise InputError(f"{out} cannot be written ({error}); pip install h5netcdf") from error
        return
    chains, number = draws.flat.shape[:2]
    columns: dict[str, np.ndarray] = {
        "chain": np.repeat(np.arange(chains), number),
        "draw": np.tile(np.arange(number), chains),
        "log_density": draws.log_density.ravel(),
    }
    for name, leaf in draws.named().items():
        columns |= {label: values.ravel() for label, values in scalars(name, leaf, draws.data.columns)}
    files.write_table(out, columns, overwrite=overwrite)
