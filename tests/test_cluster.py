"""Rows on a Dask cluster say what the same rows on one machine say, whatever happens to the workers."""

import itertools
import os
import signal
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

import coresetvi as cvi
from coresetvi.data import cluster_source
from coresetvi.data.cluster_rows import ClusterRows, best_length
from coresetvi.data.cluster_source import even_homes
from coresetvi.data.dataset import concatenate
from coresetvi.data.pieces import Piece
from coresetvi.data.survey import RunningSurvey, survey
from coresetvi.errors import InputError
from coresetvi.models.local_view import Question, view_of

dask_frames: Any = pytest.importorskip("dask.dataframe")
distributed: Any = pytest.importorskip("distributed")

RANDOM = np.random.default_rng(0)
NUM = 30_000  # more than a survey keeps
FRAME = pandas.DataFrame(
    {
        "a": RANDOM.normal(size=NUM),
        "b": 1e4 + RANDOM.normal(size=NUM),
        "kind": np.array(["rose", "aster", "iris"])[RANDOM.integers(0, 3, NUM)],
        "w": RANDOM.uniform(size=NUM) * (RANDOM.uniform(size=NUM) > 0.1),
    }
)
# Of very different lengths, one of them empty.
EDGES = (0, 11, 9_000, 9_000, 20_000, 29_990, NUM)
PARTS = [FRAME.iloc[start:end] for start, end in itertools.pairwise(EDGES)]


def part(number: int) -> pandas.DataFrame:
    return PARTS[number]


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def dask_frame(frame: Any = FRAME, count: int = 5):
    return dask_frames.from_pandas(frame, npartitions=count, sort=False)


@pytest.fixture(scope="module")
def rows(client):
    frame = dask_frames.from_map(part, range(len(PARTS)), meta=FRAME.iloc[:0])
    return cvi.scan(frame, target="kind", weights="w", client=client)


@pytest.fixture(scope="module")
def alone():
    """The same rows on one machine, cut in other places."""
    return cvi.scan(
        lambda: iter([FRAME.iloc[:7_000], FRAME.iloc[7_000:]]), target="kind", weights="w", columns=["a", "b"]
    )


def same(one: cvi.Dataset, two: cvi.Dataset) -> None:
    assert one.indices.tolist() == two.indices.tolist()
    for left, right in zip(one.to_numpy(), two.to_numpy(), strict=True):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype


