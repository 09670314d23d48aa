"""A directory that always holds a state from which the fit can go on to the same outcome."""

import hashlib
import json
import os
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from .._checks import short
from .._registry import encode
from ..constructions.schedule import Schedule
from ..data.dataset import Dataset
from ..errors import InputError
from . import artefact
from .history import History
from .steps import Position, Run

# Seconds between two writes: often enough to lose little, seldom enough to cost nothing.
INTERVAL = 10.0


class Checkpoint:
    """Keeps a fit on disk when `path` is given, and does nothing when it is None."""

    def __init__(self, path: object, resume: bool, construction, model, data, keys, num_steps):
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise InputError(f"checkpoint must be the path of a directory, not {short(path)}.")
        self._path = None if path is None else Path(path)
        self._resume = resume
        self._written = time.monotonic()
        self._fingerprint = ""
        if self._path is None:
            if resume:
                raise InputError("resume=True needs checkpoint= to say from which directory.")
            return
        if self._path.exists() and not resume:
            raise InputError(
                f"{self._path} exists already; pass resume=True to continue from it, "
                "or choose another directory."
            )
        if not resume:
            artefact.check_target(self._path)
        self._fingerprint = fingerprint(construction, model, data, keys, num_steps)

    def restore(self, run: Run, schedule: Schedule) -> tuple[History, Schedule, Schedule, dict[str, float]]:
        """History, schedule, the one without a time limit, and seconds; puts the saved states into `run`."""
        if self._path is None or not self._resume or not self._path.exists():
            return History(), schedule, schedule, {"compile": 0.0, "run": 0.0}
        arrays, document = artefact.read(self._path, kind="checkpoint")
        if document["fingerprint"] != self._fingerprint:
            raise InputError(
                f"{self._path} belongs to a fit with other data, model, settings or key; "
                "repeat the call it was made with, or choose another directory."
            )
        leaves, structure = jax.tree.flatten((run.position.state, run.position.alive))
        leaves = [jax.numpy.asarray(arrays[f"state.{i}"]) for i in range(len(leaves))]
        state, alive = jax.tree.unflatten(structure, leaves)
        past = {name[8:]: values for name, values in arrays.items() if name.startswith("history.")}
        history = History.restore(past)
        run.position = Position(state, alive, len(history))
        schedule = document["schedule"]
        planned = document.get("planned", schedule)  # older checkpoints have none
        return history, Schedule(*schedule), Schedule(*planned), document["seconds"]

    def keep(
        self, run: Run, history: History, schedules: tuple[Schedule, Schedule], seconds, now=False
    ) -> None:
        """Write the state if it is time; `schedules` are those that `restore` returns."""
        if self._path is None or len(history) == 0:
            return
        if not now and time.monotonic() - self._written < INTERVAL:
            return
        leaves = jax.tree.leaves((run.position.state, run.position.alive))
        arrays = {f"state.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        arrays |= {f"history.{name}": values for name, values in history.arrays().items()}
        document = {
            "fingerprint": self._fingerprint,
            "schedule": list(schedules[0]),
            "planned": list(schedules[1]),
            "seconds": seconds,
        }
        artefact.write(self._path, arrays, document, kind="checkpoint", overwrite=True)
        self._written = time.monotonic()


def fingerprint(construction, model, data, keys, num_steps) -> str:
    """A digest of everything that decides the outcome of a fit."""
    digest = hashlib.sha256()
    settings = [encode(construction), encode(model), model.dim, num_steps]
    digest.update(json.dumps(settings, sort_keys=True).encode())
    if not isinstance(data[0], Dataset):
        digest.update(data[0].fingerprint().encode())
    # Models of user functions have no name to compare, but their starting parameters tell most of them apart.
    arrays = eqx.filter((data, model), eqx.is_array)
    for leaf in (*jax.tree.leaves(arrays), jax.random.key_data(keys)):
        array = np.asarray(leaf)
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
