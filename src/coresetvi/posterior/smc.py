"""Sequential Monte Carlo: from a normal that is easy to draw from to a posterior that is not.

Densities q^(1-t) p^t lead from q at t = 0 to p at t = 1. Each step goes as far as half of the particles stay
effective, draws them anew by their weights, and lets each move by Hamiltonian Monte Carlo. Unlike importance
sampling, no draw has to land where the posterior is by luck.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._compiler import quick_jit
from ..errors import InputError
from ..families.base import Family, Psi
from ..families.importance import normalise, resample
from ..fitting.progress import Progress
from ..inner.tempering import NO_WEIGHT, TARGET_ACCEPTANCE, largest_rise
from ..inner.transitions import hmc_transition
from ..models.log_joint import LogJoint
from .chains import MOST_HMC_STEPS

NUM_MOVES = 6
MOST_TEMPERATURES = 200
BATCH_NUMBERS = 2**24


def temper(
    log_joint: LogJoint,
    family: Family,
    psi: Psi,
    num_particles: int,
    key: PRNGKeyArray,
    *,
    progress: bool | None,
) -> tuple[np.ndarray, np.ndarray, dict[str, object]]:
    """Particles (S, d) of the posterior, their log-density, and how they came there from r."""
    start_key, key = jax.random.split(key)
    particles = draw_family(family, psi, start_key, num_particles)[0]
    # Arrays that are not of Python's numbers: `next_temperature` is then compiled once.
    temperature, step_size = jnp.zeros(()), 0.5 * jnp.ones(())
    temperatures, acceptances = [], []
    with Progress(progress) as bar:
        while not temperatures or temperatures[-1] < 1.0:
            if len(temperatures) == MOST_TEMPERATURES:
                raise InputError(
                    f"Tempering reached only {temperatures[-1]:.2g} of the way in {MOST_TEMPERATURES} "
                    "temperatures; r is too far from the posterior. Use method='nuts'."
                )
            turn = jax.random.fold_in(key, len(temperatures))
            particles, temperature, step_size, acceptance = next_temperature(
                log_joint, family, psi, particles, temperature, step_size, turn
            )
            temperatures.append(float(temperature))
            acceptances.append(float(acceptance))
            bar.show("tempering", round(1000 * temperatures[-1]), 1000)
    found = {"temperatures": temperatures, "acceptance_rate": acceptances[-1]}
    return np.asarray(particles), np.asarray(log_joint.of_draws(particles)), found


@quick_jit
def draw_family(family: Family, psi: Psi, key: PRNGKeyArray, number: int) -> tuple[Array, Array]:
    """Independent draws of r, (S, d), and their log-density."""
    noise = jax.random.normal(key, (number, family.noise_dim(psi["mean"].shape[0])))
    return jax.vmap(family.sample_and_log_prob, (None, 0))(psi, noise)


@eqx.filter_jit
def next_temperature(
    log_joint: LogJoint,
    family: Family,
    psi: Psi,
    particles: Array,
    temperature: Array,
    step_size: Array,
    key: PRNGKeyArray,
) -> tuple[Array, Array, Array, Array]:
    """Particles at the next temperature, that temperature, a better step size, and the acceptance rate."""
    from blackjax.mcmc import hmc

    resample_key, move_key = jax.random.split(key)

    def log_ratio(theta):
        return log_joint(theta) - family.log_prob(psi, theta)

    ratios = log_joint.of_draws(particles) - jax.vmap(family.log_prob, (None, 0))(psi, particles)
    # A particle where the model breaks down has no weight, and must not decide for the others.
    ratios = jnp.where(jnp.isfinite(ratios), ratios, NO_WEIGHT)
    rise = largest_rise(ratios, 1.0 - temperature)
    # Adding up rises may miss 1 by rounding.
    new = jnp.where(rise >= 1.0 - temperature, 1.0, temperature + rise)
    weights = normalise(rise * ratios)
    particles = particles[resample(resample_key, weights, particles.shape[0])]

    def log_density(theta):
        return family.log_prob(psi, theta) + new * log_ratio(theta)

    # No floor that units could decide about; only not zero.
    variance = jnp.maximum(jnp.var(particles, axis=0), 1e-30)

    def moves(theta: Array, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        def move(state, key):
            length_key, key = jax.random.split(key)
            length = jax.random.randint(length_key, (), 1, MOST_HMC_STEPS + 1)
            state, info = hmc_transition(key, state, log_density, step_size, variance, length)
            return state, info.acceptance_rate

        state, rates = jax.lax.scan(move, hmc.init(theta, log_density), jax.random.split(key, NUM_MOVES))
        return state.position, jnp.mean(rates)

    keys = jax.random.split(move_key, particles.shape[0])
    # All at once, unless the table of rows x particles would be large.
    batch = min(len(particles), max(1, BATCH_NUMBERS // len(log_joint.data)))
    moved, rates = jax.lax.map(lambda pair: moves(*pair), (particles, keys), batch_size=batch)
    acceptance = jnp.mean(rates)
    step_size = step_size * jnp.exp(jnp.clip(2.0 * (acceptance - TARGET_ACCEPTANCE), -1.0, math.log(2.0)))
    return moved, new, step_size, acceptance
