"""The output of commands: one JSON document alone on stdout, tables for people, one red line for an error."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .. import settings

if TYPE_CHECKING:  # a command that shows no table does not wait for it
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else there.")]
MOST_COLUMNS = 10_000
WIDE = 200  # columns if the output is not a terminal, so that long lines are not folded early


def console(stderr: bool = False) -> Console:
    """Return a console on stdout or stderr for people, with or without a terminal.

    It prints text as it is: `x[batch]`, `[/b]` and `:a:` are never markup. Text with a style is a
    `rich.text.Text`.
    """
    from rich.console import Console

    given = os.environ.get("COLUMNS", "")
    wide = int(given) if given.isdecimal() and 0 < int(given) < MOST_COLUMNS else WIDE
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else wide
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """Print rows under bold headings; columns in `right` are numbers. Long cells fold, nothing is cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(header_style="bold", box=box.SIMPLE_HEAD)
    for position, name in enumerate(columns):
        justify: Literal["left", "right"] = "right" if name in right else "left"
        shown.add_column(name, justify=justify, overflow="fold", no_wrap=position == 0)
    for cells in rows:
        shown.add_row(*[cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells])
    out = console()
    out.print(Text(title, style="bold"), soft_wrap=True)
    out.print(shown)


def complain(message: str) -> None:
    """Print one red line to stderr."""
    typer.secho(" ".join(message.split()), fg="red", err=True)


def note(message: str) -> None:
    """Print one plain line to stderr."""
    typer.echo(" ".join(message.split()), err=True)


@contextlib.contextmanager
def progress(steps: int, out: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Show a bar of so many steps on stderr while a block runs, if that is a terminal.

    The block calls the function that it is given with the name of each step as it begins.
    """
    shown = console(stderr=True) if out is None else out
    if not shown.is_terminal:
        yield lambda name: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=shown, transient=True) as bar:
        task = bar.add_task("", total=steps)
        begun = 0

        def begin(name: str) -> None:
            nonlocal begun
            bar.update(task, description=name, completed=begun)
            begun += 1

        yield begin


def debugging() -> bool:
    """Return whether ISOKERN_DEBUG asks for tracebacks."""
    return settings.debug_level() > 0


def emit(document: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(plain(document), indent=2, allow_nan=False, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Return `value` as JSON can hold it.

    Numbers that are not finite become "nan", "inf" or "-inf", and unknown objects become their text.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "item"):
        value = value.item()  # a NumPy scalar
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, (bool, int)) else str(value)


@contextlib.contextmanager
def quiet(active: bool) -> Iterator[None]:
    """While `active`, send whatever is written to stdout to stderr, from Python and from native code alike."""
    if not active:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        try:
            descriptor = sys.__stdout__.fileno() if sys.__stdout__ is not None else -1
            kept = os.dup(descriptor)
            os.dup2(2, descriptor)
        except (OSError, ValueError):  # the stream has no descriptor: an embedded interpreter, a closed stream
            yield
            return
        try:
            yield
        finally:
            assert sys.__stdout__ is not None
            sys.__stdout__.flush()
            os.dup2(kept, descriptor)
            os.close(kept)
