"""How well the best theta predicts that points of weight one can reach (docs/design.md)."""

import math

import numpy as np
import scipy.optimize
import scipy.special

import coresetvi as cvi
from coresetvi.posterior.distances import laplace_moments

LARGEST = float(scipy.special.lambertw(math.exp(-1.0)).real)  # of z sigmoid(-z)
SIZES = (10, 40, 100)


def run() -> list[dict]:
    """Lengths and test NLLs."""
    rows = []
    for name in ("phishing", "adult", "nslkdd"):
        train, test = cvi.datasets.load(name)
        model = cvi.models.LogisticRegression(train.x.shape[1])
        mode, _ = laplace_moments(model, train)
        # Rows of label 0 have their sign turned.
        x = np.asarray(test.x, np.float64) * np.where(np.asarray(test.y) > 0, 1.0, -1.0)[:, None]
        for size in SIZES:
            longest = {"mode": math.sqrt(LARGEST * size), "mean": math.sqrt(model.dim + LARGEST * size)}
            found = {"length": float(np.linalg.norm(mode)), "nll": nll(mode, x)[0]}
            found |= {f"longest_{which}": length for which, length in longest.items()}
            found |= {f"nll_{which}": best_nll(x, length) for which, length in longest.items()}
            rows.append({"data": name, "size": size, **found})
    return rows


def nll(theta: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean negative log-likelihood and its gradient."""
    score = x @ theta
    return float(np.mean(np.logaddexp(0.0, -score))), -scipy.special.expit(-score) @ x / len(x)


def best_nll(x: np.ndarray, longest: float) -> float:
    """The least NLL on these very rows of a theta that is at most so long: no fit does better."""
    short_enough = {"type": "ineq", "fun": lambda t: longest**2 - t @ t, "jac": lambda t: -2.0 * t}
    options = {"maxiter": 1000, "ftol": 1e-12}
    start = np.zeros(x.shape[1])
    found = scipy.optimize.minimize(
        nll, start, (x,), jac=True, method="SLSQP", constraints=[short_enough], options=options
    )
    if not found.success:
        raise RuntimeError(f"no best theta of length {longest:.2f} was found: {found.message}")
    return float(found.fun)
