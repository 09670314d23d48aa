"""Starts in data with groups: each has a point where there is room, and weighs what it does in the data."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.constructions.group_start import (
    covering_rows,
    factors_of,
    group_columns,
    mended,
    raked,
    too_few_points,
    with_groups,
)
from coresetvi.constructions.parametrisation import parametrise
from coresetvi.constructions.starts import start_leaves
from coresetvi.data import Dataset
from coresetvi.weights import Simplex

GROUPS, REGIONS, ROWS = 12, 4, 900
GENERATOR = np.random.default_rng(3)
SHARES = np.arange(GROUPS) ** 2 / np.sum(np.arange(GROUPS) ** 2)
# The first rows make sure that every level is there; group 0 is a single row.
GROUP = np.concatenate(
    [np.arange(GROUPS), 1 + GENERATOR.choice(GROUPS - 1, ROWS - GROUPS, p=SHARES[1:] / SHARES[1:].sum())]
)
REGION = np.concatenate([np.arange(GROUPS) % REGIONS, GENERATOR.integers(0, REGIONS, ROWS - GROUPS)])
Z = GENERATOR.normal(size=ROWS)
LABELS = (GENERATOR.random(ROWS) < 0.2).astype(int)
DATA = Dataset(np.column_stack([Z, REGION, GROUP]), LABELS, columns=["z", "region", "group"], fixed=[1, 2])
ONES = np.ones(ROWS)


def mass(codes, weights=None):
    return np.bincount(codes, weights, codes.max() + 1)


def test_only_columns_with_few_values_are_groups():
    assert list(group_columns(DATA, (0, 1, 2))) == [2, 1]  # finest first; every value of z is another
    assert factors_of(DATA, (), 2, 50) == [] and factors_of(DATA, (0,), 2, 50) == []
    # Two columns, the classes, and classes within groups if there is room for them.
    assert len(factors_of(DATA, (1, 2), 2, 50)) == 4 and len(factors_of(DATA, (1, 2), 2, 15)) == 3


@pytest.mark.parametrize("size", [12, 16, 40])
def test_every_level_of_crossing_columns_has_a_row(size):
    rows = covering_rows([GROUP, REGION], ONES, size, np.random.default_rng(size))
    assert len(set(rows)) == size
    assert set(GROUP[rows]) == set(range(GROUPS)) and set(REGION[rows]) == set(range(REGIONS))


def test_beyond_that_rows_are_in_proportion():
    rows = covering_rows([GROUP], ONES, 300, np.random.default_rng(0))
    exact = 300 * mass(GROUP) / ROWS
    # At least one each, which the others pay for.
    assert np.abs(mass(GROUP[rows]) - exact).max() < 2.0


def test_where_room_is_short_it_covers_as_many_levels_as_it_can():
    rows = covering_rows([GROUP, REGION], ONES, 6, np.random.default_rng(0))
    assert len(set(GROUP[rows])) == 6 and set(REGION[rows]) == set(range(REGIONS))


def test_rows_of_no_weight_are_never_chosen():
    weights = ONES.copy()
    weights[GROUP == 3] = 0.0
    rows = covering_rows([GROUP], weights, 11, np.random.default_rng(0))
    assert set(GROUP[rows]) == set(range(GROUPS)) - {3}


def test_raking_is_exact_for_margins_that_can_be_met():
    """Against the closed form: independent margins from equal weights give the product table."""
    one, two = np.repeat([0, 1], 3), np.tile([0, 1, 2], 2)
    wanted = np.outer([1.0, 3.0], [2.0, 5.0, 3.0]).ravel()
    found = raked(np.ones(6), [one, two], [one, two], wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_mending_spares_what_is_needed():
    rows = np.flatnonzero(GROUP == GROUPS - 1)[:20]
    better = mended(rows, [GROUP, REGION], ONES, np.random.default_rng(0))
    assert set(GROUP[better]) == set(range(GROUPS)) and set(REGION[better]) == set(range(REGIONS))
    assert len(set(better)) == 20 and np.isin(better[:9], rows).all()  # the last ones went


@pytest.mark.parametrize("start", ["subset", "spread"])
def test_starts_weigh_what_groups_and_classes_do(start):
    units = parametrise(DATA, Simplex(), frozenset({"x", "weights"}), 2, (1, 2))
    leaves, rows = start_leaves(units, DATA, 40, start, jax.random.key(0))
    points = units.build(leaves)
    np.testing.assert_array_equal(points.x[:, 1:], DATA.x[rows, 1:])
    weights, group = np.asarray(points.weights, float), np.asarray(points.x[:, 2]).astype(int)
    region = np.asarray(points.x[:, 1]).astype(int)
    np.testing.assert_allclose(mass(group, weights), mass(GROUP), rtol=1e-3)
    np.testing.assert_allclose(mass(region, weights), mass(REGION), rtol=0.05)
    np.testing.assert_allclose(mass(np.asarray(points.y), weights), mass(LABELS), rtol=0.05)


def test_a_sample_gets_the_groups_it_lacks():
    sample = with_groups(DATA.take(np.arange(GROUPS, 200)), DATA, (1, 2))
    group = np.asarray(sample.x[:, 2]).astype(int)
    assert len(sample) == 200 - GROUPS + 1  # group 0 is one row, which was left out
    np.testing.assert_allclose(mass(group, np.asarray(sample.weights)), mass(GROUP), rtol=1e-4)
    assert with_groups(DATA, DATA, (1, 2)) is DATA


def model_of_groups():
    def log_likelihood(p, x, y):
        logits = p["level"][x[:, 2].astype(int)] + p["region"][x[:, 1].astype(int)] + p["slope"] * x[:, 0]
        return y * logits - jax.nn.softplus(logits)

    start = {"level": jnp.zeros(GROUPS), "region": jnp.zeros(REGIONS), "slope": jnp.zeros(())}
    prior = lambda p: -0.5 * jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in p.values()]))  # noqa: E731
    return cvi.models.FromCallables(prior, log_likelihood, start, num_classes=2)


SENTENCE = (
    "The coreset has 9 points for 12 groups of column 'group': 3 groups are represented by their prior "
    "alone; use at least 12 points."
)


def test_a_coreset_smaller_than_its_groups_says_so():
    assert too_few_points(DATA, (1, 2), 9) == SENTENCE
    assert too_few_points(DATA, (1, 2), 12) is None and too_few_points(DATA, (0,), 3) is None
    model = model_of_groups()
    with pytest.warns(UserWarning) as caught:
        plan = cvi.BBPSVI(9).settle(model, DATA)
    assert [str(one.message) for one in caught] == [SENTENCE]
    assert plan.parametrisation.still == (1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = cvi.BBPSVI(40).settle(model, DATA)
        state = plan.start(jax.random.key(0))
    assert plan.init == "best"
    points = plan.parametrisation.build({**state.frozen, **state.learned})
    group, weights = np.asarray(points.x[:, 2]).astype(int), np.asarray(points.weights, float)
    np.testing.assert_allclose(mass(group, weights), mass(GROUP), rtol=1e-3)
    assert set(np.asarray(points.x[:, 1])) == set(range(REGIONS))
