"""Room for compiled programs, in the process and on the disk: see to it before anything is compiled."""

import gc
from pathlib import Path

import jax

from .._programs import keep_programs

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# Part of the allowed memory maps at which room is made: a fit needs about a fiftieth of them.
FULL = 0.6


def make_room() -> bool:
    """Drop compiled programs when a process is about to have too many; says whether it did.

    Also lets JAX keep programs on the disk, unless the user does not want that.

    XLA maps memory for every program, about a thousand maps a fit, and Linux ends a process that wants more
    than it allows (65,530 by default) without a word. Programs that are needed again are compiled again, or
    read from JAX's cache on disk. Systems that do not count maps have nothing to fear.
    """
    keep_programs()
    try:
        limit = int(LIMIT.read_text())
        with MAPS.open("rb") as maps:
            used = sum(1 for _ in maps)
    except (OSError, ValueError):
        return False
    if used < FULL * limit:
        return False
    jax.clear_caches()
    gc.collect()
    return True
