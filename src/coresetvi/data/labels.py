"""Target columns as labels: classes of any type become 0 … C-1, numbers stay numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._checks import some
from ..errors import InputError
from .arrays import Naming, as_numbers

# More different whole numbers than this are taken for amounts, not for classes.
MOST_CLASSES = 20


class Labels(NamedTuple):
    """What the target is: its name, and the classes that 0 … C-1 stand for (None for plain numbers)."""

    target: str
    classes: tuple[str | int, ...] | None


def encode_labels(
    values: np.ndarray, target: str, kind: str = "auto", num_classes: int | None = None
) -> tuple[np.ndarray, tuple[str | int, ...] | None]:
    """Codes 0 … C-1 and what they stand for, or the values and None if they are plain numbers.

    >>> encode_labels(np.array([1, -1, 1]), "y")
    (array([1, 0, 1]), (-1, 1))
    """
    if kind == "numbers":
        naming = Naming(f"target {target!r}", "use kind='classes' for classes")
        return as_numbers(values, naming).astype(float), None
    text = values.dtype == object
    found, codes = np.unique(values, return_inverse=True)
    if kind == "auto" and len(found) > MOST_CLASSES and (text or values.dtype.kind in "iu"):
        try:
            return as_numbers(values, Naming("", "")).astype(float), None
        except InputError:
            raise InputError(
                f"target {target!r} holds text with {len(found)} different values; "
                "if they are classes, say so with kind='classes'"
            ) from None
    if values.dtype.kind == "f":
        broken = ~np.isfinite(values) | (values != np.floor(values))
        # Two whole numbers are classes even when written as 0.0 and 1.0; more of them may be amounts.
        if kind == "auto" and (broken.any() or len(found) != 2):
            return values, None
        if broken.any():
            row = broken.argmax()
            raise InputError(
                f"target {target!r} has {values[row]:g} in row {row}, not a class; "
                "use kind='numbers' for amounts"
            )
        found = found.astype(np.int64)
    classes = tuple(found.tolist())
    if num_classes is not None and num_classes != len(classes):
        if text or min(classes) < 0 or max(classes) >= num_classes:
            raise InputError(
                f"target {target!r} has {len(classes)} classes ({some(classes)}), not the {num_classes} "
                "of num_classes=; leave it out, or encode the labels as 0 to C-1"
            )
        return values.astype(np.int64), tuple(range(num_classes))
    if len(classes) < 2:
        raise InputError(
            f"target {target!r} holds a single class ({some(classes)}); "
            "a classification needs rows of at least two classes"
        )
    return codes, classes


def known_codes(values: np.ndarray, target: str, classes: Sequence[object]) -> np.ndarray:
    """Labels of new rows in the codes of a fit that knows `classes`.

    >>> known_codes(np.array([1.0, -1.0]), "y", (-1, 1)).tolist()
    [1, 0]
    """
    code_of = {name: code for code, name in enumerate(classes)}
    # A file may write the classes '1' and '2' of a column of text as numbers when the others are absent.
    text = all(isinstance(name, str) for name in classes)
    labels, rows, inverse = np.unique(values, return_index=True, return_inverse=True)
    codes = []
    for label, row in zip(labels.tolist(), rows.tolist(), strict=True):
        label = int(label) if isinstance(label, float) and label.is_integer() else label
        label = str(label) if text else label
        if label not in code_of:
            raise InputError(
                f"target {target!r} has {label!r} in row {row}, which the fit does not know; "
                f"its classes are {some(classes)}"
            )
        codes.append(code_of[label])
    return np.array(codes)[inverse]
