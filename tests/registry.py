"""The instances that the laws are tried on. A new construction, model, family or weight map is one row here.

Sizes are tiny because every (construction, model) pair costs a compilation; what a law needs beyond them is
made where the law is tested.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from coresetvi.constructions.base import Construction
from coresetvi.families import FullRank, LowRank, MeanField, Point
from coresetvi.inner import SMC, Alternating, Chains, Implicit, Inner, Joint, Mcmc, Truncated, Unrolled
from coresetvi.models import (
    BayesianMLP,
    FromCallables,
    LinearRegression,
    LogisticRegression,
    Model,
    PoissonRegression,
    SoftmaxRegression,
)
from coresetvi.objectives import ImportanceElbo, SingleSampleElbo, UniformElbo
from coresetvi.outer import Adam, NaturalGradient, SlopeMatching
from coresetvi.weights import Fixed, Free, Simplex, Unit, WeightMap

ROWS = 60
SIZE = 5


# Data


def inputs(num_rows: int = ROWS, num_columns: int = 2, seed: int = 0) -> np.ndarray:
    """Columns with different means and scales, so that nothing works only in standard units."""
    generator = np.random.default_rng(seed)
    return 0.3 + generator.standard_normal((num_rows, num_columns)) * np.linspace(1.0, 2.0, num_columns)


def labels(x: np.ndarray, num_classes: int, seed: int = 1) -> np.ndarray:
    """Noisy classes that depend on the first columns; all of them occur."""
    score = x[:, 0] - 0.5 * x[:, 1] + 0.7 * np.random.default_rng(seed).standard_normal(len(x))
    return np.digitize(score, np.quantile(score, np.arange(1, num_classes) / num_classes))


def values(x: np.ndarray, seed: int = 2) -> np.ndarray:
    return 5.0 + x @ np.linspace(1.0, -1.0, x.shape[1]) + np.random.default_rng(seed).standard_normal(len(x))


def counts(x: np.ndarray, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).poisson(np.exp(0.4 * x[:, 0]))


X = inputs()
BINARY = cvi.Dataset(X, labels(X, 2))


# Models, each with data of its kind and the shape of its prediction for n rows


class ModelCase(NamedTuple):
    model: Model
    data: cvi.Dataset
    per_row: tuple[int, ...] = ()


def slope_model() -> FromCallables:
    """A user's own model: the parameters are a dictionary, the noise scale is unknown."""

    def log_likelihood(params, x, y):
        scale = jnp.exp(params["log_noise"])
        return -0.5 * ((y - x @ params["slope"]) / scale) ** 2 - params["log_noise"]

    return FromCallables(
        log_prior=lambda params: -0.5 * (jnp.sum(params["slope"] ** 2) + params["log_noise"] ** 2),
        log_likelihood=log_likelihood,
        init={"slope": jnp.zeros(2), "log_noise": jnp.zeros(())},
        predict=lambda params, x: (
            x @ params["slope"],
            jnp.full(x.shape[0], jnp.exp(2.0 * params["log_noise"])),
        ),
    )


MODELS: dict[str, ModelCase] = {
    "logistic": ModelCase(LogisticRegression(2), BINARY),
    "softmax": ModelCase(SoftmaxRegression(2, 3), cvi.Dataset(X, labels(X, 3)), (3,)),
    "linear": ModelCase(LinearRegression(2, noise=0.7, intercept=True), cvi.Dataset(X, values(X))),
    "poisson": ModelCase(PoissonRegression(2), cvi.Dataset(X, counts(X))),
    "network, 2 classes": ModelCase(BayesianMLP(2, (3,), 2, activation="tanh"), BINARY),
    "network, values": ModelCase(BayesianMLP(2, (3,), None), cvi.Dataset(X, values(X))),
    "callables": ModelCase(slope_model(), cvi.Dataset(X, values(X))),
}
CLASSIFIERS = {name: case for name, case in MODELS.items() if case.model.num_classes is not None}


# Constructions: BB PSVI as in the paper's Tables 1 to 3, under the names the tables use, then its other parts


