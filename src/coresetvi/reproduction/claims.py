"""Whose cell it is: several processes may work in one folder, each at another cell."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..workflows import records

try:
    import fcntl
except ImportError:  # Windows: there, one process at a time
    fcntl = None


@contextlib.contextmanager
def claim(out: Path, name: str) -> Iterator[bool]:
    """Hold the cell of that name; False if another process holds it.

    The system lets go of it when the process ends, however that happens.
    """
    if fcntl is None:
        yield True
        return
    place = out / records.FOLDER / f".{name}.claim"
    with open(place, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            place.unlink(missing_ok=True)


def busy(out: Path) -> bool:
    """Whether a process is at work in the folder."""
    found = [place.name[1:].removesuffix(".claim") for place in (out / records.FOLDER).glob(".*.claim")]
    for name in found:
        with claim(out, name) as free:
            if not free:
                return True
    return False
