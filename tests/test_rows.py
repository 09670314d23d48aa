"""Rows that are read in blocks say exactly what the same rows in memory say."""

import threading
import time
import tracemalloc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.data import accumulate, read_ahead, streaming, survey
from coresetvi.data.dataset import concatenate
from coresetvi.data.pieces import Piece
from coresetvi.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1003, 3)) * [1.0, 100.0, 0.0] + [5.0, -3.0, 7.0]
Y = RANDOM.integers(0, 4, 1003)
WEIGHTS = RANDOM.uniform(size=1003) * (RANDOM.uniform(size=1003) > 0.2)
WHOLE = cvi.Dataset(X, Y, WEIGHTS, columns=["a", "b", "c"], target="label")


def batches(lengths=(100, 0, 1, 399, 503)):
    """A function that makes batches of these lengths from the rows above."""

    def make():
        start = 0
        for length in lengths:
            part = slice(start, start + length)
            yield X[part], Y[part], WEIGHTS[part]
            start += length

    return make


def streamed(batch_rows=None, lengths=(100, 0, 1, 399, 503)):
    return cvi.scan(batches(lengths), columns=["a", "b", "c"], target="label", batch_rows=batch_rows)


def sums(rows, power):
    return {"count": jnp.sum(rows.weights > 0), "x": rows.weights @ rows.x**power, "y": rows.weights @ rows.y}


def test_both_kinds_are_rows():
    for rows in (WHOLE, streamed()):
        assert isinstance(rows, cvi.data.Rows)
        assert (len(rows), rows.num_rows, rows.dim, rows.row_shape) == (1003, 1003, 3, (3,))
        assert rows.columns == ("a", "b", "c") and rows.target == "label"
        assert float(rows.total_weight) == pytest.approx(WEIGHTS.sum(), rel=1e-6)


@pytest.mark.parametrize("batch_rows", [None, 1, 7, 256, 1003, 5000])
def test_totals_are_those_in_memory(batch_rows, float64):
    rows = streamed(batch_rows)
    whole = cvi.Dataset(X, Y, WEIGHTS)
    for found in (rows.total(sums, 2), whole.total(sums, 2)):
        assert int(found["count"]) == (WEIGHTS > 0).sum()
        np.testing.assert_allclose(found["x"], WEIGHTS @ X**2, rtol=1e-12)
        np.testing.assert_allclose(found["y"], WEIGHTS @ Y, rtol=1e-12)


def test_totals_are_added_up_in_float64():
    # In float32, 2**24 + 1 is 2**24: block by block these ones would be lost.
    values = np.r_[2.0**24, np.ones(64)].reshape(-1, 1)
    rows = cvi.scan(lambda: iter([(values,)]), batch_rows=1)
    assert float(rows.total(lambda rows: rows.weights @ rows.x[:, 0])) == 2.0**24 + 64


def test_a_sum_is_compiled_once_for_all_blocks_and_passes():
    traced = []

    class Sum(eqx.Module):
        power: jax.Array

        def __call__(self, rows, shift):
            traced.append(rows.x.shape)
            return rows.weights @ (rows.x + shift) ** self.power

    rows = streamed(64)
    first = rows.total(Sum(jnp.array(1.0)), jnp.array(0.0))
    second = rows.total(Sum(jnp.array(2.0)), jnp.array(1.0))
    # 1,003 rows make 16 blocks of 63, not 15 of 64 and one of 43.
    assert traced == [(63, 3)]
    np.testing.assert_allclose(first, WEIGHTS @ X, rtol=1e-4)
    np.testing.assert_allclose(second, WEIGHTS @ (X + 1) ** 2, rtol=1e-4)
    assert rows.passes == 3


def test_whole_numbers_stay_whole_and_do_not_wrap():
    rows = cvi.scan(lambda: iter([(np.ones((4, 1)),)]), batch_rows=1)
    assert rows.total(lambda rows: jnp.sum(rows.weights).astype(int)).dtype == jnp.int32
    with pytest.raises(InputError, match="too large for int32"):
        rows.total(lambda rows: jnp.sum(rows.weights).astype(int) * 2**30)


@pytest.mark.parametrize("batch_rows", [None, 7])
def test_scale_is_that_in_memory(batch_rows):
    for found, exact in zip(streamed(batch_rows).scale(), WHOLE.scale(), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-6)
        assert found.dtype == exact.dtype
    assert float(streamed().scale()[1][2]) == 7.0  # the constant column


def test_rows_without_weight_have_no_say_in_the_scale(float64):
    # Constant columns, the means of some of which are off by rounding in float64.
    weights = RANDOM.uniform(0.1, 1.0, 1000) * (np.arange(1000) != 5)
    values = np.linspace(0.1, 1.0, 200)
    data = cvi.Dataset(np.where(weights[:, None] > 0, values, 8.0), weights=weights)
    for rows in (data, cvi.scan(lambda: iter([data]))):
        np.testing.assert_allclose(rows.scale(), [values, values], rtol=1e-6)


