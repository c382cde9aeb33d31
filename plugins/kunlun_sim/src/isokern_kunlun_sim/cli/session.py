"""Launches of one's own kernels on arrays: how the command line spells them, and how they run on the emulator."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI

from isokern.cli._own_kernels import KINDS, Argument, Array, parse_argument
from isokern.status import InternalError, InvalidArgument, OutOfMemory

from .. import EMULATOR
from ..memory import TO_DEVICE, TO_HOST
from ..runtime import CLUSTERS, Runtime

CDEF = """
typedef void *XPUStream;
typedef struct xpusim_argument {
    long long kind; void *pointer; long long integer; double real; long long element_bytes, element_is_real;
} xpusim_argument;
"""
ENTRY = "int isokern_xpu_run_{}(int clusters, int cores, XPUStream stream, xpusim_argument *given, int count);"
EMULATOR_CDEF = """
int xpu_kernel_debug(void *stream);
int xpu_kernel_debug_reset(void);
void xpusim_set_seed(uint64_t seed);
void xpusim_result(const void *from, uint64_t bytes, const char *name);
"""
WANTED = {
    ord("p"): "an array, or null",
    ord("i"): "a whole number that the parameter's type holds",
    ord("f"): "a number",
}
ALLOWED = f"{KINDS}; NAME= before an array, and then NAME"
THEN = "then"  # between two launches


class KernelFailed(Exception):
    """A kernel failed or broke a rule, or the runtime refused its launch."""


@dataclass
class KernelLaunch:
    """One launch: clusters 0 stands for as many as the device has."""

    kernel: str
    clusters: int
    cores: int
    arguments: list[Argument]


def parse_launches(texts: Sequence[str], kernel: str, clusters: int, cores: int) -> list[KernelLaunch]:
    """Parse the arguments of one launch, or of several: `ARGUMENTS then KERNEL ARGUMENTS then …`.

    A later kernel may have a grid of its own, `sum<<<1,64>>>`. `NAME=x.npy` names an array, and `NAME` is the same one.
    """
    launches = [KernelLaunch(kernel, clusters, cores, [])]
    named: dict[str, Argument] = {}
    begins = False  # the next text is a kernel
    for text in texts:
        if begins:
            grid = re.fullmatch(r"(.+?)<<<\s*(\d+)\s*,\s*(\d+)\s*>>>", text)
            one = KernelLaunch(grid[1], int(grid[2]), int(grid[3]), []) if grid else None
            launches.append(one or KernelLaunch(text, clusters, cores, []))
            begins = False
        elif text == THEN:
            begins = True
        else:
            launches[-1].arguments.append(_parse_named(text, named))
    if begins:
        raise InvalidArgument("run", f"nothing behind {THEN!r}", allowed="the name of the kernel that runs next")
    return launches


def _parse_named(text: str, named: dict[str, Argument]) -> Argument:
    """Return an argument, which its text may give a name, or be the name of."""
    if text in named:
        return named[text]
    given = re.fullmatch(r"([A-Za-z_]\w*)=(.+)", text)
    if given is None or Path(text.partition(":")[0]).exists():
        return parse_argument(text, ALLOWED)
    if given[1] in named:
        raise InvalidArgument("run", f"argument {text!r}: there is an array {given[1]} already", allowed="another name")
    argument = parse_argument(given[2], ALLOWED)
    if argument.number is not None:
        raise InvalidArgument("run", f"argument {text!r} names a number", allowed="a name for an array")
    named[given[1]] = argument
    return argument


def open_emulator() -> Runtime:
    """Open the emulator's library, with its own functions."""
    runtime = Runtime(EMULATOR)
    runtime.ffi.cdef(EMULATOR_CDEF)
    return runtime


def kernels_of(launches: Sequence[KernelLaunch]) -> list[str]:
    """Return the kernels of launches, each once."""
    return list(dict.fromkeys(launch.kernel for launch in launches))


