"""Fits by passes: the question, the regression, the search for a mode, and the posterior that comes out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import gaussian_kl as exact_kl

import coresetvi as cvi
from coresetvi.constructions.informative_start import informative_rows
from coresetvi.constructions.pass_plan import is_over
from coresetvi.errors import InputError
from coresetvi.fitting import steps
from coresetvi.inner import Chains
from coresetvi.models import FromCallables, LinearRegression, LogisticRegression, PoissonRegression
from coresetvi.models.local_view import find_mode, view_of
from coresetvi.models.question import Question
from coresetvi.outer import Adam, Matching, NaturalGradient, RiseMatching, SlopeMatching
from coresetvi.outer.least_squares import levenberg_marquardt
from coresetvi.outer.nearness import gaussian_kl

GENERATOR = np.random.default_rng(0)


def laplace(x, y, weights):
    """Mode and covariance of a logistic regression with an N(0, I) prior, by Newton steps in float64."""
    x, y, weights = (np.asarray(part, np.float64) for part in (x, y, weights))
    theta, precision = np.zeros(x.shape[1]), np.eye(x.shape[1])
    for _ in range(50):
        chance = 0.5 * (1.0 + np.tanh(0.5 * (x @ theta)))
        precision = (x.T * (weights * chance * (1.0 - chance))) @ x + np.eye(len(theta))
        step = np.linalg.solve(precision, x.T @ (weights * (y - chance)) - theta)
        theta = theta + step * min(1.0, 1.0 / np.abs(step).max())
    return theta, np.linalg.inv(precision)


def linear_rows(rows: int = 400, columns: int = 3, noise: float = 0.5):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    y = x @ generator.normal(size=columns) + noise * generator.normal(size=rows)
    return LinearRegression(columns, noise=noise), cvi.Dataset(x, y.astype(np.float32))


def binary_rows(rows: int = 600, columns: int = 3):
    generator = np.random.default_rng(2)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    y = (generator.random(rows) < 1.0 / (1.0 + np.exp(-x @ generator.normal(size=columns)))).astype(np.int32)
    return LogisticRegression(columns), cvi.Dataset(x, y)


def streamed(data: cvi.Dataset, length: int = 90):
    x, y, weights = np.asarray(data.x), np.asarray(data.y), np.asarray(data.weights)

    def batches():
        for start in range(0, len(x), length):
            part = slice(start, start + length)
            yield x[part], y[part], weights[part]

    return cvi.scan(batches)


# The question


def test_a_view_of_a_quadratic_is_exact():
    model, data = linear_rows()
    anchor, other = GENERATOR.normal(size=3), GENERATOR.normal(size=(5, 3))
    factor = np.tril(GENERATOR.normal(size=(3, 3)))
    question = Question(*(jnp.asarray(part, jnp.float32) for part in (anchor, factor, other)))
    view = view_of(model, data, question)
    x, y = np.asarray(data.x), np.asarray(data.y)
    residual = y - x @ anchor
    np.testing.assert_allclose(view.slope, factor.T @ x.T @ residual / 0.25, rtol=1e-4)
    np.testing.assert_allclose(view.curvature, -factor.T @ x.T @ x @ factor / 0.25, rtol=1e-3, atol=1e-2)
    rises = [0.5 * np.sum(residual**2 - (y - x @ theta) ** 2) / 0.25 for theta in other]
    np.testing.assert_allclose(view.rises, rises, rtol=1e-4)
    assert float(view.weight) == len(data)


@pytest.mark.parametrize("length", [90, 1000])
def test_rows_that_are_streamed_answer_as_rows_in_memory(length):
    model, data = binary_rows()
    question = Question(
        jnp.full(3, 0.1), 0.2 * jnp.eye(3), jnp.asarray(GENERATOR.normal(size=(4, 3)), jnp.float32)
    )
    one, other = view_of(model, data, question), view_of(model, streamed(data, length), question)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-4)


# The search for a mode


def test_the_mode_of_a_linear_regression_is_found_in_two_passes():
    model, data = linear_rows()
    mode = find_mode(model, data, np.full(3, 5.0), np.eye(3))
    mean, covariance = model.posterior(data)
    assert mode.found and mode.passes <= 3
    np.testing.assert_allclose(mode.theta, mean, atol=1e-4)
    np.testing.assert_allclose(mode.factor @ mode.factor.T, covariance, rtol=1e-3, atol=1e-7)
    assert np.all(np.triu(mode.factor, 1) == 0.0)


@pytest.mark.parametrize("start", [-4.0, 4.0])
def test_a_newton_step_that_goes_too_far_is_taken_back(start):
    x = np.ones((300, 1), np.float32)
    data = cvi.Dataset(x, np.full(300, 3))
    mode = find_mode(PoissonRegression(1, prior_scale=100.0), data, np.array([start]), np.eye(1))
    assert mode.found
    assert mode.theta[0] == pytest.approx(np.log(3.0), abs=1e-3)


# The regression


def solve_least_squares(residual_of, stiff, start, project=lambda flat: flat, **limits):
    return levenberg_marquardt(
        residual_of,
        lambda flat: residual_of(flat)[:stiff],
        project,
        start,
        residual_of(start),
        jax.random.key(0),
        **limits,
    )


@pytest.mark.usefixtures("float64")
def test_least_squares_are_solved_though_some_are_a_million_times_as_steep():
    matrix = GENERATOR.normal(size=(12, 20))
    matrix[:3] *= 1e3
    wanted = jnp.asarray(matrix @ GENERATOR.normal(size=20))

    def residual_of(flat):
        return jnp.asarray(matrix) @ flat - wanted

    found = solve_least_squares(residual_of, 3, jnp.zeros(20), target=1e-6, max_steps=40, max_move=10.0)
    assert float(jnp.sum(found.residual**2)) < 1e-6
    assert int(found.step) < 40


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("steepness", [1e2, 1e4, 1e6])
def test_steps_follow_a_curved_valley_however_steep_its_sides_are(steepness):
    def residual_of(flat):
        valley = steepness * (flat[0] ** 2 + flat[1] ** 2 - 1.0)
        return jnp.stack([valley, flat[0], flat[1] - 1.0, 0.1 * (flat[2] - flat[0])])

    start = jnp.asarray([0.8, -0.6, 1.0])
    found = solve_least_squares(residual_of, 1, start, target=1e-10, max_steps=25, max_move=1.0)
    np.testing.assert_allclose(found.flat, [0.0, 1.0, 0.0], atol=1e-3)


def test_what_is_not_allowed_is_never_reached():
    def residual_of(flat):
        return flat - jnp.asarray([-1.0, 2.0])

    def project(flat):
        return jnp.maximum(flat, 0.0)

    start = jnp.asarray([1.0, 1.0])
    found = solve_least_squares(residual_of, 0, start, project, target=1e-12, max_steps=50, max_move=1.0)
    np.testing.assert_allclose(found.flat, [0.0, 2.0], atol=1e-3)


def test_the_divergence_of_normals_is_the_closed_form():
    factors = [np.eye(4) + 0.3 * GENERATOR.normal(size=(4, 4)) for _ in range(2)]
    precisions = [factor @ factor.T for factor in factors]
    slopes = [GENERATOR.normal(size=4) for _ in range(2)]
    found = gaussian_kl(*(jnp.asarray(p) for p in (slopes[0], precisions[0], slopes[1], precisions[1])))
    means = [np.linalg.solve(p, s) for p, s in zip(precisions, slopes, strict=True)]
    covariances = [np.linalg.inv(p) for p in precisions]
    wanted = exact_kl(means[0], covariances[0], means[1], covariances[1])
    assert float(found) == pytest.approx(wanted, rel=1e-3)
    assert np.isnan(float(gaussian_kl(jnp.zeros(1), -jnp.eye(1), jnp.zeros(1), jnp.eye(1))))


# Starts


def test_informative_rows_cover_a_column_that_is_hardly_ever_used():
    x = np.column_stack([GENERATOR.normal(size=5_000), np.zeros(5_000)]).astype(np.float32)
    x[:5, 1] = 10.0
    y = (GENERATOR.random(5_000) < 0.5).astype(np.int32)
    data = cvi.Dataset(x, y)
    generator = np.random.default_rng(0)
    rows, weights = informative_rows(LogisticRegression(2), data, 10, np.zeros(2), 0.1 * np.eye(2), generator)
    assert len(set(rows.tolist())) == 10 and np.any(rows < 5)
    assert weights.sum() == pytest.approx(5_000, rel=1e-6)
    assert np.all(weights > 0)


# Fits


def test_the_posterior_of_a_linear_regression_is_that_of_all_rows():
    model, data = linear_rows()
    fit = cvi.fit(cvi.BBPSVI(12), model, data, key=0)
    assert isinstance(getattr(fit.construction, "optimizer", None), Matching)
    assert exact_kl(*model.posterior(fit.coreset), *model.posterior(data)) < 1e-3
    assert fit.result == "finished"
    assert fit.about["passes"] == len(fit.history["kl"]) <= 5


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e5])
def test_units_of_the_columns_do_not_matter(unit):
    model, data = linear_rows(columns=2)
    scaled = cvi.Dataset(np.asarray(data.x) * np.array([unit, 1.0]), data.y)
    model = LinearRegression(2, noise=0.5, prior_scale=10.0 / min(unit, 1.0))
    fit = cvi.fit(cvi.BBPSVI(10), model, scaled, key=0)
    assert exact_kl(*model.posterior(fit.coreset), *model.posterior(scaled)) < 2e-3
    assert fit.result == "finished"


def test_nearly_collinear_columns_are_told_apart():
    generator = np.random.default_rng(3)
    first = generator.normal(size=500)
    x = np.column_stack([first, first + 0.01 * generator.normal(size=500)]).astype(np.float32)
    y = x @ [1.0, -1.0] + generator.normal(size=500)
    model, data = LinearRegression(2, prior_scale=10.0), cvi.Dataset(x, y.astype(np.float32))
    fit = cvi.fit(cvi.BBPSVI(10), model, data, key=0)
    assert exact_kl(*model.posterior(fit.coreset), *model.posterior(data)) < 2e-3


def test_what_a_pass_found_is_the_divergence_of_what_is_given():
    model, data = binary_rows()
    fit = cvi.fit(cvi.BBPSVI(3), model, data, key=0, num_steps=3)
    arrays = [(part.x, part.y, part.weights) for part in (fit.coreset, data)]
    truth = exact_kl(*laplace(*arrays[0]), *laplace(*arrays[1]))
    assert np.nanmin(fit.history["kl"][1:]) == pytest.approx(truth, rel=0.5, abs=0.02)


def test_too_few_points_are_never_called_finished():
    model, data = binary_rows(columns=3)
    fit = cvi.fit(cvi.BBPSVI(1), model, data, key=0)
    assert fit.result == "imprecise"
    assert "nats" in fit.explanation and "more points" in fit.explanation


def test_passes_that_tested_nothing_say_so():
    model, data = binary_rows()
    assert cvi.fit(cvi.BBPSVI(10), model, data, key=0, num_steps=1).result == "untested"


def test_points_that_stand_for_a_hundred_thousand_rows_are_as_good():
    """In float32 the rounding of one such point, times its weight, would be a tenth of a nat."""
    model, data = binary_rows()
    heavy = cvi.Dataset(data.x, data.y, weights=np.full(len(data), 1e7 / len(data)))
    fit = cvi.fit(cvi.BBPSVI(40), model, heavy, key=0)
    parts = [(rows.x, rows.y, rows.weights) for rows in (fit.coreset, heavy)]
    assert exact_kl(*laplace(*parts[0]), *laplace(*parts[1])) < 2e-3
    assert fit.result == "finished" and fit.about["passes"] <= 4


def test_rows_that_are_streamed_give_the_coreset_of_rows_in_memory():
    model, data = binary_rows()
    rows = streamed(data)
    one, other = (cvi.fit(cvi.BBPSVI(10), model, part, key=0) for part in (data, rows))
    assert other.about["passes"] == one.about["passes"] + 1  # the survey
    assert other.result == one.result == "finished"
    posteriors = [laplace(fit.coreset.x, fit.coreset.y, fit.coreset.weights) for fit in (one, other)]
    assert exact_kl(*posteriors[0], *posteriors[1]) < 2e-3


def test_streamed_fits_resume_from_the_pass_they_had_reached(tmp_path, press_ctrl_c, monkeypatch):
    model, data = binary_rows()
    whole = cvi.fit(cvi.BBPSVI(10), model, streamed(data), key=0, num_steps=3)
    press_ctrl_c(2)
    stopped = cvi.fit(cvi.BBPSVI(10), model, streamed(data), key=0, num_steps=3, checkpoint=tmp_path / "c")
    monkeypatch.undo()
    assert stopped.result == "interrupted" and len(stopped.history["kl"]) == 2
    resumed = cvi.fit(
        cvi.BBPSVI(10), model, streamed(data), key=0, num_steps=3, checkpoint=tmp_path / "c", resume=True
    )
    np.testing.assert_array_equal(resumed.coreset.x, whole.coreset.x)
    np.testing.assert_array_equal(resumed.history["loss"], whole.history["loss"])


@pytest.fixture
def traced():
    """A logistic regression, and the shapes of rows that it has been traced with."""
    shapes = []

    def log_likelihood(params, x, y):
        shapes.append(x.shape)
        return y * (x @ params) - jax.nn.softplus(x @ params)

    prior = lambda params: -0.5 * jnp.sum(params**2)  # noqa: E731
    return FromCallables(prior, log_likelihood, jnp.zeros(3), num_classes=2), shapes


def test_a_second_fit_of_the_same_shape_traces_nothing(traced):
    model, shapes = traced
    _, data = binary_rows()
    cvi.fit(cvi.BBPSVI(8), model, data, key=0, num_steps=2)
    assert shapes
    shapes.clear()
    cvi.fit(cvi.BBPSVI(8), model, cvi.Dataset(data.x + 1.0, data.y), key=1, num_steps=3)
    # Checks of the data and the cost of a row are traced; no program is.
    assert len(shapes) == 3 and (8, 3) not in shapes


def test_what_is_compiled_before_the_first_pass_is_what_the_passes_use(traced):
    model, shapes = traced
    run = steps.prepare(cvi.BBPSVI(7), model, binary_rows()[1], jax.random.key(0)[None])
    assert (7, 3) in shapes
    shapes.clear()
    for index in range(2):
        (state, alive), _ = steps.run_pass(run, index)
        run.position = steps.Position(state, alive, index + 1)
    assert (7, 3) not in shapes


def test_models_that_are_not_small_go_by_chains_or_by_steps():
    data = cvi.Dataset(GENERATOR.normal(size=(500, 2)), (GENERATOR.random(500) < 0.5).astype(int))
    network = cvi.models.BayesianMLP(2, (60,), 2)
    plan = cvi.BBPSVI(5).settle(network, data)
    assert type(plan.inner) is Chains and type(plan.optimizer) is RiseMatching and not plan.by_passes
    # More leaves than rises at draws can tell of need slopes as well; so do rows that are not in memory.
    plan = cvi.BBPSVI(200).settle(network, data)
    assert type(plan.inner) is Chains and type(plan.optimizer) is SlopeMatching and plan.by_passes
    # Chains of a network of this size would take hours.
    plan = cvi.BBPSVI(500).settle(cvi.models.BayesianMLP(2, (2000, 500), 2), data)
    assert type(plan.optimizer) is Adam and not plan.by_passes
    assert not cvi.BBPSVI(5, optimizer=NaturalGradient()).settle(LogisticRegression(2), data).by_passes
    assert isinstance(cvi.BBPSVI(5).settle(LogisticRegression(2), data).optimizer, Matching)


@pytest.mark.parametrize(
    ("kl", "over"),
    [
        ([5.0, 1e-4], True),
        ([5.0, 0.1], False),
        ([5.0, 0.1, 0.2, 0.3], False),
        ([5.0, 0.1, 0.2, 0.3, 0.1], True),
    ],
)
def test_a_fit_ends_when_a_pass_finds_nothing_to_do_or_three_were_in_vain(kl, over):
    assert is_over(np.asarray(kl), 1e-3) == over


def test_a_broken_pass_keeps_the_last_good_state(monkeypatch):
    model, data = binary_rows()
    run = steps.prepare(cvi.BBPSVI(8), model, data, jax.random.key(0)[None])
    good = run.trial(0)
    plan_step = type(run.plan).step

    def broken(self, state, index, scale, key):
        state, info = plan_step(self, state, index, scale, key)
        return state, info._replace(loss=jnp.nan)

    monkeypatch.setattr(type(run.plan), "step", broken)
    (states, alive), info = steps.run_pass(run, 0)
    assert not bool(alive[0]) and np.isnan(info.loss[0, 0])
    np.testing.assert_array_equal(states.learned["x"][0], good.learned["x"])


# Bad input


@pytest.mark.parametrize("init", ["informative", "best"])
def test_starts_that_need_passes_are_refused_elsewhere(init):
    model, data = binary_rows()
    with pytest.raises(InputError, match=f'init="{init}" belongs to'):
        cvi.fit(cvi.BBPSVI(5, init=init, optimizer=NaturalGradient()), model, data, key=0)


def test_coresets_that_grow_do_not_go_by_passes():
    model, data = binary_rows()
    with pytest.raises(InputError, match="goes by passes over all rows"):
        cvi.fit(cvi.GreedyBBSparseVI(5, optimizer=Matching()), model, data, key=0)


def test_optimisers_that_go_by_steps_need_rows_in_memory():
    model, data = binary_rows()
    with pytest.raises(InputError, match="NaturalGradient looks at rows hundreds of times"):
        cvi.fit(cvi.BBPSVI(5, optimizer=NaturalGradient()), model, streamed(data), key=0)


def test_constructions_that_need_all_rows_say_which_do_not():
    model, data = binary_rows()
    with pytest.raises(InputError, match="GreedyBBSparseVI needs all rows in memory"):
        cvi.fit(cvi.GreedyBBSparseVI(5), model, streamed(data), key=0)


@pytest.mark.parametrize("setting", ["tolerance", "max_move"])
def test_settings_must_be_positive(setting):
    with pytest.raises(InputError, match=setting):
        Matching(**{setting: 0.0})
