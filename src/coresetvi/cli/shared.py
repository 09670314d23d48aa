"""The options that `fit` and `compare` share: one more is one more field here."""

from __future__ import annotations  # as text, the annotations need no typer

import contextlib
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from .._checks import check_choice
from ..data.labels import Labels
from ..data.rows import Rows
from ..data.tables import read_table
from ..models.base import Model
from .choices import FAMILIES, LABEL_KINDS, MODELS, build_model, infer_model, learn_set
from .row_tables import TableSource, read_rows
from .table_size import parse_memory

with contextlib.suppress(ImportError):
    from .options import (
        BatchSize,
        Classes,
        DataFiles,
        Drop,
        FamilyName,
        FixedColumns,
        Hidden,
        Init,
        Learn,
        Memory,
        ModelName,
        NoIntercept,
        Noise,
        PriorScale,
        RowWeights,
        Scheduler,
        Seed,
        Steps,
        Target,
    )


class TableTask(NamedTuple):
    """A table, what its labels mean, and the model for it by name and as itself."""

    dataset: Rows
    labels: Labels
    name: str
    model: Model


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """What to model and how; each field is an argument or an option of a command."""

    data: DataFiles
    target: Target = None
    model: ModelName = "auto"
    weights: RowWeights = None
    drop: Drop = None
    fixed: FixedColumns = None
    no_intercept: NoIntercept = False
    prior_scale: PriorScale = 1.0
    noise: Noise = None
    hidden: Hidden = None
    classes: Classes = None
    learn: Learn = None
    init: Init = None
    family: FamilyName = "auto"
    steps: Steps = None
    batch_size: BatchSize = None
    seed: Seed = 0
    memory: Memory = "1GB"
    scheduler: Scheduler = None

    @property
    def source(self) -> TableSource:
        """The table that DATA means."""
        return TableSource(tuple(self.data), self.memory, self.scheduler)

    def check(self) -> None:
        """Refuse words that are unknown, before anything is read."""
        check_choice("model", self.model, MODELS)
        check_choice("family", self.family, FAMILIES)
        parse_memory(self.memory)

    def read(self) -> TableTask:
        """The table, and the model that was asked for or that its target suggests."""
        kind = "numbers" if self.classes == 0 else LABEL_KINDS.get(self.model)
        kind = kind or ("classes" if self.classes else "auto")
        columns = (self.target, self.weights, self.drop or ())
        if self.source.is_plain:
            dataset, labels = read_table(
                self.source.name,
                *columns,
                kind=kind,
                num_classes=self.classes or None,
                fixed=self.fixed or (),
            )
        else:
            dataset, labels = read_rows(self.source, *columns, kind, self.classes or None, self.fixed or ())
        name = infer_model(labels) if self.model == "auto" else self.model
        intercept = not self.no_intercept
        model = build_model(name, dataset, labels, intercept, self.prior_scale, self.noise, self.hidden)
        return TableTask(dataset, labels, name, model)

    def construction_options(self) -> dict[str, object]:
        """The options of a construction; None for what was not given."""
        return {
            "family": FAMILIES[self.family],
            "learn": learn_set(self.learn),
            "init": self.init,
            "batch_size": self.batch_size,
        }


def takes_task(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `task` becomes the fields of `TaskOptions`, in the place where it stands."""
    fields = [field.name for field in dataclasses.fields(TaskOptions)]

    @functools.wraps(command)
    def with_fields(**given: Any) -> None:
        task = TaskOptions(**{name: given.pop(name) for name in fields})
        command(task=task, **given)

    if "DataFiles" in globals():  # without typer nobody asks for the parameters
        own, more = parameters_of(command), parameters_of(TaskOptions)
        place = [part.name for part in own].index("task")
        parameters = [*own[:place], *more, *own[place + 1 :]]
        with_fields.__signature__ = inspect.Signature(parameters)  # pyright: ignore
        with_fields.__annotations__ = {part.name: part.annotation for part in parameters}
    return with_fields


def parameters_of(command: Callable[..., object]) -> list[inspect.Parameter]:
    """Parameters with their annotations as typer wants them."""
    hints = typing.get_type_hints(command, include_extras=True)
    # By keyword only, for then those without a default may come after those with one.
    return [
        part.replace(kind=part.KEYWORD_ONLY, annotation=hints[part.name])
        for part in inspect.signature(command).parameters.values()
    ]
