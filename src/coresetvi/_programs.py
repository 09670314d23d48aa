"""Compiled programs on the disk: what one process has compiled, the next one reads.

JAX keeps them; this module says where, sees that they do not pile up, and does nothing if the user has told
JAX something else.
"""

import contextlib
import functools
import os
import warnings
import zlib
from pathlib import Path

import jax

from .storage import cache_folder

# Turns all of this off: CORESETVI_CACHE=off.
VARIABLE, OFF = "CORESETVI_CACHE", ("off", "no", "false", "0")
# Bytes from which the programs that were not used for longest are deleted, down to the second number. One fit
# with draws and a certificate needs about a million.
MOST, LEFT = 256 * 2**20, 192 * 2**20
# How the names end that JAX gives to programs, and the file whose time says when they were last looked at.
ENDING, MARK = "-cache", "checked"
ZLIB = b"\x78"


@functools.cache
def keep_programs() -> Path | None:
    """Let JAX keep compiled programs in the user's cache; returns the folder, None if nothing is kept.

    Does so once per process, unless `CORESETVI_CACHE=off`, JAX has been told about a cache or told to use
    none, or the folder cannot be written. Everything is kept: a program that takes 30 ms to compile takes
    5 ms to read, and there are a hundred of them. It is machine code, so nobody else may write to the folder.
    """
    if os.environ.get(VARIABLE, "").lower() in OFF or chosen_by_user():
        return None
    with contextlib.suppress(OSError, RuntimeError):  # no home, no permission, no room: then without
        place = cache_folder() / "jit"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(place) and os.access(place, os.W_OK):
            tidy(place)
            # A program that cannot be read or written is compiled, which needs no words.
            warnings.filterwarnings("ignore", r"Error (reading|writing) persistent compilation cache entry")
            jax.config.update("jax_compilation_cache_dir", str(place))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            return place
    return None


def chosen_by_user() -> bool:
    """Whether somebody has told JAX where to keep programs, or not to."""
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR") or jax.config.values["jax_compilation_cache_dir"]
    return bool(given) or not jax.config.values["jax_enable_compilation_cache"]


def is_private(place: Path) -> bool:
    """Whether the folder is this user's own, after others have been shut out; what is in it will be run."""
    if not hasattr(os, "geteuid"):
        return True
    if place.stat().st_uid != os.geteuid():
        return False
    place.chmod(0o700)
    return True


def tidy(place: Path, most: int = MOST, left: int = LEFT) -> None:
    """Delete programs that are not whole, and, once there are too many, those that were not used for longest.

    JAX may leave half a program, when the disk is full or the process is killed, and never overwrites one:
    it would be compiled in every process to come. Only what is new since the last look is read.
    """
    mark = place / MARK
    last = mark.stat().st_mtime if mark.exists() else 0.0
    mark.touch()
    found = []
    for file in os.scandir(place):
        with contextlib.suppress(OSError):  # another process may have deleted it
            about = file.stat()
            if not file.name.endswith(ENDING):
                continue
            if about.st_mtime >= last and not is_whole(Path(file)):
                os.unlink(file)
            else:
                found.append((max(about.st_atime, about.st_mtime), about.st_size, file.path))
    total = sum(size for _, size, _ in found)
    if total <= most:
        return
    for _, size, path in sorted(found):
        if total <= left:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            total -= size


def is_whole(program: Path) -> bool:
    """Whether a kept program can be unpacked; one that was packed in another way than usual is believed."""
    packed = program.read_bytes()
    if packed and packed[:1] != ZLIB:
        return True
    try:
        zlib.decompress(packed)
    except zlib.error:
        return False
    return True
