"""NVIDIA GPUs by CuPy: its bindings of the CUDA runtime, the driver's launches and NVRTC, and its memory pool."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, TypeVar

from isokern.backend import Address, Unavailable
from isokern.simt import Traits

from .cublaslt import CublasLt
from .driver import Arguments, BuildFailed, CudaError, Driver, Products

T = TypeVar("T")
INSTALL = "pip install 'isokern-cuda[cuda12]' (or [cuda13], by the driver)"
OLDEST = (7, 5)
NOT_READY = 600
RELAXED = 2  # of CUstreamCaptureMode


def drivers() -> list[Driver]:
    """Return every GPU that CUDA finds; `Unavailable` says why there is none."""
    if importlib.util.find_spec("cupy") is None:
        raise Unavailable(f"CuPy is not installed: {INSTALL}")
    try:
        from cupy_backends.cuda.api import runtime
    except ImportError as error:
        raise Unavailable(f"CuPy cannot be imported ({error}): {INSTALL}") from None
    installed, built = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if installed == 0:
        raise Unavailable("there is no NVIDIA driver (libcuda.so.1): install the one for this GPU")
    if installed // 1000 < built // 1000:
        fitting = f"install a driver for CUDA {built // 1000}"
        if built // 1000 == 13 and installed // 1000 == 12:
            fitting = "pip install 'isokern-cuda[cuda12]' in place of [cuda13], or " + fitting
        raise Unavailable(f"the driver is for CUDA {_version(installed)}, CuPy for {_version(built)}: {fitting}")
    try:
        from cupy_backends.cuda.libs import nvrtc

        compiler = nvrtc.getVersion()
        known = sorted(nvrtc.getSupportedArchs()) if hasattr(nvrtc, "getSupportedArchs") else []
    except Exception as error:  # an ImportError where the library is missing, or exceptions of its loader
        raise Unavailable(f"NVRTC, which compiles kernels, cannot be loaded ({error}): {INSTALL}") from None
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise Unavailable(f"CUDA finds no GPU: {error}") from None
    found: list[Driver] = []
    refused: list[str] = []
    for index in range(count):
        try:
            found.append(GpuDriver(index, count, compiler, known))
        except (Unavailable, CudaError) as error:
            refused.append(f"GPU {index}: {error}")
    if not found:
        raise Unavailable("; ".join(refused) or "CUDA finds no GPU")
    return found


def options(target: str) -> list[str]:
    """Return NVRTC's options for an architecture: `sm_90` for a cubin, `compute_90` for PTX."""
    return [f"-arch={target}", "-std=c++17", "-default-device", "--fmad=false"]


def traits(target: str, units: int) -> Traits:
    """Return what launch blocks may know of a GPU of this architecture.

    Features are `mma_f16`, and from 8.0 on `mma_bf16`: tensor cores by `mma.h`.
    """
    features = {"mma_f16", "mma_bf16"} if int(target.split("_")[1]) >= 80 else {"mma_f16"}
    return Traits(kind="gpu", group=256, items=256, units=units, features=frozenset(features))


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


