"""The coreset as something to optimise: where it starts, its units, and sums over weighted rows."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import MAX_Z
from registry import BINARY, CLASSIFIERS, MODELS, ROWS, WEIGHT_MAPS, X, labels, values

import coresetvi as cvi
import coresetvi.constructions.parametrisation
from coresetvi._info import Info
from coresetvi.constructions.parametrisation import parametrise
from coresetvi.constructions.starts import allocate, start_leaves, start_weights
from coresetvi.data import Dataset, concatenate
from coresetvi.errors import InputError
from coresetvi.inner import Joint
from coresetvi.models import LinearRegression, LogisticRegression
from coresetvi.models import sums as effort
from coresetvi.models import sums as likelihood_sums
from coresetvi.models.sums import log_likelihood_sums
from coresetvi.objectives import ImportanceElbo
from coresetvi.outer.base import Draft, Moved, Optimizer
from coresetvi.weights import Fixed, Free, Simplex, Unit

pytestmark = pytest.mark.usefixtures("quick_compilation")
double = pytest.mark.usefixtures("float64")
every_model = pytest.mark.parametrize("name", MODELS)
every_classifier = pytest.mark.parametrize("name", CLASSIFIERS)
every_map = pytest.mark.parametrize("case", WEIGHT_MAPS.values(), ids=list(WEIGHT_MAPS))
NOTHING = frozenset()
# Compiled as one piece: much faster than one small operation at a time.
sums_of = eqx.filter_jit(log_likelihood_sums)


def weighted(data, seed=0):
    """The same rows with unequal weights."""
    weights = np.random.default_rng(seed).uniform(0.2, 3.0, len(data))
    return Dataset(np.asarray(data.x), np.asarray(data.y), weights)


def draws(model, count=3, seed=0):
    return 0.5 * jax.random.normal(jax.random.key(seed), (count, model.dim))


def case_data(name):
    """The model of that name and its data, ready for it, with unequal weights."""
    model, data = MODELS[name].model, MODELS[name].data
    return model, model.check(weighted(data))


def soft(data, num_classes, seed=0):
    """The same rows with labels that are probabilities."""
    y = np.random.default_rng(seed).dirichlet(np.ones(num_classes), len(data))
    return Dataset(np.asarray(data.x), y, np.asarray(data.weights))


def padded(data, count=3):
    """`data` with rows of weight zero and absurd values between and after the others."""
    absurd = Dataset(jnp.full((count, *data.x.shape[1:]), 30.0), jnp.ones_like(data.y[:count]))
    joined = concatenate(absurd, data, absurd)
    keep = np.r_[np.zeros(count), np.asarray(data.weights), np.zeros(count)]
    return Dataset(joined.x, joined.y, keep)


def doubled(data, rows):
    """Two data sets that say the same: `rows` with weight 2, and `rows` twice."""
    twice = np.ones(len(data))
    twice[rows] = 2.0
    heavy = Dataset(np.asarray(data.x), np.asarray(data.y), twice)
    return heavy, concatenate(data, Dataset(data.x[rows], data.y[rows]))


# Sums of log-likelihoods


@every_model
@double
def test_the_sum_is_the_weighted_sum_of_the_rows(name):
    model, data = case_data(name)
    thetas = draws(model)

    @jax.jit
    def one_by_one(x, y):
        of_row = jax.vmap(lambda x, y, theta: model.log_likelihood(theta, x[None], y[None])[0], (0, 0, None))
        return jax.vmap(of_row, (None, None, 0))(x, y, thetas)

    expected = np.asarray(one_by_one(data.x, data.y)) @ np.asarray(data.weights)
    np.testing.assert_allclose(sums_of(model, thetas, data), expected, rtol=1e-10)


@every_classifier
@double
def test_a_soft_label_is_the_mean_over_classes(name):
    """sum_c z_mc log p(c | u_m, theta): a sum over hard labels, each weighing its probability."""
    model, data = case_data(name)
    num_classes = model.num_classes
    assert num_classes is not None
    softly = soft(data, num_classes)
    expected = sum(
        sums_of(
            model,
            draws(model),
            Dataset(softly.x, np.full(len(data), label), softly.weights * softly.y[:, label]),
        )
        for label in range(num_classes)
    )
    np.testing.assert_allclose(sums_of(model, draws(model), softly), expected, rtol=1e-10)


@every_classifier
def test_a_certain_soft_label_is_the_hard_label(name):
    model, data = case_data(name)
    assert model.num_classes is not None
    certain = Dataset(data.x, jax.nn.one_hot(data.y, model.num_classes), data.weights)
    hard, softly = (sums_of(model, draws(model), each) for each in (data, certain))
    np.testing.assert_allclose(softly, hard, rtol=1e-6)


@every_model
@double
def test_the_order_of_the_rows_does_not_matter(name):
    model, data = case_data(name)
    thetas, order = draws(model), np.random.default_rng(3).permutation(len(data))
    shuffled = data.take(order)
    core, other = (sums_of(model, thetas, each) for each in (data, shuffled))
    np.testing.assert_allclose(other, core, rtol=1e-12)
    prior = jax.vmap(model.log_prior)(thetas)
    losses = [ImportanceElbo().loss(2.0 * core, each, prior, prior) for each in (core, other)]
    np.testing.assert_allclose(*losses, rtol=1e-10)


@every_model
def test_rows_without_weight_do_not_count(name):
    model, data = case_data(name)
    one, other = (sums_of(model, draws(model), each) for each in (data, padded(data)))
    np.testing.assert_allclose(one, other, rtol=1e-5)


@every_model
def test_a_row_of_weight_two_is_the_row_twice(name):
    model, data = MODELS[name].model, MODELS[name].model.check(MODELS[name].data)
    heavy, twice = doubled(data, np.arange(0, ROWS, 3))
    one, other = (sums_of(model, draws(model), each) for each in (heavy, twice))
    np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("block", [1, 7, ROWS - 1])
@pytest.mark.parametrize("labels_are", ["hard", "soft"])
@double
def test_blocks_of_rows_change_neither_the_sum_nor_its_gradients(block, labels_are, monkeypatch):
    model, data = case_data("softmax")
    if labels_are == "soft":
        data = soft(data, 3)
    thetas = draws(model, 4)

    def value_and_gradients():
        # A new function every time: a jitted one would remember the old block size.
        def total(thetas, x, weights):
            sums = log_likelihood_sums(model, thetas, Dataset(x, data.y, weights))
            return sums @ jnp.arange(1.0, 5.0), sums

        (_, sums), gradients = jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))(
            thetas, data.x, data.weights
        )
        return (sums, *gradients)

    whole = value_and_gradients()
    monkeypatch.setattr(likelihood_sums, "BLOCK_NUMBERS", 4 * block)
    for blocked, expected in zip(value_and_gradients(), whole, strict=True):
        np.testing.assert_allclose(blocked, expected, rtol=1e-10, atol=1e-12)


def test_blocks_are_as_small_as_they_should_be(monkeypatch):
    """The largest array inside the sum has a block of rows, not all of them."""
    model, data = case_data("logistic")
    monkeypatch.setattr(likelihood_sums, "BLOCK_NUMBERS", 3 * 8)
    # What a row costs is found by tracing a few rows, which are not those of the sum.
    monkeypatch.setattr(effort, "numbers_per_row", lambda model, data: 1)
    seen = []

    class Watched(LogisticRegression):
        __init__ = LogisticRegression.__init__

        def log_likelihood(self, theta, x, y):
            seen.append(x.shape[0])
            return super().log_likelihood(theta, x, y)

    log_likelihood_sums(Watched(2), draws(model), data)
    assert set(seen) == {8}


# The exact posterior of the linear model


@double
def test_the_linear_posterior_does_not_see_rows_without_weight():
    model, data = case_data("linear")
    assert isinstance(model, LinearRegression)
    for one, other in zip(model.posterior(data), model.posterior(padded(data)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@double
def test_the_linear_posterior_takes_weight_two_for_the_row_twice():
    model = LinearRegression(2, intercept=True)
    heavy, twice = doubled(model.check(MODELS["linear"].data), np.arange(10))
    for one, other in zip(model.posterior(heavy), model.posterior(twice), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


# Units


@pytest.mark.parametrize("name", ["logistic", "linear"])
@double
def test_units_take_weight_two_for_the_row_twice_and_do_not_see_rows_without_weight(name):
    model = MODELS[name].model
    data = model.check(Dataset(X, np.asarray(MODELS[name].data.y)))
    heavy, twice = doubled(data, np.arange(0, ROWS, 4))
    for one, other in ((heavy, twice), (data, padded(data))):
        frames = [
            parametrise(each, Simplex(), frozenset({"x", "y"}), model.num_classes) for each in (one, other)
        ]
        for unit in ("mean", "scale", "y_mean", "y_scale", "total"):
            first, second = (getattr(frame, unit) for frame in frames)
            np.testing.assert_allclose(first, second, rtol=1e-10, err_msg=unit)


@double
def test_start_weights_take_weight_two_for_the_row_twice():
    data = MODELS["softmax"].model.check(Dataset(X, labels(X, 3)))
    heavy, twice = doubled(data, np.arange(0, ROWS, 4))
    y = jnp.asarray([0, 1, 1, 2])
    one, other = (start_weights(each, y, 3, 4) for each in (heavy, twice))
    np.testing.assert_allclose(one, other, rtol=1e-12)


@every_map
def test_leaves_and_points_are_the_same_thing(case):
    """A start from the data is, as points, exactly what was taken from the data."""
    frame = parametrise(BINARY, case.weight_map, frozenset({"x"}), 2)
    leaves, indices = start_leaves(frame, BINARY, 6, "subset", jax.random.key(0))
    points = frame.build(leaves, indices)
    origin = BINARY.take(np.asarray(indices))
    np.testing.assert_allclose(points.x, origin.x, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(points.y, origin.y)
    assert float(points.total_weight) == pytest.approx(
        6.0 if isinstance(case.weight_map, Unit) else ROWS, 1e-6
    )


def test_the_total_multiplies_every_weight():
    frame = parametrise(BINARY, Free(), frozenset({"total"}), 2)
    leaves, _ = start_leaves(frame, BINARY, 6, "subset", jax.random.key(0))
    more = {**leaves, "total": jnp.log(3.0)}
    np.testing.assert_allclose(frame.build(more).weights, 3.0 * frame.build(leaves).weights, rtol=1e-6)


def test_learned_labels_of_a_regression_are_the_labels_in_their_own_units():
    data = LinearRegression(2).check(Dataset(X, values(X)))
    frame = parametrise(data, Simplex(), frozenset({"y"}), None)
    leaves, indices = start_leaves(frame, data, 6, "subset", jax.random.key(0))
    np.testing.assert_allclose(np.asarray(frame.build(leaves).y), data.y[indices], rtol=1e-6)
    assert abs(float(np.mean(leaves["y"]))) < 3.0  # standardised: the labels themselves lie around 5


# Starts


def rare(count=2, num_rows=200):
    """Binary labels of which only `count` are positive."""
    y = np.zeros(num_rows, int)
    y[np.random.default_rng(5).choice(num_rows, count, replace=False)] = 1
    return Dataset(np.random.default_rng(6).standard_normal((num_rows, 2)), y)


@pytest.mark.parametrize("size", [2, 9])
@every_map
def test_a_subset_start_is_rows_of_the_data_with_every_class(case, size):
    data = rare()
    frame = parametrise(data, case.weight_map, frozenset({"x"}), 2)
    for seed in range(2):
        leaves, indices = start_leaves(frame, data, size, "subset", jax.random.key(seed))
        points = frame.build(leaves)
        assert indices is not None and len(np.unique(indices)) == size
        assert set(np.asarray(points.y).tolist()) == {0, 1}
        np.testing.assert_array_equal(points.y, data.y[indices])
        np.testing.assert_allclose(points.x, data.x[indices], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start", ["subset", "noise"])
@pytest.mark.parametrize("weight_map", [Simplex(), Free()], ids=["simplex", "free"])
def test_every_class_starts_with_the_weight_it_has_in_the_data(weight_map, start):
    data = weighted(rare(20))
    frame = parametrise(data, weight_map, frozenset({"x", "weights"}), 2)
    leaves, _ = start_leaves(frame, data, 9, start, jax.random.key(0))
    points = frame.build(leaves)
    for label in (0, 1):
        mass = float(data.weights[np.asarray(data.y) == label].sum())
        assert float(points.weights[np.asarray(points.y) == label].sum()) == pytest.approx(mass, rel=1e-5)


def test_fixed_weights_start_with_classes_in_proportion():
    data = rare(50)
    frame = parametrise(data, Fixed(), frozenset({"x"}), 2)
    leaves, _ = start_leaves(frame, data, 20, "subset", jax.random.key(0))
    assert int(np.sum(leaves["y"])) == 5


@pytest.mark.parametrize("size", [5, 6, 7])
def test_a_noise_start_splits_the_labels_evenly_and_lies_around_the_data(size):
    data = Dataset(1000.0 + 5.0 * X, labels(X, 3))
    frame = parametrise(data, Simplex(), frozenset({"x"}), 3)
    leaves, indices = start_leaves(frame, data, size, "noise", jax.random.key(0))
    assert indices is None
    numbers = np.bincount(np.asarray(leaves["y"]), minlength=3)
    assert numbers.max() - numbers.min() <= 1
    away = (np.asarray(frame.build(leaves).x) - np.asarray(data.x).mean(0)) / np.asarray(data.x).std(0)
    assert 0.3 < np.abs(away).mean() < 2.0


def test_a_noise_start_of_a_regression_has_labels_all_over_the_range():
    data = LinearRegression(2).check(Dataset(X, values(X)))
    frame = parametrise(data, Simplex(), NOTHING, None)
    leaves, _ = start_leaves(frame, data, 20, "noise", jax.random.key(0))
    y = np.asarray(data.y)
    assert y.min() < np.min(leaves["y"]) < np.quantile(y, 0.1)
    assert np.quantile(y, 0.9) < np.max(leaves["y"]) < y.max()


def test_a_noise_start_of_a_regression_does_not_see_rows_without_weight():
    data = LinearRegression(2).check(Dataset(X, values(X)))
    outliers = Dataset(np.full((30, 2), 0.5), np.full(30, 1e6))
    joined = concatenate(data, outliers)
    silent = Dataset(joined.x, joined.y, np.r_[np.ones(ROWS), np.zeros(30)])
    starts = []
    for each in (data, silent):
        frame = parametrise(each, Simplex(), NOTHING, None)
        starts.append(start_leaves(frame, each, 8, "noise", jax.random.key(0))[0]["y"])
    np.testing.assert_allclose(*starts, rtol=1e-6)


def test_noise_may_be_more_points_than_rows():
    few = BINARY.take(np.arange(8))
    frame = parametrise(few, Simplex(), frozenset({"x"}), 2)
    leaves, _ = start_leaves(frame, few, 10, "noise", jax.random.key(0))
    points = frame.build(leaves)
    assert len(points) == 10
    assert float(points.total_weight) == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize("start", ["subset", "noise"])
def test_starts_follow_the_key(start):
    frame = parametrise(BINARY, Simplex(), frozenset({"x"}), 2)
    one, again, other = (
        start_leaves(frame, BINARY, 6, start, jax.random.key(seed))[0]["x"] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_rows_without_weight_are_never_chosen():
    weights = np.ones(ROWS)
    weights[10:] = 0.0
    for y, num_classes in ((labels(X, 2), 2), (values(X), None)):
        data = Dataset(X, y, weights)
        frame = parametrise(data, Simplex(), frozenset({"x"}), num_classes)
        _, indices = start_leaves(frame, data, 10, "subset", jax.random.key(0))
        assert sorted(np.asarray(indices).tolist()) == list(range(10))
        with pytest.raises(InputError, match=r"size is 11.* 10 rows"):
            start_leaves(frame, data, 11, "subset", jax.random.key(0))


# Sharing out points


@pytest.mark.parametrize("seed", range(20))
def test_allocate_keeps_its_promises(seed):
    generator = np.random.default_rng(seed)
    number = int(generator.integers(1, 6))
    share, most = generator.uniform(0.01, 10.0, number), generator.integers(1, 30, number)
    size = int(generator.integers(1, most.sum() + 1))
    result = allocate(size, share, most)
    assert result.sum() == size
    assert np.all((result >= 0) & (result <= most))
    if size >= number:
        assert np.all(result >= 1)
    # Where neither the limits nor the least of one matter, it is the share to within one point.
    ideal = size * share / share.sum()
    if np.all((ideal >= 1.0) & (ideal + 1 <= most)):
        assert np.all(np.abs(result - ideal) <= 1.0 + 1e-9)


def test_allocate_does_not_care_for_the_unit_of_the_share():
    share, most = np.array([3.0, 1.0, 0.2]), np.array([50, 50, 50])
    np.testing.assert_array_equal(allocate(17, share, most), allocate(17, 1e6 * share, most))


# The data term of a step


# The first is far from their mean, so that a quadratic expansion there is a poor one.
THETAS = jnp.asarray([[1.6, -2.1], [0.6, -1.1], [0.1, -0.7], [0.5, -0.6]])


class Probe(Optimizer):
    """Moves nothing and records the data term of the step at the first of `THETAS` as its `loss`."""

    uses_inner_gradient: ClassVar[bool] = True
    needs_exact_data: ClassVar[bool] = False
    needs_slopes: ClassVar[bool] = False
    default_steps: ClassVar[int] = 10

    def init(self, learned, family, psi):
        return ()

    def ask(self, target, learned, psi, state):
        psi, inner = target.solve(learned, psi)
        return Draft(THETAS, jnp.mean(THETAS, axis=0), jnp.zeros(len(THETAS)), psi, inner)

    def tell(self, target, learned, psi, state, scale, draft, answer):
        zero = jnp.zeros(())
        info = Info(answer.value + answer.rises[0], zero, zero, zero, zero, zero + 1.0)
        return Moved(learned, psi, state, info)


class ExactProbe(Optimizer):
    """The same, with minibatch noise kept out as far as possible."""

    uses_inner_gradient: ClassVar[bool] = True
    needs_exact_data: ClassVar[bool] = True
    needs_slopes: ClassVar[bool] = False
    default_steps: ClassVar[int] = 10
    init, ask, tell = Probe.init, Probe.ask, Probe.tell


def data_terms(probe, data, batch_size, num_steps):
    construction = cvi.BBPSVI(4, optimizer=probe, inner=Joint(), batch_size=batch_size)
    fit = cvi.fit(construction, MODELS["logistic"].model, data, key=1, num_steps=num_steps, progress=False)
    return fit.history["loss"].astype(float)


@pytest.mark.parametrize("probe", [Probe(), ExactProbe()], ids=["plain", "controlled"])
def test_the_minibatch_data_term_is_unbiased(probe):
    # 60 rows make 41 strata of one or two rows, and those of two are heavy: every correction is at work.
    lengths = np.diff(np.arange(42) * ROWS // 41)
    heavy = np.repeat(np.where(lengths == 2, 3.0, 0.3), lengths)
    data = Dataset(X, np.asarray(BINARY.y), heavy)
    expected = float(log_likelihood_sums(MODELS["logistic"].model, THETAS, data)[0])
    terms = data_terms(probe, data, 41, 2000)
    error = MAX_Z * terms.std() / np.sqrt(terms.size) + 1e-6 * abs(expected)
    assert abs(terms.mean() - expected) < error
    noise = terms.std() / abs(expected)
    if probe.needs_exact_data:
        assert noise < 0.02
        return
    assert noise > 0.05
    # Every step has its own batch: no correlation from one to the next.
    away = (terms - terms.mean()) / terms.std()
    assert abs(np.mean(away[1:] * away[:-1])) < MAX_Z / np.sqrt(terms.size)


def test_the_whole_data_term_is_exact_and_takes_weight_two_for_the_row_twice():
    heavy, twice = doubled(BINARY, np.arange(0, ROWS, 3))
    expected = float(log_likelihood_sums(MODELS["logistic"].model, THETAS, twice)[0])
    for data in (heavy, twice):
        np.testing.assert_allclose(data_terms(Probe(), data, None, 2), expected, rtol=1e-6)


def test_regression_labels_move_when_learned():
    data = Dataset(X, values(X))
    construction = cvi.BBPSVI(4, learn={"y"}, inner=Joint(), objective=ImportanceElbo(4))
    fit = cvi.fit(construction, LinearRegression(2), data, key=0, num_steps=5, progress=False)
    frame = parametrise(LinearRegression(2).check(data), Simplex(), frozenset({"y"}), None)
    assert fit.coreset.y.shape == (4,)
    # No label of the coreset is one of the data any more, but all are in its range.
    gaps = np.abs(np.asarray(fit.coreset.y)[:, None] - np.asarray(data.y)).min(1)
    assert np.all(gaps > 1e-4)
    assert np.all(np.abs(np.asarray(fit.coreset.y) - float(frame.y_mean)) < 4.0 * float(frame.y_scale))
    # The points themselves stay rows of the data.
    assert np.all(np.abs(np.asarray(fit.coreset.x)[:, None] - X).max(2).min(1) < 1e-5)
