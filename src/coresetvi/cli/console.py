"""How the command line speaks: results to standard output, notes and errors to standard error.

The only place that prints.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from .._json import one_line, plain
from ..errors import CoresetviError

with contextlib.suppress(ImportError):
    import typer

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit codes


def say(sentence: str) -> None:
    """A sentence on standard output."""
    # Not through rich, which would break lines, and paths with them.
    print(sentence)


def complain(sentence: str, as_json: bool = False, word: str = "error") -> None:
    """A sentence on standard error, and for machines on standard output too."""
    print(f"{word}: {sentence}", file=sys.stderr)
    if as_json:
        print_json({word: sentence})


def print_json(summary: dict[str, Any]) -> None:
    """One JSON object in one line."""
    print(one_line(plain(summary)))


def show_table(header: list[str] | None, rows: list[list[str]], *, whole: bool = False) -> None:
    """A table on standard output; `whole` keeps every row in one line, however long."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=header is not None, box=None, pad_edge=False)
    for name in header or rows[0]:
        # Text, because column names may look like rich's markup.
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    lines = rows if header is None else [header, *rows]
    wanted = sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True))
    Console(width=max(Console().width, wanted) if whole else None).print(table)


@contextlib.contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Errors meant for people become a sentence and an exit code; anything else is a bug and stays one."""
    try:
        yield
    except CoresetviError as error:
        complain(str(error), as_json)
        raise typer.Exit(BAD_INPUT) from error
    except KeyboardInterrupt as error:
        complain("interrupted", as_json)
        raise typer.Exit(INTERRUPTED) from error
