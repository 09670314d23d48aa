"""Exact and near-exact answers to measure against, in float64 numpy, independent of the package."""

import numpy as np


def laplace(x, y, weights) -> tuple[np.ndarray, np.ndarray]:
    """Mode and covariance of Bayesian logistic regression with an N(0, I) prior, by damped Newton steps."""
    x, y, weights = (np.asarray(part, np.float64) for part in (x, y, weights))
    theta = np.zeros(x.shape[1])

    def log_joint(candidate):
        logit = x @ candidate
        return np.sum(weights * (y * logit - np.logaddexp(0.0, logit))) - 0.5 * candidate @ candidate

    precision = np.eye(len(theta))
    for _ in range(200):
        probability = 0.5 * (1.0 + np.tanh(0.5 * (x @ theta)))
        gradient = x.T @ (weights * (y - probability)) - theta
        curvature = weights * probability * (1.0 - probability)
        precision = (x.T * curvature) @ x + np.eye(len(theta))
        step = np.linalg.solve(precision, gradient)
        length = 1.0
        while log_joint(theta + length * step) < log_joint(theta) - 1e-9 and length > 1e-8:
            length *= 0.5
        theta = theta + length * step
        if np.abs(step).max() < 1e-10:
            break
    return theta, np.linalg.inv(precision)


def gaussian_kl(mean, covariance, other_mean, other_covariance) -> float:
    """KL(N(mean, covariance) || N(other_mean, other_covariance)) in nats."""
    mean, covariance, other_mean, other_covariance = (
        np.asarray(part, np.float64) for part in (mean, covariance, other_mean, other_covariance)
    )
    difference = other_mean - mean
    solved = np.linalg.solve(other_covariance, covariance)
    distance = difference @ np.linalg.solve(other_covariance, difference)
    volumes = np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1]
    return float(0.5 * (np.trace(solved) + distance - len(mean) + volumes))
