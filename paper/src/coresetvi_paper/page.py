"""The page of all tables and figures beside the paper's, from records that are packed into one file each."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coresetvi.storage import write_file
from coresetvi.workflows.comparison import with_error

from .cells import ALL
from .differences import sentences
from .experiment import OURS, PAPER, Experiment
from .experiment_files import experiment_names, read_experiment
from .packed_records import FIGURES, PACKS, SUFFIX, image_files, read_pack
from .pictures import draw_views
from .result_table import (
    PERCENT,
    SCORES,
    UNKNOWN,
    explanation,
    markdown_table,
    signed,
    summarise,
    table_lines,
)

PAGE = "reproduction.md"
MOST_SENTENCES = 12  # more are folded away
HEAD = """# The paper again

Every table and figure of the paper, made by one command each and from records alone. *Ours* are the defaults
of this library; the *paper's settings* are its hyper-parameters (Tables 4 and 5) in our code, as far as they
carry over: rates are in our units, r starts where the last outer step left it, and the number of outer steps
is ours.

    coresetvi reproduce all --out results                     # hours; what is finished is not run again
    coresetvi reproduce all --settings paper --out results
    python -m coresetvi_paper results                         # packs the records and writes this page
    python -m coresetvi_paper --unpack results                # or go on from the packed ones

The same command started twice shares the fits between two processes, best one a core;
`coresetvi reproduce all --quick` runs a miniature of each. The records are in `paper/records`, one line of
JSON a cell: configuration, version, seed, scores, times and the load of the machine."""


def write_page(home: Path) -> Path:
    """Write the page and its figures into `home`, which has the packed records."""
    parts, missing = [HEAD], []
    for name in sorted(experiment_names(), key=reading_order):
        experiment = read_experiment(name)
        packs = {
            settings: home / PACKS / f"{experiment.folder}{'' if settings != PAPER else '-paper'}{SUFFIX}"
            for settings in (OURS, PAPER)
        }
        # A pack may have the cells of several views.
        mine = {cell.name for cell in experiment.cells()}
        kept = {settings: read_pack(place) for settings, place in packs.items() if place.is_file()}
        found = {
            settings: [record for name, (_, record) in some.items() if name in mine]
            for settings, some in kept.items()
        }
        if any(found.values()):
            parts.append(section(experiment, found, home))
        else:
            missing.append(f"`{name}`")
    if missing:
        parts.insert(1, f"There are no records yet of {', '.join(missing)}.")
    place = home / PAGE
    write_file(place, ("\n\n".join(parts) + "\n").encode("utf-8"))
    return place


def reading_order(name: str) -> tuple[bool, list[Any]]:
    """Tables first, then figures, each in the order of their numbers.

    >>> sorted(["fig-ess", "table2", "fig1", "table1"], key=reading_order)
    ['table1', 'table2', 'fig1', 'fig-ess']
    """
    number = re.fullmatch(r"(?:table|fig)(\d+)", name)
    return not name.startswith("table"), [0, int(number[1])] if number else [1, name]


def section(experiment: Experiment, found: Mapping[str, Sequence[Any]], home: Path) -> str:
    """One table or figure."""
    text = [f"## {experiment.title}", f"`coresetvi reproduce {experiment.name}`"]
    if experiment.says:
        text.append(experiment.says.strip())
    rows = {settings: summarise(experiment, some) for settings, some in found.items()}
    if OURS in found:
        drawn = draw_views(experiment, rows[OURS], found[OURS], home / FIGURES)
        pictures = [place for kind, place in drawn.items() if kind in ("picture", "animation")]
        pictures += [home / FIGURES / name for name in image_files(experiment)]
        text += [
            f"![{experiment.title}]({place.relative_to(home).as_posix()})"
            for place in pictures
            if place.is_file()
        ]
    if experiment.paper or PAPER in rows:
        text.append("\n".join(beside(experiment, rows)))
        if told := [f"- {sentence}" for sentence in sentences(experiment, rows)]:
            text.append("\n".join(told if len(told) <= MOST_SENTENCES else folded(told)))
    mine = rows.get(OURS, [])
    alone = bool(experiment.metrics) and not experiment.paper
    if mine and (alone or any(row["warm"] for row in mine)):  # the paper has nothing, or not all scores
        text.append("\n".join(markdown_table(*table_lines(experiment, mine))))
        text.append("\n".join(explanation(experiment, mine)))
    text.append(cost(found))
    return "\n\n".join(text)


def folded(told: Sequence[str]) -> list[str]:
    """Sentences that a reader opens to read."""
    head = f"<details><summary>{len(told)} cells differ from the paper's by more than two standard errors"
    return [f"{head}</summary>", "", *told, "", "</details>"]


def beside(experiment: Experiment, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """A Markdown table: the paper, the paper's settings in our code, our defaults, and the gap of each."""
    metric = experiment.metric
    label, digits = SCORES[metric]
    unit = ", %" if metric in PERCENT else ""
    places: dict[tuple[Any, ...], dict[str, Any]] = {}
    for settings, some in rows.items():
        for row in some:
            places.setdefault((row["problem"], row["method"], row["size"]), {})[settings] = row
    made = [settings for settings in (PAPER, OURS) if settings in rows]
    words = {PAPER: "paper's settings", OURS: OURS}
    sources = [*(["paper"] if experiment.paper else []), *(words[settings] for settings in made)]
    others = [name for name in experiment.metrics if name != metric]
    header = [
        *("problem", "method", "M"),
        *(f"{one}{unit}" for one in sources),
        *(f"gap, {one}" for one in sources if experiment.reference),
        *(f"{SCORES[name][0]}, {words[settings]}" for name in others for settings in made),
    ]
    lines = []
    for (problem, method, size), some in places.items():
        numbers = [score_words(some.get(settings), metric) for settings in made]
        gaps = [gap_words(some.get(settings), "fresh", metric) for settings in made]
        if experiment.paper:
            known = next(iter(some.values()))
            numbers.insert(0, with_error(known["paper"], digits))
            gaps.insert(0, gap_words(known, "paper", metric))
        gaps = gaps if experiment.reference else []
        more = [score_words(some.get(settings), name) for name in others for settings in made]
        lines.append([problem, method, ALL if size is None else str(size), *numbers, *gaps, *more])
    about = f"{label[0].upper()}{label[1:]}, mean ± standard error over keys."
    if experiment.reference:
        about += " A gap is that minus full-data VI's."
    if "kl" in others:
        about += " KL is that of the coreset's Laplace posterior to that of all rows, in nats."
    return [about, "", *markdown_table(header, lines)]


