"""`isokern-xpu build`: compile the kernels with the vendor's compiler, for the vendor's runtime."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from isokern.status import InvalidArgument

from .. import HERE, VENDOR_KERNELS

NEVER_RUN = (
    "The compiler and its options are those of the vendor's public build files. "
    "This was never run on a card: tell us what happens."
)


def commands(xtdk: Path, xre: Path | None, arch: str, work: Path, output: Path) -> list[list[str]]:
    """Return the commands that build the library `output` with the objects in `work`, in order."""
    work.mkdir(parents=True, exist_ok=True)
    clang = str(xtdk / "bin" / "clang++")
    kernels = sorted((HERE / "kernels").glob("*.xpu"))
    include = [f"-I{p}" for p in (HERE / "native", HERE / "generated", HERE / "kernels")]
    include += [] if xre is None else [f"-I{xre / 'include'}"]
    where = [] if xre is None else [f"-L{xre / 'so'}", f"-L{xre / 'lib'}"]
    common = ["-O2", "-fPIC", "-fno-strict-aliasing", "-DIK_LEVEL=xpu", *include]
    device = ["-std=c++17", "-fno-builtin", f"--xpu-arch={arch}", "-fxpu-launch-return", "-x", "xpu"]
    made, todo = [], []
    for source, options in [
        *((k, device) for k in kernels),
        (HERE / "native" / "host.cpp", ["-std=c++17"]),
        *((p, ["-x", "c", "-std=c11"]) for p in sorted((HERE / "generated").glob("isokern_*.c"))),
        (HERE / "generated" / "variants.c", ["-x", "c", "-std=c11"]),
    ]:
        target = work / f"{source.stem}.o"
        made.append(str(target))
        todo.append([clang, *options, *common, "-c", str(source), "-o", str(target)])
    return [*todo, [clang, "-shared", *made, *where, "-lxpurt", "-o", str(output)]]


def build(
    xtdk: Annotated[Path, typer.Option(help="Where the vendor's XTDK is: the folder with bin/clang++.")],
    xre: Annotated[
        Path | None,
        typer.Option(help="Where the vendor's runtime is, if the compiler does not know: include/xpu and so/libxpurt."),
    ] = None,
    work: Annotated[Path, typer.Option(help="The folder for objects.")] = Path("isokern-xtdk"),
    arch: Annotated[str, typer.Option(help="xpu2 (KUNLUN2) or xpu3 (KUNLUN3).")] = "xpu3",
    output: Annotated[Path, typer.Option(help="The library; the plug-in finds it at the default.")] = VENDOR_KERNELS,
) -> None:
    """Compile the kernels with the vendor's compiler; where it is not, print the exact commands and exit 3."""
    if arch not in ("xpu2", "xpu3"):
        raise InvalidArgument("build", f"arch {arch}", allowed="xpu2, xpu3")
    clang = xtdk / "bin" / "clang++"
    todo = commands(xtdk, xre, arch, work, output)
    if not clang.exists():
        typer.echo("\n".join(shlex.join(c) for c in todo))
        typer.secho(f"{clang} is not there. {NEVER_RUN}", err=True)
        raise typer.Exit(3)
    for command in todo:
        typer.echo(shlex.join(command))
        try:
            status = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise InvalidArgument("build", f"{clang}: {error.strerror}", allowed="the vendor's compiler") from None
        if status:
            raise typer.Exit(status)
    typer.echo(f"{output}. {NEVER_RUN}")
