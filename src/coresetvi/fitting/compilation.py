"""Compiled programs: room for them in a process that fits many models, and a place on the disk."""

import contextlib
import gc
import os
from pathlib import Path

import jax

from ..storage import cache_folder

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# Part of the allowed memory maps at which room is made: a fit needs about a fiftieth of them.
FULL = 0.6


def make_room() -> bool:
    """Drop compiled programs when a process is about to have too many; says whether it did.

    XLA maps memory for every program, about a thousand maps a fit, and Linux ends a process that wants more
    than it allows (65,530 by default) without a word. Programs that are needed again are compiled again, or
    read from JAX's cache on disk. Systems that do not count maps have nothing to fear.
    """
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


def enable_compilation_cache() -> None:
    """Keep compiled programs for the next run, unless the user has said where or that is not possible."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    with contextlib.suppress(OSError, RuntimeError):  # no home, no permission, no room: then without
        place = cache_folder() / "jit"
        place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(place))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
