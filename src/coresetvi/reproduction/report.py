"""The table of an experiment beside the paper's (Markdown, CSV) and its pictures, from records alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import coresetvi as cvi

from .. import image_plots, plots, records, tables
from ..compare import mean_and_error, with_error
from .experiment import ALL, Cell, Experiment
from .run import FITS

IMAGES = "images"
# Scores, what to call them, and their digits; papers give accuracies in percent.
SCORES = {
    "accuracy": ("accuracy", ".2f"),
    "rmse": ("RMSE", ".4g"),
    "nll": ("NLL", ".3f"),
    "ece": ("ECE", ".3f"),
    "brier": ("Brier", ".3f"),
}
PERCENT = ("accuracy",)
PROTOCOLS = ("fresh", "warm", "transfer")
UNKNOWN = mean_and_error([])
ROW_AXES = (2, 3)  # of an image: height, width and perhaps colours


def summarise(experiment: Experiment, found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a problem, method and size: mean and standard error over keys, and what the paper has.

    `fresh`, `warm` and `transfer` hold every score by name; accuracies are in percent.
    """
    groups: dict[tuple[str, str, int | None], list[Mapping[str, Any]]] = {}
    for record in found:
        groups.setdefault((record["problem"], record["method"], record["size"]), []).append(record)
    rows = []
    for problem in experiment.problems:
        for method in experiment.methods:
            sizes = [size for one, other, size in groups if (one, other) == (problem.id, method.id)]
            for size in sorted(sizes, key=lambda size: (size is None, size)):
                group = groups[problem.id, method.id, size]
                done = [record for record in group if record["result"] != "failed"]
                row: dict[str, Any] = {"problem": problem.id, "id": method.id, "method": method.name}
                row |= {"size": size, "keys": len(done), "failed": len(group) - len(done)}
                row |= {protocol: averages(done, protocol) for protocol in PROTOCOLS}
                row["minutes"] = mean_and_error([record["total_seconds"] / 60.0 for record in done])
                rows.append(row | {"paper": paper_number(experiment, problem.id, method.name, size)})
    return rows


def averages(group: Sequence[Mapping[str, Any]], protocol: str) -> dict[str, dict[str, float | None]]:
    """Mean and standard error of every score that the records have for this protocol."""
    known = [record[protocol] for record in group if record[protocol] is not None]
    names = [name for name in SCORES if any(name in scores for scores in known)]
    return {
        name: mean_and_error([scores[name] * (100.0 if name in PERCENT else 1.0) for scores in known])
        for name in names
    }


def paper_number(
    experiment: Experiment, problem: str, method: str, size: int | None
) -> dict[str, float | None]:
    """What the paper has in that place of its table."""
    wanted = (problem, experiment.metric, method, ALL if size is None else size)
    for *place, mean, error in experiment.paper:
        if tuple(place) == wanted:
            return {"mean": float(mean), "standard_error": float(error)}
    return UNKNOWN


