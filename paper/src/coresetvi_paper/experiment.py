"""An experiment is data: a TOML file that says which methods run on which problems, and what the paper found.

    title, sizes, keys, budget (minutes a fit), num_samples (draws to score with), fresh_steps (of a posterior
                   that is trained anew), num_steps (of a fit, in the place of the budget)
    measure        what a cell is: one of `measures.MEASURES`; `detail` are settings of it
    says           what the paper says with it, and whether that holds here
    metric         the score of the table; `reference` is the method that gaps are measured from
    views          pictures, from `pictures.VIEWS`; `metrics` are the scores that lines are drawn of,
                   `drawing` settings of the pictures
    like           another experiment, of which this one is a view: cells of both are made once, and what is
                   not said here is as there; `only` are those of its methods that matter
    [[problems]]   id, dataset = {name, options of the loader}, model = {type, its fields}, transfer (a
                   model of flat rows), optional (true: left out where its file is missing), position (on the
                   axis of a picture, where problems are in a row), budget (if its fits need more),
                   paper = {group = options}: the paper's settings for groups of methods,
                   with num_steps or budget among them (a problem without is not run with them);
                   or problems = [names] of those in problems.toml
    [[methods]]    id, name (as the paper has it), construction (such as BBPSVI), options (of it), ours
                   (options that the paper's settings do not have), sizes,
                   driver (fit, prune or continual) and stages (its sizes before the last one), retrain
                   (false: what it fitted is a fresh posterior already), transfer (sizes), automatic (true: it
                   stops by itself, if need be before the budget is used up), fresh_steps, budget, num_steps,
                   paper (the group that it belongs to)
    paper          a table of paper.csv, or lines [problem, metric, name of the method, size or "all", mean,
                   standard error]
    [quick]        what else to use for a miniature: sizes, keys, num_steps, num_test, num_samples, dataset,
                   detail, stages, and which problems and methods

A table with a `type` becomes the registered class of that name, with None where a field of it is "none"; a
list becomes a tuple.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from coresetvi.constructions.base import Construction
from coresetvi.errors import InputError

from .cells import PaperCell
from .problems_and_methods import PaperMethod, PaperProblem

OURS, PAPER = "ours", "paper"
BOUNDS = ("num_steps", "budget")  # in a group of the paper's settings, beside options of constructions


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A grid of problems, methods, sizes and keys.

    `num_steps` bounds a fit instead of `budget`, `most_minutes` bounds it whatever else does;
    `num_test` takes only so many of the rows to score on.
    """

    name: str
    title: str
    problems: tuple[PaperProblem, ...]
    methods: tuple[PaperMethod, ...]
    measure: str = "fresh"
    detail: dict[str, Any] = dataclasses.field(default_factory=dict)
    metric: str = "accuracy"
    metrics: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    drawing: dict[str, Any] = dataclasses.field(default_factory=dict)
    reference: str | None = None
    like: str | None = None
    settings: str = OURS
    says: str = ""
    sizes: tuple[int, ...] = ()
    keys: int = 3
    budget: float = 10.0
    num_samples: int = 100
    fresh_steps: int | None = None
    num_steps: int | None = None
    most_minutes: float | None = None
    num_test: int | None = None
    paper: Any = ()
    quick: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name of the cells: those of a view are the cells of what it shows."""
        return self.like or self.name

    @property
    def has_paper_settings(self) -> bool:
        """Whether the paper has hyper-parameters for a method on a problem."""
        return any(method.paper in problem.paper for method in self.methods for problem in self.problems)

    def renamed(self, suffix: str, **changes: Any) -> "Experiment":
        """The experiment with changes that make other cells of it."""
        like = None if self.like is None else f"{self.like}-{suffix}"
        return dataclasses.replace(self, name=f"{self.name}-{suffix}", like=like, **changes)

    def with_settings(self, settings: str) -> "Experiment":
        """The same cells with the hyper-parameters of the paper, or with ours."""
        if settings not in (OURS, PAPER):
            raise InputError(f"--settings is {settings!r}; choose {OURS} or {PAPER}")
        if settings == self.settings:
            return self
        if not self.has_paper_settings:
            raise InputError(f"{self.name} has no settings of the paper's; leave --settings out")
        title = f"{self.title}, the paper's hyper-parameters"
        problems = tuple(problem for problem in self.problems if problem.paper)
        return self.renamed(settings, settings=settings, title=title, problems=problems)

    def miniature(self) -> "Experiment":
        """The same experiment made small by its table [quick], every method with the same sizes."""
        changes = dict(self.quick)
        dataset, stages = changes.pop("dataset", {}), changes.pop("stages", None)
        wanted = changes.pop("problems", [problem.id for problem in self.problems])
        methods = changes.pop("methods", [method.id for method in self.methods])
        changes["problems"] = tuple(
            dataclasses.replace(one, dataset=one.dataset | dataset)
            for one in self.problems
            if one.id in wanted
        )
        sizes = changes.get("sizes", self.sizes)
        changes["methods"] = tuple(
            dataclasses.replace(
                one,
                sizes=None,
                num_steps=None,
                transfer=sizes if one.transfer else (),
                stages=one.stages if stages is None or not one.stages else stages,
            )
            for one in self.methods
            if one.id in methods
        )
        changes["detail"] = self.detail | changes.get("detail", {})
        title = f"{self.title} (a miniature, not comparable with the paper)"
        return self.renamed("quick", title=title, **changes)

    def select(
        self,
        *,
        sizes: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        keys: int | None = None,
        budget: float | None = None,
    ) -> "Experiment":
        """Only these sizes and methods, with this many keys and minutes; None leaves things as they are."""
        known = [one.id for one in self.methods]
        for name in methods or ():
            if name not in known:
                raise InputError(
                    f"--methods has {name!r}, not in {self.name}; choose from {', '.join(known)}"
                )
        if keys is not None and keys < 1:
            raise InputError(f"--keys is {keys}, so there is nothing to fit; use at least 1")
        if budget is not None and not budget > 0:
            raise InputError(f"--budget is {budget:g} minutes; it must be more than 0")
        chosen = tuple(one for one in self.methods if methods is None or one.id in methods)
        if sizes is not None:
            # A method that the paper has at M = 100 only can be asked for at any size.
            chosen = tuple(dataclasses.replace(one, sizes=None) for one in chosen)
        return dataclasses.replace(
            self,
            methods=chosen,
            sizes=self.sizes if sizes is None else tuple(sizes),
            keys=self.keys if keys is None else keys,
            most_minutes=self.most_minutes if budget is None else float(budget),
        )

    def cells(self) -> list[PaperCell]:
        """The grid, key by key: what an interrupt leaves is then a table already."""
        return [
            PaperCell(problem.id, method.id, size, key)
            for key in range(self.keys)
            for problem in self.problems
            for method in self.methods
            for size in self.sizes_of(method)
        ]

    def sizes_of(self, method: PaperMethod) -> Sequence[int | None]:
        """The sizes that a method is fitted with."""
        if not method.sized:
            return [None]
        return self.sizes if method.sizes is None else method.sizes

    def construction(self, cell: PaperCell) -> Construction:
        """The construction of a cell, with the settings that were chosen."""
        method = self.method(cell.method)
        given = method.ours if self.settings == OURS else self.paper_group(cell)
        more = {name: value for name, value in given.items() if name not in BOUNDS}
        return method.build(method.stages[0] if method.stages else cell.size, more)

    def steps_of(self, cell: PaperCell) -> int | None:
        """How many steps a fit of the cell takes; None where something else ends it."""
        if self.num_steps is not None:
            return self.num_steps
        return self.paper_group(cell).get("num_steps", self.method(cell.method).num_steps)

    def paper_group(self, cell: PaperCell) -> dict[str, Any]:
        """Options by which the paper's settings for a cell differ from ours."""
        group = self.method(cell.method).paper
        if self.settings == OURS or group is None:
            return {}
        return self.problem(cell.problem).paper.get(group, {})

    def minutes_of(self, cell: PaperCell) -> float | None:
        """Minutes that a fit of the cell may take; None where only a number of steps bounds it."""
        if self.most_minutes is not None or self.steps_of(cell) is not None:
            return self.most_minutes
        own = self.paper_group(cell).get("budget", self.method(cell.method).budget)
        return max(self.budget, self.problem(cell.problem).budget) if own is None else own

    def problem(self, name: str) -> PaperProblem:
        """The problem of that id."""
        return next(one for one in self.problems if one.id == name)

    def method(self, name: str) -> PaperMethod:
        """The method of that id."""
        return next(one for one in self.methods if one.id == name)
