"""Frozen configuration objects to JSON and back, through a closed registry.

A file can only name classes that this process has registered. Names are looked up in one
dictionary, never imported or searched for, so a saved configuration cannot reach any other code.

    {"class": "BBPSVI", "fields": {...}}         a registered class, rebuilt by its constructor
    {"tuple": [...]}  {"set": [...]}             sets come back frozen
    {"dict": {...}}   [...]                      dictionaries with string keys; lists
    {"float": "nan" | "inf" | "-inf"}            JSON has no such numbers
    {"array": [...], "dtype", "shape", "jax"}    a small array
    {"opaque": "optax.adam"}                     what a file cannot hold: decoding refuses, by name
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ._json_text import canonical, is_marked_float, mark_float
from .errors import ArtefactError, InputError

MAX_ARRAY_SIZE = 4096  # beyond this, JSON is the wrong place for an array

# Of arrays that can be saved: safetensors writes more types than NumPy can read back (bfloat16, for one).
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES += ("float16", "float32", "float64")

_registry: dict[str, type] = {}
Class = TypeVar("Class", bound=type)


def register(cls: Class) -> Class:
    """Class decorator: allow saved configurations to name `cls`.

    >>> import equinox
    >>> @register
    ... class Ridge(equinox.Module):
    ...     strength: float = 1.0
    >>> encode(Ridge(0.5))
    {'class': 'Ridge', 'fields': {'strength': 0.5}}
    >>> decode(encode(Ridge(0.5))) == Ridge(0.5)
    True
    """
    if not hasattr(cls, "__dataclass_fields__"):
        raise InputError(f"{cls.__name__} is not a dataclass; make it a frozen equinox.Module")
    known = _registry.setdefault(cls.__name__, cls)
    if known is not cls:
        raise InputError(
            f"a class named {cls.__name__} is registered already, from {known.__module__}; "
            "choose another name"
        )
    return cls


def encode(obj: object) -> object:
    """What JSON can hold of `obj`. Never raises: the rest is marked as opaque.

    >>> encode((1, float("inf"), {"y", "x"}, print))
    {'tuple': [1, {'float': 'inf'}, {'set': ['x', 'y']}, {'opaque': 'builtins.print'}]}
    """
    return _encode(obj, ())


def decode(value: object) -> Any:
    """The object that `encode` was given.

    >>> decode({"opaque": "optax.adam"})
    Traceback (most recent call last):
    coresetvi.errors.ArtefactError: the configuration was saved with a custom object (optax.adam) \
that a file cannot hold; pass it again when loading
    """
    try:
        return _decode(value, "the configuration")
    except RecursionError as error:
        raise ArtefactError("the configuration is nested too deeply; save it again") from error


def is_decodable(value: object) -> bool:
    """Whether `decode(value)` would succeed.

    >>> is_decodable(encode((1, 2))), is_decodable(encode(print))
    (True, False)
    """
    try:
        decode(value)
    except ArtefactError:
        return False
    return True


def _encode(obj: object, ancestors: tuple[int, ...]) -> object:
    try:
        # A list that contains itself would never end.
        encoded = None if id(obj) in ancestors else _encode_known(obj, (*ancestors, id(obj)))
    except Exception:
        encoded = None  # tracers, deleted arrays, broken properties: nothing may stop a save
    if encoded is None and obj is not None:
        return {"opaque": _name(obj)}
    return encoded


def _encode_known(obj: Any, ancestors: tuple[int, ...]) -> object:
    """The encoding of `obj`, or None for what is not known."""
    # Types are compared exactly: an optax transformation is a tuple too, and an enum an integer.
    obj = obj.item() if isinstance(obj, np.generic) else obj
    kind = type(obj)
    if kind is float:
        return mark_float(obj)
    if kind in (bool, int, str):
        return obj
    if kind is list:
        return [_encode(item, ancestors) for item in obj]
    if kind is tuple:
        return {"tuple": [_encode(item, ancestors) for item in obj]}
    if kind in (set, frozenset):
        # Sorted, because the order of a set of strings differs from one process to the next.
        return {"set": sorted((_encode(item, ancestors) for item in obj), key=canonical)}
    if kind is dict and all(type(key) is str for key in obj):
        return {"dict": {key: _encode(item, ancestors) for key, item in obj.items()}}
    if isinstance(obj, (np.ndarray, jax.Array)):
        return _encode_array(obj, ancestors)
    if _registry.get(kind.__name__) is kind:
        names = [field.name for field in dataclasses.fields(obj) if field.init]
        fields = {name: _encode(getattr(obj, name), ancestors) for name in names}
        return {"class": kind.__name__, "fields": fields}
    return None


def _encode_array(obj: np.ndarray | jax.Array, ancestors: tuple[int, ...]) -> object:
    if obj.dtype.name not in DTYPES or obj.size > MAX_ARRAY_SIZE:
        return None
    # The shape is kept, because the nested list of an empty array does not tell it.
    rest = {"dtype": obj.dtype.name, "shape": list(obj.shape), "jax": isinstance(obj, jax.Array)}
    return {"array": _encode(np.asarray(obj).tolist(), ancestors), **rest}


def _name(obj: object) -> str:
    try:
        module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
        if isinstance(module, str) and isinstance(name, str):
            return f"{module}.{name}"
    except Exception:  # not a function or class: its type is the best name there is
        pass
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _decode(value: object, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_decode(item, where) for item in value]
    match value:
        case {"class": str(name), "fields": dict(fields), **rest} if not rest:
            return _construct(name, fields)
        case {"tuple": list(items), **rest} if not rest:
            return tuple(_decode(item, where) for item in items)
        case {"set": list(items), **rest} if not rest:
            try:
                return frozenset(_decode(item, where) for item in items)
            except TypeError:
                pass  # an item that cannot be in a set: no encoding of ours
        case {"dict": dict(items), **rest} if not rest:
            return {key: _decode(item, where) for key, item in items.items()}
        case {"float": text} if is_marked_float(value):
            return float(text)
        case {"array": items, "dtype": str(dtype), "shape": list(shape), "jax": bool(is_jax)}:
            try:
                if dtype in DTYPES:
                    array = np.array(_decode(items, where), dtype=dtype).reshape(shape)
                    return jnp.asarray(array) if is_jax else array
            except (TypeError, ValueError, OverflowError):
                pass
        case {"opaque": str(name)}:
            raise ArtefactError(
                f"{where} was saved with a custom object ({name}) that a file cannot hold; "
                "pass it again when loading"
            )
    raise ArtefactError(f"{where} holds something that coresetvi did not write; save it again")


def _construct(name: str, fields: dict[str, object]) -> Any:
    cls = _registry.get(name)
    if cls is None:
        raise ArtefactError(
            f"the configuration names the unknown class {name!r}; upgrade coresetvi, or import the "
            "module that registers it before loading"
        )
    known = {field.name: field.init for field in dataclasses.fields(cls)}
    arguments = {}
    for field, value in fields.items():
        if field not in known:
            raise ArtefactError(
                f"{name} has no field {field!r}, which the configuration sets; use the version of "
                "coresetvi that saved it, or save it again"
            )
        if known[field]:  # the constructor computes the others
            arguments[field] = _decode(value, f"{name}.{field}")
    try:
        return cls(**arguments)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArtefactError(f"{name} refuses its saved configuration ({reason}); save it again") from error
