"""How well the best theta predicts that points of weight one can have for a mode (docs/design.md)."""

import math

import numpy as np

import coresetvi as cvi
from coresetvi.laplace import laplace_moments

LAMBERT = 0.27846454276  # W(1/e), the largest z sigmoid(-z)
SIZES = (10, 40, 100)


def run() -> list[dict]:
    """Lengths and test NLLs on phishing and adult."""
    rows = []
    for name in ("phishing", "adult"):
        train, test = cvi.datasets.load(name)
        model = cvi.models.LogisticRegression(train.x.shape[1])
        mode, _ = laplace_moments(model, train)
        x = np.asarray(test.x, np.float64) * np.where(np.asarray(test.y) > 0, 1.0, -1.0)[:, None]
        base = nll(x, mode)
        for size in SIZES:
            longest = math.sqrt(LAMBERT * size)
            best = best_of_length(x, longest)
            rows.append(
                {
                    "data": name,
                    "size": size,
                    "length": float(np.linalg.norm(mode)),
                    "longest": longest,
                    "nll": base,
                    "best_nll": nll(x, best),
                }
            )
    return rows


def nll(x: np.ndarray, theta: np.ndarray) -> float:
    """Mean negative log-likelihood; rows of label 0 have their sign turned."""
    return float(np.mean(np.logaddexp(0.0, -x @ theta)))


def best_of_length(x: np.ndarray, longest: float) -> np.ndarray:
    """The theta at most so long with the least NLL on these very rows: no fit does better."""
    least, most = 1e-9, 1e3  # multipliers of |theta|^2 / 2, between which the right one lies
    theta = ridge_mode(x, least)
    if np.linalg.norm(theta) <= longest:
        return theta
    for _ in range(50):
        multiplier = math.sqrt(least * most)
        theta = ridge_mode(x, multiplier)
        least, most = (multiplier, most) if np.linalg.norm(theta) > longest else (least, multiplier)
    return theta


def ridge_mode(x: np.ndarray, multiplier: float) -> np.ndarray:
    """The minimum of NLL + multiplier |theta|^2 / 2, by Newton steps that are halved until they go down."""
    theta = np.zeros(x.shape[1])

    def loss(at: np.ndarray) -> float:
        return nll(x, at) + 0.5 * multiplier * float(at @ at)

    for _ in range(100):
        wrong = 0.5 * (1.0 - np.tanh(0.5 * (x @ theta)))
        gradient = multiplier * theta - wrong @ x / len(x)
        curvature = (x.T * (wrong * (1.0 - wrong))) @ x / len(x) + multiplier * np.eye(len(theta))
        step = np.linalg.solve(curvature, gradient)
        while loss(theta - step) > loss(theta) and np.linalg.norm(step) > 1e-12:
            step = 0.5 * step
        theta = theta - step
        if np.linalg.norm(step) < 1e-9:
            break
    return theta
