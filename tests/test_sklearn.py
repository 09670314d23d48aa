"""Estimators for scikit-learn: its own checks, exact posteriors, laws of weights, labels of every kind."""

import ast
import dataclasses
import importlib
import math
import pickle
import sys
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pytest
import scipy.optimize
from exact import MAX_Z
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import coresetvi as cvi
from coresetvi._info import Info
from coresetvi.constructions.base import Construction, Plan
from coresetvi.constructions.reference import random_subset
from coresetvi.data import standardise as estimator_rows
from coresetvi.errors import InputError
from coresetvi.families import MeanField
from coresetvi.models.sums import weighted_log_likelihood
from coresetvi.sklearn import CoresetClassifier, CoresetRegressor
from coresetvi.workflows import estimator as workflow

pytestmark = pytest.mark.usefixtures("quick_compilation")


class AtTheMode(Construction):
    """r is narrow, at the mode that L-BFGS finds: the conformity of estimators needs no more.

    Everything in the library compiles for seconds, and the checks have some twenty shapes of data.
    """

    size: int | None = None
    corrects: ClassVar[bool] = True

    def settle(self, model, data):
        return AtTheModePlan(self, model, data, MeanField())


class AtTheModePlan(Plan):
    """No step moves anything: the start is the end."""

    construction: AtTheMode
    model: cvi.models.Model
    data: cvi.Dataset
    family: MeanField

    @property
    def default_steps(self):
        return 1

    def start(self, key, initial=None):
        model, size = self.model, self.construction.size
        points = self.data if size is None else random_subset(self, size, key)
        found = scipy.optimize.minimize(
            lambda theta: [
                np.float64(part) for part in loss_and_slope(theta.astype(np.float32), model, points)
            ],
            np.asarray(model.start(key)),
            jac=True,
            method="L-BFGS-B",
        )
        return points, self.family.init(jnp.asarray(found.x, jnp.float32), jnp.full(model.dim, 0.01))

    def step(self, state, index, scale, key):
        zero = jnp.zeros(())
        return state, Info(zero, zero, zero, zero, zero, jnp.asarray(True))

    def extract(self, state):
        return state


@eqx.filter_jit
def loss_and_slope(theta, model, points):
    def loss(theta):
        return -weighted_log_likelihood(model, theta, points) - model.log_prior(theta)

    return jax.value_and_grad(loss)(jnp.asarray(theta))


QUICK: dict[str, Any] = {"construction": AtTheMode(), "num_samples": 50, "num_steps": 1}


# The noise is compiled in, so it must not differ from one check to the next.
@parametrize_with_checks(
    [CoresetClassifier(**QUICK), CoresetRegressor(**QUICK, noise=1.0, standardise=False)]
)
def test_scikit_learn_has_no_complaints(estimator, check):
    check(estimator)


def unfitted(estimator: object) -> Any:
    """scikit-learn's copy without what was learned; to a type checker it might be a list of them."""
    return clone(estimator)


# Against exact answers


def far_away(generator, rows):
    """One column that float32 could not tell from a constant, and labels of two classes, 3 to 1."""
    z = generator.normal(size=rows)
    labels = np.where(z + 1.0 + generator.logistic(size=rows) > 0, "up", "down")
    return 1e8 + 20.0 * z[:, None], labels


@pytest.fixture(scope="module")
def classified():
    """A weighted problem, its fit, and the fit to the same rows repeated and shuffled."""
    generator = np.random.default_rng(0)
    X, y = far_away(generator, 64)
    weights = generator.integers(0, 4, len(X))
    estimator = CoresetClassifier(size=10, num_samples=4000, random_state=3)
    weighted = unfitted(estimator).fit(X, y, sample_weight=weights)
    repeated = generator.permutation(np.repeat(np.arange(len(X)), weights))
    return X, y, weights, weighted, unfitted(estimator).fit(X[repeated], y[repeated])


def standardised(X, weights):
    mean = np.average(X, axis=0, weights=weights)
    return (X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))


