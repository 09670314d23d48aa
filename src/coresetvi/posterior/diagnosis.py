"""`diagnose`: is this coreset posterior that of the data? Everything that can be measured about it."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import instance, whole_number
from .._keys import one_key
from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from ..families.base import need_density
from ..families.draws import Draws
from ..families.importance import host_ess, host_weights, khat_threshold, pareto_khat
from ..fitting import own_draws
from ..fitting.compilation import make_room
from ..fitting.result import Fit
from ..models.prediction import align, scores
from ..models.propriety import need_proper
from ..models.row_checks import check_rows
from . import distances as discrepancies
from .certificate import MIXED, Certificate, Numbers, judge
from .coreset_draws import CHAINS, coreset_draws
from .correction import ROWS_WANTED
from .divergence import judge_posterior, kl_terms, row_agreement
from .look import look_around
from .reach import propose
from .sampling import sample
from .slopes import gradients_of
from .unseen import places

# Draws of r for each draw of the coreset posterior that is weighed against the data: r is cheap to judge.
PROPOSALS = 4
# Rows that the training score is taken on.
SCORED_ROWS = 10_000
# Draws that distances between all pairs are taken of.
PAIRED = 500


def diagnose(
    fit: Fit,
    data: Rows,
    reference: Draws | Fit | None = None,
    *,
    draws: Draws | None = None,
    held_out: Rows | None = None,
    num_samples: int = 1000,
    key: int | PRNGKeyArray | None = None,
    progress: bool | None = None,
) -> Certificate:
    """The certificate of a fit: `print` it, or read its numbers.

    `data` are the rows that the coreset stands for, in memory or not (`coresetvi.scan`); their log-likelihood
    is streamed once for `num_samples` draws of the coreset posterior, and once for its slopes at some. Draws
    are `draws` (what `coresetvi.sample(fit)` returned), or else draws of r by importance, or by NUTS where
    importance sampling fails. `reference`, draws of the true posterior or another fit, adds distances to it.
    `held_out` adds the score on rows that were not fitted.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=300, dim=2)
    >>> fit = cvi.fit(cvi.BBPSVI(10), cvi.models.LogisticRegression(2), train, key=0)
    >>> diagnose(fit, train).verdict
    'trust'
    """
    instance("fit", fit, Fit, "what coresetvi.fit returned")
    instance("data", data, Rows, ROWS_WANTED)
    if held_out is not None:
        instance("held_out", held_out, Rows, ROWS_WANTED)
    num_samples = whole_number("num_samples", num_samples, 100)
    need_density(fit.family, "A certificate")
    need_proper(fit.model, fit.coreset)
    make_room()
    data = check_rows(fit.model, align(data, fit.coreset))
    root = jax.random.fold_in(fit.key, 2**31 - 4) if key is None else one_key(key)
    kept = own_draws.kept_draws(fit)
    if draws is None and kept is not None:
        draws = settled_draws(fit, own_draws.as_draws(fit, kept), num_samples, root, progress)
    given = draws is not None
    if given:
        instance("draws", draws, Draws, "what coresetvi.sample(fit) returned")
        check_draws(fit, draws)
    look_key, reach_key = jax.random.split(jax.random.fold_in(root, 2))
    r, thetas, bound = judge_r(fit, PROPOSALS * num_samples, root)
    scored = some_rows(data, root)
    looked = look_around(fit, scored, float(len(data)), look_key)
    proposals = propose(fit, thetas, None if looked is None else looked[0].particles, reach_key)
    chosen = coreset_draws(fit, proposals, looked, num_samples, root, progress, draws)
    if kept is None:
        r["kl"] = max(r["kl"], proposals.r_kl) - math.log1p(-min(chosen.missed, 0.999))
    few = thin(chosen.draws, num_samples)
    where = None if looked is None else places(fit, looked[0], proposals.distance_of_data(looked[0]), data)
    posterior, elbo, agreed, unseen = judge_posterior(few, fit.coreset, data, bound, chosen.tilt, where)
    look = chosen.about | ({} if where is None else {"unseen": unseen})
    chains = chosen.draws.mixing()
    chains |= (agreed | row_agreement(few, scored)) if chains else {}
    # Scores are those of the draws that were asked about.
    asked = few if draws is None else thin(draws, num_samples)
    verdict, sentence = judge(r, posterior, chains, given, look)
    return Certificate(
        verdict=verdict,
        sentence=sentence,
        r=r,
        posterior=posterior,
        elbo=elbo,
        coreset=describe_weights(fit.coreset),
        fit=describe_fit(fit),
        chains=chains,
        train=score(fit, asked, scored),
        held_out={} if held_out is None else score(fit, asked, held_out),
        reference={}
        if reference is None
        else compare(chosen.draws if draws is None else draws, reference, data, root),
        look=look,
    )


def settled_draws(fit: Fit, kept: Draws, num_samples: int, key: PRNGKeyArray, progress: bool | None) -> Draws:
    """The draws that a fit has kept or, where its chains are too short to agree, longer ones begun there."""
    if kept.flat.shape[1] < 4 or kept.about["r_hat_density"] <= MIXED:
        return kept
    longer = -(-num_samples // CHAINS)
    return sample(fit, num_chains=CHAINS, num_samples=longer, key=key, progress=progress)


def check_draws(fit: Fit, draws: Draws) -> None:
    """Refuse draws that say nothing about this fit's coreset."""
    if type(draws.model) is not type(fit.model) or draws.flat.shape[-1] != fit.model.dim:
        raise InputError(
            f"draws are of a {type(draws.model).__name__} with {draws.flat.shape[-1]} parameters, but the "
            f"fit of a {type(fit.model).__name__} with {fit.model.dim}; pass what coresetvi.sample(fit) gave."
        )
    pairs = ((draws.data.x, fit.coreset.x), (draws.data.weights, fit.coreset.weights))
    if draws.data is not fit.coreset and not all(np.array_equal(*pair) for pair in pairs):
        raise InputError(
            "draws were made given other rows than this fit's coreset; pass what coresetvi.sample(fit) "
            "returned, and draws given all of the data as reference=."
        )


