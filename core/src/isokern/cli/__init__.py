"""The command `isokern`.

Every module of this package is the sub-command, or the group of sub-commands, of its name; plug-ins add groups of their
own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
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

OUTPUT_ERROR, USAGE_ERROR, NO_DEVICE = 1, 2, 3


class Commands(TyperGroup):
    """The sub-commands, found by module name, then among the plug-ins' groups; typed errors end as one line."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command; an IsokernError is one red line and exit code 2 (3 if a device is not available)."""
        try:
            return super().main(*args, **options)
        except IsokernError as error:
            if debugging():
                traceback.print_exc()
            complain(str(error))
            sys.exit(NO_DEVICE if isinstance(error, DeviceNotAvailable) else USAGE_ERROR)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the modules of this package, then the plug-ins' groups."""
        own = _own()
        return [*own, *sorted(set(_groups()) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load and return the command of that name."""
        if cmd_name in _own():
            module = cmd_name.replace("-", "_")
            found = getattr(importlib.import_module(f"{__name__}.{module}"), module)
            if isinstance(found, typer.Typer):
                group = typer.main.get_group(found)
                group.name = cmd_name
                return group
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(found)
            return typer.main.get_command(single)
        return _groups().get(cmd_name)


def _own() -> list[str]:
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


@lru_cache(maxsize=1)  # so that complaints are made once
def _groups() -> dict[str, Any]:
    """Return the plug-ins' command groups by name; leave out one that is not usable, with a line on stderr."""
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
        except BaseException as error:  # third-party code: whatever it raises must not stop the other commands
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
    rich_markup_mode=None,  # help is text as it is, too
    help="One operator library for every device.",
)


@app.callback(no_args_is_help=True)
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=lambda v: _version(v)
    ),
) -> None:
    """One operator library for every device: list, explain, check and time its operators, and run models."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"isokern {version('isokern')}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code; 1 if its output cannot be written."""
    open_closed_streams()
    if not faulthandler.is_enabled():
        faulthandler.enable(2)  # if a plug-in's code crashes, the traceback has its file
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A character that the terminal lacks is shown as '?', and the command goes on
            stream.reconfigure(errors="replace")
    code: Any = 0
    try:
        typer.main.get_command(app).main(args=None if arguments is None else list(arguments), prog_name="isokern")
    except SystemExit as end:
        code = end.code
    except OSError as error:  # the disk is full, the terminal is gone
        if debugging():
            traceback.print_exc()
        complain(f"{error.filename or 'the output'}: {error.strerror or error}")
        code = code or OUTPUT_ERROR
    try:
        sys.stdout.flush()
    except OSError as error:
        complain(f"standard output: {error.strerror or error}")
        code = code or OUTPUT_ERROR
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the interpreter, which flushes once more at its end
    sys.exit(code)


def open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed, as it may be for a daemon."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue  # it is open, and Python has no object for it
        descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
        if descriptor != number:
            os.dup2(descriptor, number)
            os.close(descriptor)
        setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115  # stays open
        setattr(sys, f"__{name}__", getattr(sys, name))
