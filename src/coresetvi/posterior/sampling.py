"""`sample`: draws of the posterior given a coreset, or given all of the data, by the method of choice."""

import time
from collections.abc import Callable
from typing import NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._checks import short, whole_number
from .._compiler import quick_jit
from .._keys import one_key
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from ..families.base import Family, Psi, need_density
from ..families.draws import Draws
from ..families.gaussian import FullRank, MeanField
from ..families.importance import host_ess, khat_threshold, log_weights, resample, smoothed_weights
from ..families.initial import start_family
from ..fitting import own_draws
from ..fitting.compilation import make_room
from ..fitting.result import Fit
from ..inner.mode import fit_laplace
from ..models.base import Model
from ..models.log_joint import LogJoint
from ..models.propriety import need_proper
from ..models.row_checks import check_points
from .chains import DENSE_DIM, Whitening, run_chains
from .smc import draw_family, temper

# Proposals of r for every draw that importance sampling keeps.
PROPOSALS = 5
FRAME_DRAWS = 512
NUM_WARMUP = 1000
LEAST_WIDTH = 1e-6


class Request(NamedTuple):
    """What to draw from, where to begin, and how much is wanted."""

    model: Model
    data: Dataset
    family: Family
    psi: Psi
    # Where each chain begins, in the coordinates of `frame`; None: anywhere that r says.
    starts: Array | None
    # Draws (chains, draws, d) that a fit has of its posterior already; None if that is a normal.
    kept: np.ndarray | None
    num_samples: int
    num_chains: int
    num_warmup: int
    key: PRNGKeyArray
    progress: bool | None

    @property
    def log_joint(self) -> LogJoint:
        return LogJoint(self.model, self.data, self.psi["mean"])

    def shaped(self, values: Array | np.ndarray) -> np.ndarray:
        """Draws in a row as (chains, draws, ...)."""
        return np.asarray(values).reshape(self.num_chains, self.num_samples, *np.shape(values)[1:])

    def proposals(self, number: int) -> tuple[Array, Array]:
        """Draws of r and their log-density."""
        return draw_family(self.family, self.psi, self.key, number)


@overload
def sample(
    target: Fit | tuple[Model, Dataset],
    *,
    method: str = ...,
    num_samples: int = ...,
    num_chains: int = ...,
    num_warmup: int = ...,
    key: int | PRNGKeyArray | None = ...,
    progress: bool | None = ...,
) -> Draws: ...
@overload
def sample(
    target: Model,
    data: Dataset,
    *,
    method: str = ...,
    num_samples: int = ...,
    num_chains: int = ...,
    num_warmup: int = ...,
    key: int | PRNGKeyArray | None = ...,
    progress: bool | None = ...,
) -> Draws: ...
def sample(
    target: Fit | Model | tuple[Model, Dataset],
    data: Rows | None = None,
    *,
    method: str = "nuts",
    num_samples: int = 1000,
    num_chains: int = 4,
    num_warmup: int = 1000,
    key: int | PRNGKeyArray | None = None,
    progress: bool | None = None,
) -> Draws:
    """Draws of the coreset posterior of a fit, or of the posterior of a model given data.

    `sample(fit)` draws given the fit's coreset, `sample(model, data)` given all of the data, with the same
    samplers. `method` is one of

    - "nuts", "hmc": Markov chains, adapted over `num_warmup` transitions before they count;
    - "importance": draws of r, resampled by their Pareto-smoothed importance weights;
    - "smc": draws of r, moved to the posterior through tempered densities; use it when k-hat is too large;
    - "variational": draws of r as they are;
    - "laplace": draws of the normal at the posterior's mode;
    - "chains": draws that chains inside the fit have left, which "importance" and "variational" are as well
      for such a fit.

    For a model with data, r is Laplace's approximation. The key of a fit follows from the fit's own; that of
    a model with data is 0, unless given.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=100, dim=2)
    >>> draws = sample(cvi.models.LogisticRegression(2), train, num_samples=50, num_chains=2)
    >>> draws.flat.shape, draws.params["coef"].shape
    ((2, 50, 2), (2, 50, 2))
    """
    if method not in SAMPLERS:
        raise InputError(f"method must be one of {', '.join(SAMPLERS)}, not {short(method)}.")
    num_samples = whole_number("num_samples", num_samples)
    num_chains = whole_number("num_chains", num_chains)
    num_warmup = whole_number("num_warmup", num_warmup, 0)
    make_room()
    started = time.perf_counter()
    counts = (num_samples, num_chains, num_warmup)
    request = prepare(target, data, method, counts, key, progress)
    flat, log_density, stats, about = SAMPLERS[method](request)
    if not np.all(np.isfinite(flat)):
        raise InputError(f"Draws by {method} turned non-finite; the model's density does at some parameters.")
    if undefined := float(np.mean(np.isnan(log_density))):
        raise InputError(
            f"{undefined:.0%} of the draws by {method} are where the model's density is NaN; "
            "give its parameters priors that keep them where it is defined."
        )
    about |= {"warmup": num_warmup} if method in CHAINS else {}
    about["seconds"] = time.perf_counter() - started
    return Draws(flat, request.model, request.data, method, log_density, stats, about)


