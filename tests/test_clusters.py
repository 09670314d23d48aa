"""Lloyd's algorithm on weighted rows: clusters have the centres of mass and the masses of their rows."""

import numpy as np
import pytest

from coresetvi.data.clusters import cluster


def test_a_centre_is_the_centre_of_mass():
    # The mean of the points is 3, nearest to 4; their centre of mass is 0.75, nearest to 0.
    points, weights = np.array([[0.0], [4.0], [5.0]]), np.array([10.0, 1.0, 1.0])
    rows, mass = cluster(points, weights, np.array([[5.0]]))
    assert rows.tolist() == [0] and mass.tolist() == [12.0]
    rows, mass = cluster(points, np.ones(3), np.array([[5.0]]))
    assert rows.tolist() == [1] and mass.tolist() == [3.0]


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_a_weight_of_k_is_k_rows(copies):
    generator = np.random.default_rng(0)
    points, centres = generator.standard_normal((30, 2)), generator.standard_normal((4, 2))
    counts = 1 + np.arange(30) % 3 * (copies - 1)
    rows, mass = cluster(points, counts.astype(float), centres)
    repeated, whole = cluster(np.repeat(points, counts, axis=0), np.ones(counts.sum()), centres)
    assert np.repeat(np.arange(30), counts)[repeated].tolist() == rows.tolist()
    np.testing.assert_array_equal(mass, whole)
