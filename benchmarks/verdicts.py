"""Is the certificate calibrated? Thirty problems whose true answers are known.

Half have linear-Gaussian posteriors with closed forms, half curved ones (logistic and Poisson regression with
two parameters and few rows) whose integrals are taken on a grid.
"""

import jax
import jax.numpy as jnp
import numpy as np

import coresetvi as cvi
from coresetvi.models.sums import log_likelihood_sums
from coresetvi.posterior.certificate import TRUST_KL
from coresetvi.posterior.distances import gaussian_kl

NUM_SAMPLES = 1000
# Weights between normals have no useful moments when the full one is so much wider somewhere.
TRUE_KHAT = 0.7
GRID, REACH = 400, 10.0


def problems() -> list[tuple]:
    """(kind, model, data, construction, key): ten good, ten too small, ten of the wrong family."""
    found = []
    for key in range(10):
        generator = np.random.default_rng(key)
        model, data = curved(key, generator) if key % 2 else linear(generator)
        size = 4 * model.dim
        small = [cvi.BBPSVI(1 if key % 2 else 2), cvi.RandomSubset(size - 2), cvi.BBSparseVI(size // 2)][
            key % 3
        ]
        found.append(("good", model, data, cvi.BBPSVI(size), key))
        found.append(("too small", model, data, small, key))
        wrong = cvi.BBPSVI(size, family=cvi.families.MeanField())
        found.append(("wrong family", model, data, wrong, key))
    return found


def linear(generator: np.random.Generator) -> tuple[cvi.models.LinearRegression, cvi.Dataset]:
    dim, rows = 6, 1000
    x = generator.normal(size=(rows, dim)) @ (generator.normal(size=(dim, dim)) + 1.5 * np.eye(dim))
    y = x @ generator.normal(size=dim) + generator.normal(size=rows)
    return cvi.models.LinearRegression(dim, prior_scale=3.0), cvi.Dataset(x, y)


def curved(key: int, generator: np.random.Generator) -> tuple[cvi.models.Model, cvi.Dataset]:
    rows = 80
    x = generator.normal(size=(rows, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    output = x @ generator.normal(size=2)
    if key % 4 == 1:
        y = (generator.random(rows) < 1.0 / (1.0 + np.exp(-2.0 * output))).astype(int)
        return cvi.models.LogisticRegression(2, prior_scale=3.0), cvi.Dataset(x, y)
    y = generator.poisson(np.exp(0.5 * output - 1.0))
    return cvi.models.PoissonRegression(2, prior_scale=3.0), cvi.Dataset(x, y)


def truth(fit: cvi.Fit, data: cvi.Dataset) -> dict[str, float | str]:
    """The verdict that the exact posteriors ask for."""
    model = fit.model
    r = fit.family.moments(fit.psi)
    if isinstance(model, cvi.models.LinearRegression):
        full, core = model.posterior(data), model.posterior(fit.coreset)
        kl, r_kl, back = gaussian_kl(*core, *full), gaussian_kl(*r, *core), gaussian_kl(*full, *core)
        khat = float(1.0 - np.linalg.eigvals(np.linalg.solve(full[1], core[1])).real.min())
    else:
        kl, r_kl, back = on_grid(fit, data)
        khat = 0.0
    # Weights need about exp(KL(full || coreset)) draws.
    if khat > TRUE_KHAT or back > np.log(NUM_SAMPLES):
        verdict = "enlarge"
    else:
        verdict = "trust" if max(kl, r_kl) <= TRUST_KL else "correct"
    return {"true_kl": kl, "true_r_kl": r_kl, "true_back_kl": back, "true_verdict": verdict}


def on_grid(fit: cvi.Fit, data: cvi.Dataset) -> tuple[float, float, float]:
    """KL(coreset || full), KL(r || coreset) and KL(full || coreset) for two parameters, by summation."""
    model = fit.model
    side = np.linspace(-REACH, REACH, GRID)
    thetas = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2), jnp.float32)
    prior = jax.vmap(model.log_prior)(thetas)
    rows = model.check(data)
    logs = [prior + log_likelihood_sums(model, thetas, part) for part in (fit.coreset, rows)]
    logs.append(jax.vmap(lambda theta: fit.family.log_prob(fit.psi, theta))(thetas))
    # Where a density underflows or overflows float32 it is zero.
    core, full, r = (np.nan_to_num(np.asarray(values, np.float64), nan=-1e9, neginf=-1e9) for values in logs)
    core, full, r = (values - np.logaddexp.reduce(values) for values in (core, full, r))

    def divergence(one, other):
        return float(np.sum(np.exp(one) * (one - other)))

    return divergence(core, full), divergence(r, core), divergence(full, core)


def run() -> list[dict[str, object]]:
    """Every problem's true verdict beside the certificate's."""
    rows = []
    for kind, model, data, construction, key in problems():
        fit = cvi.fit(construction, model, data, key=key)
        certificate = cvi.diagnose(fit, data, num_samples=NUM_SAMPLES)
        found = certificate.posterior
        rows.append(
            {
                "kind": kind,
                "model": type(model).__name__,
                "key": key,
                "construction": type(construction).__name__,
                **truth(fit, data),
                "verdict": certificate.verdict,
                **{
                    name: found.get(name)
                    for name in ("kl", "kl_error", "khat", "gradient_kl", "gradient_khat")
                },
                "r_kl": certificate.r["kl"],
            }
        )
    return rows
