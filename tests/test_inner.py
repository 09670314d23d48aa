"""The inner problem and the outer step: solutions and hypergradients against closed forms and differences."""

import functools
import itertools
import math
from typing import Any

import equinox as eqx
import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import coresetvi.inner
import coresetvi.inner.newton
import coresetvi.outer
from coresetvi import BBPSVI
from coresetvi._registry import decode, encode
from coresetvi.errors import InputError
from coresetvi.families import FullRank, LowRank, MeanField, Point
from coresetvi.families.base import draw_noise
from coresetvi.families.initial import start_family
from coresetvi.inner import (
    Alternating,
    Implicit,
    InnerInfo,
    Joint,
    Laplace,
    Mcmc,
    Truncated,
    Unrolled,
    default_optimizer,
    unroll,
)
from coresetvi.inner.newton import minimise
from coresetvi.models import BayesianMLP
from coresetvi.objectives import ImportanceElbo, SingleSampleElbo, UniformElbo
from coresetvi.outer import Adam, NaturalGradient
from coresetvi.weights import Simplex, Unit

float64 = exact.float64
double = pytest.mark.usefixtures("float64")
KEY = jax.random.key(11)
TIGHT = 1e-10
EVERYTHING = frozenset({"x", "y", "weights", "total"})


@functools.cache
def case_of(model_name, family, learn=EVERYTHING, weights=None) -> exact.Case[Any]:
    """A case in double precision, made once."""
    assert jnp.zeros(()).dtype == jnp.float64
    return exact.coreset_case(*exact.rows(model_name), family, learn=learn, weights=weights)


def start_of(case):
    """A member that is not the solution."""
    dim = case.model.dim
    return case.problem.family.init(np.full(dim, 0.1), np.full(dim, 0.4))


def near_solution(case):
    """A member a fraction of a standard deviation from the posterior of a linear-Gaussian coreset."""
    mean, covariance = case.model.posterior(case.coreset(case.learned))
    return exact.full_rank(mean + 0.2 * np.sqrt(np.diag(covariance)), 1.3 * covariance)


def through(case, part, objective):
    """The outer loss as a function of leaves and start, through the inner solution; its draws are fixed."""
    noise = exact.matched_noise(3, 16, case.problem.family.noise_dim(case.model.dim))

    def loss(learned, psi):
        solution, _ = part.solve(case.problem, learned, psi, KEY)
        return case.outer_loss(objective, learned, solution, noise)

    return loss


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


def assert_close(gradient, expected, relative):
    """Close in every entry, on the scale of the whole gradient."""
    np.testing.assert_allclose(gradient, expected, atol=relative * np.linalg.norm(expected))


# Hypergradients. UniformElbo sees the coreset through psi* alone, so nothing else can make up for a mistake.

DIFFERENTIABLE = [
    ("softmax", Point(), Unrolled(num_steps=6, learning_rate=0.1, num_samples=1), 1e-6),
    ("softmax", LowRank(1), Unrolled(num_steps=6, learning_rate=0.1, num_samples=4), 1e-6),
    ("linear", FullRank(), Truncated(num_steps=6, last=6, learning_rate=0.1, num_samples=4), 1e-6),
    # Conjugate gradients stop at a relative residual of 1e-4.
    ("logistic", MeanField(), Implicit(tolerance=TIGHT, num_samples=16), 5e-4),
]


@double
@pytest.mark.parametrize(
    "model_name, family, part, relative",
    DIFFERENTIABLE,
    ids=[f"{type(part).__name__}-{name}-{type(family).__name__}" for name, family, part, _ in DIFFERENTIABLE],
)
def test_hypergradient_matches_finite_differences(model_name, family, part, relative):
    case = case_of(model_name, family)
    psi = start_of(case)
    loss = jax.jit(jax.value_and_grad(through(case, part, UniformElbo()), argnums=(0, 1)))
    _, (gradient, start_gradient) = loss(case.learned, psi)
    assert sorted(gradient) == sorted(EVERYTHING)
    for name, leaf in gradient.items():
        assert np.linalg.norm(leaf) > 1e-3, name
    difference = exact.finite_difference(lambda leaves: loss(leaves, psi)[0], case.learned, compiled=True)
    assert_close(flat(gradient), difference, relative)
    # Where the solve began is no parameter.
    np.testing.assert_array_equal(flat(start_gradient), 0.0)


