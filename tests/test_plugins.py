"""Commands of other distributions: found by name, imported when they are needed, and harmless when broken."""

import sys
from importlib import metadata

import pytest

from coresetvi import cli
from coresetvi.cli import plugins

GOOD = '''
import typer

def greet(name: str, loud: bool = False) -> None:
    """Greet somebody. And more."""
    print(f"hello {name}{'!' if loud else ''}")

def leave() -> None:
    """Leave with a code."""
    raise typer.Exit(7)

number = 3
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """`install(name=value, ...)`: entry points as if distributions had brought them."""
    (tmp_path / "plugin_that_works.py").write_text(GOOD)
    (tmp_path / "plugin_that_breaks.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("plugin_that_works", "plugin_that_breaks"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def arm(*entries):
        found = [metadata.EntryPoint(name, value, plugins.GROUP) for name, value in entries]

        def entry_points(*, group):
            return metadata.EntryPoints(one for one in found if one.group == group)

        monkeypatch.setattr(plugins.metadata, "entry_points", entry_points)

    yield arm
    for name in ("plugin_that_works", "plugin_that_breaks"):
        sys.modules.pop(name, None)


@pytest.fixture
def run(capsys):
    """`run(*arguments)`: exit code, standard output and standard error of a command."""

    def ask(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main(list(arguments))
        found = capsys.readouterr()
        return end.value.code, found.out, found.err

    return ask


GREET = ("greet", "plugin_that_works:greet")
BROKEN = {
    "module": ("broken", "plugin_that_breaks:greet", "No module named 'a_module_that_nobody_has'"),
    "absent": ("broken", "plugin_that_nobody_wrote:greet", "No module named 'plugin_that_nobody_wrote'"),
    "function": ("broken", "plugin_that_works:gone", "has no attribute 'gone'"),
    "no function": ("broken", "plugin_that_works:number", "3 is not a callable object"),
}


def commands(text):
    """The names in the list of commands."""
    return [line.split()[0] for line in text.partition("Commands:\n")[2].splitlines() if line[2:3].strip()]


def test_a_plug_in_is_a_command_like_all_others(install, run):
    install(("leave", "plugin_that_works:leave"), GREET)
    assert run("greet", "Ann", "--loud") == (0, "hello Ann!\n", "")
    assert run("leave")[0] == 7
    code, _, error = run("greet", "Ann", "--colour")
    assert code == 2 and error.startswith("error: No such option: --colour")
    assert error.endswith(" See coresetvi greet --help.\n")
    code, text, error = run("greet", "--help")
    assert code == 0 and "Usage: coresetvi greet" in text and "And more." in text and error == ""


def test_plug_ins_are_listed_after_our_own_commands_by_name(install, run):
    install()
    _, text, _ = run("--help")
    own = commands(text)
    assert own[0] == "fit" and own[-1] == "demo" and "greet" not in own
    install(("leave", "plugin_that_works:leave"), GREET)
    code, text, error = run("--help")
    assert (code, commands(text), error) == (0, [*own, "greet", "leave"], "")
    assert "  greet     Greet somebody.\n" in text


def test_plug_ins_are_imported_only_when_needed(install, run):
    install(GREET, ("broken", "plugin_that_breaks:greet"))
    for arguments in (["--version"], ["fit", "--help"], ["fit", "no-such-file.csv"]):
        _, _, error = run(*arguments)
        assert "plug-in" not in error
        assert "plugin_that_works" not in sys.modules and "plugin_that_breaks" not in sys.modules
    assert run("greet", "Ann")[0] == 0 and "plugin_that_works" in sys.modules


def test_a_misspelt_plug_in_is_suggested(install, run):
    install(GREET, ("broken", "plugin_that_breaks:greet"))
    code, _, error = run("gret", "Ann")
    assert code == 2
    assert error == "error: No such command 'gret'. Did you mean 'greet'? See coresetvi --help.\n"


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plug_in_is_told_of_and_the_others_work(case, install, run):
    name, value, reason = BROKEN[case]
    install((name, value), GREET)
    assert run("greet", "Ann") == (0, "hello Ann\n", "")
    code, text, error = run("broken", "Ann")
    note, refusal = error.splitlines()
    assert (code, text) == (2, "") and refusal.startswith("error: No such command 'broken'.")
    assert note.startswith(f"note: the plug-in 'broken' of {value} cannot be used (")
    assert reason in note and note.endswith(")")
    code, text, error = run("--help")
    assert code == 0 and error == f"{note}\n" and "greet" in commands(text) and "broken" not in commands(text)


def test_the_name_of_a_command_of_ours_cannot_be_taken(install, run):
    install(("inspect", "plugin_that_works:greet"), GREET)
    note = "note: the plug-in 'inspect' of plugin_that_works:greet cannot be used (coresetvi has a command "
    code, text, error = run("inspect", "--help")
    assert (
        code == 0
        and "Show what a fitted coreset holds: its model" in text
        and error == f"{note}of that name)\n"
    )
    assert "plugin_that_works" not in sys.modules
    code, text, error = run("--help")
    assert commands(text).count("inspect") == 1 and error == f"{note}of that name)\n"
    assert run("greet", "Ann") == (0, "hello Ann\n", "")


def test_of_two_plug_ins_with_one_name_the_first_is_used(install, run):
    install(("greet", "plugin_that_works:leave"), GREET)
    code, text, error = run("greet", "Ann")
    assert (code, text) == (0, "hello Ann\n")
    assert error == (
        "note: the plug-in 'greet' of plugin_that_works:leave cannot be used "
        "('greet' of plugin_that_works:greet has a command of that name)\n"
    )
