"""Pictures of coresets of images: they show what there is."""

import numpy as np
import pytest

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.plots import image_grid

RNG = np.random.default_rng(0)


def images(count, shape, y=None, weights=None):
    return cvi.Dataset(RNG.normal(size=(count, *shape)), y, weights)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 1), (4, 6, 3)])
def test_every_image_is_shown_with_its_label_and_weight(shape):
    weights = np.array([5.0, 250.0, 1.0])
    shares = np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])
    data = images(3, shape, shares, weights)
    axes = image_grid.draw_images(data, title="some").axes[0]
    # The two of class 0 first, the heavier one before the other.
    assert [text.get_text() for text in axes.texts] == ["250", "1", "5"]
    x = np.asarray(data.x)
    low, top = np.quantile(x, image_grid.LEVELS)
    for drawn, index in zip(axes.images, [1, 2, 0], strict=True):
        expected = np.clip((x[index] - low) / (top - low), 0.0, 1.0)
        shown = drawn.get_array()
        assert shown is not None
        np.testing.assert_allclose(shown, expected.squeeze(), rtol=1e-5, atol=1e-6)
    loads, bars = (
        [np.asarray(path.vertices)[:4] for path in collection.get_paths()] for collection in axes.collections
    )
    widths = [np.ptp(corners[:, 0]) for corners in loads]
    np.testing.assert_allclose(widths, [1.0, 1 / 250, 5 / 250])
    # A ground line and two classes for each image.
    heights = np.array([np.ptp(corners[:, 1]) for corners in bars]).reshape(3, 3)[:, 1:]
    np.testing.assert_allclose(heights / heights.max(), shares[[1, 2, 0]], atol=1e-6)


def test_many_images_are_limited_to_the_heaviest():
    data = images(7, (2, 2), np.zeros(7, int), np.arange(1.0, 8.0))
    figure = image_grid.draw_images(data, most=3, num_classes=2)
    assert [text.get_text() for text in figure.axes[0].texts] == ["7", "6", "5"]
    assert figure.get_suptitle() == "the 3 heaviest of 7 images"


def test_images_need_no_labels_and_may_be_all_the_same():
    axes = image_grid.draw_images(cvi.Dataset(np.ones((2, 3, 3)), np.array([0.5, 1.5]))).axes[0]
    assert len(axes.images) == 2 and not axes.collections[1].get_paths()


def test_what_is_no_image_is_refused():
    for shape in [(3,), (2, 2, 2), (2, 2, 1, 1)]:
        with pytest.raises(InputError, match="are no images"):
            image_grid.draw_images(images(2, shape))
