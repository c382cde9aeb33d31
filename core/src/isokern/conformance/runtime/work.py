"""Work for a device to do while its runtime is watched: chains of calls whose results differ at each link."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ... import tensors
from ...backend import Device, Stream, Workspace
from ...call.descriptor import Descriptor
from ...declare.operator import Operator, Sample
from ...declare.samples import assignments, describe
from ...dtypes import F32, DType
from ...layout import TensorDesc
from ...ops import all_operators, find
from ...oracle.cases import Case, samples
from ...oracle.expected import Problems
from ...status import NotImplementedOnDevice
from ...tensors import Tensor
from .check import fail, lacks

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
UNARY: dict[str, Callable[[Floats], Floats]] = {  # in the order in which they are tried
    "neg": np.negative,
    "copy": np.copy,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "square": np.square,
}
LONG = 0.01  # seconds that a chain takes, at least
LARGEST = 1 << 20  # elements of a chain's tensors, at most
LENGTH = 40  # calls
MEASUREMENTS = 5  # per chain: on a busy machine one of them alone can be too long
ATTEMPTS = 3  # to see what depends on which of two threads is faster
THREADS = 8
SWITCH = 5e-6  # seconds after which the interpreter lets another thread go on

_long: weakref.WeakKeyDictionary[Device, int] = weakref.WeakKeyDictionary()


def choose_unary(device: Device) -> str:
    """Return a unary operator that the device has a kernel for in F32."""
    found = next((name for name in UNARY if device.supports(name, T="F32")), None)
    return found or lacks(f"the device computes none of {', '.join(UNARY)} in F32")


class Chain:
    """Calls of one operator, each on the result of the one before: `first` is read, `last` is written at the end.

    `enqueue` makes the calls on a stream. Every tensor holds NaN until its call has run.
    """

    def __init__(self, device: Device, elements: int = 64, length: int = LENGTH) -> None:
        self.name = choose_unary(device)
        self.device = device
        self.input = np.linspace(-2, 2, elements, dtype=np.float32)
        self.tensors = [tensors.tensor(self.input, device=device)]
        self.tensors += [tensors.empty((elements,), F32, device=device) for _ in range(length)]
        self.descriptor = Descriptor.of(find(self.name), [TensorDesc(F32, (elements,))], device=device)
        self.workspace = self.descriptor.alloc_workspace()
        expected = self.input
        for _ in range(length):
            expected = UNARY[self.name](expected)
        self.expected = expected
        self.clear()

    @property
    def last(self) -> Tensor:
        """The result of the last call."""
        return self.tensors[-1]

    def clear(self) -> None:
        """Set every result to NaN, and the input to what it was; waits for the device."""
        self.tensors[0].copy_from(self.input)
        nan = np.full(self.input.shape, np.nan, np.float32)
        for t in self.tensors[1:]:
            t.copy_from(nan)

    def enqueue(self, stream: Stream) -> None:
        """Make the calls."""
        for x, y in zip(self.tensors, self.tensors[1:], strict=False):
            self.descriptor.calculate(x, y, workspace=self.workspace, stream=stream)

    def differs(self, got: Floats) -> str:
        """Describe how a copy of the last result differs from what it must be; empty if it does not."""
        wrong = int((got != self.expected).sum())
        return f"{wrong} of {got.size} elements are not those of the finished work" if wrong else ""


def _measure(chain: Chain, stream: Stream) -> float:
    """Return the seconds that a chain takes."""
    start = time.perf_counter()
    chain.enqueue(stream)
    stream.synchronize()
    return time.perf_counter() - start


def make_long_chain(device: Device) -> Chain:
    """Return a chain that keeps the device busy for some time; how large it must be is measured once a device."""
    elements = _long.get(device, 1 << 12)
    while True:
        chain = Chain(device, elements)
        if device in _long:
            return chain
        stream = device.stream()
        chain.enqueue(stream)  # programs are built by now
        stream.synchronize()
        if elements >= LARGEST or all(_measure(chain, stream) >= LONG for _ in range(MEASUREMENTS)):
            _long[device] = elements
            return Chain(device, elements)
        elements *= 4


def run_in_threads(compute: Callable[[int], str]) -> None:
    """Call `compute(number)` in eight threads that begin together; fail with the first text that one returns.

    They are switched every few microseconds: in Python's usual interval a short function ends before another begins.
    """
    together = threading.Barrier(THREADS)

    def begin(number: int) -> str:
        together.wait()
        return compute(number)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for wrong in pool.map(begin, range(THREADS)):
                if wrong:
                    fail(wrong)
    finally:
        sys.setswitchinterval(usual)


class Witness:
    """One call on a stream of its own, which reads the result of other work at the moment when it runs.

    A read through the host would wait for the device, and hide that the code under test has not waited.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.stream = chain.device.stream()
        desc = TensorDesc("F32", chain.input.shape)
        self.descriptor = Descriptor.of(find(chain.name), [desc], device=chain.device)
        self.seen: Tensor = tensors.zeros(desc.shape, device=chain.device)
        self.workspace = self.descriptor.alloc_workspace()
        self.look()  # its program is built by now
        chain.device.synchronize()

    def look(self) -> None:
        """Enqueue the call."""
        self.descriptor.calculate(self.chain.last, self.seen, workspace=self.workspace, stream=self.stream)

    def find_difference(self) -> str:
        """Describe how what was seen differs from the finished work; empty if it does not."""
        wrong = int((self.seen.numpy() != UNARY[self.chain.name](self.chain.expected)).sum())
        return f"{wrong} of {self.chain.input.size} elements were read before the work was done" if wrong else ""


