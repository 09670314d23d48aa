"""Estimators with the manners of scikit-learn: `CoresetClassifier` and `CoresetRegressor`.

Columns are standardised in float64 before JAX sees them, so inputs may have any scale. Rows without weight
are left out and equal rows become one that weighs their sum, in an order that only their values decide:
weight 2 is the same row twice, and the order of the rows does not matter, down to the last bit.
"""

import dataclasses
import warnings
from typing import Any

import numpy as np

from .data.dataset import Dataset
from .data.standardise import choose_units, distinct_rows, estimate_noise, pad
from .errors import InputError
from .export.rows import fit_rows
from .export.sklearn import WeightedPoints
from .fitting.result import NUM_DRAWS, Fit
from .models.base import Model
from .models.glm import LinearRegression, LogisticRegression, SoftmaxRegression
from .models.nets import BayesianMLP
from .workflows.estimator import CoresetEstimator

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as missing:

    class _MissingError(InputError, ImportError):
        """Also an ImportError, so that those who look for one find it."""

    raise _MissingError(
        'coresetvi.sklearn needs scikit-learn 1.6 or newer; pip install "coresetvi[sklearn]"'
    ) from missing

__all__ = ["CoresetClassifier", "CoresetRegressor"]


class _Estimator(CoresetEstimator, BaseEstimator):
    """What scikit-learn adds: the checks of what comes in, and its random state and warnings."""

    feature_names_in_: np.ndarray  # where the columns of X have names

    def _rows(self, X, y, sample_weight):
        """Distinct rows of valid input, as numbers of the rows of X, and their weights."""
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weights < 0).any():
            raise InputError(f"sample_weight is negative in row {(weights < 0).argmax()}; weights count rows")
        if not weights.any():
            raise InputError("sample_weight is zero in every row; give at least one row a weight")
        return distinct_rows(X, y, weights)

    def _fit_rows(self, model: Model, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Fit:
        """The fit to rows in the units of the model; warns if it has not settled."""
        key = int(check_random_state(self.random_state).randint(2**31 - 1))
        names = getattr(self, "feature_names_in_", None)
        found = self._learn(model, x, y, weights, key, None if names is None else names.tolist())
        if found.result != "finished":
            warnings.warn(found.explanation, ConvergenceWarning, stacklevel=3)
        return found

    def _predict(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new y, in the units of the model."""
        check_is_fitted(self)
        rows: Any = validate_data(self, X, dtype=np.float64, reset=False)
        mean, variance = self.fit_.predict(
            pad(self.units_.remove(rows)), variance=True, correct=self.correct_, num_samples=self.num_samples
        )
        return mean[: len(rows)].astype(np.float64), variance[: len(rows)].astype(np.float64)

    def _points(self, X, rows: np.ndarray) -> tuple[np.ndarray, Dataset]:
        """Locations of the coreset in the units of X, exactly if they are rows of it; and its other parts."""
        coreset = fit_rows(self.fit_)
        if coreset.indices is not None:
            return X[rows[np.asarray(coreset.indices)]], coreset
        return self.units_.restore(np.asarray(coreset.x, np.float64)), coreset


class CoresetClassifier(ClassifierMixin, _Estimator):
    """Bayesian classification from a coreset: logistic regression, softmax for more classes, or a network.

    Parameters
    ----------
    size : points of the coreset; by default two per parameter, between 20 and 500.
    hidden : sizes of the hidden layers of a network, such as (20,); None for a regression.
    intercept : whether there is a constant term.
    prior_scale : standard deviation of the normal prior on every coefficient (of standardised columns).
    standardise : whether columns are brought to mean 0 and deviation 1; if not, the prior has their units.
    construction : how the coreset is made; `coresetvi.BBPSVI` unless given.
    num_steps : steps of the fit; by default it stops by itself.
    num_samples : draws that predictions average over.
    random_state : int, RandomState or None.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    coreset_ : `(X, y, sample_weight)` in the units and with the labels of the data, for any `fit`.
    coef_, intercept_ : posterior mean of a regression's parameters in the units of X.
    fit_ : the `coresetvi.Fit`, whose coreset and parameters are in standardised units.
    units_ : centre and scale of the columns. correct_ : whether predictions are importance-corrected, which
    they are where Pareto's k-hat says that the weights can be trusted.

    >>> X = np.linspace(-3.0, 3.0, 60)[:, None]
    >>> classifier = CoresetClassifier(size=10, random_state=0).fit(X, np.where(X[:, 0] > 1, "yes", "no"))
    >>> classifier.predict([[-1.5], [2.5]]).tolist(), classifier.coreset_.X.shape
    (['no', 'yes'], (10, 1))
    """

    def fit(self, X, y, sample_weight=None):
        """Learn a coreset of the rows X, their labels y (of any type) and its posterior."""
        checked: Any = validate_data(self, X, y, dtype=np.float64)
        X, y = checked
        check_classification_targets(y)
        found, codes = np.unique(y, return_inverse=True)
        rows, weights = self._rows(X, codes, sample_weight)
        present, codes = np.unique(codes[rows], return_inverse=True)
        self.classes_ = found[present]
        if len(present) < 2:
            only = self.classes_.tolist()[0]
            raise InputError(f"y has only one class with weight, {only!r}; give rows of at least two")
        self.units_ = choose_units(X[rows], weights, self.standardise, self.intercept)
        fitted = self._fit_rows(self._model(len(present)), self.units_.remove(X[rows]), codes, weights)
        self.fit_ = dataclasses.replace(fitted, extra={"classes": self.classes_.tolist()})
        points, coreset = self._points(X, rows)
        self.coreset_ = WeightedPoints(
            points, self.classes_[np.asarray(coreset.y)], np.asarray(coreset.weights)
        )
        if (linear := self._linear()) is not None:
            self.coef_, self.intercept_ = linear
        return self

    def predict_proba(self, X):
        """Posterior predictive probability of every class, one column each in the order of `classes_`."""
        mean = self._predict(X)[0]
        if mean.ndim == 1:
            return np.column_stack([1.0 - mean, mean])
        return mean / mean.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X):
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def predict(self, X):
        """The likeliest class of every row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def _model(self, num_classes: int) -> Model:
        hidden, prior_scale = self._hidden(), self._prior_scale()
        if hidden is not None:
            return BayesianMLP(self.n_features_in_, hidden, num_classes, prior_scale=prior_scale)
        common: dict[str, Any] = {"intercept": bool(self.intercept), "prior_scale": prior_scale}
        if num_classes == 2:
            return LogisticRegression(self.n_features_in_, **common)
        return SoftmaxRegression(self.n_features_in_, num_classes, **common)


class CoresetRegressor(RegressorMixin, _Estimator):
    """Bayesian regression from a coreset: linear with normal noise, or a network.

    Parameters and attributes are those of `CoresetClassifier`, `feature_names_in_` and so on, but for
    `classes_`; y is standardised as the columns are. And two more:

    noise : standard deviation of y about its mean, in the units of y; None estimates it once, from the
    residuals of a ridge regression: too much for a network that explains more than a straight line.
    noise_ : what it was taken for.

    >>> import coresetvi as cvi
    >>> X = np.arange(40.0)[:, None]
    >>> y = 3.0 * X[:, 0] + 5.0 + np.tile([1.0, -1.0], 20)
    >>> regressor = CoresetRegressor(construction=cvi.SubsetLaplace(40), random_state=0).fit(X, y)
    >>> mean, deviation = regressor.predict([[20.0]], return_std=True)
    >>> bool(abs(mean[0] - 65.0) < 0.5), bool(1.0 < deviation[0] < 1.1)
    (True, True)
    """

    def __init__(
        self,
        size=None,
        *,
        hidden=None,
        intercept=True,
        prior_scale=1.0,
        noise=None,
        standardise=True,
        construction=None,
        num_steps=None,
        num_samples=NUM_DRAWS,
        random_state=None,
    ):
        super().__init__(
            size,
            hidden=hidden,
            intercept=intercept,
            prior_scale=prior_scale,
            standardise=standardise,
            construction=construction,
            num_steps=num_steps,
            num_samples=num_samples,
            random_state=random_state,
        )
        self.noise = noise

    def fit(self, X, y, sample_weight=None):
        """Learn a coreset of the rows X and values y, and its posterior."""
        checked: Any = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        X, y = checked[0], checked[1].astype(np.float64)
        rows, weights = self._rows(X, y, sample_weight)
        self.units_ = choose_units(X[rows], weights, self.standardise, self.intercept)
        self.target_units_ = choose_units(y[rows], weights, self.standardise, self.intercept)
        x, target = self.units_.remove(X[rows]), self.target_units_.remove(y[rows])
        model = self._model(x, target, weights)
        self._fit_rows(model, x, target, weights)
        self.noise_ = float(self.target_units_.scale * model.likelihood.noise)
        points, coreset = self._points(X, rows)
        if coreset.indices is None:
            labels = self.target_units_.restore(np.asarray(coreset.y, np.float64))
        else:
            labels = y[rows[np.asarray(coreset.indices)]]
        self.coreset_ = WeightedPoints(points, labels, np.asarray(coreset.weights))
        if (linear := self._linear()) is not None:
            scale = self.target_units_.scale
            self.coef_ = scale * linear[0][0]
            self.intercept_ = float(self.target_units_.centre + scale * linear[1][0])
        return self

    def predict(self, X, return_std=False):
        """Posterior predictive mean of y, and with `return_std` the standard deviation of a new y."""
        mean, variance = self._predict(X)
        mean = self.target_units_.restore(mean)
        return (mean, self.target_units_.scale * np.sqrt(variance)) if return_std else mean

    def _model(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Any:
        hidden, prior_scale = self._hidden(), self._prior_scale()
        if self.noise is None:
            design = np.column_stack([x, np.ones(len(x))]) if self.intercept else x
            noise = estimate_noise(design, y, weights, prior_scale)
        else:
            noise = float(self.noise) / float(self.target_units_.scale)
        if hidden is not None:
            return BayesianMLP(x.shape[1], hidden, None, noise=noise, prior_scale=prior_scale)
        return LinearRegression(
            x.shape[1], noise=noise, intercept=bool(self.intercept), prior_scale=prior_scale
        )
