"""A grid of fits, methods by sizes by keys, every one scored on rows that it has not seen. Prints nothing."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from .._registry import encode
from .._version import __version__
from ..constructions.base import Construction
from ..constructions.by_name import METHODS, build_construction, refusal, takes
from ..data.dataset import Dataset
from ..errors import CoresetviError, InputError
from ..fitting.loop import fit as fit_coreset
from ..models.base import Model
from ..models.score_sums import CLASS_SCORES
from ..posterior.distances import Moments, gaussian_kl, laplace_moments
from .records import Record, digest

NUM_DRAWS = 1000  # for effective sample size and k-hat
# Beyond so many parameters a Laplace approximation, which needs the whole Hessian, is not worth its time.
LARGEST_LAPLACE = 128
# What a record says about a fit, besides the scores of classes or the rmse.
NUMBERS = ("nll", "kl", "ess", "khat", "seconds", "compile_seconds", "steps", "coreset_size", "total_weight")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One fit of the grid; `size` is None for methods that take all rows."""

    method: str
    size: int | None
    key: int

    @property
    def name(self) -> str:
        """What its record is called."""
        return f"{self.method}-{'all' if self.size is None else self.size}-{self.key}"

    def __str__(self) -> str:
        points = "all rows" if self.size is None else f"{self.size} points"
        return f"{self.method}, {points}, key {self.key}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What the fits have in common. An option goes to those methods that have it."""

    model: Model
    train: Dataset
    test: Dataset
    options: dict[str, object] = dataclasses.field(default_factory=dict)
    num_steps: int | None = None

    def construction(self, cell: Cell) -> Construction:
        """The construction of a cell, with its options."""
        options = {name: value for name, value in self.options.items() if takes(cell.method, name)}
        return build_construction(cell.method, cell.size, **options)

    def fingerprint(self, cell: Cell) -> Record:
        """All that the record of a cell depends on besides its key, which is in its name."""
        return {
            "data": self.digest,
            "model": encode(self.model),
            "version": __version__,
            "construction": {"method": cell.method, "settings": encode(self.construction(cell))},
            "steps": self.num_steps,
        }

    @functools.cached_property
    def digest(self) -> str:
        """The content of both data sets, in a few characters."""
        return digest(self.train, self.test)

    @functools.cached_property
    def full_moments(self) -> Moments:
        """Mean and covariance of the posterior given all rows: every coreset is compared with them."""
        return laplace_moments(self.model, self.train)


