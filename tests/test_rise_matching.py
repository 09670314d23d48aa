"""Rise matching against closed forms: steps of a regression whose answer is known, and weights of draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coresetvi.families import FullRank
from coresetvi.inner.base import InnerInfo
from coresetvi.objectives import ImportanceElbo
from coresetvi.outer import RiseMatching
from coresetvi.outer.base import Answer, Draft, Target
from coresetvi.outer.told import nothing_told, remember, weights_now

DRAWS, LEAVES = 40, 3
NOISE = np.random.default_rng(0)
THETAS = jnp.asarray(NOISE.normal(size=(3, DRAWS, 2)))


class Linear(Target):
    """A coreset whose log-likelihood is linear in its leaves: steps that are whole are exact."""

    objective: ImportanceElbo
    family: FullRank
    least: float = -10.0

    def solve(self, learned, psi):
        return psi, InnerInfo(jnp.zeros(()), jnp.asarray(0), jnp.asarray(True))

    def draw(self, learned, psi):
        return psi["thetas"], jnp.zeros(DRAWS)

    def core(self, learned, thetas, reference):
        return (features(thetas) - features(reference[None])) @ learned["x"]

    def prior(self, thetas):
        return -0.5 * jnp.sum(thetas**2, axis=1)

    def project(self, learned):
        return {"x": jnp.maximum(learned["x"], self.least)}


def features(thetas):
    return jnp.stack([thetas[:, 0], thetas[:, 0] + thetas[:, 1] ** 2, jnp.sin(3.0 * thetas[:, 0])], axis=1)


def rises(thetas, reference):
    """What the data say: in the reach of the leaves, but for a small rest."""
    wanted = jnp.asarray([0.3, -0.2, 0.1])
    rest = 0.05 * jnp.cos(5.0 * thetas[:, 1])
    return (features(thetas) - features(reference[None])) @ wanted + rest


def stepped(optimizer, target, leaves, steps=1):
    """Leaves after as many steps, and what the last of them recorded."""
    learned, state = {"x": jnp.asarray(leaves)}, optimizer.init({}, FullRank(), {"thetas": THETAS[0]})
    info = None
    for thetas in THETAS[:steps]:
        draft = Draft(thetas, thetas.mean(axis=0), jnp.zeros(DRAWS), {}, target.solve(learned, {})[1])
        answer = Answer(jnp.zeros(()), rises(thetas, draft.reference))
        moved = optimizer.tell(target, learned, {}, state, jnp.asarray(1.0), draft, answer)
        learned, state, info = moved.learned, moved.state, moved.info
    return np.asarray(learned["x"]), info


TARGET = Linear(ImportanceElbo(), FullRank())


def test_the_first_step_is_the_damped_least_squares_solution():
    found = stepped(RiseMatching(damping=0.05, max_move=100.0), TARGET, np.zeros(LEAVES))[0]
    design = np.asarray(features(THETAS[0]), np.float64)
    design -= design.mean(axis=0)
    wanted = np.asarray(rises(THETAS[0], THETAS[0].mean(axis=0)), np.float64)
    gram = design.T @ design / DRAWS
    ridge = np.diag(0.05 * np.diagonal(gram) + 1e-4 * np.mean(np.diagonal(gram)))
    exact = np.linalg.solve(gram + ridge, design.T @ (wanted - wanted.mean()) / DRAWS)
    assert np.allclose(found, exact, rtol=1e-3)


def test_draws_of_earlier_steps_count_by_how_likely_they_are_now():
    told = nothing_told(THETAS[0], 2)
    before, now = ({"x": jnp.asarray(x)} for x in ([0.1, 0.0, 0.2], [0.3, -0.1, 0.0]))
    reference = THETAS[0].mean(axis=0)
    draft = Draft(THETAS[0], reference, jnp.zeros(DRAWS), {}, TARGET.solve({}, {})[1])
    answer = Answer(jnp.zeros(()), rises(THETAS[0], reference))
    told = remember(told, draft, answer, TARGET.core(before, THETAS[0], reference))
    found = np.asarray(weights_now(TARGET, now, told), np.float64)
    ratio = np.exp(np.asarray(features(THETAS[0]) @ (now["x"] - before["x"]), np.float64))
    exact = ratio / ratio.sum()
    ess = 1.0 / np.sum(exact**2) / DRAWS
    assert np.allclose(found[0], exact * ess, rtol=1e-4)
    assert np.all(found[1] == 0.0)  # nothing was told yet


def test_later_steps_regress_on_all_draws_together():
    """With a memory of three, the third step sees 120 draws: its leaves are nearer to the truth of all."""
    thetas = THETAS.reshape(-1, 2)
    design = np.asarray(features(thetas), np.float64)
    design -= design.mean(axis=0)
    wanted = np.asarray(rises(thetas, thetas.mean(axis=0)), np.float64)
    exact = np.linalg.lstsq(design, wanted - wanted.mean(), rcond=None)[0]
    options = {"damping": 1e-4, "max_move": 100.0}
    errors = [
        np.abs(stepped(RiseMatching(memory=memory, **options), TARGET, exact, 3)[0] - exact).max()
        for memory in (1, 3)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_no_step_is_longer_than_allowed_or_leaves_what_is_allowed():
    found, info = stepped(RiseMatching(damping=1e-4, max_move=0.05), TARGET, np.zeros(LEAVES))
    assert np.abs(found).max() == pytest.approx(0.05, rel=1e-4)
    assert info is not None and float(info.kl) > 0.0


def test_a_leaf_at_its_edge_stays_and_the_others_are_solved_for():
    edge = Linear(ImportanceElbo(), FullRank(), least=-0.1)
    # The second leaf wants -0.2 and is drawn outwards; the others make up for it.
    found = stepped(RiseMatching(damping=1e-5, max_move=9.0), edge, [0.5, -0.1, 0.0])[0]
    design = np.asarray(features(THETAS[0]), np.float64)
    design -= design.mean(axis=0)
    wanted = np.asarray(rises(THETAS[0], THETAS[0].mean(axis=0)), np.float64)
    left = wanted - wanted.mean() + 0.1 * design[:, 1]
    exact = np.linalg.lstsq(design[:, [0, 2]], left, rcond=None)[0]
    assert found[1] == pytest.approx(-0.1) and np.allclose(found[[0, 2]], exact, rtol=2e-3)


class Bounded(Linear):
    """A model that has no value once the first leaf is above a quarter of what the data want."""

    def core(self, learned, thetas, reference):
        value = super().core(learned, thetas, reference)
        return jnp.where(learned["x"][0] > 0.08, jnp.nan, value)


def test_a_step_to_where_the_model_has_no_value_is_shortened():
    found = stepped(
        RiseMatching(damping=1e-4, max_move=9.0), Bounded(ImportanceElbo(), FullRank()), np.zeros(LEAVES)
    )[0]
    assert np.all(np.isfinite(found)) and 0.0 < found[0] <= 0.08


def test_draws_at_which_the_data_have_no_value_do_not_count():
    optimizer, learned = RiseMatching(damping=1e-4, max_move=9.0), {"x": jnp.zeros(LEAVES)}
    thetas = THETAS[0]
    draft = Draft(thetas, thetas.mean(axis=0), jnp.zeros(DRAWS), {}, TARGET.solve(learned, {})[1])
    fine = rises(thetas, draft.reference)
    state = optimizer.init({}, FullRank(), {"thetas": thetas})
    answers = [Answer(jnp.zeros(()), fine.at[5].set(value)) for value in (jnp.nan, jnp.inf)]
    found = [
        optimizer.tell(TARGET, learned, {}, state, jnp.asarray(1.0), draft, answer).learned["x"]
        for answer in answers
    ]
    assert all(np.all(np.isfinite(one)) for one in found)
    assert np.allclose(found[0], [0.3, -0.2, 0.1], atol=0.05) and jax.tree.all(
        jax.tree.map(np.array_equal, found[0], found[1])
    )
