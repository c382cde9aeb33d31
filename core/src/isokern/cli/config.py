"""`isokern config`: the flags by which a C or C++ host finds the header and a backend's library."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cabi.get_include import get_include
from ..status import InvalidArgument
from ._output import Json, emit


def config(
    backend: Annotated[str, typer.Option("--backend", help="The backend whose library is linked.")] = "cpu",
    cflags: Annotated[bool, typer.Option("--cflags", help="Flags to compile with.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Flags to link with.")] = False,
    pkgconfig: Annotated[bool, typer.Option("--pkgconfig", help="The folder for PKG_CONFIG_PATH.")] = False,
    cmake: Annotated[bool, typer.Option("--cmake", help="The folder for CMAKE_PREFIX_PATH.")] = False,
    json: Json = False,
) -> None:
    """Print the flags to compile and link a C or C++ host with a backend's library; all of them by default."""
    found = flags(backend)
    if json:
        emit(found)
        return
    asked = {"cflags": cflags, "libs": libs, "pkgconfig": pkgconfig, "cmake": cmake}
    if not any(asked.values()):
        for name, given in found.items():
            typer.echo(f"{name}: {' '.join(given)}")
        return
    typer.echo(" ".join(shlex.quote(flag) for name, given in found.items() if asked[name] for flag in given))


def flags(backend: str) -> dict[str, Any]:
    """Return the flags by kind; raise InvalidArgument if the backend can only be reached from Python."""
    from ..backend.discovery import backends

    libraries = {b.name: b.libraries() for b in backends() if b.libraries is not None}
    if backend not in libraries:
        known = [b.name for b in backends()]
        given = f"backend {backend} is reached from Python alone" if backend in known else f"no backend {backend}"
        raise InvalidArgument("config", given, allowed=", ".join(libraries) or "none is installed")
    paths = [Path(path) for path in libraries[backend]]
    folder = paths[0].parent
    return {
        "cflags": [f"-I{get_include()}"],
        "libs": [*map(str, paths), f"-Wl,-rpath,{folder}"],
        "pkgconfig": [str(folder / "share" / "pkgconfig")],
        "cmake": [str(folder)],
    }
