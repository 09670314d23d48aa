"""Tables that are not read into memory: larger than --memory, or spread over several files."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import jax

from .._checks import some
from ..data.column_files import open_columns
from ..data.column_limits import column_facts
from ..data.dataset import Dataset, unchecked
from ..data.labels import Labels, encode_labels, known_codes
from ..data.rows import Rows
from ..data.scan import scan
from ..errors import InputError
from .label_values import LabelValues, as_floats, label_values, recoded
from .table_size import bytes_in_memory, is_one_file, list_files, parse_memory

Result = TypeVar("Result")
open_rows: Callable[..., Rows] = scan


@dataclasses.dataclass(frozen=True)
class TableSource:
    """The paths of a command line that mean one table, and how much of it may be in memory.

    >>> TableSource((Path("people.csv"),)).name
    PosixPath('people.csv')
    """

    paths: tuple[Path, ...]
    memory: str = "1GB"
    scheduler: str | None = None

    @property
    def name(self) -> Path:
        """What things that are made of the table are named after."""
        return self.paths[0]

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    @functools.cached_property
    def files(self) -> list[Path]:
        """All of its files."""
        return list_files(self.paths)

    @property
    def is_small(self) -> bool:
        """Whether all rows may be in memory."""
        limit = parse_memory(self.memory)
        return self.scheduler is None and bytes_in_memory(self.files) <= limit

    @property
    def is_plain(self) -> bool:
        """Whether it is one file that may be in memory, which needs nothing of what is here."""
        limit = parse_memory(self.memory)
        if not is_one_file(self.paths) or self.scheduler is not None:
            return False
        # Of NPZ files, numpy reads arrays as a whole.
        if self.name.name.lower().endswith(".npz"):
            return True
        try:
            return bytes_in_memory(self.paths) <= limit
        except InputError:  # whoever opens it has a sentence for that
            return True

    def header(self) -> list[str]:
        """The names of its columns."""
        return open_columns(self.files[0]).names

    def scan(
        self,
        columns: Sequence[str],
        target: str | None,
        weights: str | None,
        fixed: Sequence[str] = (),
    ) -> Rows:
        """Its rows, read whenever they are needed."""
        paths = self.paths[0] if len(self.paths) == 1 else list(self.paths)
        more = {} if self.scheduler is None else {"client": self.scheduler}
        return open_rows(paths, columns=columns, target=target, weights=weights, fixed=fixed, **more)

    def target_type(self, target: str) -> str:
        """What Arrow calls the type of the target in the first file."""
        return str(open_columns(self.files[0]).schema.field(target).type)


def read_rows(
    source: TableSource,
    target: str | None,
    weights: str | None,
    drop: Sequence[str],
    kind: str,
    num_classes: int | None,
    fixed: Sequence[str] = (),
) -> tuple[Rows, Labels]:
    """Rows to fit and what their labels mean, by the rules of `read_table`; in memory if they are few."""
    names = source.header()
    if target is None:
        raise InputError(
            f"which column of {source} is the target? name it with target=; it has {some(names)}"
        )
    given = {"target": [target], "weights": [] if weights is None else [weights], "drop": drop}
    check_names(source, names, fixed=fixed, **given)
    if target in (weights, *drop):
        raise InputError(f"target={target!r} is also given as weights= or drop=; name it only once")
    columns = [name for name in names if name not in (target, weights, *drop)]
    if not columns:
        raise InputError(f"{source} has no columns besides the target and weights; add at least one")
    if "" in columns:
        raise InputError(
            f"column {names.index('')} of {source} has no name (often it is a saved index); "
            "name it, or leave it out with drop=['']"
        )
    rows = source.scan(columns, target, weights, fixed)
    rows, classes = code_labels(source, rows, target, kind, num_classes)
    return (in_memory(rows) if source.is_small else rows), Labels(target, classes)


def code_labels(
    source: TableSource, rows: Rows, target: str, kind: str, num_classes: int | None
) -> tuple[Rows, tuple[str | int, ...] | None]:
    """Rows with labels as `encode_labels` would give them, and the classes that they stand for."""
    found = None if kind == "numbers" and rows.classes is None else values_of(source, rows, target)
    if found is None:
        if kind == "classes":
            raise InputError(
                f"target {target!r} has too many different values for classes; use kind='numbers' for amounts"
            )
        return as_floats(rows), None
    codes, classes = without_rows(lambda: encode_labels(found.values, target, kind, num_classes))
    return (as_floats(rows), None) if classes is None else (recoded(rows, found, codes), classes)


def rows_like(
    source: TableSource, like: Dataset, target: str | None, weights: str | None, drop: Sequence[str]
) -> Rows:
    """Rows with the columns of an earlier data set, by name, or by position if that has none."""
    names = source.header()
    given = {"target": target, "weights": weights}
    check_names(source, names, drop=drop, **{key: [name] for key, name in given.items() if name is not None})
    others = [name for name in names if name not in (target, weights, *drop)]
    if like.columns is None:
        if len(others) != like.dim:
            raise InputError(
                f"{source} has {len(others)} columns of inputs, but the fit was made for {like.dim}; "
                "pass the same columns in the same order"
            )
        return source.scan(others, target, weights)
    if missing := [name for name in like.columns if name not in others]:
        listed = ", ".join(map(repr, missing[:10]))
        raise InputError(
            f"{source} lacks {len(missing)} of the {len(like.columns)} columns that the fit needs "
            f"({listed}); add them under these names"
        )
    return source.scan(like.columns, target, weights)


def in_classes(source: TableSource, rows: Rows, target: str, classes: Sequence[object] | None) -> Rows:
    """Rows with their labels in the codes of a fit that knows `classes`; None stands for numbers."""
    if classes is None:
        return code_labels(source, rows, target, "numbers", None)[0]
    found = values_of(source, rows, target)
    if found is None:
        raise InputError(
            f"target {target!r} has too many different values, but the fit knows {len(classes)} classes"
        )
    return recoded(rows, found, without_rows(lambda: known_codes(found.values, target, classes)))


def values_of(source: TableSource, rows: Rows, target: str) -> LabelValues | None:
    """All labels that there are; None if they are too many for classes."""
    return label_values(rows, source.target_type(target))


def without_rows(encode: Callable[[], Result]) -> Result:
    """What `encode` returns; its complaints are about different labels, so they must not name a row."""
    try:
        return encode()
    except InputError as error:
        raise InputError(re.sub(r" in row \d+", "", str(error))) from error


def in_memory(rows: Rows) -> Dataset:
    """All rows as a data set."""
    data = rows.sample(jax.random.key(0), rows.num_rows)
    return unchecked(data.x, data.y, data.weights, **column_facts(data))


def check_names(source: TableSource, names: Sequence[str], **arguments: Sequence[str]) -> None:
    """Refuse names that are no columns of the table, by the argument that has them."""
    for argument, wanted in arguments.items():
        for name in wanted:
            if name not in names:
                raise InputError(f"{argument}={name!r} is not a column of {source}; it has {some(names)}")
