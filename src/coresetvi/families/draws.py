"""`Draws`: draws of a posterior, their weights, and how far they can be trusted."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._compiler import quick_jit
from ..data.dataset import Dataset
from ..errors import InputError
from ..models.base import Model
from .importance import resample, usable
from .mixing import chain_measures

# A chain that has mixed stays below the first; an estimate needs about the second.
RHAT_LIMIT, FEWEST_EFFECTIVE = 1.01, 400
# Chains are split in two to be compared, and a variance needs two draws.
FEWEST_JUDGED = 4


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws of the posterior of `model` given `data` (a coreset, or all rows).

    `flat` has shape (chains, draws, dim) in the model's flat coordinates, `log_density` the logarithm of the
    density they were drawn from at each of them (up to a constant), `stats` what the sampler recorded about
    each, `about` what it recorded once. `log_weights`, if there are any, are normalised importance weights.

    >>> import coresetvi as cvi
    >>> data = cvi.Dataset([[-1.0], [1.0], [2.0]], [0, 1, 1], columns=["age"])
    >>> draws = cvi.sample(cvi.models.LogisticRegression(1), data, method="laplace", progress=False)
    >>> draws.flat.shape
    (4, 1000, 1)
    >>> [row["name"] for row in draws.summary()]
    ['coef[age]']
    """

    flat: np.ndarray
    model: Model
    data: Dataset
    method: str
    log_density: np.ndarray
    stats: dict[str, np.ndarray]
    about: dict[str, Any]
    log_weights: np.ndarray | None = None

    @property
    def params(self) -> PyTree:
        """The parameters as the pytree that the user thinks in, with leading axes (chains, draws)."""
        return params_of_draws(self.model, jnp.asarray(self.flat))

    @property
    def weights(self) -> np.ndarray:
        """Normalised weights, (chains, draws): all alike unless the draws were corrected."""
        if self.log_weights is None:
            return np.full(self.flat.shape[:2], 1.0 / (self.flat.shape[0] * self.flat.shape[1]))
        return np.exp(self.log_weights)

    @property
    def mean(self) -> np.ndarray:
        """Posterior mean of the flat parameters."""
        return np.einsum("cs,csd->d", self.weights, np.asarray(self.flat, np.float64))

    @property
    def covariance(self) -> np.ndarray:
        """Posterior covariance of the flat parameters."""
        centred = np.asarray(self.flat, np.float64) - self.mean
        return np.einsum("cs,csd,cse->de", self.weights, centred, centred)

    @property
    def from_chains(self) -> bool:
        """Whether draws of one chain follow each other, so that chains can be compared."""
        return "divergent" in self.stats or bool(self.about.get("kept"))

    def named(self) -> dict[str, np.ndarray]:
        """Every parameter of the user's pytree by its path, each of shape (chains, draws, ...)."""
        leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(self.params, eqx.is_array))[0]
        return {path_name(path): np.asarray(leaf) for path, leaf in leaves}

    def summary(self) -> list[dict[str, Any]]:
        """One row per scalar parameter: mean, sd, 5 % and 95 % quantiles, and of chains r_hat and ess."""
        weights = self.weights.ravel()
        named = self.named()
        columns = [one for name in named for one in scalars(name, named[name], self.data.columns)]
        measures = self._measures(np.stack([column for _, column in columns], axis=-1))
        rows = []
        for index, (label, column) in enumerate(columns):
            flat = column.ravel().astype(np.float64)
            mean = float(weights @ flat)
            low, high = weighted_quantiles(flat, weights, (0.05, 0.95))
            row: dict[str, Any] = {
                "name": label,
                "mean": mean,
                "sd": float(np.sqrt(weights @ (flat - mean) ** 2)),
            }
            mixing = {name: float(values[index]) for name, values in measures.items()}
            rows.append(row | {"5%": low, "95%": high} | mixing)
        return rows

    def mixing(self) -> dict[str, float]:
        """The worst R-hat and bulk ESS over the flat parameters, and the share of divergent transitions."""
        measures = self._measures(self.flat)
        if not measures:
            return {}
        # numpy's, which do not pass over a NaN: a parameter that never moved has no R-hat.
        worst = {name: np.max if name == "r_hat" else np.min for name in measures}
        found = {name: float(worst[name](values)) for name, values in measures.items()}
        return found | {"divergent": float(np.mean(self.stats.get("divergent", 0.0)))}

    def _measures(self, columns: np.ndarray) -> dict[str, np.ndarray]:
        """Rank-normalised R-hat and effective sample sizes of every column, for draws from chains."""
        if not self.from_chains:
            return {}
        measures = np.full((3, columns.shape[-1]), np.nan)
        if columns.shape[1] >= FEWEST_JUDGED:
            measures = np.stack(chain_measures(columns))
        return dict(zip(("r_hat", "ess_bulk", "ess_tail"), measures, strict=True))

    @property
    def warnings(self) -> list[str]:
        """Reasons to doubt these draws, one sentence each; an empty list if there are none."""
        found = []
        mixing = self.mixing()
        if mixing and not mixing["r_hat"] <= RHAT_LIMIT:
            found.append(
                f"The chains have not mixed (R-hat {mixing['r_hat']:.3f}, above {RHAT_LIMIT}); "
                "draw longer chains, or doubt that the posterior has one mode."
            )
        elif mixing and mixing["ess_bulk"] < FEWEST_EFFECTIVE:
            found.append(
                f"Some parameter has only {mixing['ess_bulk']:.0f} effective draws; take more samples."
            )
        if mixing and mixing["divergent"] > 0:
            found.append(
                f"{mixing['divergent']:.1%} of the transitions diverged; reparametrise the model, "
                "or trust these draws less where it is curved."
            )
        corrected = "drawn" in self.about
        for quality, remedy in (
            (self.about["drawn"] if corrected else self.about, "use method='smc' or 'nuts'."),
            (self.about if corrected else {}, "use a larger coreset."),
        ):
            # Beside these, `about` holds words and lists.
            judged = {name: quality[name] for name in ("ess", "khat", "khat_threshold") if name in quality}
            if "khat" in quality and not usable(judged):
                found.append(
                    f"Importance weights {'of the data ' if quality is self.about and corrected else ''}"
                    f"are too uneven (k-hat {quality['khat']:.2f}, above {quality['khat_threshold']:.2f}); "
                    + remedy
                )
        return found

    def resample(self, key: int | jax.Array = 0) -> "Draws":
        """As many draws without weights: each is repeated in proportion to its weight."""
        if self.log_weights is None:
            return self
        key = jax.random.key(key) if isinstance(key, int) else key
        chains, draws = self.flat.shape[:2]
        picked = np.asarray(resample(key, jnp.asarray(self.weights.ravel()), chains * draws))

        def choose(values: np.ndarray) -> np.ndarray:
            return values.reshape(-1, *values.shape[2:])[picked].reshape(values.shape)

        return dataclasses.replace(
            self,
            flat=choose(self.flat),
            log_density=choose(self.log_density + self.log_weights),
            stats={},
            log_weights=None,
        )

    def to_arviz(self) -> Any:
        """An ArviZ data set (InferenceData or DataTree, as the installed ArviZ has it)."""
        try:
            import arviz
        except ImportError as error:
            raise InputError('to_arviz needs ArviZ; pip install "coresetvi[arviz]".') from error
        plain = self.resample()
        names = {"divergent": "diverging"}
        stats = {names.get(name, name): values for name, values in plain.stats.items()}
        groups: dict[str, Any] = {
            "posterior": plain.named(),
            "sample_stats": stats | {"lp": plain.log_density},
        }
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict(groups)
        return arviz.from_dict(**groups)


