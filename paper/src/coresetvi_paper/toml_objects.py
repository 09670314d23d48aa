"""Objects from the tables of a TOML file, through the library's closed registry: a file runs no code."""

import dataclasses
from typing import Any

from coresetvi.configuration import decode
from coresetvi.errors import ArtefactError, InputError

NONE = "none"  # TOML has no word for it


def make(kind: type, table: dict[str, Any], where: str) -> Any:
    """A dataclass from a table that has its fields and no others."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := [name for name in table if name not in fields]:
        raise InputError(f"{where} has the unknown entry {unknown[0]!r}; choose from {', '.join(fields)}")
    needed = (dataclasses.MISSING, dataclasses.MISSING)
    required = [name for name, field in fields.items() if (field.default, field.default_factory) == needed]
    if missing := [name for name in required if name not in table]:
        raise InputError(f"{where} lacks the entry {missing[0]!r}; add it")
    return kind(**table)


def build(value: Any, where: str) -> Any:
    """`value` with every table that has a `type` made into an object of that class.

    >>> build({"inner": {"type": "Unrolled", "num_steps": 5}}, "an example")["inner"].num_steps
    5
    """
    if isinstance(value, tuple):
        return tuple(build(item, where) for item in value)
    if not isinstance(value, dict) or "type" not in value:
        return (
            {name: build(item, where) for name, item in value.items()} if isinstance(value, dict) else value
        )
    try:
        return decode(encoded(value))
    except ArtefactError as error:
        raise InputError(f"{where} cannot be built: {error}") from error


def encoded(value: Any) -> Any:
    """What `decode` reads in the place of a value of a TOML file."""
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if not isinstance(value, dict):
        return None if value == NONE else value
    fields = {name: encoded(item) for name, item in value.items() if name != "type"}
    return {"class": value["type"], "fields": fields} if "type" in value else {"dict": fields}


def frozen(value: Any) -> Any:
    """`value` with tuples in the place of lists: configuration never changes."""
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    return {name: frozen(item) for name, item in value.items()} if isinstance(value, dict) else value