@double
def test_truncated_differentiates_its_last_steps_only():
    case = case_of("logistic", MeanField())
    part = Truncated(num_steps=7, last=3, learning_rate=0.1, num_samples=4)
    psi, optimizer = start_of(case), default_optimizer(0.1)
    keys = jax.random.split(KEY, 7)
    noise = exact.matched_noise(3, 16, case.model.dim)
    first_steps = jax.jit(lambda psi: unroll(case.problem, case.learned, psi, optimizer, keys[:4], 4)[0])
    reached = first_steps(psi)

    def last_steps(learned):
        solution, _ = unroll(case.problem, learned, reached, optimizer, keys[4:], 4)
        return case.outer_loss(UniformElbo(), learned, solution, noise)

    value, gradient = jax.jit(jax.value_and_grad(through(case, part, UniformElbo())))(case.learned, psi)
    assert float(value) == pytest.approx(float(jax.jit(last_steps)(case.learned)), rel=1e-12)
    assert_close(flat(gradient), exact.finite_difference(last_steps, case.learned), 1e-6)


@double
def test_truncated_to_all_of_its_steps_ends_where_unrolled_does():
    case = case_of("logistic", MeanField())
    solutions = [
        flat(
            jax.jit(lambda psi, part=part: part.solve(case.problem, case.learned, psi, KEY)[0])(
                start_of(case)
            )
        )
        for part in (Unrolled(5, 0.1, 4), Truncated(5, 5, 0.1, 4))
    ]
    np.testing.assert_allclose(*solutions, rtol=1e-12)


def natural(model, points):
    """Precision and mean of the linear-Gaussian posterior, differentiable."""
    precision = (points.x.T * points.weights) @ points.x / model.noise**2
    precision = precision + jnp.eye(model.dim) / model.prior_scale**2
    return precision, jnp.linalg.solve(precision, points.x.T @ (points.weights * points.y) / model.noise**2)


def conjugate_solve(case):
    """The inner solution in closed form, for tests of what comes after it."""

    def solve(learned, psi):
        precision, mean = natural(case.model, case.coreset(learned))
        psi = {"mean": mean, "factor": jnp.linalg.cholesky(jnp.linalg.inv(precision))}
        return psi, InnerInfo(jnp.zeros(()), jnp.asarray(0), jnp.asarray(True))

    return solve


def exact_kl(case, learned):
    """KL(coreset posterior || data posterior) of the linear-Gaussian model, differentiable."""
    precision, mean = natural(case.model, case.coreset(learned))
    data_precision, data_mean = natural(case.model, case.data)
    gap = mean - data_mean
    volumes = jnp.linalg.slogdet(precision)[1] - jnp.linalg.slogdet(data_precision)[1]
    trace = jnp.trace(jnp.linalg.solve(precision, data_precision))
    return 0.5 * (trace + gap @ data_precision @ gap - 2 + volumes)


@functools.cache
def exact_kl_and_gradient():
    case = case_of("linear", FullRank())
    kl, gradient = jax.jit(jax.value_and_grad(functools.partial(exact_kl, case)))(case.learned)
    return float(kl), flat(gradient)


# Noise with exact second moments makes every draw set solve the linear-Gaussian problem exactly.
CONVERGED = [
    Implicit(tolerance=TIGHT, num_samples=8),
    Unrolled(num_steps=300, num_samples=8),
]


@double
@pytest.mark.parametrize("part", CONVERGED, ids=lambda part: type(part).__name__)
def test_at_convergence_every_adjoint_gives_the_exact_gradient_of_the_kl(part):
    case = case_of("linear", FullRank())
    loss = jax.jit(jax.value_and_grad(through(case, part, UniformElbo())))
    value, gradient = loss(case.learned, near_solution(case))
    kl, expected = exact_kl_and_gradient()
    assert kl > 0.1
    assert float(value) == pytest.approx(kl - case.model.log_evidence(case.data), rel=1e-9)
    assert_close(flat(gradient), expected, 1e-3)


