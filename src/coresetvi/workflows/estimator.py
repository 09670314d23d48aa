"""What estimators in the manner of scikit-learn share: from checked rows to a `Fit`, without scikit-learn."""

import dataclasses

import equinox as eqx
import jax
import numpy as np

from .._checks import instance, whole_number
from ..constructions.base import Construction, with_size
from ..constructions.bbpsvi import BBPSVI
from ..constructions.defaults import default_size
from ..data.dataset import Dataset
from ..data.standardise import Units, pad
from ..errors import InputError
from ..families.base import Family, Psi
from ..families.importance import usable
from ..fitting.loop import fit as fit_coreset
from ..fitting.result import NUM_DRAWS, Fit
from ..models.base import Model


@eqx.filter_jit
def posterior_mean(family: Family, psi: Psi) -> jax.Array:
    """Mean of r; compiled, so that the covariance is never made."""
    return family.moments(psi)[0]


class CoresetEstimator:
    """Settings of an estimator, and what becomes of them: a model's parts, a construction, a fit."""

    fit_: Fit
    units_: Units
    n_features_in_: int

    def __init__(
        self,
        size=None,
        *,
        hidden=None,
        intercept=True,
        prior_scale=1.0,
        standardise=True,
        construction=None,
        num_steps=None,
        num_samples=NUM_DRAWS,
        random_state=None,
    ):
        self.size = size
        self.hidden = hidden
        self.intercept = intercept
        self.prior_scale = prior_scale
        self.standardise = standardise
        self.construction = construction
        self.num_steps = num_steps
        self.num_samples = num_samples
        self.random_state = random_state

    def _prior_scale(self) -> float:
        if not float(self.prior_scale) > 0:
            raise InputError(f"prior_scale must be positive, not {self.prior_scale}")
        return float(self.prior_scale)

    def _hidden(self) -> tuple[int, ...] | None:
        if self.hidden is None:
            return None
        if not self.intercept:
            raise InputError("intercept=False is not for networks, whose layers all have one; leave it out")
        if not isinstance(self.hidden, tuple | list):
            raise InputError(f"hidden must be a tuple of layer sizes such as (20,), not {self.hidden!r}")
        return tuple(whole_number("hidden", size) for size in self.hidden)

    def _construction(self, model: Model, available: int) -> Construction:
        size, construction = self.size, self.construction
        if construction is None:
            construction = BBPSVI(default_size(model, available) if size is None else size)
        else:
            instance("construction", construction, Construction, "a construction such as BBPSVI(size=40)")
            if size is not None:
                if not hasattr(construction, "size"):
                    raise InputError(f"size is not for {type(construction).__name__}; leave it out")
                construction = with_size(construction, size)
        points = getattr(construction, "size", None) or 0
        if points > available and getattr(construction, "init", "subset") != "noise":
            raise InputError(
                f"size is {points}, but X has only {available} different rows with weight; "
                "choose a smaller one"
            )
        return construction

    def _learn(
        self,
        model: Model,
        x: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        key: int,
        columns: list[str] | None,
    ) -> Fit:
        """The fit to rows in the units of the model, and whether its importance weights can be trusted."""
        construction = self._construction(model, len(x))
        data = Dataset(pad(x), pad(y).astype(y.dtype), pad(weights), columns=columns)
        found = fit_coreset(
            construction, model, data, key=key, num_steps=self.num_steps, progress=False, throw=True
        )
        self.fit_ = dataclasses.replace(found, about={**found.about, "rows": len(x)})
        # Importance weights that rest on a few draws do more harm than good.
        self.correct_ = construction.corrects and usable(self.fit_.reliability(self.num_samples))
        return self.fit_

    def _linear(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean of the coefficients, one row per output, and of the intercepts, in the units of X."""
        for name in ("coef_", "intercept_"):
            vars(self).pop(name, None)
        if self.hidden is not None:
            return None
        mean = posterior_mean(self.fit_.family, self.fit_.psi)
        params = {name: np.asarray(leaf, np.float64) for name, leaf in self.fit_.model.params(mean).items()}
        coef = params["coef"].reshape(self.n_features_in_, -1).T / self.units_.scale
        return coef, params.get("intercept", np.zeros(len(coef))) - coef @ self.units_.centre
