"""Why the paper's Subset Laplace differs from a converged one: 500 Adam steps of 0.01 end before the mode.

In numpy, independent of the package.
"""

import numpy as np

import coresetvi as cvi

NUM_DRAWS, KEYS = 200, range(10)


def sigmoid(logits):
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


def mode_by_adam(x, y, weight: float, num_steps: int, rate: float = 0.01) -> np.ndarray:
    """Where Adam is after `num_steps` on the log-posterior of a weighted subset, from zero."""
    theta = np.zeros(x.shape[1])
    mean, square = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(1, num_steps + 1):
        gradient = theta - weight * x.T @ (y - sigmoid(x @ theta))
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        theta = theta - rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return theta


def run() -> list[dict[str, object]]:
    """NLL gap to full-data Laplace of diagonal Laplace posteriors on random subsets weighing N/M a row."""
    rows = []
    for name in ("phishing", "adult"):
        train, test = cvi.datasets.load(name)
        x_all, y_all = np.asarray(train.x), np.asarray(train.y)
        x_test, y_test = np.asarray(test.x), np.asarray(test.y)
        model = cvi.models.LogisticRegression(x_all.shape[1])
        full = cvi.fit(cvi.FullLaplace(), model, train, key=0).evaluate(test)["nll"]
        for size in (10, 40, 100):
            for num_steps in (500, 20_000):
                for key in KEYS:
                    generator = np.random.default_rng(key)
                    chosen = generator.choice(len(x_all), size, replace=False)
                    x, y, weight = x_all[chosen].astype(float), y_all[chosen], len(x_all) / size
                    theta = mode_by_adam(x, y, weight, num_steps)
                    chance = sigmoid(x @ theta)
                    precision = weight * (chance * (1 - chance)) @ x**2 + 1.0
                    draws = theta + generator.standard_normal((NUM_DRAWS, theta.size)) / np.sqrt(precision)
                    log_likelihood = -np.logaddexp(0.0, (1 - 2 * y_test[:, None]) * (x_test @ draws.T))
                    density = np.logaddexp.reduce(log_likelihood, axis=1) - np.log(NUM_DRAWS)
                    gap = float(-density.mean() - full)
                    rows.append({"data": name, "size": size, "steps": num_steps, "key": key, "nll_gap": gap})
    return rows
