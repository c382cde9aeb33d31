"""All that this backend asks of CUDA, one GPU at a time: addresses and handles are integers, whatever fails raises `CudaError`.

`gpu.py` answers by CuPy and a real driver, `sim.py` by this machine's processor.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isokern.dtypes import DType
from isokern.simt import Traits


class CudaError(Exception):
    """A call failed: CUDA's number of the error (cudaError_t and CUresult agree on those that matter here), and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class BuildFailed(Exception):
    """A compiler refused a kernel; its log."""


class Wrong(Exception):
    """What an emulated kernel did wrong."""


class Arguments:
    """What a launch passes: pointers, then the record by value. `address` is that of the array of pointers to each, as cuLaunchKernel takes it."""

    __slots__ = ("_kept", "address")

    def __init__(self, pointers: Sequence[int], record: bytes) -> None:
        n = len(pointers)
        given = (ctypes.c_uint64 * n)(*pointers)
        by_value = ctypes.create_string_buffer(record, len(record))
        start = ctypes.addressof(given)
        table = (ctypes.c_void_p * (n + 1))(*range(start, start + 8 * n, 8), ctypes.addressof(by_value))
        self.address = ctypes.addressof(table)
        self._kept = (given, by_value, table)


@dataclass(frozen=True)
class Matrix:
    """A matrix that counts down columns, `lead` elements from one to the next, those of a batch `apart`; the first `offset` bytes from its tensor's
    base. `transposed` is whether its transpose is what is multiplied.
    """

    rows: int
    cols: int
    lead: int
    apart: int
    offset: int
    transposed: bool = False


@dataclass(frozen=True)
class Product:
    """y = activation(alpha a b + beta c + bias) for each of a batch; bias has an element a row of y, `bias` bytes from its base (None: none)."""

    dtype: DType
    batch: int
    alpha: float
    beta: float
    activation: str
    a: Matrix
    b: Matrix
    c: Matrix
    y: Matrix
    bias: int | None


class Planned(ABC):
    """A product that a library knows how to do; `workspace` is in bytes."""

    workspace: int

    @abstractmethod
    def enqueue(self, addresses: tuple[int, int, int, int, int], workspace: int, stream: int) -> None:
        """Enqueue it; the addresses are those of the first elements of a, b, c, y and bias."""


class Products(ABC):
    """A library of matrix products."""

    @abstractmethod
    def plan(self, product: Product) -> Planned:
        """How it would be done on this device; `CudaError` where it cannot be."""


class Driver(ABC):
    """One GPU. `identity` tells apart all that a binary depends on beside its source; `limit` is the most bytes there are; `cache` the bytes of
    its L2; `forks` is whether it lives on in a forked process; `dlpack_device` is DLPack's (device type, index).
    """

    name: str
    identity: str
    traits: Traits
    limit: int
    cache: int
    forks: bool
    legacy = 1  # the stream that other libraries use by default (cudaStreamLegacy)
    dlpack_device: tuple[int, int]
    properties: Mapping[str, Any]

    def products(self) -> Products | None:
        """The library of matrix products, None where this driver has none at all; `Unavailable` says what is missing."""
        return None

    @abstractmethod
    def build(self, source: str, entry: str) -> bytes:
        """The binary of a source, for `load`; `BuildFailed` where the compiler refuses it."""

    @abstractmethod
    def load(self, binary: bytes, entry: str) -> tuple[Any, int]:
        """The kernel of a binary, and how many threads a block of it may have; `CudaError` where the binary is none."""

    @abstractmethod
    def launch(self, kernel: Any, blocks: int, threads: int, arguments: Arguments, stream: int) -> None:
        """Enqueue a kernel; the arguments are read before this returns."""

    @abstractmethod
    def alloc(self, nbytes: int, pinned: bool = False) -> int:
        """The address of memory of the device (or of the host, pinned), aligned to 256 bytes."""

    @abstractmethod
    def free(self, address: int, pinned: bool = False) -> None:
        """Give it back; nothing in flight uses it."""

    @abstractmethod
    def copy(self, to: int, of: int, nbytes: int) -> None:
        """Copy between any two addresses, and wait for it."""

    @abstractmethod
    def enqueue_copy(self, to: int, of: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy between memory of devices and pinned memory."""

    @abstractmethod
    def zero(self, address: int, nbytes: int) -> None:
        """Fill with zeros, and wait for it."""

    @abstractmethod
    def stream(self) -> int:
        """A new stream, which waits for no other."""

    @abstractmethod
    def check_stream(self, stream: int) -> None:
        """`CudaError` where this is the handle of no stream."""

    @abstractmethod
    def current(self, libraries: Collection[str]) -> int:
        """The stream that other libraries use in this thread now, first of all those whose memory a call is for; 0 where none has one."""

    @abstractmethod
    def end_stream(self, stream: int) -> None:
        """Forget it; what is enqueued runs to its end."""

    @abstractmethod
    def synchronize(self, stream: int) -> None:
        """Wait for all that is enqueued."""

    @abstractmethod
    def record(self, stream: int, timed: bool = False) -> int:
        """A new event after all that is enqueued; a timed one notes when it passes."""

    @abstractmethod
    def seconds_between(self, begin: int, end: int) -> float:
        """Seconds between two timed events that have passed."""

    @abstractmethod
    def end_event(self, event: int) -> None:
        """Forget it."""

    @abstractmethod
    def wait(self, stream: int, event: int) -> None:
        """Let what is enqueued from now on start after the event."""

    @abstractmethod
    def has_passed(self, event: int) -> bool:
        """Whether the work before the event is done."""

    @abstractmethod
    def synchronize_event(self, event: int) -> None:
        """Wait for it."""

    @abstractmethod
    def begin_capture(self, stream: int) -> None:
        """From now on this thread's launches on the stream make a graph."""

    @abstractmethod
    def captures(self, stream: int) -> bool:
        """Whether launches on the stream make a graph, of whoever began that."""

    @abstractmethod
    def end_capture(self, stream: int) -> int:
        """The graph, ready to run."""

    @abstractmethod
    def replay(self, graph: int, stream: int) -> None:
        """Enqueue a graph."""

    @abstractmethod
    def end_graph(self, graph: int) -> None:
        """Forget it."""