def test_a_cluster_surveys_rows_as_one_machine_does(rows, alone):
    assert (rows.columns, rows.target, rows.classes) == (("a", "b"), "kind", ("aster", "iris", "rose"))
    assert (len(rows), rows.labels(), rows.row_shape) == (NUM, alone.labels(), (2,))
    assert rows.total_weight == pytest.approx(FRAME.w.astype(np.float32).astype(float).sum(), rel=1e-12)
    for one, two in zip(rows.scale(), alone.scale(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-7)
    same(rows.one_of_each(), alone.one_of_each())
    for count in (1, 100, 20_000, 25_000, NUM):  # from what the survey keeps, from another pass, and all
        same(rows.sample(jax.random.key(count), count), alone.sample(jax.random.key(count), count))
    assert rows.fingerprint() == alone.fingerprint()


def test_a_cluster_adds_up_as_one_machine_does(rows):
    before = rows.passes
    found = rows.total(lambda some, power: (some.weights @ some.x**power, jnp.sum(some.y == 1)), 2)
    weights, x = FRAME.w.astype(np.float32).astype(float), FRAME[["a", "b"]].astype(np.float32).astype(float)
    np.testing.assert_allclose(found[0], weights @ x**2, rtol=2e-6)
    padded = found[1] - (FRAME.kind == "iris").sum()  # rows that fill up are copies: only weights tell them
    assert found[0].dtype == jnp.float32 and found[1].dtype == jnp.int32 and padded >= 0
    assert rows.passes == before + 1


def test_batches_come_in_the_order_of_the_rows(rows, alone):
    same(concatenate(*rows.batches()), concatenate(*alone.batches()))


def test_a_model_is_looked_at_as_on_one_machine(rows, alone):
    model = cvi.models.SoftmaxRegression(2, 3)
    thetas = jnp.asarray(1e-4 * RANDOM.normal(size=(5, model.dim)), jnp.float32)
    question = Question(thetas[0], 1e-4 * jnp.eye(model.dim), thetas[1:])
    for one, two in zip(view_of(model, rows, question), view_of(model, alone, question), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5 * np.abs(two).max())


def test_double_precision_reaches_the_workers(client, float64):
    rows = cvi.scan(dask_frame(FRAME[["a", "b"]]), client=client)
    found = rows.total(lambda some: some.weights @ some.x)
    assert found.dtype == jnp.float64 and rows.sample(jax.random.key(0), 3).x.dtype == jnp.float64
    np.testing.assert_allclose(found, FRAME[["a", "b"]].sum(), rtol=1e-11)


def test_each_worker_compiles_a_sum_once(rows, tmp_path):
    """Whatever the lengths of partitions, the values of arguments, and the number of passes."""
    folder = str(tmp_path)

    def traced(some, factor):
        with open(f"{folder}/{os.getpid()}", "a") as file:
            file.write("traced\n")
        return factor * (some.weights @ some.x)

    one, two = (rows.total(traced, jnp.float32(factor)) for factor in (1.0, 2.0))
    np.testing.assert_array_equal(2 * one, two)
    files = list(tmp_path.iterdir())
    assert 1 <= len(files) <= 2 and all(file.read_text() == "traced\n" for file in files)


def test_workers_that_die_change_nothing(client, tmp_path):
    """Two workers are killed in the middle of a pass, one after the other: all rows are lost once."""
    rows = cvi.scan(dask_frame(count=12), target="kind", weights="w", client=client)
    folder = str(tmp_path)

    def deadly(some, kills):
        for number in range(kills):
            try:
                open(f"{folder}/{number}", "x").close()
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return some.weights @ some.x, some.weights.sum()

    expected = rows.total(deadly, 0)
    pids = set(client.run(os.getpid).values())
    found = rows.total(deadly, 2)
    assert len(list(tmp_path.iterdir())) == 2
    client.wait_for_workers(2)
    assert len(pids & set(client.run(os.getpid).values())) < 2
    for one, two in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, two)


# Files


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(cluster_source, "PART_NUMBERS", 2 * 4_000)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.usefixtures("small_parts")
def test_workers_read_files(client, tmp_path, ending):
    for number, frame in enumerate(PARTS):
        path = tmp_path / f"{number}.{ending}"
        if ending == "csv":
            frame.to_csv(path, index=False)
        else:
            table = pyarrow.Table.from_pandas(frame, preserve_index=False)
            pyarrow.parquet.write_table(table, path, row_group_size=1_500)
    one = cvi.scan(tmp_path, target="kind", weights="w", client=client.scheduler.address)
    assert isinstance(one, ClusterRows)
    two = cvi.scan(tmp_path, target="kind", weights="w")
    assert one.fingerprint() == two.fingerprint() and one.classes == two.classes
    same(concatenate(*one.batches()), concatenate(*two.batches()))
    assert len(one._partitions.pieces) == (6 if ending == "csv" else 13)


@pytest.mark.usefixtures("small_parts")
def test_what_is_wrong_is_named_by_file_row_and_column(client, tmp_path):
    """The first of several, as if the rows had been read one after the other."""
    for number, bad in enumerate([7_001, 3]):
        values = np.zeros(8_000)
        values[bad] = np.nan
        table = pyarrow.table({"a": np.zeros(8_000), "b": values})
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=1_000)
    with pytest.raises(InputError, match=r"0\.parquet has a NaN in row 7001, column 'b'"):
        len(cvi.scan(tmp_path, client=client))


# What is wrong with frames, clusters and functions


