"""JSON is strict, and what is stored comes back."""

import json
import math
from typing import Any

import numpy as np
import pytest

from coresetvi._json import canonical, checksum, from_json, indented, one_line, plain, to_json
from coresetvi._registry import decode, encode
from coresetvi.errors import ArtefactError

NOT_FINITE = [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("-inf")]


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        ((np.inf, np.int64(3)), [None, 3]),
        ([np.array([[1.0, np.nan]]), np.array(2)], [[[1.0, None]], 2]),
        ({"a": np.float32(np.nan), 5: {"b": None, "c": "é"}}, {"a": None, "5": {"b": None, "c": "é"}}),
        *((value, None) for value in NOT_FINITE),
    ],
    ids=repr,
)
def test_results_for_machines(value, expected):
    found = plain(value)
    assert found == expected and type(found) is type(expected)
    assert strict(one_line(found)) == expected


STORED = [
    {"loss": 0.5, "steps": 3, "names": ["a", None, True], "deep": {"empty": {}, "list": []}},
    {"float": "nan"},
    {"float": 1.0},
    {"literal": {"float": "inf"}},
    {"literal": {"literal": {}}},
    [{"float": "inf"}, {"literal": 3}],
]


@pytest.mark.parametrize("value", STORED, ids=repr)
@pytest.mark.parametrize("write", [one_line, canonical, indented])
def test_stored_values_come_back(value, write):
    assert from_json(strict(write(to_json(value, "value")))) == value


@pytest.mark.parametrize("value", NOT_FINITE, ids=repr)
def test_numbers_that_are_not_finite_come_back_and_are_marked_in_one_way(value):
    marked: Any = to_json({"x": [value]}, "value")
    np.testing.assert_equal(from_json(strict(one_line(marked))), {"x": [float(value)]})
    assert encode(value) == marked["x"][0] == {"float": str(float(value))}
    np.testing.assert_equal(decode(encode(value)), float(value))


@pytest.mark.parametrize("text", ["nan ", "1.0", "Infinity", "", None, 3])
def test_only_the_three_marks_are_numbers(text):
    assert from_json({"float": text}) == {"float": text}
    with pytest.raises(ArtefactError, match="did not write"):
        decode({"float": text})


@pytest.mark.parametrize(
    "value, words",
    [
        ({"a": [0, {1}]}, r"document\.a\[1\] is a set that JSON cannot hold; use"),
        ({"a": {3: "b"}}, r"document\.a is a dict that JSON cannot hold; use"),
        (np.zeros(2), "document is a ndarray that JSON cannot hold; use .* arrays into `arrays`"),
    ],
)
def test_what_cannot_be_stored_is_named(value, words):
    with pytest.raises(ArtefactError, match=words):
        to_json(value, "document")


@pytest.mark.parametrize("write", [one_line, canonical, indented])
def test_no_writer_lets_through_what_is_not_json(write):
    with pytest.raises(ValueError):
        write({"loss": math.nan})


def test_one_line_is_ascii_and_a_document_is_for_people():
    value = {"name": "größe\udcff\n"}
    assert one_line(value).isascii() and "\n" not in one_line(value)
    assert "größe" in indented(value).decode("utf-8") and indented(value).endswith(b"}\n")
    assert strict(indented(value).decode("utf-8")) == value == strict(one_line(value))


def test_a_checksum_is_that_of_the_value():
    value = {"b": [1, {"d": "é", "c": None}], "a": 0.1}
    other = {"a": 0.1, "b": [1, {"c": None, "d": "é"}]}
    assert checksum(value) == checksum(other) == checksum(strict(indented(value).decode()))
    assert checksum(value) != checksum(value | {"a": 0.2})
    # As written by all versions so far: saved fits stay readable.
    assert checksum({"b": 1, "a": [2]}) == "63c9663de90ee828bbda6cd9acf02d0c653986c1ec25aa239920641edc9a1de5"
