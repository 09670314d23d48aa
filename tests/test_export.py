"""Exports: the tool that a coreset is handed to has the coreset's posterior, by its own account of it."""

import dataclasses
import importlib
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
import scipy.special
import scipy.stats
from exact import entries

import coresetvi as cvi
from coresetvi import export
from coresetvi.data import files, tables
from coresetvi.errors import InputError
from coresetvi.export import rows
from coresetvi.models import (
    FromCallables,
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
    SoftmaxRegression,
)
from coresetvi.models.glm import LinearPredictor
from coresetvi.models.sums import weighted_log_likelihood
from coresetvi.posterior.distances import laplace_moments

float64 = exact.float64
double = pytest.mark.usefixtures("float64")

X = np.array([[0.5, -1.0], [1.5, 0.25], [9.0, 9.0], [-0.75, 2.0], [-2.0, -0.5]])
FAR = X * [[1.0], [1.0], [1.0], [200.0], [1.0]]
WEIGHTS = [3.0, 0.5, 0.0, 12.0, 7.25]
SOFT = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.3, 0.3, 0.4], [0.9, 0.1, 0.0], [0.0, 0.25, 0.75]])
TWO = np.stack([SOFT[:, 0], 1.0 - SOFT[:, 0]], axis=1)
CLASSES, VALUES, COUNTS = [0, 2, 1, 2, 1], [0.5, -2.0, 1.0, 3.25, 0.0], [0, 3, 1, 12, 2]

# Models with a coreset of their own: inputs and labels. Some points are far away, where logits overflow.
CASES = {
    "logistic": (LogisticRegression(2, prior_scale=1.5), X, [0, 1, 1, 0, 1]),
    "logistic, soft": (LogisticRegression(2, intercept=True), FAR, TWO),
    "softmax": (SoftmaxRegression(2, 3), FAR, CLASSES),
    "softmax, soft": (SoftmaxRegression(2, 3, intercept=True, prior_scale=0.7), X, SOFT),
    "linear": (LinearRegression(2, noise=0.6), X, VALUES),
    "linear, intercept": (LinearRegression(2, noise=2.0, intercept=True, prior_scale=3.0), FAR, VALUES),
    "poisson": (PoissonRegression(2), X, COUNTS),
    "poisson, learned": (
        PoissonRegression(2, intercept=True, prior_scale=0.5),
        X,
        [0.25, 3.0, 1.5, 12.5, 2.75],
    ),
}
every_case = pytest.mark.parametrize("case", CASES)


def made_up(model, coreset, **extra):
    """A fit that nobody fitted: what is exported are its model and its coreset."""
    family = cvi.families.MeanField()
    return cvi.Fit(
        coreset=coreset,
        model=model,
        family=family,
        psi=family.init(jnp.zeros(model.dim), jnp.ones(model.dim)),
        construction=None,
        history={},
        result="finished",
        key=jax.random.key(0),
        seconds={"compile": 0.0, "run": 0.0},
        about={"rows": 5, "total_weight": 22.75, "steps": 0},
        extra=extra,
    )


def fit_of(case):
    model, x, y = CASES[case]
    return made_up(model, cvi.Dataset(x, y, WEIGHTS, columns=["width", "height"], target="kind"))


def regression_of(fit: cvi.Fit) -> LinearPredictor:
    assert isinstance(fit.model, LinearPredictor)
    return fit.model


def thetas_of(model, number=5):
    return jnp.asarray(np.random.default_rng(1).standard_normal((number, model.dim)))


def log_posterior(fit, coreset=None):
    """The log-density, but for a constant, that every export must have."""

    def density(theta):
        data = fit.coreset if coreset is None else coreset
        return fit.model.log_prior(theta) + weighted_log_likelihood(fit.model, theta, data)

    return density


def check_density(fit, density, rtol=1e-12):
    """`density(theta)` differs between thetas as the log-posterior of the coreset does."""
    thetas = thetas_of(fit.model)
    wanted = np.asarray(jax.jit(jax.vmap(log_posterior(fit)))(thetas))
    found = np.array([density(theta) for theta in thetas])
    assert np.ptp(wanted) > 0.1 and np.all(np.isfinite(wanted))
    # The sums may be thousands while their differences are small, so the sums decide on the rounding.
    np.testing.assert_allclose(found - found[0], wanted - wanted[0], rtol=0, atol=rtol * np.abs(wanted).max())


# Rows


@double
@every_case
def test_hard_rows_have_the_same_likelihood(case):
    fit = fit_of(case)
    hard = rows.fit_rows(fit)
    assert hard.y.ndim == 1 and np.all(np.asarray(hard.weights) > 0)
    assert jnp.issubdtype(hard.y.dtype, jnp.integer) == ("linear" not in case)
    check_density(fit, jax.jit(log_posterior(fit, hard)))
    assert (hard.columns, hard.target) == (("width", "height"), "kind")
    assert float(hard.total_weight) == pytest.approx(sum(WEIGHTS))


