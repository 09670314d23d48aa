"""`coresetvi export`: a fitted coreset as a table, as a Stan program, or as a script for another tool."""

# Typer reads its options from the annotations; as text they need no typer.
from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from .. import export as tools
from .._checks import check_choice
from .._programs import keep_programs
from ..data import files
from ..errors import InputError
from ..export import rows
from ..export.pymc import RESPONSES as PYMC_RESPONSES
from ..fitting.result import Fit, load
from .choices import beside
from .console import print_json, reporting, say

with contextlib.suppress(ImportError):
    import typer

    from .options import FitDirectory, Json

NUMPYRO_SCRIPT = '''\
"""NUTS on a coreset with NumPyro, as `coresetvi export` wrote it; change what you like."""

import jax
from numpyro.infer import MCMC, NUTS

import coresetvi as cvi
from coresetvi import export

fit = cvi.load({path!r})
mcmc = MCMC(NUTS(export.numpyro(fit)), num_warmup=500, num_samples=1000)
mcmc.run(jax.random.key(0))
mcmc.print_summary()
'''

# One core, because processes that fork while JAX has threads may hang; the coreset is small anyway.
PYMC_SCRIPT = '''\
"""NUTS on a coreset with PyMC, as `coresetvi export` wrote it; change what you like."""

import pymc

import coresetvi as cvi
from coresetvi import export

fit = cvi.load({path!r})
with export.pymc(fit):
    draws = pymc.sample(1000, tune=500, chains=2, cores=1, random_seed=0)
print(pymc.summary(draws))
'''


class Tool(NamedTuple):
    """How --out may end (anything, if empty), and what writes it and tells the files."""

    endings: tuple[str, ...]
    write: Callable[[Fit, Path, Path, bool], Sequence[Path]]


def write_table(fit: Fit, source: Path, out: Path, overwrite: bool) -> Sequence[Path]:
    tools.table(fit, out, overwrite=overwrite)
    return [out]


def write_sklearn(fit: Fit, source: Path, out: Path, overwrite: bool) -> Sequence[Path]:
    columns = rows.row_columns(rows.fit_rows(fit), rows.class_names(fit), weight="sample_weight")
    files.write_table(out, columns, overwrite=overwrite)
    return [out]


def write_stan(fit: Fit, source: Path, out: Path, overwrite: bool) -> Sequence[Path]:
    return tools.stan(fit).write(out, overwrite=overwrite)


def write_numpyro(fit: Fit, source: Path, out: Path, overwrite: bool) -> Sequence[Path]:
    rows.write_text(out, NUMPYRO_SCRIPT.format(path=str(source.resolve())), overwrite=overwrite)
    return [out]


def write_pymc(fit: Fit, source: Path, out: Path, overwrite: bool) -> Sequence[Path]:
    rows.regression_of(fit, "PyMC", PYMC_RESPONSES)
    rows.write_text(out, PYMC_SCRIPT.format(path=str(source.resolve())), overwrite=overwrite)
    return [out]


TOOLS = {
    "csv": Tool((".csv", ".csv.gz"), write_table),
    "tsv": Tool((".tsv", ".tsv.gz"), write_table),
    "parquet": Tool((".parquet",), write_table),
    "stan": Tool((), write_stan),
    "numpyro": Tool((".py",), write_numpyro),
    "pymc": Tool((".py",), write_pymc),
    "sklearn": Tool(files.WRITABLE, write_sklearn),
}
# Endings that leave no doubt.
BY_ENDING = {".stan": "stan"} | {
    end: name for name in ("csv", "tsv", "parquet") for end in TOOLS[name].endings
}


def export(
    fitted: FitDirectory,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(TOOLS),
            help="The tool to write for; by default it follows from the ending of --out.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write (a folder for stan); by default beside DIR and named after it."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files that are there.")] = False,
    as_json: Json = False,
) -> None:
    """Hand a fitted coreset to another tool. All of them get the same posterior, from weighted rows.

    Tables have the columns of the data, the label and its weight. Stan gets model.stan and data.json, numpyro
    and pymc a script that runs NUTS, sklearn a table of hard labels with sample_weight.

    \b
    Examples:
      coresetvi export fitted --to csv
      coresetvi export fitted --out coreset.parquet
      coresetvi export fitted --to stan --out stan
      coresetvi export fitted --to numpyro --out nuts.py --overwrite
    """
    with reporting(as_json):
        out = default_file(fitted, to) if out is None else out
        name = choose_tool(to, out)
        if fitted.resolve() in (out.resolve(), *out.resolve().parents):
            raise InputError(f"--out {out} is inside the saved fit {fitted}; choose another place")
        keep_programs()
        written = [str(file) for file in TOOLS[name].write(load(fitted), fitted, out, overwrite)]
    if as_json:
        print_json({"to": name, "out": str(out), "files": written})
    else:
        say(f"Wrote {' and '.join(written)}.")
        if TOOLS[name].endings == (".py",):
            say(f"Next: python {out}")


def default_file(fitted: Path, to: str | None) -> Path:
    """Beside the saved fit, with its name.

    >>> default_file(Path("work/fitted"), "csv").as_posix(), default_file(Path("fitted"), "stan").as_posix()
    ('work/fitted.csv', 'fitted_stan')
    """
    if to is None:
        raise InputError(f"for which tool? say it with --to {'|'.join(TOOLS)}, or name a file with --out")
    check_choice("to", to, TOOLS)
    ending, *_ = (*TOOLS[to].endings, "")
    return beside(fitted, ending if ending == f".{to}" else f"_{to}{ending}")


def choose_tool(to: str | None, out: Path) -> str:
    """The tool that was named, if --out suits it, or the one that the ending of --out names."""
    if to is None:
        to = next((name for end, name in BY_ENDING.items() if out.name.lower().endswith(end)), None)
        if to is None:
            raise InputError(f"--out {out} does not tell for which tool; say it with --to {'|'.join(TOOLS)}")
    check_choice("to", to, TOOLS)
    endings = TOOLS[to].endings
    if endings and not out.name.lower().endswith(endings):
        raise InputError(f"--out {out} does not suit --to {to}; use a name that ends in {', '.join(endings)}")
    return to
