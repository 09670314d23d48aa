"""Data sets that are drawn, not read: the same for the same seed."""

from collections.abc import Callable

import numpy as np

from ..data.dataset import Dataset
from ..errors import InputError
from .folder import Pair

_NUM_TEST = 1000  # size of the test sets drawn for halfmoon and four_class


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
    return _labelled(x[num_test:], y[num_test:]), _labelled(x[:num_test], y[:num_test])


def _labelled(x: np.ndarray, y: np.ndarray) -> Dataset:
    return Dataset(x, y.astype(int))


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
        pair.append(_labelled(draw(rng, labels), labels))
    return pair[0], pair[1]
