"""Pictures: they can be made without a display, refuse what they cannot show, and leave nothing behind."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from PIL import Image

import coresetvi as cvi
from coresetvi import plots
from coresetvi.errors import InputError
from coresetvi.plots import maps
from coresetvi.plots.figures import MOST_PIXELS, new_figure

WEIGHTS = [5.0, 0.0, 2.0, 1.0]


def made_up(num_classes, dim=2):
    """A fit that nobody fitted: pictures need its parts, not their quality."""
    if num_classes is None:
        model = cvi.models.PoissonRegression(dim)
    elif num_classes == 2:
        model = cvi.models.LogisticRegression(dim)
    else:
        model = cvi.models.SoftmaxRegression(dim, num_classes)
    family = cvi.families.MeanField()
    x = np.arange(4.0 * dim).reshape(4, dim)
    return cvi.Fit(
        coreset=cvi.Dataset(x, np.arange(4) % (num_classes or 2), WEIGHTS),
        model=model,
        family=family,
        psi=family.init(jnp.zeros(model.dim), jnp.ones(model.dim)),
        construction=None,
        history={"loss": np.array([2.0, 1.0, np.nan]), "kl": np.ones(3), "ess": np.full(3, 0.5)},
        result="finished",
        key=jax.random.key(0),
        seconds={"compile": 0.0, "run": 0.0},
        about={},
    )


@pytest.mark.parametrize("num_classes", [2, 3])
def test_entropy_is_between_zero_and_its_largest_value(num_classes):
    entropy = plots.predictive_entropy(made_up(num_classes), maps.grid((-3.0, 3.0, -3.0, 3.0), 5)[2])
    assert entropy.shape == (25,)
    assert np.all(entropy >= 0) and np.all(entropy <= np.log(num_classes) + 1e-5)
    # At the origin the linear predictor is zero whatever theta is: no class is preferred there by two.
    assert entropy[12] == pytest.approx(np.log(2), abs=1e-5) or num_classes > 2


def offsets(collection: Collection) -> np.ndarray:
    return np.asarray(collection.get_offsets())


def sizes_of(collection: Collection) -> np.ndarray:
    assert isinstance(collection, PathCollection)
    return collection.get_sizes()


@pytest.mark.parametrize("num_classes", [2, 3])
def test_entropy_map_draws_data_and_points(num_classes):
    fit = made_up(num_classes)
    axes = Figure().subplots()
    image = plots.entropy_map(axes, fit, data=fit.coreset, resolution=7, title="a title")
    assert image.get_clim() == (0.0, pytest.approx(np.log(num_classes)))
    classes = len(np.unique(np.asarray(fit.coreset.y)))
    assert axes.get_title() == "a title" and len(axes.collections) == 1 + 2 * classes
    # The classes of the data, then those of the points, each with a shape of its own.
    data, points = axes.collections[1 : 1 + classes], axes.collections[1 + classes :]
    shapes = [str(np.asarray(one.get_paths()[0].vertices).tolist()) for one in points]
    assert len(set(shapes)) == classes > 1
    assert [len(offsets(one)) for one in data] == [len(offsets(one)) for one in points]
    where = np.concatenate([offsets(one) for one in points])
    sizes = np.concatenate([sizes_of(one) for one in points])
    heaviest = fit.coreset.x[np.argmax(fit.coreset.weights)]
    np.testing.assert_allclose(where[sizes.argmax()], heaviest, rtol=1e-6)
    assert sizes.min() == maps.SMALLEST_MARKER


def test_large_figures_have_few_pixels_and_colours(tmp_path):
    figure = new_figure(20.0, 30.0)
    figure.subplots().imshow(np.random.default_rng(0).normal(size=(60, 90)), cmap="cividis")
    plots.save_figure(figure, tmp_path / "large.png")
    with Image.open(tmp_path / "large.png") as picture:
        width, height = picture.size
        assert picture.mode == "P" and width * height <= MOST_PIXELS
        assert height / width == pytest.approx(1.5, rel=0.01)


def test_figures_are_saved_without_pyplot(tmp_path):
    fit = made_up(2)
    bounds = maps.around(fit.coreset)
    panels = [{"fit": fit, "title": "one"}, {"fit": fit, "title": "two", "points": False}]
    figures = [
        plots.entropy_figure(panels, fit.coreset, bounds, resolution=6),
        plots.weights_plot(fit),
        plots.history_plot(fit),
    ]
    before = "matplotlib.pyplot" in sys.modules
    for number, figure in enumerate(figures):
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 1000
    assert ("matplotlib.pyplot" in sys.modules) == before
    assert [axes.get_title() for axes in figures[0].axes][:2] == ["one", "two"]
    shares = np.array(WEIGHTS) / np.sum(WEIGHTS)
    assert f"effectively {1 / np.sum(shares**2):.1f}" in figures[1].axes[0].get_title()


def test_around_keeps_a_margin_even_about_a_single_point():
    left, right, bottom, top = maps.around(cvi.Dataset([[1.0, 2.0]]))
    assert left < 1 < right and bottom < 2 < top


def test_what_cannot_be_drawn_is_refused():
    axes = Figure().subplots()
    with pytest.raises(InputError, match="2 columns, but this fit has 3"):
        plots.entropy_map(axes, made_up(2, dim=3))
    with pytest.raises(InputError, match="is a regression"):
        plots.predictive_entropy(made_up(None), np.zeros((1, 2)))
    with pytest.raises(InputError, match="no history"):
        plots.history_plot(cvi.Fit(**{**vars(made_up(2)), "history": {}}))


def test_without_matplotlib_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r'pip install "coresetvi\[cli\]"'):
        plots.weights_plot(made_up(2))