def test_hard_rows_say_where_they_came_from():
    data = cvi.Dataset(X, CLASSES).take([4, 1])
    soft = dataclasses.replace(data, y=jnp.asarray(SOFT[[4, 1]]))
    np.testing.assert_array_equal(export.hard_rows(soft, 3).indices, [4, 4, 1])
    assert export.hard_rows(cvi.Dataset(X, SOFT), 3).indices is None
    # Rows without labels, or with labels that are no classes, stay as they are.
    np.testing.assert_array_equal(export.hard_rows(cvi.Dataset(X, weights=WEIGHTS), None).x, X[[0, 1, 3, 4]])


BARE, NETWORK = cvi.Dataset(X), registry.MODELS["network, values"].model
CANNOT = r"^BayesianMLP cannot be written for {}, .* use export.numpyro\(fit\), which takes any model$"
REFUSED = {
    "no labels": (lambda: export.hard_rows(BARE, 2), "has no labels, but its model has classes"),
    "no class": (
        lambda: export.hard_rows(cvi.Dataset(X, CLASSES), 2),
        "label 2 of point 1 is none of .* 0 to 1",
    ),
    "half a class": (lambda: export.hard_rows(cvi.Dataset(X, VALUES), 4), "label 0.5 of point 0 is none"),
    "other classes": (
        lambda: export.hard_rows(cvi.Dataset(X, SOFT), 2),
        "soft labels for 3 classes, .* has 2",
    ),
    "no counts": (lambda: rows.hard_counts(BARE), "a Poisson model needs counts"),
    "negative counts": (lambda: rows.hard_counts(cvi.Dataset(X, VALUES)), "point 1 has the learned count -2"),
    "unlabelled": (lambda: export.sklearn(made_up(registry.slope_model(), BARE)), "has no labels"),
    "network for PyMC": (lambda: export.pymc(made_up(NETWORK, BARE)), CANNOT.format("PyMC")),
    "network for Stan": (lambda: export.stan(made_up(NETWORK, BARE)), CANNOT.format("Stan")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_sentence(case):
    attempt, sentence = REFUSED[case]
    with pytest.raises(InputError, match=sentence):
        attempt()


@pytest.mark.parametrize("package", ["numpyro", "pymc"])
def test_a_missing_tool_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"^export.{package} needs {package}; pip install {package}$"):
        getattr(export, package)(fit_of("logistic"))


# Tables


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "parquet"])
def test_tables_name_the_classes(tmp_path, ending):
    file = tmp_path / f"coreset.{ending}"
    fit = made_up(LogisticRegression(2), cvi.Dataset(X, [0, 1, 1, 0, 1], WEIGHTS), classes=["no", "yes"])
    export.table(fit, file)
    data, labels = tables.read_table(file, target="y", weights="weight")
    assert labels.classes == ("no", "yes") and data.columns == ("x0", "x1")
    for name in ("x", "y", "weights"):
        np.testing.assert_array_equal(getattr(data, name), getattr(fit.coreset, name))
    with pytest.raises(InputError, match="exists already"):
        export.table(fit.coreset, file)
    export.table(fit.coreset, file, overwrite=True)
    assert entries(files.open_table(file).columns["y"]) == [0, 1, 1, 0, 1]


def test_tables_of_soft_labels_have_a_column_a_class(tmp_path):
    coreset = cvi.Dataset(X, SOFT, WEIGHTS, target="kind")
    export.table(made_up(SoftmaxRegression(2, 3), coreset, classes=["a", "b", "c"]), tmp_path / "soft.csv")
    columns = files.open_table(tmp_path / "soft.csv").columns
    assert list(columns) == ["x0", "x1", "kind_a", "kind_b", "kind_c", "weight"]
    np.testing.assert_array_equal(
        np.asarray(columns["kind_c"]).astype(np.float32), SOFT[:, 2].astype(np.float32)
    )


# NumPyro


@double
@every_case
def test_numpyro_has_the_density_of_a_regression(case):
    from numpyro.infer.util import log_density

    fit = fit_of(case)
    program = export.numpyro(fit)

    @jax.jit
    def density(theta):
        value, trace = log_density(program, (), {}, fit.model.params(theta))
        assert set(trace) - {"rows"} == {*fit.model.params(theta), "obs"}
        return value

    check_density(fit, density)


@double
@pytest.mark.parametrize("name", ["network, 2 classes", "network, values", "callables"])
def test_numpyro_has_the_density_of_any_other_model(name):
    from numpyro.infer.util import potential_energy

    case = registry.MODELS[name]
    y = TWO if case.model.num_classes == 2 else VALUES
    fit = made_up(case.model, cvi.Dataset(X, y, WEIGHTS))
    program = export.numpyro(fit)
    check_density(fit, jax.jit(lambda theta: -potential_energy(program, (), {}, {"theta": theta})))


