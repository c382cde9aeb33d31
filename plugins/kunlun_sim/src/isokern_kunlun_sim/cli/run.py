"""`isokern-xpu run`: compile kernels for the emulator and launch them on arrays, or run their own host program."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from isokern.cli._own_kernels import MAX_SEED, Argument, Array, Define, Include, compiler_options, save_array
from isokern.disk_cache import user_cache
from isokern.status import InvalidArgument

from .. import EMULATOR
from ..compiling import compiler, expanded_object, library, preprocess, read, run as run_compiler
from ..rewriting import kernels
from ..settings import CHECK, FIX_MFENCE, SEED
from .counts import describe_findings, describe_launches, record
from .host_program import has_main, run_program
from .session import (
    KernelFailed,
    KernelLaunch,
    Session,
    kernels_of,
    open_emulator,
    parse_launches,
)

ENTRIES = "isokern_xpu_run_*"
INT = 2**31 - 1
SCHEDULES = 4  # that checked mode tries; a mailbox that is overwritten early may take some

Source = Annotated[Path, typer.Argument(help="The .xpu file.", exists=True, dir_okay=False)]
KernelName = Annotated[str, typer.Option(help="The kernel's name; not needed if the file has only one.")]
Clusters = Annotated[int, typer.Option(min=0, max=INT, help="Clusters; 0: as many as the device has.")]
Cores = Annotated[int, typer.Option(min=0, max=INT, help="Cores of each cluster.")]

FixMfence = Annotated[
    str,
    typer.Option(
        metavar="all|none", help="all: as compiled with the vendor's -fix-mfence=all, which adds the missing fences."
    ),
]


def check_fix_mfence(command: str, fix_mfence: str) -> None:
    """Raise InvalidArgument unless the option has one of the compiler's values."""
    if fix_mfence not in ("all", "none"):
        raise InvalidArgument(command, f"--fix-mfence {fix_mfence}", allowed="all, none")


def run(
    source: Source,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="The kernel's arguments: 3, 2.5, null, x.npy, x.npy:saved.npy, float32[8,4]:saved.npy, "
            "zeros:float32[8,4]:saved.npy. "
            "NAME=x.npy names an array, and NAME passes it again. `then KERNEL ARGUMENTS` launches a further kernel "
            "after it, and `then 'KERNEL<<<1,64>>>' …` does so with its own grid. "
            "For a file with main(): the arguments of main."
        ),
    ] = None,
    kernel: KernelName = "",
    clusters: Clusters = 0,
    cores: Cores = 64,
    check: Annotated[bool, typer.Option("--check/--fast", help="Check every memory access and copy.")] = True,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=MAX_SEED, help="The seed of the schedule of cores and copies; without --seeds, the only one."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=INT, help=f"How many schedules to try, from --seed on; {SCHEDULES} with --check and no --seed."
        ),
    ] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="FILE", help="A further source file of a program with main(), repeatable.", dir_okay=False
        ),
    ] = None,
    fix_mfence: FixMfence = "none",
    define: Define = None,
    include: Include = None,
) -> None:
    """Compile SOURCE and launch its kernel, or run its main(); exit 1 if it fails or breaks a rule."""
    schedules = range(seed or 0, (seed or 0) + (seeds or (SCHEDULES if check and seed is None else 1)))
    check_fix_mfence("run", fix_mfence)
    os.environ[CHECK], os.environ[SEED], os.environ[FIX_MFENCE] = "1" if check else "0", str(schedules[0]), fix_mfence
    mode, options = "checked" if check else "fast", compiler_options(define, include)
    if not kernel and has_main(read(source)):
        program = compile_kernels(source, [], mode, options, others or [])
        raise typer.Exit(run_program(program, arguments or [], schedules, check))
    if others:
        raise InvalidArgument("run", f"--with {others[0]}", hint=f"{source} has no main(): kernels are one file")
    launches = find_launches(source, arguments or [], kernel, clusters, cores, options)
    session = Session(open_emulator(), compile_kernels(source, kernels_of(launches), mode, options), launches)
    with default_interrupt(), record() as recorded:
        for seed in schedules:
            session.runtime.lib.xpusim_set_seed(seed)
            try:
                results = session.run(show=seed == schedules[0])
            except KernelFailed as error:
                typer.secho(str(error), fg="red", err=True)
                if len(schedules) > 1:
                    typer.echo(f"This is the schedule of --seed {seed}.", err=True)
                sys.exit(1)
            if seed == schedules[0]:
                first, profiles = results, recorded.launches(session.available)
            else:
                print_differences(session.arrays, first, results, schedules[0], seed)
        findings = recorded.findings()
    for argument, result in zip(session.arrays, first, strict=True):
        if argument.save:
            save_array(argument.save, result)
    if not check:
        for one in launches:
            typer.echo(
                f"{one.kernel}<<<{one.clusters or session.available}, {one.cores}>>> ran; fast mode checks nothing"
            )
        return
    typer.echo(describe_launches(profiles))
    typer.echo(describe_findings(findings, schedules))


