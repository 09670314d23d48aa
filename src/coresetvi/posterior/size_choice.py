"""`choose_size`: the smallest of a growing series of coresets that does what is asked of it."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import instance, short, whole_number
from .._keys import host_generator, one_key
from ..constructions.base import Construction, with_size
from ..constructions.bbpsvi import BBPSVI
from ..constructions.group_start import most_groups, too_few_points
from ..constructions.moving_columns import columns_that_stay
from ..constructions.parametrisation import parametrise
from ..constructions.plain_passes import rows_to_choose_from
from ..constructions.reference import FullVI
from ..constructions.starts import stratified_rows
from ..data.column_limits import column_facts
from ..data.dataset import Dataset, concatenate
from ..data.rows import Rows
from ..errors import InputError
from ..fitting.loop import fit
from ..fitting.result import Fit
from ..models.base import Model
from ..models.row_checks import check_rows
from .certificate import TRUST_KL, Certificate, largest_kl
from .correction import ROWS_WANTED
from .diagnosis import diagnose

SMALLEST, GROWTH = 10, 2
# Part of the total weight that newly added points begin with: enough to be moved, too little to disturb.
NEW_SHARE = 0.1


class SizeRow(TypedDict):
    """What was found of one size."""

    size: int
    kl: float
    kl_error: float
    khat: float
    verdict: str
    nll: float
    seconds: float
    gap: NotRequired[float]


@dataclasses.dataclass(frozen=True)
class SizeChoice:
    """The fit that was chosen, whether it does what was asked, and everything that was tried.

    `tried` has one row per size: size, kl, kl_error, khat, verdict, nll, seconds, and with `nll_gap` gap.
    `note` is a sentence about what the size leaves out, if that can be told: groups without a point.
    """

    fit: Fit
    certificate: Certificate
    met: bool
    goal: str
    tried: list[SizeRow]
    note: str | None = None

    @property
    def size(self) -> int:
        """Points of the chosen coreset."""
        return len(self.fit.coreset)

    def __str__(self) -> str:
        names = [name for name in self.tried[0] if name != "kl_error"]
        values = [[_shown(value) for name, value in row.items() if name in names] for row in self.tried]
        cells = [names, *values]
        widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
        table = [
            "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells
        ]
        end = f"{self.size} points do." if self.met else f"No size up to {self.size} does."
        notes = [] if self.note is None else ["", self.note]
        return "\n".join([f"Wanted: {self.goal}. {end}", "", *table, *notes])

    __repr__ = __str__


def choose_size(
    model: Model,
    data: Rows,
    target_kl: float | None = None,
    *,
    nll_gap: float | None = None,
    held_out: Rows | None = None,
    construction: Construction | None = None,
    sizes: Sequence[int] | None = None,
    max_size: int = 1000,
    key: int | PRNGKeyArray,
    num_samples: int = 1000,
    progress: bool | None = None,
) -> SizeChoice:
    """Grow a coreset until its certificate holds, each size starting from what the one before had learned.

    The goal is KL(coreset posterior || full posterior) of at most `target_kl` nats (0.1 unless given) with a
    k-hat below its threshold; or, with `nll_gap`, a negative log-likelihood on `held_out` (else on rows of
    `data`) that is at most this fraction above that of variational inference on all of the data.
    `sizes` are tried in order; by default 10, 20, 40, … up to `max_size` and the number of rows; where a
    column does not move, such as a group number, the first size has a point for each of its values.
    `construction` says how coresets are made; its own size is not used. `data` need not be in memory.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=300, dim=2)
    >>> choice = choose_size(cvi.models.LogisticRegression(2), train, target_kl=0.05, key=0)
    >>> choice.met, choice.size
    (True, 10)
    """
    instance("model", model, Model, "a model such as LogisticRegression(3)")
    instance("data", data, Rows, ROWS_WANTED)
    if target_kl is not None and nll_gap is not None:
        raise InputError("Pass target_kl or nll_gap, not both; each is a goal by itself.")
    for name, value in (("target_kl", target_kl), ("nll_gap", nll_gap)):
        if value is not None and not value > 0:
            raise InputError(f"{name} must be positive, not {short(value)}.")
    construction = BBPSVI(SMALLEST) if construction is None else construction
    instance("construction", construction, Construction, "a construction such as BBPSVI(size=10)")
    if "size" not in {field.name for field in dataclasses.fields(construction)}:
        raise InputError(f"{type(construction).__name__} has no size to choose; use BBPSVI or BBSparseVI.")
    target_kl = TRUST_KL if target_kl is None else target_kl
    data, root = check_rows(model, data), one_key(key)
    best_nll = None
    if nll_gap is not None:
        yardstick = fit(FullVI(), model, data, key=jax.random.fold_in(root, 2**31 - 1), progress=progress)
        best_nll = yardstick.evaluate(data if held_out is None else held_out, correct=False)["nll"]
    tried: list[SizeRow] = []
    still = columns_that_stay(model, data)
    fitted = certificate = None
    met = False
    for number, size in enumerate(series(sizes, max_size, data, most_groups(data, still))):
        began = time.perf_counter()
        fit_key, grow_key, judge_key = jax.random.split(jax.random.fold_in(root, number), 3)
        initial = None
        if fitted is not None and construction.takes_initial:
            initial = grow(fitted.coreset, data, size, construction, model, grow_key)
        fitted = fit(
            with_size(construction, size), model, data, key=fit_key, initial=initial, progress=progress
        )
        if fitted.result == "non_finite":
            raise InputError(f"The fit with {size} points turned non-finite; {fitted.explanation}")
        certificate = diagnose(
            fitted, data, held_out=held_out, num_samples=num_samples, key=judge_key, progress=progress
        )
        row = size_row(size, certificate, time.perf_counter() - began)
        if best_nll is None:
            met = certificate.verdict not in ("enlarge", "unclear") and row["kl"] <= target_kl
        else:
            row["gap"] = row["nll"] / best_nll - 1.0 if best_nll > 0 else row["nll"] - best_nll
            met = nll_gap is not None and row["gap"] <= nll_gap
        tried.append(row)
        if met or fitted.result == "interrupted":
            break
    assert fitted is not None and certificate is not None
    goal = f"KL of at most {target_kl:g} nats" if nll_gap is None else f"NLL gap of at most {nll_gap:g}"
    note = too_few_points(data, still, len(fitted.coreset))
    return SizeChoice(fitted, certificate, met, goal, tried, note)


def series(sizes: Sequence[int] | None, max_size: int, data: Rows, least: int = 0) -> list[int]:
    """The sizes to try, none larger than the data; by default from `least` on."""
    rows = int(np.count_nonzero(np.asarray(data.weights))) if isinstance(data, Dataset) else data.num_rows
    if sizes is not None:
        found = sorted({whole_number("sizes", size) for size in sizes})
        if not found:
            raise InputError("sizes is empty; name at least one size.")
        return found
    most = min(whole_number("max_size", max_size), rows)
    found = [min(max(SMALLEST, least), most)]
    while found[-1] < most:
        found.append(min(GROWTH * found[-1], most))
    return found


def grow(
    coreset: Dataset, data: Rows, size: int, construction: Any, model: Model, key: PRNGKeyArray
) -> Dataset:
    """The coreset with rows of the data added up to `size`; the total weight stays what it was."""
    if not isinstance(data, Dataset):
        data = rows_to_choose_from(data, size, key)
    still = columns_that_stay(model, data)
    parametrisation = parametrise(data, construction.weights, frozenset(), model.num_classes, still)
    weights = np.array(data.weights)
    if coreset.indices is not None:
        # No row twice. Indices are those of the larger set that the data may be part of.
        own = np.arange(len(data)) if data.indices is None else np.asarray(data.indices)
        weights[np.isin(own, np.asarray(coreset.indices))] = 0.0
    unused = Dataset(data.x, data.y, weights, **column_facts(data))
    rows = stratified_rows(unused, size - len(coreset), parametrisation, host_generator(key))
    new, total = data.take(rows), float(coreset.total_weight)
    labels = new.y
    if labels is not None and coreset.y is not None and coreset.y.ndim > labels.ndim:
        labels = jax.nn.one_hot(labels, coreset.y.shape[1])
    share = NEW_SHARE * (size - len(coreset)) / size
    return concatenate(
        Dataset(
            coreset.x,
            coreset.y,
            coreset.weights * (1.0 - share),
            indices=coreset.indices,
            **column_facts(coreset),
        ),
        Dataset(
            new.x,
            labels,
            jnp.full(len(rows), share * total / len(rows)),
            indices=None if coreset.indices is None else new.indices,
            **column_facts(coreset),
        ),
    )


def size_row(size: int, certificate: Certificate, seconds: float) -> SizeRow:
    """One row of `SizeChoice.tried`."""
    scores = certificate.held_out or certificate.train
    return {
        "size": size,
        "kl": largest_kl(certificate.posterior),
        "kl_error": certificate.posterior["kl_error"],
        "khat": certificate.posterior["khat"],
        "verdict": certificate.verdict,
        "nll": scores["nll"],
        "seconds": seconds,
    }


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
