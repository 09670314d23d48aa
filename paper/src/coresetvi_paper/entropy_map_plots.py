"""Pictures and animations of the maps that `entropy_maps` keeps in records."""

import textwrap
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coresetvi.errors import InputError
from coresetvi.plots import figures, maps

from .entropy_maps import decode_entropy, points_of
from .experiment import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
WIDTH = 2.9  # inches of a map
SHOWN = 4  # maps of a problem in a picture, of as many as there are
FRAME_MILLISECONDS = 400
NOTE = f"Axes: the two inputs.  {maps.MARKS}"


def draw_planes(experiment: Experiment, found: Rows) -> "Figure":
    """A column a method and a row a map, of key 0: `drawing.rows` = "problems" has the last map of each."""
    last = experiment.drawing.get("rows") == "problems"
    lines: list[tuple[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]] = []
    for problem in experiment.problems:
        chosen = records_of(experiment, found, problem.id)
        if not chosen:
            continue
        wanted = experiment.drawing.get("shown")
        rows = [
            [one for one in record["plane"]["maps"] if wanted is None or one["name"] in wanted]
            for record in chosen
        ]
        count = min(len(maps) for maps in rows)
        if not count:
            raise InputError(f"the records of {experiment.name} have no map that it shows; run it anew")
        picks = [count - 1] if last else spread(count, SHOWN)
        for pick in picks:
            names = {maps[pick]["name"] for maps in rows}
            moment = names.pop() if len(names) == 1 else f"{Fraction(pick, count - 1)} of the steps"
            label = problem.id if last else f"{problem.id}: {moment}"
            pairs = [(record, maps[pick]) for record, maps in zip(chosen, rows, strict=True)]
            lines.append((label, pairs))
    if not lines:
        raise InputError(f"{experiment.name} has no record of key 0 to draw; run it")
    return picture(experiment, lines)


def picture(experiment: Experiment, lines: Sequence[tuple[str, list[tuple[Any, Any]]]]) -> "Figure":
    """Maps in rows that have a label, under the names of the methods; those of a single method in one row."""
    names = {one.id: one.name for one in experiment.methods}
    single = len(lines[0][1]) == 1
    rows, columns = (1, len(lines)) if single else (len(lines), len(lines[0][1]))
    figure = figures.new_figure(
        WIDTH * columns + 1.2, (tallness(lines[0][1][0][0]) * WIDTH + 0.45) * rows + 1.0
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    image: Any = None
    for row, ((label, pairs), line) in enumerate(zip(lines, grid.T if single else grid, strict=True)):
        for number, (record, one) in enumerate(pairs):
            axes = line[number]
            image = draw_map(axes, record, one)
            scores = one["scores"]
            title = f"accuracy {100.0 * scores['accuracy']:.1f} %, NLL {scores['nll']:.3f}"
            if single or row == 0:
                title = f"{label if single else names[record['method']]}\n{title}"
            axes.set_title(title, fontsize=9)
            axes.tick_params(labelsize=7)
        if not single:
            line[0].set_ylabel(label, fontsize=10)
    bar = figure.colorbar(image, ax=grid, shrink=0.6, pad=0.02, aspect=12 * rows)
    bar.set_ticks([0.0, image.get_clim()[1]], labels=["none", "most"])
    bar.set_label("predictive entropy", fontsize=10)
    figure.suptitle(wrapped(f"{experiment.title} (key 0)", figure), fontsize=11)
    figure.supxlabel(wrapped(NOTE, figure), fontsize=9)
    return figure


def tallness(record: Mapping[str, Any]) -> float:
    """Height of a map over its width."""
    left, right, bottom, top = record["plane"]["bounds"]
    return (top - bottom) / (right - left)


def wrapped(text: str, figure: "Figure") -> str:
    """A title in lines that are no longer than the picture is wide."""
    return textwrap.fill(text, max(30, int(11.5 * figure.get_figwidth())))


def draw_map(axes: Any, record: Mapping[str, Any], one: Mapping[str, Any]) -> Any:
    """One map with its data and points."""
    plane, classes = record["plane"], one["num_classes"]
    return maps.draw_plane(
        axes,
        tuple(plane["bounds"]),
        decode_entropy(one["entropy"], classes),
        num_classes=classes,
        data=points_of([row for row in plane["data"] if row[2] < classes]),
        points=points_of(one["points"]) if one["points"] else None,
    )


def records_of(experiment: Experiment, found: Rows, problem: str) -> list[Mapping[str, Any]]:
    """The records of a problem with key 0, in the order of the methods."""
    by_method = {one["method"]: one for one in found if (one["problem"], one["key"]) == (problem, 0)}
    return [by_method[method.id] for method in experiment.methods if method.id in by_method]


def spread(count: int, most: int) -> list[int]:
    """At most so many of `count` places, evenly, the first and the last among them.

    >>> spread(13, 4), spread(3, 4), spread(1, 4)
    ([0, 4, 8, 12], [0, 1, 2], [0])
    """
    shown = min(count, most)
    return [round(number * (count - 1) / max(shown - 1, 1)) for number in range(shown)]


def write_animation(experiment: Experiment, found: Rows, place: Path) -> None:
    """All frames of every problem and method, side by side, as a GIF."""
    from matplotlib.animation import FuncAnimation, PillowWriter

    chosen = [
        (problem.id, records_of(experiment, found, problem.id))
        for problem in experiment.problems
        if records_of(experiment, found, problem.id)
    ]
    columns = max(len(records) for _, records in chosen)
    high = sum(0.8 * WIDTH * tallness(records[0]) + 0.5 for _, records in chosen)
    figure = figures.new_figure(0.8 * WIDTH * columns + 0.6, high + 0.5)
    grid = figure.subplots(len(chosen), columns, squeeze=False)
    names = {one.id: one.name for one in experiment.methods}
    frames = max(len(record["plane"]["maps"]) for _, records in chosen for record in records)

    def draw(frame: int) -> list[Any]:
        for (problem, records), line in zip(chosen, grid, strict=True):
            for record, axes in zip(records, line, strict=False):
                axes.clear()
                maps = record["plane"]["maps"]
                one = maps[min(frame, len(maps) - 1)]
                draw_map(axes, record, one)
                axes.set_title(f"{names[record['method']]}\n{one['name']}", fontsize=8)
                axes.tick_params(labelsize=6)
            line[0].set_ylabel(problem, fontsize=9)
        return []

    figure.suptitle(wrapped(experiment.title, figure), fontsize=10)
    place.parent.mkdir(parents=True, exist_ok=True)
    moving = FuncAnimation(figure, draw, frames=frames, interval=FRAME_MILLISECONDS)
    moving.save(place, writer=PillowWriter(fps=round(1000 / FRAME_MILLISECONDS)), dpi=70)