@pytest.mark.slow
def test_probabilities_are_those_of_the_exact_posterior(classified):
    X, y, weights, estimator, _ = classified
    z, sign = standardised(X, weights)[:, 0], np.where(y == "up", 1.0, -1.0)
    slope, constant = (axis.ravel() for axis in np.meshgrid(*[np.linspace(-3.0, 3.0, 301)] * 2))
    log_density = -0.5 * (slope**2 + constant**2)
    for row in np.flatnonzero(weights):
        log_density -= weights[row] * np.logaddexp(0.0, -sign[row] * (constant + slope * z[row]))
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    new = np.array([-2.0, -0.5, 0.0, 1.0, 3.0])
    by_point = 1.0 / (1.0 + np.exp(-constant[:, None] - slope[:, None] * new))
    exact = density @ by_point
    error = np.sqrt(density @ (by_point - exact) ** 2 / estimator.num_samples)
    mean = np.average(X[:, 0], weights=weights)
    scale = np.sqrt(np.average((X[:, 0] - mean) ** 2, weights=weights))
    found = estimator.predict_proba(mean + scale * new[:, None])
    assert estimator.classes_.tolist() == ["down", "up"]
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.all(np.abs(found[:, 1] - exact) < MAX_Z * error + 5e-4)
    # The mean of the parameters is in the units of X.
    assert estimator.coef_[0, 0] * scale == pytest.approx(density @ slope, abs=0.02)
    logit = estimator.intercept_[0] + estimator.coef_[0, 0] * mean
    assert logit == pytest.approx(density @ constant, abs=0.02)


def test_weight_two_is_the_row_twice_and_order_does_not_matter(classified):
    X, _, weights, weighted, repeated = classified
    assert weighted.fit_.about["rows"] == repeated.fit_.about["rows"] == np.count_nonzero(weights)
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))
    for one, other in zip(weighted.coreset_, repeated.coreset_, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_coreset_is_in_the_units_of_the_data(classified):
    X, y, weights, estimator, _ = classified
    assert estimator.coreset_.X.shape == (10, 1) and set(estimator.coreset_.y) == {"down", "up"}

    def mode(rows, labels, sample_weight):
        design = np.column_stack([(rows - X.mean()) / X.std(), np.ones(len(rows))])
        found = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8)
        return found.fit(design, labels, sample_weight).coef_

    np.testing.assert_allclose(mode(*estimator.coreset_), mode(X, y, weights), atol=0.03)


def test_a_pickled_estimator_predicts_the_same(classified):
    X, _, _, estimator, _ = classified
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(again.predict_proba(X), estimator.predict_proba(X))


def test_a_regression_has_the_exact_posterior():
    generator = np.random.default_rng(1)
    X = generator.normal(size=(60, 2)) * [1e-4, 1e4] + [5.0, -1e7]
    y = 1e5 + standardised(X, None) @ [300.0, -100.0] + 200.0 * generator.normal(size=60)
    weights = generator.integers(0, 3, 60).astype(float)
    estimator = CoresetRegressor(noise=200.0, prior_scale=0.5, num_samples=20_000, random_state=0)
    estimator.fit(X, y, sample_weight=weights)
    deviation = np.sqrt(np.cov(y, aweights=weights, ddof=0))
    model = cvi.models.LinearRegression(2, noise=float(200.0 / deviation), intercept=True, prior_scale=0.5)
    centre = np.average(y, weights=weights)
    z, target = standardised(X, weights), (y - centre) / deviation
    design = np.column_stack([z, np.ones(60)])
    precision = (design.T * weights) @ design / model.noise**2 + np.eye(3) / 0.5**2
    covariance = np.linalg.inv(precision)
    theta = covariance @ (design.T @ (weights * target)) / model.noise**2
    spread = np.sqrt(np.einsum("nd,de,ne->n", design, covariance, design))
    mean, std = estimator.predict(X, return_std=True)
    assert estimator.noise_ == pytest.approx(200.0) and estimator.correct_
    error = deviation * spread
    assert np.all(np.abs(mean - (centre + deviation * design @ theta)) < 0.05 * error)
    variance = deviation**2 * (spread**2 + model.noise**2)
    assert np.all(np.abs(std**2 - variance) < MAX_Z * np.sqrt(2.0 / 20_000) * error**2)
    np.testing.assert_allclose(estimator.predict(X), mean)
    linear = X @ estimator.coef_ + estimator.intercept_
    assert np.all(np.abs(linear - (centre + deviation * design @ theta)) < 0.03 * error)
    assert estimator.coreset_.X.shape == (20, 2)
    assert np.isin(estimator.coreset_.y.astype(np.float32), y.astype(np.float32)).all()