@double
def test_implicit_moments_and_their_derivatives_are_the_conjugate_ones():
    case = case_of("linear", FullRank(), learn=frozenset({"weights"}))
    model, coreset = case.model, case.coreset(case.learned)
    psi, part = start_of(case), Implicit(tolerance=TIGHT, num_samples=8)

    noise = np.random.default_rng(6).standard_normal((3, 2))

    def contracted(raw):
        solution, info = part.solve(case.problem, {"weights": raw}, psi, KEY)
        mean, covariance = case.problem.family.moments(solution)
        # One number that depends on every entry of both.
        return noise[0] @ mean + jnp.sum(noise[1:] * covariance), (mean, covariance, info.gradient_norm)

    slope, (mean, covariance, norm) = jax.jit(jax.grad(contracted, has_aux=True))(case.learned["weights"])
    exact_mean, exact_covariance = model.posterior(coreset)
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-9)
    np.testing.assert_allclose(covariance, exact_covariance, rtol=1e-9)
    assert float(norm) <= TIGHT
    # With v the weights, C = (X'VX / noise^2 + I / prior^2)^-1 and m = C X'Vy / noise^2:
    # dm / dv_i = C x_i (y_i - x_i'm) / noise^2 and dC / dv_i = -C x_i x_i' C / noise^2.
    x, y = np.asarray(coreset.x), np.asarray(coreset.y)
    towards = exact_covariance @ x.T
    mean_slope = noise[0] @ towards * (y - x @ exact_mean)
    covariance_slope = -np.einsum("ab,ai,bi->i", noise[1:], towards, towards)
    unit = float(case.data.total_weight) / len(coreset) / model.noise**2
    assert_close(slope, unit * (mean_slope + covariance_slope), 5e-4)


@double
def test_alternating_finds_the_solution_and_passes_no_gradient():
    case = case_of("linear", FullRank())
    part = Alternating(Implicit(tolerance=TIGHT, num_samples=8))
    assert not part.passes_gradient
    noise = exact.matched_noise(3, 16, 2)

    def losses(learned):
        psi, info = part.solve(case.problem, learned, start_of(case), KEY)
        # Through psi alone; and with the direct dependence of the importance-weighted bound on the leaves.
        return [
            case.outer_loss(objective, learned, psi, noise) for objective in (UniformElbo(), ImportanceElbo())
        ], (
            psi,
            info,
        )

    (through_psi, both), (psi, info) = jax.jit(jax.jacrev(losses, has_aux=True))(case.learned)
    mean, covariance = case.problem.family.moments(psi)
    exact_mean, exact_covariance = case.model.posterior(case.coreset(case.learned))
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-9)
    np.testing.assert_allclose(covariance, exact_covariance, rtol=1e-9)
    assert bool(info.accepted)
    np.testing.assert_array_equal(flat(through_psi), 0.0)
    direct = exact.finite_difference(
        lambda learned: case.outer_loss(ImportanceElbo(), learned, psi, noise), case.learned
    )
    assert_close(flat(both), direct, 1e-6)


@double
def test_joint_leaves_psi_alone_and_lets_its_gradient_pass():
    case = case_of("linear", FullRank())
    psi = start_of(case)
    solution, info = Joint().solve(case.problem, case.learned, psi, KEY)
    assert solution is psi and bool(info.accepted) and int(info.steps) == 0
    loss = functools.partial(through(case, Joint(), UniformElbo()), case.learned)
    gradient = flat(jax.jit(jax.grad(loss))(psi))
    assert_close(gradient, exact.finite_difference(loss, psi), 1e-7)
    assert np.linalg.norm(gradient) > 1.0


# What a solve reports


@double
def test_reported_gradient_norm_is_that_of_the_inner_loss_in_tangent_coordinates():
    case = case_of("logistic", MeanField())
    psi, family = start_of(case), case.problem.family

    @jax.jit
    def norm_at(psi, noise):
        gradient = jax.grad(lambda t: case.problem.loss(family.move(psi, t), case.learned, noise))
        return jnp.linalg.norm(ravel_pytree(gradient(family.zero(psi)))[0])

    implicit = Implicit(max_steps=1, num_samples=16)
    stopped, info = jax.jit(lambda psi: implicit.find(case.problem, case.learned, psi, KEY))(psi)
    expected = norm_at(stopped, implicit.fixed_noise(case.problem, KEY))
    assert float(info.gradient_norm) == pytest.approx(float(expected), rel=1e-9)
    assert float(expected) > implicit.tolerance and not bool(info.accepted) and int(info.steps) == 1
    # An unrolled solve reports the gradient of its last step, here taken where it started.
    unrolled = Unrolled(num_steps=1, num_samples=16)
    _, info = jax.jit(lambda psi: unrolled.solve(case.problem, case.learned, psi, KEY))(psi)
    expected = norm_at(psi, case.problem.noise(jax.random.split(KEY, 1)[0], 16))
    assert float(info.gradient_norm) == pytest.approx(float(expected), rel=1e-9)
    assert bool(info.accepted) and int(info.steps) == 1