class Session:
    """Launches of a compiled library, which may run many times on the same arrays."""

    def __init__(self, runtime: Runtime, library: Path, launches: Sequence[KernelLaunch]) -> None:
        self.runtime, self.launches = runtime, launches
        self.seconds = 0.0  # from the first launch of the last run to the end of the last one
        self.available = runtime.attribute(CLUSTERS, 0)  # the device's clusters
        kernels = kernels_of(launches)
        self._ffi = FFI()
        self._ffi.cdef(CDEF + "\n".join(ENTRY.format(i) for i in range(len(kernels))))
        self._lib: Any = self._ffi.dlopen(str(library))
        self._entries = {kernel: getattr(self._lib, f"isokern_xpu_run_{i}") for i, kernel in enumerate(kernels)}
        found = [a for launch in launches for a in launch.arguments if a.array is not None and a.array.size]
        self.arrays: list[Argument] = list(dict.fromkeys(found))

    def run(self, show: bool = True) -> list[Array]:
        """Run the launches in order on fresh copies of the arrays, and return the contents of all arrays afterwards.

        What the kernels print is shown if `show`, or if a kernel fails.
        """
        lib, ffi = self.runtime.lib, self.runtime.ffi
        addresses: dict[Argument, Any] = {}
        try:
            for argument in self.arrays:
                assert argument.array is not None
                pointer, nbytes = ffi.new("void **"), argument.array.nbytes
                self._check(lib.xpu_malloc(pointer, nbytes, 0), "xpu_malloc")
                addresses[argument] = pointer[0]
                if argument.written:
                    at = ffi.cast("void *", argument.array.ctypes.data)
                    self._check(lib.xpu_memcpy(pointer[0], at, nbytes, TO_DEVICE), "xpu_memcpy")
            begun = time.perf_counter()
            for launch in self.launches:
                self._launch(launch, addresses)
            failed = lib.xpu_wait(ffi.NULL)
            self.seconds = time.perf_counter() - begun
            if show or failed:
                lib.xpu_kernel_debug(ffi.NULL)
            lib.xpu_kernel_debug_reset()
            self._check(failed, "kernel")
            results = []
            for argument in self.arrays:
                assert argument.array is not None
                result = argument.array if not argument.save else np.empty_like(argument.array)
                if argument.save:
                    lib.xpusim_result(addresses[argument], result.nbytes, os.fsencode(argument.save))
                    at = ffi.cast("void *", result.ctypes.data)
                    self._check(lib.xpu_memcpy(at, addresses[argument], result.nbytes, TO_HOST), "xpu_memcpy")
                results.append(result)
            return results
        finally:
            for address in addresses.values():
                lib.xpu_free(address)

    def _check(self, code: int, what: str) -> None:
        try:
            self.runtime.check(code, what)
        except (InternalError, InvalidArgument, OutOfMemory) as error:
            raise KernelFailed(str(error)) from None

    def _launch(self, launch: KernelLaunch, addresses: dict[Argument, Any]) -> None:
        given = launch.arguments
        records = self._ffi.new("xpusim_argument[]", max(1, len(given)))
        for record, argument in zip(records, given, strict=False):
            if (number := argument.number) is not None:
                record.kind = ord("i") if isinstance(number, int) and -(1 << 63) <= number < 1 << 63 else ord("f")
                record.integer = number if record.kind == ord("i") else 0
                record.real = float(argument.text)  # inf where the number is too large
            else:
                record.kind = ord("p")
                address = addresses.get(argument, self.runtime.ffi.NULL)
                record.pointer = self._ffi.cast("void *", int(self.runtime.ffi.cast("uintptr_t", address)))
                if argument.array is not None and argument.array.size:
                    record.element_bytes = argument.array.dtype.itemsize
                    record.element_is_real = argument.array.dtype.kind == "f"
        clusters = launch.clusters or self.available
        code = self._entries[launch.kernel](clusters, launch.cores, self._ffi.NULL, records, len(given))
        if code <= -1000:
            raise InvalidArgument("run", f"{len(given)} arguments", allowed=f"the kernel takes {-1000 - code}")
        if code < 0 and -code <= len(given):
            wanted = records[-code - 1]
            element = f"{'float' if wanted.element_is_real else 'int'}{8 * wanted.element_bytes}"
            allowed = WANTED.get(wanted.kind) or f"an array of {element}, to which the parameter points"
            raise InvalidArgument("run", f"argument {-code}, {given[-code - 1].text}", allowed=allowed)
        self._check(code, "launch")