def test_numpyro_finds_a_start_although_a_flat_prior_cannot_be_drawn_from(quick_compilation):
    from numpyro.infer.util import initialize_model

    model = registry.slope_model()
    program = export.numpyro(made_up(model, cvi.Dataset(X, VALUES, WEIGHTS)))
    start = initialize_model(jax.random.key(0), program).param_info
    assert start.z["theta"].shape == (model.dim,) and np.isfinite(start.potential_energy)


def two_labels(x, y):
    """Rows lie on the first of two axes; a scale is positive, so that its space is transformed."""
    import numpyro
    from numpyro import distributions as dist

    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    with numpyro.plate("labels", 2, dim=-1), numpyro.plate("data", len(x), dim=-2):
        numpyro.sample("y", dist.Normal(x @ slope, scale), obs=y)


def own_classifier(x, y):
    import numpyro
    from numpyro import distributions as dist

    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    numpyro.factor("penalty", -jnp.sum(slope**4))
    with numpyro.plate("data", len(x)):
        label: Any = dist.Categorical(logits=x @ slope)  # to a type checker, perhaps None
        numpyro.sample("y", label, obs=y)


@double
@pytest.mark.parametrize(
    ("function", "example", "y"),
    [(two_labels, X, X[:, ::-1] ** 2), (own_classifier, CLASSES, SOFT), (own_classifier, CLASSES, CLASSES)],
    ids=["rows on the first axis", "soft labels", "classes"],
)
def test_numpyro_runs_the_function_it_was_made_from(function, example, y):
    from numpyro.infer.util import potential_energy

    model = importlib.import_module("coresetvi.models.numpyro").FromNumPyro(function, X, example)
    fit = made_up(model, cvi.Dataset(X, y, WEIGHTS))
    program = export.numpyro(fit)

    @jax.jit
    def density(theta):
        sizes = [int(np.prod(shape)) for _, shape in model.layout.latent]
        parts = jnp.split(theta, np.cumsum(sizes)[:-1])
        named = zip(model.layout.latent, parts, strict=True)
        return -potential_energy(
            program, (), {}, {name: part.reshape(shape) for (name, shape), part in named}
        )

    check_density(fit, density)


# PyMC


@pytest.fixture(scope="module")
def pymc():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own dependencies' announcements
        pytensor, package = pytest.importorskip("pytensor"), pytest.importorskip("pymc")
        with pytensor.config.change_flags(cxx=""):  # without a compiler of C: slower to run, quicker to start
            yield package


@double
@every_case
def test_pymc_has_the_same_density(case, pymc):
    fit = fit_of(case)
    model = export.pymc(fit)
    log_density = model.compile_logp()

    def density(theta):
        return log_density({name: np.asarray(value) for name, value in fit.model.params(theta).items()})

    check_density(fit, density)
    dims = ("column", "class") if "softmax" in case else ("column",)
    assert model.named_vars_to_dims["coef"] == dims and model.coords["column"] == ("width", "height")


def test_pymc_names_columns_and_classes(pymc):
    coreset = cvi.Dataset(X, SOFT, WEIGHTS)
    model = export.pymc(made_up(SoftmaxRegression(2, 3, intercept=True), coreset, classes=["a", "b", "c"]))
    assert model.coords == {"column": ("x0", "x1"), "class": ("a", "b", "c")}
    assert model.named_vars_to_dims["intercept"] == ("class",)


# Stan


def stan_density(program, data, coef, intercept):
    """The program's log-density by scipy: which likelihood and which priors it has is read off its text."""
    label, weight = np.asarray(data["y"]), np.asarray(data["w"])
    eta = np.asarray(data["x"]) @ coef + intercept
    log_softmax = scipy.special.log_softmax
    by_row = {
        "bernoulli_logit_lpmf": lambda: np.where(label == 1, -np.logaddexp(0, -eta), -np.logaddexp(0, eta)),
        "categorical_logit_lpmf": lambda: log_softmax(eta, axis=1)[np.arange(data["N"]), label - 1],
        "normal_lpdf": lambda: scipy.stats.norm.logpdf(label, eta, data["noise"]),
        "poisson_log_lpmf": lambda: scipy.stats.poisson.logpmf(label, np.exp(eta)),
    }
    (likelihood,) = re.findall(r"target \+= w\[n\] \* (\w+)\(y\[n\] \| eta\[n\]", program)
    total = weight @ by_row[likelihood]()
    for name, value in {"coef": coef, "intercept": intercept}.items():
        if re.search(rf"{name}\)? ~ normal\(0, prior_scale\);", program):
            total += scipy.stats.norm.logpdf(value, scale=data["prior_scale"]).sum()
    return total


