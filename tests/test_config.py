"""Configurations: round trips for what is registered, a named refusal for everything else."""

import enum
import functools
import json
import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coresetvi import _registry as config
from coresetvi._registry import decode, encode, is_decodable, register
from coresetvi.errors import ArtefactError, InputError


@register
class ExampleInner(eqx.Module):
    num_steps: int = 100
    rate: float = 0.1
    optimiser: Any = None


@register
class ExampleConstruction(eqx.Module):
    size: int
    inner: ExampleInner = ExampleInner()
    learn: frozenset[str] = eqx.field(default=frozenset({"x", "y"}), converter=frozenset)
    widths: tuple[int, ...] = ()
    batch_size: int | None = None
    log_prior: Callable | None = None
    scale: Any = 1.0

    def __check_init__(self):
        if self.size < 1:
            raise ValueError("size must be at least 1\nand a second line")


@register
class ExampleCustomInit(eqx.Module):
    """A constructor written by hand, keyword-only in part, and a field it computes."""

    dim: int
    names: tuple[str, ...]
    total: int = eqx.field(init=False)
    solver: Callable = eqx.field(init=False)

    def __init__(self, dim, *, names=("a",)):
        self.dim = dim
        self.names = tuple(names)
        self.total = dim * len(self.names)
        self.solver = lambda value: value


class ExampleUnregistered(eqx.Module):
    size: int = 1


class Colour(enum.IntEnum):
    RED = 1


Transformation = namedtuple("Transformation", ["init", "update"])


def through_json(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def refused(words, value):
    with pytest.raises(ArtefactError, match=words) as caught:
        decode(value)
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value), "a culprit and a remedy"
    assert not is_decodable(value)


# --- round trips ---------------------------------------------------------------------------------

VALUES = [
    None,
    True,
    0,
    -(2**70),
    0.1,
    5e-324,
    math.inf,
    -math.inf,
    "",
    "ü € 😀",
    (),
    (1, (2.5, None), ("x",)),
    [1, [2, (3,)]],
    frozenset(),
    frozenset({"y", "x", "weights"}),
    frozenset({(1, 2), (1, 3)}),
    {},
    {"a": 1, "class": {"tuple": [1]}, "float": "nan"},
    ExampleInner(),
    ExampleInner(rate=math.inf),
    ExampleConstruction(5),
    ExampleConstruction(5, ExampleInner(3, 1e-300), {"weights"}, (50, 50), 256),
    (ExampleInner(1), {"nested": [ExampleInner(2)]}),
]


@pytest.mark.parametrize("value", VALUES, ids=[str(number) for number in range(len(VALUES))])
def test_round_trip(value):
    back = through_json(value)
    assert back == value
    assert type(back) is type(value)
    assert is_decodable(encode(value))


def test_round_trip_can_fail():
    assert through_json(ExampleConstruction(5)) != ExampleConstruction(6)


def test_types_inside_survive():
    back = through_json(ExampleConstruction(5, widths=(1, 2), scale=2.0))
    assert type(back.widths) is tuple and type(back.learn) is frozenset
    assert type(back.size) is int and type(back.scale) is float


def test_nan():
    assert encode(math.nan) == {"float": "nan"}
    assert math.isnan(through_json(ExampleInner(rate=math.nan)).rate)


def test_custom_constructor_and_computed_fields():
    value = ExampleCustomInit(3, names=("a", "b"))
    expected = {"dim": 3, "names": {"tuple": ["a", "b"]}}
    assert encode(value) == {"class": "ExampleCustomInit", "fields": expected}
    back = through_json(value)
    assert (back.dim, back.names, back.total) == (3, ("a", "b"), 6)


def test_stored_computed_field_is_left_to_the_constructor():
    fields = {"dim": 3, "names": {"tuple": ["a"]}, "total": 99, "solver": {"opaque": "a.b"}}
    assert decode({"class": "ExampleCustomInit", "fields": fields}).total == 3


def test_absent_field_takes_its_default():
    assert decode({"class": "ExampleInner", "fields": {"rate": 0.5}}) == ExampleInner(rate=0.5)


def test_sets_are_sorted_and_come_back_frozen():
    assert encode({"c", "a", "b"}) == {"set": ["a", "b", "c"]}
    assert type(through_json({"a"})) is frozenset


def test_numpy_scalars_become_python():
    values = (np.float64(0.5), np.float32(0.1), np.int32(3), np.bool_(True), np.str_("a"))
    document: Any = encode(values)
    encoded = document["tuple"]
    assert encoded == [0.5, float(np.float32(0.1)), 3, True, "a"]
    assert [type(item) for item in encoded] == [float, float, int, bool, str]
    assert encode(np.float32("inf")) == {"float": "inf"}


ARRAYS = [
    np.array([[1.0, math.nan], [-0.0, math.inf]]),
    np.array([0.1, 1e-40], dtype=np.float32),
    np.array([2**64 - 1], dtype=np.uint64),
    np.array([-128, 127], dtype=np.int8),
    np.array([True, False]),
    np.array(2.5),
    np.zeros((0, 3)),
    np.zeros((3, 0), dtype=np.int32),
]


