"""A model takes or refuses rows that are not in memory as it does the same rows in memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.models import row_checks
from coresetvi.models.prediction import align
from coresetvi.models.row_checks import check_rows

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(500, 2))
LATE = 457  # a row that no sample of a few rows has by luck


@pytest.fixture(autouse=True)
def small_sample(monkeypatch):
    """The sample is 20 of the 500 rows, so that most rows are in none."""
    monkeypatch.setattr(row_checks, "SAMPLED", 20)


def streamed(y, weights=None, x=X, columns=None):
    def batches():
        for start in range(0, len(x), 100):
            part = slice(start, start + 100)
            yield x[part], None if y is None else y[part], None if weights is None else weights[part]

    return cvi.scan(batches, batch_rows=64, columns=columns)


def test_whole_labels_pass_without_another_look():
    y = GENERATOR.integers(0, 2, 500)
    rows = streamed(y)
    assert check_rows(cvi.models.LogisticRegression(2), rows) is rows
    assert rows.passes == 1  # the survey


def test_floats_become_whole_numbers_in_every_answer():
    y = (np.arange(500) == LATE).astype(float)  # one row of the second class
    weights = GENERATOR.uniform(1, 2, 500)
    model = cvi.models.SoftmaxRegression(2, 2)  # which cannot look up labels that are floats
    rows = check_rows(model, streamed(y, weights))
    memory = model.check(cvi.Dataset(X, y, weights))
    assert rows.labels() == memory.labels() and rows.labels().whole
    assert {np.dtype(batch.y.dtype) for batch in rows.batches()} == {np.dtype("int32")}
    assert np.concatenate([np.asarray(batch.y) for batch in rows.batches()]).tolist() == y.tolist()
    assert rows.one_of_each().indices.tolist() == [0, LATE]
    assert rows.sample(jax.random.key(0), 5).y.dtype == jnp.int32
    theta = jnp.asarray([0.5, -1.0, 2.0, 0.1])
    found = rows.total(lambda some: some.weights @ model.log_likelihood(theta, some.x, some.y))
    wanted = memory.weights @ model.log_likelihood(theta, memory.x, memory.y)
    assert float(found) == pytest.approx(float(wanted), rel=1e-6)


def test_whole_numbers_become_floats_for_a_regression():
    y = GENERATOR.integers(-5, 5, 500)
    rows = streamed(y)
    checked = check_rows(cvi.models.LinearRegression(2), rows)
    assert checked.labels() == cvi.models.LinearRegression(2).check(cvi.Dataset(X, y)).labels()
    assert checked.one_of_each() is None
    assert rows.passes == 1  # nothing to be suspicious of
    assert next(checked.batches()).y.dtype == jnp.float32


WRONG = {
    "a class too many": (cvi.models.LogisticRegression(2), 2.0),
    "a fraction among classes": (cvi.models.LogisticRegression(2), 0.5),
    "a fraction among counts": (cvi.models.PoissonRegression(2), 0.5),
    "a negative count": (cvi.models.PoissonRegression(2), -1.0),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("dtype", [float, int])
def test_one_wrong_label_is_refused_in_the_same_words(name, dtype):
    model, wrong = WRONG[name]
    y = GENERATOR.integers(0, 2, 500).astype(float)
    y[LATE] = wrong
    if (y == np.floor(y)).all():
        y = y.astype(dtype)
    with pytest.raises(InputError) as in_memory:
        model.check(cvi.Dataset(X, y))
    with pytest.raises(InputError) as in_files:
        check_rows(model, streamed(y))
    assert str(in_files.value) == str(in_memory.value) and f"row {LATE}," in str(in_files.value)


def test_rows_to_fit_need_two_classes_and_rows_to_score_do_not():
    model, rows = cvi.models.LogisticRegression(2), streamed(np.zeros(500))
    with pytest.raises(InputError, match="single class"):
        check_rows(model, rows)
    assert check_rows(model, rows, fitting=False).labels().whole
    with pytest.raises(InputError, match="single class"):
        check_rows(model, streamed(np.zeros(500, int)))


def test_columns_and_labels_that_are_missing_are_refused():
    with pytest.raises(InputError, match="needs labels"):
        check_rows(cvi.models.LogisticRegression(2), streamed(None))
    with pytest.raises(InputError, match=r"shape \(2,\).*\(3,\)"):
        check_rows(cvi.models.LogisticRegression(3), streamed(np.arange(500) % 2))


def test_a_label_that_only_its_own_row_allows_is_no_mistake():
    import numpyro
    import numpyro.distributions as dist

    def trials(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Binomial(x[:, 0].astype(int), logits=slope * x[:, 1]), obs=y)

    total = np.where(np.arange(500) == LATE, 50, 3)
    y = np.where(np.arange(500) == LATE, 40, 2)
    x = np.column_stack([total, X[:, 0]])
    model = cvi.models.FromNumPyro(trials, cvi.Dataset(x, y))
    rows = streamed(y, x=x)
    check_rows(model, rows)
    assert rows.passes == 2  # 40 of 3 is suspicious, so all rows were looked at
    y[LATE] = 51
    with pytest.raises(InputError, match=f"Row {LATE} "):
        check_rows(model, streamed(y, x=x))


def test_columns_go_by_name():
    y = GENERATOR.integers(0, 2, 500)
    rows = streamed(y, x=np.column_stack([X[:, 1], np.zeros(500), X[:, 0]]), columns=["b", "other", "a"])
    like = cvi.Dataset(X[:3], y[:3], columns=["a", "b"])
    aligned = align(rows, like)
    assert aligned.columns == ("a", "b") and aligned.dim == 2 and aligned.row_shape == (2,)
    assert np.array_equal(np.concatenate([batch.x for batch in aligned.batches()]), X.astype(np.float32))
    wanted = cvi.Dataset(X).scale()
    for found, exact in zip(aligned.scale(), wanted, strict=True):
        assert np.allclose(found, exact, rtol=1e-6)
    assert np.allclose(aligned.total(lambda some: some.weights @ some.x), X.sum(axis=0), rtol=1e-5)
    assert aligned.one_of_each().columns == ("a", "b")
    assert aligned.fingerprint() != rows.fingerprint()
    with pytest.raises(InputError, match="lacks the column 'c'"):
        align(rows, cvi.Dataset(X[:3], columns=["c", "b"]))
    with pytest.raises(InputError, match="shape"):
        align(streamed(y), cvi.Dataset(np.zeros((3, 3))))