def table_lines(
    experiment: Experiment, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    """The table for people, as header and lines of text."""
    metric = experiment.metric
    others = [name for name in SCORES if name != metric and any(name in row["fresh"] for row in rows)]
    transfers = any(row["transfer"] for row in rows)
    label, digits = SCORES[metric]
    unit = " %" if metric in PERCENT else ""
    header = [
        *(["problem"] if len(experiment.problems) > 1 else []),
        *("method", "M", "keys", f"{label}{unit}", f"paper{unit}", f"warm{unit}"),
        *([f"other model{unit}"] if transfers else []),
        *(SCORES[name][0] for name in others),
        "minutes",
    ]
    lines = []
    for row in rows:
        failed = f" ({row['failed']} failed)" if row["failed"] else ""
        lines.append(
            [
                *([row["problem"]] if len(experiment.problems) > 1 else []),
                *(row["method"], ALL if row["size"] is None else f"{row['size']:,}"),
                f"{row['keys']}{failed}",
                with_error(row["fresh"].get(metric, UNKNOWN), digits),
                with_error(row["paper"], digits),
                with_error(row["warm"].get(metric, UNKNOWN), digits),
                *([with_error(row["transfer"].get(metric, UNKNOWN), digits)] if transfers else []),
                *(with_error(row["fresh"].get(name, UNKNOWN), SCORES[name][1]) for name in others),
                with_error({**row["minutes"], "standard_error": None}, ".1f"),
            ]
        )
    return header, lines


def markdown(experiment: Experiment, rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> str:
    """The report as Markdown: title, table, what its columns mean, notes."""
    header, lines = table_lines(experiment, rows)
    text = [f"# {experiment.title}", ""]
    text += [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines)]
    text += ["", *explanation(experiment, rows), ""]
    text += [f"- {note}" for note in notes]
    return "\n".join(text).rstrip() + "\n"


def explanation(experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the columns of the table mean, in a few lines."""
    label = SCORES[experiment.metric][0]
    found = [
        f"{label} is that of a posterior trained anew on the coreset alone, warm that of the posterior which",
        "the construction ended with; the other scores are those of the former. Mean ± standard error over",
        f"keys; {experiment.num_samples} draws, not importance-corrected; minutes are those of a whole cell.",
    ]
    if any(row["transfer"] for row in rows):
        found.append("The other model was trained on the same coreset, which was not made for it.")
    return found


def flat_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The rows as columns of plain numbers, for machines."""
    columns: dict[str, list[Any]] = {
        name: [row[name] for row in rows] for name in ("problem", "id", "method", "size", "keys", "failed")
    }
    for protocol in PROTOCOLS:
        for name in (name for name in SCORES if any(name in row[protocol] for row in rows)):
            for part in ("mean", "standard_error"):
                columns[f"{protocol}_{name}_{part}"] = [row[protocol].get(name, {}).get(part) for row in rows]
    for name in ("paper", "minutes"):
        for part in ("mean", "standard_error"):
            columns[f"{name}_{part}"] = [row[name][part] for row in rows]
    return columns


def record_notes(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a reader of the table has to know: cells that failed or ended early, versions that were mixed."""
    found = list(found)
    versions = sorted({str(record["version"]) for record in found})
    notes = [f"records of several versions: {', '.join(versions)}"] if len(versions) > 1 else []
    for record in found:
        if record["result"] in ("failed", "non_finite"):
            cell = Cell(*(record[name] for name in ("problem", "method", "size", "key")))
            notes.append(f"{cell}: {record['explanation']}")
    return notes


def write_report(
    experiment: Experiment, found: Sequence[Mapping[str, Any]], out: Path
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Write table and pictures into `out`; the rows of the table, and the files by what they are."""
    rows = summarise(experiment, found)
    places = {"records": out / records.FOLDER}
    if rows:
        name = experiment.name
        places |= {"table": out / f"{name}.md", "csv": out / f"{name}.csv"}
        records.replace_file(places["table"], markdown(experiment, rows, record_notes(found)))
        tables.write_table(places["csv"], flat_columns(rows), overwrite=True)
        if any(row["fresh"] for row in rows):
            places["picture"] = out / f"{name}.png"
            plots.save_figure(picture(experiment, rows), places["picture"])
        if write_images(found, out):
            places["images"] = out / IMAGES
    return rows, {name: str(place) for name, place in places.items()}


def picture(experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> Any:
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
    label = SCORES[metric][0] + (" (%)" if metric in PERCENT else "")
    return image_plots.draw_accuracy(ours, paper=paper, label=label, title=experiment.title)


def write_images(found: Sequence[Mapping[str, Any]], out: Path) -> int:
    """Pictures of the coresets of images of the first key that are not there yet; how many there are."""
    first: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for record in sorted(found, key=lambda record: record["key"]):
        if len(record.get("row_shape", ())) in ROW_AXES and record["size"] is not None:
            first.setdefault((record["problem"], record["method"], record["size"]), record)
    count = 0
    for record in first.values():
        cell = Cell(*(record[name] for name in ("problem", "method", "size", "key")))
        file, place = out / IMAGES / f"{cell.name}.png", out / FITS / cell.name
        if not place.is_dir():  # a record whose fit was deleted is a record all the same
            continue
        if not file.exists() or file.stat().st_mtime < place.stat().st_mtime:
            fit = cvi.load(place)
            plots.save_figure(image_plots.draw_images(fit, title=str(cell)), file)
        count += 1
    return count