# Restarts


def drawn(key):
    """A fresh start that can be told from all others by its only number."""
    return {"mean": jax.random.normal(key, (1,))}


RESTARTING = [
    Unrolled(restart_every=3),
    Truncated(restart_every=3),
    Alternating(Unrolled(restart_every=3)),
    Mcmc(Truncated(restart_every=3)),
]


@pytest.mark.parametrize("part", RESTARTING, ids=lambda part: type(part).__name__)
def test_restart_every_begins_at_a_fresh_draw_at_multiples_and_only_there(part):
    old = {"mean": jnp.ones(1)}
    begin = jax.jit(lambda index, key: part.begin(old, drawn, index, key)["mean"][0])
    for index in range(7):
        key = jax.random.fold_in(KEY, index)
        expected = drawn(key)["mean"][0] if index % 3 == 0 else 1.0
        assert float(begin(index, key)) == float(expected)


@pytest.mark.parametrize(
    "part", [Unrolled(), Truncated(), Implicit(), Joint(), Laplace()], ids=lambda part: type(part).__name__
)
def test_without_restarts_psi_is_warm_and_nothing_is_drawn(part):
    old = {"mean": jnp.ones(1)}
    assert part.begin(old, pytest.fail, jnp.asarray(0), KEY) is old


def test_a_restart_draws_nothing_between_its_steps():
    """A draw may cost as much as the solve: it has to be in a branch of its own, under trials too."""
    part = Unrolled(restart_every=3)

    def begin(means, index):
        return jax.vmap(lambda mean: part.begin({"mean": mean}, drawn, index, KEY))(means)

    equations = jax.make_jaxpr(begin)(jnp.ones((2, 1)), 0).jaxpr.eqns
    assert [str(equation.primitive) for equation in equations].count("cond") == 1
    assert not any("random" in str(equation.primitive) for equation in equations)


@double
def test_a_fit_restarts_where_start_family_says_and_each_time_elsewhere():
    model, data = BayesianMLP(2, (3,), 2), exact.rows("logistic")[1]
    # No inner learning rate to speak of, and none outside: psi after a step is where it began.
    inner = Alternating(Unrolled(num_steps=1, learning_rate=1e-30, num_samples=1, restart_every=2))
    construction = BBPSVI(4, family=MeanField(), objective=ImportanceElbo(2), inner=inner, optimizer=Adam())
    plan, state = exact.set_up(construction, model, data)
    coreset, _ = plan.extract(state)
    step = eqx.filter_jit(plan.step)
    ends = [state.psi]
    for index in range(5):
        key = jax.random.fold_in(KEY, index)
        state, _ = step(state, jnp.asarray(index), jnp.asarray(0.0), key)
        ends.append(state.psi)
        expected = ends[-2]
        if index % 2 == 0:
            expected = start_family(MeanField(), model, coreset, jax.random.split(key, 4)[3])
        for name in ("mean", "log_scale"):
            np.testing.assert_allclose(state.psi[name], expected[name], rtol=1e-12, atol=1e-20)
    starts = [ends[0], ends[1], ends[3], ends[5]]
    for one, other in itertools.combinations(starts, 2):
        assert np.abs(np.asarray(one["mean"] - other["mean"])).max() > 0.1


@double
def test_noise_drawn_ahead_or_step_by_step_is_the_same_noise(monkeypatch):
    case = case_of("logistic", MeanField())
    part = Unrolled(num_steps=4, num_samples=6)
    solutions = []
    for most in (2**22, 0):
        monkeypatch.setattr(coresetvi.inner.unrolled, "MAX_NUMBERS_AHEAD", most)
        solve = jax.jit(lambda psi: part.solve(case.problem, case.learned, psi, KEY)[0])
        solutions.append(flat(solve(start_of(case))))
    np.testing.assert_allclose(*solutions, rtol=1e-12)


@double
def test_steps_kept_or_recomputed_have_the_same_hypergradient(monkeypatch):
    case = case_of("logistic", MeanField())
    part = Unrolled(num_steps=4, num_samples=6)
    gradients, programs = [], []
    for most in (2**25, 0):
        monkeypatch.setattr(coresetvi.inner.unrolled, "MAX_BYTES_KEPT", most)

        def far(learned):
            return jnp.sum(part.solve(case.problem, learned, start_of(case), KEY)[0]["mean"] ** 2)

        programs.append(str(jax.make_jaxpr(jax.grad(far))(case.learned)))
        gradients.append(flat(jax.jit(jax.grad(far))(case.learned)))
    assert ["checkpoint" in program or "remat" in program for program in programs] == [False, True]
    np.testing.assert_allclose(*gradients, rtol=1e-10)


