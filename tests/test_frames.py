"""Data sets as frames: what the columns are called, and that nothing is lost on the way out and back in."""

import sys

import jax
import narwhals as nw
import numpy as np
import pytest

from coresetvi.data import Dataset
from coresetvi.errors import InputError

X = np.array([[0.1, -2.0], [3.0, 4.5], [1e-7, 1e6]])
WEIGHTS = [0.1, 7.0, 0.0]
SOFT = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]])
IMAGES = np.arange(12.0).reshape(3, 2, 2) / 7.0

# What goes in, and the names that come out.
CASES = {
    "no labels": (dict(x=X), ["x0", "x1", "weight"]),
    "classes": (dict(x=X, y=[0, 2, 1]), ["x0", "x1", "y", "weight"]),
    "real labels": (dict(x=X, y=[0.5, 2.0, -1.0]), ["x0", "x1", "y", "weight"]),
    "soft labels": (dict(x=X, y=SOFT), ["x0", "x1", "y_0", "y_1", "y_2", "weight"]),
    "names": (dict(x=X, y=[1, 0, 1], columns=["a", "b"], target="c"), ["a", "b", "c", "weight"]),
    "soft names": (
        dict(x=X, y=SOFT[:, :2], columns=["a", "b"], target="c"),
        ["a", "b", "c_0", "c_1", "weight"],
    ),
    "a weight": (dict(x=X, y=[0, 1, 1], columns=["weight", "b"]), ["weight", "b", "y", "weight_2"]),
    "two weights": (dict(x=X, columns=["weight", "weight_2"]), ["weight", "weight_2", "weight_3"]),
    "target is a weight": (dict(x=X, y=[0, 1, 1], target="weight"), ["x0", "x1", "weight", "weight_2"]),
    "a y": (dict(x=X, y=[0, 1, 1], columns=["y", "y_2"]), ["y", "y_2", "y_3", "weight"]),
    "a soft y": (dict(x=X, y=SOFT[:, :2], columns=["y_1", "b"]), ["y_1", "b", "y_0", "y_1_2", "weight"]),
    "twice the same": (dict(x=X, columns=["a", "a"]), ["a", "a_2", "weight"]),
    "images": (dict(x=IMAGES, y=[1, 0, 1]), ["x0", "x1", "x2", "x3", "y", "weight"]),
    "one column": (dict(x=X[:, 0]), ["x0", "weight"]),
}
WAYS = {"pandas": Dataset.to_pandas, "polars": Dataset.to_polars, "arrow": Dataset.to_arrow}


def back(frame, data):
    """The frame as a data set again: labels and weight by their places, which the cases above give names."""
    table = nw.from_native(frame)
    inputs, labels, weight = table.columns[: data.dim], table.columns[data.dim : -1], table.columns[-1]
    if len(labels) == 1:
        return Dataset(frame, labels[0], weight)
    y = table.select(labels).to_native() if labels else None
    return Dataset(table.select(inputs).to_native(), y, table.get_column(weight).to_numpy())


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_on_the_way_out_and_back(way, case, double):
    arguments, names = CASES[case]
    with jax.enable_x64(double):
        data = Dataset(**arguments, weights=WEIGHTS)
        frame = WAYS[way](data)
        assert nw.from_native(frame).columns == names
        again = back(frame, data)
    np.testing.assert_array_equal(again.x, np.asarray(data.x).reshape(3, -1), strict=True)
    np.testing.assert_array_equal(again.weights, data.weights, strict=True)
    if data.y is None:
        assert again.y is None
    else:
        np.testing.assert_array_equal(again.y, data.y, strict=True)
    if len(set(data.columns or ())) > 1:
        assert again.columns == data.columns


def test_frames_do_not_share_memory_with_each_other_or_the_data():
    data = Dataset(X, weights=WEIGHTS)
    frame = data.to_pandas()
    frame.loc[0, "x0"] = 99.0
    assert float(data.x[0, 0]) == np.float32(0.1) and data.to_pandas().loc[0, "x0"] == np.float32(0.1)


@pytest.mark.parametrize(
    ("way", "package"), [("pandas", "pandas"), ("polars", "polars"), ("arrow", "pyarrow")]
)
def test_a_missing_package_is_named(way, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"^to_{way} needs {package}; pip install {package}$"):
        WAYS[way](Dataset(X))
