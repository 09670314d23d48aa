"""JSON, always strict: results for machines to read, and values that a file gives back as they were.

JSON has no NaN and no infinity. A result for machines has null in their place (`plain`). What is stored and
read again has {"float": "nan" | "inf" | "-inf"} (`to_json`, `from_json`), and a dictionary that could be
mistaken for one is wrapped in {"literal": ...}. Tuples come back as lists.
"""

import hashlib
import json
import math

import numpy as np

from ._json_text import canonical, is_marked_float, mark_float
from .errors import ArtefactError


def plain(value: object) -> object:
    """A result as other programs read it: Python's numbers for NumPy's, None for what is not finite.

    >>> plain({"khat": np.float32("inf"), "sizes": (np.int64(3), np.array([0.5, np.nan]))})
    {'khat': None, 'sizes': [3, [0.5, None]]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: object, where: str) -> object:
    """What JSON can hold of `value`, which `where` names, so that `from_json` gives it back.

    >>> to_json({"loss": math.nan, "steps": np.int64(3)}, "document")
    {'loss': {'float': 'nan'}, 'steps': 3}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return mark_float(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        return [to_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ArtefactError(
            f"{where} is a {type(value).__name__} that JSON cannot hold; use dictionaries with "
            "string keys, lists, strings and numbers, and put arrays into `arrays`"
        )
    encoded = {key: to_json(item, f"{where}.{key}") for key, item in value.items()}
    return {"literal": encoded} if value.keys() in ({"float"}, {"literal"}) else encoded


def from_json(value: object) -> object:
    """The value that `to_json` was given.

    >>> from_json({"loss": {"float": "-inf"}})
    {'loss': -inf}
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if is_marked_float(value):
        return float(value["float"])
    if value.keys() == {"literal"} and isinstance(value["literal"], dict):
        value = value["literal"]
    return {key: from_json(item) for key, item in value.items()}


def one_line(value: object) -> str:
    """Strict JSON in one line of ASCII, which no terminal or pipe can spoil.

    >>> one_line({"name": "é", "size": 2})
    '{"name": "\\\\u00e9", "size": 2}'
    """
    return json.dumps(value, allow_nan=False)


def indented(value: object) -> bytes:
    """Strict JSON as a file that people read too: indented, in UTF-8."""
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    # Lone surrogates (file names that are not UTF-8) become the escapes JSON has for them.
    return text.encode("utf-8", "backslashreplace")


def checksum(value: object) -> str:
    """SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()
