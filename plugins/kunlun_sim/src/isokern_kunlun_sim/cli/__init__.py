"""The command `isokern-xpu`: run and profile your own kernels, and build Isokern's with the vendor's compiler."""

from __future__ import annotations

import typer

from isokern.cli._own_kernels import KernelCommands

from ..compiling import CompileError
from .build import build
from .profile import profile
from .run import run


class Commands(KernelCommands):
    """The commands, with this plug-in's compiler errors."""

    compile_error = CompileError


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help=__doc__,
)
app.command(context_settings={"ignore_unknown_options": True})(run)  # -2.5 is an argument
app.command(context_settings={"ignore_unknown_options": True})(profile)
app.command()(build)
