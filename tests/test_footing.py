"""The natural gradient's memory of where it last stood safely: when it goes back, and how far it dares."""

import jax
import jax.numpy as jnp
import pytest

from coresetvi._info import Info
from coresetvi.outer.natural import Footing, NaturalGradient

pytestmark = pytest.mark.usefixtures("quick_compilation")
# sqrt(2 kl / (S ess)) = sqrt(16 / (16 / 4)) = 2: three of these and one nat make a limit of 7.
KL, ESS, NUM_SAMPLES, LIMIT = 8.0, 0.25, 16, 7.0
BEFORE = 10.0
JUDGE = jax.jit(NaturalGradient()._look_back, static_argnums=4)


def look_back(rise, *, reach=0.4, returned=False, accepted=True) -> tuple[bool, Footing]:
    """What follows from a loss that is `rise` above the last one."""
    number = jnp.asarray
    last = Footing({"x": number(1.0)}, {"mean": number(2.0)}, number(BEFORE), number(reach), number(returned))
    info = Info(
        loss=number(BEFORE + rise),
        kl=number(KL),
        ess=number(ESS),
        inner_gradient_norm=number(0.0),
        inner_steps=number(1),
        accepted=number(accepted),
    )
    here = ({"x": number(5.0)}, {"mean": number(6.0)})
    slipped, footing = JUDGE(last, *here, info, NUM_SAMPLES)
    return bool(slipped), footing


@pytest.mark.parametrize(("rise", "slips"), [(-50.0, False), (LIMIT - 0.01, False), (LIMIT + 0.01, True)])
def test_worse_means_by_a_nat_and_three_standard_errors(rise, slips):
    slipped, footing = look_back(rise)
    assert slipped == bool(footing.returned) == slips
    # Back to the footing with a quarter of the reach, or on from here with a little more.
    expected = (1.0, 2.0, BEFORE, 0.1) if slips else (5.0, 6.0, BEFORE + rise, 0.48)
    found = (footing.learned["x"], footing.psi["mean"], footing.loss, footing.reach)
    assert [float(value) for value in found] == pytest.approx(expected, rel=1e-6)


def test_whoever_has_just_gone_back_stays_with_a_new_loss_and_twice_the_reach():
    slipped, footing = look_back(LIMIT + 100.0, returned=True)
    assert not slipped and not footing.returned
    assert float(footing.loss) == BEFORE + LIMIT + 100.0
    assert float(footing.reach) == pytest.approx(0.8)


@pytest.mark.parametrize("returned", [False, True])
def test_the_reach_never_exceeds_a_whole_step(returned):
    assert float(look_back(-1.0, reach=0.95, returned=returned)[1].reach) == 1.0


@pytest.mark.parametrize("rise", [-50.0, LIMIT + 100.0])
def test_a_loss_at_an_unsolved_inner_problem_changes_nothing(rise):
    slipped, footing = look_back(rise, accepted=False)
    assert not slipped and not footing.returned
    assert (float(footing.learned["x"]), float(footing.loss), float(footing.reach)) == pytest.approx(
        (1.0, BEFORE, 0.4)
    )
