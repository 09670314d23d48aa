"""README and docs: every Python block runs, every command exists, every link leads somewhere."""

import contextlib
import io
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

import coresetvi as cvi
from coresetvi import cli
from coresetvi.constructions import base, plain, schedule

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
# A package index shows the README without the files beside it, so its links are absolute.
REPOSITORY = "https://github.com/coresetvi/coresetvi"
FILES = (f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/raw/main/")
# Written by machine, and moved to another folder.
ELSEWHERE = {"docs/reproduction.md"}
# The paper's own package has a folder beside the library, which a copy of the library alone lacks.
PAPER = ROOT / "paper"
# A command that this package adds; without it, its options cannot be checked.
ADDED = {"reproduce"}
# Blocks that a page marks with `<!-- not run: reason -->`, by the page.
NOT_RUN = {"docs/images.md": 1, "docs/last_layer.md": 1, "README.md": 1}

# What a reader has and a test has not.
STAND_INS = """
import equinox as eqx, jax, numpyro, numpyro.distributions as dist

def my_numpyro_model(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ slope), obs=y)

my_network = eqx.nn.MLP(10, "scalar", width_size=4, depth=1, key=jax.random.key(0))
"""


# Sizes that a page shows and a test need not wait for.
SMALLER = {
    "README.md": {
        "n=5000": "n=500",
        "size=40": "size=8",
        "(40)": "(8)",
        "range(2000, 4000)": "range(200, 400)",
        "range(2000)": "range(200)",
        "sizes=(100, 20)": "sizes=(20, 8)",
        "target_kl=0.01": "target_kl=0.01, sizes=[8]",
        "cvi.sample(fit)": "cvi.sample(fit, num_samples=100, num_warmup=100)",
    },
    "docs/posterior.md": {
        "n=5000": "n=500",
        "target_kl=0.01": "target_kl=0.01, sizes=[20]",
        "cvi.sample(fit)": "cvi.sample(fit, num_samples=100, num_warmup=100)",
    },
    "docs/export.md": {
        "num_warmup=200, num_samples=500": "num_warmup=50, num_samples=50",
        "pymc.sample(500, tune=200": "pymc.sample(50, tune=50",
    },
    "docs/sklearn.md": {"[10, 20]": "[10]"},
    "docs/compare.md": {"sizes=[10, 40], keys=2": "sizes=[10], keys=1"},
    "docs/constructions.md": {"GreedyBBSparseVI(10)": "GreedyBBSparseVI(4)", "(0, 200, 400)": "(0, 200)"},
    "docs/models.md": {"num_steps=20": "num_steps=2"},
}


class Block(NamedTuple):
    """A fenced block: what stands after the fence, its text, its line in the page, and why it is not run."""

    language: str
    text: str
    line: int
    reason: str | None


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page.

    A comment `<!-- not run: reason -->` directly above a block says why it is not run.
    """
    pattern = r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$"
    return [
        Block(found["language"], found["text"], text.count("\n", 0, found.start("text")), found["reason"])
        for found in re.finditer(pattern, text, re.DOTALL | re.MULTILINE)
    ]


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks_of(page.read_text()) if block.language == "python"]


def test_blocks_are_found_with_their_lines_and_reasons():
    page = "Words\n\n```python\na = 1\n```\n\n<!-- not run: too long -->\n```python\nb\n```\n\n```\nc\n```\n"
    assert blocks_of(page) == [
        Block("python", "a = 1\n", 3, None),
        Block("python", "b\n", 8, "too long"),
        Block("", "c\n", 12, None),
    ]


def test_only_these_blocks_are_not_run():
    found = {relative(page): sum(b.reason is not None for b in python_blocks(page)) for page in PAGES}
    assert {page: number for page, number in found.items() if number} == NOT_RUN


@pytest.fixture
def few_steps(monkeypatch):
    """Fits that stop by themselves do so after ten steps: pages show how to fit, not how well it works."""

    def capped(most_steps, first_look=None):
        return schedule.open_schedule(min(most_steps, 10), first_look)

    for module in (base, plain):
        monkeypatch.setattr(module, "open_schedule", capped)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=relative)
@pytest.mark.usefixtures("quick_compilation", "few_steps")
def test_python_on_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    exec(STAND_INS, names)
    smaller = SMALLER.get(relative(page), {})
    assert all(shown in page.read_text() for shown in smaller)
    for block in python_blocks(page):
        text = block.text
        for shown, quick in smaller.items():
            text = text.replace(shown, quick)
        if block.reason is None:
            # Empty lines in front: an error then names the line of the page.
            code = compile("\n" * block.line + text, relative(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, names)


# Commands


def commands_of(page: Path) -> list[list[str]]:
    """Every `coresetvi ...` of a page, in blocks and in running text, as words."""
    text = page.read_text()
    lines = [
        line for block in blocks_of(text) if block.language != "python" for line in block.text.splitlines()
    ]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += [found.replace("\n", " ") for found in re.findall(r"`(coresetvi [^`]+)`", prose)]
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [found[1:] for found in words if found[:1] == ["coresetvi"]]


def commands() -> dict[str, Any]:
    """The command line's own, by name."""
    group: Any = typer.main.get_command(cli.build_app())
    return group.commands


def options_of(command) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_and_their_options_exist(page):
    known = commands()
    for name, *words in commands_of(page):
        if name not in known and name in ADDED:
            continue
        assert name in known, f"coresetvi has no command {name!r}"
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert option in options_of(known[name]) | {"--help"}, f"coresetvi {name} has no option {option}"


def test_options_in_running_text_exist():
    """An option that is named without its command belongs to one of them."""
    known = commands()
    every = {"--help", "--version"}.union(*(options_of(command) for command in known.values()))
    for page in PAGES:
        if ADDED <= known.keys():
            named = set(re.findall(r"`(--[a-z][a-z-]*)[ `]", page.read_text()))
            assert named <= every, (relative(page), named - every)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((120, 2))
    income = np.where(x @ [1.0, -2.0] + generator.logistic(size=120) > 0, "high", "low")
    people = ["age,hours,income", *(f"{a:.4f},{b:.4f},{c}" for (a, b), c in zip(x, income, strict=True))]
    (tmp_path / "people.csv").write_text("\n".join(people) + "\n")
    (tmp_path / "new.csv").write_text("age,hours\n0.5,1.0\n-1.0,0.2\n")
    quick = {
        "fit": ["--steps", "5"],
        "compare": ["--steps", "3", "--keys", "1", "--methods", "random-subset", "--sizes", "10"],
        "sample": ["--samples", "50", "--warmup", "50"],
    }
    run = [words for words in commands_of(ROOT / "README.md") if len(words) > 1 and words[0] not in ADDED]
    assert [words[0] for words in run] == [
        "fit", "predict", "inspect", "sample", "diagnose", "plot", "export", "compare",
    ]  # fmt: skip
    for words in run:
        outcome = CliRunner().invoke(cli.build_app(), [*words, *quick.get(words[0], [])])
        assert outcome.exit_code == 0, (words, outcome.output)


# Links


def links_of(page: Path) -> list[str]:
    """The targets of links and pictures outside blocks of code: in place, or listed at the end."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r"^\[[^\]]+\]: (\S+)$", prose, re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """Headings as the fragments that links may end in."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_to_files_and_headings_that_exist(page):
    for link in links_of(page):
        if link.startswith(FILES):
            target, folder = link.removeprefix(FILES[0]).removeprefix(FILES[1]), ROOT
        else:
            assert "://" not in link, f"{link} leads out of the repository"
            target, folder = link, page.parent
        name, _, fragment = target.partition("#")
        file = (folder / name).resolve() if name else page
        missing_paper = not PAPER.is_dir() and PAPER in file.parents
        if relative(page) not in ELSEWHERE and not missing_paper:
            assert file.is_file(), f"{link}: there is no {file}"
            assert not fragment or fragment in anchors_of(file), f"{link}: there is no such heading"


def test_links_of_the_readme_work_where_its_files_are_not():
    text, links = (ROOT / "README.md").read_text(), links_of(ROOT / "README.md")
    assert len(links) > 10 and all(link.startswith(FILES) for link in links)
    listed = set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))
    used = set(re.findall(r"\]\[(\w+)\]", text)) | set(re.findall(r"\[([\w./]+\.md)\](?!:)", text))
    assert used == listed


def test_the_address_of_the_readme_is_that_of_the_package():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls")
    assert urls is None or REPOSITORY in urls.values()


def test_paths_of_modules_that_pages_name_exist():
    """`fitting/loop.py` in a page is a file of the package, of the tests or of the whole."""
    places = [ROOT, ROOT / "src" / "coresetvi", ROOT / "src", ROOT / "tests"]
    for page in PAGES:
        for name in set(re.findall(r"`([\w/]+\.py)`", page.read_text())):
            assert any((place / name).is_file() for place in places), (relative(page), name)


def test_dotted_names_that_pages_give_exist():
    """`cvi.models.FromNumPyro` in a page is a name that a reader can type."""
    for page in PAGES:
        if relative(page) in ELSEWHERE:
            continue
        for name in set(re.findall(r"\bcvi((?:\.\w+)+)", page.read_text())):
            thing = cvi
            for part in name[1:].split("."):
                thing = getattr(thing, part)
