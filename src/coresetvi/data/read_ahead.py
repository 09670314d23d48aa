"""Reading ahead: a thread makes the next item while the caller works on this one."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import jax

Item = TypeVar("Item")

# How long a caller that stops early waits for the thread to notice; a source that hangs is left behind.
PATIENCE = 10.0


def read_ahead(source: Callable[[], Iterator[Item]], depth: int = 1) -> Iterator[Item]:
    """The items of `source()`, made in a thread that is at most `depth` items and the one in hand ahead.

    An exception in the thread comes out here as itself. When the caller stops, for whatever reason, so does
    the thread. `source` is called in the thread too, for some files and connections belong to one thread.

    >>> list(read_ahead(lambda: iter("abc")))
    ['a', 'b', 'c']
    """
    reader: Reader[Item] = Reader(source, depth, bool(jax.config.read("jax_enable_x64")))
    reader.start()
    try:
        while True:
            item, error, ended = reader.items.get()
            if error is not None:
                raise error
            if ended:
                return
            yield item  # pyright: ignore[reportReturnType]
            del item  # or two items would be alive while the next is waited for
    finally:
        reader.stop()


class Reader(threading.Thread, Generic[Item]):
    """The thread behind `read_ahead`; it puts (item, error, whether it has ended) into a short queue."""

    def __init__(self, source: Callable[[], Iterator[Item]], depth: int, double: bool):
        super().__init__(name="coresetvi-read-ahead", daemon=True)
        self.source, self.double = source, double
        self.items: queue.Queue[tuple[Item | None, BaseException | None, bool]] = queue.Queue(depth)
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            with jax.enable_x64(self.double):  # the caller's float type, which JAX keeps per thread
                iterator = self.source()
                try:
                    for item in iterator:
                        if not self._put((item, None, False)):
                            return
                        del item
                finally:
                    if callable(close := getattr(iterator, "close", None)):
                        close()
            self._put((None, None, True))
        except BaseException as error:  # also what is no Exception: the caller must not wait for ever
            self._put((None, error, True))

    def _put(self, message: tuple[Item | None, BaseException | None, bool]) -> bool:
        """Hand over one message; False if nobody wants it any more."""
        while not self.stopped.is_set():
            try:
                self.items.put(message, timeout=0.05)
                return True
            except queue.Full:
                continue
        return False

    def stop(self) -> None:
        """Tell the thread to end, and wait for it."""
        self.stopped.set()
        self.join(PATIENCE)
