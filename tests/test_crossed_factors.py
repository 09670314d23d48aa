"""Starts in data with crossed factors: pairs of levels weigh what they do in the data, as far as they can."""

import itertools

import numpy as np
import pytest

from coresetvi.constructions.crossed_factors import PairTables, exchanged
from coresetvi.constructions.group_start import cells_of, covering_rows


def mismatch(rows, factors, weights):
    """The squared norm of a matrix of weights of pairs of levels, in the units of these, less the data's."""
    total, group = 0.0, factors[0][rows]
    share = np.bincount(factors[0], weights)[group] / np.bincount(group)[group]
    for one, two in itertools.combinations_with_replacement(range(len(factors)), 2):
        for a, b in itertools.product(np.unique(factors[one]), np.unique(factors[two])):
            mine = share[(factors[one][rows] == a) & (factors[two][rows] == b)].sum()
            wanted = weights[(factors[one] == a) & (factors[two] == b)].sum()
            unit = weights[factors[one] == a].sum() * weights[factors[two] == b].sum()
            total += (1 if one == two else 2) * (mine - wanted) ** 2 / unit
    return total


def survey(seed=0, rows=3000):
    """States of very different sizes, an uneven factor and an even one, and weights of rows."""
    generator = np.random.default_rng(seed)
    state = np.concatenate(
        [np.arange(12), generator.choice(12, rows - 12, p=generator.dirichlet(np.full(12, 1.0)))]
    )
    ethnicity = generator.choice(4, rows, p=[0.7, 0.12, 0.13, 0.05])
    age = generator.choice(4, rows)
    return [state, ethnicity, age], generator.uniform(0.5, 2.0, rows)


def test_every_group_is_balanced_where_it_can_be():
    """Four rows per group can have each level of two crossed factors twice."""
    group, one, two = (part.ravel() for part in np.indices((5, 2, 2)))
    factors = [np.tile(part, 10) for part in (group, one, two)]
    weights = np.ones(200)
    # All rows of a group begin with the same levels.
    first = np.concatenate([np.flatnonzero(factors[0] == g)[::4][:4] for g in range(5)])
    assert mismatch(first, factors, weights) > 1.0
    rows = exchanged(first, factors, weights, np.random.default_rng(0))
    for crossed in factors[1:]:
        assert mismatch(rows, [factors[0], crossed], weights) == pytest.approx(0.0, abs=1e-12)
    # Exchanges are of one row each, so of all combinations together a little may be left.
    assert mismatch(rows, factors, weights) < 0.05


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pairs_go_together_better_and_groups_keep_their_numbers(seed):
    factors, weights = survey(seed)
    generator = np.random.default_rng(seed)
    first = covering_rows(factors, weights, 48, generator)
    rows = exchanged(first, factors, weights, generator)
    assert np.array_equal(factors[0][rows], factors[0][first]) and len(set(rows.tolist())) == 48
    assert all(set(codes[first]) <= set(codes[rows]) for codes in factors)
    assert mismatch(rows, factors, weights) < 0.7 * mismatch(first, factors, weights)
    # No single exchange within a group would help any more, but for those that leave a level without a row.
    best = mismatch(rows, factors, weights)
    for point in generator.choice(48, 6, replace=False):
        for row in np.flatnonzero(factors[0] == factors[0][rows[point]])[:20]:
            if row not in rows:
                other = rows.copy()
                other[point] = row
                if any(set(codes[rows]) - set(codes[other]) for codes in factors):
                    continue
                assert mismatch(other, factors, weights) > best - 1e-6


def test_tables_count_what_the_definition_says():
    factors, weights = survey(3, 400)
    cells = cells_of(factors, weights)
    tables, rows = PairTables(cells), covering_rows(factors, weights, 30, np.random.default_rng(0))
    group = factors[0][rows]
    share = np.bincount(factors[0], weights)[group] / np.bincount(group)[group]
    for row, weight in zip(rows[:-1].tolist(), share[:-1].tolist(), strict=True):
        tables.add(int(cells.of_row[row]), weight)
    before = tables.mismatch()
    last = float(share[-1])
    grown = tables.cost(cells.of_row[rows[-1:]], last)[0]
    tables.add(int(cells.of_row[rows[-1]]), last)
    assert tables.mismatch() == pytest.approx(before + grown)
    assert tables.mismatch() == pytest.approx(mismatch(rows, factors, weights))


def test_rows_of_no_weight_are_never_taken_and_one_factor_changes_nothing():
    factors, weights = survey(4)
    weights[(factors[1] == 3) & (factors[2] == 0)] = 0.0
    first = covering_rows(factors, weights, 40, np.random.default_rng(1))
    rows = exchanged(first, factors, weights, np.random.default_rng(2))
    assert np.all(weights[rows] > 0)
    assert np.array_equal(exchanged(first, factors[:1], weights, np.random.default_rng(2)), first)
