"""A cell is one fit of an experiment. Several processes may work in one folder, each on another cell."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from coresetvi.workflows import records

ALL = "all"  # in the place of a size, for methods that take all rows
LOCK = ".claim"  # how the file ends that a process holds while it works on a cell


@dataclasses.dataclass(frozen=True)
class PaperCell:
    """One fit of an experiment; `size` is None for methods that take all rows."""

    problem: str
    method: str
    size: int | None
    key: int

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.problem}-{self.method}-{ALL if self.size is None else self.size}-{self.key}"

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "PaperCell":
        """The cell that a record is of."""
        return cls(*(record[field.name] for field in dataclasses.fields(cls)))

    def __str__(self) -> str:
        points = "all rows" if self.size is None else f"{self.size} points"
        return f"{self.problem}, {self.method}, {points}, key {self.key}"


@contextlib.contextmanager
def claim(out: Path, name: str) -> Iterator[bool]:
    """Hold the cell of that name; False if another process holds it.

    The system lets go of it when the process ends, however that happens.
    """
    place = out / records.FOLDER / f".{name}{LOCK}"
    lock = FileLock(place)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        # While it is held: whoever opens the file from now on opens a new one. Windows removes it itself.
        with contextlib.suppress(OSError):
            place.unlink()
        lock.release()


def is_busy(out: Path) -> bool:
    """Whether a process is at work in the folder."""
    places = (out / records.FOLDER).glob(f".*{LOCK}")
    for name in [place.name[1:].removesuffix(LOCK) for place in places]:
        with claim(out, name) as free:
            if not free:
                return True
    return False
