"""An experiment with its data: what a cell is made of, and what its record depends on."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

import coresetvi as cvi
from coresetvi.configuration import encode
from coresetvi.errors import InputError
from coresetvi.posterior.distances import Moments, laplace_moments
from coresetvi.workflows.records import digest

from .cells import PaperCell
from .experiment import Experiment
from .toml_objects import build


class LoadedProblem(NamedTuple):
    """A problem with all its parts: rows to fit, rows to score on, their digest, the model, and another."""

    train: cvi.Dataset
    test: cvi.Dataset
    digest: str
    model: cvi.models.Model
    other: cvi.models.Model | None


@dataclasses.dataclass(frozen=True)
class Grid:
    """An experiment with its problems, each loaded when first asked for."""

    experiment: Experiment
    loaded: dict[str, LoadedProblem] = dataclasses.field(default_factory=dict)
    full_moments: dict[str, Moments] = dataclasses.field(default_factory=dict)

    def problem(self, name: str) -> LoadedProblem:
        """The problem of that id."""
        if name not in self.loaded:
            one = self.experiment.problem(name)
            train, test = one.load()
            test = test.take(np.arange(len(test))[: self.experiment.num_test])
            model = build(one.model, f"the model of problem {name!r}")
            other = None if one.transfer is None else build(one.transfer, f"the transfer of {name!r}")
            self.loaded[name] = LoadedProblem(train, test, digest(train, test), model, other)
        return self.loaded[name]

    def moments(self, name: str) -> Moments:
        """Mean and covariance of a problem's Laplace posterior given all rows, found once."""
        if name not in self.full_moments:
            problem = self.problem(name)
            self.full_moments[name] = laplace_moments(problem.model, problem.train)
        return self.full_moments[name]

    def transfers(self, cell: PaperCell) -> bool:
        """Whether the other model is trained on the coreset of this cell."""
        sizes = self.experiment.method(cell.method).transfer
        return cell.size in sizes and self.problem(cell.problem).other is not None

    def fingerprint(self, cell: PaperCell) -> dict[str, Any]:
        """All that the record of a cell depends on besides its key, which is in its name."""
        experiment, problem = self.experiment, self.problem(cell.problem)
        return {
            "experiment": experiment.folder,
            "data": problem.digest,
            "model": encode(problem.model),
            "construction": encode(experiment.construction(cell)),
            "budget": experiment.minutes_of(cell),
            "protocol": self.protocol(cell),
        }

    def protocol(self, cell: PaperCell) -> dict[str, Any]:
        """How a cell is made and scored, as far as its measure looks at it."""
        experiment, method = self.experiment, self.experiment.method(cell.method)
        common = {"num_samples": experiment.num_samples, "num_steps": experiment.steps_of(cell)}
        if experiment.measure != "fresh":
            made = {"measure": experiment.measure, "detail": experiment.detail}
            return common | made | {"driver": method.driver, "stages": method.stages}
        return common | {
            "retrain": method.retrain,
            "fresh_steps": method.fresh_steps or experiment.fresh_steps,
            "transfer": encode(self.problem(cell.problem).other) if self.transfers(cell) else None,
        }


def open_grid(experiment: Experiment) -> tuple[Grid, list[str]]:
    """The experiment with its data, without optional problems whose files are missing, and notes on those."""
    loaded: dict[str, LoadedProblem] = {}
    whole, kept, notes = Grid(experiment, loaded), [], []
    for problem in experiment.problems:
        try:
            if problem.optional:
                whole.problem(problem.id)
        except InputError as error:
            notes.append(f"{problem.id} is left out: {error}")
        else:
            kept.append(problem)
    if not kept:
        raise InputError(f"{experiment.name} has no data: {notes[0]}")
    return Grid(dataclasses.replace(experiment, problems=tuple(kept)), loaded), notes