# A solve that failed


@double
@pytest.mark.parametrize("optimizer", [Adam(), NaturalGradient()], ids=lambda part: type(part).__name__)
def test_leaves_stay_where_they_are_when_the_inner_solve_is_not_accepted(optimizer):
    # The posterior mean is many posterior standard deviations from the start: one Newton step cannot do.
    implicit = Implicit(max_steps=1)
    inner = implicit if optimizer.uses_inner_gradient else Alternating(implicit)
    construction = BBPSVI(5, family=MeanField(), inner=inner, optimizer=optimizer)
    plan, before = exact.set_up(construction, *exact.rows("linear", num_rows=200))
    step = eqx.filter_jit(plan.step)
    after, info = step(before, jnp.asarray(0), jnp.asarray(1.0), jax.random.key(2))
    assert not bool(info.accepted)
    assert float(info.inner_gradient_norm) > implicit.tolerance
    assert sorted(before.learned) == ["total", "weights", "x"]
    for old, new in zip(
        jax.tree.leaves((before.learned, before.optimizer)),
        jax.tree.leaves((after.learned, after.optimizer)),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)
    # psi is kept all the same, so that the next step goes on from there.
    assert not np.array_equal(before.psi["mean"], after.psi["mean"])


# Settings that are refused

REFUSED = [
    (lambda: Unrolled(num_steps=0), "num_steps of Unrolled must be positive, not 0"),
    (lambda: Unrolled(learning_rate=-1.0), "learning_rate of Unrolled must be positive, not -1.0"),
    (lambda: Unrolled(learning_rate=math.nan), "learning_rate of Unrolled must be positive, not nan"),
    (lambda: Unrolled(num_samples=0), "num_samples of Unrolled must be positive"),
    (lambda: Unrolled(restart_every=0), "restart_every must be a whole number of at least 1, not 0"),
    (lambda: Truncated(restart_every=-2), "restart_every must be a whole number of at least 1, not -2"),
    (lambda: Truncated(num_steps=5, last=6), "last is 6, more than the 5 steps there are"),
    (lambda: Truncated(last=0), "last of Truncated must be positive"),
    (lambda: Implicit(tolerance=0.0), "tolerance of Implicit must be positive"),
    (lambda: Implicit(max_steps=0), "max_steps of Implicit must be positive"),
    (lambda: Implicit(num_samples=0), "num_samples of Implicit must be positive"),
    (lambda: Adam(learning_rate=0.0), "learning_rate of Adam must be positive"),
    (lambda: NaturalGradient(damping=0.0), "damping of NaturalGradient must be positive"),
    (lambda: NaturalGradient(max_move=-1.0), "max_move of NaturalGradient must be positive"),
    (lambda: BBPSVI(4, weights=Unit(), learn={"weights"}), "Unit weights cannot be learned"),
    (lambda: BBPSVI(4, learn={"locations"}), "unknown name 'locations'; choose from x, y, weights, total"),
]
COMBINATIONS = [
    ({"objective": UniformElbo(), "inner": Alternating()}, "UniformElbo .* only through the inner problem"),
    ({"objective": SingleSampleElbo(), "optimizer": NaturalGradient()}, "SingleSampleElbo .* only through"),
    ({"family": Point(), "inner": Alternating()}, "Point .* only through the inner problem"),
    ({"family": Point(), "optimizer": NaturalGradient()}, "Point .* only through the inner problem"),
    ({"inner": Joint(), "optimizer": NaturalGradient()}, "Joint.. needs optimizer=Adam"),
]


@pytest.mark.parametrize("make, words", REFUSED, ids=[words for _, words in REFUSED])
def test_settings_that_cannot_be_are_refused_in_one_sentence(make, words):
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parts, words", COMBINATIONS, ids=[words for _, words in COMBINATIONS])
def test_parts_that_cannot_work_together_are_refused(parts, words):
    with pytest.raises(InputError, match=words):
        exact.set_up(BBPSVI(4, **parts), *exact.rows("logistic"))


