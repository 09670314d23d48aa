"""A coreset as weighted rows for scikit-learn."""

from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..fitting.result import Fit
from .rows import class_names, fit_rows


class WeightedPoints(NamedTuple):
    """What `estimator.fit(*rows)` takes."""

    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray


def sklearn(fit: Fit) -> WeightedPoints:
    """Inputs, labels and weights in the order of scikit-learn: `estimator.fit(*export.sklearn(fit))`.

    Soft labels are spread over rows with hard ones; classes go by their names if the fit knows them. These
    estimators have the mode of the coreset posterior as their coefficients, s being the `prior_scale` of a
    model without intercept:

    | model | estimator |
    |---|---|
    | LogisticRegression | `LogisticRegression(C=s**2, fit_intercept=False)` |
    | SoftmaxRegression, C > 2 | `LogisticRegression(C=s**2, fit_intercept=False)` |
    | LinearRegression | `Ridge(alpha=noise**2 / s**2, fit_intercept=False)` |
    | PoissonRegression | `PoissonRegressor(alpha=1 / (s**2 * sample_weight.sum()), fit_intercept=False)` |

    With `fit_intercept=True` scikit-learn does not penalise the intercept, as if its prior were flat. For the
    mode of a model with an intercept, give X a column of ones: `np.column_stack([X, np.ones(len(X))])`.

    >>> import coresetvi as cvi
    >>> data = cvi.Dataset([[-1.0], [1.0], [2.0]], [0, 1, 1])
    >>> fit = cvi.fit(cvi.SubsetLaplace(2), cvi.models.LogisticRegression(1), data, key=0)
    >>> X, y, sample_weight = sklearn(fit)
    >>> X.shape, y.tolist(), float(sample_weight.sum())
    ((2, 1), [0, 1], 3.0)
    """
    x, y, weights = fit_rows(fit).to_numpy()
    if y is None:
        raise InputError("the coreset has no labels, and scikit-learn's estimators need them; use coreset.x")
    names = class_names(fit)
    return WeightedPoints(x.reshape(len(x), -1), y if names is None else np.array(names)[y], weights)
