"""Markov chains that follow the coreset posterior while it moves.

A few dozen chains, one position each, are the draws of every step. Between two steps the coreset moves a
little, and a few transitions bring the chains after it: nothing is warmed up anew. Step size and units are
those that suit all chains together, and are adapted as long as a fit goes on.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._checks import positive
from .._registry import register
from ..errors import InputError
from ..families.base import Family, Psi
from ..models.base import soft_log_likelihood, weighted_log_likelihood
from ..models.log_joint import LogJoint
from .base import Inner, InnerInfo
from .transitions import TRANSITIONS

# A trajectory crosses about this many deviations, give or take a random part, in at most so many steps.
TRAJECTORY, JITTER, MOST_STEPS = 1.6, 0.6, 24
# Step size at first, in deviations, and how fast its logarithm follows the acceptance rate.
FIRST_STEP, STEP_PACE = 0.1, 0.2
# Transitions after which what was known before counts half: of the units, and of what chains have seen.
UNITS_MEMORY, SEEN_MEMORY = 40, 80
# Part of the covariances between parameters that is not believed: so many chains cannot know all of them.
SHRINKAGE = 0.05
# Of a fit: steps of a trajectory, and solves.
TYPICAL_STEPS, TYPICAL_SOLVES = 16, 400
# Points of the coreset whose log-likelihood chains are compared by.
WATCHED = 20
# A chain is lost if its log-density is below the middle one by more than this many nats and deviations.
LOST_NATS, LOST_DEVIATIONS = 10.0, 6.0


class Walk(NamedTuple):
    """Where a solve stands: the chains' states, the step size, and sums over the transitions so far."""

    states: Any
    log_step: Float[Array, ""]
    acceptance: Float[Array, ""]
    steps: Array
    mean: Float[Array, " d"]
    square: Array
    seen_mean: Float[Array, "c f"]
    seen_square: Float[Array, "c f"]


