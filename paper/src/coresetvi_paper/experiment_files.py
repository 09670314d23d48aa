"""Experiments from their TOML files, and the paper's numbers from a table beside them."""

import csv
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from coresetvi.errors import InputError

from .cells import ALL
from .experiment import Experiment
from .problems_and_methods import PaperMethod, PaperProblem
from .toml_objects import frozen, make

ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
PAPER_TABLE = "paper.csv"
FOLDER = resources.files("coresetvi_paper") / "experiments"
SHARED = "problems"  # the file of problems that several experiments share
SETTINGS = "settings"  # in it: the paper's, for all of them


def experiment_names() -> list[str]:
    """The experiments that come with the package.

    >>> "table3" in experiment_names()
    True
    """
    files = [file.name for file in FOLDER.iterdir()]
    names = {name.removesuffix(".toml") for name in files if name.endswith(".toml")}
    return sorted(names - {SHARED})


def read_experiment(name: str) -> Experiment:
    """The experiment of that name, or in the TOML file of that name.

    >>> read_experiment("table3").problems[0].id
    'mnist'
    """
    if name.endswith(".toml"):
        source, short = Path(name), Path(name).stem
    elif name in experiment_names():
        source, short = FOLDER / f"{name}.toml", name
    else:
        listed = ", ".join(experiment_names())
        raise InputError(f"there is no experiment {name!r}; choose {listed}, or a file that ends in .toml")
    try:
        table = tomllib.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be read ({error}); check the file") from error
    if "like" in table:
        table = packaged(table["like"]) | table
    if "only" in table:
        names = table.pop("only")
        table["methods"] = [one for one in table["methods"] if one["id"] in names]
    return parse(short.lower(), frozen(table))


def packaged(name: str) -> dict[str, Any]:
    """The table of an experiment that comes with the package."""
    if name not in experiment_names():
        raise InputError(
            f"there is no experiment {name!r} to be like; choose {', '.join(experiment_names())}"
        )
    return packaged_table(name)


def packaged_table(name: str) -> dict[str, Any]:
    """A TOML file of the package."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))


def shared_problem(name: str) -> dict[str, Any]:
    """A problem that several experiments have, with the paper's settings for it.

    >>> shared_problem("phishing")["dataset"]
    {'name': 'phishing'}
    """
    shared = packaged_table(SHARED)
    settings = shared.pop(SETTINGS)
    if name not in shared:
        raise InputError(f"there is no problem {name!r}; choose {', '.join(shared)}, or add [[problems]]")
    problem = {"id": name, **shared[name]}
    if "paper" in problem:
        problem["paper"] = settings | problem["paper"]
    return frozen(problem)


def paper_lines(table: str) -> tuple[tuple[Any, ...], ...]:
    """What the paper has in its table of that name: problem, metric, method, size, mean, standard error.

    >>> paper_lines("table3")[0]
    ('mnist', 'accuracy', 'BB PSVI v*,u,z,alpha', 10, 53.65, 2.48)
    """
    text = (FOLDER / PAPER_TABLE).read_text("utf-8")
    return tuple(
        (
            *(line[name] for name in ("problem", "metric", "method")),
            ALL if line["size"] == ALL else int(line["size"]),
            *(float(line[name]) for name in ("mean", "standard_error")),
        )
        for line in csv.DictReader(text.splitlines())
        if line["table"] == table
    )


def parse(name: str, table: dict[str, Any]) -> Experiment:
    """The experiment that a table describes, refused if a part of it is missing, unknown or wrong."""
    parts = {"name": name, **table}
    if isinstance(problems := parts.get("problems"), tuple):
        parts["problems"] = [shared_problem(one) if isinstance(one, str) else one for one in problems]
    for field, kind in (("problems", PaperProblem), ("methods", PaperMethod)):
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
    if isinstance(parts.get("paper"), str):
        parts["paper"] = paper_lines(parts["paper"])
    return make(Experiment, parts, name)
