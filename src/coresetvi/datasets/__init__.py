"""Named data sets. Each loader returns `(train, test)`, both `Dataset`; classes are labelled 0..C-1.

Files are looked for in `$CORESETVI_DATA`, then in the user's cache (`$XDG_CACHE_HOME/coresetvi` or
`coresetvi` where this system keeps caches, on Linux `~/.cache`). Adult is downloaded into the
cache if `pooch` is installed.
"""

import functools
from collections.abc import Callable
from types import FunctionType

from ..errors import InputError
from .classification import adult, nslkdd, phishing, webspam
from .folder import REGRESSIONS, SOURCES, Pair, Source
from .image_files import mnist
from .regressions import uci
from .synthetic import four_class, halfmoon, synthetic_lr

__all__ = [
    "SOURCES",
    "Pair",
    "Source",
    "adult",
    "four_class",
    "halfmoon",
    "load",
    "mnist",
    "names",
    "nslkdd",
    "phishing",
    "synthetic_lr",
    "uci",
    "webspam",
]

_ALL: tuple[FunctionType, ...] = (halfmoon, four_class, synthetic_lr, phishing, adult, nslkdd, webspam, mnist)
_LOADERS: dict[str, Callable[..., Pair]] = {
    **{loader.__name__: loader for loader in _ALL},
    **{f"uci_{name}": functools.partial(uci, name) for name in REGRESSIONS},
}


def names() -> tuple[str, ...]:
    """The names that `load` knows.

    >>> "halfmoon" in names()
    True
    """
    return tuple(_LOADERS)


def load(name: str, **options: object) -> Pair:
    """`(train, test)` of the data set of that name; `uci(name)` goes by the name of its file.

    >>> len(load("halfmoon", n=50)[0])
    50
    """
    if name not in _LOADERS:
        raise InputError(f"there is no data set {name!r}; choose one of {', '.join(_LOADERS)}")
    return _LOADERS[name](**options)
