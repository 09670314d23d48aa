"""Named data sets. Each loader returns `(train, test)`, both `Dataset`, with labels 0..C-1.

Files are looked for in `$CORESETVI_DATA`, then in the user's cache (`$XDG_CACHE_HOME/coresetvi` or
`~/.cache/coresetvi`). Adult is downloaded into the cache if `pooch` is installed.
"""

import gzip
import importlib
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .data import Dataset
from .errors import InputError

Pair = tuple[Dataset, Dataset]


class Source(NamedTuple):
    """Where a file comes from: what it is, and its address and checksum if it can be downloaded."""

    about: str
    url: str | None = None
    sha256: str | None = None


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
SOURCES = {
    "phishing_large.npz": Source("UCI Phishing Websites, as prepared for bayesian-coresets"),
    "nslkdd.npz": Source("NSL-KDD network intrusion, University of New Brunswick"),
    "adult.data": Source(
        "UCI Adult, CC BY 4.0",
        _UCI + "adult.data",
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    ),
    "adult.test": Source(
        "UCI Adult, CC BY 4.0",
        _UCI + "adult.test",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    ),
}

_BROKEN = (OSError, EOFError, ValueError, zlib.error)  # what reading a damaged file may raise
_NUM_TEST = 1000  # size of the test sets drawn for halfmoon and four_class
_ADULT_ROWS = {"adult.data": 32_561, "adult.test": 16_281}
_ADULT_NUMBERS = (0, 4, 10, 11, 12)  # age, education-num, capital-gain and -loss, hours-per-week
_ADULT_CATEGORIES = (1, 5, 6, 7, 8, 9, 13)  # workclass, marital-status, ..., native-country


def halfmoon(n: int = 1000, noise: float = 0.1, seed: int = 0) -> Pair:
    """Two interleaved half circles of radius 1 with Gaussian noise: n training, 1000 test points.

    >>> train, test = halfmoon(n=200)
    >>> train.x.shape, len(test), sorted(set(train.y.tolist()))
    ((200, 2), 1000, [0, 1])
    """
    if not noise >= 0:
        raise InputError(f"noise is {noise}; it must be zero or more")

    def draw(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        angle = rng.uniform(0.0, np.pi, len(labels))
        upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        lower = np.stack([1.0 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
        points = np.where(labels[:, None] == 0, upper, lower)
        return points + noise * rng.standard_normal(points.shape)

    return _drawn(draw, n, 2, seed)


def four_class(n: int = 1000, seed: int = 0) -> Pair:
    """Four Gaussian clusters in the plane, one per class: n training and 1000 test points.

    Means are at (+-1, +-1) and the standard deviation is 0.5, so that neighbours overlap a little:
    the best possible accuracy is 95.5 %.

    >>> train, test = four_class(n=200)
    >>> train.x.shape, sorted(set(train.y.tolist()))
    ((200, 2), [0, 1, 2, 3])
    """
    means = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])

    def draw(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
        return means[labels] + 0.5 * rng.standard_normal((len(labels), 2))

    return _drawn(draw, n, 4, seed)


def synthetic_lr(n: int = 1000, dim: int = 10, seed: int = 0) -> Pair:
    """Logistic regression of Supplement G: x ~ N(0, I), theta = 5 * ones; 20 % of n for testing.

    >>> train, test = synthetic_lr(dim=5)
    >>> train.x.shape, test.x.shape
    ((800, 5), (200, 5))
    """
    _at_least("n", n, 2)
    _at_least("dim", dim, 1)
    _at_least("seed", seed, 0)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, dim))
    # P(y = 1) = sigmoid(x theta): a logistic variable lies below x theta with that probability.
    y = (rng.logistic(size=n) < 5.0 * x.sum(axis=1)).astype(int)
    num_test = max(1, round(0.2 * n))
    return _named(x[num_test:], y[num_test:]), _named(x[:num_test], y[:num_test])


def phishing() -> Pair:
    """UCI Phishing Websites: 9,950 and 1,105 rows of 10 projected features and a ones column.

    Label 1 is what the file calls +1, label 0 is -1.
    """
    arrays = _arrays("phishing_large.npz", ("X", "y", "Xt", "yt"), labels=(-1, 1))
    columns = (*(f"feature_{number}" for number in range(1, 11)), "ones")
    x, y, x_test, y_test = arrays
    return _named(x, y > 0, columns, "label"), _named(x_test, y_test > 0, columns, "label")


def nslkdd(*, shifted: bool = False) -> Pair:
    """NSL-KDD network intrusion: 100,779 and 25,194 rows of 122 scaled features and a ones column.

    It stands in for webspam in size (126 k rows, 127 features). It is NOT webspam, and no number
    obtained on it may be compared with the paper's webspam numbers. `shifted=True` gives the
    official test set instead (22,544 rows), whose distribution differs from that of training.
    """
    test = ("Xo", "yo") if shifted else ("Xt", "yt")
    x, y, x_test, y_test, names = _arrays("nslkdd.npz", ("X", "y", *test, "feature_names"))
    columns = tuple(names.tolist())
    return _named(x, y > 0, columns, "attack"), _named(x_test, y_test > 0, columns, "attack")