@dataclass(frozen=True, eq=False)
class ScratchCall:
    """A call that needs a workspace, with its inputs."""

    descriptor: Descriptor
    inputs: list[Tensor | None]

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.descriptor.operator.name

    @property
    def need(self) -> Workspace:
        """The workspace that it asks for."""
        return self.descriptor.workspace

    def scale_inputs(self, factor: float) -> ScratchCall:
        """Return the same call with inputs of its own, whose F32 numbers are multiplied by `factor`."""
        device = self.descriptor.device
        own = [
            t if t is None or t.dtype is not F32 else tensors.tensor(t.numpy() * np.float32(factor), device=device)
            for t in self.inputs
        ]
        return ScratchCall(self.descriptor, own)

    def make_outputs(self) -> list[Tensor]:
        """Return new tensors of zeroes for the results."""
        descs, device = self.descriptor.outputs, self.descriptor.device
        return [tensors.zeros(d.shape, d.dtype, device=device) for d in descs]


def find_scratch_calls(device: Device, limit: int = 4, size: str = "small") -> list[ScratchCall]:
    """Return calls of different operators that the device needs a workspace for; at most `limit`."""
    found = []
    problems = Problems()
    for operator, types in _operators(device):
        for sample, descriptor in _describe_calls(device, operator, types, size):
            inputs = problems.of(Case(operator, tuple(types.values()), sample)).inputs
            given = [
                None if value is None or desc is None else tensors.tensor(value, desc.dtype, device=device)
                for value, desc in zip(inputs, descriptor.inputs, strict=False)
            ]
            found.append(ScratchCall(descriptor, given))
            break
        if len(found) == limit:
            break
    return found or lacks("no operator needs a workspace on the device")


def find_calls_of_zeroes(device: Device, operator: Operator, types: Mapping[str, DType]) -> Iterator[ScratchCall]:
    """Yield calls of one operator that need a workspace, of every size, with zeroes for inputs."""
    for size in ("small", "wide"):
        for _, descriptor in _describe_calls(device, operator, types, size):
            given = [None if d is None else tensors.zeros(d.shape, d.dtype, device=device) for d in descriptor.inputs]
            yield ScratchCall(descriptor, given)


def operators_with_scratch(device: Device, limit: int = 4) -> list[tuple[Operator, Mapping[str, DType]]]:
    """Return operators that need a workspace in some small call, with dtypes; at most `limit`."""
    every = (o for o in _operators(device) if any(_describe_calls(device, *o, "small")))
    return list(itertools.islice(every, limit)) or lacks("no operator needs a workspace on the device")


def _operators(device: Device) -> Iterator[tuple[Operator, Mapping[str, DType]]]:
    for operator in all_operators():
        types = next((t for t in assignments(operator) if F32 in t.values()), None)
        if types is not None and not operator.inout and device.variants(operator.stem):
            yield operator, types


def _describe_calls(
    device: Device, operator: Operator, types: Mapping[str, DType], size: str
) -> Iterator[tuple[Sample, Descriptor]]:
    """Yield the operator's samples of a size for which the device needs a workspace, each with its descriptor."""
    for sample in samples(operator, size, types):
        inputs, outputs = describe(operator, sample, types)
        with suppress(NotImplementedOnDevice):
            descriptor = Descriptor.of(operator, inputs, outputs, device=device, **sample.attrs)
            if descriptor.workspace_size:
                yield sample, descriptor
