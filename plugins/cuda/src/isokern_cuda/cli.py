"""The command `isokern-gpu`: run and check your own CUDA kernel on an emulated GPU."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from isokern.cli._own_kernels import (
    MAX_SEED,
    Array,
    Define,
    Include,
    KernelCommands,
    compiler_options,
    load_array,
    save_array,
)
from isokern.status import InvalidArgument

from .emulator.arguments import KernelArgument, parse
from .emulator.compiling import CompileError, build, parse as parse_source
from .emulator.rewriting import KernelEntry, Source as ParsedSource

MAX_THREADS = 1024  # of a block (CUDA C++ Programming Guide, "Compute Capabilities")
MAX_BLOCK, MAX_GRID = (1024, 1024, 64), (2**31 - 1, 65535, 65535)
FOUND, REFUSED = 4, 2  # the program's status: findings, with results all the same; a mistake in the arguments

Source = Annotated[Path, typer.Argument(help="The .cu file.", exists=True, dir_okay=False)]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        help="The kernel's arguments, in order or as NAME=: 3, 2.5, null, x.npy, x.npy:saved.npy,"
        " float32[8,4]:saved.npy, zeros:float32[8,4]:saved.npy, or the name of an earlier argument for the same array."
    ),
]
KernelName = Annotated[str, typer.Option("--kernel", help="The kernel's name; not needed if the file has only one.")]
Grid = Annotated[str, typer.Option("--grid", help="The grid, in blocks: 4, 4,2 or 4,2,1.")]
Block = Annotated[str, typer.Option("--block", help="Threads of a block: 256, 32,8 or 8,8,4; at most 1024.")]
Shared = Annotated[int, typer.Option("--shared", min=0, max=2**31 - 1, help="Bytes of `extern __shared__` memory.")]
Expect = Annotated[list[str] | None, typer.Option("--expect", help="NAME=ref.npy: the expected content of the array.")]
Relative = Annotated[float, typer.Option("--rtol", min=0, help="The relative tolerance of --expect.")]
Absolute = Annotated[float, typer.Option("--atol", min=0, help="The absolute tolerance of --expect.")]
Limit = Annotated[
    int, typer.Option("--time-limit", min=1, max=86400, help="Seconds after which the kernel counts as endless.")
]


@dataclass
class LaunchOptions:
    """The options of a launch that `run` and `check` share."""

    source: Source
    arguments: Arguments = None
    kernel: KernelName = ""
    grid: Grid = "1"
    block: Block = "256"
    shared: Shared = 0
    define: Define = None
    include: Include = None
    expect: Expect = None
    rtol: Relative = 1e-5
    atol: Absolute = 1e-6
    time_limit: Limit = 60


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


def register(command: Callable[..., None]) -> Callable[..., None]:
    """Register a command that takes LaunchOptions, whose fields are its arguments on the command line, and its own."""
    types = get_type_hints(LaunchOptions, include_extras=True)
    shared = [
        Parameter(f.name, Parameter.KEYWORD_ONLY, annotation=types[f.name])
        if f.default is MISSING
        else Parameter(f.name, Parameter.KEYWORD_ONLY, annotation=types[f.name], default=f.default)
        for f in fields(LaunchOptions)
    ]
    own = [*signature(command, eval_str=True).parameters.values()][1:]

    @wraps(command)
    def call(**given: Any) -> None:
        command(LaunchOptions(**{name: given.pop(name) for name in types}), **given)

    call.__signature__ = Signature([*shared, *own])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in [*shared, *own]}
    app.command(context_settings={"ignore_unknown_options": True})(call)  # -2.5 is an argument
    return command


@register
def run(
    options: LaunchOptions,
    *,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="The seed of the order of blocks and threads; 0: ascending.")
    ] = 0,
) -> None:
    """Compile SOURCE and launch its kernel once, without checks; exit 1 if it fails or a result differs."""
    launch(options, seed, 1)


@register
def check(
    options: LaunchOptions,
    *,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="The first seed of the order of blocks and threads; 0: ascending.")
    ] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many seeds to try, from --seed on.")] = 3,
    report: Annotated[Path | None, typer.Option(help="Append the findings to this file as lines of JSON.")] = None,
) -> None:
    """Compile SOURCE and launch its kernel with every access checked; exit 1 if it fails or breaks a rule."""
    launch(options, seed, seeds, check=True, report=report)


def launch(options: LaunchOptions, seed: int, seeds: int, check: bool = False, report: Path | None = None) -> None:
    """Compile, launch, save and compare; exits 1 if the kernel fails or breaks a rule."""
    blocks = sizes("grid", options.grid, MAX_GRID)
    threads = sizes("block", options.block, MAX_BLOCK)
    if threads[0] * threads[1] * threads[2] > MAX_THREADS:
        raise InvalidArgument("run", f"--block {options.block}", allowed=f"at most {MAX_THREADS} threads")
    flags = compiler_options(options.define, options.include)
    source = parse_source(options.source.resolve(), flags)
    if source.missing:
        without = ", and the functions of the host" if options.kernel or not source.has_main else ""
        typer.echo(
            f"left out{without}: {', '.join(source.missing)}, which is not there; -I FOLDER adds a folder", err=True
        )
    if source.has_main and not options.kernel:
        run_program(options, source, seed, seeds, check, report)
        return
    chosen = choose(options.source, source, options.kernel)
    given = parse(options.arguments or [], chosen.parameters)
    expected = expectations(options.expect or [], given)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program, symbols, warnings = build(source, chosen.name, check, folder)
        if warnings:
            typer.echo(warnings.rstrip(), err=True)
        description = folder / "launch"
        lines = [
            "grid\t" + "\t".join(map(str, blocks)),
            "block\t" + "\t".join(map(str, threads)),
            f"shared\t{options.shared}",
            f"seeds\t{seed}\t{seeds}",
            f"check\t{int(check)}",
            f"limit\t{options.time_limit}",
            f"report\t{'' if report is None else report.resolve()}",
            f"kernel\t{chosen.name}",
            *(a.line(folder, given, a.label in expected) for a in given),
        ]
        description.write_text("\n".join([*lines, ""]), encoding="utf-8", errors="surrogateescape")
        status = execute([program, description, symbols], options.time_limit + 30)
        status = status if status in (0, REFUSED, FOUND) else 1
        if status in (0, FOUND):
            for argument in given:
                if argument.save:
                    save_array(argument.save, argument.result(folder))
            found = [
                compare(a.label, a.result(folder), expected[a.label], options.rtol, options.atol)
                for a in given
                if a.label in expected
            ]
            status = 1 if status or any(found) else 0
    if status:
        sys.exit(2 if status == REFUSED else 1)


def sizes(option: str, text: str, largest: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return three sizes from `4`, `4,2` or `4,2,1`."""
    parts = text.split(",")
    numbers = [int(part) for part in parts if part.isdecimal()]
    if (
        len(numbers) != len(parts)
        or len(parts) > 3
        or any(not 1 <= n <= m for n, m in zip(numbers, largest, strict=False))
    ):
        raise InvalidArgument("run", f"--{option} {text}", allowed=f"one to three sizes of at most {largest}")
    x, y, z = [*numbers, 1, 1][:3]
    return x, y, z