@pytest.mark.parametrize("array", ARRAYS, ids=[str(number) for number in range(len(ARRAYS))])
def test_arrays(array):
    back = through_json(array)
    assert type(back) is np.ndarray and (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


def test_jax_arrays_stay_jax_arrays():
    value = ExampleConstruction(2, scale=jnp.array([0.1, jnp.inf], dtype=jnp.float32))
    back = through_json(value)
    assert isinstance(back.scale, jax.Array) and bool(eqx.tree_equal(back, value))


# --- what a file cannot hold ---------------------------------------------------------------------


class Hostile:
    def __getattribute__(self, name):
        if name == "__class__":  # equinox itself asks for it
            return Hostile
        raise RuntimeError("go away")

    def __eq__(self, other):
        raise RuntimeError("go away")

    __hash__ = object.__hash__


def deep(levels):
    value = ()
    for _ in range(levels):
        value = (value,)
    return value


LOOP: list = []
LOOP += [LOOP, LOOP]

OPAQUE = [
    (print, "builtins.print"),
    (math.sin, "math.sin"),
    (jnp.tanh, "jax.numpy.tanh|jax.*tanh"),
    (jax.jit(deep), r".*\.deep"),
    (lambda: 0, r".*<lambda>"),
    (functools.partial(print), "functools.partial"),
    (Transformation(print, print), r".*\.Transformation"),
    (ExampleUnregistered(), r".*\.ExampleUnregistered"),
    (ExampleInner, r".*\.ExampleInner"),
    (Colour.RED, r".*\.Colour"),
    (object(), "builtins.object"),
    (Hostile(), r".*\.Hostile"),
    (1j, "builtins.complex"),
    (b"bytes", "builtins.bytes"),
    ({1: 2}, "builtins.dict"),
    (np.array(["text"]), "numpy.ndarray"),
    (np.zeros(config.MAX_ARRAY_SIZE + 1), "numpy.ndarray"),
    (np.longdouble(1), "numpy.longdouble"),
    (np.datetime64("2020-01-01"), "numpy.datetime64"),
    (jax.random.key(0), ".*PRNGKeyArray"),
]


@pytest.mark.parametrize(("value", "name"), OPAQUE, ids=[name for _, name in OPAQUE])
def test_opaque(value, name):
    encoded: Any = encode(value)
    assert encoded.keys() == {"opaque"}
    refused(rf"configuration was saved with a custom object \({name}\)", encoded)
    nested = encode(ExampleConstruction(1, ExampleInner(optimiser=value)))
    assert not is_decodable(nested)
    words = rf"ExampleInner.optimiser was saved with a custom object \({name}\) .*; pass it again"
    refused(words, json.loads(json.dumps(nested)))


def test_encode_survives_loops_depth_and_tracers():
    assert encode(LOOP) == [{"opaque": "builtins.list"}] * 2
    encode(deep(5000))
    seen = []
    jax.jit(lambda value: (seen.append(encode((value, 1))), value)[1])(1.0)
    assert seen[0]["tuple"][0].keys() == {"opaque"} and seen[0]["tuple"][1] == 1


# --- what is refused -----------------------------------------------------------------------------


def test_unknown_class_is_not_searched_for():
    for name in ("ExampleUnregistered", "Popen", "os.system", "__import__", "builtins.eval", ""):
        words = f"names the unknown class '{name}'; upgrade coresetvi, or import the module"
        refused(words, {"class": name, "fields": {}})


def test_unknown_field():
    words = "ExampleInner has no field 'momentum', which the configuration sets; use the version"
    refused(words, {"class": "ExampleInner", "fields": {"momentum": 0.9}})
    refused("no field '__class__'", {"class": "ExampleInner", "fields": {"__class__": 1}})


def test_configuration_that_the_class_refuses():
    words = r"ExampleConstruction refuses its saved configuration \(size must be at least 1\); save"
    refused(words, {"class": "ExampleConstruction", "fields": {"size": 0}})
    words = r"ExampleConstruction refuses its saved configuration \(.*'size'\)"
    refused(words, {"class": "ExampleConstruction", "fields": {}})


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"tuple": 3},
        {"tuple": [], "set": []},
        {"set": [[1]]},
        {"set": "abc"},
        {"dict": []},
        {"float": "1.0"},
        {"float": ["nan"]},
        {"float": "__import__"},
        {"class": ["ExampleInner"], "fields": {}},
        {"class": "ExampleInner"},
        {"class": "ExampleInner", "fields": []},
        {"class": "ExampleInner", "fields": {}, "extra": 1},
        {"opaque": 3},
        {"something": "else"},
        {"array": [1], "dtype": "object", "shape": [1], "jax": False},
        {"array": [1], "dtype": "O", "shape": [1], "jax": False},
        {"array": [1, 2], "dtype": "int32", "shape": [3], "jax": False},
        {"array": [[1], 2], "dtype": "int32", "shape": [2], "jax": True},
        {"array": [300], "dtype": "int8", "shape": [1], "jax": False},
        {"array": "x", "dtype": "float32", "shape": [], "jax": False},
        {"array": [1], "dtype": "int32", "shape": ["a"], "jax": False},
        object(),
    ],
    ids=lambda value: "object" if type(value) is object else repr(value),
)
def test_foreign_json(value):
    refused("configuration holds something that coresetvi did not write; save it again", value)
    nested = {"class": "ExampleInner", "fields": {"rate": value}}
    refused("ExampleInner.rate holds something that coresetvi did not write", nested)


def test_bottomless_json():
    value: Any = 1
    for _ in range(100_000):
        value = {"tuple": [value]}
    refused("configuration is nested too deeply; save it again", value)


# --- the registry --------------------------------------------------------------------------------


def test_registering_again_is_fine_but_a_namesake_is_not():
    assert register(ExampleInner) is ExampleInner
    namesake: Any = type("ExampleInner", (eqx.Module,), {"__annotations__": {"size": int}})
    words = "a class named ExampleInner is registered already, from .*test_config; choose another"
    with pytest.raises(InputError, match=words):
        register(namesake)
    assert decode(encode(ExampleInner(7))) == ExampleInner(7)
    document: Any = encode(namesake(1))
    assert document.keys() == {"opaque"}


def test_only_dataclasses_can_be_registered():
    with pytest.raises(InputError, match="Hostile is not a dataclass; make it a frozen"):
        register(Hostile)
