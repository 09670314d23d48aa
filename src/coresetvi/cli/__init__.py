"""The command line: one file for every command, gathered here; `plugins` finds those of other distributions.

Results go to standard output, as sentences and tables or with `--json` as one JSON object; progress, notes
and errors go to standard error. Exit codes: 0 done, 2 bad input, 1 the fit turned non-finite, 130 interrupted
(in the last two cases what there is has been saved).
"""

# Typer reads its options from the annotations. As text they need no typer, so that `main` can say how to
# install it.
from __future__ import annotations

import contextlib
import io
import sys
from typing import Annotated, NoReturn

from .._version import __version__
from . import compare, demo, diagnose, export, fit, inspect, plot, predict, sample
from .console import BAD_INPUT, FAILED, INTERRUPTED, complain, leave, say

with contextlib.suppress(ImportError):
    import typer


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    try:
        from typer import Abort
    except ImportError:
        complain('the command line needs typer; pip install "coresetvi[cli]"')
        raise SystemExit(FAILED) from None
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # column names need not fit the terminal's encoding
    try:
        code = build_app()(arguments, prog_name="coresetvi", standalone_mode=False)
    except (Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        # Wrong options. Their class is found by what it can do: where it lives depends on typer's version.
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "coresetvi")
        complain(f"{error.format_message()} See {command} --help.", "--json" in arguments)  # pyright: ignore
        code = BAD_INPUT
    raise SystemExit(code if isinstance(code, int) else 0)


def build_app() -> typer.Typer:
    """The commands as a typer application: ours, and those of plug-ins that are installed."""
    from .plugins import PluginGroup, new_app  # needs typer, which `main` can do without

    app = new_app(cls=PluginGroup)
    app.callback()(top)
    for module in (fit, predict, inspect, sample, diagnose, plot, export, compare, demo):
        name = module.__name__.rpartition(".")[2]
        app.command(name)(getattr(module, name))
    return app


def show_version(wanted: bool) -> bool:
    if wanted:
        say(f"coresetvi {__version__}")
        leave()
    return wanted


def top(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Bayesian coresets: a few weighted points that give the same posterior as all of the data."""
