"""Forty more problems with known answers, on which no setting of the certificate was chosen.

More than half have posteriors with several modes, heavy tails or a hierarchy. All have one, two or three
parameters, and truths are sums over grids whose lines lie close together in the middle and far apart outside.
Verdicts are judged as those of `verdicts.py` are.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import coresetvi as cvi
from benchmarks.verdicts import NUM_SAMPLES, TRUE_KHAT
from coresetvi.constructions.base import Construction
from coresetvi.families.importance import pareto_khat
from coresetvi.families.sampled import Sampled
from coresetvi.models.sums import log_likelihood_sums
from coresetvi.posterior.certificate import TRUST_KL

# Lines of the grid for one, two and three parameters.
LINES = {1: 100_001, 2: 801, 3: 151}
FIRST_KEY = 100
# Draws from the grid by which the tail of exact weights is measured.
MANY_DRAWS = 1_000_000
PSVI, SUBSET = cvi.BBPSVI, cvi.RandomSubset


class Problem(NamedTuple):
    """A model with data and a construction; grid lines reach to `reach`, evenly spaced up to `even`."""

    kind: str
    name: str
    model: cvi.models.Model
    data: cvi.Dataset
    construction: Construction
    key: int
    reach: float = 8.0
    even: float = 8.0


def problems() -> list[Problem]:
    """Forty, by how their posteriors look."""
    makers: list[tuple[str, str, Callable, list, float, float]] = [
        ("several modes", "square", square, [PSVI(1), PSVI(1), PSVI(4), SUBSET(20)], 6, 6),
        (
            "several modes",
            "product",
            product,
            [PSVI(1), PSVI(2), PSVI(8), SUBSET(30)],
            6,
            6,
        ),
        ("several modes", "mixture", mixture, [PSVI(2), PSVI(10), SUBSET(15), SUBSET(40)], 8, 8),
        (
            "several modes",
            "outliers",
            outliers,
            [PSVI(2), PSVI(8), SUBSET(6), SUBSET(25)],
            30,
            30,
        ),
        ("heavy tails", "separable 1", separable_1, [PSVI(1), PSVI(4), SUBSET(8)], 1e6, 10),
        ("heavy tails", "separable 2", separable_2, [PSVI(2), PSVI(4), SUBSET(10)], 1e4, 10),
        ("hierarchy", "schools", schools, [PSVI(2), PSVI(8), SUBSET(6), SUBSET(12)], 30, 15),
        ("hierarchy", "scale", scale, [PSVI(2), PSVI(8), SUBSET(10)], 6, 6),
        ("plain", "probit", probit, [PSVI(6), PSVI(2), SUBSET(20)], 8, 8),
        ("plain", "logistic 3", logistic, [PSVI(12), PSVI(1), SUBSET(25)], 7, 7),
        ("plain", "counts", counts, [PSVI(6), PSVI(2), SUBSET(30)], 4, 4),
        ("plain", "growth", growth, [PSVI(6), SUBSET(15)], 5, 5),
    ]
    found = []
    for kind, name, maker, constructions, reach, even in makers:
        for construction in constructions:
            key = FIRST_KEY + len(found)
            model, data = maker(np.random.default_rng(key))
            found.append(Problem(kind, name, model, data, construction, key, reach, even))
    return found


def normal_prior(width: float) -> Callable:
    return lambda theta: jnp.sum(norm.logpdf(theta, scale=width))


def model_of(prior: Callable, likelihood: Callable, start: list[float], classes: int | None = None):
    return cvi.models.FromCallables(prior, likelihood, jnp.asarray(start), num_classes=classes)


def square(generator: np.random.Generator):
    """The sign of theta matters a little."""
    x = generator.normal(size=(300, 1))
    slope = generator.uniform(0.05, 0.25)
    y = 1.2**2 + slope * 1.2 * x[:, 0] + generator.normal(size=300)

    def likelihood(theta, x, y):
        return norm.logpdf(y, theta[0] ** 2 + slope * theta[0] * x[:, 0])

    return model_of(normal_prior(1.5), likelihood, [1.0]), cvi.Dataset(x, y)


def product(generator: np.random.Generator):
    """Both signs may change together."""
    x = generator.normal(size=(60, 1))
    y = 1.5 * x[:, 0] + generator.normal(size=60)

    def likelihood(theta, x, y):
        return norm.logpdf(y, theta[0] * theta[1] * x[:, 0])

    return model_of(normal_prior(1.0), likelihood, [0.8, 0.6]), cvi.Dataset(x, y)


def mixture(generator: np.random.Generator):
    """Two components of unequal shares, which can hardly change places."""
    y = np.where(generator.random(80) < 0.6, -1.2, 1.2) + generator.normal(size=80)

    def likelihood(theta, x, y):
        parts = jnp.stack([jnp.log(0.6) + norm.logpdf(y, theta[0]), jnp.log(0.4) + norm.logpdf(y, theta[1])])
        return jax.nn.logsumexp(parts, axis=0)

    return model_of(normal_prior(2.0), likelihood, [-1.0, 1.0]), cvi.Dataset(np.zeros((80, 1)), y)


def outliers(generator: np.random.Generator):
    """Two groups, far apart under noise with heavy tails, so that either may be the outliers."""
    y = np.concatenate([generator.normal(-6.0, 1.0, 12), generator.normal(6.0, 1.0, 11)])
    y = np.concatenate([y, generator.normal(0.0, 8.0, 7)])

    def likelihood(theta, x, y):
        return -jnp.log1p((y - theta[0]) ** 2)

    return model_of(normal_prior(10.0), likelihood, [0.0]), cvi.Dataset(np.zeros((30, 1)), y)


def cauchy_prior(theta):
    return -jnp.sum(jnp.log1p((theta / 2.5) ** 2))


def separable(generator: np.random.Generator, dim: int):
    """Nothing but a Cauchy prior keeps the coefficients finite."""
    x = generator.normal(size=(100, dim))
    side = x.sum(axis=1)
    x, side = x[np.abs(side) > 0.2], side[np.abs(side) > 0.2]

    def likelihood(theta, x, y):
        return -jax.nn.softplus(jnp.where(y == 1, -1.0, 1.0) * (x @ theta))

    return model_of(cauchy_prior, likelihood, [0.0] * dim, 2), cvi.Dataset(x, (side > 0).astype(int))


def separable_1(generator: np.random.Generator):
    return separable(generator, 1)


def separable_2(generator: np.random.Generator):
    return separable(generator, 2)


def schools(generator: np.random.Generator):
    """Effects of groups with known errors, integrated out: their mean and the logarithm of their spread."""
    errors = generator.uniform(0.5, 2.0, (40, 1))
    y = 2.0 + np.sqrt(0.5**2 + errors[:, 0] ** 2) * generator.normal(size=40)

    def prior(theta):
        # A half-Cauchy distribution of the spread, seen on its logarithm.
        return norm.logpdf(theta[0], scale=5.0) + theta[1] - jnp.log1p(jnp.exp(2.0 * theta[1]))

    def likelihood(theta, x, y):
        return norm.logpdf(y, theta[0], jnp.sqrt(x[:, 0] ** 2 + jnp.exp(2.0 * theta[1])))

    return model_of(prior, likelihood, [0.0, 0.0]), cvi.Dataset(errors, y)


def scale(generator: np.random.Generator):
    """Mean and logarithm of the scale of few numbers."""
    y = generator.normal(1.0, 2.0, 30)

    def likelihood(theta, x, y):
        return norm.logpdf(y, theta[0], jnp.exp(theta[1]))

    return model_of(normal_prior(2.0), likelihood, [0.0, 0.0]), cvi.Dataset(np.zeros((30, 1)), y)


def probit(generator: np.random.Generator):
    x = generator.normal(size=(70, 2))
    y = (x @ [1.0, -0.7] + generator.normal(size=70) > 0).astype(int)

    def likelihood(theta, x, y):
        return norm.logcdf(jnp.where(y == 1, 1.0, -1.0) * (x @ theta))

    return model_of(normal_prior(2.0), likelihood, [0.0, 0.0], 2), cvi.Dataset(x, y)


def logistic(generator: np.random.Generator):
    x = generator.normal(size=(90, 2))
    y = (generator.random(90) < 1.0 / (1.0 + np.exp(-(x @ [1.0, -1.5] + 0.3)))).astype(int)
    return cvi.models.LogisticRegression(2, intercept=True, prior_scale=2.0), cvi.Dataset(x, y)


def counts(generator: np.random.Generator):
    x = generator.normal(size=(100, 2))
    y = generator.poisson(np.exp(x @ [0.4, -0.3]))
    return cvi.models.PoissonRegression(2, prior_scale=1.0), cvi.Dataset(x, y)


def growth(generator: np.random.Generator):
    """A curve that is not linear in its parameters."""
    x = generator.uniform(0.0, 3.0, (60, 1))
    y = 1.5 * (1.0 - np.exp(-1.2 * x[:, 0])) + 0.3 * generator.normal(size=60)

    def likelihood(theta, x, y):
        return norm.logpdf(y, theta[0] * (1.0 - jnp.exp(-jnp.exp(theta[1]) * x[:, 0])), 0.3)

    return model_of(normal_prior(1.5), likelihood, [1.0, 0.0]), cvi.Dataset(x, y)


def truth(problem: Problem, fit: cvi.Fit) -> dict[str, float | str]:
    """KLs by sums over a grid, and the verdict that they ask for."""
    model, dim = problem.model, problem.model.dim
    stretch = np.linspace(-1.0, 1.0, LINES[dim]) * np.arcsinh(problem.reach / problem.even)
    line, step = problem.even * np.sinh(stretch), np.log(np.cosh(stretch))
    if problem.reach <= problem.even:
        line, step = np.linspace(-problem.reach, problem.reach, LINES[dim]), np.zeros(LINES[dim])
    points = np.stack(np.meshgrid(*[line] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    volumes = sum(np.meshgrid(*[step] * dim, indexing="ij"), np.zeros((LINES[dim],) * dim)).ravel()
    rows = model.check(problem.data)
    logs = [[], [], []]
    for some in np.array_split(points, max(1, len(points) // 200_000)):
        thetas = jnp.asarray(some, jnp.float32)
        prior = jax.vmap(model.log_prior)(thetas)
        logs[0].append(prior + log_likelihood_sums(model, thetas, fit.coreset))
        logs[1].append(prior + log_likelihood_sums(model, thetas, rows))
        logs[2].append(jax.vmap(lambda theta: fit.family.log_prob(fit.psi, theta))(thetas))
    # Where a density underflows or overflows float32 it is zero.
    core, full, r = (
        np.nan_to_num(np.concatenate([np.asarray(part, np.float64) for part in parts]), nan=-1e9, neginf=-1e9)
        for parts in logs
    )
    core, full, r = (values - np.logaddexp.reduce(values + volumes) for values in (core, full, r))

    def divergence(one, other):
        return float(np.sum(np.exp(one + volumes) * (one - other)))

    kl, back = divergence(core, full), divergence(full, core)
    # Where draws of the coreset posterior are what a fit predicts with, the normal around them is idle.
    r_kl = 0.0 if isinstance(fit.family, Sampled) else divergence(r, core)
    khat = true_khat(core + volumes, full - core, problem.key)
    if kl <= TRUST_KL:
        verdict = "trust" if r_kl <= TRUST_KL else "correct"
    else:
        verdict = "enlarge" if khat > TRUE_KHAT or back > np.log(NUM_SAMPLES) else "correct"
    return {
        "true_kl": kl,
        "true_r_kl": r_kl,
        "true_back_kl": back,
        "true_khat": khat,
        "true_verdict": verdict,
    }


def true_khat(log_mass: np.ndarray, log_ratio: np.ndarray, seed: int) -> float:
    """k-hat of the full posterior's weights at a million independent draws of the coreset posterior."""
    mass = np.exp(log_mass - log_mass.max())
    cells = np.random.default_rng(seed).choice(len(mass), MANY_DRAWS, p=mass / mass.sum())
    return pareto_khat(log_ratio[cells])


def run() -> list[dict[str, object]]:
    """Every problem's true verdict beside the certificate's."""
    rows = []
    for problem in problems():
        fit = cvi.fit(problem.construction, problem.model, problem.data, key=problem.key, progress=False)
        certificate = cvi.diagnose(fit, problem.data, num_samples=NUM_SAMPLES, progress=False)
        found = certificate.posterior
        rows.append(
            {
                "kind": problem.kind,
                "model": problem.name,
                "key": problem.key,
                "construction": f"{type(problem.construction).__name__}({len(fit.coreset)})",
                **truth(problem, fit),
                "verdict": certificate.verdict,
                **{name: found.get(name) for name in ("kl", "kl_error", "khat", "gradient_kl")},
                "r_kl": certificate.r["kl"],
                "look": certificate.look,
            }
        )
    return rows
