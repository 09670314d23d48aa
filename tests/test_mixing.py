"""R-hat and effective sample sizes, against BlackJAX's own in double precision, and against known chains."""

import jax
import numpy as np
import pytest

from coresetvi.families.mixing import AT_ONCE, chain_measures


def autoregressive(correlation: float, shape: tuple[int, int, int]) -> np.ndarray:
    """Chains whose neighbours have this correlation."""
    noise = np.random.default_rng(0).normal(size=shape)
    chains = noise.copy()
    for draw in range(1, shape[1]):
        chains[:, draw] = correlation * chains[:, draw - 1] + np.sqrt(1 - correlation**2) * noise[:, draw]
    return chains


@pytest.mark.parametrize("shape", [(4, 100, 3), (1, 51, 2), (2, 7, 2), (3, 4, 2)])
@pytest.mark.parametrize("correlation", [0.0, 0.9, -0.9])
@pytest.mark.usefixtures("float64", "quick_compilation")
def test_they_are_those_of_blackjax(shape, correlation):
    from blackjax import diagnostics

    columns = autoregressive(correlation, shape)
    columns[..., 0] = np.round(columns[..., 0])  # some draws are equal
    functions = (diagnostics.rhat, diagnostics.ess_bulk, diagnostics.ess_tail)
    expected = jax.jit(lambda given: [function(given) for function in functions])(columns)
    for one, other in zip(chain_measures(columns), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_known_chains_have_their_effective_sizes(correlation):
    """(1 - c) / (1 + c) of the draws; the spread over columns says how exact their mean is."""
    columns = autoregressive(correlation, (4, 2000, 40))
    r_hat, bulk, _ = chain_measures(columns)
    share = bulk / 8000
    error = share.std() / np.sqrt(len(share))
    assert abs(share.mean() - (1 - correlation) / (1 + correlation)) < 5 * error + 0.02
    assert np.all(r_hat < 1.02)


def test_chains_apart_and_chains_of_other_width_are_seen():
    columns = np.random.default_rng(1).normal(size=(4, 500, 3))
    columns[0, :, 0] += 2.0
    columns[0, :, 1] *= 5.0
    r_hat = chain_measures(columns)[0]
    assert r_hat[0] > 1.1 and r_hat[1] > 1.1 and r_hat[2] < 1.01


def test_what_never_moves_or_is_missing():
    columns = np.random.default_rng(2).normal(size=(4, 100, 3)).astype(np.float32)
    columns[..., 0], columns[1, 5, 1] = 0.3, np.nan
    r_hat, bulk, tail = chain_measures(columns)
    assert np.isnan(r_hat).tolist() == [True, True, False]
    assert bulk[0] == tail[0] == 0.0 and np.isnan([bulk[1], tail[1]]).all() and bulk[2] > 200


def test_columns_do_not_see_each_other():
    columns = np.random.default_rng(3).normal(size=(2, 10, 2 * AT_ONCE + 1))
    together = np.stack(chain_measures(columns))
    for place in (0, AT_ONCE, 2 * AT_ONCE):
        alone = np.stack(chain_measures(columns[..., place : place + 1]))
        np.testing.assert_allclose(together[:, place : place + 1], alone, rtol=1e-12)
