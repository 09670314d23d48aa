"""The bins of the expected calibration error: 15 of them, each closed above, (k/15, (k+1)/15]."""

import numpy as np
import pytest

from coresetvi.models.score_sums import class_scores


@pytest.mark.parametrize(
    ("edge", "inside", "together"),
    [(0.6, 8.5 / 15, True), (0.6, 9.5 / 15, False), (0.8, 11.5 / 15, True), (1.0, 14.5 / 15, True)],
)
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(edge, inside, together):
    """Rows that share a bin and err in opposite directions make up for one another; others do not."""
    chances = np.array([[edge, 1.0 - edge], [inside, 1.0 - inside]])
    gaps = np.array([1.0 - edge, 0.0 - inside])
    expected = abs(gaps.sum()) / 2 if together else np.abs(gaps).sum() / 2
    found = class_scores(chances, np.array([0, 1]), np.ones(2))["ece"]
    assert found == pytest.approx(expected, rel=1e-12)