@register
class Chains(Inner):
    """`num_chains` Markov chains whose positions are the draws of every step.

    A solve takes `num_transitions` of each chain, by `method` "hmc" (Hamiltonian Monte Carlo) or "nuts", with
    a step size steered to an acceptance rate of `acceptance`. A chain that is lost (far below the others, or
    where the model has no value) goes on from the place of another one. The history has `acceptance`, `r_hat`
    (the worst over the log-density and over what chains say of the coreset's points; 1 means that all agree),
    `replaced`, how many were lost, and the mean and deviation of their log-density, `height` and `width`.

    >>> import coresetvi as cvi
    >>> train, _ = cvi.datasets.synthetic_lr(n=200, dim=2)
    >>> chains = cvi.inner.Chains(num_chains=32)
    >>> fit = cvi.fit(cvi.BBPSVI(8, inner=chains), cvi.models.LogisticRegression(2), train, key=0)
    >>> fit.psi["thetas"].shape[0], float(fit.history["r_hat"][-1]) < 1.2
    (32, True)
    """

    num_chains: int = 64
    num_transitions: int = 10
    method: str = "hmc"
    acceptance: float = 0.8
    passes_gradient: ClassVar[bool] = False
    exact_draws: ClassVar[bool] = True
    records: ClassVar[dict[str, type]] = {
        "acceptance": float,
        "r_hat": float,
        "replaced": float,
        "height": float,
        "width": float,
    }

    def __check_init__(self):
        positive(self, "num_chains", "num_transitions", "acceptance")
        if self.num_chains < 4:
            raise InputError(
                f"num_chains must be at least 4 for chains to be compared, not {self.num_chains}."
            )
        if not self.acceptance < 1.0:
            raise InputError(f"acceptance must be below 1, not {self.acceptance}.")
        if self.method not in TRANSITIONS:
            raise InputError(f"method must be one of {', '.join(TRANSITIONS)}, not {self.method!r}.")

    @property
    def num_kept(self):
        return self.num_chains

    @property
    def evaluations(self):
        return self.num_chains * self.num_transitions * TYPICAL_STEPS * TYPICAL_SOLVES

    def prepare(self, family, psi, model, key):
        """Chains that begin apart: each at a start of its own, spread by the deviations that r has."""
        start_key, noise_key = jax.random.split(key)
        keys = jax.random.split(start_key, self.num_chains)
        around = jax.vmap(model.start)(keys)
        noise = jax.random.normal(noise_key, (self.num_chains, family.noise_dim(around.shape[1])))
        spread = jax.vmap(lambda one: family.sample_and_log_prob(psi, one)[0])(noise) - psi["mean"]
        seen = jnp.zeros((self.num_chains, WATCHED + 1), around.dtype)
        own = {"thetas": around + spread, "log_step": jnp.log(jnp.asarray(FIRST_STEP, around.dtype))}
        return {**psi, **own, "seen_mean": seen, "seen_square": seen}

    def draws(self, problem, learned, psi, key, num_samples):
        thetas = psi["thetas"]
        return thetas, jax.vmap(problem.family.log_prob, (None, 0))(psi, thetas)

    def solve(self, problem, learned, psi, key):
        learned, psi = jax.lax.stop_gradient((learned, psi))
        thetas, family = psi["thetas"], problem.family
        log_joint = problem.joint(learned, jnp.mean(thetas, axis=0))
        units = ChainUnits(family, psi)
        walk = self._walk(log_joint, units, thetas, psi["log_step"], key)
        states, count = walk.states, self.num_transitions
        share = count / (count + UNITS_MEMORY)
        moved = units.out(states.position)
        lost = find_lost(states.logdensity, problem.dim)
        height = jnp.where(lost, jnp.median(states.logdensity), states.logdensity)
        value = weighted_log_likelihood(log_joint.model, log_joint.reference, log_joint.data)
        moved = replace_lost(moved, lost, jax.random.fold_in(key, count))
        part = count / (count + SEEN_MEMORY)
        seen_mean = (1.0 - part) * psi["seen_mean"] + part * walk.seen_mean / count
        seen_square = (1.0 - part) * psi["seen_square"] + part * walk.seen_square / count
        own = {
            "thetas": moved,
            "log_step": walk.log_step,
            "seen_mean": seen_mean,
            "seen_square": seen_square,
        }
        normal = units.refined(walk.mean / count, walk.square / count, share)
        info = InnerInfo(
            gradient_norm=jnp.zeros_like(walk.log_step),
            steps=walk.steps,
            accepted=jnp.all(jnp.isfinite(moved)),
            more={
                "acceptance": walk.acceptance / count,
                "r_hat": disagreement(seen_mean, seen_square),
                "replaced": jnp.sum(lost).astype(moved.dtype),
                "height": value + jnp.mean(height),
                "width": jnp.std(height),
            },
        )
        return jax.lax.stop_gradient(({**own, **normal}, info))

    def _walk(
        self, log_joint: LogJoint, units: "ChainUnits", thetas: Array, log_step: Array, key: PRNGKeyArray
    ):
        from blackjax.mcmc import hmc

        transition = TRANSITIONS[self.method]
        place = units.into(thetas)
        mass = jnp.ones(place.shape[1], place.dtype)

        def log_density(z):
            return log_joint(units.out(z))

        def step(walk: Walk, key):
            length_key, jitter_key, key = jax.random.split(key, 3)
            # One length for all chains: a loop takes as long as the longest.
            part = jax.random.uniform(length_key, minval=1.0 - JITTER, maxval=1.0 + JITTER)
            size = jnp.exp(walk.log_step)
            length = jnp.clip(jnp.round(TRAJECTORY * part / size), 1, MOST_STEPS).astype(int)
            sizes = size * jax.random.uniform(jitter_key, (self.num_chains,), minval=0.8, maxval=1.2)

            def one(key, state, size):
                return transition(key, state, log_density, size, mass, length)

            states, info = jax.vmap(one)(jax.random.split(key, self.num_chains), walk.states, sizes)
            rate = jnp.mean(jnp.nan_to_num(info.acceptance_rate))
            z = states.position
            seen = features(log_joint, units.out(z), states.logdensity)
            walk = Walk(
                states,
                walk.log_step + STEP_PACE * (rate - self.acceptance),
                walk.acceptance + rate,
                walk.steps + jnp.max(info.num_integration_steps),
                walk.mean + jnp.mean(z, axis=0),
                walk.square + units.square(z),
                walk.seen_mean + seen,
                walk.seen_square + seen**2,
            )
            return walk, None

        states: Any = jax.vmap(lambda z: hmc.init(z, log_density))(place)
        zero = jnp.zeros_like(mass)
        none = jnp.zeros_like(features(log_joint, thetas, states.logdensity))
        number = jnp.zeros_like(log_step)
        walk = Walk(states, log_step, number, jnp.asarray(0), zero, 0.0 * units.square(place), none, none)
        return jax.lax.scan(step, walk, jax.random.split(key, self.num_transitions))[0]


