"""Compiled programs on the disk, and how many there are."""

import collections
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import jax
import jax.monitoring
import numpy as np
import pytest

import coresetvi as cvi
from coresetvi import _programs

SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
COMPILED = "/jax/core/compile/backend_compile_duration"
# A new process: how many programs were read and how many written, and what came out.
WORK = """
import collections, json, jax.monitoring, numpy as np
import coresetvi as cvi

counts = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: counts.update([name.split("/")[-1]]))
x = np.random.default_rng(0).normal(size=(50, 2))
data = cvi.Dataset(x, (x[:, 0] > 0).astype(int))
fit = cvi.fit(cvi.SubsetLaplace(20), cvi.models.LogisticRegression(2), data, key=0)
score = fit.evaluate(data)["nll"]
print(json.dumps([counts["cache_hits"], counts["cache_misses"], score]))
"""


def work(cache: Path, **settings: str) -> tuple[int, int, float]:
    """Programs read and written by a new process that keeps its cache there, and a score; it says nothing."""
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    environment = {**kept, "XDG_CACHE_HOME": str(cache), **settings}
    done = subprocess.run([sys.executable, "-c", WORK], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return tuple(json.loads(done.stdout))


def test_the_next_process_reads_what_one_has_compiled(tmp_path):
    read, written, score = work(tmp_path)
    folder = tmp_path / "coresetvi" / "jit"
    programs = sorted(folder.glob("*-cache"))
    assert read <= 2 < written == len(programs)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert work(tmp_path) == (read + written, 0, score)

    # What is damaged is compiled again without a word: new files are looked through,
    for program in programs:
        program.write_bytes(program.read_bytes()[:-20])
    assert work(tmp_path) == (read, written, score)
    assert work(tmp_path) == (read + written, 0, score)
    # and one that broke later is only not read.
    programs[0].write_bytes(b"")
    os.utime(programs[0], (0, 0))
    assert work(tmp_path)[2] == score


def test_nothing_is_kept_where_nothing_can_or_shall_be(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    off, unwritable = work(tmp_path, CORESETVI_CACHE="off"), work(file)
    assert off[:2] == unwritable[:2] == (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """JAX's settings of its cache as they are by default, and as they were again afterwards."""
    before = {name: jax.config.values[name] for name in SETTINGS}
    for name in ("JAX_COMPILATION_CACHE_DIR", "CORESETVI_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update(SETTINGS[0], None)
    _programs.keep_programs.cache_clear()
    yield tmp_path / "coresetvi" / "jit"
    _programs.keep_programs.cache_clear()
    for name, value in before.items():
        jax.config.update(name, value)


def test_every_program_is_kept_in_the_users_cache(settings):
    assert _programs.keep_programs() == settings
    assert [jax.config.values[name] for name in SETTINGS] == [str(settings), 0.0]
    # Whoever turns it off afterwards is heard.
    jax.config.update(SETTINGS[0], None)
    _programs.keep_programs()
    assert jax.config.values[SETTINGS[0]] is None


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", "false"])
def test_one_variable_turns_it_off(word, settings, monkeypatch):
    monkeypatch.setenv("CORESETVI_CACHE", word)
    assert _programs.keep_programs() is None
    assert jax.config.values[SETTINGS[0]] is None and not settings.exists()


@pytest.mark.parametrize("how", ["variable", "setting", "none"])
def test_what_the_user_has_told_jax_stands(how, settings, monkeypatch, tmp_path):
    given = {"setting": str(tmp_path / "mine")}.get(how)
    if how == "variable":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    jax.config.update(SETTINGS[0], given)
    jax.config.update("jax_enable_compilation_cache", how != "none")
    try:
        assert _programs.keep_programs() is None
        assert jax.config.values[SETTINGS[0]] == given and not settings.exists()
    finally:
        jax.config.update("jax_enable_compilation_cache", True)


def test_a_folder_of_somebody_else_is_not_used(settings, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: settings.parent.parent.stat().st_uid + 1, raising=False)
    assert _programs.keep_programs() is None and jax.config.values[SETTINGS[0]] is None


def fill(folder: Path, sizes: list[int]) -> list[Path]:
    """Programs of these sizes, the first the oldest; none is new."""
    files = [folder / f"jit_{index}-cache" for index in range(len(sizes))]
    for index, (file, size) in enumerate(zip(files, sizes, strict=True)):
        file.write_bytes(b"?" * size)
        os.utime(file, (1000 + index, 1000 + index))
    return files


def test_the_oldest_programs_go_when_there_are_too_many(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_bytes(b"?" * 1000)
    files = fill(tmp_path, [30, 30, 30, 30])
    _programs.tidy(tmp_path, most=120, left=60)
    assert all(file.exists() for file in files)
    files = fill(tmp_path, [30, 30, 30, 30])
    os.utime(files[0], (5000, 1000))  # it was read
    _programs.tidy(tmp_path, most=119, left=60)
    assert [file.exists() for file in files] == [True, False, False, True] and other.exists()


def test_only_whole_programs_are_left(tmp_path):
    whole, broken, empty, unknown = fill(tmp_path, [0, 0, 0, 0])
    packed = zlib.compress(b"a program" * 100)
    for file, content in ((whole, packed), (broken, packed[:-1]), (empty, b""), (unknown, b"(zstd")):
        file.write_bytes(content)
    _programs.tidy(tmp_path)
    assert [file.exists() for file in (whole, broken, empty, unknown)] == [True, False, False, True]


@pytest.fixture
def programs():
    """How many programs were compiled, or read, until now."""
    counts = collections.Counter()

    def count(event: str, duration_secs: float, **kwargs: str | int) -> None:
        counts.update([event])

    jax.monitoring.register_event_duration_secs_listener(count)
    jax.clear_caches()
    yield lambda: counts[COMPILED]
    jax.monitoring.unregister_event_duration_listener(count)


# So many after a fit, in a new process. More than these make users wait: look for work that is done by JAX
# outside of a compiled function, or compiled for one shape after another.
# A certificate also looks from far away, which takes eleven.
MOST = {"sample": 8, "diagnose": 22, "diagnose without draws": 4, "correct": 1, "evaluate": 4}


def test_few_programs_are_compiled_after_a_fit(programs):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(3000, 3))
    data = cvi.Dataset(x, (generator.random(3000) < 0.5).astype(int))
    fit = cvi.fit(cvi.SubsetLaplace(50), cvi.models.LogisticRegression(3), data, key=0)
    found, before = {}, programs()

    def note(name: str) -> None:
        nonlocal before
        found[name], before = programs() - before, programs()

    draws = cvi.sample(fit, num_samples=100, num_warmup=100)
    note("sample")
    cvi.diagnose(fit, data, draws=draws, num_samples=400)
    note("diagnose")
    cvi.diagnose(fit, data, num_samples=400)
    note("diagnose without draws")
    cvi.correct(draws, data)
    note("correct")
    fit.evaluate(data)
    note("evaluate")
    assert all(0 <= found[name] <= MOST[name] for name in MOST), found
    assert found["sample"] > 1