# Noise


def weighted_regression(rows, columns, noise):
    generator = np.random.default_rng(columns)
    x = generator.normal(size=(rows, columns))
    y = x @ generator.normal(size=columns) + noise * generator.normal(size=rows)
    return x, y, generator.uniform(0.2, 2.0, rows)


@pytest.mark.parametrize(("rows", "columns", "noise"), [(40, 3, 0.5), (40, 3, 5.0), (10, 20, 5.0)])
def test_noise_makes_the_evidence_stationary(rows, columns, noise):
    x, y, weights = weighted_regression(rows, columns, noise)
    found = estimator_rows.estimate_noise(x, y, weights, 0.7)
    data = cvi.Dataset(x, y, weights)

    def evidence(log_noise):
        noise = math.exp(log_noise)
        return cvi.models.LinearRegression(columns, noise=noise, prior_scale=0.7).log_evidence(data)

    step = 1e-3
    values = [evidence(np.log(found) + shift) for shift in (-step, 0.0, step)]
    newton = 0.5 * step * (values[2] - values[0]) / (2 * values[1] - values[0] - values[2])
    assert abs(newton) < 1e-4


def test_noise_with_a_wide_prior_is_the_residual_deviation_of_least_squares():
    x, y, weights = weighted_regression(50, 4, 2.0)
    residual = y - LinearRegression(fit_intercept=False).fit(x, y, weights).predict(x)
    expected = np.sqrt(weights @ residual**2 / (weights.sum() - 4))
    assert estimator_rows.estimate_noise(x, y, weights, 1e4) == pytest.approx(expected, rel=1e-6)


def test_noise_is_never_estimated_as_nothing():
    x = np.linspace(-1.0, 1.0, 30)[:, None]
    for y in (x[:, 0], np.zeros(30)):
        least = estimator_rows.LEAST_NOISE * (np.sqrt(np.mean(y**2)) or 1.0)
        assert estimator_rows.estimate_noise(x, y, np.ones(30), 100.0) == pytest.approx(least)


# Units and rows


def test_units_of_columns_of_every_size():
    generator = np.random.default_rng(0)
    z, weights = generator.normal(size=(50, 2)), generator.uniform(size=50)
    scale = np.array([1e300, 1e-300])
    units = estimator_rows.choose_units(np.column_stack([z * scale, np.full(50, 0.1)]), weights, True, True)
    expected = np.average(z, axis=0, weights=weights)
    np.testing.assert_allclose(units.centre, [*(expected * scale), 0.1])
    deviation = np.sqrt(np.average((z - expected) ** 2, axis=0, weights=weights))
    np.testing.assert_allclose(units.scale, [*(deviation * scale), 1.0])
    assert np.all(units.remove(np.full((1, 3), 0.1))[:, 2] == 0.0)
    about_zero = estimator_rows.choose_units(z, weights, True, False)
    np.testing.assert_allclose(about_zero.scale, np.sqrt(np.average(z**2, axis=0, weights=weights)))
    assert not about_zero.centre.any()


def test_equal_rows_are_put_together():
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 3, (200, 2)).astype(float), generator.integers(0, 2, 200)
    x[x == 0.0] *= generator.choice([-1.0, 1.0], np.count_nonzero(x == 0.0))  # zeros of both signs
    weights = generator.integers(0, 3, 200).astype(float)
    rows, totals = estimator_rows.distinct_rows(x, y, weights)
    found = {(*x[row].tolist(), y[row]): total for row, total in zip(rows, totals, strict=True)}
    expected: dict = {}
    for row in np.flatnonzero(weights):
        place = (*x[row].tolist(), y[row])
        expected[place] = expected.get(place, 0.0) + weights[row]
    assert len(rows) == len(expected) and found == expected


def test_padding_gives_neighbouring_numbers_of_rows_one_shape():
    lengths = {rows: len(estimator_rows.pad(np.ones(rows))) for rows in (1, 256, 257, 1000, 9000, 10_000)}
    assert lengths == {1: 256, 256: 256, 257: 512, 1000: 1024, 9000: 9216, 10_000: 10_240}