class ChainUnits(NamedTuple):
    """Coordinates z in which the chains' normal is N(0, I): theta = mean + factor z."""

    family: Family
    psi: Psi

    @property
    def _dense(self) -> bool:
        return "factor" in self.psi

    def out(self, z: Array) -> Array:
        mean = self.psi["mean"]
        return mean + (z @ self.psi["factor"].T if self._dense else z * jnp.exp(self.psi["log_scale"]))

    def into(self, thetas: Float[Array, "c d"]) -> Float[Array, "c d"]:
        away = thetas - self.psi["mean"]
        if self._dense:
            return jax.scipy.linalg.solve_triangular(self.psi["factor"], away.T, lower=True).T
        return away * jnp.exp(-self.psi["log_scale"])

    def square(self, z: Float[Array, "c d"]) -> Array:
        """The mean of z z^T, or of its diagonal where that is all that is kept."""
        return z.T @ z / z.shape[0] if self._dense else jnp.mean(z**2, axis=0)

    def refined(self, mean: Float[Array, " d"], square: Array, share: float) -> Psi:
        """The normal that has these moments in the present one's units, as far as `share` goes."""
        center = self.out(mean)
        if not self._dense:
            variance = (1.0 - share) + share * jnp.maximum(square - mean**2, 1e-6)
            found = {"log_scale": self.psi["log_scale"] + 0.5 * jnp.log(variance)}
        else:
            eye = jnp.eye(mean.shape[0], dtype=mean.dtype)
            covariance = (1.0 - share) * eye + share * (square - jnp.outer(mean, mean))
            diagonal = jnp.diag(jnp.maximum(jnp.diagonal(covariance), 1e-6))
            covariance = (1.0 - SHRINKAGE) * covariance + SHRINKAGE * diagonal
            found = {"factor": self.psi["factor"] @ jnp.linalg.cholesky(covariance)}
        fine = jnp.all(jnp.isfinite(center))
        for leaf in found.values():
            fine &= jnp.all(jnp.isfinite(leaf))
        found = {**found, "mean": center}
        return {name: jnp.where(fine, leaf, self.psi[name]) for name, leaf in found.items()}


def features(log_joint: LogJoint, thetas: Float[Array, "c d"], height: Float[Array, " c"]) -> Array:
    """What chains are compared by: their log-density, and the log-likelihoods of some of the points."""
    data = log_joint.data
    number = min(WATCHED, len(data))
    labels = None if data.y is None else data.y[:number]

    def of_one(theta):
        return soft_log_likelihood(log_joint.model, theta, data.x[:number], labels)

    said = jnp.pad(jax.vmap(of_one)(thetas), ((0, 0), (0, WATCHED - number)))
    return jnp.nan_to_num(jnp.concatenate([height[:, None], said], axis=1), posinf=0.0, neginf=-1e6)


def disagreement(mean: Float[Array, "c f"], square: Float[Array, "c f"]) -> Float[Array, ""]:
    """R-hat, the worst over all features: the spread of all draws over that within chains."""
    within = jnp.mean(square - mean**2, axis=0)
    between = jnp.var(mean, axis=0)
    moves = within > 1e-9 * (1.0 + jnp.mean(mean**2, axis=0))
    return jnp.sqrt(1.0 + jnp.max(jnp.where(moves, between / jnp.where(moves, within, 1.0), 0.0)))


def find_lost(height: Float[Array, " c"], dim: int) -> Bool[Array, " c"]:
    """Chains that are hopelessly below the others, or where the model has no value.

    A draw of d parameters is sqrt(d / 2) nats from the mean log-density, give or take.
    """
    height = jnp.where(jnp.isfinite(height), height, -jnp.inf)
    return ~(height >= jnp.median(height) - LOST_NATS - LOST_DEVIATIONS * (dim / 2.0) ** 0.5)


def replace_lost(
    thetas: Float[Array, "c d"], lost: Bool[Array, " c"], key: PRNGKeyArray
) -> Float[Array, "c d"]:
    """The positions, with those of lost chains replaced by those of others at random."""
    others = jax.random.categorical(key, jnp.where(lost, -jnp.inf, 0.0), shape=lost.shape)
    return thetas[jnp.where(lost, others, jnp.arange(lost.shape[0]))]
