"""What happened at every step, as arrays."""

import numpy as np

from .._info import Info

# What every fit records; a construction may add names of its own.
RECORDS = (*(name for name in Info._fields if name != "more"), "seconds")


class History:
    """Per-step records of all trials: `history["loss"]` has shape (steps, trials), `seconds` (steps,)."""

    def __init__(self):
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in RECORDS}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> np.ndarray:
        parts = self._parts[name]
        if len(parts) > 1:
            # Joined once, not at every look.
            self._parts[name] = parts = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0)

    def extend(self, info: Info, count: int, before: float, elapsed: float) -> None:
        """Add `count` steps that took `elapsed` seconds, after `before` seconds of earlier ones."""
        common = {name: getattr(info, name) for name in RECORDS if name != "seconds"}
        for name, values in (common | info.more).items():
            self._parts.setdefault(name, []).append(np.asarray(values)[:count])
        self._parts["seconds"].append(before + elapsed * np.arange(1, count + 1) / count)
        self._length += count

    def cut(self, steps: int) -> None:
        """Forget what came after the first `steps`."""
        for name in self._parts:
            if self._parts[name]:
                self._parts[name] = [self[name][:steps]]
        self._length = steps

    def arrays(self) -> dict[str, np.ndarray]:
        """All records by name."""
        return {name: self[name] for name in self._parts}

    def trial(self, index: int) -> dict[str, np.ndarray]:
        """The records of one trial, each of shape (steps,)."""
        return {
            name: values if values.ndim == 1 else values[:, index] for name, values in self.arrays().items()
        }

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray]) -> "History":
        """A history from what `arrays` returned."""
        history = cls()
        history._parts = {name: [values] for name, values in arrays.items()}
        history._length = len(arrays["seconds"])
        return history
