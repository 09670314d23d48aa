"""Small models that no normal describes, each with its true posterior: for tests and benchmarks alike.

Every function returns a `ChainModel`. Its `truth()` is exact where quadrature or independent draws
are possible, and otherwise made by long chains on all rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from coresetvi.models.sums import log_likelihood_sums


class Truth(NamedTuple):
    """Weighted draws, or nodes of quadrature, of a true posterior in flat coordinates."""

    thetas: np.ndarray
    weights: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.weights @ self.thetas

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(self.weights @ (self.thetas - self.mean) ** 2)


class ChainModel(NamedTuple):
    """A model, its rows, and a function that finds its posterior given all of them."""

    model: cvi.models.Model
    data: cvi.Dataset
    truth: Callable[[], Truth]
    # Mean and deviation by 40,000 draws, each to about 0.01 deviations, where chains are the only way.
    known: tuple[list[float], list[float]] | None = None

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """True means and deviations of the flat parameters, without waiting for chains."""
        if self.known is not None:
            return np.array(self.known[0]), np.array(self.known[1])
        truth = self.truth()
        return truth.mean, truth.deviation


def by_chains(model: cvi.models.Model, data: cvi.Dataset, num_samples: int = 1000) -> Callable[[], Truth]:
    """Long chains on all rows."""

    def truth() -> Truth:
        draws = cvi.sample(model, data, num_samples=num_samples, key=99, progress=False)
        flat = draws.flat.reshape(-1, model.dim).astype(np.float64)
        return Truth(flat, np.full(len(flat), 1.0 / len(flat)))

    return truth


def by_quadrature(
    model: cvi.models.Model, data: cvi.Dataset, *sides: tuple[float, float], nodes: int = 2001
) -> Callable[[], Truth]:
    """Sums over a grid, for one or two parameters."""

    def truth() -> Truth:
        axes = [np.linspace(low, high, nodes) for low, high in sides]
        thetas = np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1)
        points = jnp.asarray(thetas, jnp.float32)
        logs = jax.vmap(model.log_prior)(points) + log_likelihood_sums(model, points, model.check(data))
        logs = np.asarray(logs, np.float64)
        weights = np.exp(logs - logs.max())
        return Truth(thetas, weights / weights.sum())

    return truth


def mixture(rows: int = 500) -> ChainModel:
    """Two normals with places, scales and shares of their own.

    Given the rows, all is well. Given a coreset, a scale may shrink onto one heavy point: a spike without a
    bound, which the posterior of the rows does not have.
    """

    def components(x):
        import numpyro
        from numpyro import distributions as dist

        share = numpyro.sample("share", dist.Beta(2.0, 2.0))
        places = numpyro.sample(
            "places",
            dist.TransformedDistribution(
                dist.Normal(0.0, 2.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()
            ),
        )
        scales = numpyro.sample("scales", dist.HalfNormal(1.0).expand([2]).to_event(1))
        shares = dist.Categorical(probs=jnp.stack([1.0 - share, share]))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", dist.MixtureSameFamily(shares, dist.Normal(places, scales)), obs=x[:, 0])

    generator = np.random.default_rng(11)
    second = generator.random(rows) < 0.35
    x = np.where(second, 1.5 + 0.4 * generator.normal(size=rows), -1.0 + 0.8 * generator.normal(size=rows))
    data = cvi.Dataset(x[:, None].astype(np.float32))
    model = cvi.models.FromNumPyro(components, data)
    known = [-0.5105, -1.0116, 0.8974, -0.2104, -0.7702], [0.1053, 0.0574, 0.0242, 0.0553, 0.0678]
    return ChainModel(model, data, by_chains(model, data), known)


def funnel(groups: int = 9, rows: int = 3) -> ChainModel:
    """Neal's funnel with a few rows of noisy data on each effect, centred; truth by independent draws.

    Given log_variance, effects are independent normals, so its own density is known in closed form.
    """
    scale = 3.0

    def effects_of_groups(x, y):
        import numpyro
        from numpyro import distributions as dist

        log_variance = numpyro.sample("log_variance", dist.Normal(0.0, scale))
        spread = jnp.exp(0.5 * log_variance)
        with numpyro.plate("groups", groups):
            effect = numpyro.sample("effect", dist.Normal(0.0, spread))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(jnp.asarray(effect)[x[:, 0].astype(int)], 1.0), obs=y)

    generator = np.random.default_rng(12)
    group = np.repeat(np.arange(groups), rows)
    y = (0.4 * generator.normal(size=groups)[group] + generator.normal(size=groups * rows)).astype(np.float32)
    data = cvi.Dataset(group[:, None].astype(np.float32), y)
    model = cvi.models.FromNumPyro(effects_of_groups, data)

    def truth() -> Truth:
        draws = 20_000
        means = np.array([y[group == number].mean(dtype=np.float64) for number in range(groups)])
        nodes = np.linspace(-8.0 * scale, 5.0 * scale, 20_001)
        variance = np.exp(nodes)[:, None] + 1.0 / rows
        logs = -0.5 * (nodes / scale) ** 2
        logs = logs - 0.5 * np.sum(np.log(variance) + means**2 / variance, axis=1)
        chances = np.exp(logs - logs.max())
        # Evenly spaced levels of the distribution function instead of random ones.
        levels = (np.arange(draws) + 0.5) / draws
        picked = np.interp(levels, np.cumsum(chances) / chances.sum(), nodes)
        own = np.exp(picked)[:, None]
        kept = own / (own + 1.0 / rows)
        noise = np.random.default_rng(13).normal(size=(draws, groups))
        effects = kept * means + np.sqrt(kept / rows) * noise
        found: dict[str, np.ndarray] = {"log_variance": picked[:, None], "effect": effects}
        flat = np.concatenate([found[name] for name, _ in model.layout.latent], axis=1)
        return Truth(flat, np.full(draws, 1.0 / draws))

    return ChainModel(model, data, truth)


def multimodal(rows: int = 60) -> ChainModel:
    """y ~ N(a² + 0.15 a x, 1): two modes of unequal mass, one parameter; truth by quadrature."""

    def square(x, y):
        import numpyro
        from numpyro import distributions as dist

        a = numpyro.sample("a", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(a**2 + 0.15 * a * x[:, 0], 1.0), obs=y)

    generator = np.random.default_rng(14)
    x = generator.normal(size=(rows, 1)).astype(np.float32)
    y = (1.0 + 0.15 * x[:, 0] + generator.normal(size=rows)).astype(np.float32)
    data = cvi.Dataset(x, y)
    model = cvi.models.FromNumPyro(square, data)
    return ChainModel(model, data, by_quadrature(model, data, (-4.0, 4.0)))


def robust(rows: int = 300) -> ChainModel:
    """Linear regression with Student's t for noise, of unknown scale and degrees of freedom."""

    def regression(x, y):
        import numpyro
        from numpyro import distributions as dist

        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.StudentT(freedom, x @ slope, noise), obs=y)

    generator = np.random.default_rng(15)
    x = generator.normal(size=(rows, 3)).astype(np.float32)
    x[:, 0] = 1.0
    y = (x @ np.array([0.5, 1.0, -0.7]) + 0.5 * generator.standard_t(3.0, size=rows)).astype(np.float32)
    data = cvi.Dataset(x, y)
    model = cvi.models.FromNumPyro(regression, data)
    known = [0.5445, 0.9621, -0.6343, -0.6582, 1.1516], [0.0374, 0.0361, 0.0362, 0.0699, 0.1801]
    return ChainModel(model, data, by_chains(model, data), known)


