"""An experiment is data: a TOML file that says which methods run on which problems, and what the paper found.

    title, metric, sizes, keys, budget (minutes a fit), num_samples (draws to score with), fresh_steps (of a
                   posterior that is trained anew)
    [[problems]]   id, dataset = {name, options of the loader}, model = {type, its fields}, transfer (a
                   model of flat rows)
    [[methods]]    id, name (as the paper has it), construction (such as BBPSVI), options (of it), sizes,
                   retrain (false: what it fitted is a fresh posterior already), transfer (sizes), automatic
                   (true: it stops by itself, if need be before the budget is used up), fresh_steps
    paper          lines [problem, metric, name of the method, size or "all", mean, standard error]
    [quick]        what else to use for a miniature: sizes, keys, num_steps, num_test, num_samples, dataset

A table with a `type` becomes the registered class of that name, a list a tuple.
"""

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import coresetvi as cvi

from .. import constructions
from ..constructions import Construction
from ..errors import InputError
from .objects import build, frozen, make

ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
ALL = "all"  # in the place of a size, for methods that take all rows


@dataclasses.dataclass(frozen=True)
class Problem:
    """Data and a model for them; `transfer` is one of flat rows, to be trained on the same coresets."""

    id: str
    dataset: dict[str, Any]
    model: dict[str, Any]
    transfer: dict[str, Any] | None = None

    def load(self) -> tuple[cvi.Dataset, cvi.Dataset]:
        """The rows to fit and the rows to score on."""
        return cvi.datasets.load(**self.dataset)


@dataclasses.dataclass(frozen=True)
class Method:
    """One line of a table: how a coreset is made, and with how many points."""

    id: str
    name: str
    construction: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    sizes: tuple[int, ...] | None = None
    retrain: bool = True
    transfer: tuple[int, ...] = ()
    automatic: bool = False
    fresh_steps: int | None = None

    @property
    def maker(self) -> Callable[..., Construction]:
        """What builds its construction."""
        if self.construction not in constructions.__all__ or self.construction == Construction.__name__:
            known = ", ".join(name for name in constructions.__all__ if name != Construction.__name__)
            raise InputError(
                f"method {self.id!r} has the unknown construction {self.construction!r}; choose from {known}"
            )
        return getattr(constructions, self.construction)

    @property
    def sized(self) -> bool:
        """Whether it is told a number of points, or takes all rows."""
        return "size" in inspect.signature(self.maker).parameters

    def build(self, size: int | None) -> Construction:
        """Its construction with that many points."""
        options = build(self.options, f"method {self.id!r}")
        try:
            return self.maker(**({"size": size} if self.sized else {}), **options)
        except (TypeError, InputError) as error:
            raise InputError(f"method {self.id!r} cannot be built: {error}") from error


@dataclasses.dataclass(frozen=True)
class Cell:
    """One fit of an experiment; `size` is None for methods that take all rows."""

    problem: str
    method: str
    size: int | None
    key: int

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.problem}-{self.method}-{ALL if self.size is None else self.size}-{self.key}"

    def __str__(self) -> str:
        points = "all rows" if self.size is None else f"{self.size} points"
        return f"{self.problem}, {self.method}, {points}, key {self.key}"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A grid of problems, methods, sizes and keys.

    `num_steps` bounds a fit instead of `budget`, `num_test` takes only so many of the rows to score on.
    """

    name: str
    title: str
    problems: tuple[Problem, ...]
    methods: tuple[Method, ...]
    metric: str = "accuracy"
    sizes: tuple[int, ...] = ()
    keys: int = 3
    budget: float = 10.0
    num_samples: int = 100
    fresh_steps: int | None = None
    num_steps: int | None = None
    num_test: int | None = None
    paper: tuple[tuple[Any, ...], ...] = ()
    quick: dict[str, Any] = dataclasses.field(default_factory=dict)

    def miniature(self) -> "Experiment":
        """The same experiment made small by its table [quick], every method with the same sizes."""
        changes = dict(self.quick)
        dataset = changes.pop("dataset", {})
        problems = tuple(dataclasses.replace(one, dataset=one.dataset | dataset) for one in self.problems)
        sizes = changes.get("sizes", self.sizes)
        methods = tuple(
            dataclasses.replace(one, sizes=None, transfer=sizes if one.transfer else ())
            for one in self.methods
        )
        changes |= {"name": f"{self.name}-quick", "problems": problems, "methods": methods}
        changes["title"] = f"{self.title} (a miniature, not comparable with the paper)"
        return dataclasses.replace(self, **changes)

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
            budget=self.budget if budget is None else float(budget),
        )

    def cells(self) -> list[Cell]:
        """The grid, key by key: what an interrupt leaves is then a table already."""
        return [
            Cell(problem.id, method.id, size, key)
            for key in range(self.keys)
            for problem in self.problems
            for method in self.methods
            for size in self.sizes_of(method)
        ]

    def sizes_of(self, method: Method) -> Sequence[int | None]:
        """The sizes that a method is fitted with."""
        if not method.sized:
            return [None]
        return self.sizes if method.sizes is None else method.sizes

    def problem(self, name: str) -> Problem:
        """The problem of that id."""
        return next(one for one in self.problems if one.id == name)

    def method(self, name: str) -> Method:
        """The method of that id."""
        return next(one for one in self.methods if one.id == name)


def experiment_names() -> list[str]:
    """The experiments that come with the package.

    >>> "table3" in experiment_names()
    True
    """
    files = resources.files("coresetvi.reproduction").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_experiment(name: str) -> Experiment:
    """The experiment of that name, or in the TOML file of that name.

    >>> read_experiment("table3").problems[0].id
    'mnist'
    """
    if name.endswith(".toml"):
        source, short = Path(name), Path(name).stem
    elif name in experiment_names():
        source, short = resources.files("coresetvi.reproduction") / f"{name}.toml", name
    else:
        listed = ", ".join(experiment_names())
        raise InputError(f"there is no experiment {name!r}; choose {listed}, or a file that ends in .toml")
    try:
        table = tomllib.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be read ({error}); check the file") from error
    return parse(short.lower(), frozen(table))


def parse(name: str, table: dict[str, Any]) -> Experiment:
    """The experiment that a table describes, refused if a part of it is missing, unknown or wrong."""
    parts = {"name": name, **table}
    for field, kind in (("problems", Problem), ("methods", Method)):
        found = parts.get(field)
        if not found or not all(isinstance(one, dict) for one in found):
            raise InputError(f"{name} has no [[{field}]]; add one")
        parts[field] = tuple(make(kind, one, f"{field[:-1]} {one.get('id')!r} of {name}") for one in found)
        names = [one.id for one in parts[field]]
        for one in [name, *names]:
            if not ID.fullmatch(str(one)):
                raise InputError(f"{name} has the id {one!r}; write it with a-z, 0-9 and single dashes")
        if repeated := next((one for one in names if names.count(one) > 1), None):
            raise InputError(f"{name} has the id {repeated!r} twice in [[{field}]]; rename one")
    return make(Experiment, parts, name)
