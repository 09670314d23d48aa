"""The table of an experiment beside the paper's (Markdown, CSV), from records alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coresetvi.data import files as tables
from coresetvi.storage import write_file
from coresetvi.workflows import records
from coresetvi.workflows.comparison import mean_and_error, with_error

from .cells import ALL, PaperCell
from .experiment import Experiment
from .pictures import draw_views

# Scores, what to call them, and their digits; papers give accuracies in percent.
SCORES = {
    "accuracy": ("accuracy", ".2f"),
    "rmse": ("RMSE", ".4g"),
    "nll": ("NLL", ".3f"),
    "ece": ("ECE", ".3f"),
    "brier": ("Brier", ".3f"),
    "kl": ("KL", ".3g"),
    "ess_10": ("ESS of 10", ".2f"),
    "ess_1000": ("ESS of 1,000", ".2f"),
    "khat": ("k-hat", ".2f"),
}
PERCENT = ("accuracy",)
PROTOCOLS = ("fresh", "warm", "transfer")
UNKNOWN = mean_and_error([])


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
    for row in rows:
        row |= {"gap": gap(experiment, rows, row, "fresh"), "paper_gap": gap(experiment, rows, row, "paper")}
    return rows


def gap(
    experiment: Experiment, rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any], source: str
) -> float | None:
    """How far the metric is from that of the reference on the same problem, ours or the paper's."""

    def mean(row: Mapping[str, Any]) -> float | None:
        return (row["paper"] if source == "paper" else row["fresh"].get(experiment.metric, UNKNOWN))["mean"]

    base = [one for one in rows if (one["problem"], one["id"]) == (row["problem"], experiment.reference)]
    here, there = mean(row), mean(base[0]) if base else None
    if row["id"] == experiment.reference or here is None or there is None:
        return None
    return here - there


def averages(group: Sequence[Mapping[str, Any]], protocol: str) -> dict[str, dict[str, float | None]]:
    """Mean and standard error of every score that the records have for this protocol."""
    known = [record[protocol] for record in group if record.get(protocol) is not None]
    names = [name for name in SCORES if any(name in scores for scores in known)]
    return {
        name: mean_and_error(
            [scores[name] * (100.0 if name in PERCENT else 1.0) for scores in known if name in scores]
        )
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
    transfers, warm = any(row["transfer"] for row in rows), any(row["warm"] for row in rows)
    gaps, papers = any(row["gap"] is not None for row in rows), bool(experiment.paper)
    label, digits = SCORES[metric]
    unit = " %" if metric in PERCENT else ""
    header = [
        *(["problem"] if len(experiment.problems) > 1 else []),
        *("method", "M", "keys", f"{label}{unit}", *([f"paper{unit}"] if papers else [])),
        *(["gap", *(["paper's gap"] if papers else [])] if gaps else []),
        *([f"warm{unit}"] if warm else []),
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
                *([with_error(row["paper"], digits)] if papers else []),
                *([signed(row["gap"], digits)] if gaps else []),
                *([signed(row["paper_gap"], digits)] if gaps and papers else []),
                *([with_error(row["warm"].get(metric, UNKNOWN), digits)] if warm else []),
                *([with_error(row["transfer"].get(metric, UNKNOWN), digits)] if transfers else []),
                *(with_error(row["fresh"].get(name, UNKNOWN), SCORES[name][1]) for name in others),
                with_error({**row["minutes"], "standard_error": None}, ".1f"),
            ]
        )
    return header, lines


def plain_markdown(text: str) -> str:
    """Text that Markdown shows as it is.

    >>> print(plain_markdown("v*,u"))
    v\\*,u
    """
    return text.replace("*", "\\*")


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown.

    >>> markdown_table(["M"], [["10"]])
    ['| M |', '| --- |', '| 10 |']
    """
    cells = [header, ["---"] * len(header), *lines]
    return [f"| {' | '.join(map(plain_markdown, line))} |" for line in cells]


def signed(value: float | None, digits: str) -> str:
    """A difference with its sign; a dash for what is unknown.

    >>> signed(0.5, ".2f"), signed(None, ".2f")
    ('+0.50', '-')
    """
    return "-" if value is None else f"{value:+{digits}}"


def markdown(experiment: Experiment, rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> str:
    """The report as Markdown: title, table, what its columns mean, notes."""
    header, lines = table_lines(experiment, rows)
    text = [f"# {experiment.title}", ""]
    text += markdown_table(header, lines)
    text += ["", *explanation(experiment, rows), ""]
    text += [f"- {note}" for note in notes]
    return "\n".join(text).rstrip() + "\n"


def explanation(experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the columns of the table mean, in a few lines."""
    label = SCORES[experiment.metric][0]
    found = [f"Mean ± standard error over keys; {experiment.num_samples} draws to score with."]
    if any(row["warm"] for row in rows):
        found += [
            f"{label} is that of a posterior trained anew on the coreset alone, warm that of the posterior",
            "which the construction ended with; the other scores are those of the former.",
        ]
    if any(row["gap"] is not None for row in rows):
        found.append(f"A gap is {label} minus that of {experiment.method(experiment.reference or '').name}.")
    found.append("Minutes are those of a whole cell.")
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
    columns |= {name: [row[name] for row in rows] for name in ("gap", "paper_gap")}
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
            cell = PaperCell.of(record)
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
        text = markdown(experiment, rows, record_notes(found))
        write_file(places["table"], text.encode("utf-8"))
        tables.write_table(places["csv"], flat_columns(rows), overwrite=True)
        places |= draw_views(experiment, rows, found, out)
    return rows, {name: str(place) for name, place in places.items()}
