"""Programs of an OpenCL device."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import pyopencl as cl

from isokern.disk_cache import user_cache
from isokern.simt import Launch, Programs, Unusable
from isokern.status import InternalError

from .errors import FULL, LOST, typed_error
from .exits import waiting
from .pocl import WITHOUT_HEADER, log_of


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress pyopencl's warning that a compiler wrote a log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        yield


class ClPrograms(Programs[cl.Program]):
    """Programs built from source for one device, or loaded from the driver's binaries.

    For a binary PoCL compiles a kernel for work-groups of any size, and again for the size of a launch when that comes.
    """

    def __init__(
        self, name: str, context: cl.Context, device: cl.Device, options: list[str], processor: str, binaries: bool
    ) -> None:
        self.context, self.device, self.options, self.binaries = context, device, options, binaries
        platform = device.platform
        driver = [platform.name, platform.version, device.name, device.version, device.driver_version, processor]
        super().__init__(name, "\n".join([*driver, *options]), user_cache("opencl"))

    def load(self, binary: bytes, launch: Launch) -> cl.Program:
        """Load a binary by clCreateProgramWithBinary."""
        try:
            with _quiet(), waiting:
                return cl.Program(self.context, [self.device], [binary]).build(self.options, [self.device])
        except cl.Error:
            raise Unusable from None

    def _compile(self, source: str) -> cl.Program:
        """Compile with the driver's compiler.

        Where a PoCL cannot build a program without its header, it is given the header from then on, with a warning.
        """
        try:
            with _quiet(), waiting:
                return cl.Program(self.context, source).build(self.options, [self.device], cache_dir=False)
        except cl.Error as error:
            rest = [option for option in self.options if option != WITHOUT_HEADER]
            if rest == self.options:
                raise
            try:
                with _quiet(), waiting:
                    program = cl.Program(self.context, source).build(rest, [self.device], cache_dir=False)
            except cl.Error:
                raise error from None
            self.options = rest
            missing = next((line for line in log_of(error).splitlines() if "error:" in line), str(error))
            warnings.warn(
                f"{self.name}: all programs from here on are built with the driver's header, which takes several times"
                f" longer, because one does not build without it: {missing.strip()}; declare what it lacks in pocl.h",
                RuntimeWarning,
                stacklevel=2,
            )
            return program

    def build(self, launch: Launch) -> tuple[cl.Program, bytes | None]:
        """Build with the driver's compiler.

        A driver without binaries gives none, and none is requested where the user wants none.
        """
        try:
            program = self._compile(launch.source)
        except cl.Error as error:
            if getattr(error, "code", None) in FULL | LOST:
                raise typed_error("compile", self.name, error) from None
            name = launch.origin[1].name
            raise InternalError(
                "compile", f"{self.name} cannot build {launch.entry} of {name}:\n{log_of(error)}"
            ) from None
        if not self.binaries:
            return program, None
        try:
            binaries = program.get_info(cl.program_info.BINARIES)  # one for each device that it might be built for
            at = program.get_info(cl.program_info.DEVICES).index(self.device) if len(binaries) > 1 else 0
            return program, binaries[at]
        except cl.Error:
            return program, None
