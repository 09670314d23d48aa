"""Scores beside those of a paper: the picture shows what there is."""

from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from coresetvi.errors import InputError
from coresetvi_paper.score_plots import draw_scores


def row(method, size, mean, error, keys=3):
    return {"method": method, "size": size, "keys": keys, "value": {"mean": mean, "standard_error": error}}


def error_bars(axes: Axes) -> list[Any]:
    """The containers of a panel, which are all of error bars."""
    assert all(isinstance(one, ErrorbarContainer) for one in axes.containers)
    return list(axes.containers)


def test_accuracies_stand_beside_those_of_the_paper():
    ours = [row("a", 30, 90.0, 1.0), row("a", 10, 80.0, None, keys=1), row("all of it", None, 99.0, 0.5)]
    paper = [row("a", 10, 50.0, 2.0), row("b", 10, 40.0, 0.0), row("b", 30, None, None)]
    figure = draw_scores(ours, paper=paper, title="a title")
    left, right = figure.axes
    assert left.get_title() == "ours, 1 to 3 keys" and right.get_title() == "paper"
    line, *more = error_bars(left)
    assert not more
    first, second = error_bars(right)
    assert line.lines[0].get_xydata().tolist() == [[10.0, 80.0], [30.0, 90.0]]
    segments = [segment[:, 1].tolist() for segment in line.lines[2][0].get_segments()]
    assert segments == [[80.0, 80.0], [89.0, 91.0]]
    assert [one.lines[0].get_ydata().tolist() for one in (first, second)] == [[50.0], [40.0]]
    # The same method looks the same in both panels, another one differs in more than its colour.
    mine, same, other = line.lines[0], first.lines[0], second.lines[0]
    assert mine.get_marker() == same.get_marker() != other.get_marker()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "all of it", "b"]
    assert left.get_ylim() == right.get_ylim() and left.get_xlabel() and left.get_ylabel()


def test_without_a_paper_there_is_one_panel_and_without_results_none():
    assert len(draw_scores([row("a", 10, 80.0, None)]).axes) == 1
    with pytest.raises(InputError, match="no result"):
        draw_scores([], paper=[row("a", 10, 50.0, 2.0)])
