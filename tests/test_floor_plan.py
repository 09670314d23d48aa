"""The floor plan: rooms import only rooms below them, names exist, files stay small, nothing prints."""

import ast
import importlib
from pathlib import Path

import pytest

import coresetvi as cvi

SOURCE = Path(cvi.__file__).parent

# From the ground up: a room may import the rooms before it, never one after it. A new file is one name here.
FLOORS = [
    "errors",
    "checks",
    "config",
    "storage",
    "artefact",
    "reading",
    "frames",
    "data",
    "labels",
    "tables",
    "datasets.files",
    "datasets.synthetic",
    "datasets.tables",
    "datasets.images",
    "datasets.regressions",
    "datasets",
    "models.likelihoods",
    "models.base",
    "models.glm",
    "models.layers",
    "models.nets",
    "models.convolution",
    "models.images",
    "models.numpyro_sites",
    "models.numpyro",
    "models.equinox",
    "models",
    "families",
    "last_layer",
    "importance",
    "objectives",
    "weights",
    "spread",
    "coreset",
    "effort",
    "likelihood_sums",
    "projections",
    "hilbert",
    "data_term",
    "gradient_matching",
    "start",
    "newton",
    "inner.base",
    "inner.unrolled",
    "inner.implicit",
    "inner.laplace",
    "inner",
    "laplace",
    "outer",
    "history",
    "schedule",
    "progress",
    "checkpoint",
    "compilation",
    "constructions.base",
    "constructions.gradient",
    "constructions.published",
    "constructions.condensation",
    "constructions.greedy",
    "constructions.plain",
    "constructions.reference",
    "constructions.last_layer",
    "constructions.hilbert",
    "constructions",
    "prediction",
    "draws",
    "fitted",
    "fit",
    "drivers",
    "lifelong",
    "chains",
    "tempering",
    "posterior",
    "correction",
    "curvature",
    "discrepancies",
    "certificate",
    "diagnostics",
    "sizes",
    "plots",
    "posterior_plots",
    "export.rows",
    "export.numpyro",
    "export.pymc",
    "export.stan",
    "export.sklearn",
    "export",
    "comparison_plot",
    "image_plots",
    "records",
    "held_out",
    "coresetvi",  # the package itself, whose names the rooms above use as anyone else would
    "estimator_rows",
    "sklearn",
    "summary",
    "choices",
    "compare",
    "reproduction.objects",
    "reproduction.parts",
    "reproduction.experiment",
    "reproduction.reading",
    "reproduction.grid",
    "reproduction.making",
    "reproduction.planes",
    "reproduction.regression",
    "reproduction.measures",
    "reproduction.claims",
    "reproduction.run",
    "reproduction.plane_plots",
    "reproduction.line_plots",
    "reproduction.views",
    "reproduction.report",
    "reproduction.differences",
    "reproduction.page",
    "reproduction",
    "demo",
    "console",
    "cli_options",
    "cli_compare",
    "cli_export",
    "cli_posterior",
    "cli_reproduce",
    "cli",
    "__main__",
]
# Rooms that may import even less than what lies below them.
ONLY = {
    "models": {"config", "data", "errors"},
    "fit": {
        "checkpoint",
        "checks",
        "compilation",
        "constructions.base",
        "data",
        "errors",
        "fitted",
        "history",
        "models.base",
        "outer",
        "progress",
        "schedule",
    },
}
MOST_LINES = 450


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "coresetvi"


