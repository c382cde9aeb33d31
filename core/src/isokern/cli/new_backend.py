"""`isokern new-backend`: write the package of a backend to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..scaffold import KINDS, write_package
from ..status import InvalidArgument
from ._output import Json, emit, quiet


def new_backend(
    name: Annotated[str, typer.Argument(help="The backend's name, which is also that of its devices: my_chip.")],
    python: Annotated[bool, typer.Option("--python", help=KINDS["python"])] = False,
    native: Annotated[bool, typer.Option("--native", help=KINDS["native"])] = False,
    simt: Annotated[bool, typer.Option("--simt", help=KINDS["simt"])] = False,
    async_: Annotated[bool, typer.Option("--async", help=KINDS["async"])] = False,
    into: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder; else ./isokern-NAME.")] = None,
    json: Json = False,
) -> None:
    """Write an installable package of a backend, which passes the conformance suite as it is.

    It has kernels or calls for a made-up chip, which you replace, tests, and the files for tox and continuous
    integration.
    """
    kinds = {"python": python, "native": native, "simt": simt, "async": async_}
    asked = [kind for kind, wanted in kinds.items() if wanted]
    if len(asked) != 1:
        given = " and ".join(f"--{kind}" for kind in asked)
        problem = f"{given} exclude each other" if given else "no kind of backend is given"
        raise InvalidArgument("new-backend", problem, allowed="one of " + ", ".join(f"--{kind}" for kind in KINDS))
    folder = into or Path(f"isokern-{name}")
    with quiet(json):
        files = write_package(asked[0], name, folder)
    commands = list_commands(asked[0], name, folder)
    if json:
        emit({"folder": str(folder), "files": [str(file) for file in files], "commands": commands})
        return
    typer.echo(f"{folder} has {len(files)} files; begin with its README.md. Next:\n")
    for command in commands:
        typer.echo(f"  {command}")


def list_commands(kind: str, name: str, folder: Path) -> list[str]:
    """Return the commands that install a new package, judge it, and run its tests.

    A native one is built with the core that is installed here, which a build in isolation would look for in an index.
    """
    where = folder if folder.is_absolute() else f"./{folder}"
    package = shlex.quote(f"{where}[test]")
    native = ["pip install 'isokern[build]'", f"pip install --no-build-isolation {package}"]
    return [
        *(native if kind == "native" else [f"pip install {package}"]),
        f"isokern check --device {name}:0 --claimed{' --quick' if kind == 'simt' else ''}",
        f"pytest {shlex.quote(str(where))}",
    ]