def paper_row(*learn: str, weights=None, objective=None) -> cvi.BBPSVI:
    """Nested optimisation by unrolled steps, as in the paper, but very few of them."""
    return cvi.BBPSVI(
        SIZE,
        learn=learn,
        weights=Simplex() if weights is None else weights,
        objective=ImportanceElbo(8) if objective is None else objective,
        inner=Unrolled(num_steps=5, num_samples=4),
    )


def with_inner(inner: Inner, **options: Any) -> cvi.BBPSVI:
    return cvi.BBPSVI(SIZE, learn={"x", "weights"}, objective=ImportanceElbo(8), inner=inner, **options)


CONSTRUCTIONS: dict[str, Construction] = {
    "v*,u": paper_row("x", "weights"),
    "v*,u,alpha": paper_row("x", "weights", "total"),
    "v,u": paper_row("x", "weights", weights=Free()),
    "v=N/M,u": paper_row("x", weights=Fixed()),
    "v=1,u": paper_row("x", weights=Unit()),
    "unif. IW, v*,u": paper_row("x", "weights", objective=UniformElbo(8)),
    "w/o IW, v*,u": paper_row("x", "weights", objective=SingleSampleElbo()),
    "v*,u,z": paper_row("x", "y", "weights"),
    "v*,u,z,alpha": paper_row("x", "y", "weights", "total"),
    "truncated": with_inner(Truncated(num_steps=5, last=2, num_samples=4)),
    "implicit": with_inner(Implicit(), optimizer=Adam()),
    "joint": with_inner(Joint()),
    "alternating": with_inner(
        Alternating(Unrolled(num_steps=5, num_samples=4)), optimizer=Adam(), family=FullRank()
    ),
    "only weights": paper_row("weights", weights=Free()),
    "minibatch, noise": with_inner(Joint(), init="noise", batch_size=16),
    "default": cvi.BBPSVI(SIZE),
    "default, minibatch": cvi.BBPSVI(SIZE, batch_size=16),
    "BB Sparse VI batch": cvi.BBSparseVI(SIZE),
    "BB Sparse VI incremental": cvi.GreedyBBSparseVI(SIZE, weight_steps=3),
    "BB Sparse VI incremental, nested": cvi.GreedyBBSparseVI(
        SIZE, weight_steps=3, inner=Unrolled(num_steps=5, num_samples=4), num_candidates=16, batch_size=16
    ),
    "PSVI": cvi.PSVI(SIZE),
    "PSVI, chains": cvi.PSVI(SIZE, inner=Mcmc(num_steps=2), objective=ImportanceElbo(16)),
    "chains": with_inner(Chains(num_chains=8, num_transitions=2)),
    "chains, by passes": with_inner(Chains(num_chains=8, num_transitions=2), optimizer=SlopeMatching()),
    "chains, natural gradients": with_inner(
        Chains(num_chains=8, num_transitions=2, method="nuts"), optimizer=NaturalGradient()
    ),
    "tempered particles": with_inner(SMC(num_particles=16)),
    "PSVI, diagonal": cvi.PSVI(SIZE, family=MeanField(), optimizer=Adam(), learn={"x", "weights"}),
    "Sparse VI": cvi.SparseVI(SIZE, weight_steps=3),
    "quasi-Newton": cvi.QuasiNewton(SIZE, weights=Free()),
    "GIGA": cvi.GIGA(SIZE, num_samples=4, num_projections=50),
    "Frank-Wolfe": cvi.FrankWolfe(SIZE, num_samples=4, num_projections=50),
    "importance sampling": cvi.ImportanceSampling(SIZE, num_samples=4, num_projections=50),
    "hard thresholding": cvi.HardThresholding(SIZE, num_samples=4, num_projections=50),
    "distillation": cvi.DatasetDistillation(
        SIZE, inner=Unrolled(num_steps=5, num_samples=1, restart_every=3)
    ),
    "distillation, soft labels": cvi.DatasetDistillation(
        SIZE, learn={"x", "y"}, inner=Truncated(num_steps=5, last=2, num_samples=1, restart_every=1)
    ),
    "condensation": cvi.Condensation(
        SIZE, rows_per_class=8, inner=Unrolled(num_steps=2, num_samples=1, restart_every=3)
    ),
    "condensation, soft labels": cvi.Condensation(
        SIZE, learn={"x", "y"}, rows_per_class=8, inner=Implicit(), init="noise"
    ),
    "last layer": cvi.LastLayerPSVI(
        SIZE, num_networks=2, batch_size=16, training=cvi.NetworkTraining(num_steps=4)
    ),
    "last layer of all data": cvi.LastLayerVI(cvi.NetworkTraining(num_steps=4)),
    "full VI": cvi.FullVI(num_samples=4),
    "full Laplace": cvi.FullLaplace(),
    "random subset": cvi.RandomSubset(SIZE, num_samples=4),
    "subset Laplace": cvi.SubsetLaplace(SIZE),
}
# Rows that differ from another one in a setting which has tests of its own: the laws are tried on them in the
# slow tests only, for every row costs a compilation.
VARIANTS = {
    "v*,u,alpha",
    "v,u",
    "v=1,u",
    "w/o IW, v*,u",
    "v*,u,z",
    "truncated",
    "alternating",
    "only weights",
    "minibatch, noise",
    "BB Sparse VI batch",
    "BB Sparse VI incremental, nested",
    "PSVI, chains",
    "chains, by passes",
    "PSVI, diagonal",
    "quasi-Newton",
    "Frank-Wolfe",
    "importance sampling",
    "hard thresholding",
    "distillation",
    "condensation",
    "subset Laplace",
}
# Constructions for networks only; the laws are tried on the others with a regression.
MODEL_OF = {name: MODELS["network, 2 classes"].model for name in ("last layer", "last layer of all data")}
PSEUDOCORESETS = {name: row for name, row in CONSTRUCTIONS.items() if isinstance(row, cvi.BBPSVI)}
GREEDY = {name: row for name, row in CONSTRUCTIONS.items() if isinstance(row, cvi.GreedyBBSparseVI)}
# Those that do without a coreset, without learning one, or without a posterior, have no KL to tell.
PLAIN = {
    name: row
    for name, row in CONSTRUCTIONS.items()
    if not row.corrects or isinstance(getattr(row, "family", None), Point)
}
WHOLE_DATA = {name: row for name, row in PLAIN.items() if not hasattr(row, "size")}