def adult() -> Pair:
    """UCI Adult census income, from the raw files: 30,162 and 15,060 rows; label 1 is over 50K.

    Rows with a missing entry are dropped, numbers standardised, categories one-hot encoded, and all
    of it projected on the first 10 principal components of the training rows; then a ones column.
    """
    tables, features = [_adult_rows("adult.data"), _adult_rows("adult.test")], []
    train_numbers, train_rows = tables[0]
    mean, deviation = train_numbers.mean(axis=0), train_numbers.std(axis=0)
    for numbers, rows in tables:
        parts = [(numbers - mean) / deviation]
        for column in _ADULT_CATEGORIES:
            parts.append(rows[:, [column]] == np.unique(train_rows[:, column]))
        features.append(np.concatenate(parts, axis=1))
    x, x_test = features
    centre = x.mean(axis=0)
    _, vectors = np.linalg.eigh((x - centre).T @ (x - centre))
    vectors = vectors[:, :-11:-1]  # eigh sorts upwards; the ten largest, largest first
    # An eigenvector has no sign of its own: make its largest entry positive.
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(10)])
    columns = (*(f"component_{number}" for number in range(1, 11)), "ones")

    def project(values: np.ndarray, rows: np.ndarray) -> Dataset:
        scores = (values - centre) @ vectors
        income = rows[:, -1] == ">50K"
        return _named(np.c_[scores, np.ones(len(scores))], income, columns, "over_50k")

    return project(x, tables[0][1]), project(x_test, tables[1][1])


_ALL: tuple[Any, ...] = (halfmoon, four_class, synthetic_lr, phishing, adult, nslkdd)
_LOADERS: dict[str, Callable[..., Pair]] = {loader.__name__: loader for loader in _ALL}


def names() -> tuple[str, ...]:
    """The names that `load` knows.

    >>> "halfmoon" in names()
    True
    """
    return tuple(_LOADERS)


def load(name: str, **options: Any) -> Pair:
    """`(train, test)` of the data set of that name.

    >>> len(load("halfmoon", n=50)[0])
    50
    """
    if name not in _LOADERS:
        raise InputError(f"there is no data set {name!r}; choose one of {', '.join(_LOADERS)}")
    return _LOADERS[name](**options)


def _named(x: Any, y: Any, columns: Any = None, target: str | None = None) -> Dataset:
    return Dataset(x, np.asarray(y).astype(int), columns=columns, target=target)


def _at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise InputError(f"{name} is {value}; it must be at least {minimum}")


def _drawn(draw: Callable[..., np.ndarray], n: int, num_classes: int, seed: int) -> Pair:
    """Balanced classes in random order, with a stream per set, so n does not move the test set."""
    _at_least("n", n, num_classes)
    _at_least("seed", seed, 0)
    pair = []
    for stream, size in enumerate((n, _NUM_TEST)):
        rng = np.random.default_rng([seed, stream])
        labels = rng.permutation(np.arange(size) % num_classes)
        pair.append(_named(draw(rng, labels), labels))
    return pair[0], pair[1]


def _folders() -> list[Path]:
    given, cache = os.environ.get("CORESETVI_DATA"), os.environ.get("XDG_CACHE_HOME")
    cached = (Path(cache) if cache else Path.home() / ".cache") / "coresetvi"
    return [Path(given), cached] if given else [cached]


def _find(name: str) -> Path:
    """The file, or its gzipped form; downloaded if that is possible."""
    folders = _folders()
    for folder in folders:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    looked = f"{name} was not found in {' or '.join(map(str, folders))}"
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
        return Path(pooch.retrieve(source.url, known_hash, fname=name, path=folders[-1]))
    except Exception as error:  # whatever the network does, a person wants one sentence
        reason = " ".join(str(error).split())
        raise InputError(f"{looked} and {source.url} gave an error ({reason}); {remedy}") from error


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} is damaged ({reason}); replace it with an intact copy")


def _arrays(name: str, keys: tuple[str, ...], labels: tuple[int, int] = (0, 1)) -> list[np.ndarray]:
    """Arrays of an .npz file, checked to be (rows, columns) and labels in turn."""
    path = _find(name)
    try:
        # Opened here, because numpy leaves a broken archive open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = [archive[key] for key in keys]
    except (*_BROKEN, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise _damaged(path, " ".join(str(error).split())) from error
    for x, y, key in zip(arrays[0:4:2], arrays[1:4:2], keys[0:4:2], strict=True):
        if x.ndim != 2 or x.dtype.kind != "f" or not np.isfinite(x).all():
            raise _damaged(path, f"{key} is not a table of finite numbers")
        if y.shape != x.shape[:1] or not np.isin(y, labels).all():
            raise _damaged(path, f"{key} needs one label of {labels} per row")
    return arrays


def _adult_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers, and all fields as strings, of the complete rows of a raw Adult file."""
    path = _find(name)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="ascii") as file:
            # Comments and blank lines have fewer fields; the test file ends its rows with a dot.
            lines = [line.strip(" .\r\n").split(",") for line in file if line.count(",") == 14]
        rows = np.array([[field.strip() for field in line] for line in lines])
        if len(rows) != _ADULT_ROWS[name]:
            raise ValueError(f"{len(rows)} data rows instead of {_ADULT_ROWS[name]}")
        if not np.isin(rows[:, -1], ("<=50K", ">50K")).all():
            raise ValueError("an income other than <=50K and >50K")
        rows = rows[~(rows == "?").any(axis=1)]
        return rows[:, _ADULT_NUMBERS].astype(float), rows
    except _BROKEN as error:
        raise _damaged(path, " ".join(str(error).split())) from error