ROOMS = {room_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
every_room = pytest.mark.parametrize("room", ROOMS)


def imported_rooms(text: str, room: str, rooms) -> set[str]:
    """The rooms that a file's text imports, wherever in the file it does so."""
    is_package = any(other.startswith(f"{room}.") for other in rooms) or room == "coresetvi"
    package = [] if room == "coresetvi" else room.split(".") if is_package else room.split(".")[:-1]
    found = set()

    def add(name: str) -> None:
        found.add(name if name in rooms else "coresetvi" if name == "" else name.rsplit(".", 1)[0])

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "coresetvi":
                    add(alias.name[len("coresetvi.") :])
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = package[: len(package) - node.level + 1]
                start = ".".join([*base, module] if module else base)
            elif module.split(".")[0] == "coresetvi":
                start = module[len("coresetvi.") :]
            else:
                continue
            for alias in node.names:
                inside = f"{start}.{alias.name}" if start else alias.name
                # `from . import data` names a room, `from .data import Dataset` something in one.
                add(inside if inside in rooms else start)
    return found - {room}


IMPORTS = {
    "from .data import Dataset": ("fit", {"data"}),
    "from . import data, errors": ("fit", {"data", "errors"}),
    "from coresetvi.data import Dataset": ("fit", {"data"}),
    "import coresetvi.models.base": ("fit", {"models.base"}),
    "import coresetvi as cvi": ("cli", {"coresetvi"}),
    "from coresetvi import fit": ("cli", {"fit"}),
    "from . import BBPSVI": ("cli", {"coresetvi"}),
    "from ..data import Dataset": ("models.base", {"data"}),
    "from .base import Model": ("models", {"models.base"}),
    "from .base import Model # again": ("models.glm", {"models.base"}),
    "from .. import weights": ("constructions.gradient", {"weights"}),
    "def f():\n    from .cli import main": ("fit", {"cli"}),
    "import jax\nfrom numpy import array": ("fit", set()),
}


@pytest.mark.parametrize("text", IMPORTS)
def test_imports_are_recognised(text):
    room, expected = IMPORTS[text]
    assert imported_rooms(text, room, FLOORS) == expected


@every_room
def test_every_room_is_on_the_plan(room):
    assert room in FLOORS, f"{room} is new: add it to FLOORS, above what it imports"


@every_room
def test_no_room_imports_a_later_one(room):
    for other in imported_rooms(ROOMS[room].read_text(encoding="utf-8"), room, FLOORS):
        # A package gathers its rooms, so it comes after them.
        assert FLOORS.index(other) < FLOORS.index(room), f"{room} imports {other}, which is above it"


@every_room
def test_some_rooms_import_even_less(room):
    rule = next((name for name in ONLY if room == name or room.startswith(f"{name}.")), None)
    if rule is not None:
        others = imported_rooms(ROOMS[room].read_text(encoding="utf-8"), room, FLOORS)
        inside = {other for other in others if other.startswith(f"{rule}.")}
        assert others - inside <= ONLY[rule]


@every_room
def test_nothing_imports_the_command_line(room):
    others = imported_rooms(ROOMS[room].read_text(encoding="utf-8"), room, FLOORS)
    assert "cli" not in others or room == "__main__"
    for part in ("cli_compare", "cli_export", "cli_posterior", "cli_reproduce"):
        assert part not in others or room == "cli"


@every_room
def test_nothing_prints_but_the_console_of_the_command_line(room):
    calls = [
        node.func
        for node in ast.walk(ast.parse(ROOMS[room].read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    printing = [call.lineno for call in calls if isinstance(call, ast.Name) and call.id == "print"]
    assert not printing or room == "console", f"line {printing[0]} of {ROOMS[room]} prints"


@every_room
def test_no_file_is_too_long(room):
    lines = len(ROOMS[room].read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{ROOMS[room]} has {lines} lines"


# Names that scripts call

PUBLIC = {
    "": [
        "BBPSVI",
        "Condensation",
        "Coreset",
        "Dataset",
        "DatasetDistillation",
        "Fit",
        "FullVI",
        "LastLayerPSVI",
        "RandomSubset",
        "choose_size",
        "correct",
        "diagnose",
        "fit",
        "load",
        "retrain",
        "sample",
    ],
    "models": [
        "BayesianLeNet",
        "BayesianMLP",
        "FromCallables",
        "FromEquinox",
        "FromNumPyro",
        "LinearRegression",
        "LogisticRegression",
        "PoissonRegression",
        "SoftmaxRegression",
    ],
    "families": ["FullRank", "LowRank", "MeanField", "Point"],
    "weights": ["Fixed", "Free", "Simplex", "Unit"],
    "objectives": ["ImportanceElbo", "SingleSampleElbo", "UniformElbo"],
    "inner": ["Alternating", "Implicit", "Joint", "Truncated", "Unrolled"],
    "export": ["StanProgram", "hard_rows", "numpyro", "pymc", "sklearn", "stan", "table"],
    "datasets": [
        "adult",
        "four_class",
        "halfmoon",
        "mnist",
        "nslkdd",
        "phishing",
        "synthetic_lr",
        "uci",
        "webspam",
    ],
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in PUBLIC for name in PUBLIC[module]])
def test_public_names_exist(module, name):
    assert callable(getattr(getattr(cvi, module) if module else cvi, name))


@pytest.mark.parametrize(
    "module", [name for name in ROOMS if name not in ("__main__", "cli", "cli_compare", "demo", "plots")]
)
def test_what_is_exported_exists_and_is_documented(module):
    found = importlib.import_module("coresetvi" if module == "coresetvi" else f"coresetvi.{module}")
    assert found.__doc__
    for name in getattr(found, "__all__", []):
        assert getattr(found, name).__doc__, f"{name} has no docstring"
