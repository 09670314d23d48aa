"""A coreset posterior as a PyMC model."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.frames import column_names, optional
from ..fitting.result import Fit
from ..models.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from .rows import class_names, fit_rows, regression_of

if TYPE_CHECKING:
    import pymc as pymc_package

# The label's distribution given the linear predictor, (n,) or (n, C): one line per likelihood.
RESPONSES: dict[type, Callable[[Any, Any, Any], Any]] = {
    Bernoulli: lambda pm, likelihood, output: pm.Bernoulli.dist(logit_p=output),
    Categorical: lambda pm, likelihood, output: pm.Categorical.dist(logit_p=output),
    Gaussian: lambda pm, likelihood, output: pm.Normal.dist(output, likelihood.noise),
    Poisson: lambda pm, likelihood, output: pm.Poisson.dist(pm.math.exp(output)),
}


def pymc(fit: Fit) -> "pymc_package.Model":
    """A `pymc.Model` of a regression whose posterior is that of the coreset; `pymc.sample` draws from it.

    Its variables are those of `model.params` ("coef", "intercept"); the weighted log-likelihood is the
    potential "obs". Dimensions "column" and, for several classes, "class" have the names that the fit knows.

        with export.pymc(fit):
            draws = pymc.sample()

    >>> import coresetvi as cvi
    >>> data = cvi.Dataset([[-1.0], [1.0], [2.0]], [0, 1, 1])
    >>> fit = cvi.fit(cvi.SubsetLaplace(2), cvi.models.LogisticRegression(1), data, key=0)
    >>> [variable.name for variable in pymc(fit).free_RVs]
    ['coef']
    """
    model = regression_of(fit, "PyMC", RESPONSES)
    pm = optional("pymc", "export.pymc")
    rows, likelihood = fit_rows(fit), model.likelihood
    x, y, weights = rows.to_numpy()
    coords: dict[str, Sequence[object]] = {"column": column_names(rows.columns, rows.dim)}
    outputs = () if likelihood.output_size == 1 else ("class",)
    if outputs:
        coords["class"] = class_names(fit) or list(range(likelihood.output_size))
    with pm.Model(coords=coords) as exported:
        coef = pm.Normal("coef", 0.0, model.prior_scale, dims=("column", *outputs))
        output = pm.math.dot(x.astype(np.float64), coef)
        if model.intercept:
            output = output + pm.Normal("intercept", 0.0, model.prior_scale, dims=outputs)
        log_probabilities = pm.logp(RESPONSES[type(likelihood)](pm, likelihood, output), y)
        pm.Potential("obs", pm.math.sum(weights.astype(np.float64) * log_probabilities))
    return exported
