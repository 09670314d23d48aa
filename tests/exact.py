"""Exact answers and small tools that several test files share."""

from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree

import coresetvi as cvi
from coresetvi.constructions.base import Construction, Plan
from coresetvi.constructions.parametrisation import Parametrisation, parametrise
from coresetvi.constructions.starts import start_leaves
from coresetvi.data import Dataset
from coresetvi.families import Family, FullRank
from coresetvi.inner import InnerInfo, InnerProblem
from coresetvi.inner.base import Leaves
from coresetvi.models import LinearRegression, LogisticRegression, Model, SoftmaxRegression
from coresetvi.models.sums import weighted_log_likelihood
from coresetvi.objectives import Objective
from coresetvi.outer.base import Answer, Moved, Optimizer, Target
from coresetvi.weights import Free, WeightMap

# Fixed seeds make a statistical test repeatable; at this many standard errors it is also hard to be unlucky.
MAX_Z = 4.5
OneModel = TypeVar("OneModel", bound=Model)


@pytest.fixture
def float64():
    """Double precision inside one test: what finite differences and closed forms need.

    Programs that run a few times on small arrays cost their compilation, so little of it is done.
    """
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.enable_x64(True):
        yield
    jax.config.update("jax_disable_most_optimizations", before)


def gaussian_kl(mean, covariance, other_mean, other_covariance) -> float:
    """KL(N(mean, covariance) || N(other_mean, other_covariance)) in nats."""
    mean, covariance, other_mean, other_covariance = (
        np.asarray(array, np.float64) for array in (mean, covariance, other_mean, other_covariance)
    )
    gap = other_mean - mean
    trace = np.trace(np.linalg.solve(other_covariance, covariance))
    distance = gap @ np.linalg.solve(other_covariance, gap)
    volumes = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return float(0.5 * (trace + distance - mean.size + volumes))


def normal(mean, covariance) -> Any:
    """scipy's normal distribution; its stubs have not heard of covariance matrices."""
    frozen: Any = scipy.stats.multivariate_normal
    return frozen(np.asarray(mean), np.asarray(covariance))


def full_rank(mean, covariance) -> dict[str, jax.Array]:
    """Parameters of the FullRank member with these moments."""
    return {"mean": jnp.asarray(mean), "factor": jnp.asarray(np.linalg.cholesky(covariance))}


def finite_difference(
    function: Callable[[Any], Any], point: Any, step: float = 1e-5, compiled: bool = False
) -> np.ndarray:
    """Gradient of a scalar function of a pytree by central differences, flat."""
    flat, unravel = ravel_pytree(point)
    flat = np.asarray(flat)
    value = function if compiled else jax.jit(function)
    nudges = step * np.eye(flat.size)
    differences = [
        float(value(unravel(flat + nudge))) - float(value(unravel(flat - nudge))) for nudge in nudges
    ]
    return np.array(differences) / (2 * step)


def matched_noise(seed: int, pairs: int, dim: int) -> jax.Array:
    """Antithetic normal noise with exact second moments: the mean of a quadratic over it has no error."""
    half = np.random.default_rng(seed).standard_normal((pairs, dim))
    half = half @ np.linalg.inv(np.linalg.cholesky(half.T @ half / pairs)).T
    return jnp.asarray(np.concatenate([half, -half]))


def cosine(one, other) -> float:
    """Cosine of the angle between two pytrees."""
    one, other = (np.asarray(ravel_pytree(tree)[0], np.float64) for tree in (one, other))
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


@overload
def rows(
    model_name: Literal["linear"], num_rows: int = 40, num_features: int = 2, seed: int = 0
) -> tuple[LinearRegression, Dataset]: ...
@overload
def rows(
    model_name: str, num_rows: int = 40, num_features: int = 2, seed: int = 0
) -> tuple[Model, Dataset]: ...
def rows(model_name: str, num_rows: int = 40, num_features: int = 2, seed: int = 0) -> tuple[Model, Dataset]:
    """A model and data drawn from it, with correlated columns and unequal weights."""
    generator = np.random.default_rng(seed)
    mixing = np.eye(num_features) + 0.6 * np.tril(np.ones((num_features, num_features)), -1)
    x = generator.standard_normal((num_rows, num_features)) @ mixing.T + 0.3
    weights = generator.uniform(0.5, 1.5, num_rows)
    coefficients = np.linspace(1.0, -1.0, num_features)
    output = x @ coefficients
    if model_name == "linear":
        y = output + 0.7 * generator.standard_normal(num_rows)
        return LinearRegression(num_features, noise=0.7, prior_scale=1.5), Dataset(x, y, weights)
    if model_name == "logistic":
        y = (generator.uniform(size=num_rows) < 1.0 / (1.0 + np.exp(-output))).astype(int)
        return LogisticRegression(num_features), Dataset(x, y, weights)
    assert model_name == "softmax"
    y = np.digitize(output + 0.5 * generator.standard_normal(num_rows), [-0.5, 0.7])
    return SoftmaxRegression(num_features, 3), Dataset(x, y, weights)