class GpuDriver(Driver):
    """One GPU of this process."""

    forks = False

    def __init__(self, index: int, count: int, compiler: tuple[int, int], known: list[int]) -> None:
        import cupy
        from cupy_backends.cuda.api import driver, runtime
        from cupy_backends.cuda.libs import nvrtc

        self._driver, self._runtime, self._nvrtc = driver, runtime, nvrtc
        self._errors = (runtime.CUDARuntimeError, driver.CUDADriverError, cupy.cuda.memory.OutOfMemoryError)
        self._index, self._several, self._thread = index, count > 1, threading.local()
        properties = self._ask(runtime.getDeviceProperties, index)
        capability = (properties["major"], properties["minor"])
        self.name = properties["name"].decode()
        if capability < OLDEST:
            raise Unavailable(f"{self.name} is of compute capability {'.'.join(map(str, capability))}; 7.5 is needed")
        number = capability[0] * 10 + capability[1]
        older = [n for n in known if n <= number] or [number]
        # A GPU that the compiler does not know gets PTX for the next older one, which the driver compiles
        self.target = f"sm_{number}" if number in older else f"compute_{max(older)}"
        version = runtime.driverGetVersion()
        self.identity = "\0".join([f"{compiler}", f"{version}", *options(self.target)])
        self.limit, self.cache = properties["totalGlobalMem"], properties["l2CacheSize"]
        self.traits = traits(self.target, properties["multiProcessorCount"])
        self.properties = {
            "device": self.name,
            "emulated": False,
            "architecture": self.target,
            "driver": _version(version),
            "nvrtc": ".".join(map(str, compiler)),
            "units": self.traits.units,
            "memory_bytes": self.limit,
        }
        self.dlpack_device = (2, index)  # kDLCUDA
        self._pool, self._current_stream = cupy.cuda.MemoryPool(), cupy.cuda.get_current_stream
        self._held: dict[int, Any] = {}

    def _ask(self, question: Callable[..., T], *arguments: Any) -> T:
        """Call a function with this GPU as the thread's current one."""
        before = self._index
        try:
            if self._several:
                before = self._runtime.getDevice()
            if before != self._index or not hasattr(self._thread, "set"):
                self._runtime.setDevice(self._index)
                self._thread.set = True
            return question(*arguments)
        except self._errors as error:
            raise CudaError(getattr(error, "status", 2), str(error)) from None
        finally:
            if before != self._index:  # other libraries use the thread's device too
                self._runtime.setDevice(before)

    def products(self) -> Products:
        """Return cuBLASLt, which is loaded here."""
        try:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            return CublasLt(ctypes.CDLL(load_nvidia_dynamic_lib("cublasLt").abs_path), self._ask)
        except (ImportError, RuntimeError, OSError, CudaError) as error:  # RuntimeError: it was not found
            raise Unavailable(f"cuBLASLt cannot be used ({error}): {INSTALL}") from None

    def build(self, source: str, entry: str) -> bytes:
        """Build with NVRTC: a cubin, or PTX where the GPU is newer than NVRTC."""
        program = self._nvrtc.createProgram(source, "kernel.cu", [], [])
        try:
            self._nvrtc.compileProgram(program, options(self.target))
            cubin = self.target.startswith("sm_")
            made: bytes = self._nvrtc.getCUBIN(program) if cubin else self._nvrtc.getPTX(program)
            return made
        except self._nvrtc.NVRTCError as error:
            raise BuildFailed(f"{error}\n{self._nvrtc.getProgramLog(program)}") from None
        finally:
            self._nvrtc.destroyProgram(program)

    def load(self, binary: bytes, entry: str) -> tuple[Any, int]:
        """Load by cuModuleLoadData; the module stays loaded as long as the process lives."""
        module = self._ask(self._driver.moduleLoadData, binary)
        kernel = self._ask(self._driver.moduleGetFunction, module, entry)
        most = self._ask(self._driver.funcGetAttribute, self._driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel)
        return kernel, most

    def launch(self, kernel: Any, blocks: int, threads: int, arguments: Arguments, stream: int) -> None:
        """Launch by cuLaunchKernel."""
        if self._several or not hasattr(self._thread, "set"):
            self._ask(self._driver.launchKernel, kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.address, 0)
            return
        try:  # as `_ask` does, in half the time
            self._driver.launchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.address, 0)
        except self._errors as error:
            raise CudaError(getattr(error, "status", 2), str(error)) from None

    def alloc(self, nbytes: int, pinned: bool = False) -> int:
        """Allocate from a pool, or by cudaHostAlloc."""
        if pinned:
            return int(self._ask(self._runtime.hostAlloc, nbytes, self._runtime.hostAllocPortable))
        held = self._ask(self._pool.malloc, nbytes)
        self._held[held.ptr] = held
        return int(held.ptr)

    def free(self, address: int, pinned: bool = False) -> None:
        """Return memory to the pool, or free it by cudaFreeHost."""
        if pinned:
            self._ask(self._runtime.freeHost, address)
        else:
            del self._held[address]

    def copy(self, to: int, of: int, nbytes: int) -> None:
        """Copy by cudaMemcpy, which finds the direction by the addresses; between GPUs it may return early."""
        self._ask(self._runtime.memcpy, to, of, nbytes, self._runtime.memcpyDefault)
        self._ask(self._runtime.streamSynchronize, 0)

    def enqueue_copy(self, to: int, of: int, nbytes: int, stream: int) -> None:
        """Copy by cudaMemcpyAsync."""
        self._ask(self._runtime.memcpyAsync, to, of, nbytes, self._runtime.memcpyDefault, stream)

    def zero(self, address: int, nbytes: int) -> None:
        """Fill by cudaMemset."""
        self._ask(self._runtime.memset, address, 0, nbytes)
        self._ask(self._runtime.streamSynchronize, 0)

    def stream(self) -> int:
        """Return a stream that does not wait for the legacy stream."""
        return int(self._ask(self._runtime.streamCreateWithFlags, self._runtime.streamNonBlocking))

    def check_stream(self, stream: int) -> None:
        """Check by cudaStreamGetFlags."""
        self._ask(self._runtime.streamGetFlags, stream)

    def current(self, libraries: Collection[str]) -> int:
        """Return PyTorch's stream for its memory, else CuPy's, which `with cupy.cuda.Stream():` sets.

        The default of both is the legacy stream. The number keeps the stream alive.
        """
        if "torch" in libraries:
            torch = sys.modules["torch"]
            stream = torch.cuda.current_stream(self._index)
            return Address(int(stream.cuda_stream) or self.legacy, stream)
        stream = self._current_stream(self._index)
        return Address(int(stream.ptr) or (self.legacy if "cupy" in libraries else 0), stream)

    def end_stream(self, stream: int) -> None:
        """Destroy by cudaStreamDestroy."""
        self._ask(self._runtime.streamDestroy, stream)

    def synchronize(self, stream: int) -> None:
        """Wait by cudaStreamSynchronize."""
        self._ask(self._runtime.streamSynchronize, stream)

    def settle(self, stream: int) -> None:
        """Wait in the relaxed mode of captures: in others CUDA forbids to wait, and ends the capture."""
        exchange, mode = self._exchange_capture_mode, ctypes.c_int(RELAXED)
        exchange(ctypes.byref(mode))
        try:
            self.synchronize(stream)
        finally:
            exchange(ctypes.byref(mode))

    @cached_property
    def _exchange_capture_mode(self) -> Callable[..., int]:
        return ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode

    def record(self, stream: int, timed: bool = False) -> int:
        """Record an event, without a time unless one is asked for: timed events cost more."""
        flags = self._runtime.eventDefault if timed else self._runtime.eventDisableTiming
        event = int(self._ask(self._runtime.eventCreateWithFlags, flags))
        self._ask(self._runtime.eventRecord, event, stream)
        return event

    def seconds_between(self, begin: int, end: int) -> float:
        """Return the time by cudaEventElapsedTime, in milliseconds there; it is good to about half a microsecond."""
        return 1e-3 * float(self._ask(self._runtime.eventElapsedTime, begin, end))

    def end_event(self, event: int) -> None:
        """Destroy by cudaEventDestroy."""
        self._ask(self._runtime.eventDestroy, event)

    def wait(self, stream: int, event: int) -> None:
        """Wait by cudaStreamWaitEvent."""
        self._ask(self._runtime.streamWaitEvent, stream, event)

    def has_passed(self, event: int) -> bool:
        """Query by cudaEventQuery, whose status CuPy returns."""
        status = self._ask(self._runtime.eventQuery, event)
        if status not in (0, NOT_READY):
            raise CudaError(status, f"cudaEventQuery gives {status}")
        return bool(status == 0)

    def synchronize_event(self, event: int) -> None:
        """Wait by cudaEventSynchronize."""
        self._ask(self._runtime.eventSynchronize, event)

    def begin_capture(self, stream: int) -> None:
        """Begin a capture for this thread alone: other threads' work meanwhile is not affected."""
        self._ask(self._runtime.streamBeginCapture, stream, self._runtime.streamCaptureModeThreadLocal)

    def captures(self, stream: int) -> bool:
        """Query by cudaStreamIsCapturing."""
        return bool(self._ask(self._runtime.streamIsCapturing, stream))

    def end_capture(self, stream: int) -> int:
        """Return an executable graph; the captured graph that it is instantiated from is not needed again."""
        graph = self._ask(self._runtime.streamEndCapture, stream)
        try:
            return int(self._ask(self._runtime.graphInstantiate, graph))
        finally:
            self._ask(self._runtime.graphDestroy, graph)

    def replay(self, graph: int, stream: int) -> None:
        """Run by cudaGraphLaunch."""
        self._ask(self._runtime.graphLaunch, graph, stream)

    def end_graph(self, graph: int) -> None:
        """Destroy by cudaGraphExecDestroy."""
        self._ask(self._runtime.graphExecDestroy, graph)