@contextmanager
def default_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process: while C waits for a kernel, Python does not see it."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def print_differences(arrays: Sequence[Argument], first: Sequence[Array], now: Sequence[Array], *seeds: int) -> None:
    """Say which saved arrays differ between two schedules; sums of floats in another order do."""
    for argument, a, b in zip(arrays, first, now, strict=True):
        if argument.save and a.tobytes() != b.tobytes():
            typer.echo(f"{argument.save} differs between the schedules of --seed {seeds[0]} and {seeds[1]}")


def find_kernel(text: str, source: Path, wanted: str) -> str:
    """Return the full name of the kernel of the preprocessed `text` that `wanted` names, or of its only kernel.

    `wanted` may lack namespaces, and has a template's arguments: `k<float>`.
    """
    if not re.fullmatch(r"([\w:]+(<[^;{}]*>)?)?", wanted):
        raise InvalidArgument(
            "run", f"--kernel {wanted}", allowed="a name, or a template's with its arguments: k<float>"
        )
    name, bracket, arguments = wanted.lstrip(":").partition("<")
    declared = kernels(text)
    found = [k for k in declared if f"::{k.name}".endswith(f"::{name}")] if wanted else declared
    found = [k for k in found if k.name == name] or found
    there = f"{source} has {len(declared)} kernels: {', '.join(k.name for k in declared)}"
    if not declared:
        raise InvalidArgument("run", f"{source} has no kernel", allowed="a file with `__global__ void NAME(…)`")
    if not found:
        raise InvalidArgument("run", f"--kernel {wanted}", allowed=there)
    if len(found) != 1:
        raise InvalidArgument("run", there, hint="add --kernel NAME")
    if found[0].template and not bracket:
        hint = f"add its arguments: --kernel '{found[0].name}<float>'"
        raise InvalidArgument("run", f"{found[0].name} is a template", hint=hint)
    return f"{found[0].name}{bracket}{arguments}"


def find_launches(
    source: Path, arguments: Sequence[str], kernel: str, clusters: int, cores: int, options: Sequence[str]
) -> list[KernelLaunch]:
    """Return the launches that the command line spells, with the full names of their kernels."""
    launches = parse_launches(arguments, kernel, clusters, cores)
    text = preprocess(find_compiler(), source, "fast", [], options)
    for launch in launches:
        launch.kernel = find_kernel(text, source, launch.kernel)
    return launches


def find_compiler() -> str:
    """Return the C++ compiler; raise InvalidArgument where kernels cannot be compiled and run."""
    cxx = compiler()
    if cxx is None:
        raise InvalidArgument("run", "there is no C++ compiler", hint="install g++, or name one in CXX")
    if not EMULATOR.exists():
        hint = "install isokern-kunlun-sim again, now that there is one"
        raise InvalidArgument("run", "the plug-in was built without a C++ compiler", hint=hint)
    return cxx


def compile_kernels(
    source: Path, wanted: Sequence[str], mode: str, options: Sequence[str], others: Sequence[Path] = ()
) -> Path:
    """Return the library of a source with an entry for each kernel, cached by content in the user's disk cache.

    `others` are further files of it.
    """
    cxx = find_compiler()
    text = preprocess(cxx, source, mode, [], options)
    further = [preprocess(cxx, other, mode, [], options) for other in others]
    for i, kernel in enumerate(wanted):
        text += (
            f'\n# 1 "isokern-xpu run"\nextern "C" int isokern_xpu_run_{i}'
            "(int clusters, int cores, XPUStream stream, xpusim_argument *given, int count)\n"
            f'{{ return ::xpusim::run_kernel(::{kernel}, "{kernel}", clusters, cores, stream, given, count); }}\n'
        )
    key = hashlib.sha256(
        f"{text}{further}{mode}{source.resolve()}{EMULATOR.stat().st_mtime_ns}".encode(errors="surrogateescape")
    )
    key.update(run_compiler([cxx, "--version"]).encode())
    disk_cache, name = user_cache("xpu"), f"{source.stem}-{key.hexdigest()[:16]}.so"
    names = [name, f"{name}.lines"] if mode == "checked" else [name]
    if all(disk_cache.path(kept) is not None for kept in names):
        return disk_cache.folder / name
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, name)
        built = [expanded_object(cxx, source, mode, Path(folder), text)]
        for n, (other, own) in enumerate(zip(others, further, strict=True)):
            built.append(expanded_object(cxx, other, mode, Path(folder, str(n)), own))
        library(cxx, made, built, mode, ENTRIES if wanted else "")
        return disk_cache.place({kept: made.with_name(kept).read_bytes() for kept in names}) / name
