"""How the command line speaks: results to standard output, notes and errors to standard error.

The only place that prints.
"""

import ast
import contextlib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import NoReturn

from .._json import one_line, plain
from ..errors import CoresetviError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit codes

# The library speaks of its arguments, and these are what the command line calls them.
FLAGS = {
    **{name: f"--{name}" for name in ("target", "weights", "drop", "fixed", "model", "classes", "method")},
    **{name: f"--{name}" for name in ("size", "sizes", "keys", "learn", "init", "family", "to")},
    **{name: f"--{name}" for name in ("methods", "checkpoint", "resume", "overwrite")},
    "batch_size": "--batch-size",
    "num_steps": "--steps",
    "memory": "--memory",
    "client": "--scheduler",
    "num_classes": "--classes",
    "share": "--test-share",
}
PHRASES = {
    "kind='classes'": "--model logistic or softmax",
    "kind='numbers'": "--model linear",
    "a larger num_steps": "a larger --steps",
    "another folder": "another --out",
    "leave that column out with columns=": "leave that column out with --drop",
    "or name the columns to read with columns=": "or leave it out with --drop",
}
# name=True, name='text', name=['list'], name=0.5, or name= and no value; not within a path or a quotation.
ARGUMENT = re.compile(
    rf"""(?<![\w./\\'"=-])({"|".join(FLAGS)})="""
    r"""(True\b|'[^']*'|"[^"]*"|\[(?:'[^']*'|"[^"]*"|[\d, ])*\]|-?\d[\w.+-]*(?=[ ,;)])|(?=[ ,;.)]|$))"""
)


def in_flags(sentence: str) -> str:
    """A sentence of the library in the words of the command line.

    >>> in_flags("a.csv exists already; choose another name or pass overwrite=True")
    'a.csv exists already; choose another name or pass --overwrite'
    >>> in_flags("target='z' is not a column; leave it out with drop=['a b'], or name it with target=")
    "--target 'z' is not a column; leave it out with --drop 'a b', or name it with --target"
    """
    for phrase, flag in PHRASES.items():
        sentence = sentence.replace(phrase, flag)
    return ARGUMENT.sub(_flag, sentence)


def _flag(found: re.Match[str]) -> str:
    flag, value = FLAGS[found[1]], found[2]
    if value in ("", "True"):
        return flag
    if value.startswith("["):
        value = shlex.quote(",".join(map(str, ast.literal_eval(value))))
    return f"{flag} {value}"


def say(sentence: str) -> None:
    """A sentence on standard output."""
    # Not through rich, which would break lines, and paths with them.
    print(sentence)


def complain(sentence: str, as_json: bool = False, word: str = "error") -> None:
    """A sentence on standard error, and for machines on standard output too."""
    print(f"{word}: {sentence}", file=sys.stderr)
    if as_json:
        print_json({word: sentence})


def print_json(summary: Mapping[str, object]) -> None:
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


def leave(code: int = 0) -> NoReturn:
    """End the command with this exit code."""
    import typer  # where a command runs, it is there

    raise typer.Exit(code)


@contextlib.contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Errors meant for people become a sentence and an exit code; anything else is a bug and stays one."""
    try:
        yield
    except CoresetviError as error:
        complain(in_flags(str(error)), as_json)
        leave(BAD_INPUT)
    except KeyboardInterrupt:
        complain("interrupted", as_json)
        leave(INTERRUPTED)
