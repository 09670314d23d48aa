"""The wheel: the library alone, typed, with its command."""

import configparser
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import coresetvi as cvi

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel as a build front end makes it, without one."""
    builder = WheelBuilder(str(ROOT))
    (file,) = builder.build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    with zipfile.ZipFile(file) as archive:
        yield archive


def test_it_has_the_sources_and_nothing_else(wheel):
    info = f"coresetvi-{cvi.__version__}.dist-info"
    files = {name for name in wheel.namelist() if not name.startswith(f"{info}/")}
    sources = (ROOT / "src").rglob("*.py")
    assert files == {file.relative_to(ROOT / "src").as_posix() for file in sources} | {"coresetvi/py.typed"}
    assert f"{info}/licenses/LICENSE" in wheel.namelist()


def test_nothing_of_the_paper_is_in_it(wheel):
    for name in wheel.namelist():
        assert not any(word in name for word in ("paper", "reproduc", ".toml", "tests")), name
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    assert b"coresetvi-paper" not in wheel.read(metadata)


def test_it_brings_the_command(wheel):
    (file,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    found = configparser.ConfigParser()
    found.read_string(wheel.read(file).decode())
    assert dict(found["console_scripts"]) == {"coresetvi": "coresetvi.cli:main"}
    assert found.sections() == ["console_scripts"]