def test_partitions_are_named(client):
    frame, whole = FRAME[["a", "b"]].copy(), dask_frame()
    frame.loc[NUM - 1, "b"] = np.inf
    with pytest.raises(InputError, match="partition 4 of the Dask data frame has an infinite value in row"):
        len(cvi.scan(dask_frame(frame), client=client))
    with pytest.raises(InputError, match="partition 0 of the Dask data frame has 'rose' in row 0, column 'k"):
        len(cvi.scan(whole.assign(kind="rose"), client=client))
    with pytest.raises(InputError, match="the Dask data frame has no rows"):
        len(cvi.scan(whole[whole.a > 1e9][["a"]], client=client))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"target": "sick"}, "target='sick' is not a column of the Dask data frame; it has 'a', 'b', 'kind'"),
        ({"columns": ["c"]}, "columns has 'c', which is not a column of the Dask data frame"),
        ({"client": "tcp://127.0.0.1:1"}, "client='tcp://127.0.0.1:1' does not lead to a Dask scheduler"),
        ({"client": "elsewhere"}, "client='elsewhere' does not lead to a Dask scheduler"),
        ({"client": 3}, "client is 3; pass a dask.distributed.Client or the address of a scheduler"),
    ],
)
def test_what_cannot_be_scanned(client, monkeypatch, arguments, words):
    monkeypatch.setattr("coresetvi.data.cluster_client.PATIENCE", 0.5)
    with pytest.raises(InputError) as caught:
        cvi.scan(dask_frame(), **{"client": client, **arguments})
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_only_files_and_frames_can_be_spread(client):
    with pytest.raises(InputError, match="with client=, pass files that they can read, or a Dask data frame"):
        cvi.scan(lambda: iter([FRAME]), client=client)


def test_without_dask(monkeypatch, tmp_path):
    (tmp_path / "rows.csv").write_text("a\n1\n")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r'pip install "coresetvi\[distributed\]"'):
        cvi.scan(tmp_path / "rows.csv", client="tcp://127.0.0.1:1")


def test_a_frame_without_a_client(monkeypatch):
    def nobody():
        raise ValueError("No global client found")

    monkeypatch.setattr(distributed, "get_client", nobody)
    with pytest.raises(InputError, match="no Dask client has been started; pass client="):
        cvi.scan(dask_frame())


def test_a_cluster_without_workers_or_scheduler():
    cluster = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0")
    with distributed.Client(cluster, set_as_default=False) as client:
        with pytest.raises(InputError, match="has no workers; start some"):
            cvi.scan(dask_frame(), client=client)
        cluster.close()
        with pytest.raises(InputError, match="is not there any more"):
            cvi.scan(dask_frame(), client=client)
    with pytest.raises(InputError, match="is not there any more"):
        cvi.scan(dask_frame(), client=client)


def test_workers_with_another_version_or_none(client):
    (worker, *_) = client.run(os.getpid)

    def pretend(version: str | None) -> None:
        import coresetvi._version

        if version is None:
            sys.modules["coresetvi._version"] = None  # pyright: ignore[reportArgumentType]
        else:
            sys.modules["coresetvi._version"] = coresetvi._version
            coresetvi._version.__version__ = version

    def restore(version: str) -> None:
        sys.modules.pop("coresetvi._version", None)
        import coresetvi._version

        assert coresetvi._version.__version__ == version

    try:
        client.run(pretend, "0.0.1", workers=[worker])
        with pytest.raises(
            InputError, match=f"worker at {worker} has coresetvi 0.0.1, but {cvi.__version__}"
        ):
            cvi.scan(dask_frame(), client=client)
        client.run(pretend, None, workers=[worker])
        with pytest.raises(InputError, match=f"the Dask worker at {worker} does not have coresetvi; install"):
            cvi.scan(dask_frame(), client=client)
    finally:
        client.run(restore, cvi.__version__, workers=[worker])


def test_a_function_that_cannot_be_sent(rows):
    lock = threading.Lock()
    with pytest.raises(InputError, match=r"cannot be sent to the workers of a cluster .*lock"):
        rows.total(lambda some: some.weights.sum() * lock.locked())


