"""Every verb says of rows that are read in blocks what it says of the same rows in memory."""

import functools

import jax
import jaxtyping
import numpy as np
import pytest
from streamed import fit_rows, problem, stream

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.posterior import size_choice

DRAWS = 300  # enough to compare slopes
pytestmark = pytest.mark.usefixtures("quick_compilation")


@functools.cache
def numpyro_problem():
    import numpyro
    import numpyro.distributions as dist

    def robust(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        width = numpyro.sample("width", dist.HalfNormal(1.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.StudentT(4.0, x @ slope, width), obs=y)

    data = problem("linear", 400, 2)[1]
    return cvi.models.FromNumPyro(robust, data), data


@functools.cache
def case(name):
    """A model, rows, and a fit that is not the posterior of all of them."""
    model, data = numpyro_problem() if name == "numpyro" else problem(name, 400, 2)
    return model, data, cvi.fit(cvi.SubsetLaplace(60), model, data, key=0)


def draws_of(fit):
    return cvi.sample(fit, method="variational", num_samples=DRAWS, num_chains=1)


def corrected(fit, data):
    found = cvi.correct(draws_of(fit), data)
    names = ("khat", "ess", "corrected_to")
    return {name: found.about[name] for name in names} | {"weights": found.weights, "mean": found.mean}


def certificate(fit, data):
    found = cvi.diagnose(fit, data, held_out=data, num_samples=DRAWS, reference=fit)
    return {
        (part, name): value
        for part in ("r", "posterior", "elbo", "train", "held_out", "reference")
        for name, value in getattr(found, part).items()
    } | {"verdict": found.verdict}


VERBS = {
    "evaluate": lambda fit, data: fit.evaluate(data),
    "correct": corrected,
    "diagnose": certificate,
}


@pytest.mark.parametrize("name", ["linear", "logistic", "softmax", "numpyro"])
@pytest.mark.parametrize("verb", VERBS)
def test_streamed_rows_are_read_as_rows_in_memory_are(verb, name):
    _, data, fit = case(name)
    in_memory, streamed = (VERBS[verb](fit, rows) for rows in (data, stream(data)))
    assert in_memory.keys() == streamed.keys()
    for part, value in in_memory.items():
        if isinstance(value, str):
            assert streamed[part] == value, part
        else:
            # Both add up the same float32 numbers, in another order.
            assert np.allclose(streamed[part], value, rtol=2e-3, atol=2e-4), part


PASSES = {"evaluate": 1, "correct": 1, "diagnose": 2}


@pytest.mark.parametrize("verb", PASSES)
def test_a_question_is_one_pass_for_all_draws(verb):
    _, data, fit = case("logistic")
    rows = stream(data)
    assert rows.num_rows == 400 and rows.passes == 1
    if verb == "diagnose":
        cvi.diagnose(fit, rows, num_samples=1000)
    elif verb == "correct":
        cvi.correct(cvi.sample(fit, method="variational", num_samples=3000), rows)
    else:
        fit.evaluate(rows)
    assert rows.passes == 1 + PASSES[verb]


def test_columns_go_by_name_and_labels_by_type():
    model, data = problem("logistic", 300, 2)
    named = cvi.Dataset(data.x, data.y, data.weights, columns=["a", "b"])
    fit = cvi.fit(cvi.SubsetLaplace(60), model, named, key=0)
    mixed = np.column_stack([data.x[:, 1], np.zeros(300), data.x[:, 0]])
    as_floats = np.asarray(data.y, float)

    def batches():
        yield from (
            (mixed[part], as_floats[part], data.weights[part]) for part in (slice(120), slice(120, 300))
        )

    rows = cvi.scan(batches, columns=["b", "other", "a"], batch_rows=70)
    wanted, found = fit.evaluate(named), fit.evaluate(rows)
    assert found.keys() == wanted.keys() and np.allclose(
        list(found.values()), list(wanted.values()), rtol=1e-5
    )


def test_scores_of_rows_without_weight_are_not_counted():
    data = problem("softmax", 300, 2)[1]
    fit = case("softmax")[2]
    weights = np.where(np.arange(300) < 150, 0.0, np.asarray(data.weights))
    wanted = fit.evaluate(data.take(np.arange(150, 300)))
    found = fit.evaluate(stream(cvi.Dataset(data.x, data.y, weights), 50))
    assert np.allclose(list(found.values()), list(wanted.values()), rtol=1e-5)


def test_sampling_all_rows_asks_for_a_coreset():
    model, data, _ = case("linear")
    with pytest.raises(InputError, match="fit a coreset to them and draw from that"):
        cvi.sample(model, stream(data))  # pyright: ignore


def test_predictions_go_block_by_block():
    _, data, fit = case("logistic")
    with pytest.raises(InputError, match=r"for some in rows\.batches\(\)"):
        fit.predict(stream(data))
    blocks = [fit.predict(some) for some in stream(data).batches()]
    assert np.allclose(np.concatenate(blocks), fit.predict(data), rtol=1e-5)


def test_what_is_no_rows_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    _, _, fit = case("linear")
    for verb in (
        fit.evaluate,
        functools.partial(cvi.diagnose, fit),
        functools.partial(cvi.correct, draws_of(fit)),
    ):
        with pytest.raises(
            InputError, match=r"data must be a Dataset\(x, y\) or what coresetvi.scan returned"
        ):
            verb("rows.parquet")  # pyright: ignore[reportArgumentType]


def test_sizes_and_growth_come_from_rows():
    model, data = problem("linear", 1500, 2)
    rows = stream(data, 500)
    assert size_choice.series(None, 100, rows) == size_choice.series(None, 100, data)
    assert size_choice.series(None, 10_000, rows)[-1] == 1500
    before = fit_rows(cvi.SubsetLaplace(20), model, rows).coreset
    grown = size_choice.grow(before, rows, 50, cvi.BBPSVI(50), model, jax.random.key(1))
    assert len(grown) == 50 and len(set(grown.indices.tolist())) == 50
    assert float(grown.total_weight) == pytest.approx(float(before.total_weight), rel=1e-5)
    assert np.allclose(grown.x, data.x[np.asarray(grown.indices)], rtol=1e-4, atol=1e-5)


def test_rows_that_a_model_has_to_look_at_are_looked_at_once():
    x = np.random.default_rng(0).normal(size=(300, 2))
    y = np.random.default_rng(1).poisson(np.exp(0.3 * x[:, 0])).astype(float)  # floats may be no counts
    model, data = cvi.models.PoissonRegression(2), cvi.Dataset(x, y)
    fit = cvi.fit(cvi.SubsetLaplace(60), model, data, key=0)
    rows = stream(data)
    cvi.diagnose(fit, rows, num_samples=DRAWS)
    assert rows.passes == 1 + 1 + PASSES["diagnose"]
