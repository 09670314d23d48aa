"""Small checks of arguments, each with a sentence that names the argument and what it was given."""

import numbers
from collections.abc import Iterable, Sequence

from .errors import InputError


def whole_number(name: str, value: object, least: int = 1) -> int:
    """`value` as an int of at least `least`.

    >>> whole_number("size", 5)
    5
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {short(value)}.")
    return int(value)


def positive(part: object, *names: str) -> None:
    """Refuse settings of `part` that are not positive numbers."""
    for name in names:
        value = getattr(part, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) > 0:
            raise InputError(f"{name} of {type(part).__name__} must be positive, not {short(value)}.")


def instance(name: str, value: object, kind: type, wanted: str) -> None:
    """Refuse a `value` that is not a `kind`; `wanted` says what it should be, with an example."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be {wanted}, not {short(value)}.")


def check_choice(argument: str, value: str, known: Iterable[str]) -> None:
    """Refuse a value that is none of the `known` ones, with a sentence that names the argument."""
    if value not in known:
        raise InputError(f"{argument}={value!r} is unknown; choose one of {', '.join(known)}")


def short(value: object) -> str:
    """`value` on one line: numbers and words as they are, classes and larger things by name."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, (str, numbers.Number)):
        return repr(value)
    return f"a {type(value).__name__}"


def some(names: Sequence[object]) -> str:
    """The first ten names, for a sentence."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(repr(name) for name in names[:10]) + more
