"""How a value is written in JSON so that equal values are equal texts."""

import json
import math


def mark_float(value: float) -> float | dict[str, str]:
    """The number itself, or what stands for it in a file if JSON has no such number."""
    return value if math.isfinite(value) else {"float": str(float(value))}


def is_marked_float(value: object) -> bool:
    """Whether a value from a file stands for a number that is not finite."""
    return value in ({"float": "nan"}, {"float": "inf"}, {"float": "-inf"})


def canonical(value: object) -> str:
    """Strict JSON that is the same text for the same value, whatever the order of its keys.

    >>> canonical({"b": 1, "a": [2]})
    '{"a":[2],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
