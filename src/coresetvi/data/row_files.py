"""Rows of files that are read again for every pass: Parquet and CSV, one or many."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from .column_files import FILE_KINDS, ColumnFile, open_columns
from .column_use import WantedColumns, choose_columns, piece_of
from .files import check_suffix
from .pieces import Piece
from .row_source import RowSource


class FilePart(NamedTuple):
    """Some of the row groups of a file, or all of it; `first` is the number of its first row in the file."""

    path: Path
    groups: tuple[int, ...] | None = None
    first: int = 0


class RowFiles(RowSource):
    """Files with the same columns, one after another; what changes on the disk between passes is refused."""

    def __init__(self, paths: Sequence[Path], wanted: WantedColumns, name: str):
        self.name, self.paths = name, list(paths)
        self.stamps = {path: stamp(path) for path in self.paths}
        self.counts: dict[Path, int] = {}
        self.first = open_columns(self.paths[0])
        self.use = choose_columns(self.first.names, wanted, str(self.paths[0]))
        self.everything = wanted.columns is None
        self.columns, self.target = self.use.columns, self.use.target
        self.named, self.settled = True, self.target is None

    def identity(self) -> list[str]:
        return [f"{path.name} {self.stamps[path][0]}" for path in self.paths]

    def read(self, length: int) -> Iterator[Piece]:
        for path in self.paths:
            count = 0
            for piece in self.read_part(FilePart(path), length):
                count += len(piece)
                yield piece
                del piece  # or two would be alive while the next is read
            if self.counts.setdefault(path, count) != count:
                raise changed(path)

    def read_part(self, part: FilePart, length: int) -> Iterator[Piece]:
        """The rows of one file, or of some of its row groups."""
        path, number = part.path, part.first
        self._check_unchanged(path)
        try:
            file = open_columns(path)
            self._check_columns(path, file)
            for table, size in file.batches(self.use, length, part.groups):
                if size:
                    yield piece_of(table, self.use, str(path), number)
                number += size
        except InputError:
            # What went wrong may be that somebody is writing the file.
            self._check_unchanged(path)
            raise
        self._check_unchanged(path)

    def parts(self, path: Path, length: int) -> list[FilePart]:
        """The file in parts that can be read by themselves, of about `length` rows if row groups allow."""
        self._check_unchanged(path)
        sizes = open_columns(path).group_sizes()
        if sizes is None:
            return [FilePart(path)]
        found, groups, first, rows = [], [], 0, 0
        for group, size in enumerate(sizes):
            if groups and rows + size > length:
                found.append(FilePart(path, tuple(groups), first))
                groups, first, rows = [], first + rows, 0
            groups.append(group)
            rows += size
        return [*found, FilePart(path, tuple(groups), first)]

    def _check_unchanged(self, path: Path) -> None:
        try:
            same = stamp(path) == self.stamps[path]
        except InputError as error:
            raise InputError(
                f"{path} has vanished since it was first read; restore it, or scan again without it"
            ) from error
        if not same:
            raise changed(path)

    def _check_columns(self, path: Path, file: ColumnFile) -> None:
        """Refuse a file whose columns are not those of the first."""
        start = self.paths[0]
        choose_columns(file.names, WantedColumns(), str(path))  # which refuses two columns of one name
        for name in self.use.all:
            if name not in file.names:
                raise InputError(f"{path} lacks the column {name!r} that {start} has; add it to that file")
            kinds = file.kind(name), self.first.kind(name)
            if file.typed(name, self.use) and kinds[0] != kinds[1] and None not in kinds:
                raise InputError(
                    f"{path} has {kinds[0]} in column {name!r}, but {start} has {kinds[1]}; "
                    "give that column the same type in all files"
                )
        if extra := [name for name in file.names if self.everything and name not in self.use.all]:
            raise InputError(
                f"{path} has the column {extra[0]!r} that {start} lacks; "
                "add it to that file, or name the columns to read with columns="
            )


def find_files(source: str | os.PathLike[str]) -> list[Path]:
    """The files of a path, a folder or a pattern such as "rows/*.parquet", in sorted order."""
    path = Path(source)
    if path.is_dir():
        inside = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith((".", "_"))]
        for entry in inside:
            if entry.is_dir():
                raise InputError(
                    f"{path} has the folder {entry.name!r} in it; "
                    f"pass a pattern that names the files, such as '{path}/*/*.parquet'"
                )
        if not inside:
            raise InputError(f"{path} is an empty folder; pass one with files of rows")
        found = inside
    elif path.exists():
        found = [path]
    elif glob.has_magic(str(source)):
        found = [Path(name) for name in sorted(glob.glob(str(source), recursive=True))]
        if not found:
            raise InputError(f"no file matches {source}; check the pattern")
    else:
        raise InputError(f"{path} does not exist; check the path")
    for file in found:
        check_file_to_read(file)
    return found


def check_file_to_read(path: Path) -> None:
    """Refuse what is no file of rows."""
    if not path.exists():
        raise InputError(f"{path} does not exist; check the path")
    if path.is_dir():
        raise InputError(f"{path} is a folder among files; pass it alone, or name its files")
    check_suffix(path, FILE_KINDS)


def stamp(path: Path) -> tuple[int, int]:
    """Size and time of the last change."""
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path") from error
    return found.st_size, found.st_mtime_ns


def changed(path: Path) -> InputError:
    return InputError(f"{path} has changed since it was first read; restore it, or scan it again")