@double
@every_case
def test_stan_has_the_same_density(case):
    fit = fit_of(case)
    exported = export.stan(fit)
    data = json.loads(json.dumps(exported.data, allow_nan=False))
    assert ("intercept;" in exported.program) == regression_of(fit).intercept
    declared = exported.program.split("data {")[1].split("}")[0]
    assert set(re.findall(r"(\w+);", declared)) == set(data)

    def density(theta):
        params = fit.model.params(theta)
        return stan_density(exported.program, data, params["coef"], params.get("intercept", np.zeros(())))

    check_density(fit, density)


@every_case
def test_stan_accepts_the_program(case, tmp_path):
    compiler = Path(pytest.importorskip("httpstan").__file__).with_name("stanc")
    program, data = export.stan(fit_of(case)).write(tmp_path / "new" / "folder")
    assert (program.name, data.name) == ("model.stan", "data.json") and json.loads(data.read_text())["D"] == 2
    answer = subprocess.run(
        [compiler, f"--o={tmp_path / 'out.cpp'}", program], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0 and answer.stderr == "", answer.stderr


def test_stan_files_are_not_replaced_unless_asked(tmp_path):
    exported = export.stan(fit_of("logistic"))
    (tmp_path / "people.json").write_text("mine")
    with pytest.raises(InputError, match=r"people.json exists already; .* overwrite=True"):
        exported.write(tmp_path / "people.stan")
    assert [file.name for file in tmp_path.iterdir()] == ["people.json"]
    exported.write(tmp_path / "people.stan", overwrite=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["people.json", "people.stan"]
    with pytest.raises(InputError, match=r"people.stan is a file; choose another path"):
        exported.write(tmp_path / "people.stan" / "folder")
    with pytest.raises(InputError, match=r"model.stan is a directory; choose the name of a file"):
        (tmp_path / "model.stan").mkdir()
        exported.write(tmp_path, overwrite=True)


# scikit-learn


def estimator_of(model, weights):
    """The estimator that `export.sklearn` recommends, solved to the last digits."""
    from sklearn import linear_model

    exactly = {"fit_intercept": False, "tol": 1e-12, "solver": "newton-cholesky"}
    scale = model.prior_scale
    if isinstance(model, LinearRegression):
        return linear_model.Ridge(alpha=model.noise**2 / scale**2, fit_intercept=False)
    if isinstance(model, PoissonRegression):
        return linear_model.PoissonRegressor(alpha=1 / (scale**2 * weights.sum()), **exactly)
    return linear_model.LogisticRegression(C=scale**2, **exactly)


@double
@every_case
def test_scikit_learn_has_the_same_mode(case):
    fit = fit_of(case)
    fit = dataclasses.replace(fit, coreset=dataclasses.replace(fit.coreset, x=jnp.asarray(X)))
    inputs, labels, weights = export.sklearn(fit)
    if regression_of(fit).intercept:
        inputs = np.column_stack([inputs, np.ones(len(inputs))])
    estimator = estimator_of(fit.model, weights).fit(inputs, labels, weights)
    theta = jnp.asarray(estimator.coef_.T.reshape(-1))
    density = log_posterior(fit)
    gradient, hessian = jax.jit(lambda theta: (jax.grad(density)(theta), jax.hessian(density)(theta)))(theta)
    # Where a concave function has no slope it has its mode; the distance is in posterior standard deviations.
    assert np.max(np.linalg.eigvalsh(hessian)) < 0
    assert np.sqrt(-gradient @ np.linalg.solve(hessian, gradient)) < 1e-6


@double
def test_scikit_learn_agrees_with_the_laplace_approximation():
    fit = fit_of("logistic")
    exported = export.sklearn(fit)
    mode, covariance = laplace_moments(fit.model, fit.coreset)
    gap = estimator_of(fit.model, exported.sample_weight).fit(*exported).coef_[0] - mode
    # The search for the mode ends at a tolerance, far below what a draw of the posterior could show.
    assert np.sqrt(gap @ np.linalg.solve(covariance, gap)) < 2e-3


def test_scikit_learn_gets_class_names_and_flat_images():
    images = cvi.Dataset(np.arange(20.0).reshape(5, 2, 2), CLASSES, WEIGHTS)
    own = FromCallables(lambda p: -(p**2), lambda p, x, y: p * y, jnp.zeros(()), num_classes=3)
    found = export.sklearn(made_up(own, images, classes=["a", "b", "c"]))
    assert found.X.shape == (4, 4) and found.y.tolist() == ["a", "c", "c", "b"]
    np.testing.assert_array_equal(found.sample_weight, [3.0, 0.5, 12.0, 7.25])
