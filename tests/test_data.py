"""Dataset: what goes in, what is refused and how, minibatches, scale, and the pytree laws."""

import itertools
from decimal import Decimal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coresetvi.data import Coreset, Dataset, concatenate
from coresetvi.errors import InputError

NAN, INF = float("nan"), float("inf")
X = np.arange(6.0).reshape(3, 2)


def pandas_frame(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def polars_frame(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def lazy_frame(columns):
    return pytest.importorskip("polars").LazyFrame(columns)


def arrow_table(columns):
    return pytest.importorskip("pyarrow").table(columns)


FRAMES = [pandas_frame, polars_frame, lazy_frame, arrow_table]
every_frame = pytest.mark.parametrize("frame", FRAMES)


# What goes in


@pytest.mark.parametrize(
    "x", [X, X.tolist(), jnp.asarray(X), X.astype(int), X.astype(np.uint8), X.astype(object)]
)
def test_every_kind_of_array_gives_the_same_floats(x):
    data = Dataset(x)
    assert data.x.dtype == jnp.float32
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.weights, np.ones(3))
    assert (data.y, data.columns, data.target, data.indices) == (None, None, None, None)
    assert (len(data), data.num_rows, data.dim, float(data.total_weight)) == (3, 3, 2, 3.0)


@pytest.mark.parametrize("dtype", [bool, jnp.bfloat16, np.float16, np.longdouble])
def test_booleans_and_other_floats_become_the_default_float(dtype):
    data = Dataset(np.eye(2).astype(dtype))
    assert data.x.dtype == jnp.float32
    np.testing.assert_array_equal(data.x, np.eye(2))


def test_x64_keeps_double_precision():
    with jax.enable_x64(True):
        data = Dataset([[1e300]], [1])
        assert (data.x.dtype, data.y.dtype, data.weights.dtype) == ("float64", "int64", "float64")
        assert float(data.x[0, 0]) == 1e300


@pytest.mark.parametrize(
    ("y", "dtype", "shape"),
    [
        ([0, 1, 2], "int32", (3,)),
        ([True, False, True], "int32", (3,)),
        (np.array([0, 1, 2], np.uint64), "int32", (3,)),
        (np.array([0, 1, 2], object), "int32", (3,)),
        ([0.5, 1.0, 2.0], "float32", (3,)),
        ([[0], [1], [2]], "int32", (3,)),
        (np.eye(3), "float32", (3, 3)),
    ],
)
def test_labels_keep_their_kind(y, dtype, shape):
    data = Dataset(X, y)
    assert (data.y.dtype, data.y.shape) == (dtype, shape)
    np.testing.assert_array_equal(data.y, np.asarray(y).reshape(shape))


def test_a_single_axis_is_one_column_and_images_stay_images():
    assert Dataset([1, 2, 3]).x.shape == (3, 1)
    images = Dataset(np.ones((2, 4, 4, 1)))
    assert (images.x.shape, images.dim) == ((2, 4, 4, 1), 16)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_values_and_scale_are_right_at_every_magnitude(scale):
    x = scale * np.random.default_rng(0).normal(3.0, 1.0, (500, 4))
    data = Dataset(x)
    np.testing.assert_array_equal(data.x, x.astype(np.float32))
    mean, deviation = data.scale()
    np.testing.assert_allclose(mean, x.mean(0), rtol=2e-7)
    np.testing.assert_allclose(deviation, x.std(0), rtol=2e-7)


def test_writing_into_the_callers_array_changes_nothing():
    memory = np.ones(4096, np.float32)
    start = -memory.ctypes.data % 64 // 4  # JAX may share memory if it is so aligned
    values = memory[start : start + 1024]
    data = Dataset(values.reshape(-1, 1), values, values)
    values[:] = 7.0
    for part in data.to_numpy():
        np.testing.assert_array_equal(part.reshape(-1), np.ones(1024))


@every_frame
def test_frames_give_columns_target_and_weights(frame):
    columns = {"age": [30, 40], "tall": [True, False], "label": [0, 1], "count": [1.0, 3.0]}
    data = Dataset(frame(columns), "label", "count")
    np.testing.assert_array_equal(data.x, [[30, 1], [40, 0]])
    assert (data.columns, data.target, data.y.dtype) == (("age", "tall"), "label", "int32")
    np.testing.assert_array_equal(data.y, [0, 1])
    np.testing.assert_array_equal(data.weights, [1, 3])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_series_name_the_column_and_the_target(library):
    series = pytest.importorskip(library).Series
    age, label = series([1.5, 2.5]).rename("age"), series([0, 1]).rename("label")
    data = Dataset(age, label, series([1, 2]))
    assert (data.x.shape, data.columns, data.target) == ((2, 1), ("age",), "label")
    np.testing.assert_array_equal(data.weights, [1, 2])
    assert Dataset(series([1.5, 2.5])).columns is None


def test_arrow_columns_and_single_column_frames_are_labels_too():
    pyarrow = pytest.importorskip("pyarrow")
    assert Dataset(X, pyarrow.chunked_array([[0, 1], [1]])).y.tolist() == [0, 1, 1]
    data = Dataset(X, arrow_table({"label": [0, 1, 1]}))
    assert (data.y.shape, data.target) == ((3,), "label")


def test_numbers_in_object_columns_and_decimals_are_numbers():
    frame = pandas_frame({"price": [Decimal("1.5"), Decimal("2.5")]})
    np.testing.assert_array_equal(Dataset(frame).x, [[1.5], [2.5]])
    np.testing.assert_array_equal(Dataset(arrow_table({"a": [Decimal("1.5")]})).x, [[1.5]])
    np.testing.assert_array_equal(Dataset([[Decimal(2), 1]]).x, [[2, 1]])


# What is refused, and the sentence


def refuses(sentence, *args, **kwargs):
    with pytest.raises(InputError) as caught:
        Dataset(*args, **kwargs)
    assert str(caught.value) == sentence


SENTENCES = [
    ("x has no rows; pass at least one row of data", ([],), {}),
    ("x has no rows; pass at least one row of data", (np.empty((0, 3)),), {}),
    ("x has no columns; pass at least one besides y and weights", (np.empty((3, 0)),), {}),
    ("x is not rectangular; give every row the same length", ([[1, 2], [3]],), {}),
    (
        "x is a single float, not rows; pass an array with one row per datum "
        "(of a sparse matrix: its .toarray())",
        (1.0,),
        {},
    ),
    ("x has a NaN in row 1, column 0; drop or impute that row", ([[1, 2], [NAN, NAN]],), {}),
    ("x has a NaN in row 0, column 1; drop or impute that row", ([[1, None]],), {}),
    ("x has a NaN in row 1, column 0; drop or impute that row", ([1.0, NAN],), {}),
    (
        "x has a NaN in row 0, column 'age'; drop or impute that row",
        ([[1, NAN]],),
        {"columns": ["height", "age"]},
    ),
    (
        "x has a NaN in row 0, column 1; drop or impute that row",
        (np.ma.masked_array([[1, 2]], mask=[[False, True]]),),
        {},
    ),
    (
        "x has a NaN in row 1, position (0, 1, 0); drop or impute that row",
        (np.array([0, 0, 0, 0, 0, NAN, 0, 0]).reshape(2, 2, 2, 1),),
        {},
    ),
    ("x has an infinite value in row 0, column 1; drop or clip that row", ([[1, -INF]],), {}),
    (
        "x has 1e+300 in row 1, column 0, too large for float32; rescale or set jax_enable_x64",
        ([[1.0], [1e300]],),
        {},
    ),
    (
        "x has a number too large for a float in row 0, column 1; rescale it",
        ([[1, 10**400]],),
        {},
    ),
    (
        "x has 'red' in row 0, column 1, not a number; one-hot encode or drop that column",
        ([[1, "red"]],),
        {},
    ),
    (
        "x has 'red' in row 1, column 0, not a number; one-hot encode or drop that column",
        (np.array([[1], ["red"]], dtype=object),),
        {},
    ),
    (
        "x has 1j in row 0, not a number; one-hot encode or drop that column",
        (np.array([1j]),),
        {},
    ),
    (
        "columns has 1 names but each row of x has shape (2,); give one name per column",
        (X,),
        {"columns": ["a"]},
    ),
    ("x has 3 rows but y has 2; give one entry of y per row", (X, [0, 1]), {}),
    ("y has shape (3, 1, 2); give it one or two axes", (X, np.ones((3, 1, 2))), {}),
    ("y has a NaN in row 2; drop or impute that row", (X, [0, 1, NAN]), {}),
    (
        "y has a NaN in row 2, column 'price'; drop or impute that row",
        (X, [0, 1, NAN]),
        {"target": "price"},
    ),
    ("y has 'b' in row 0, not a number; encode the labels as 0..C-1", (X, ["b", "a", "b"]), {}),
    (
        "y has 8589934592 in row 1, too large for int32; pass smaller ones or set jax_enable_x64",
        (X, [0, 2**33, 1]),
        {},
    ),
    ("y='label' names a column, but x is not a frame; pass an array", (X, "label"), {}),
    ("x has 3 rows but weights has 2; give one entry of weights per row", (X, None, [1, 1]), {}),
    ("weights has shape (3, 2); give one number per row", (X, None, X), {}),
    ("weights has -1.0 in row 1; weights must not be negative", (X, None, [1, -1, -2]), {}),
    ("weights has a NaN in row 1; drop or impute that row", (X, None, [1, NAN, 1]), {}),
    ("weights are all zero; give at least one row a positive weight", (X, None, [0, 0, 0]), {}),
    ("weights are all zero; give at least one row a positive weight", (X, None, [1e-60] * 3), {}),
    (
        "x has 3 rows but indices has 1; give one entry of indices per row",
        (X,),
        {"indices": [0]},
    ),
    (
        "indices must be whole numbers; give one row number per row of x",
        (X,),
        {"indices": [0.5, 1.0, 2.0]},
    ),
]


@pytest.mark.parametrize(("sentence", "args", "kwargs"), SENTENCES)
def test_bad_input_is_refused_in_one_sentence(sentence, args, kwargs):
    refuses(sentence, *args, **kwargs)


@every_frame
@pytest.mark.parametrize("values", [[1, None], [1.5, None], [True, None]])
def test_nulls_are_nan_in_every_library(frame, values):
    refuses("x has a NaN in row 1, column 'a'; drop or impute that row", frame({"a": values}))


@pytest.mark.parametrize(
    ("dtype", "values"), [("Int64", [1, None]), ("Float64", [1, None]), ("boolean", [True, None])]
)
def test_nulls_of_pandas_own_types_are_nan(dtype, values):
    frame = pytest.importorskip("pandas").DataFrame({"a": values}, dtype=dtype)
    refuses("x has a NaN in row 1, column 'a'; drop or impute that row", frame)


@every_frame
def test_strings_in_frames_name_the_column(frame):
    table = frame({"a": [1, 2], "city": ["Rome", "Oslo"]})
    remedy = "one-hot encode or drop that column"
    refuses(f"x has 'Rome' in row 0, column 'city', not a number; {remedy}", table)
    remedy = "encode the labels as 0..C-1"
    refuses(f"y has 'Rome' in row 0, column 'city', not a number; {remedy}", table, "city")


def test_categories_dates_and_mixtures_name_the_column():
    pandas = pytest.importorskip("pandas")
    for values, shown in (
        (pandas.Categorical(["u", "v"]), "'u'"),
        (pandas.to_datetime(["2020", "2021"]), "2020-01-01 00:00:00"),
        (pandas.to_timedelta([1, 2], unit="D"), "1 days 00:00:00"),
    ):
        sentence = f"x has {shown} in row 0, column 'b', not a number; one-hot encode or drop that column"
        refuses(sentence, pandas.DataFrame({"a": [1, 2], "b": values}))
    sentence = "x has 'u' in row 1, column 'b', not a number; one-hot encode or drop that column"
    refuses(sentence, pandas.DataFrame({"b": [1, "u"]}))
    with pytest.raises(InputError, match=r"x needs distinct column names \(.*'a' 2 times\)"):
        Dataset(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


@every_frame
def test_unknown_and_used_up_columns_are_refused(frame):
    table = frame({"a": [1, 2], "b": [0, 1]})
    refuses("y='z' is not a column of x; choose one of 'a', 'b'", table, "z")
    refuses("weights='b' is not a column of x; choose one of 'a'", table, "b", "b")
    sentence = "x has no columns; pass at least one besides y and weights"
    refuses(sentence, table, "a", "b")


# Rows


def test_take_composes_indices_and_accepts_a_mask():
    data = Dataset(X, [5, 6, 7], [1, 2, 3], columns=["a", "b"], target="t")
    twice = data.take([2, 0, 0]).take(np.array([True, False, True]))
    np.testing.assert_array_equal(twice.indices, [2, 0])
    np.testing.assert_array_equal(twice.x, X[[2, 0]])
    np.testing.assert_array_equal(twice.y, [7, 5])
    np.testing.assert_array_equal(twice.weights, [3, 1])
    assert (twice.columns, twice.target) == (("a", "b"), "t")
    np.testing.assert_array_equal(Dataset(X, indices=[7, 8, 9]).take([1]).indices, [8])
    traced = jax.jit(Dataset.take)(data, jnp.array([1, 3]))
    np.testing.assert_array_equal(traced.x, [X[1], [NAN, NAN]])  # never some other row


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([0, 3], "row 3 does not exist; rows run from 0 to 2"),
        ([-1], "row -1 does not exist; rows run from 0 to 2"),
        ([], "rows is empty; take at least one row"),
        (
            [0.5],
            "rows must be a list of row numbers or a mask of 3 booleans, not float64 of shape (1,)",
        ),
    ],
)
def test_take_refuses_rows_that_do_not_exist(rows, sentence):
    with pytest.raises(InputError) as caught:
        Dataset(X).take(rows)
    assert str(caught.value) == sentence


