"""Problems on which no normal is the posterior: networks, multilevel regressions, varying intercepts.

`problem(name)` makes the model and its data anew, always the same; how its truth is drawn stands beside it.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from tests.varying_reference import varying_intercepts as moments_of_varying

import coresetvi as cvi

UCI = ("boston", "concrete", "energy", "yacht")
SPLITS = (0, 1, 2)
# Levels of the five crossed factors: state, ethnicity, age, both of the latter together, education.
LEVELS = {"state": 50, "ethnicity": 4, "age": 4, "cell": 16, "education": 5}
# Prior deviations of the mean and of the slope of varying intercepts.
MEAN_SCALE, SLOPE_SCALE = 5.0, 1.0
Record = dict[str, object]
Moments = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How chains on all rows are run; every `thin`-th draw is kept."""

    method: str = "nuts"
    chains: int = 4
    warmup: int = 1000
    samples: int = 1000
    thin: int = 1

    def __str__(self) -> str:
        return f"{self.method}-{self.chains}x{self.warmup}+{self.samples}by{self.thin}"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model with rows, the sizes of coresets to try, and how to draw its true posterior."""

    name: str
    model: cvi.models.Model
    data: cvi.Dataset
    sizes: tuple[int, ...]
    sampling: Sampling
    test: cvi.Dataset | None = None
    # What one unit of a standardised response is in its own units.
    unit: float = 1.0
    # Exact means and deviations by site, where there is a closed form.
    exact: Callable[[], Moments] | None = None


def multilevel() -> Problem:
    """Logistic regression with five crossed factors, as surveys are analysed: 11,500 rows, 90 parameters."""
    generator = np.random.default_rng(7)
    rows = 11_500
    states = generator.dirichlet(np.full(LEVELS["state"], 1.5))
    vote = generator.normal(size=LEVELS["state"]).clip(-2.0, 2.0) * 0.5
    state = generator.choice(LEVELS["state"], rows, p=states)
    ethnicity = generator.choice(4, rows, p=[0.7, 0.12, 0.13, 0.05])
    age = generator.choice(4, rows, p=[0.2, 0.3, 0.3, 0.2])
    education = generator.choice(5, rows, p=[0.1, 0.3, 0.3, 0.2, 0.1])
    male = generator.integers(0, 2, rows) - 0.5
    income = 0.3 * (education - 2) + generator.normal(size=rows)
    indices = np.stack([state, ethnicity, age, 4 * ethnicity + age, education], axis=1)
    x = np.column_stack([indices, male, vote[state], income]).astype(np.float32)

    spread = dict(zip(LEVELS, (0.45, 0.5, 0.25, 0.15, 0.35), strict=True))
    logits = slope_columns(x) @ np.array([0.3, 0.8, -0.2, 0.15, 0.1]) - 0.4
    for column, (name, count) in enumerate(LEVELS.items()):
        logits = logits + spread[name] * generator.normal(size=count)[indices[:, column]]
    y = (generator.random(rows) < 1.0 / (1.0 + np.exp(-logits))).astype(np.int32)
    data = cvi.Dataset(x, y)
    model = cvi.models.FromNumPyro(multilevel_logistic, data)
    return Problem("multilevel", model, data, (200, 100), Sampling(samples=2000))


def slope_columns(x):
    """The columns with slopes of their own: sex, the state's vote, income, and sex with each of these."""
    male, vote, income = x[:, 5], x[:, 6], x[:, 7]
    columns = (male, vote, income, male * vote, male * income)
    return jnp.stack(columns, axis=1)


def multilevel_logistic(x, y):
    """The model as it is usually written: effects of every factor around zero, with a scale to be learned."""
    import numpyro
    from numpyro import distributions as dist

    intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
    logits = intercept + slope_columns(x) @ slope
    for column, (name, count) in enumerate(LEVELS.items()):
        scale = numpyro.sample(f"scale_{name}", dist.HalfNormal(1.0))
        with numpyro.plate(f"levels_{name}", count):
            raw = numpyro.sample(f"raw_{name}", dist.Normal(0.0, 1.0))
        effect = jnp.asarray(numpyro.deterministic(name, scale * raw))
        logits = logits + effect[x[:, column].astype(int)]
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def varying() -> Problem:
    """Varying intercepts, not centred: 900 rows in 85 groups of 1 to 116."""
    data = grouped_rows(900, 85, 116, seed=3)
    model = cvi.models.FromNumPyro(varying_intercepts(85), data)
    return Problem("varying", model, data, (170,), Sampling(), exact=exact_varying(data))


def varying_centred() -> Problem:
    """The same with centred intercepts."""
    data = grouped_rows(900, 85, 116, seed=3)
    model = cvi.models.FromNumPyro(varying_intercepts(85, centred=True), data)
    return Problem("varying_centred", model, data, (170,), Sampling(), exact=exact_varying(data))


