"""Commands of other distributions, found by entry points and imported only when needed. Needs typer.

A distribution adds the command `coresetvi NAME` with these lines of its `pyproject.toml`, where `function` is
one that typer can make a command of:

    [project.entry-points."coresetvi.commands"]
    NAME = "package.module:function"
"""

from importlib import metadata
from typing import Any, Protocol, runtime_checkable

import typer
from typer.core import TyperGroup

from .console import complain

GROUP = "coresetvi.commands"


def new_app(**options: Any) -> typer.Typer:
    """An application that looks like all of ours."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **options)


@runtime_checkable
class Plugin(Protocol):
    """An entry point: Python's own, or that of the backport, which takes over once something imports it."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...
    def load(self) -> Any: ...


class PluginGroup(TyperGroup):
    """The library's own commands, and after them those of plug-ins by name.

    A plug-in that cannot be used is told of where its command is asked for or listed; the others work.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.plugins: dict[str, Plugin] = {}
        self.refusals: dict[str, list[str]] = {}  # by name of the command
        for plugin in sorted(metadata.entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
            if plugin.name in self.commands:
                self.refuse(plugin, "coresetvi has a command of that name")
            elif plugin.name in self.plugins:
                self.refuse(plugin, f"{described(self.plugins[plugin.name])} has a command of that name")
            else:
                self.plugins[plugin.name] = plugin

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands in the order of the help."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in self.plugins if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, imported now if it is a plug-in's; None where there is none."""
        # A name that nobody has may be a misspelt one of a plug-in's: typer looks among those that are there.
        needed = [cmd_name] if cmd_name in self.list_commands(ctx) else list(self.plugins)
        for name in needed:
            if name in self.plugins and name not in self.commands:
                self.load(self.plugins[name])
        for refusal in self.refusals.pop(cmd_name, ()):  # once, however often click asks
            complain(refusal, word="note")
        return super().get_command(ctx, cmd_name)

    def load(self, plugin: Plugin) -> None:
        """Import a plug-in and add its command."""
        try:
            app = new_app()
            app.command(plugin.name)(plugin.load())
            self.add_command(typer.main.get_command(app), plugin.name)
        except Exception as error:  # whatever is wrong with it, the other commands are not
            del self.plugins[plugin.name]
            reason = (str(error).strip().splitlines() or [""])[0]
            self.refuse(plugin, f"{type(error).__name__}: {reason}")

    def refuse(self, plugin: Plugin, reason: str) -> None:
        """Keep the sentence on a plug-in for when its command is asked for."""
        sentence = f"the plug-in {described(plugin)} cannot be used ({reason})"
        self.refusals.setdefault(plugin.name, []).append(sentence)


def described(plugin: Plugin) -> str:
    """The command of a plug-in, and the distribution that brings it."""
    distribution = getattr(plugin, "dist", None)
    return f"{plugin.name!r} of {distribution.name if distribution else plugin.value}"