def chains_from(
    fit: Fit, starts: np.ndarray, num_samples: int, key: PRNGKeyArray, progress: bool | None
) -> Draws:
    """NUTS on the coreset of a fit, with one chain from each of `starts` (chains, dim)."""
    request = prepare(fit, None, "nuts", (num_samples, len(starts), NUM_WARMUP), key, progress)
    places = frame_of(request).into(jnp.asarray(starts, request.psi["mean"].dtype))
    flat, log_density, stats, about = SAMPLERS["nuts"](request._replace(starts=places))
    return Draws(flat, fit.model, fit.coreset, "nuts", log_density, stats, about)


def prepare(
    target: object,
    data: object,
    method: str,
    counts: tuple[int, int, int],
    key: object,
    progress: bool | None,
) -> Request:
    """The request for a fit, or for a model with data."""
    if isinstance(target, Fit):
        if data is not None:
            raise InputError("sample(fit) takes no data; for all rows write sample(fit.model, data).")
        if method != "variational":  # all others begin where r says, or weigh its draws
            need_density(target.family, f"sample by {method}")
            need_proper(target.model, target.coreset)
        root = jax.random.fold_in(target.key, 2**31 - 3) if key is None else one_key(key)
        model, family, psi = target.model, target.family, target.psi
        kept = own_draws.kept_draws(target)
        request = Request(model, target.coreset, family, psi, None, kept, *counts, root, progress)
        if kept is None or method not in CHAINS:
            return request
        # Chains that begin at draws of other chains have nothing to find.
        starts = frame_of(request).into(own_draws.some_of(kept, counts[1], root))
        return request._replace(starts=starts) if len(starts) == counts[1] else request
    if isinstance(target, tuple) and len(target) == 2 and data is None:
        target, data = target
    if isinstance(data, Rows) and not isinstance(data, Dataset):
        raise InputError(
            "sample(model, data) needs all rows in memory; fit a coreset to them and draw from that: "
            "draws = sample(fit(BBPSVI(100), model, rows, key=0)), then correct(draws, rows)."
        )
    if not isinstance(target, Model) or not isinstance(data, Dataset):
        raise InputError(
            f"sample takes a Fit, or a model and a Dataset, not {short(target)}"
            + ("." if data is None else f" and {short(data)}.")
        )
    data = check_points(target, data)
    need_proper(target, data)
    root = one_key(0 if key is None else key)
    start_key, root = jax.random.split(root)
    # Beyond that the curvature of all pairs of parameters is dear, and where there are many parameters there
    # are often many modes: chains then begin apart from one another.
    few = target.dim <= DENSE_DIM
    family = FullRank() if few else MeanField()
    psi = start_family(family, target, data, start_key)
    starts = None
    if few or method not in CHAINS:
        # Chains only start there, and adapt to what they find.
        psi = at_mode(family, target, data, psi, start_key, insist=method not in CHAINS)
    else:
        keys = jax.random.split(start_key, counts[1])
        starts = (jax.vmap(target.start)(keys) - psi["mean"]) * jnp.exp(-psi["log_scale"])
        starts += 0.1 * jax.random.normal(start_key, starts.shape)
    return Request(target, data, family, psi, starts, None, *counts, root, progress)


def at_mode(
    family: Family, model: Model, data: Dataset, psi: Psi, key: PRNGKeyArray, *, insist: bool = True
) -> Psi:
    """Laplace's approximation, searched from `psi`; with `insist`, an error if there is no mode."""
    psi, info = fit_laplace(family, model, data, psi, key)
    if insist and not bool(info.accepted):
        raise InputError("Laplace's approximation found no proper mode of this posterior; use method='nuts'.")
    return psi