def run_program(
    options: LaunchOptions, source: ParsedSource, seed: int, seeds: int, check: bool, report: Path | None
) -> None:
    """Compile a source with a `main`, and run it once for each seed; exits with its status, or 1 for findings."""
    if options.expect:
        raise InvalidArgument(
            "run", "--expect for a program", hint="--kernel NAME launches one kernel without its main"
        )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program, symbols, warnings = build(source, "", check, folder)
        if warnings:
            typer.echo(warnings.rstrip(), err=True)
        description, status = folder / "launch", 0
        for number in range(seed, seed + seeds):
            lines = [f"seed\t{number}", f"check\t{int(check)}", f"limit\t{options.time_limit}", f"symbols\t{symbols}"]
            lines += [f"earlier\t{folder / 'earlier'}", f"report\t{'' if report is None else report.resolve()}"]
            description.write_text("\n".join([*lines, ""]), encoding="utf-8", errors="surrogateescape")
            environment = {**os.environ, "CUDA_EMULATOR_PROGRAM": str(description)}
            command: list[str | Path] = [program, *(options.arguments or [])]
            status = max(status, execute(command, options.time_limit + 30, environment, quiet=number > seed))
    if status:
        sys.exit(status)


def choose(path: Path, source: ParsedSource, name: str) -> KernelEntry:
    """Return the kernel of that name, or the only one of the file."""
    found = source.kernels
    if not found:
        raise InvalidArgument("run", f"{path} has no kernel", allowed="a file with `__global__ void NAME(…)`")
    if not name:
        if len(found) > 1:
            names = ", ".join(k.name for k in found)
            raise InvalidArgument("run", f"{path} has {len(found)} kernels: {names}", hint="add --kernel NAME")
        return found[0]
    if not re.fullmatch(r"[\w:]+(<[^;{}]*>)?", name):
        raise InvalidArgument("run", f"--kernel {name}", allowed="a name, or a template's with its arguments: k<float>")
    plain = name.partition("<")[0]
    for kernel in found:
        if plain in (kernel.name, kernel.name.rpartition("::")[2]):
            return KernelEntry(kernel.name + name.removeprefix(plain), kernel.parameters)
    raise InvalidArgument("run", f"--kernel {name}", allowed=", ".join(k.name for k in found))


