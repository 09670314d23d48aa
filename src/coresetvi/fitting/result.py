"""`Fit`: what a fit leaves behind. Predicts, scores, saves; never changes."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._checks import instance, whole_number
from .._compiler import quick_jit
from .._registry import decode, encode, is_decodable
from ..constructions.base import Construction
from ..data.dataset import Coreset, Dataset
from ..data.rows import Rows
from ..errors import ArtefactError, InputError
from ..families.base import Family, Psi
from ..families.draws import Draws
from ..families.importance import host_ess, host_weights, khat_threshold, log_weights, pareto_khat
from ..models.base import Model
from ..models.prediction import align, means_by_draw, predictive_moments, scores
from ..models.row_checks import check_rows
from ..models.sums import log_likelihood_rises
from ..storage import PathLike
from . import artefact, own_draws
from .history import History
from .outcome import Ending, decide_result, explain
from .steps import Run

NUM_DRAWS = 1000


@dataclasses.dataclass(frozen=True)
class Fit:
    """A coreset, the posterior r fitted to it, and how they came about.

    `coreset` is a weighted data set, `psi` the parameters of r in `family`, `history` the per-step records by
    name, `result` one of finished | imprecise | untested | unmixed | step_limit | time_limit | interrupted |
    non_finite | inner_not_converged (or running, while one is watched), `seconds` the time to compile and to
    run, `about` provenance (and `passes`: how often the rows were read, `kl`: the distance from the posterior
    of all rows that the last of these found, in nats), `extra` what `save` was told to remember.

    >>> import coresetvi as cvi
    >>> train, test = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> fitted = cvi.fit(cvi.SubsetLaplace(50), cvi.models.LogisticRegression(2), train, key=0)
    >>> fitted.predict(test.x[:3]).shape, sorted(fitted.evaluate(test))
    ((3,), ['accuracy', 'brier', 'ece', 'nll'])
    """

    coreset: Coreset
    model: Model
    family: Family
    psi: Psi
    construction: Construction | None
    history: dict[str, np.ndarray]
    result: str
    key: PRNGKeyArray
    seconds: dict[str, float]
    about: dict[str, Any]
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    # The fits that led to this one, first first, if a driver such as `prune` made it; they are not saved.
    earlier: tuple["Fit", ...] = ()

    @property
    def explanation(self) -> str:
        """`result` as a sentence."""
        return explain(self.result, self.history, self.about.get("kl"))

    def draws(self, num_samples: int = NUM_DRAWS, *, key: PRNGKeyArray | None = None) -> tuple[Array, Array]:
        """Independent draws from r, (S, d), and their log importance weights (coreset posterior over r).

        Where Markov chains made the posterior, these are draws of it that they left, at most as many as there
        are, and all weights are alike.
        """
        thetas, value, rises = self._relative_draws(num_samples, key)
        return thetas, value + rises

    def _relative_draws(self, num_samples: int, key: PRNGKeyArray | None = None):
        """Draws, and their log-weights as a common value and what each has above it.

        Only the latter matters for normalised weights, and float32 has digits for it only while it stands
        alone.
        """
        num_samples = whole_number("num_samples", num_samples)
        key = jax.random.fold_in(self.key, 2**31 - 2) if key is None else key
        kept = own_draws.kept_draws(self)
        if kept is not None:
            thetas = own_draws.some_of(kept, num_samples, key)
            return thetas, jnp.zeros((), thetas.dtype), jnp.zeros(len(thetas), thetas.dtype)
        return self.normal_draws(num_samples, key)

    def normal_draws(self, num_samples: int, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """Draws of r, or of the normal around what chains left, and relative log-weights as above."""
        return _draws(self.model, self.family, self.psi, self.coreset, key, num_samples)

    def predict(
        self,
        x: object,
        *,
        samples: bool = False,
        variance: bool = False,
        correct: bool | None = None,
        num_samples: int = NUM_DRAWS,
        key: PRNGKeyArray | None = None,
        draws: Draws | None = None,
    ) -> Any:
        """Posterior predictive mean of y at `x`, importance-corrected: sum_s w_s E[y | x, theta_s].

        P(y = 1) of shape (n,) for two classes, class probabilities (n, C) for more, the mean (n,) of a
        regression, the rate of a Poisson model. `variance=True` returns (mean, variance), the variance being
        that of a new y; `samples=True` returns the per-draw means (S, n, ...) and the weights (S,).
        `correct=False` weighs all draws of r alike, which is what plain variational inference (`FullVI`,
        `RandomSubset`) does by itself, and what helps where `reliability` says that few draws count.
        `draws` (what `coresetvi.sample` or `coresetvi.correct` returned) take the place of draws of r.
        """
        rows = self._rows(x)
        thetas, weights = self._weighted_draws(num_samples, key, correct, draws)
        if samples:
            return np.asarray(means_by_draw(self.model, thetas, rows)), np.asarray(weights)
        mean, spread = predictive_moments(self.model, thetas, weights, rows)
        return (mean, spread) if variance else mean

    def evaluate(
        self,
        data: Rows,
        *,
        correct: bool | None = None,
        num_samples: int = NUM_DRAWS,
        draws: Draws | None = None,
    ) -> dict[str, float]:
        """Held-out scores: `nll`, mean negative log predictive density, and `accuracy` or `rmse`.

        Rows that are not in memory (`coresetvi.scan`) are scored in one pass.
        """
        instance("data", data, Rows, "a Dataset(x, y) or what coresetvi.scan returned")
        data = check_rows(self.model, align(data, self.coreset), fitting=False)
        thetas, weights = self._weighted_draws(num_samples, None, correct, draws)
        return scores(self.model, thetas, weights, data)

    def _weighted_draws(
        self, num_samples: int, key: PRNGKeyArray | None, correct: bool | None, draws: Draws | None
    ) -> tuple[Array, Array]:
        """Draws (S, d) to predict with, and their normalised weights."""
        if draws is None:
            thetas, _, log_w = self._relative_draws(num_samples, key)
            # A draw where the model breaks down tells nothing, and must not take the others with it.
            defined = ~np.isnan(log_w)
            if not np.any(defined):
                raise InputError(
                    "The model's density is NaN wherever this fit would predict with it; "
                    "give its parameters priors that keep them where it is defined."
                )
            if not np.all(defined):
                thetas, log_w = thetas[defined], log_w[defined]
            if self._corrects(correct):
                weights = host_weights(np.asarray(log_w))
            else:
                weights = np.full(len(thetas), 1.0 / len(thetas))
            return thetas, jnp.asarray(weights, thetas.dtype)
        instance("draws", draws, Draws, "what coresetvi.sample(fit) returned")
        if draws.flat.shape[-1] != self.model.dim:
            raise InputError(
                f"draws have {draws.flat.shape[-1]} parameters, but the model of this fit has "
                f"{self.model.dim}; draw them from this fit or its data."
            )
        return jnp.asarray(draws.flat.reshape(-1, self.model.dim)), jnp.asarray(draws.weights.ravel())

    def reliability(self, num_samples: int = NUM_DRAWS) -> dict[str, int | float]:
        """How well r covers the coreset posterior: S, normalised ESS, Pareto k-hat and its threshold.

        Of draws that chains left: their number, the share that counts, and whether chains agree, `r_hat`.
        """
        kept = own_draws.kept_draws(self)
        if kept is not None:
            return own_draws.reliability_of(self, kept)
        _, _, log_w = self._relative_draws(num_samples)
        return {
            "num_samples": num_samples,
            "ess": host_ess(host_weights(np.asarray(log_w))),
            "khat": pareto_khat(log_w),
            "khat_threshold": khat_threshold(num_samples),
        }

    def save(
        self, path: PathLike, *, overwrite: bool = False, extra: dict[str, object] | None = None
    ) -> None:
        """Write the fit to a directory that never executes code when opened; `coresetvi.load` reads it.

        `extra` is remembered as it is (JSON: names, numbers, lists) and comes back as `Fit.extra`.
        """
        arrays: dict[str, object] = {f"psi.{name}": leaf for name, leaf in self.psi.items()}
        for name in ("x", "y", "weights", "indices"):
            arrays[f"coreset.{name}"] = getattr(self.coreset, name)
        arrays |= {f"history.{name}": values for name, values in self.history.items()}
        arrays["key"] = jax.random.key_data(self.key)
        document = {
            "model": encode(self.model),
            "family": encode(self.family),
            "construction": None if self.construction is None else encode(self.construction),
            "columns": self.coreset.columns,
            "target": self.coreset.target,
            "fixed": self.coreset.fixed,
            "bounds": self.coreset.bounds,
            "result": self.result,
            "seconds": self.seconds,
            "about": self.about,
            "extra": self.extra if extra is None else extra,
        }
        artefact.write(path, arrays, document, kind="fit", overwrite=overwrite)

    def _corrects(self, correct: bool | None) -> bool:
        if correct is not None:
            return correct
        return self.construction is None or self.construction.corrects

    def _rows(self, x: object) -> Array:
        """Inputs as an array, refused if they do not fit the coreset's."""
        if isinstance(x, Rows) and not isinstance(x, Dataset):
            raise InputError(
                "predict returns what it says of all rows at once, and x is not in memory; "
                "predict block by block: for some in rows.batches(): fit.predict(some)"
            )
        rows = align(x if isinstance(x, Dataset) else Dataset(x), self.coreset)
        self.model.check_x(rows.x, self.coreset.columns)
        return rows.x


