"""Pictures of coresets of images, and of accuracies beside those of a paper: they show what there is."""

import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.plots import images as image_plots

RNG = np.random.default_rng(0)


def images(count, shape, y=None, weights=None):
    return cvi.Dataset(RNG.normal(size=(count, *shape)), y, weights)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 1), (4, 6, 3)])
def test_every_image_is_shown_with_its_label_and_weight(shape):
    weights = np.array([5.0, 250.0, 1.0])
    shares = np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])
    data = images(3, shape, shares, weights)
    axes = image_plots.draw_images(data, title="some").axes[0]
    # The two of class 0 first, the heavier one before the other.
    assert [text.get_text() for text in axes.texts] == ["250", "1", "5"]
    x = np.asarray(data.x)
    low, top = np.quantile(x, image_plots.LEVELS)
    for drawn, index in zip(axes.images, [1, 2, 0], strict=True):
        expected = np.clip((x[index] - low) / (top - low), 0.0, 1.0)
        np.testing.assert_allclose(drawn.get_array(), expected.squeeze(), rtol=1e-5, atol=1e-6)
    loads, bars = ([path.vertices[:4] for path in collection.get_paths()] for collection in axes.collections)
    widths = [np.ptp(corners[:, 0]) for corners in loads]
    np.testing.assert_allclose(widths, [1.0, 1 / 250, 5 / 250])
    # A ground line and two classes for each image.
    heights = np.array([np.ptp(corners[:, 1]) for corners in bars]).reshape(3, 3)[:, 1:]
    np.testing.assert_allclose(heights / heights.max(), shares[[1, 2, 0]], atol=1e-6)


def test_many_images_are_limited_to_the_heaviest():
    data = images(7, (2, 2), np.zeros(7, int), np.arange(1.0, 8.0))
    figure = image_plots.draw_images(data, most=3, num_classes=2)
    assert [text.get_text() for text in figure.axes[0].texts] == ["7", "6", "5"]
    assert figure.get_suptitle() == "the 3 heaviest of 7 images"


def test_images_need_no_labels_and_may_be_all_the_same():
    axes = image_plots.draw_images(cvi.Dataset(np.ones((2, 3, 3)), np.array([0.5, 1.5]))).axes[0]
    assert len(axes.images) == 2 and not axes.collections[1].get_paths()


def test_what_is_no_image_is_refused():
    for shape in [(3,), (2, 2, 2), (2, 2, 1, 1)]:
        with pytest.raises(InputError, match="are no images"):
            image_plots.draw_images(images(2, shape))


def row(method, size, mean, error, keys=3):
    return {"method": method, "size": size, "keys": keys, "value": {"mean": mean, "standard_error": error}}


def test_accuracies_stand_beside_those_of_the_paper():
    ours = [row("a", 30, 90.0, 1.0), row("a", 10, 80.0, None, keys=1), row("all of it", None, 99.0, 0.5)]
    paper = [row("a", 10, 50.0, 2.0), row("b", 10, 40.0, 0.0), row("b", 30, None, None)]
    figure = image_plots.draw_accuracy(ours, paper=paper, title="a title")
    left, right = figure.axes
    assert left.get_title() == "ours, 1 to 3 keys" and right.get_title() == "paper"
    (line,) = left.containers
    assert line.lines[0].get_xydata().tolist() == [[10.0, 80.0], [30.0, 90.0]]
    segments = [segment[:, 1].tolist() for segment in line.lines[2][0].get_segments()]
    assert segments == [[80.0, 80.0], [89.0, 91.0]]
    assert [one.lines[0].get_ydata().tolist() for one in right.containers] == [[50.0], [40.0]]
    # The same method looks the same in both panels, another one differs in more than its colour.
    mine, same, other = line.lines[0], right.containers[0].lines[0], right.containers[1].lines[0]
    assert mine.get_marker() == same.get_marker() != other.get_marker()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "all of it", "b"]
    assert left.get_ylim() == right.get_ylim() and left.get_xlabel() and left.get_ylabel()


def test_without_a_paper_there_is_one_panel_and_without_results_none():
    assert len(image_plots.draw_accuracy([row("a", 10, 80.0, None)]).axes) == 1
    with pytest.raises(InputError, match="no result"):
        image_plots.draw_accuracy([], paper=[row("a", 10, 50.0, 2.0)])
