"""What is refused, and how: an InputError of one sentence that names the culprit. And what is not refused.

The refusals are met as a user meets them: in a process of their own, without the type checks of the tests,
which would speak up first. Run by itself, this file prints what each of the calls below answers.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from exact import gaussian_kl
from registry import BINARY, SIZE, X, labels, logistic_laplace, values

import coresetvi as cvi
from coresetvi.errors import CoresetviError, InputError
from coresetvi.families import FullRank, LowRank
from coresetvi.inner import Alternating, Implicit, Joint, Truncated, Unrolled
from coresetvi.models import (
    BayesianMLP,
    FromCallables,
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
    SoftmaxRegression,
)
from coresetvi.objectives import ImportanceElbo, SingleSampleElbo, UniformElbo
from coresetvi.outer import Adam, NaturalGradient
from coresetvi.weights import Fixed, Unit

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = LogisticRegression(2)
SUBSET = cvi.RandomSubset(SIZE, num_samples=2)


def mistaken(argument: object) -> Any:
    """An argument of a wrong type, past the type checker, which would refuse it before the library can."""
    return argument


def fit(construction: Any = SUBSET, model: Any = MODEL, data: Any = BINARY, **options: Any) -> object:
    """`cvi.fit` for arguments that may be of a wrong type."""
    return cvi.fit(construction, model, data, **{"key": 0, "num_steps": 1, "progress": False, **options})


def psvi(size: int = SIZE, **options: Any) -> cvi.BBPSVI:
    """The cheapest BB PSVI to compile, should a bad argument get that far."""
    return cvi.BBPSVI(size, **{"inner": Joint(), "objective": ImportanceElbo(2), **options})


def fitted() -> cvi.Fit:
    """A fit made by hand."""
    psi = {"mean": np.zeros(2, np.float32), "factor": np.eye(2, dtype=np.float32)}
    psi = jax.tree.map(jax.numpy.asarray, psi)
    key = jax.random.key(0)
    return cvi.Fit(BINARY, MODEL, FullRank(), psi, None, {}, "finished", key, {}, {})


class Refusal(NamedTuple):
    """A call, and words that its sentence must have."""

    call: Callable[[], object]
    words: tuple[str, ...]


def refusal(call: Callable[[], object], *words: str) -> Refusal:
    return Refusal(call, words)


def bad_parameters(prior=lambda p: -0.5 * p @ p, likelihood=lambda p, x, y: x @ p, **options):
    return FromCallables(prior, likelihood, np.zeros(2), **options)


ONE_CLASS = cvi.Dataset(X, np.ones(len(X), int))

REFUSALS: dict[str, Refusal] = {
    # Sizes
    "size 0": refusal(lambda: cvi.BBPSVI(0), "size", "0"),
    "size -3": refusal(lambda: cvi.BBPSVI(-3), "size", "-3"),
    "size True": refusal(lambda: cvi.BBPSVI(True), "size", "True"),
    "size 2.5": refusal(lambda: cvi.BBPSVI(mistaken(2.5)), "size", "2.5"),
    "size text": refusal(lambda: cvi.BBPSVI(mistaken("5")), "size", "'5'"),
    "size above the rows": refusal(lambda: fit(psvi(61)), "size", "61", "60 rows"),
    "subset of 0": refusal(lambda: cvi.RandomSubset(0), "size", "0"),
    "subset of True": refusal(lambda: cvi.RandomSubset(True), "size", "True"),
    "subset of 2.5": refusal(lambda: cvi.RandomSubset(mistaken(2.5)), "size", "2.5"),
    "subset of text": refusal(lambda: cvi.RandomSubset(mistaken("5")), "size", "'5'"),
    "subset above the rows": refusal(lambda: fit(cvi.RandomSubset(61)), "size", "61", "60 rows"),
    # Parts and options of a construction
    "unknown learn": refusal(lambda: cvi.BBPSVI(5, learn={"x", "labels"}), "learn", "'labels'", "weights"),
    "learn is no set": refusal(lambda: cvi.BBPSVI(5, learn=mistaken(3)), "learn", "3"),
    "learn is a word": refusal(lambda: cvi.BBPSVI(5, learn="weights"), "learn"),
    "learn fixed weights": refusal(
        lambda: cvi.BBPSVI(5, learn={"weights"}, weights=Fixed()), "Fixed", "weights", "learn"
    ),
    "learn unit weights": refusal(
        lambda: cvi.BBPSVI(5, learn={"x", "weights"}, weights=Unit()), "Unit", "weights", "learn"
    ),
    "unknown init": refusal(lambda: cvi.BBPSVI(5, init="zeros"), "init", "'zeros'", "subset", "noise"),
    "batch_size 0": refusal(lambda: cvi.BBPSVI(5, batch_size=0), "batch_size", "0"),
    "batch_size 2.5": refusal(lambda: fit(psvi(batch_size=2.5)), "batch_size", "2.5"),
    "full VI, batch_size 0": refusal(lambda: fit(cvi.FullVI(batch_size=0)), "batch_size", "0"),
    "family is text": refusal(lambda: fit(psvi(family="full rank")), "family", "full rank"),
    "weights are text": refusal(lambda: fit(psvi(weights="simplex")), "weights", "simplex"),
    "objective is text": refusal(lambda: fit(psvi(objective="elbo")), "objective", "elbo"),
    "inner is text": refusal(lambda: fit(psvi(inner="unrolled")), "inner", "unrolled"),
    "inner is a class": refusal(lambda: fit(psvi(inner=Unrolled)), "inner", "Unrolled"),
    "optimizer is text": refusal(lambda: fit(psvi(optimizer="adam")), "optimizer", "adam"),
    "learn y without labels": refusal(
        lambda: fit(psvi(learn={"y"}), bad_parameters(), cvi.Dataset(X)), "learn", '"y"', "no labels"
    ),
    # Parts that do not go together
    "uniform weights, no gradient": refusal(
        lambda: fit(cvi.BBPSVI(5, objective=UniformElbo(), inner=Alternating())), "UniformElbo", "inner="
    ),
    "single sample, natural gradient": refusal(
        lambda: fit(cvi.BBPSVI(5, objective=SingleSampleElbo(), optimizer=NaturalGradient())),
        "SingleSampleElbo",
        "Adam()",
    ),
    "joint, natural gradient": refusal(
        lambda: fit(cvi.BBPSVI(5, inner=Joint(), optimizer=NaturalGradient())), "Joint()", "Adam()"
    ),
    # Settings of the parts
    "num_samples 0": refusal(lambda: ImportanceElbo(0), "num_samples", "0"),
    "two single samples": refusal(lambda: SingleSampleElbo(2), "SingleSampleElbo", "one sample"),
    "no unrolled steps": refusal(lambda: Unrolled(num_steps=0), "num_steps", "Unrolled", "0"),
    "negative learning rate": refusal(lambda: Adam(-0.1), "learning_rate", "Adam", "-0.1"),
    "more last steps than steps": refusal(lambda: Truncated(num_steps=5, last=6), "last", "6", "5"),
    "tolerance 0": refusal(lambda: Implicit(tolerance=0.0), "tolerance", "Implicit"),
    "rank 0": refusal(lambda: LowRank(0), "LowRank", "rank", "0"),
    # Arguments of fit
    "no construction": refusal(lambda: fit(None), "first argument", "construction"),
    "construction is a class": refusal(lambda: fit(cvi.BBPSVI), "first argument", "BBPSVI(size="),
    "construction is an array": refusal(lambda: fit(np.zeros((40, 3))), "first argument", "construction"),
    "arguments swapped": refusal(lambda: fit(MODEL, SUBSET), "first argument", "LogisticRegression"),
    "model is data": refusal(lambda: fit(SUBSET, BINARY, MODEL), "second argument", "model"),
    "model is a class": refusal(lambda: fit(SUBSET, LogisticRegression), "second argument", "model"),
    "data are a tuple": refusal(lambda: fit(data=(X, X[:, 0])), "third argument", "Dataset", "tuple"),
    "data are an array": refusal(lambda: fit(data=X), "third argument", "Dataset", "ndarray"),
    "key is text": refusal(lambda: fit(key="zero"), "key", "zero"),
    "key is None": refusal(lambda: fit(key=None), "key", "None"),
    "key is a fraction": refusal(lambda: fit(key=0.5), "key", "0.5"),
    "key is many keys": refusal(lambda: fit(key=jax.random.split(jax.random.key(0), 2)), "key"),
    "num_steps 0": refusal(lambda: fit(num_steps=0), "num_steps", "0"),
    "num_steps 2.5": refusal(lambda: fit(num_steps=2.5), "num_steps", "2.5"),
    "num_steps is text": refusal(lambda: fit(num_steps="5"), "num_steps", "5"),
    "num_steps True": refusal(lambda: fit(num_steps=True), "num_steps", "True"),
    "num_trials 0": refusal(lambda: fit(num_trials=0), "num_trials", "0"),
    "num_trials 2.5": refusal(lambda: fit(num_trials=2.5), "num_trials", "2.5"),
    "num_trials is text": refusal(lambda: fit(num_trials="two"), "num_trials", "two"),
    "checkpoint is a number": refusal(lambda: fit(checkpoint=5), "checkpoint", "5"),
    "resume from nowhere": refusal(lambda: fit(resume=True), "resume", "checkpoint"),
    # Models
    "a model without columns": refusal(lambda: LogisticRegression(0), "column", "0"),
    "one class": refusal(lambda: SoftmaxRegression(2, 1), "2 classes", "1"),
    "prior_scale 0": refusal(lambda: LogisticRegression(2, prior_scale=0.0), "prior_scale", "0"),
    "noise 0": refusal(lambda: LinearRegression(2, noise=0.0), "noise", "0"),
    "unknown activation": refusal(lambda: BayesianMLP(2, activation="step"), "activation", "'step'", "tanh"),
    "an empty layer": refusal(lambda: BayesianMLP(2, (0,)), "positive", "(0,)"),
    # Models and data that do not go together
    "other columns": refusal(lambda: fit(model=LogisticRegression(3)), "x", "(2,)", "(3,)"),
    "other columns, network": refusal(lambda: fit(model=BayesianMLP(4)), "x", "(2,)", "(4,)"),
    "labels outside the classes": refusal(
        lambda: fit(data=cvi.Dataset(X, labels(X, 3))), "y", "2", "row", "classes 0 to 1"
    ),
    "labels -1 and 1": refusal(lambda: fit(data=cvi.Dataset(X, 2 * labels(X, 2) - 1)), "y", "-1", "row"),
    "fractions as labels": refusal(lambda: fit(data=cvi.Dataset(X, values(X))), "y", "row 0"),
    "named labels outside": refusal(
        lambda: fit(data=cvi.Dataset(X, labels(X, 3), target="species")), "species", "row", "classes 0 to 1"
    ),
    "a single class": refusal(lambda: fit(data=ONE_CLASS), "y", "single class", "1"),
    "a single class has weight": refusal(
        lambda: fit(data=cvi.Dataset(X, labels(X, 2), labels(X, 2))), "y", "single class", "1"
    ),
    "no labels": refusal(lambda: fit(data=cvi.Dataset(X)), "labels", "Dataset(x, y)"),
    "no values": refusal(lambda: fit(model=LinearRegression(2), data=cvi.Dataset(X)), "labels"),
    "soft labels in the data": refusal(
        lambda: fit(data=cvi.Dataset(X, np.full((60, 2), 0.5))), "y", "(60, 2)"
    ),
    "negative counts": refusal(
        lambda: fit(model=PoissonRegression(2), data=cvi.Dataset(X, np.arange(60) - 1)), "y", "-1", "row 0"
    ),
    "likelihood sums over rows": refusal(
        lambda: fit(model=bad_parameters(likelihood=lambda p, x, y: (x @ p).sum()), data=BINARY),
        "log_likelihood",
        "one number a row",
    ),
    "prior is a vector": refusal(
        lambda: fit(model=bad_parameters(prior=lambda p: p), data=BINARY), "log_prior", "scalar", "(2,)"
    ),
    "likelihood of other columns": refusal(
        lambda: fit(model=bad_parameters(), data=cvi.Dataset(np.zeros((9, 3)), np.zeros(9))), "log_likelihood"
    ),
    # Reading a fit
    "predict other columns": refusal(lambda: fitted().predict(np.zeros((4, 3))), "x", "(3,)", "(2,)"),
    "predict NaN": refusal(
        lambda: fitted().predict([[0.0, 1.0], [np.nan, 1.0]]), "x", "NaN", "row 1", "column 0"
    ),
    "predict infinity": refusal(
        lambda: fitted().predict([[0.0, np.inf]]), "x", "infinite", "row 0", "column 1"
    ),
    "predict text": refusal(lambda: fitted().predict([["a", "b"]]), "x", "'a'", "row 0"),
    "predict nothing": refusal(lambda: fitted().predict(np.zeros((0, 2))), "x", "no rows"),
    "predict without draws": refusal(lambda: fitted().predict(X, num_samples=0), "num_samples", "0"),
    "predict by a fraction of draws": refusal(
        lambda: fitted().predict(X, num_samples=mistaken(2.5)), "num_samples", "2.5"
    ),
    "evaluate other columns": refusal(
        lambda: fitted().evaluate(cvi.Dataset(np.zeros((2, 3)), [0, 1])), "x", "(3,)", "(2,)"
    ),
    "evaluate without labels": refusal(lambda: fitted().evaluate(cvi.Dataset(X)), "labels"),
    "evaluate unknown classes": refusal(
        lambda: fitted().evaluate(cvi.Dataset(X, labels(X, 3))), "y", "2", "classes 0 to 1"
    ),
    "evaluate an array": refusal(lambda: fitted().evaluate(mistaken(X)), "Dataset", "ndarray"),
    "predict with a model that cannot": refusal(
        lambda: cvi.Fit(
            BINARY,
            bad_parameters(),
            FullRank(),
            fitted().psi,
            None,
            {},
            "finished",
            jax.random.key(0),
            {},
            {},
        ).predict(X),
        "predict=",
    ),
}


# Not refused, although a type checker might.
ACCEPTED: dict[str, Callable[[], object]] = {
    "size from numpy": lambda: cvi.BBPSVI(mistaken(np.int64(5))),
    "subset size from numpy": lambda: cvi.RandomSubset(mistaken(np.int64(5))),
    "key from numpy": lambda: fit(key=np.int64(5)),
    "num_steps from numpy": lambda: fit(num_steps=np.int64(1)),
    "x as a list": lambda: fitted().predict([[0, 1], [1, 0]]),
    "learn as a list": lambda: cvi.BBPSVI(5, learn=["x", "y"]),
}


def answer(call: Callable[[], object]) -> dict[str, object]:
    """What a call raises, as something to print."""
    try:
        call()
    except Exception as error:
        return {
            "input_error": isinstance(error, InputError),
            "kind": type(error).__name__,
            "text": str(error),
        }
    return {"input_error": False, "kind": "nothing", "text": ""}


@pytest.fixture(scope="module")
def answers():
    quick = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False, env=quick)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_in_one_sentence_that_names_the_culprit(name, answers):
    found = answers[name]
    assert found["input_error"], f"raised {found['kind']}: {found['text']}"
    assert "\n" not in found["text"]
    assert len(found["text"]) < 300
    missing = [word for word in REFUSALS[name].words if word not in found["text"]]
    assert not missing, f"{found['text']!r} does not say {missing}"


@pytest.mark.parametrize("name", ACCEPTED)
def test_good_input_of_another_type_is_not_refused(name, answers):
    found = answers[name]
    assert found["kind"] == "nothing", f"raised {found['kind']}: {found['text']}"


def test_input_errors_are_value_errors_and_of_one_family():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, CoresetviError)


# What is unusual but fine


def psvi_kl(data: cvi.Dataset, prior_scale: float = 1.0, scales: float | np.ndarray = 1.0) -> float:
    """KL from the coreset's posterior to the data's, in nats; columns are measured in units of `scales`."""
    model = LogisticRegression(data.dim, prior_scale=prior_scale)
    fit = cvi.fit(cvi.BBPSVI(size=20), model, data, key=0, progress=False)
    assert fit.result == "finished"
    for leaf in jax.tree.leaves((fit.coreset, fit.psi)):
        assert np.all(np.isfinite(leaf))
    # In these units the matrices are well conditioned; the divergence is the same in all units.
    moments = [
        logistic_laplace(np.asarray(each.x, np.float64) / scales, each.y, each.weights, prior_scale * scales)
        for each in (fit.coreset, data)
    ]
    return gaussian_kl(*moments[0], *moments[1])


def coin(x, coefficients, seed=0):
    chance = 1.0 / (1.0 + np.exp(-x @ np.asarray(coefficients)))
    return (np.random.default_rng(seed).uniform(size=len(x)) < chance).astype(int)


# The sizes of the problem in `test_fit.py`, which is then compiled already.
ROWS = np.random.default_rng(7).standard_normal((500, 3))
COINS = coin(ROWS, [1.0, -1.0, 0.5])


def rare_labels():
    y = np.zeros(500, int)
    y[[17, 203]] = 1
    return y


FINE = {
    "plain": cvi.Dataset(ROWS, COINS),
    "a constant column": cvi.Dataset(np.c_[ROWS[:, :2], np.full(500, 3.0)], COINS),
    "a column of zeros": cvi.Dataset(np.c_[ROWS[:, :2], np.zeros(500)], COINS),
    "whole numbers": cvi.Dataset(np.round(3 * ROWS).astype(int), COINS),
    "booleans": cvi.Dataset(ROWS > 0, COINS),
    "two of 500 positive": cvi.Dataset(ROWS, rare_labels()),
    "labels as booleans": cvi.Dataset(ROWS, COINS.astype(bool)),
    "labels as floats": cvi.Dataset(ROWS, COINS.astype(float)),
    "unequal weights": cvi.Dataset(ROWS, COINS, np.linspace(0.0, 2.0, 500)),
}


@pytest.mark.parametrize("data", FINE.values(), ids=list(FINE))
def test_unusual_data_work(data):
    assert psvi_kl(data) < 0.05


def test_columns_in_very_different_units_work():
    scales = np.array([1e-6, 1.0, 1e6])
    data = cvi.Dataset(ROWS * scales, COINS)
    # Wide enough for the coefficient of the column in millionths, which is about a million.
    assert psvi_kl(data, prior_scale=3e6, scales=scales) < 0.05


if __name__ == "__main__":
    calls = {name: row.call for name, row in REFUSALS.items()} | ACCEPTED
    print(json.dumps({name: answer(call) for name, call in calls.items()}))