@pytest.mark.parametrize(
    "part",
    [
        Unrolled(7),
        Truncated(9, 2),
        Implicit(1e-3),
        Alternating(Unrolled(3)),
        Joint(),
        Adam(),
        NaturalGradient(),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_part_is_configuration_that_can_be_saved(part):
    assert decode(encode(part)) == part


# Newton's method


def newton(loss, mean, log_scale=None, **options):
    """Minimise a function of (mean, log_scale) in the coordinates of MeanField."""
    mean = jnp.asarray(mean)
    psi = {"mean": mean, "log_scale": jnp.zeros(mean.shape) if log_scale is None else jnp.asarray(log_scale)}
    settings = {"tolerance": 1e-9, "max_steps": 200} | options
    return jax.jit(lambda psi: minimise(loss, MeanField(), psi, **settings))(psi)


@double
@pytest.mark.parametrize("log_scale", [-5.0, 5.0])
def test_newton_solves_a_quadratic_whatever_the_units(log_scale):
    generator = np.random.default_rng(0)
    root = generator.standard_normal((4, 4))
    matrix, target = root @ root.T + 0.1 * np.eye(4), generator.standard_normal(4)
    unit = math.exp(log_scale)

    def loss(psi):
        gap = psi["mean"] / unit - target
        return 0.5 * gap @ matrix @ gap + jnp.sum((psi["log_scale"] - log_scale - 0.5) ** 2)

    solution = newton(loss, np.zeros(4), np.full(4, log_scale))
    np.testing.assert_allclose(solution.psi["mean"] / unit, target, atol=1e-7)
    np.testing.assert_allclose(solution.psi["log_scale"], log_scale + 0.5, atol=1e-8)
    assert float(solution.gradient_norm) <= 1e-9


@double
@pytest.mark.parametrize("start", [[-3.0, 0.1], [1e-6, -1e-6]])
def test_newton_leaves_regions_of_negative_curvature(start):
    def loss(psi):
        # Wells at -1 and 1 with a hill between them, on which the curvature is negative and the slope small.
        return jnp.sum((psi["mean"] ** 2 - 1.0) ** 2) + jnp.sum(psi["log_scale"] ** 2)

    solution = newton(loss, start)
    np.testing.assert_allclose(np.abs(solution.psi["mean"]), 1.0, atol=1e-8)
    assert float(solution.gradient_norm) <= 1e-9


@double
def test_newton_follows_a_curved_valley():
    def loss(psi):
        first, second = psi["mean"]
        return (1.0 - first) ** 2 + 100.0 * (second - first**2) ** 2 + jnp.sum(psi["log_scale"] ** 2)

    np.testing.assert_allclose(newton(loss, [-1.2, 1.0]).psi["mean"], 1.0, atol=1e-7)


@double
def test_newton_steps_back_from_where_the_loss_is_higher():
    # The curvature vanishes away from zero, so the model's step is as long as the radius allows: too long.
    solution = newton(
        lambda psi: jnp.sum(jnp.log(jnp.cosh(3.0 * psi["mean"])) + psi["log_scale"] ** 2), [0.95]
    )
    np.testing.assert_allclose(solution.psi["mean"], 0.0, atol=1e-8)


@double
def test_newton_steps_back_from_where_the_loss_is_not_a_number():
    # 5 m - log m: from 3 the full step leads to negative m.
    solution = newton(
        lambda psi: jnp.sum(5.0 * psi["mean"] - jnp.log(psi["mean"]) + psi["log_scale"] ** 2), [3.0]
    )
    np.testing.assert_allclose(solution.psi["mean"], 0.2, atol=1e-8)


@double
def test_newton_says_when_it_has_run_out_of_steps():
    solution = newton(
        lambda psi: jnp.sum((psi["mean"] - 50.0) ** 2 + psi["log_scale"] ** 2), [0.0], max_steps=2
    )
    assert int(solution.steps) == 2
    assert float(solution.gradient_norm) > 1.0


def test_newton_does_not_notice_a_constant_in_the_loss():
    # A million rows in float32: how far the loss can be trusted depends on the size of what is added up, not
    # on the sum, which may happen to be near zero.
    x = np.random.default_rng(0).standard_normal((10, 3))
    y = x @ [1.0, -1.0, 0.5] + np.array([1.0, -1.0] * 5)
    squares = np.sum((y - x @ np.linalg.lstsq(x, y)[0]) ** 2)
    family, start = FullRank(), FullRank().init(jnp.zeros(3), jnp.full(3, 1e-3))

    @jax.jit
    def gradient_norm(constant, key):
        noise = draw_noise(key, 64, 3)

        def loss(psi):
            thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
            rows = 0.5 * (y - thetas @ x.T) ** 2 + constant
            return jnp.mean(1e5 * jnp.sum(rows, axis=1) + proposal)

        return minimise(loss, family, start, tolerance=1e-2, max_steps=50).gradient_norm

    for shift in (-1.0, 1.0, 0.0):
        constant = jnp.asarray(shift - 0.5 * squares / 10)  # the sum is near zero for a shift of zero
        norms = [float(gradient_norm(constant, jax.random.key(seed))) for seed in range(12)]
        assert max(norms) <= 1e-2, f"shift {shift}"


# The outer step


@functools.cache
def dense_parts():
    """Point, loss, gradient and Fisher matrix of one natural-gradient step, in the space of the leaves."""
    case = case_of("linear", FullRank())
    psi, noise = near_solution(case), exact.matched_noise(4, 12, 2)
    point, unravel = ravel_pytree(case.learned)
    thetas, proposal = jax.vmap(FullRank().sample_and_log_prob, (None, 0))(psi, noise)

    @jax.jit
    def loss(leaves):
        return case.outer_loss(ImportanceElbo(), unravel(leaves), psi, noise)

    @jax.jit
    def scores_and_log_weights(leaves):
        log_w = case.core(unravel(leaves), thetas) + jax.vmap(case.model.log_prior)(thetas) - proposal
        return jax.jacrev(lambda leaves: case.core(unravel(leaves), thetas))(leaves), log_w

    scores, log_w = (np.asarray(array) for array in scores_and_log_weights(point))
    weights = np.exp(log_w - log_w.max())
    mixed = 0.5 * (weights / weights.sum() + 1.0 / len(weights))
    assert mixed.max() > 1.5 * mixed.min()  # else the metric would not show which weights it uses
    scores = scores - mixed @ scores
    fisher = (scores.T * mixed) @ scores
    return case, psi, noise, np.asarray(point), unravel, loss, jax.jit(jax.grad(loss))(point), fisher


def first_step(optimizer, outer, learned, psi, scale=1.0):
    """A step that has no earlier one to look back on."""
    state = optimizer.init(learned, outer.family, psi)
    return exact.take_step(optimizer, outer, learned, psi, state, scale)


@double
@pytest.mark.parametrize(
    "optimizer, scale",
    [(NaturalGradient(), 1.0), (NaturalGradient(damping=10.0, max_move=1e9), 0.5)],
    ids=["default", "damped"],
)
def test_natural_gradient_is_the_dense_solution(optimizer, scale):
    case, psi, noise, point, unravel, loss, gradient, fisher = dense_parts()
    outer = case.target(ImportanceElbo(), noise)
    learned, same_psi, _, info = jax.jit(lambda learned: first_step(optimizer, outer, learned, psi, scale))(
        case.learned
    )
    # The damping is relative: in units of the Fisher matrix's trace over the number of draws.
    damped = fisher + optimizer.damping * np.trace(fisher) / len(noise) * np.eye(len(fisher))
    step = -np.linalg.solve(damped, np.asarray(gradient))
    step *= min(1.0, optimizer.max_move / np.abs(step).max())
    lengths = scale * np.array([1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.0])
    candidates = [flat(case.frame.project(unravel(point + length * step))) for length in lengths]
    best = candidates[int(np.argmin([float(loss(candidate)) for candidate in candidates]))]
    assert np.abs(best - point).max() > 1e-3
    assert_close(flat(learned) - point, best - point, 1e-6)
    np.testing.assert_allclose(flat(same_psi), flat(psi), rtol=1e-15)
    assert float(info.loss) == pytest.approx(float(loss(point)), rel=1e-10)


@double
def test_a_natural_gradient_step_never_increases_the_loss_on_its_own_draws():
    case = case_of("softmax", FullRank(), weights=Simplex())
    psi = start_of(case)
    # Hardly damped and hardly bounded, so that full steps do overshoot.
    optimizer = NaturalGradient(damping=1e-6, max_move=100.0)

    @jax.jit
    def before_and_after(learned, noise):
        outer = case.target(ImportanceElbo(), noise)
        learned, _, _, info = first_step(optimizer, outer, learned, psi)
        return learned, info.loss, case.outer_loss(ImportanceElbo(), learned, psi, noise)

    learned, falls = case.learned, []
    for seed in range(8):
        learned, before, after = before_and_after(learned, exact.matched_noise(seed, 16, case.model.dim))
        falls.append(float(before - after))
    assert min(falls) >= -1e-9
    assert max(falls) > 1e-3


@double
def test_natural_gradient_converges_to_the_exact_posterior_without_decay():
    case = case_of("linear", FullRank())

    @jax.jit
    def step(learned, noise):
        outer = case.target(ImportanceElbo(), noise, conjugate_solve(case))
        learned, _, _, info = first_step(NaturalGradient(), outer, learned, start_of(case))
        return learned, info.kl

    learned, kl = case.learned, math.inf
    for seed in range(60):
        learned, kl = step(learned, exact.matched_noise(seed, 32, 2))
    moments = [case.model.posterior(points) for points in (case.coreset(learned), case.data)]
    assert exact.gaussian_kl(*moments[0], *moments[1]) < 1e-6
    assert float(kl) < 1e-6


@double
def test_first_adam_step_moves_every_leaf_against_its_exact_gradient():
    case = case_of("linear", FullRank())
    optimizer, psi = Adam(learning_rate=0.01), start_of(case)
    outer = case.target(UniformElbo(), exact.matched_noise(4, 4, 2), conjugate_solve(case))
    state = optimizer.init(case.learned, case.problem.family, psi)
    step = jax.jit(lambda learned, scale: exact.take_step(optimizer, outer, learned, psi, state, scale))
    kl, gradient = exact_kl_and_gradient()
    # Adam's first step is the learning rate against the sign, wherever the gradient is not tiny.
    assert np.abs(gradient).min() > 1e-4
    for scale in (1.0, 0.25):
        learned, solution, _, info = step(case.learned, scale)
        moved = flat(learned) - flat(case.learned)
        np.testing.assert_allclose(moved, -0.01 * scale * np.sign(gradient), rtol=1e-3)
        mean, _ = case.model.posterior(case.coreset(case.learned))
        np.testing.assert_allclose(solution["mean"], mean, rtol=1e-9)
        assert float(info.loss) == pytest.approx(kl - case.model.log_evidence(case.data), rel=1e-9)


@double
def test_under_joint_adam_moves_psi_and_the_leaves_together():
    case = case_of("linear", FullRank())
    psi, noise = start_of(case), exact.matched_noise(4, 4, 2)
    outer = case.target(
        ImportanceElbo(), noise, lambda learned, psi: Joint().solve(case.problem, learned, psi, KEY)
    )
    optimizer = Adam(learning_rate=0.01)
    state = optimizer.init(case.learned, case.problem.family, psi)
    step = jax.jit(lambda learned: exact.take_step(optimizer, outer, learned, psi, state, jnp.asarray(1.0)))
    learned, moved, _, _ = step(case.learned)
    # Both by the learning rate: the leaves in their units, psi in posterior standard deviations.
    np.testing.assert_allclose(np.abs(flat(learned) - flat(case.learned)), 0.01, rtol=1e-3)
    np.testing.assert_allclose(np.abs(moved["mean"] - psi["mean"]), 0.01 * 0.4, rtol=1e-3)


@double
def test_a_step_that_made_things_worse_is_undone():
    case = case_of("linear", FullRank())
    optimizer, psi = NaturalGradient(), start_of(case)
    outer = case.target(ImportanceElbo(), exact.matched_noise(0, 32, 2), conjugate_solve(case))
    learned, new_psi, footing, info = first_step(optimizer, outer, case.learned, psi)
    astray = jax.tree.map(lambda leaf: leaf + 2.0, learned)
    back, _, smaller, worse = exact.take_step(optimizer, outer, astray, new_psi, footing, jnp.asarray(1.0))
    assert float(worse.loss) > float(info.loss) + 10.0
    jax.tree.map(np.testing.assert_array_equal, back, case.learned)
    assert float(smaller.reach) == 0.25 * float(footing.reach)
    # Its loss had been thought far too low: back on it, that is no reason to go back again, ever less far.
    flattered = smaller._replace(loss=smaller.loss - 1000.0)
    onwards, _, firm, again = exact.take_step(optimizer, outer, back, new_psi, flattered, jnp.asarray(1.0))
    assert float(firm.loss) == float(again.loss)
    assert float(firm.reach) == 2.0 * float(smaller.reach)
    assert np.any(flat(onwards) != flat(back))
