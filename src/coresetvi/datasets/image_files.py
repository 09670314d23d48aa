"""MNIST from its four original files.

The IDX format of those files: two zero bytes, the type of the entries (8 is an unsigned byte), the number of
axes, the length of each axis as a big-endian 32-bit number, then the entries, last axis fastest.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from ..data.dataset import Dataset
from ..errors import InputError
from . import folder as files
from .folder import Pair

_UNSIGNED_BYTE = 8
_SIDE = 28
_LEVELS = 256
_CHUNK = 1000  # images whose grey levels are counted at a time: counting widens every byte to eight


def mnist(num_train: int | None = None) -> Pair:
    """MNIST handwritten digits: 60,000 and 10,000 images of shape (28, 28, 1), labels 0 to 9.

    Grey levels in 0 … 1 are standardised with one mean and one standard deviation, those of all pixels of all
    training images, so the background is the same negative number (about -0.42) everywhere. `num_train` keeps
    only that many training images, the first ones; units and test set stay the same.

    >>> train, test = mnist(num_train=100)
    >>> train.x.shape, test.x.shape
    ((100, 28, 28, 1), (10000, 28, 28, 1))
    """
    images, labels = _read("train")
    if num_train is not None and not 1 <= num_train <= len(images):
        raise InputError(
            f"num_train is {num_train}; it must be from 1 to {len(images)}, as many as there are"
        )
    mean, deviation = _grey_moments(images)
    train = _standardised(images[:num_train], labels[:num_train], mean, deviation)
    del images, labels
    return train, _standardised(*_read("t10k"), mean, deviation)


def _grey_moments(images: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of all pixels in units of 0 … 1, from exact counts of the grey levels."""
    counts = np.zeros(_LEVELS, np.int64)
    for start in range(0, len(images), _CHUNK):
        counts += np.bincount(images[start : start + _CHUNK].reshape(-1), minlength=_LEVELS)
    levels = np.arange(_LEVELS) / (_LEVELS - 1)
    mean = float(np.average(levels, weights=counts))
    # Images that are all alike have no scale of their own.
    return mean, math.sqrt(np.average((levels - mean) ** 2, weights=counts)) or 1.0


def _standardised(images: np.ndarray, labels: np.ndarray, mean: float, deviation: float) -> Dataset:
    return Dataset(_in_units(images, mean, deviation), labels, target="digit")


@jax.jit
def _in_units(images, mean, deviation):
    # Compiled as one pass from bytes to float32, which leaves no copies of 190 MB on the way.
    return (images[..., None].astype(jnp.float32) / (_LEVELS - 1) - mean) / deviation


def _read(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28) and labels (n,) of a part, "train" or "t10k", in bytes."""
    images = _entries(f"{part}-images-idx3-ubyte", (_SIDE, _SIDE))
    labels = _entries(f"{part}-labels-idx1-ubyte", ())
    path = files.find(f"{part}-labels-idx1-ubyte")
    if len(labels) != len(images):
        raise files.damaged(path, f"{len(labels)} labels for {len(images)} images")
    if labels.max() > 9:
        raise files.damaged(path, f"a label is {labels.max()}, not a digit")
    return images, labels


def _entries(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The bytes of an IDX file, one entry of `shape` after another."""
    path = files.find(name)
    try:
        with files.unpacked(path)(path, "rb") as file:
            content = file.read()
    except files.BROKEN as error:
        raise files.damaged(path, error) from error
    num_axes = 1 + len(shape)
    magic, start = bytes([0, 0, _UNSIGNED_BYTE, num_axes]), 4 * (1 + num_axes)
    if content[:4] != magic or len(content) < start:
        raise files.damaged(path, f"it does not begin like {name}")
    count, *sides = np.frombuffer(content, ">i4", num_axes, offset=4).tolist()
    if count < 1 or tuple(sides) != shape:
        raise files.damaged(path, f"{count} entries of shape {tuple(sides)} instead of {shape}")
    expected = count * math.prod(shape)
    if len(content) - start != expected:
        raise files.damaged(path, f"{len(content) - start} bytes of entries instead of {expected}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(count, *shape)
