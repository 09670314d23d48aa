"""When chains have arrived, the draws that they leave behind, and the pass that tests those."""

import collections
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..families.sampled import around_draws
from ..inner.base import Leaves
from ..models.row_sums import rises_of
from .parametrisation import Parametrisation
from .pass_programs import solve

if TYPE_CHECKING:
    from .learned_plan import CoresetState, LearnedPlan

# Draws that a finished fit keeps of its chains together, about.
KEPT_DRAWS = 1024
# Draws of the pass that tests: rows x draws below the first, but at least so many draws.
TEST_NUMBERS, FEWEST_TESTED = 2**25, 128
# Solves before the first step: at least, and at most.
FIRST_ROUNDS = (20, 60)
# Part of the logits of a hard label with which labels that are learned begin.
SOFTER = 0.2
# A mean log-density that changes by less than this part of its spread over chains has settled.
SETTLED = 0.35


class ChainWatch:
    """Follows the mean log-density of chains from solve to solve.

    >>> watch = ChainWatch(4, 20)
    >>> [watch.has_arrived(height, 1.0) for height in (-90.0, -20.0, -10.0, -3.0, -2.9)]
    [False, False, False, False, True]
    """

    def __init__(self, least: int, most: int):
        self._least, self._most = least, most
        self._heights: list[float] = []
        self._widths: list[float] = []

    @property
    def count(self) -> int:
        """Solves so far."""
        return len(self._heights)

    def has_arrived(self, height: float, width: float) -> bool:
        """Whether the heights of the last solves go neither up nor down, after one more of them."""
        self._heights.append(height)
        self._widths.append(width)
        if self.count >= self._most:
            return True
        if self.count < self._least:
            return False
        third = self.count // 3
        late, earlier = self._heights[-third:], self._heights[-2 * third : -third]
        return abs(float(np.mean(late)) - float(np.mean(earlier))) < SETTLED * self._widths[-1]


def follow(plan: "LearnedPlan", state: "CoresetState", key, rounds: tuple[int, int], per_chain: int = 1):
    """psi, the chains' own report and draws, once they have arrived at the coreset posterior."""
    watch, psi = ChainWatch(*((1, 1) if plan.inner.draws_anew else rounds)), state.psi
    latest: collections.deque[Array] = collections.deque(maxlen=per_chain)
    while True:
        keys = jax.random.split(jax.random.fold_in(key, watch.count))
        psi, info = solve(plan.target(state, (*keys, None)), state.learned, psi)
        latest.append(psi["thetas"])
        if watch.has_arrived(float(info.more["height"]), float(info.more["width"])):
            return psi, info, jnp.concatenate(latest)


def softened(parametrisation: Parametrisation, learned: Leaves) -> Leaves:
    """Leaves whose labels can move: one that is all but certain has no gradient that could change it."""
    if not parametrisation.soft_labels or "y" not in learned:
        return learned
    return {**learned, "y": SOFTER * learned["y"]}


def final_draws(plan: "LearnedPlan", state: "CoresetState", key) -> "CoresetState":
    """The state with draws (chains, draws, d) of its coreset posterior in psi.

    Solves that make draws anew are the chains, and their particles the draws.
    """
    psi, kept = state.psi, []
    for number in range(max(4, KEPT_DRAWS // plan.inner.num_kept)):
        keys = jax.random.split(jax.random.fold_in(key, number))
        psi, _ = solve(plan.target(state, (*keys, None)), state.learned, psi)
        kept.append(np.asarray(psi["thetas"]))
    thetas = jnp.asarray(np.stack(kept, axis=0 if plan.inner.draws_anew else 1))
    normal = around_draws(plan.family, thetas.reshape(-1, plan.model.dim))
    return eqx.tree_at(lambda s: s.psi, state, {**normal, "thetas": thetas})


def test_draws(plan: "LearnedPlan", state: "CoresetState") -> "CoresetState":
    """The state with the KL divergence that one more pass finds at fresh draws: all, while that is cheap."""
    thetas = state.psi["thetas"].reshape(-1, plan.model.dim)
    number = min(max(TEST_NUMBERS // plan.data.num_rows, FEWEST_TESTED), len(thetas))
    thetas = thetas[np.linspace(0, len(thetas) - 1, number).astype(int)]
    reference = jnp.mean(thetas, axis=0)
    rises = np.asarray(rises_of(plan.model, plan.data, thetas, reference)[1], np.float64)
    coreset = plan.parametrisation.build({**state.frozen, **state.learned})
    core = np.asarray(rises_of(plan.model, coreset, thetas, reference)[1], np.float64)
    residual = rises - core
    kl = 0.5 * residual.var() if np.all(np.isfinite(residual)) else np.inf
    return eqx.tree_at(
        lambda s: s.nearest, state, jnp.asarray(kl, thetas.dtype), is_leaf=lambda leaf: leaf is None
    )
