"""Scores of predictions as sums over rows, so that rows can come in blocks."""

import dataclasses

import numpy as np

# Confidence bins of the expected calibration error.
CALIBRATION_BINS = 15
# What is told of a classifier besides its `nll`.
CLASS_SCORES = ("accuracy", "brier", "ece")


@dataclasses.dataclass(frozen=True)
class ScoreSums:
    """Weighted sums of rows: their weight, negative log-densities, and errors of a mean where there is one.

    >>> one = ScoreSums(2.0, 3.0, squares=np.array([8.0]))
    >>> (one + one).averages()
    {'nll': 1.5, 'rmse': 2.0}
    """

    weight: float
    nll: float
    squares: np.ndarray | None = None  # one number for each column of the labels
    classes: np.ndarray | None = None  # see `class_sums`

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        return ScoreSums(
            self.weight + other.weight,
            self.nll + other.nll,
            None if self.squares is None or other.squares is None else self.squares + other.squares,
            None if self.classes is None or other.classes is None else self.classes + other.classes,
        )

    def averages(self) -> dict[str, float]:
        """The scores by name."""
        found = {"nll": float(self.nll / self.weight)}
        if self.squares is not None:
            found["rmse"] = float(np.sqrt(np.mean(self.squares / self.weight)))
        return found if self.classes is None else found | averages_of(self.classes, self.weight)


def class_scores(chances: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """How good class probabilities (n, C) are: `accuracy`, `brier` and `ece`, averages over weighted rows.

    The Brier score is sum_c (p_c - 1[y = c])^2. The expected calibration error is the distance between the
    accuracy and the mean confidence of the rows in one of 15 equal bins of confidence, averaged over bins by
    their weight.

    >>> chances = np.array([[0.9, 0.1], [0.6, 0.4]])
    >>> class_scores(chances, np.array([0, 1]), np.ones(2))
    {'accuracy': 0.5, 'brier': 0.37, 'ece': 0.35}
    """
    return averages_of(class_sums(chances, labels, weights), float(weights.sum()))


def class_sums(chances: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sums over rows: hits, Brier's squares, and hits less confidence in every bin of confidence."""
    hits = chances.argmax(axis=1) == labels
    confidence = chances.max(axis=1)
    squares = np.sum((chances - (labels[:, None] == np.arange(chances.shape[1]))) ** 2, axis=1)
    bins = np.clip(np.ceil(confidence * CALIBRATION_BINS).astype(int) - 1, 0, CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, weights=weights * (hits - confidence), minlength=CALIBRATION_BINS)
    return np.concatenate([[weights @ hits, weights @ squares], gaps])


def averages_of(sums: np.ndarray, weight: float) -> dict[str, float]:
    """The scores of classes from what `class_sums` found."""
    values = (sums[0], sums[1], np.abs(sums[2:]).sum())
    return {name: float(value / weight) for name, value in zip(CLASS_SCORES, values, strict=True)}