def frame_of(request: Request) -> Whitening:
    """Coordinates in which r is N(0, I), or all but its correlations is."""
    center = request.psi["mean"]
    if center.shape[0] <= DENSE_DIM:
        covariance = np.asarray(quick_jit(request.family.moments)(request.psi)[1], np.float64)
        scale = np.sqrt(np.diag(covariance))
        # Rounded to float32, nearly collinear directions may be left with no width at all.
        correlation = covariance / np.outer(scale, scale) + LEAST_WIDTH * np.eye(len(scale))
        return Whitening(center, jnp.asarray(scale[:, None] * np.linalg.cholesky(correlation), center.dtype))
    # Draws say how wide r is without asking for a matrix of all pairs.
    return Whitening(center, jnp.std(request.proposals(FRAME_DRAWS)[0], axis=0))


def by_chains(method: str) -> Callable[[Request], tuple]:
    """A sampler that runs Markov chains."""

    def draw(request: Request):
        start_key, key = jax.random.split(request.key)
        return run_chains(
            method,
            request.log_joint,
            frame_of(request),
            start_key if request.starts is None else request.starts,
            key,
            num_chains=request.num_chains,
            num_warmup=request.num_warmup,
            num_samples=request.num_samples,
            progress=request.progress,
        )

    return draw


def by_importance(request: Request) -> tuple:
    """Draws of r, drawn anew by their smoothed importance weights."""
    if request.kept is not None:
        return by_kept_draws(request)
    wanted = request.num_chains * request.num_samples
    thetas, proposal = request.proposals(PROPOSALS * wanted)
    joint = request.log_joint.of_draws(thetas)
    prior = jnp.zeros_like(joint)  # already in the log-joint
    log_w, khat = smoothed_weights(log_weights(joint, prior, proposal))
    weights = np.exp(log_w)
    picked = np.asarray(resample(jax.random.fold_in(request.key, 1), jnp.asarray(weights), wanted))
    about = {
        "proposals": len(weights),
        "ess": host_ess(weights),
        "khat": khat,
        "khat_threshold": khat_threshold(len(weights)),
    }
    thetas, joint = np.asarray(thetas)[picked], np.asarray(joint)[picked]
    return request.shaped(thetas), request.shaped(joint), {}, about


def by_tempering(request: Request) -> tuple:
    """Draws of r, led to the posterior through tempered densities."""
    wanted = request.num_chains * request.num_samples
    particles, log_density, about = temper(
        request.log_joint, request.family, request.psi, wanted, request.key, progress=request.progress
    )
    return request.shaped(particles), request.shaped(log_density), {}, about


def by_kept_draws(request: Request) -> tuple:
    """The draws that chains left in the fit, drawn anew if more are wanted than there are."""
    if request.kept is None:
        raise InputError("This fit has no chains inside, so there are no draws of theirs; use method='nuts'.")
    wanted = request.num_chains * request.num_samples
    thetas = own_draws.some_of(request.kept, wanted, request.key)
    thetas = jnp.asarray(np.resize(np.asarray(thetas), (wanted, thetas.shape[1])))
    return request.shaped(thetas), request.shaped(request.log_joint.of_draws(thetas)), {}, {}


def by_variation(request: Request) -> tuple:
    """Draws of r as they are."""
    if request.kept is not None:
        return by_kept_draws(request)
    thetas, log_density = request.proposals(request.num_chains * request.num_samples)
    return request.shaped(thetas), request.shaped(log_density), {}, {}


def by_laplace(request: Request) -> tuple:
    """Draws of the normal at the mode, whatever r is."""
    family = FullRank()
    psi = start_family(family, request.model, request.data, request.key)
    psi = {**psi, "mean": request.psi["mean"]}
    psi = at_mode(family, request.model, request.data, psi, request.key)
    return by_variation(request._replace(family=family, psi=psi))


SAMPLERS: dict[str, Callable[[Request], tuple]] = {
    "nuts": by_chains("nuts"),
    "hmc": by_chains("hmc"),
    "importance": by_importance,
    "smc": by_tempering,
    "variational": by_variation,
    "laplace": by_laplace,
    "chains": by_kept_draws,
}
CHAINS = ("nuts", "hmc")