def zero_inflated(rows: int = 300) -> ChainModel:
    """Poisson regression in which a share of the counts is zero for another reason."""

    def regression(x, y):
        import numpyro
        from numpyro import distributions as dist

        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        gate = numpyro.sample("gate", dist.Beta(1.0, 1.0))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.ZeroInflatedPoisson(gate, rate=jnp.exp(x @ slope)), obs=y)

    generator = np.random.default_rng(16)
    x = generator.normal(size=(rows, 3)).astype(np.float32)
    x[:, 0] = 1.0
    counts = generator.poisson(np.exp(x @ np.array([0.5, 0.4, -0.3])))
    y = np.where(generator.random(rows) < 0.3, 0, counts).astype(np.int32)
    data = cvi.Dataset(x, y)
    model = cvi.models.FromNumPyro(regression, data)
    known = [0.4116, 0.4544, -0.3655, -1.2048], [0.072, 0.0553, 0.055, 0.2229]
    return ChainModel(model, data, by_chains(model, data), known)


def varying_slopes(groups: int = 20, rows: int = 400) -> ChainModel:
    """Intercepts and slopes that vary by a group number, both not centred; groups of very different sizes."""

    def regression(x, y):
        import numpyro
        from numpyro import distributions as dist

        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([2]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("groups", groups):
            raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        effect = (mean + spread * jnp.asarray(raw))[x[:, 0].astype(int)]
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(effect[:, 0] + effect[:, 1] * x[:, 1], noise), obs=y)

    generator = np.random.default_rng(17)
    shares = generator.dirichlet(np.full(groups, 1.0))
    group = np.concatenate([np.arange(groups), generator.choice(groups, rows - groups, p=shares)])
    column = generator.normal(size=rows)
    effects = np.array([1.0, -0.5]) + np.array([0.6, 0.3]) * generator.normal(size=(groups, 2))
    y = effects[group, 0] + effects[group, 1] * column + 0.5 * generator.normal(size=rows)
    data = cvi.Dataset(np.stack([group, column], axis=1).astype(np.float32), y.astype(np.float32))
    model = cvi.models.FromNumPyro(regression, data)
    return ChainModel(model, data, by_chains(model, data, 2000))


CHAIN_MODELS: dict[str, Callable[[], ChainModel]] = {
    make.__name__: make for make in (mixture, funnel, multimodal, robust, zero_inflated, varying_slopes)
}