def test_moments_survive_a_large_mean(float64):
    x = RANDOM.normal(size=(5000, 1)) + 1e9
    found = cvi.scan(lambda: iter([(part,) for part in np.split(x, 50)])).scale()
    np.testing.assert_allclose(found[1], x.std(axis=0), rtol=1e-9)


def test_batches_hold_every_row_once_and_in_order():
    rows = streamed(64)
    found = list(rows.batches())
    assert max(map(len, found)) <= 64
    joined = concatenate(*found)
    for one, two in zip(joined.to_numpy(), WHOLE.to_numpy(), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(joined.indices, np.arange(1003))
    assert [len(part) for part in WHOLE.batches()] == [1003]


@pytest.mark.parametrize("kept", [20_000, 100])
def test_samples_are_rows_without_replacement(kept, monkeypatch):
    monkeypatch.setattr(survey, "SAMPLE_ROWS", kept)
    for rows in (WHOLE, streamed(64)):
        for count in (1, 50, 300):
            drawn = rows.sample(jax.random.key(1), count)
            numbers = np.asarray(drawn.indices)
            assert len(set(numbers.tolist())) == len(drawn) == count
            np.testing.assert_array_equal(drawn.x, np.asarray(WHOLE.x)[numbers])
            np.testing.assert_array_equal(drawn.y, np.asarray(WHOLE.y)[numbers])
            np.testing.assert_array_equal(drawn.weights, np.asarray(WHOLE.weights)[numbers])
            again = rows.sample(jax.random.key(1), count)
            np.testing.assert_array_equal(drawn.indices, again.indices)
        everything = rows.sample(jax.random.key(1), 2000)
        np.testing.assert_array_equal(everything.indices, np.arange(1003))
        np.testing.assert_array_equal(everything.x, WHOLE.x)
    assert drawn.columns == ("a", "b", "c") and drawn.target == "label"


def test_few_large_rows_are_kept(monkeypatch):
    monkeypatch.setattr(survey, "SAMPLE_NUMBERS", 60)
    rows = streamed()
    assert len(rows) == 1003 and rows.passes == 1
    rows.sample(jax.random.key(0), 20)
    assert rows.passes == 1  # 20 rows of 3 numbers were kept
    assert len(rows.sample(jax.random.key(0), 21)) == 21 and rows.passes == 2


def test_the_sample_of_the_survey_is_uniform_and_blind_to_batches():
    """Each of 400 rows is among the 100 kept with probability 1/4, and not more often for being late."""
    counts = np.zeros(400)
    for seed in range(500):
        reservoir = survey.Reservoir(100)
        reservoir.random = np.random.default_rng(seed)
        for start in range(0, 400, 50):
            reservoir.add(Piece(np.zeros((50, 1)), None, np.ones(50)), start)
        counts[reservoir.rows()[1]] += 1
    assert counts.sum() == 500 * 100
    # 400 binomial counts with standard deviation 9.7: the worst of them is within 4.2 of these.
    assert np.abs(counts - 125).max() < 4.2 * np.sqrt(500 * 0.25 * 0.75)
    assert abs(counts[:200].sum() - 25_000) < 4 * 9.7 * np.sqrt(200 * 0.5)
    one, two = (streamed(lengths=lengths).fingerprint() for lengths in ((1003,), (3, 1000)))
    assert one == two


def test_labels_are_summed_up_alike():
    exact = WHOLE.labels()
    assert streamed().labels() == exact and exact.counts == {k: int((Y == k).sum()) for k in range(4)}
    amounts = cvi.scan(lambda: iter([(X, X[:, 0])])).labels()
    assert not amounts.whole and amounts.counts is None
    assert (amounts.least, amounts.greatest) == pytest.approx((X[:, 0].min(), X[:, 0].max()))
    assert cvi.scan(lambda: iter([(X,)])).labels() is None
    many = cvi.scan(lambda: iter([(np.ones((1500, 1)), np.arange(1500))]))
    assert many.labels().whole and many.labels().counts is None and many.one_of_each() is None
    soft = cvi.scan(lambda: iter([(X, np.full((1003, 2), 0.5))]))
    assert soft.labels().shape == (2,) and soft.one_of_each() is None


def test_whole_numbers_and_floats_in_different_batches_are_floats():
    assert not cvi.scan(lambda: iter([(X[:1], [0.5]), (X[1:3], [1, 2])])).labels().whole
    rows = cvi.scan(lambda: iter([(X[:2], [1, 2]), (X[2:3], [0.5])]))
    assert not rows.labels().whole
    assert [part.y.dtype for part in rows.batches()] == [jnp.float32]
    assert rows.sample(jax.random.key(0), 3).y.tolist() == [1.0, 2.0, 0.5]


def test_one_of_each_is_the_first_row_with_weight():
    y, weights = np.array([5, 2, 5, 2, 9]), np.array([0.0, 1.0, 1.0, 1.0, 1.0])
    data = cvi.Dataset(np.arange(5), y, weights)
    rows = cvi.scan(lambda: iter([data.take([0]), data.take([1, 2]), data.take([3, 4])]))
    for kind in (data, rows):
        found = kind.one_of_each()
        assert found.indices.tolist() == [1, 2, 4] and found.y.tolist() == [2, 5, 9]


def test_text_labels_are_encoded_in_sorted_order():
    pandas = pytest.importorskip("pandas")

    def frames():
        yield pandas.DataFrame({"a": [1.0, 2.0], "kind": ["rose", "iris"]})
        yield pandas.DataFrame({"a": [3.0], "kind": ["aster"]})

    rows = cvi.scan(frames, target="kind")
    assert rows.classes == ("aster", "iris", "rose") and rows.columns == ("a",)
    assert [part.y.tolist() for part in rows.batches()] == [[2, 1, 0]]
    assert rows.labels().counts == {0: 1, 1: 1, 2: 1} and rows.one_of_each().indices.tolist() == [2, 1, 0]


def test_text_that_is_numbers_stays_numbers():
    pandas = pytest.importorskip("pandas")
    rows = cvi.scan(lambda: iter([pandas.DataFrame({"a": [1, 2, 3], "y": ["7", "3", "7"]})]), target="y")
    assert rows.classes is None and rows.labels().counts == {3: 1, 7: 2}
    assert next(rows.batches()).y.tolist() == [7, 3, 7]


def test_rows_may_have_any_shape(float64):
    images = RANDOM.normal(size=(30, 4, 4, 1))
    rows = cvi.scan(lambda: iter([(images[:11],), (images[11:],)]), batch_rows=8)
    assert rows.row_shape == (4, 4, 1) and rows.dim == 16 and rows.scale()[0].shape == (4, 4, 1)
    found = rows.total(lambda rows: jnp.tensordot(rows.weights, rows.x, 1))
    np.testing.assert_allclose(found, images.sum(axis=0), rtol=1e-10)


def test_the_next_batch_is_read_while_this_one_is_used():
    def slow():
        for _ in range(10):
            time.sleep(0.03)
            yield 1

    start = time.perf_counter()
    for _ in read_ahead.read_ahead(slow):
        time.sleep(0.03)
    assert time.perf_counter() - start < 0.5  # one after the other: 0.6


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "coresetvi-read-ahead"]