def expectations(texts: list[str], given: list[KernelArgument]) -> dict[str, Array]:
    """Return the expected arrays by the name of their argument."""
    found = {}
    for text in texts:
        label, _, path = text.partition("=")
        argument = next((a for a in given if a.label == label and a.array is not None), None)
        if argument is None or argument.array is None:
            names = ", ".join(a.label for a in given if a.array is not None)
            raise InvalidArgument("run", f"--expect {text}", allowed=f"NAME=ref.npy, with an array of {names}")
        try:
            array = load_array(path)
            if array.dtype.kind not in "biufc":
                raise ValueError("its elements are no numbers")
        except (OSError, ValueError) as error:
            raise InvalidArgument("run", f"--expect {text}: {error}", allowed="a .npy file") from None
        if array.shape != argument.array.shape:
            raise InvalidArgument("run", f"--expect {text}", allowed=f"an array of the shape {argument.array.shape}")
        found[label] = array
    return found


def execute(
    command: Sequence[Path | str], seconds: int, environment: Mapping[str, str] | None = None, quiet: bool = False
) -> int:
    """Run the program, print what it prints, and return its status; 1 if a signal or the time limit ended it.

    `quiet` leaves out its standard output, which an earlier run has printed.
    """
    try:
        done = subprocess.run(
            [str(c) for c in command],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        typer.secho(f"the kernel did not end within {seconds} seconds, nor did its time limit", fg="red", err=True)
        return 1
    if environment is not None and not quiet:
        typer.echo(done.stdout, nl=False)  # a program's own text comes first
    typer.echo(done.stderr, err=True, nl=False)
    if environment is None:
        typer.echo(done.stdout, nl=False)
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        typer.secho(f"the kernel ended its process by {name}; `isokern-gpu check` shows the line", fg="red", err=True)
        return 1
    return done.returncode


def compare(label: str, array: Array, wanted: Array, rtol: float, atol: float) -> bool:
    """Return whether the array differs from what is expected; prints which it is. Integers have to be the same."""
    if {array.dtype.kind, wanted.dtype.kind} & {"f", "c"}:
        same = np.isclose(array, wanted, rtol=rtol, atol=atol, equal_nan=True)
    else:
        same = np.asarray(array == wanted)
    if same.all():
        typer.echo(f"{label}: as expected, {array.size} elements")
        return False
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    typer.secho(
        f"{label}: {np.count_nonzero(~same)} of {array.size} elements differ, first at {list(at)}:"
        f" {array[at]} instead of {wanted[at]}",
        fg="red",
        err=True,
    )
    return True