def set_up(construction: Construction, model: Model, data: Dataset) -> tuple[Plan, Any]:
    """What a fit makes before its first step: its plan, and the state at the start."""
    plan = construction.settle(model, model.check(data))
    return plan, plan.start(jax.random.key(1))


class Case(NamedTuple, Generic[OneModel]):
    """A coreset and every function of it that a step evaluates, written out from Eqs. 9 and 13."""

    model: OneModel
    data: Dataset
    frame: Parametrisation
    learned: Leaves
    frozen: Leaves
    problem: InnerProblem

    def coreset(self, learned: Leaves) -> Dataset:
        return self.frame.build({**self.frozen, **learned})

    def core(self, learned: Leaves, thetas):
        points = self.coreset(learned)
        return jax.vmap(lambda theta: weighted_log_likelihood(self.model, theta, points))(thetas)

    def whole(self, thetas):
        return jax.vmap(lambda theta: weighted_log_likelihood(self.model, theta, self.data))(thetas)

    def outer_loss(self, objective, learned: Leaves, psi, noise):
        """The outer objective at psi on these draws."""
        thetas, proposal = jax.vmap(self.problem.family.sample_and_log_prob, (None, 0))(psi, noise)
        prior = jax.vmap(self.model.log_prior)(thetas)
        return objective.loss(self.whole(thetas), self.core(learned, thetas), prior, proposal)

    def target(self, objective: Objective, noise, solve=None) -> "CaseTarget":
        """The coreset's side of a step; by default the inner problem leaves psi where it is."""

        def stay(learned, psi):
            return psi, InnerInfo(jnp.zeros(()), jnp.asarray(0), jnp.asarray(True))

        return CaseTarget(objective, self.problem.family, self, noise, solve or stay)


class CaseTarget(Target):
    """A case as an outer optimiser sees it."""

    objective: Objective
    family: Family
    case: Case
    noise: Any
    inner: Callable

    def solve(self, learned, psi):
        return self.inner(learned, psi)

    def draw(self, learned, psi):
        return jax.vmap(self.family.sample_and_log_prob, (None, 0))(psi, self.noise)

    def core(self, learned, thetas, reference):
        return self.case.core(learned, thetas) - self.case.core(learned, reference[None])

    def prior(self, thetas):
        return jax.vmap(self.case.model.log_prior)(thetas)

    def project(self, learned):
        return self.case.frame.project(learned)

    def answer(self, thetas, reference) -> Answer:
        """What the data say, with slopes, row by row."""
        value = self.case.whole(reference[None])[0]
        slopes = jax.vmap(jax.grad(lambda theta: self.case.whole(theta[None])[0]))(thetas)
        return Answer(value, self.case.whole(thetas) - value, slopes)


def take_step(optimizer: Optimizer, target: CaseTarget, learned, psi, state, scale) -> Moved:
    """One outer step on all rows: ask, answer, tell."""
    draft = optimizer.ask(target, learned, psi, state)
    answer = target.answer(draft.thetas, draft.reference)
    return optimizer.tell(target, learned, psi, state, jnp.asarray(scale), draft, answer)


def coreset_case(
    model: OneModel,
    data: Dataset,
    family: Family,
    *,
    learn: frozenset[str] = frozenset({"x", "y", "weights", "total"}),
    weights: WeightMap | None = None,
    size: int = 5,
    seed: int = 0,
) -> Case[OneModel]:
    """A subset of the data as a coreset whose `learn` leaves can move."""
    data = model.check(data)
    frame = parametrise(data, weights or Free(), learn, model.num_classes)
    leaves, _ = start_leaves(frame, data, size, "subset", jax.random.key(seed))
    learned = {name: leaf for name, leaf in leaves.items() if name in learn}
    frozen = {name: leaf for name, leaf in leaves.items() if name not in learn}

    def inner_loss(psi, learned, noise):
        points = frame.build({**frozen, **learned})

        def negative_elbo_term(one):
            theta, proposal = family.sample_and_log_prob(psi, one)
            return proposal - model.log_prior(theta) - weighted_log_likelihood(model, theta, points)

        return jnp.mean(jax.vmap(negative_elbo_term)(noise))

    return Case(model, data, frame, learned, frozen, InnerProblem(inner_loss, family, model.dim))


def fit_by_hand(model, coreset, psi, family=None, **changes):
    """A fit that nobody fitted, with this r."""
    fields: dict[str, Any] = {
        "coreset": model.check(coreset),
        "model": model,
        "family": family or FullRank(),
        "psi": {name: jnp.asarray(leaf, jnp.result_type(float)) for name, leaf in psi.items()},
        "construction": None,
        "history": {},
        "result": "finished",
        "key": jax.random.key(0),
        "seconds": {},
        "about": {},
    }
    return cvi.Fit(**{**fields, **changes})


def entries(column: Any) -> list[Any]:
    """A column of a file as Python's own objects, whatever reads such files."""
    return column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