@quick_jit
def params_of_draws(model: Model, flat: jax.Array) -> PyTree:
    """The parameters of draws (chains, draws, dim)."""
    return eqx.filter_vmap(eqx.filter_vmap(model.params))(flat)


def path_name(path: Iterable[object]) -> str:
    """A pytree path as a name: `layers.0.weight`, `coef`; a lone array is `theta`."""
    parts = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
    return ".".join(parts) or "theta"


def scalars(name: str, values: np.ndarray, columns: tuple[str, ...] | None) -> list[tuple[str, np.ndarray]]:
    """The scalar parameters in an array of shape (chains, draws, ...), each with a name."""
    shape = values.shape[2:]
    # Coefficients of a regression go by the columns they belong to.
    named = columns is not None and name == "coef" and shape[:1] == (len(columns),)
    found = []
    for index in np.ndindex(shape):
        words = [columns[index[0]], *map(str, index[1:])] if named and columns else [*map(str, index)]
        found.append((f"{name}[{', '.join(words)}]" if index else name, values[(..., *index)]))
    return found


def weighted_quantiles(values: np.ndarray, weights: np.ndarray, levels: tuple[float, ...]) -> list[float]:
    """Quantiles of weighted draws.

    >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.4, 0.4]), (0.5,))
    [1.75]
    """
    order = np.argsort(values)
    # A draw stands for the middle of its step of the distribution function.
    middles = np.cumsum(weights[order]) - 0.5 * weights[order]
    return [float(np.interp(level, middles, values[order])) for level in levels]