def judge_r(fit: Fit, number: int, key: PRNGKeyArray):
    """r against the coreset posterior; also draws of r, and the bound of the coreset's evidence: E_r[log w]
    with its error."""
    thetas, value, log_w = fit.normal_draws(number, key)
    host = np.asarray(log_w, np.float64)
    weights = host_weights(host)
    ratio, log_mean = kl_terms(host)
    found = {
        "draws": number,
        "ess": host_ess(weights),
        "khat": pareto_khat(host),
        "khat_threshold": khat_threshold(number),
        # log E_r[w] - E_r[log w]
        "kl": max(log_mean - float(host.mean()), 0.0),
        "kl_error": float(np.std(ratio - host) / math.sqrt(number)),
    }
    bound = {"mean": float(value) + float(host.mean()), "error": float(host.std() / math.sqrt(number))}
    kept = own_draws.kept_draws(fit)
    if kept is not None:
        # The posterior of such a fit is its draws; the normal around them is only where they are.
        found = own_draws.reliability_of(fit, kept)
        found = {"draws": found.pop("num_samples"), **found, "kl": 0.0, "kl_error": 0.0}
    return found, thetas, bound


def thin(draws: Draws, number: int) -> Draws:
    """About `number` of the draws, evenly spaced in every chain."""
    every = max(1, draws.flat.shape[0] * draws.flat.shape[1] // number)
    log_weights = draws.log_weights
    if log_weights is not None:
        log_weights = log_weights[:, ::every]
        log_weights = log_weights - np.logaddexp.reduce(log_weights, axis=None)
    return dataclasses.replace(
        draws,
        flat=draws.flat[:, ::every],
        log_density=draws.log_density[:, ::every],
        stats={name: values[:, ::every] for name, values in draws.stats.items()},
        log_weights=log_weights,
    )


def describe_weights(coreset: Dataset) -> Numbers:
    """Size, weight entropy, effective size exp(entropy), and total weight."""
    weights = np.asarray(coreset.weights, np.float64)
    share = weights[weights > 0] / weights.sum()
    entropy = float(-np.sum(share * np.log(share)))
    return {
        "size": len(coreset),
        "weight_entropy": entropy,
        "effective_size": math.exp(entropy),
        "total_weight": float(weights.sum()),
    }


def describe_fit(fit: Fit) -> dict[str, object]:
    """How the fit ended, and the norm of the inner problem's gradient then."""
    norms = fit.history.get("inner_gradient_norm", np.zeros(0))
    found: dict[str, object] = {"result": fit.result}
    return found | ({"inner_gradient_norm": float(norms[-1])} if norms.size else {})


def some_rows(data: Rows, key: PRNGKeyArray) -> Dataset:
    """All rows, or random ones if there are many."""
    if not isinstance(data, Dataset):
        return data.sample(key, SCORED_ROWS)
    return data if len(data) <= SCORED_ROWS else data.batch(key, SCORED_ROWS)


def score(fit: Fit, draws: Draws, data: Rows) -> Numbers:
    """Scores of the draws' predictions."""
    data = check_rows(fit.model, align(data, fit.coreset), fitting=False)
    thetas = jnp.asarray(draws.flat.reshape(-1, fit.model.dim))
    weights = jnp.asarray(draws.weights.ravel(), thetas.dtype)
    return {"rows": len(data), **scores(fit.model, thetas, weights, data)}


def compare(draws: Draws, reference: Draws | Fit, data: Rows, key: PRNGKeyArray) -> Numbers:
    """Distances of the draws to a reference: moments, and in the reference's units whole distributions."""
    if isinstance(reference, Fit):
        corrects = reference.construction is None or reference.construction.corrects
        reference = sample(reference, method="importance" if corrects else "variational", key=key)
    instance("reference", reference, Draws, "draws (coresetvi.sample) or a Fit")
    if reference.flat.shape[-1] != draws.flat.shape[-1]:
        raise InputError(
            f"reference has {reference.flat.shape[-1]} parameters, but the fit {draws.flat.shape[-1]}; "
            "take draws of the same model."
        )
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    found = discrepancies.moment_errors(draws.mean, draws.covariance, reference.mean, reference.covariance)
    white = discrepancies.whitener(reference.covariance)
    plain = [one.resample(key).flat.reshape(-1, white.shape[0]) for one in (draws, reference)]
    mine, theirs = ((part.astype(np.float64) - reference.mean) @ white for part in plain)
    found["sliced_wasserstein"] = discrepancies.sliced_wasserstein(mine, theirs, generator)
    rows, others = (generator.permutation(len(part))[:PAIRED] for part in (mine, theirs))
    found["mmd"] = discrepancies.mmd(mine[rows], theirs[others])
    slopes = gradients_of(draws.model, data, jnp.asarray(plain[0][rows]))
    # d/dz of the log-density at theta = mean + z W^+ is the gradient times the transposed inverse of W.
    found["kernel_stein"] = discrepancies.kernel_stein(mine[rows], slopes @ np.linalg.pinv(white).T)
    return found