def test_to_numpy_gives_plain_arrays():
    x, y, weights = Dataset(X, [0, 1, 1]).to_numpy()
    assert {type(x), type(y), type(weights)} == {np.ndarray}
    np.testing.assert_array_equal(x, X)
    assert Dataset(X).to_numpy()[1] is None


def test_concatenate_joins_everything_it_can():
    one = Dataset(X, [0, 1, 2], [1, 2, 3])
    two = Dataset([[9, 9]], [3], [4], columns=["a", "b"], target="t")
    both = concatenate(one, two)
    np.testing.assert_array_equal(both.x, np.concatenate([X, [[9, 9]]]))
    np.testing.assert_array_equal(both.y, [0, 1, 2, 3])
    np.testing.assert_array_equal(both.weights, [1, 2, 3, 4])
    assert (both.columns, both.target, both.indices) == (("a", "b"), "t", None)
    np.testing.assert_array_equal(concatenate(one.take([2]), two.take([0])).indices, [2, 0])
    assert concatenate(Dataset(X), Dataset(X)).y is None


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ((), "concatenate was given nothing"),
        ((Dataset(X), Dataset([[1]])), r"x of data set 1 has rows of shape \(1,\) but .* \(2,\);"),
        (
            (Dataset(X), Dataset(X, [0, 1, 1])),
            r"y of data set 1 has rows of shape \(\) but .* None",
        ),
        ((Dataset(X, X), Dataset(X, [0, 1, 1])), r"y of data set 1 has rows of shape \(\) but"),
        (
            (Dataset(X, columns=["a", "b"]), Dataset(X, columns=["b", "a"])),
            r"data set 1 has columns \('b', 'a'\) but another has \('a', 'b'\);",
        ),
    ],
)
def test_concatenate_refuses_what_does_not_fit(datasets, message):
    with pytest.raises(InputError, match=message):
        concatenate(*datasets)