# Parts

FAMILIES = {
    "mean field": MeanField(),
    "narrow": MeanField(0.5, 0.1),
    "full rank": FullRank(),
    "low rank": LowRank(1),
    "point": Point(),
}


class MapCase(NamedTuple):
    """A `learnable` map can hold any weights that add up to the total; the others ignore those."""

    weight_map: WeightMap
    learnable: bool


WEIGHT_MAPS = {
    "simplex": MapCase(Simplex(), True),
    "free": MapCase(Free(), True),
    "fixed": MapCase(Fixed(), False),
    "unit": MapCase(Unit(), False),
}


# An exact answer


def logistic_laplace(x, y, weights, prior_scale) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the Laplace approximation for logistic regression, in float64.

    `y` may be labels or the probability of class 1; `prior_scale` may differ between columns.
    """
    x, y, weights = (np.asarray(array, np.float64) for array in (x, y, weights))
    prior = np.diag(np.broadcast_to(1.0 / np.square(prior_scale, dtype=np.float64), x.shape[1]))
    theta = step = np.zeros(x.shape[1])
    precision = prior
    for _ in range(50):
        chance = 1.0 / (1.0 + np.exp(-x @ theta))
        gradient = x.T @ (weights * (y - chance)) - prior @ theta
        precision = (x.T * (weights * chance * (1.0 - chance))) @ x + prior
        step = np.linalg.solve(precision, gradient)
        # Newton from zero overshoots on nearly separable data; a step of at most 1 cannot.
        theta = theta + step / max(1.0, np.abs(step).max())
    assert np.abs(step).max() < 1e-9
    return theta, np.linalg.inv(precision)
