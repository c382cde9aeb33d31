"""`isokern-xpu run`: compile a kernel for the emulator and launch it on arrays; it needs no declared operator."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from cffi import FFI

from isokern.disk_cache import user_cache
from isokern.status import InternalError, InvalidArgument

from .. import EMULATOR
from ..compiling import compiler, expanded_object, library, preprocess, run as run_compiler
from ..memory import TO_DEVICE, TO_HOST
from ..rewriting import kernels
from ..runtime import CLUSTERS, Runtime
from ..settings import CHECK, SEED

CDEF = """
typedef void *XPUStream;
typedef struct xpusim_argument { long long kind; void *pointer; long long integer; double real; } xpusim_argument;
int isokern_xpu_run(int clusters, int cores, XPUStream stream, xpusim_argument *given, int count);
"""
ENTRY = "isokern_xpu_run"
WANTED = {
    ord("p"): "an array, or null",
    ord("i"): "a whole number that the parameter's type holds",
    ord("f"): "a number",
}
INT = 2**31 - 1
DEBUG = "int xpu_kernel_debug(void *stream);"


@dataclass
class Argument:
    """One argument of a kernel: a number, or an array in device memory that may be saved when the kernel has run."""

    text: str
    number: int | float | None = None
    array: np.ndarray[Any, Any] | None = None
    written: bool = False  # whether the array is copied to the device before the launch
    save: str = ""
    address: Any = None


def parse(text: str) -> Argument:
    """Parse an argument of the command line.

    `3`, `2.5`, `null`, `x.npy` (input), `x.npy:y.npy` (input, saved to y.npy), or `float32[8,4]:y.npy` (uninitialised
    device memory, saved to y.npy).
    """
    if text == "null":
        return Argument(text, array=np.empty(0, np.uint8))
    for number in (int, float):
        try:
            return Argument(text, number=number(text))
        except ValueError:
            continue
    source, colon, save = text.partition(":")
    fresh = re.fullmatch(r"(\w+)\[([\d,]*)\]", source)
    try:
        if colon and not (save.endswith(".npy") and Path(save).parent.is_dir()):
            raise ValueError(f"{save!r} is no .npy file in a folder that exists")
        if fresh:
            shape = tuple(int(d) for d in fresh[2].split(",") if d)
            array = np.empty(shape, np.dtype(fresh[1]))
        else:
            array = np.load(source)
        if not isinstance(array, np.ndarray) or array.dtype.hasobject or not array.dtype.isnative:
            raise ValueError("it is not one array of numbers in this machine's byte order")
    except (OSError, EOFError, ValueError, TypeError, MemoryError) as error:
        allowed = "a number, null, x.npy, x.npy:saved.npy, or float32[8,4]:saved.npy"
        raise InvalidArgument("run", f"argument {text!r}: {error}", allowed=allowed) from None
    return Argument(text, array=np.asarray(array, order="C"), written=not fresh, save=save)


def run(
    source: Annotated[Path, typer.Argument(help="The .xpu file.", exists=True, dir_okay=False)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="The kernel's arguments: 3, 2.5, null, x.npy, x.npy:saved.npy, float32[8,4]:saved.npy."),
    ] = None,
    kernel: Annotated[str, typer.Option(help="The kernel's name; not needed where the file has one.")] = "",
    clusters: Annotated[int, typer.Option(min=0, max=INT, help="Clusters; 0: as many as the device has.")] = 0,
    cores: Annotated[int, typer.Option(min=0, max=INT, help="Cores a cluster.")] = 64,
    check: Annotated[bool, typer.Option("--check/--fast", help="Watch every access and copy.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the schedule of cores and copies.")] = 0,
) -> None:
    """Compile SOURCE and launch its kernel once; exit 1 if it fails or breaks a rule."""
    given = [parse(text) for text in arguments or []]
    os.environ[CHECK], os.environ[SEED] = "1" if check else "0", str(seed)
    made = compile_kernel(source, kernel, "checked" if check else "fast")
    runtime = Runtime(EMULATOR)
    ffi = FFI()
    ffi.cdef(CDEF)
    lib: Any = ffi.dlopen(str(made))
    records = ffi.new("xpusim_argument[]", max(1, len(given)))
    for record, argument in zip(records, given, strict=False):
        fill(runtime, ffi, record, argument)
    clusters = clusters or runtime.attribute(CLUSTERS, 0)
    code = lib.isokern_xpu_run(clusters, cores, ffi.NULL, records, len(given))
    if code <= -1000:
        raise InvalidArgument("run", f"{len(given)} arguments", allowed=f"the kernel takes {-1000 - code}")
    if code < 0 and -code <= len(given):
        allowed = WANTED[records[-code - 1].kind]
        raise InvalidArgument("run", f"argument {-code}, {given[-code - 1].text}", allowed=allowed)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)  # while C waits for the kernel, Python does not see Ctrl-C
    try:
        runtime.check(code, "launch")
        runtime.ffi.cdef(DEBUG)
        runtime.check(runtime.lib.xpu_kernel_debug(runtime.ffi.NULL), "kernel")
    except (InternalError, InvalidArgument) as error:
        typer.secho(str(error), fg="red", err=True)
        sys.exit(1)
    finally:
        signal.signal(signal.SIGINT, interrupt)
    for argument in given:
        finish(runtime, argument)


def fill(runtime: Runtime, ffi: Any, record: Any, argument: Argument) -> None:
    """Fill in the record of an argument; allocates device memory for an array."""
    if argument.array is None:
        number = argument.number
        assert number is not None
        record.kind = ord("i") if isinstance(number, int) and -(1 << 63) <= number < 1 << 63 else ord("f")
        record.integer = number if record.kind == ord("i") else 0
        record.real = float(argument.text)  # inf where the number is too large
        return
    record.kind = ord("p")
    if argument.array.size == 0:
        return
    pointer = runtime.ffi.new("void **")
    runtime.check(runtime.lib.xpu_malloc(pointer, argument.array.nbytes, 0), "xpu_malloc")
    argument.address = pointer[0]
    record.pointer = ffi.cast("void *", int(runtime.ffi.cast("uintptr_t", pointer[0])))
    if argument.written:
        at = runtime.ffi.cast("void *", argument.array.ctypes.data)
        runtime.check(runtime.lib.xpu_memcpy(argument.address, at, argument.array.nbytes, TO_DEVICE), "xpu_memcpy")


def finish(runtime: Runtime, argument: Argument) -> None:
    """Save an array to the file that its argument names, if any."""
    if not argument.save or argument.array is None or argument.address is None:
        return
    at = runtime.ffi.cast("void *", argument.array.ctypes.data)
    runtime.check(runtime.lib.xpu_memcpy(at, argument.address, argument.array.nbytes, TO_HOST), "xpu_memcpy")
    try:
        np.save(argument.save, argument.array)
    except OSError as error:
        raise InvalidArgument(
            "run", f"{argument.save}: {error.strerror}", allowed="a file that can be written"
        ) from None
    typer.echo(f"{argument.save}: {argument.array.dtype}{list(argument.array.shape)}")


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


def compile_kernel(source: Path, wanted: str, mode: str) -> Path:
    """Return the library of a source with an entry for a kernel, cached by content in the user's disk cache."""
    cxx = compiler()
    if cxx is None:
        raise InvalidArgument("run", "there is no C++ compiler", hint="install g++, or name one in CXX")
    if not EMULATOR.exists():
        hint = "install isokern-kunlun-sim again, now that there is one"
        raise InvalidArgument("run", "the plug-in was built without a C++ compiler", hint=hint)
    text = preprocess(cxx, source, mode, [])
    kernel = find_kernel(text, source, wanted)
    text += (
        f'\n# 1 "isokern-xpu run"\nextern "C" int {ENTRY}'
        "(int clusters, int cores, XPUStream stream, xpusim_argument *given, int count)\n"
        f'{{ return ::xpusim::run_kernel(::{kernel}, "{kernel}", clusters, cores, stream, given, count); }}\n'
    )
    key = hashlib.sha256(
        f"{text}{mode}{source.resolve()}{EMULATOR.stat().st_mtime_ns}".encode(errors="surrogateescape")
    )
    key.update(run_compiler([cxx, "--version"]).encode())
    disk_cache, name = user_cache("xpu"), f"{source.stem}-{key.hexdigest()[:16]}.so"
    names = [name, f"{name}.lines"] if mode == "checked" else [name]
    if all(disk_cache.path(kept) is not None for kept in names):
        return disk_cache.folder / name
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, name)
        library(cxx, made, [expanded_object(cxx, source, mode, Path(folder), text)], mode, ENTRY)
        return disk_cache.place({kept: made.with_name(kept).read_bytes() for kept in names}) / name