@pytest.mark.parametrize("rows", range(1, 3000, 97))
def test_padding_adds_little(rows):
    padded = estimator_rows.pad(np.ones((rows, 2)))
    assert padded.sum() == 2 * rows and len(padded) - rows < max(256, rows / 8 + 1)


# Manners


def quick_problem():
    generator = np.random.default_rng(5)
    X = generator.normal([3.0, 0.0], 1.0, size=(60, 2))
    return X, (X[:, 0] - 3.0 + X[:, 1] + 0.5 * generator.normal(size=60) > 0).astype(int)


LABELS = {
    "text": ["no", "yes"],
    "booleans": [False, True],
    "numbers": [-7, 40],
    "floats": [2.0, 3.0],
    "objects": np.array(["a", "b"], dtype=object),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_type(kind):
    X, codes = quick_problem()
    names = np.asarray(LABELS[kind])
    plain = CoresetClassifier(**QUICK, random_state=0).fit(X, codes)
    for labels in (names[codes], names[codes].tolist(), pandas.Series(names[codes], dtype="category")):
        named = CoresetClassifier(**QUICK, random_state=0).fit(X, labels)
        np.testing.assert_array_equal(named.predict_proba(X), plain.predict_proba(X))
        np.testing.assert_array_equal(named.predict(X), names[plain.predict(X)])
        np.testing.assert_array_equal(named.classes_, names)
        assert set(named.coreset_.y.tolist()) == set(names.tolist())
    assert plain.score(X, codes) > 0.85


def test_frames_have_names_and_their_order_is_checked():
    X, y = quick_problem()
    for frame in (pandas.DataFrame(X, columns=["a", "b"]), polars.DataFrame(X, schema=["a", "b"])):
        estimator = CoresetClassifier(**QUICK, random_state=0).fit(frame, y)
        assert estimator.feature_names_in_.tolist() == ["a", "b"]
        assert estimator.fit_.coreset.columns == ("a", "b")
        assert estimator.score(frame, y) > 0.85
        with pytest.raises(ValueError, match="order"):
            estimator.predict(frame[["b", "a"]])


def test_a_class_without_weight_is_not_there():
    X, y = quick_problem()
    three = np.where(np.arange(60) < 10, 9, y)
    estimator = CoresetClassifier(**QUICK, random_state=0).fit(X, three, sample_weight=three != 9)
    absent = CoresetClassifier(**QUICK, random_state=0).fit(X[10:], y[10:])
    assert estimator.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(estimator.predict_proba(X), absent.predict_proba(X))


def test_scales_of_the_columns_do_not_matter():
    X, y = quick_problem()
    first = CoresetClassifier(**QUICK, random_state=0).fit(X, y)
    other = X * [1e-9, 1e6] + [1.0, 1e9]
    second = CoresetClassifier(**QUICK, random_state=0).fit(other, y)
    np.testing.assert_allclose(second.predict_proba(other), first.predict_proba(X), atol=1e-4)
    inside = make_pipeline(StandardScaler(), CoresetClassifier(**QUICK, random_state=0)).fit(X, y)
    np.testing.assert_allclose(inside.predict_proba(X), first.predict_proba(X), atol=1e-4)


def test_without_intercept_there_is_none():
    X, y = quick_problem()
    classifier = CoresetClassifier(**QUICK, intercept=False, random_state=0).fit(X, y)
    np.testing.assert_allclose(classifier.predict_proba(X) + classifier.predict_proba(-X), 1.0, atol=1e-6)
    assert classifier.intercept_.tolist() == [0.0]
    regressor = CoresetRegressor(**QUICK, intercept=False, noise=1.0, random_state=0).fit(X, y + 10.0)
    assert abs(regressor.predict([[0.0, 0.0]])[0]) < 1e-6 and regressor.intercept_ == 0.0


def test_random_states():
    X, y = quick_problem()
    estimator = CoresetClassifier(5, construction=AtTheMode(1), num_samples=50, num_steps=1)
    first, again = (unfitted(estimator).set_params(random_state=4).fit(X, y).coreset_.X for _ in range(2))
    np.testing.assert_array_equal(first, again)
    state = np.random.RandomState(4)
    one, two = (unfitted(estimator).set_params(random_state=state).fit(X, y).coreset_.X for _ in range(2))
    assert not np.array_equal(one, two)
    # What is not learned are rows of the data, to the last digit.
    assert first.shape == (5, 2) and all((X == point).all(axis=1).any() for point in first)


STRICT: Any = "raise"  # the annotation knows numbers only


def test_grid_search():
    X, y = quick_problem()
    grid = [{"size": [5, 20]}, {"size": [5], "prior_scale": [0.1]}]
    estimator = CoresetClassifier(construction=AtTheMode(1), num_samples=50, num_steps=1, random_state=0)
    found = GridSearchCV(estimator, grid, cv=2, scoring="neg_log_loss", error_score=STRICT)
    found.fit(X, y, sample_weight=np.ones(60))
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()
    assert len(found.best_estimator_.coreset_.X) == found.best_params_["size"]


def test_networks_and_weights_that_cannot_be_trusted():
    X, y = quick_problem()
    estimator = CoresetClassifier(hidden=(3,), **QUICK, random_state=0).fit(X, y)
    rows = estimator_rows.pad(estimator.units_.remove(X))
    quality = estimator.fit_.reliability(50)
    assert quality["khat"] > quality["khat_threshold"] and not estimator.correct_
    alike, weighted = (estimator.fit_.predict(rows, correct=c, num_samples=50)[:60] for c in (False, True))
    np.testing.assert_array_equal(estimator.predict_proba(X)[:, 1], alike)
    assert not np.allclose(alike, weighted) and not hasattr(estimator, "coef_")
    regressor = CoresetRegressor(hidden=[3], **QUICK, noise=0.5, random_state=0).fit(X, y)
    assert regressor.score(X, y) > 0.3


def test_a_fit_that_did_not_end_well_says_so(monkeypatch):
    X, y = quick_problem()
    fit = workflow.fit_coreset
    monkeypatch.setattr(
        workflow,
        "fit_coreset",
        lambda *args, **kw: dataclasses.replace(fit(*args, **kw), result="step_limit"),
    )
    with pytest.warns(ConvergenceWarning, match="still improving after 1 steps"):
        CoresetClassifier(**QUICK, random_state=0).fit(X, y)


BAD = {
    "too many points": ({"size": 61}, "size is 61, but X has only 60 different rows"),
    "a size for all rows": ({"size": 5, "construction": cvi.FullLaplace()}, "size is not for FullLaplace"),
    "no construction": ({"construction": "giga"}, "construction must be a construction"),
    "a number of layers": ({"hidden": 20}, r"hidden must be a tuple .* such as \(20,\)"),
    "a network without": ({"hidden": (3,), "intercept": False}, "intercept=False is not for networks"),
    "a flat prior": ({"prior_scale": 0.0}, "prior_scale must be positive"),
    "no points": ({"size": 0}, "size must be a whole number of at least 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused_when_fitting(name):
    settings, words = BAD[name]
    X, y = quick_problem()
    for kind in (CoresetClassifier, CoresetRegressor):
        with pytest.raises(InputError, match=words):
            kind(**settings).fit(X, y)


def test_bad_data_are_refused():
    X, y = quick_problem()
    with pytest.raises(InputError, match="sample_weight is negative in row 3"):
        CoresetClassifier().fit(X, y, sample_weight=np.where(np.arange(60) == 3, -1.0, 1.0))
    with pytest.raises(InputError, match="only one class with weight, 1;"):
        CoresetClassifier().fit(X, y, sample_weight=y)
    with pytest.raises(InputError, match="noise standard deviation must be positive"):
        CoresetRegressor(noise=-1.0).fit(X, y)


# scikit-learn is optional


def test_without_scikit_learn_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "coresetvi.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(InputError, match=r'pip install "coresetvi\[sklearn\]"') as caught:
        importlib.import_module("coresetvi.sklearn")
    assert isinstance(caught.value, ImportError)


def test_nothing_else_imports_scikit_learn():
    for path in Path(cvi.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] == "sklearn" for name in names):
                assert path.name == "sklearn.py" and path.parent.name == "coresetvi", path
