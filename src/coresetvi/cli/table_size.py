"""How large the tables on a command line are, and whether they may be read into memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..data.files import damaged, load_pyarrow
from ..data.row_files import find_files
from ..errors import InputError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
# A CSV file that is compressed is about so many times larger when it is not.
PACKED = 4


def parse_memory(text: str) -> int:
    """A size such as "500MB" in bytes.

    >>> parse_memory("500MB"), parse_memory("1.5 gb"), parse_memory("1000")
    (500000000, 1500000000, 1000)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)?", text.strip(), re.IGNORECASE)
    size = 0 if found is None else int(float(found[1]) * UNITS[(found[2] or "").upper()])
    if size < 1:
        raise InputError(f"--memory {text!r} is no size; write it like 500MB, 2GB or a number of bytes")
    return size


def list_files(paths: Sequence[Path]) -> list[Path]:
    """The files that the paths of a command line mean: a file, a folder, a pattern, or several files."""
    if len(paths) > 1:
        return list(paths)
    return find_files(paths[0])


def is_one_file(paths: Sequence[Path]) -> bool:
    """Whether this is a single file, or the name of one that is not there."""
    return len(paths) == 1 and not paths[0].is_dir() and not any(sign in str(paths[0]) for sign in "*?[")


def bytes_in_memory(files: Sequence[Path]) -> int:
    """About how many bytes the columns of these files take, by what can be known without reading them."""
    return sum(map(size_of, files))


def size_of(path: Path) -> int:
    """The same of one file."""
    try:
        if path.name.lower().endswith(".parquet"):
            pyarrow = load_pyarrow()
            try:
                with pyarrow.parquet.ParquetFile(path) as file:
                    groups = range(file.metadata.num_row_groups)
                    return sum(file.metadata.row_group(number).total_byte_size for number in groups)
            except (pyarrow.ArrowException, ValueError) as error:
                raise damaged(path, str(error)) from error
        return path.stat().st_size * (PACKED if path.name.lower().endswith(".gz") else 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the path") from error