def varying_large() -> Problem:
    """12,000 rows in 390 groups, not centred; two points per group, and a tenth of the rows."""
    data = grouped_rows(12_000, 390, 700, seed=4)
    model = cvi.models.FromNumPyro(varying_intercepts(390), data)
    return Problem("varying_large", model, data, (780, 1200), Sampling(), exact=exact_varying(data))


def grouped_rows(rows: int, groups: int, largest: int, seed: int) -> cvi.Dataset:
    """Rows (group, floor) and measurements, much like those of radon in houses by county."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), group_sizes(rows, groups, largest))
    floor = generator.random(rows) < 0.2
    intercepts = 1.5 + 0.4 * generator.normal(size=groups)
    y = intercepts[group] - 0.7 * floor + 0.75 * generator.normal(size=rows)
    order = generator.permutation(rows)
    x = np.stack([group, floor], axis=1).astype(np.float32)
    return cvi.Dataset(x[order], y[order].astype(np.float32))


def group_sizes(rows: int, groups: int, largest: int) -> np.ndarray:
    """Sizes that fall like a power of their rank from `largest` to 1, and add up to `rows`."""
    ranks = np.arange(1, groups + 1)

    def sizes(power: float) -> np.ndarray:
        share = (ranks**-power - groups**-power) / (1.0 - groups**-power)
        return np.round(1.0 + (largest - 1.0) * share).astype(int)

    low, high = 0.01, 5.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sizes(middle).sum() > rows else (low, middle)
    found = sizes(high)
    # Rounding leaves a few rows over, which go to groups of middling size.
    found[groups // 4 : groups // 4 + rows - found.sum()] += 1
    assert found.sum() == rows and found.max() == largest and found.min() == 1
    return found


def varying_intercepts(groups: int, *, centred: bool = False) -> Callable:
    """A normal regression on one binary column whose intercept varies by group."""

    def model(x, y):
        import numpyro
        from numpyro import distributions as dist

        mean = numpyro.sample("mean", dist.Normal(0.0, MEAN_SCALE))
        slope = numpyro.sample("slope", dist.Normal(0.0, SLOPE_SCALE))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("groups", groups):
            if centred:
                intercept = numpyro.sample("intercept", dist.Normal(mean, spread))
            else:
                raw = numpyro.sample("raw", dist.Normal(0.0, 1.0))
                intercept = numpyro.deterministic("intercept", mean + spread * raw)
        with numpyro.plate("rows", len(x)):
            middle = jnp.asarray(intercept)[x[:, 0].astype(int)] + slope * x[:, 1]
            numpyro.sample("y", dist.Normal(middle, noise), obs=y)

    return model


def exact_varying(data: cvi.Dataset) -> Callable[[], Moments]:
    """Moments of varying intercepts without a chain."""
    x, y, _ = data.to_numpy()
    return lambda: moments_of_varying(x[:, 0], x[:, 1], y, mean_scale=MEAN_SCALE, slope_scale=SLOPE_SCALE)


def halfmoon() -> Problem:
    """Two half-moons and a network of 20 units: 81 parameters, 16 points."""
    train, test = cvi.datasets.halfmoon()
    sampling = Sampling("hmc", chains=64, samples=4000, thin=40)
    return Problem("halfmoon", cvi.models.BayesianMLP(2, hidden=(20,)), train, (16,), sampling, test)


def fourclass() -> Problem:
    """Four clusters and the paper's network of 50 units: 354 parameters, 20 points."""
    train, test = cvi.datasets.four_class()
    model = cvi.models.BayesianMLP(2, hidden=(50,), num_classes=4)
    sampling = Sampling("hmc", chains=64, samples=2000, thin=20)
    return Problem("fourclass", model, train, (20,), sampling, test)


def uci(name: str, split: int) -> Problem:
    """A regression with unknown noise by a network of 50 units, standardised by its training rows."""
    train, test = cvi.datasets.uci(name, split)
    centre, scale = (np.asarray(part) for part in train.scale())
    y_centre, y_scale = (float(part[0]) for part in cvi.Dataset(np.asarray(train.y)).scale())

    def standardised(data: cvi.Dataset) -> cvi.Dataset:
        return cvi.Dataset((np.asarray(data.x) - centre) / scale, (np.asarray(data.y) - y_centre) / y_scale)

    model = cvi.models.BayesianMLP(train.dim, hidden=(50,), num_classes=None, noise=None)
    rows, held_out = standardised(train), standardised(test)
    sampling = Sampling("hmc", chains=16, warmup=1000, samples=2000, thin=20)
    return Problem(f"uci_{name}_{split}", model, rows, (100,), sampling, held_out, y_scale)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    part.__name__: part for part in (multilevel, varying, varying_centred, varying_large, halfmoon, fourclass)
} | {f"uci_{name}_{split}": functools.partial(uci, name, split) for name in UCI for split in SPLITS}


def problem(name: str) -> Problem:
    """The problem of that name."""
    return PROBLEMS[name]()