def score_words(row: Mapping[str, Any] | None, metric: str) -> str:
    """A score with its error, a dash for what is unknown."""
    return with_error(row["fresh"].get(metric, UNKNOWN) if row else UNKNOWN, SCORES[metric][1])


def gap_words(row: Mapping[str, Any] | None, source: str, metric: str) -> str:
    """The gap to full-data inference, and what part of its score that is; accuracies are parts already.

    >>> row = {"gap": 0.002, "fresh": {"nll": {"mean": 0.202}}}
    >>> gap_words(row, "fresh", "nll")
    '+0.002 (+1.0 %)'
    """
    value = None if row is None else row["gap" if source == "fresh" else "paper_gap"]
    if row is None or value is None:
        return "-"
    text = signed(value, SCORES[metric][1])
    if metric in PERCENT:
        return text
    score = row["paper"] if source == "paper" else row["fresh"][metric]
    return f"{text} ({100.0 * value / (score['mean'] - value):+.1f} %)"


def cost(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """How many cells there were, and how long they took."""
    told = []
    for settings, some in found.items():
        minutes = sum(record["total_seconds"] for record in some) / 60.0
        keys = len({record["key"] for record in some})
        failed, broken = (
            sum(record["result"] == result for record in some) for result in ("failed", "non_finite")
        )
        cells = f"{len(some)} cell{'' if len(some) == 1 else 's'}"
        words = f"{cells} with {'our settings' if settings != PAPER else 'the settings of the paper'}"
        words += f", {keys} key{'' if keys == 1 else 's'}, {minutes:.1f} minutes in all"
        words += f", {failed} failed" if failed else ""
        told.append(words + (f", {broken} stopped at numbers that were not finite" if broken else ""))
    return "*" + "; ".join(told) + ".*"