# Minibatches


@pytest.mark.parametrize(("num_rows", "batch_size"), [(12, 4), (7, 3), (10, 9), (5, 1)])
def test_batch_is_exactly_unbiased(num_rows, batch_size):
    weights = 1.0 + np.arange(num_rows)
    data = Dataset(np.arange(num_rows), weights=weights)
    num_draws = 20_000
    keys = jax.random.split(jax.random.key(1), num_draws)
    draws = jax.jit(jax.vmap(lambda key: data.batch(key, batch_size)))(keys)
    rows, scaled = np.asarray(draws.indices), np.asarray(draws.weights) * num_rows / batch_size
    edges = [b * num_rows // batch_size for b in range(batch_size + 1)]
    for b, (start, stop) in enumerate(itertools.pairwise(edges)):
        length = stop - start
        # Exact part: any row drawn counts for its whole stratum.
        np.testing.assert_allclose(scaled[:, b], weights[rows[:, b]] * length, rtol=1e-6)
        # Random part: rows are uniform within it, up to five Monte-Carlo standard errors.
        counts = np.bincount(rows[:, b], minlength=num_rows)
        assert counts[start:stop].sum() == num_draws
        error = np.sqrt(num_draws * (1 / length) * (1 - 1 / length))
        assert np.all(np.abs(counts[start:stop] - num_draws / length) <= 5 * error)
    np.testing.assert_array_equal(draws.x[..., 0], rows)


def all_equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from all_equations(inner)


def test_batch_never_touches_all_rows():
    num_rows = 100_000
    data = Dataset(np.zeros((num_rows, 3)), np.zeros(num_rows, int))
    trace = jax.make_jaxpr(lambda data, key: data.batch(key, 64))(data, jax.random.key(0))
    sizes = [v.aval.size for equation in all_equations(trace.jaxpr) for v in equation.outvars]
    assert len(sizes) > 10 and max(sizes) <= 64 * 3
    assert all(np.size(constant) <= 65 for constant in trace.consts)


def test_batch_reaches_every_row_of_very_large_data():
    num_rows, batch_size = 2**25 + 3, 128  # past float32's whole numbers; b * n past 32 bits
    data = Dataset([0.0])
    leaves = (jnp.zeros((num_rows, 0)), jnp.ones(num_rows, bool))  # next to no memory
    data = eqx.tree_at(lambda data: (data.x, data.weights), data, leaves)
    keys = jax.random.split(jax.random.key(0), 100)
    draw = eqx.filter_jit(jax.vmap(lambda data, key: data.batch(key, batch_size), (None, 0)))
    rows = np.asarray(draw(data, keys).indices)
    edges = np.array([b * num_rows // batch_size for b in range(batch_size + 1)])
    assert np.all((rows >= edges[:-1]) & (rows < edges[1:]))
    last = rows[rows > 2**24]
    assert abs(np.mean(last % 2) - 0.5) < 5 * 0.5 / np.sqrt(last.size)


def test_a_large_batch_is_the_data_and_an_empty_one_is_refused():
    data = Dataset(X)
    assert data.batch(jax.random.key(0), 3) is data
    with pytest.raises(InputError, match="batch_size is 0; it must be at least 1"):
        data.batch(jax.random.key(0), 0)


# Scale


@pytest.mark.parametrize("scale", [Dataset.scale, jax.jit(Dataset.scale)])
def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row(scale):
    x = np.random.default_rng(0).normal(size=(6, 3)) * [1e-3, 1, 1e3]
    weighted = scale(Dataset(x, weights=[2, 1, 1, 0, 1, 3]))
    repeated = scale(Dataset(x[[0, 0, 1, 2, 4, 5, 5, 5]]))
    for one, two in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


def test_constant_columns_get_a_size_of_their_own():
    x = np.stack([np.full(7, 0.1), np.zeros(7), np.full(7, -3e5), np.arange(7.0)], axis=1)
    x[6, 0] = 99.0  # but without weight
    weights = [0.3, 1, 1, 1, 1, 1, 0]
    for scale in (Dataset.scale, jax.jit(Dataset.scale)):
        deviation = scale(Dataset(x, weights=weights))[1]
        np.testing.assert_allclose(deviation[:3], [0.1, 1.0, 3e5], rtol=1e-6)
        assert 1.0 < deviation[3] < 2.0


def test_scale_has_the_shape_of_a_row_and_survives_a_large_offset():
    x = np.random.default_rng(0).normal(size=(100_000, 2, 2)) + 1e4
    mean, deviation = Dataset(x).scale()
    assert mean.shape == deviation.shape == (2, 2)
    stored = x.astype(np.float32).astype(float)
    np.testing.assert_allclose(mean, stored.mean(0), rtol=1e-7)
    np.testing.assert_allclose(deviation, stored.std(0), rtol=1e-6)


# Pytree, jit, vmap


def test_a_coreset_is_a_dataset_and_a_pytree():
    assert Coreset is Dataset
    data = Dataset(X, [0, 1, 1], columns=["a", "b"], target="t", indices=[4, 5, 6])
    leaves, structure = jax.tree.flatten(data)
    assert len(leaves) == 4
    again = jax.tree.unflatten(structure, leaves)
    assert (again.columns, again.target, again.x is data.x) == (("a", "b"), "t", True)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, Dataset(X))
    np.testing.assert_array_equal(doubled.x, 2 * X)
    negative = jax.tree.map(lambda leaf: -leaf, Dataset(X))  # would be refused by the constructor
    np.testing.assert_array_equal(negative.weights, -np.ones(3))


def test_built_inside_jit_and_vmap_with_shapes_still_checked():
    traced = jax.jit(lambda x, w: Dataset(x, np.array([0, 1, 1]), w))(jnp.asarray(X), jnp.zeros(3))
    np.testing.assert_array_equal(traced.x, X)
    assert (traced.y.dtype, traced.weights.tolist()) == ("int32", [0.0, 0.0, 0.0])
    listed = jax.jit(lambda w: Dataset(X, weights=[w, w, 2 * w]).total_weight)(1.5)
    assert float(listed) == 6.0
    stacked = jax.vmap(lambda x: Dataset(x, jnp.arange(3)))(jnp.stack([X, X + 1]))
    assert (stacked.x.shape, stacked.weights.shape) == ((2, 3, 2), (2, 3))
    with pytest.raises(InputError, match="x has 3 rows but y has 2"):
        jax.jit(lambda x: Dataset(x, jnp.arange(2)))(X)
    with pytest.raises(InputError, match="x is a single number, not rows"):
        jax.jit(Dataset)(1.0)


def test_gradients_flow_through_x_and_weights():
    def total(x, weights):
        data = Dataset(x, weights=weights).take([2, 0])
        return jnp.sum(data.weights * data.x[:, 0])

    by_x, by_weights = jax.grad(total, argnums=(0, 1))(jnp.asarray(X), jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(by_x, [[1, 0], [0, 0], [3, 0]])
    np.testing.assert_array_equal(by_weights, [0, 0, 4])