def collect(run: Run, trial: int, history: History, ending: Ending, seconds: dict[str, float]) -> Fit:
    """The `Fit` of one trial of a run."""
    plan, records = run.plan, history.trial(trial)
    coreset, psi = plan.extract(run.trial(trial))
    nearest = plan.nearest(run.trial(trial))
    passes = {"passes": run.surveys + len(history) + plan.last_passes} if plan.by_passes else {}
    tested = {} if nearest is None or not math.isfinite(nearest) else {"kl": nearest}
    about = {
        "rows": plan.data.num_rows,
        "total_weight": float(plan.data.total_weight),
        "steps": len(history),
        **passes,
        **tested,
        **artefact.provenance(),
    }
    return Fit(
        coreset=coreset,
        model=plan.model,
        family=plan.family,
        psi=psi,
        construction=plan.construction,
        history=records,
        result=decide_result(records, ending, nearest),
        key=run.keys[trial],
        seconds=seconds,
        about=about,
    )


def load(path: PathLike, *, model: Model | None = None) -> Fit:
    """Read a fit that `Fit.save` wrote. Models made of user functions must be passed again as `model`.

    >>> import tempfile
    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> fitted = cvi.fit(cvi.SubsetLaplace(50), cvi.models.LogisticRegression(2), train, key=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/fitted")
    ...     len(load(f"{folder}/fitted").coreset)
    50
    """
    arrays, document = artefact.read(path, kind="fit")
    if model is None:
        if not is_decodable(document["model"]):
            raise ArtefactError(
                f"{path} was fitted with a model of user functions, which no file can hold; "
                "pass the same one as load(path, model=...)."
            )
        model = decode(document["model"])
    assert model is not None

    def pick(prefix: str) -> dict[str, np.ndarray]:
        return {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}

    construction, part = document["construction"], pick("coreset.")
    columns = document["columns"]
    return Fit(
        coreset=Dataset(
            part["x"],
            part.get("y"),
            part["weights"],
            columns=columns,
            target=document["target"],
            indices=part.get("indices"),
            fixed=document.get("fixed"),
            bounds=tuple((column, low, high) for column, low, high in document.get("bounds", ())),
        ),
        model=model,
        family=decode(document["family"]),
        psi={name: jnp.asarray(leaf) for name, leaf in pick("psi.").items()},
        construction=decode(construction) if is_decodable(construction) else None,
        history=pick("history."),
        result=document["result"],
        key=jax.random.wrap_key_data(jnp.asarray(arrays["key"])),
        seconds=document["seconds"],
        about=document["about"],
        extra=document.get("extra", {}),
    )


@quick_jit
def _draws(model, family, psi, coreset, key, num_samples):
    noise = jax.random.normal(key, (num_samples, family.noise_dim(model.dim)))
    thetas, proposal = jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)
    value, core = log_likelihood_rises(model, thetas, jnp.mean(thetas, axis=0), coreset)
    return thetas, value, log_weights(core, jax.vmap(model.log_prior)(thetas), proposal)
