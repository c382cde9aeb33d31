"""The command `isokern-xpu`: run and profile your own kernels, and build Isokern's with the vendor's compiler."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from isokern.status import IsokernError

from ..compiling import CompileError
from .build import build
from .profile import profile
from .run import run


class Commands(TyperGroup):
    """Commands that print typed errors as one line, and a compiler's messages unchanged."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; exit 2 for the caller's error. A command exits 1 if its kernel fails or breaks a rule."""
        try:
            return super().main(*args, **options)
        except CompileError as error:
            typer.echo(str(error), err=True)
        except IsokernError as error:
            typer.secho(" ".join(str(error).split()), fg="red", err=True)
        sys.exit(2)


app = typer.Typer(
    cls=Commands, add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=__doc__
)
app.command(context_settings={"ignore_unknown_options": True})(run)  # -2.5 is an argument
app.command(context_settings={"ignore_unknown_options": True})(profile)
app.command()(build)
