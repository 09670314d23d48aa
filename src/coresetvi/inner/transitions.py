"""Transitions of Markov chains by BlackJAX: one step of one chain each.

Every transition takes (key, state, log_density, step_size, inverse_mass, num_steps) and returns the new state
and what it has to say. `num_steps` is the length of a trajectory for those that do not find it themselves.
"""

from collections.abc import Callable

from jaxtyping import Array


def nuts_transition(key, state, log_density, step_size, inverse_mass, num_steps: Array | int):
    """One transition of the no-U-turn sampler, which finds the length by itself."""
    from blackjax.mcmc import nuts

    return nuts.build_kernel()(key, state, log_density, step_size, inverse_mass)


def hmc_transition(key, state, log_density, step_size, inverse_mass, num_steps: Array | int):
    """One transition of Hamiltonian Monte Carlo."""
    from blackjax.mcmc import hmc

    # The kernel's own type says int, and it takes a traced one.
    return hmc.build_kernel()(key, state, log_density, step_size, inverse_mass, num_steps)  # pyright: ignore


TRANSITIONS: dict[str, Callable] = {"nuts": nuts_transition, "hmc": hmc_transition}
