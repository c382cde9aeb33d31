"""`isokern-xpu build`: compile Isokern's kernels or one's own files with the vendor's compiler."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from isokern.cli._own_kernels import Define, Include, compiler_options
from isokern.status import InvalidArgument

from .. import HERE, VENDOR_KERNELS
from ..compiling import read
from .host_program import has_main
from .run import FixMfence, check_fix_mfence

NEVER_RUN = (
    "The compiler and its options are those of the vendor's public build files. "
    "This was never run on a card: tell us what happens."
)
HOME = "KUNLUN_HOME"  # public build files look there for the vendor's packages: xtdk, xre


class Toolkit:
    """The vendor's compiler and runtime, and the options that all of its commands have."""

    def __init__(self, xtdk: Path, xre: Path | None, arch: str, fix_mfence: str) -> None:
        self.clang = xtdk / "bin" / "clang++"
        self.include = [] if xre is None else [f"-I{xre / 'include'}"]
        self.libraries = [*([] if xre is None else [f"-L{xre / 'so'}", f"-L{xre / 'lib'}"]), "-lxpurt"]
        self.device = ["-std=c++17", "-fno-builtin", f"--xpu-arch={arch}", "-fxpu-launch-return", "-x", "xpu"]
        if fix_mfence == "all":
            self.device[:0] = ["-mllvm", "-fix-mfence=all"]

    def compile_object(self, source: Path, target: Path, options: Sequence[str], common: Sequence[str]) -> list[str]:
        """Return the command that compiles one file."""
        return [str(self.clang), *options, *common, *self.include, "-c", str(source), "-o", str(target)]

    def link(self, objects: Sequence[Path], target: Path, *options: str) -> list[str]:
        """Return the command that links objects with the runtime."""
        return [str(self.clang), *options, *map(str, objects), *self.libraries, "-o", str(target)]


def commands(toolkit: Toolkit, work: Path, output: Path) -> list[list[str]]:
    """Return the commands that build the library `output` of Isokern's kernels with the objects in `work`, in order."""
    kernels = sorted((HERE / "kernels").glob("*.xpu"))
    include = [f"-I{p}" for p in (HERE / "native", HERE / "generated", HERE / "kernels")]
    common = ["-O2", "-fPIC", "-fno-strict-aliasing", "-DIK_LEVEL=xpu", *include]
    made, todo = [], []
    for source, options in [
        *((k, toolkit.device) for k in kernels),
        (HERE / "native" / "host.cpp", ["-std=c++17"]),
        *((p, ["-x", "c", "-std=c11"]) for p in sorted((HERE / "generated").glob("isokern_*.c"))),
        (HERE / "generated" / "variants.c", ["-x", "c", "-std=c11"]),
    ]:
        made.append(work / f"{source.stem}.o")
        todo.append(toolkit.compile_object(source, made[-1], options, common))
    return [*todo, toolkit.link(made, output, "-shared")]


def commands_of_files(
    toolkit: Toolkit, sources: Sequence[Path], work: Path, output: Path | None, options: Sequence[str]
) -> tuple[list[list[str]], Path]:
    """Return the commands for one's own files, and what they make: a program if one has main(), else a library."""
    made, todo = [], []
    for source in sources:
        made.append(work / f"{source.stem}.o")
        kind = toolkit.device if source.suffix == ".xpu" else ["-std=c++17"]
        todo.append(toolkit.compile_object(source, made[-1], kind, ["-O2", "-fPIC", *options]))
    program = any(has_main(read(source)) for source in sources)
    target = output or Path(sources[0].stem if program else f"lib{sources[0].stem}.so")
    return [*todo, toolkit.link(made, target, *([] if program else ["-shared"]))], target


def build(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Your own .xpu and C++ files: a program if one has main(), else a library. None: Isokern's kernels.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    xtdk: Annotated[
        Path | None,
        typer.Option(help=f"The folder of the vendor's XTDK, which has bin/clang++; else ${HOME}/xtdk."),
    ] = None,
    xre: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the vendor's runtime (include/xpu, so/libxpurt), if the compiler does not find it."
        ),
    ] = None,
    work: Annotated[Path, typer.Option(help="The folder for object files.")] = Path("isokern-xtdk"),
    arch: Annotated[str, typer.Option(help="xpu2 (KUNLUN2) or xpu3 (KUNLUN3).")] = "xpu3",
    output: Annotated[
        Path | None, typer.Option(help="The file to write; the plug-in finds Isokern's kernels at the default path.")
    ] = None,
    fix_mfence: FixMfence = "none",
    define: Define = None,
    include: Include = None,
) -> None:
    """Compile kernels with the vendor's compiler; if it is missing, print the exact commands and exit 3."""
    if arch not in ("xpu2", "xpu3"):
        raise InvalidArgument("build", f"arch {arch}", allowed="xpu2, xpu3")
    check_fix_mfence("build", fix_mfence)
    home = os.environ.get(HOME)
    folder = xtdk or Path(home or "", "xtdk")
    toolkit = Toolkit(folder, xre or (Path(home, "xre") if home else None), arch, fix_mfence)
    if sources:
        todo, target = commands_of_files(toolkit, sources, work, output, compiler_options(define, include))
    elif define or include:
        raise InvalidArgument("build", "-D and -I", allowed="with files of your own")
    else:
        target = output or VENDOR_KERNELS
        todo = commands(toolkit, work, target)
    if not toolkit.clang.exists():
        typer.echo("\n".join(shlex.join(c) for c in todo))
        where = "" if xtdk or home else f" Name its folder with --xtdk, or in {HOME}."
        typer.secho(f"{toolkit.clang} is not there.{where} {NEVER_RUN}", err=True)
        raise typer.Exit(3)
    work.mkdir(parents=True, exist_ok=True)
    for command in todo:
        typer.echo(shlex.join(command))
        try:
            status = subprocess.run(command, check=False).returncode
        except OSError as error:
            problem = f"{toolkit.clang}: {error.strerror}"
            raise InvalidArgument("build", problem, allowed="the vendor's compiler") from None
        if status:
            raise typer.Exit(status)
    typer.echo(f"{target}. {NEVER_RUN}")
