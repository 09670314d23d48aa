"""Pictures of an experiment, each from its rows and records alone. An experiment names those it wants."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import coresetvi as cvi
from coresetvi.errors import InputError
from coresetvi.plots import figures, image_grid

from . import entropy_map_plots, line_plots
from .cell_fits import FITS
from .cells import ALL, PaperCell
from .experiment import Experiment
from .score_plots import draw_scores

IMAGES = "images"
ROW_AXES = (2, 3)  # of an image: height, width and perhaps colours

Rows = Sequence[Mapping[str, Any]]


def draw_views(experiment: Experiment, rows: Rows, found: Rows, out: Path) -> dict[str, Path]:
    """Draw all that the experiment wants; the files by what they are."""
    places: dict[str, Path] = {}
    done = [record for record in found if record["result"] != "failed"]
    for name in experiment.views if done else ():
        if name not in VIEWS:
            raise InputError(
                f"{experiment.name} has the unknown view {name!r}; choose from {', '.join(VIEWS)}"
            )
        places |= VIEWS[name](experiment, rows, done, out)
    return places


def sizes(experiment: Experiment, rows: Rows, found: Rows, out: Path) -> dict[str, Path]:
    """The metric against size for the first problem, ours beside the paper's."""
    metric, problem = experiment.metric, experiment.problems[0].id
    drawn = [row for row in rows if row["problem"] == problem and metric in row["fresh"]]
    ours = [{**row, "value": row["fresh"][metric]} for row in drawn]
    paper = [
        {
            "method": method,
            "size": None if size == ALL else size,
            "value": {"mean": mean, "standard_error": error},
        }
        for one, name, method, size, mean, error in experiment.paper
        if (one, name) == (problem, metric)
    ]
    label = line_plots.LABELS[metric]
    figure = draw_scores(ours, paper=paper, label=label, title=experiment.title)
    return saved(experiment, figure, out)


def lines(experiment: Experiment, rows: Rows, found: Rows, out: Path) -> dict[str, Path]:
    """Every score of `metrics` against size or position, one panel a score and problem."""
    return saved(experiment, line_plots.draw_lines(experiment, rows), out)


def curves(experiment: Experiment, rows: Rows, found: Rows, out: Path) -> dict[str, Path]:
    """The curves of the records, one panel a problem."""
    return saved(experiment, line_plots.draw_curves(experiment, found), out)


def planes(experiment: Experiment, rows: Rows, found: Rows, out: Path) -> dict[str, Path]:
    """Maps of predictive entropy: a column a method, a row a map or a problem."""
    return saved(experiment, entropy_map_plots.draw_planes(experiment, found), out)


def animation(experiment: Experiment, rows: Rows, found: Rows, out: Path) -> dict[str, Path]:
    """All frames of the maps one after the other."""
    place = out / f"{experiment.name}.gif"
    entropy_map_plots.write_animation(experiment, found, place)
    return {"animation": place}


def images(experiment: Experiment, rows: Rows, found: Rows, out: Path) -> dict[str, Path]:
    """Pictures of the coresets of images of the first key that are not there yet."""
    first: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for record in sorted(found, key=lambda record: record["key"]):
        if len(record.get("row_shape", ())) in ROW_AXES and record["size"] is not None:
            first.setdefault((record["problem"], record["method"], record["size"]), record)
    drawn = False
    for record in first.values():
        cell = PaperCell.of(record)
        file, place = out / IMAGES / f"{cell.name}.png", out / FITS / cell.name
        if not place.is_dir():  # a record whose fit was deleted is a record all the same
            continue
        if not file.exists() or file.stat().st_mtime < place.stat().st_mtime:
            figures.save_figure(image_grid.draw_images(cvi.load(place), title=str(cell)), file)
        drawn = True
    return {"images": out / IMAGES} if drawn else {}


def saved(experiment: Experiment, figure: Any, out: Path) -> dict[str, Path]:
    """The picture in its file."""
    place = out / f"{experiment.name}.png"
    figures.save_figure(figure, place)
    return {"picture": place}


VIEWS: dict[str, Callable[[Experiment, Rows, Rows, Path], dict[str, Path]]] = {
    one.__name__: one for one in (sizes, lines, curves, planes, animation, images)
}