def test_a_function_that_workers_cannot_load(rows, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def weight(some):\n    return some.weights.sum()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # pyright: ignore[reportMissingImports]

    with pytest.raises(InputError, match=r"cannot load the model or the function \(No module named 'only_h"):
        rows.total(only_here.weight)


def test_an_error_on_a_worker_is_itself(rows):
    with pytest.raises(ZeroDivisionError):
        rows.total(lambda some: 1 / 0)


def test_work_that_kills_every_worker_is_given_up(client, rows, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(InputError, match="died again and again at the same work"):
        rows.total(lambda some: os.kill(os.getpid(), signal.SIGKILL))


# Surveys and blocks


@pytest.mark.parametrize(
    "y",
    [
        None,
        RANDOM.integers(0, 5, 500),
        RANDOM.integers(0, 10_000, 500_0)[:500],
        np.arange(1500),
        RANDOM.normal(size=500),
        RANDOM.uniform(size=(500, 3)),
        np.array(["b", "a", "c"], dtype=object)[RANDOM.integers(0, 3, 500)],
        np.array(["1", "01", "2.0"], dtype=object)[RANDOM.integers(0, 3, 500)],
        np.array(["1.5", "01", "2.0"], dtype=object)[RANDOM.integers(0, 3, 500)],
        np.array([str(number) for number in range(1500)], dtype=object),
    ],
    ids=lambda y: "none" if y is None else f"{y.dtype}{y.shape}{y.flat[0]}",
)
def test_merged_surveys_are_one(y, monkeypatch):
    monkeypatch.setattr("coresetvi.data.survey.SAMPLE_ROWS", 50)
    num = 500 if y is None else len(y)
    x, weights = RANDOM.normal(size=(num, 2)) * [1.0, 0.0] + 1e6, RANDOM.integers(0, 3, num) * 1.0
    whole = Piece(x, y, weights)
    expected = survey([whole], "rows", "y")
    edges = [0, 0, 1, 30, 31, 200, num - 1, num]
    merged = RunningSurvey("rows", "y")
    for start, end in itertools.pairwise(edges):
        one = RunningSurvey("rows", "y", start)
        one.add(whole.part(slice(start, end)))
        merged.merge(one)
    found = merged.result()
    for name in ("num_rows", "row_shape", "codes", "labels"):
        assert getattr(found, name) == getattr(expected, name)
    for name in ("total_weight", "mean", "deviation", "sample_rows", "first_rows"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
    for one, two in ((found.sample, expected.sample), (found.firsts, expected.firsts)):
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            np.testing.assert_array_equal(one.x, two.x)
            np.testing.assert_array_equal(one.y, two.y)


def test_surveys_of_other_rows_do_not_merge():
    first, later = RunningSurvey("rows", "y"), RunningSurvey("rows", "y", 2)
    first.add(Piece(np.ones((2, 1)), np.array(["a", "b"], dtype=object), np.ones(2)))
    later.add(Piece(np.ones((1, 1)), np.array([1.0]), np.ones(1)))
    with pytest.raises(InputError, match="target 'y' changes its type around row 2"):
        first.merge(later)
    with pytest.raises(ValueError, match="followed by 2, not by 0"):
        first.merge(RunningSurvey("rows", "y"))
    names = [f"name {number}" for number in range(1_200)]
    halves = [RunningSurvey("rows", "y", start) for start in (0, 600)]
    for half in halves:
        labels = np.array(names[half.start : half.start + 600], dtype=object)
        half.add(Piece(np.ones((600, 1)), labels, np.ones(600)))
    with pytest.raises(InputError, match="holds text with more than 1000 different values"):
        halves[0].merge(halves[1])


def test_rows_are_spread_by_threads_and_few_move():
    lengths, holders = [10] * 16, ["a"] * 14 + ["b"] * 2
    homes = even_homes(lengths, holders, {"a": 1, "b": 1})
    assert homes == ["a"] * 8 + ["b"] * 8
    homes = even_homes(lengths, [None, "gone", *holders[2:]], {"a": 1, "b": 3})
    assert homes.count("a") == 4 and homes.count("b") == 12 and homes[2:6] == ["a"] * 4


def test_little_is_filled_up():
    for lengths in ([1000, 1000, 990], [5], [300_000, 10, 10, 10], [1, 0, 70_000, 512]):
        length = best_length(lengths, 65_536)
        filled = sum(-(-rows // length) * length for rows in lengths)
        assert 1 <= length <= 65_536 and filled <= 1.3 * sum(lengths) + 3 * 512, (lengths, length)
    assert best_length([1000], 10) == 10