def make_comparison(
    model: Model,
    train: Dataset,
    test: Dataset,
    methods: Sequence[str],
    options: dict[str, object],
    num_steps: int | None = None,
) -> Comparison:
    """A comparison whose parts fit together; refuses an option that none of the methods has."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if not any(takes(method, name) for method in methods):
            raise refusal(name, value, methods)
    test = model.check(test, fitting=False)
    if not float(test.total_weight) > 0:
        raise InputError("the rows to score on have weight 0; give some of them a positive weight")
    return Comparison(model, model.check(train), test, given, num_steps)


def list_cells(methods: Sequence[str], sizes: Sequence[int], keys: int, seed: int = 0) -> list[Cell]:
    """The grid, key by key: what an interrupt leaves is then a comparison already.

    >>> [cell.name for cell in list_cells(["full-vi", "bb-psvi"], [5, 8], keys=1)]
    ['full-vi-all-0', 'bb-psvi-5-0', 'bb-psvi-8-0']
    """
    if keys < 1:
        raise InputError(f"keys={keys} leaves nothing to fit; use at least 1")
    needing = [method for method in methods if METHODS[method].sized]
    if needing and not sizes:
        raise InputError(f"{needing[0]} needs to know how many points; say so like sizes=[10, 40, 100]")
    return [
        Cell(method, size, (seed + number) % 2**32)
        for number in range(keys)
        for method in methods
        for size in (sizes if METHODS[method].sized else [None])
    ]


def check_sizes(sizes: Sequence[int], train: Dataset) -> None:
    """Refuse sizes that the rows to fit cannot fill."""
    rows = int(np.count_nonzero(train.weights))
    if too_large := [size for size in sizes if size > rows]:
        raise InputError(
            f"sizes= has {too_large[0]}, but there are only {rows} rows to fit; use smaller ones"
        )


def run_cell(comparison: Comparison, cell: Cell) -> Record:
    """Fit one cell and score it. What goes wrong in a way meant for people is a record too."""
    model = comparison.model
    metrics = ("rmse",) if model.num_classes is None else CLASS_SCORES
    record: Record = {**dataclasses.asdict(cell), **dict.fromkeys((*metrics, *NUMBERS))}
    try:
        fit = fit_coreset(
            comparison.construction(cell),
            model,
            comparison.train,
            key=cell.key,
            num_steps=comparison.num_steps,
            progress=False,
        )
        if fit.result == "interrupted":
            raise KeyboardInterrupt  # half a fit is not a result of its method
        record |= fit.evaluate(comparison.test)
        quality = fit.reliability(NUM_DRAWS)
    except CoresetviError as error:
        return record | {"result": "failed", "explanation": str(error)}
    return record | {
        "kl": coreset_kl(comparison, cell, fit.coreset),
        "ess": quality["ess"],
        "khat": quality["khat"],
        "seconds": fit.seconds["run"],
        "compile_seconds": fit.seconds["compile"],
        "steps": fit.about["steps"],
        "coreset_size": len(fit.coreset),
        "total_weight": float(fit.coreset.total_weight),
        "result": fit.result,
        "explanation": fit.explanation,
    }


def coreset_kl(comparison: Comparison, cell: Cell, coreset: Dataset) -> float | None:
    """`posterior_kl` of a cell; None if it has no size, for a large model, or where no mode is found."""
    model = comparison.model
    if not METHODS[cell.method].sized or model.dim > LARGEST_LAPLACE:
        return None
    try:
        return posterior_kl(model, coreset, comparison.full_moments)
    except CoresetviError:
        return None


def posterior_kl(model: Model, coreset: Dataset, full: Moments) -> float:
    """KL in nats of the posterior given the coreset to that given the data, both as Laplace approximations.

    `full` are mean and covariance of the latter.
    """
    return gaussian_kl(*laplace_moments(model, coreset), *full)


def summarise(records: Sequence[Record]) -> list[Record]:
    """One row per method and size: mean and standard error over keys of every number, None where unknown."""
    groups: dict[tuple[str, int | None], list[Record]] = {}
    for record in records:
        groups.setdefault((record["method"], record["size"]), []).append(record)
    rows = []
    for (method, size), group in groups.items():
        row: Record = {"method": method, "size": size}
        row["fits"] = sum(record["result"] != "failed" for record in group)
        for name in (*CLASS_SCORES, "rmse", *NUMBERS):
            if name in group[0]:
                row[name] = mean_and_error([record[name] for record in group])
        rows.append(row)
    return rows


def mean_and_error(values: Sequence[int | float | None]) -> dict[str, float | None]:
    """Mean and its standard error of the values that there are; one value has no error.

    >>> mean_and_error([1.0, None, 3.0])
    {'mean': 2.0, 'standard_error': 1.0}
    """
    known = np.array([value for value in values if value is not None], dtype=float)
    if not known.size:
        return {"mean": None, "standard_error": None}
    with np.errstate(invalid="ignore"):  # an infinite k-hat has no deviation
        error = float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else None
    return {"mean": float(known.mean()), "standard_error": error}


def with_error(number: dict[str, float | None], digits: str) -> str:
    """A mean and its error as text; a dash for what is unknown.

    >>> with_error({"mean": 0.5, "standard_error": 0.01}, ".2f")
    '0.50 ± 0.01'
    """
    mean, error = number["mean"], number["standard_error"]
    if mean is None:
        return "-"
    return f"{mean:{digits}}" + ("" if error is None else f" ± {error:{digits}}")
