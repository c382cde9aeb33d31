"""The command `isokern`: every module of this package is the sub-command, or the group of some, of its name, and plug-ins add groups of their own."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import typer
from typer.core import TyperGroup

from ..status import DeviceNotAvailable, IsokernError
from ._output import complain, debugging

USAGE_ERROR, NO_DEVICE = 2, 3


class Commands(TyperGroup):
    """Finds sub-commands by module name, then among the plug-ins' groups, and ends typed errors as one line."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run; an IsokernError is one red line and exit code 2 (3 where a device is not available)."""
        try:
            return super().main(*args, **options)
        except IsokernError as error:
            if debugging():
                traceback.print_exc()
            complain(str(error))
            sys.exit(NO_DEVICE if isinstance(error, DeviceNotAvailable) else USAGE_ERROR)

    def list_commands(self, ctx: Any) -> list[str]:
        """The modules of this package, then the plug-ins' groups."""
        own = _own()
        return [*own, *sorted(set(_groups()) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, loaded now."""
        if cmd_name in _own():
            found = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
            if isinstance(found, typer.Typer):
                return typer.main.get_group(found)
            single = typer.Typer(add_completion=False)
            single.command(cmd_name)(found)
            return typer.main.get_command(single)
        return _groups().get(cmd_name)


def _own() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


@lru_cache(maxsize=1)  # complaints are made once
def _groups() -> dict[str, Any]:
    """The plug-ins' command groups by name; one that is not usable is complained of and left out."""
    from ..backend.discovery import registry
    from ..backend.register import describe

    found: dict[str, Any] = {}
    for group in registry().commands:
        named = "a plug-in's command group"
        try:
            named = f"{named} {group!r}"
            command = typer.main.get_group(group)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a stranger's code: whatever it raises must not stop the other commands
            complain(f"{named} is left out: {describe(error)}")
            continue
        name = command.name or ""
        if name in _own() or name in found or not name:
            complain(f"a plug-in's command group {name!r} is left out: its name is {'taken' if name else 'missing'}")
            continue
        found[name] = command
    return found


app = typer.Typer(
    cls=Commands,
    name="isokern",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One operator library for every device.",
)


@app.callback(no_args_is_help=True)
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and end.", is_eager=True, callback=lambda v: _version(v)
    ),
) -> None:
    """One operator library for every device: what there is, why, how right and how fast."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"isokern {version('isokern')}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows '?', and the command goes on
    typer.main.get_command(app).main(args=None if arguments is None else list(arguments), prog_name="isokern")
