"""The house as a stranger meets it: short ways through the imports, and no name for two things."""

import ast
import collections
import re
from collections.abc import Container
from pathlib import Path

import coresetvi

SOURCE = Path(coresetvi.__file__).parent
LONGEST_CHAIN = 14
MOST_ANY = 100


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(name: str, text: str, modules: Container[str]) -> set[str]:
    """The modules of the package that a file imports when it runs, wherever in the file it does so."""
    package = name.split(".") if MODULES.get(name, Path()).name == "__init__.py" else name.split(".")[:-1]
    found, tree = set(), ast.parse(text)
    for_types = {
        inside
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inside in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            inside = {f"{start}.{alias.name}" for alias in node.names}
            found |= inside | ({start} if any(one not in modules for one in inside) else set())
    return {one for one in found if one in modules} - {name}


def longest_chain(graph: dict[str, set[str]]) -> tuple[str, ...]:
    chains: dict[str, tuple[str, ...]] = {}

    def chain(name: str) -> tuple[str, ...]:
        if name not in chains:
            below = max((chain(other) for other in graph[name]), key=len, default=())
            chains[name] = (name, *below)
        return chains[name]

    return max(map(chain, graph), key=len)


def test_the_way_through_the_imports_is_short():
    graph = {name: imported(name, path.read_text(), MODULES) for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > 500  # they were found
    chain = longest_chain(graph)
    assert len(chain) <= LONGEST_CHAIN, " > ".join(chain)


def test_chains_are_counted_as_imports_are_written():
    only_for_types = "if TYPE_CHECKING:\n    from .a import e"
    texts = {"a": "from .b import c", "b": "from . import d", "d": f"import json\n{only_for_types}"}
    modules = {f"coresetvi.{name}" for name in texts}
    graph = {
        f"coresetvi.{name}": imported(f"coresetvi.{name}", text, modules) for name, text in texts.items()
    }
    assert longest_chain(graph) == ("coresetvi.a", "coresetvi.b", "coresetvi.d")


def test_no_class_has_a_namesake():
    homes = collections.defaultdict(list)
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_types_are_named():
    """`Any` says nothing to a reader; where really anything may come, `object` says so and is checked."""
    lines = [line for path in MODULES.values() for line in path.read_text().splitlines()]
    assert sum(bool(re.search(r"\bAny\b", line)) for line in lines) < MOST_ANY
