"""Finding and reading data files: folders, downloads, and one sentence about what is missing or damaged.

Files are looked for in `$CORESETVI_DATA`, then in the user's cache (`$XDG_CACHE_HOME/coresetvi` or
`coresetvi` where this system keeps caches, on Linux `~/.cache`). What has an address is downloaded into the
cache if `pooch` is installed.
"""

import gzip
import importlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..data.dataset import Dataset
from ..errors import InputError
from ..storage import cache_folder

Pair = tuple[Dataset, Dataset]  # what every loader returns: rows to fit, rows to score on


class Source(NamedTuple):
    """Where a file comes from: what it is, and its address and checksum if it can be downloaded.

    >>> SOURCES["adult.data"].about
    'UCI Adult, CC BY 4.0'
    """

    about: str
    url: str | None = None
    sha256: str | None = None


_ADULT = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_MNIST = Source("MNIST, by LeCun, Cortes and Burges")
REGRESSIONS = (
    "boston",
    "concrete",
    "energy",
    "kin8nm",
    "naval",
    "power-plant",
    "protein",
    "wine-quality-red",
    "yacht",
)
SOURCES = {
    "phishing_large.npz": Source("UCI Phishing Websites, as prepared for bayesian-coresets"),
    "nslkdd.npz": Source("NSL-KDD network intrusion, University of New Brunswick"),
    "webspam_wc_normalized_unigram.svm": Source("Webb spam corpus, unigrams, as LIBSVM has it"),
    "adult.data": Source(
        "UCI Adult, CC BY 4.0",
        _ADULT + "adult.data",
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    ),
    "adult.test": Source(
        "UCI Adult, CC BY 4.0",
        _ADULT + "adult.test",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    ),
    "train-images-idx3-ubyte": _MNIST,
    "train-labels-idx1-ubyte": _MNIST,
    "t10k-images-idx3-ubyte": _MNIST,
    "t10k-labels-idx1-ubyte": _MNIST,
    **{f"uci_{name}.npz": Source("a regression of UCI, DELVE or StatLib") for name in REGRESSIONS},
}

BROKEN = (OSError, EOFError, ValueError, zlib.error)  # what reading a damaged file may raise


def folders() -> list[Path]:
    """Where files are looked for, in this order; the last one is the cache."""
    given = os.environ.get("CORESETVI_DATA")
    return [Path(given), cache_folder()] if given else [cache_folder()]


def find(name: str) -> Path:
    """The file, or its gzipped form; downloaded if that is possible."""
    places = folders()
    for folder in places:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    looked = f"{name} was not found in {' or '.join(map(str, places))}"
    remedy = f"put {name} into the folder that $CORESETVI_DATA names"
    source = SOURCES[name]
    if source.url is None:
        raise InputError(f"{looked}; {remedy}")
    try:
        pooch = importlib.import_module("pooch")  # optional: only needed to download
    except ImportError as error:
        raise InputError(f"{looked}; {remedy}, or install pooch to download it") from error
    try:
        known_hash = f"sha256:{source.sha256}"
        return Path(pooch.retrieve(source.url, known_hash, fname=name, path=places[-1]))
    except Exception as error:  # whatever the network does, a person wants one sentence
        reason = " ".join(str(error).split())
        raise InputError(f"{looked} and {source.url} gave an error ({reason}); {remedy}") from error


def unpacked(path: Path) -> Callable[..., IO]:
    """What opens the file as it was before it was packed, if it was."""
    return gzip.open if path.suffix == ".gz" else open


def damaged(path: Path, reason: object) -> InputError:
    """The error about a file that is not what it should be."""
    return InputError(f"{path} is damaged ({' '.join(str(reason).split())}); replace it with an intact copy")


def read_arrays(path: Path, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of an .npz file by name: those asked for, or all."""
    try:
        # Opened here, because numpy leaves a broken archive open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in (archive.files if keys is None else keys)}
    except (*BROKEN, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise damaged(path, error) from error


def check_table(path: Path, key: str, values: np.ndarray) -> None:
    """A damaged-file error unless `values` is a table of finite floating-point numbers."""
    if values.ndim != 2 or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise damaged(path, f"{key} is not a table of finite numbers")
