"""A progress bar on a terminal, silence elsewhere."""

import sys
from typing import TYPE_CHECKING

from .history import History
from .steps import Run

if TYPE_CHECKING:
    import rich.progress


class Progress:
    """Context manager; `wanted=None` shows a bar only when standard error is a terminal."""

    def __init__(self, wanted: bool | None):
        self._bar: "rich.progress.Progress | None" = None
        self._wanted = sys.stderr.isatty() if wanted is None else wanted

    def __enter__(self) -> "Progress":
        if self._wanted:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("compiling", total=None)
        return self

    def update(self, run: Run, total: int, history: History) -> None:
        """Show how far a run is: steps and the latest loss, or passes, their pace and the latest KL."""
        if self._bar is None:
            return
        done = len(history)
        if run.plan.by_passes:
            seconds = history["seconds"][-1] / done
            pace, left = run.plan.data.num_rows / seconds, seconds * (total - done)
            words = f"KL {history['kl'][-1].mean():.3g}  {pace:,.0f} rows/s  at most {left:,.0f} s left"
        else:
            words = f"loss {history['loss'][-1].mean():.5g}  ESS {history['ess'][-1].mean():.2f}"
        self.show(words, done, total)

    def show(self, words: str, done: int, total: int) -> None:
        """Show `done` of `total` and a few words."""
        if self._bar is not None:
            self._bar.update(self._task, description=words, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