@pytest.mark.parametrize("how", ["break", "exception", "ctrl-c"])
def test_a_reader_that_is_left_early_ends(how):
    made = []

    def endless():
        while True:
            made.append(1)
            yield 1

    if how == "break":
        for _ in read_ahead.read_ahead(endless):
            break
    else:
        error = ValueError if how == "exception" else KeyboardInterrupt
        with pytest.raises(error):
            for _ in read_ahead.read_ahead(endless):
                raise error
    assert threads() == [] and len(made) <= 3  # the one used, one waiting, one in hand


def test_an_exception_in_the_thread_comes_out_as_itself():
    class OwnError(Exception):
        pass

    def broken():
        yield X, Y
        raise OwnError("the disk is gone")

    with pytest.raises(OwnError, match="the disk is gone"):
        len(cvi.scan(broken))
    assert threads() == []


def test_a_sum_that_fails_ends_the_thread():
    rows = streamed(8)
    with pytest.raises(ZeroDivisionError):
        rows.total(lambda rows: 1 / 0)
    assert threads() == []


def test_few_sums_are_alive_at_once():
    """The newest waits for the one before it, and for no older one."""
    accumulator = accumulate.Accumulator()
    for value in range(5):
        accumulator.add(jnp.array(float(value)))
        assert accumulator.newest == value
    assert float(accumulator.result()) == 10.0


def test_few_blocks_are_in_memory_at_once():
    block = np.zeros((5000, 50), np.float32)

    def make():
        for number in range(60):
            yield block + number, np.full(5000, number % 7)

    rows = cvi.scan(make, batch_rows=5000)
    rows.labels()
    tracemalloc.start()
    rows.total(lambda rows: rows.weights @ rows.x)
    for _ in rows.batches():
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One that is used, one that waits, one in the making with copies of its parts; not sixty.
    assert block.nbytes < peak < 8 * block.nbytes


def test_blocks_hold_about_a_million_numbers():
    assert cvi.scan(lambda: iter([(np.ones((3, 10)),)])).batch_rows == 65_536
    assert cvi.scan(lambda: iter([(np.ones((3, 2**16)),)])).batch_rows == streaming.LEAST_ROWS
