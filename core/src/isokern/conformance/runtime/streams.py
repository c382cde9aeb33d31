"""The requirements on streams and events: order, waits, and events that are complete only when they should be."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from ... import tensors
from ...backend import Device, Stream, current_stream
from ...call.descriptor import Descriptor
from ...ops import find
from ...status import InvalidArgument
from ...tensors import Tensor
from .check import fail, lacks, runtime_check
from .work import Chain, Witness, make_long_chain

ROUNDS = 5


def _busy(device: Device) -> tuple[Chain, Witness, Stream]:
    chain = make_long_chain(device)
    return chain, Witness(chain), device.stream()


@runtime_check()
def runs_a_stream_in_order(device: Device) -> None:
    """Calls on one stream run in the order in which they were enqueued."""
    for elements in (64, 1 << 14):
        chain = Chain(device, elements, length=300)
        chain.enqueue(device.stream())
        if wrong := chain.differs(chain.last.numpy()):
            fail(f"300 calls, each on the result of the one before: {wrong}")


@runtime_check()
def makes_a_stream_wait(device: Device) -> None:
    """Work that is enqueued after `stream.wait(event)` starts after the event."""
    chain, witness, stream = _busy(device)
    for _ in range(ROUNDS):
        chain.clear()
        chain.enqueue(stream)
        witness.stream.wait(stream.record())
        witness.look()
        if wrong := witness.find_difference():
            fail(wrong)


@runtime_check()
def synchronizes_events(device: Device) -> None:
    """`event.synchronize` returns when the work before the event is done, and `query` is true from then on."""
    chain, witness, stream = _busy(device)
    for _ in range(ROUNDS):
        chain.clear()
        chain.enqueue(stream)
        event = stream.record()
        event.synchronize()
        witness.look()
        if not event.query():
            fail("query is false after synchronize")
        if wrong := witness.find_difference():
            fail(wrong)


@runtime_check()
def queries_events_truthfully(device: Device) -> None:
    """`event.query` is true only when the work before the event is done."""
    chain, witness, stream = _busy(device)
    for _ in range(ROUNDS):
        chain.clear()
        chain.enqueue(stream)
        event = stream.record()
        while not event.query():
            pass
        witness.look()
        if wrong := witness.find_difference():
            fail(wrong)


@runtime_check()
def records_events_for_the_work_before(device: Device) -> None:
    """An event stands for the work before it: work that is enqueued afterwards does not hold it up for ever."""
    chain = make_long_chain(device)
    stream = device.stream()
    empty = stream.record()
    empty.synchronize()
    chain.enqueue(stream)
    if not empty.query():
        fail("an event of an empty stream is not past after work was enqueued behind it")
    first = stream.record()
    stream.synchronize()
    if not first.query():
        fail("query is false after the stream was synchronized")


@runtime_check()
def synchronizes_streams(device: Device) -> None:
    """`stream.synchronize` returns when all work of the stream is done."""
    chain, witness, stream = _busy(device)
    for _ in range(ROUNDS):
        chain.clear()
        chain.enqueue(stream)
        stream.synchronize()
        witness.look()
        if wrong := witness.find_difference():
            fail(wrong)


@runtime_check()
def synchronizes_the_device(device: Device) -> None:
    """`device.synchronize` returns when the work of every stream is done."""
    chain, witness, stream = _busy(device)
    for _ in range(ROUNDS):
        chain.clear()
        chain.enqueue(stream)
        device.synchronize()
        witness.look()
        if wrong := witness.find_difference():
            fail(wrong)


@runtime_check()
def says_when_calls_return_early(device: Device) -> None:
    """Where `asynchronous` is false, a call is done when it returns."""
    if device.asynchronous:
        return
    chain, witness, stream = _busy(device)
    for _ in range(ROUNDS):
        chain.clear()
        chain.enqueue(stream)
        witness.look()
        if wrong := witness.find_difference():
            fail(f"asynchronous is false, and {wrong}")


@runtime_check()
def finds_streams_by_handle(device: Device) -> None:
    """`stream.handle` is an integer of one living stream, by which `stream_of` finds it; 0 is the current one."""
    streams = [device.default_stream, device.stream(), device.stream()]
    handles = [s.handle for s in streams]
    if len(set(handles)) != len(handles) or not all(isinstance(h, int) and h > 0 for h in handles):
        fail(f"handles of three streams are {handles}")
    for stream in streams:
        if device.stream_of(stream.handle) is not stream:
            fail("stream_of(stream.handle) is another stream")
        with stream:
            if current_stream(device) is not stream or device.stream_of(0) is not stream:
                fail("`with stream:` does not make it the current one")


@runtime_check()
def takes_only_its_own_events_and_streams(device: Device) -> None:
    """An object that is not an event or a stream of the device is refused by `wait` and by a call."""
    chain = Chain(device, length=1)
    for wrong in (None, 0, "event", object()):
        try:
            device.stream().wait(wrong)  # type: ignore[arg-type]  # which is to be refused
        except InvalidArgument:
            continue
        fail(f"wait accepted {wrong!r}")
    try:
        chain.enqueue(object())  # type: ignore[arg-type]  # which is to be refused
    except InvalidArgument:
        return
    fail("a call accepted an object that is not a stream")


@runtime_check()
def makes_many_streams(device: Device) -> None:
    """Sixty-four streams at once compute what one does, and dropped ones are gone."""
    chains = [Chain(device, 256, length=4) for _ in range(8)]
    before = len(device.live_streams())
    for _ in range(8):
        streams = [device.stream() for _ in chains]
        for chain, stream in zip(chains, streams, strict=True):
            chain.clear()
            chain.enqueue(stream)
        for chain in chains:
            if wrong := chain.differs(chain.last.numpy()):
                fail(wrong)
    del streams, stream
    gc.collect()
    if (left := len(device.live_streams()) - before) > 0:
        fail(f"{left} of 64 dropped streams are still there")


class Gathers:
    """Calls of `gather` on one stream, with indices that are good or out of range."""

    def __init__(self, device: Device) -> None:
        if not device.supports("gather", T="F32"):
            lacks("the device has no operator whose values it checks: gather in F32")
        self.stream = device.stream()
        self.data = tensors.tensor(np.arange(8, dtype=np.float32).reshape(4, 2), device=device)
        self.good = tensors.tensor(np.array([0, 3], np.int64), device=device)
        self.bad = tensors.tensor(np.array([0, 99], np.int64), device=device)
        self.descriptor = Descriptor.of(find("gather"), [self.data.desc, self.good.desc], device=device, axis=0)
        self.out = tensors.zeros(self.descriptor.outputs[0].shape, device=device)
        self.call(self.good)  # its program is built by now
        self.stream.synchronize()

    def call(self, indices: Tensor) -> None:
        """Enqueue a call, without a wait."""
        self.descriptor.calculate([self.data, indices], self.out, workspace="auto", stream=self.stream)

    def find_error(self, indices: Tensor) -> str:
        """Make a call and wait for its stream alone; return the error that either raised, empty for none."""
        try:
            self.call(indices)
            self.stream.synchronize()
        except InvalidArgument as error:
            return str(error)
        return ""


@runtime_check()
def reports_an_error_to_its_own_stream(device: Device) -> None:
    """Waiting for one stream raises no error of another one's calls, in one thread or in two."""
    mine, other = Gathers(device), Gathers(device)
    with suppress(InvalidArgument):  # where calls run in the caller's thread
        mine.call(mine.bad)
    raised = other.find_error(other.good)
    device_error = mine.find_error(mine.good)
    if raised:
        fail(f"waiting for a stream whose calls were right raised the error of another stream: {raised}")
    if device.asynchronous and not device_error:
        fail("an error of a stream was lost when another one was synchronized")

    def repeat(gathers: Gathers) -> int:
        indices = gathers.bad if gathers is mine else gathers.good
        return sum(bool(gathers.find_error(indices)) for _ in range(20))

    with ThreadPoolExecutor(2) as pool:
        of_mine, of_other = pool.map(repeat, (mine, other))
    if (of_mine, of_other) != (20, 0):
        fail(f"of 20 wrong calls in one thread {of_mine} raised, and of 20 right ones in another {of_other}")


@runtime_check()
def reports_an_error_once_to_its_caller(device: Device) -> None:
    """What only the device finds, such as an index out of range, is raised once, at the next wait or read."""
    gathers = Gathers(device)

    def call(indices: Tensor) -> None:
        gathers.call(indices)
        gathers.stream.synchronize()
        device.synchronize()

    for _ in range(3):
        try:
            call(gathers.bad)
        except InvalidArgument as error:
            if "gather" not in str(error):
                fail(f"the error of an index out of range does not name the operator: {error}")
        else:
            fail("an index out of range raised nothing")
        try:
            call(gathers.good)
        except InvalidArgument as error:
            fail(f"the error of an earlier call was raised again: {error}")
        if (gathers.out.numpy() != [[0, 1], [6, 7]]).any():
            fail("a call after one with an error computes something else")
