"""`coresetvi sample`, `diagnose` and `plot`: what can be done with a saved fit and, for one, its data."""

# Typer reads its options from the annotations; as text they need no typer.
from __future__ import annotations

import contextlib
import importlib.util
import os
import uuid
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import coresetvi as cvi

from . import plots, tables
from .choices import beside, check_choice
from .console import complain, enable_compilation_cache, print_json, reporting, say, show_table
from .draws import Draws, scalars
from .errors import InputError
from .held_out import read_test
from .labels import Labels
from .posterior import METHODS
from .posterior_plots import overview
from .summary import class_names

with contextlib.suppress(ImportError):
    import typer

    from .cli_options import Drop, Json, RowWeights, Seed

    FitDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory that coresetvi fit wrote.")]

MOST_LINES = 40
FORMATS = {"mean": ".4g", "sd": ".4g", "5%": ".4g", "95%": ".4g", "r_hat": ".3f"}
FORMATS |= {"ess_bulk": ".0f", "ess_tail": ".0f"}
PICTURES = (".png", ".pdf", ".svg")


def sample(
    fitted: FitDirectory,
    method: Annotated[str, typer.Option(metavar="|".join(METHODS), help="How.")] = "nuts",
    samples: Annotated[int, typer.Option(min=1, help="Draws of each chain.")] = 1000,
    chains: Annotated[int, typer.Option(min=1, help="Chains.")] = 4,
    warmup: Annotated[int, typer.Option(min=0, help="Transitions of nuts and hmc to adapt.")] = 1000,
    out: Annotated[
        Path | None, typer.Option(help="Draws: .csv, .tsv (.gz), .parquet, or .nc for ArviZ.")
    ] = None,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")] = False,
    as_json: Json = False,
) -> None:
    """Draw from the posterior of a fitted coreset. Shows every parameter, and how well the chains mixed.

    \b
    Examples:
      coresetvi sample fitted
      coresetvi sample fitted --out draws.parquet --samples 2000
      coresetvi sample fitted --method smc --json
    """
    with reporting(as_json):
        check_choice("--method", method, METHODS)
        if out is not None:
            check_draws_file(out, overwrite)
        enable_compilation_cache()
        fit = cvi.load(fitted)
        draws = cvi.sample(
            fit, method=method, num_samples=samples, num_chains=chains, num_warmup=warmup, key=seed
        )
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
        tables.check_output(out, overwrite=overwrite)
        return
    tables.check_file(out, overwrite=overwrite)
    if importlib.util.find_spec("arviz") is None:
        raise InputError(f'{out} needs ArviZ; pip install "coresetvi[arviz]"')


def write_draws(draws: Draws, out: Path, overwrite: bool) -> None:
    """Draws as a table with one column a parameter, or as an ArviZ file."""
    if out.suffix == ".nc":
        data = draws.to_arviz()
        staging = out.with_name(f".{uuid.uuid4().hex}.nc")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            data.to_netcdf(str(staging))
            os.replace(staging, out)
        except (ImportError, ValueError) as error:
            raise InputError(f"{out} cannot be written ({error}); pip install h5netcdf") from error
        except OSError as error:
            raise InputError(
                f"{out} cannot be written ({error.strerror or error}); choose another"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                staging.unlink()
        return
    chains, number = draws.flat.shape[:2]
    columns: dict[str, Any] = {
        "chain": np.repeat(np.arange(chains), number),
        "draw": np.tile(np.arange(number), chains),
        "log_density": draws.log_density.ravel(),
    }
    for name, leaf in draws.named().items():
        columns |= {label: values.ravel() for label, values in scalars(name, leaf, draws.data.columns)}
    tables.write_table(out, columns, overwrite=overwrite)


def diagnose(
    fitted: FitDirectory,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The table that was fitted.")],
    held_out: Annotated[Path | None, typer.Option(help="Table of rows that were not fitted.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Directory of another fit to compare with.")] = None,
    method: Annotated[
        str | None, typer.Option(metavar="|".join(METHODS), help="Judge draws by it; default r itself.")
    ] = None,
    weights: RowWeights = None,
    drop: Drop = None,
    samples: Annotated[int, typer.Option(min=100, help="Draws to weigh against the data.")] = 1000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say whether a fitted coreset can be trusted. Its posterior is weighed against that of all the data.

    \b
    Examples:
      coresetvi diagnose fitted people.csv
      coresetvi diagnose fitted train.parquet --held-out test.parquet --method nuts
      coresetvi diagnose small people.csv --reference large --json
    """
    with reporting(as_json):
        if method is not None:
            check_choice("--method", method, METHODS)
        enable_compilation_cache()
        fit = cvi.load(fitted)
        other = None if reference is None else cvi.load(reference)
        rows = fitted_rows(fit, data, weights, drop or ())
        test = None if held_out is None else fitted_rows(fit, held_out, weights, drop or ())
        draws = None if method is None else cvi.sample(fit, method=method, key=seed)
        certificate = cvi.diagnose(
            fit, rows, other, draws=draws, held_out=test, num_samples=samples, key=seed
        )
    if as_json:
        print_json(certificate.to_dict())
    else:
        say(certificate.sentence)
        show_table(["", "", ""], certificate.lines())


def fitted_rows(fit: cvi.Fit, path: Path, weights: str | None, drop: Any) -> cvi.Dataset:
    """Rows of a table with the columns, target and classes of a fit."""
    names = class_names(fit)
    target = fit.coreset.target or "y"
    labels = Labels(target, None if names is None else tuple(names))
    return read_test(path, fit.coreset, labels, weights, drop)


def plot(
    fitted: FitDirectory,
    out: Annotated[
        Path | None, typer.Option(help="Picture: .png, .pdf or .svg; default beside DIR, named after it.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Table to show behind a map of two inputs.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a fitted coreset. Its loss and weights, and a map of its entropy or pairs of its parameters.

    \b
    Examples:
      coresetvi plot fitted
      coresetvi plot moons --data moons.csv --out moons.pdf --overwrite
    """
    with reporting(as_json):
        out = beside(fitted, ".png") if out is None else out
        if out.suffix.lower() not in PICTURES:
            raise InputError(f"--out {out} is no picture; use a name that ends in {', '.join(PICTURES)}")
        tables.check_file(out, overwrite=overwrite)
        enable_compilation_cache()
        fit = cvi.load(fitted)
        rows = None if data is None else fitted_rows(fit, data, None, ())
        plots.save_figure(overview(fit, data=rows), out)
    if as_json:
        print_json({"out": str(out)})
    else:
        say(f"Wrote {out}.")
