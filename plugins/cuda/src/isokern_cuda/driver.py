"""The interface to CUDA that this backend uses, one GPU at a time.

Addresses and handles are integers; whatever fails raises `CudaError`. `gpu.py` implements it by CuPy and a real driver,
`sim.py` by this machine's processor.
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
    """A failed call: CUDA's error number, and its text.

    cudaError_t and CUresult agree on the numbers that matter here.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class BuildFailed(Exception):
    """Raised where a compiler refuses a kernel; has its log."""


class Wrong(Exception):
    """Raised for what an emulated kernel did wrong."""


class Arguments:
    """The arguments of a launch: pointers, then the record by value.

    `address` is that of the array of pointers to each, as cuLaunchKernel takes it.
    """

    __slots__ = ("_kept", "address")

    def __init__(self, pointers: Sequence[int], record: bytes) -> None:
        n = len(pointers)
        given = (ctypes.c_uint64 * n)(*pointers)
        by_value = ctypes.create_string_buffer(record, len(record))
        start = ctypes.addressof(given)
        table = (ctypes.c_void_p * (n + 1))(*range(start, start + 8 * n, 8), ctypes.addressof(by_value))
        self.address = ctypes.addressof(table)
        self._kept = (given, by_value, table)

    def point(self, pointers: Sequence[int]) -> None:
        """Take other pointers, as many as before."""
        self._kept[0][:] = list(pointers)

    @property
    def pointers(self) -> list[int]:
        """The pointers, again."""
        return list(self._kept[0])

    @property
    def record(self) -> bytes:
        """The record, again."""
        return self._kept[1].raw


@dataclass(frozen=True)
class Matrix:
    """A column-major matrix.

    `lead` is the distance in elements from one column to the next, `apart` that of the matrices of a batch, and
    `offset` the bytes from the tensor's base to the first one. `transposed` says that the transpose is multiplied.
    """

    rows: int
    cols: int
    lead: int
    apart: int
    offset: int
    transposed: bool = False


@dataclass(frozen=True)
class Product:
    """y = activation(alpha a b + beta c + bias) for each of a batch.

    bias has an element per row of y, and begins `bias` bytes from its base; None where there is none.
    """

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
    """A product that a library can compute; `workspace` is in bytes."""

    workspace: int

    @abstractmethod
    def enqueue(self, addresses: tuple[int, int, int, int, int], workspace: int, stream: int) -> None:
        """Enqueue the product; the addresses are those of the first elements of a, b, c, y and bias."""


class Products(ABC):
    """A library of matrix products."""

    @abstractmethod
    def plan(self, product: Product) -> Planned:
        """Return how the product is computed on this device; raise `CudaError` where it cannot be."""


class Driver(ABC):
    """One GPU.

    `identity` identifies all that a binary depends on apart from its source; `limit` is the number of bytes of memory;
    `cache` the bytes of its L2; `forks` says whether it keeps working in a forked process; `dlpack_device` is DLPack's
    (device type, index).
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
        """Return the library of matrix products, or None where this driver has none at all.

        `Unavailable` says what is missing.
        """
        return None

    @abstractmethod
    def build(self, source: str, entry: str) -> bytes:
        """Return the binary of a source, for `load`; raise `BuildFailed` where the compiler refuses it."""

    @abstractmethod
    def load(self, binary: bytes, entry: str) -> tuple[Any, int]:
        """Return the kernel of a binary, and how many threads a block of it may have.

        Raises `CudaError` where the binary is invalid.
        """

    @abstractmethod
    def launch(self, kernel: Any, blocks: int, threads: int, arguments: Arguments, stream: int) -> None:
        """Enqueue a kernel; the arguments are read before this returns."""

    @abstractmethod
    def alloc(self, nbytes: int, pinned: bool = False) -> int:
        """Return the address of new memory of the device, or of pinned host memory, aligned to 256 bytes."""

    @abstractmethod
    def free(self, address: int, pinned: bool = False) -> None:
        """Free memory that nothing in flight uses."""

    @abstractmethod
    def copy(self, to: int, of: int, nbytes: int) -> None:
        """Copy between any two addresses, and wait for it."""

    @abstractmethod
    def enqueue_copy(self, to: int, of: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy between device memory and pinned memory."""

    @abstractmethod
    def zero(self, address: int, nbytes: int) -> None:
        """Fill with zeros, and wait for it."""

    @abstractmethod
    def stream(self) -> int:
        """Return a new stream, which waits for no other."""

    @abstractmethod
    def check_stream(self, stream: int) -> None:
        """Raise `CudaError` where the handle is not a stream's."""

    @abstractmethod
    def current(self, libraries: Collection[str]) -> int:
        """Return the stream that other libraries use in this thread now, or 0 where none has one.

        A library whose memory the call is for comes first.
        """

    @abstractmethod
    def end_stream(self, stream: int) -> None:
        """Destroy a stream; work that was enqueued runs to its end."""

    @abstractmethod
    def synchronize(self, stream: int) -> None:
        """Wait for all enqueued work."""

    def settle(self, stream: int) -> None:
        """Wait for all enqueued work of a stream that is not captured, also while another stream is."""
        self.synchronize(stream)

    @abstractmethod
    def record(self, stream: int, timed: bool = False) -> int:
        """Return a new event after all that is enqueued; a timed one notes when it passes."""

    @abstractmethod
    def seconds_between(self, begin: int, end: int) -> float:
        """Return the seconds between two timed events that have passed."""

    @abstractmethod
    def end_event(self, event: int) -> None:
        """Destroy an event."""

    @abstractmethod
    def wait(self, stream: int, event: int) -> None:
        """Make what is enqueued from now on start after the event."""

    @abstractmethod
    def has_passed(self, event: int) -> bool:
        """Return whether the work before the event is done."""

    @abstractmethod
    def synchronize_event(self, event: int) -> None:
        """Wait for the event."""

    @abstractmethod
    def begin_capture(self, stream: int) -> None:
        """Collect this thread's launches on the stream into a graph from now on."""

    @abstractmethod
    def captures(self, stream: int) -> bool:
        """Return whether launches on the stream are captured into a graph, whoever began the capture."""

    @abstractmethod
    def end_capture(self, stream: int) -> int:
        """Return the graph, ready to run."""

    @abstractmethod
    def replay(self, graph: int, stream: int) -> None:
        """Enqueue a graph."""

    @abstractmethod
    def end_graph(self, graph: int) -> None:
        """Destroy a graph."""
