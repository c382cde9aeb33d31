"""What capture and replay must do."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ... import tensors
from ...backend import Device
from ...status import InvalidArgument
from .check import fail, runtime_check
from .work import UNARY, Chain, Witness, make_long_chain


def _is_untouched(chain: Chain) -> bool:
    return bool(np.isnan(chain.last.numpy()).all())


@runtime_check()
def runs_nothing_at_capture(device: Device) -> None:
    """Calls that are made while their stream is captured do not run."""
    chain, stream = Chain(device, length=3), device.stream()
    with stream.capture() as recording:
        chain.enqueue(stream)
        chain.descriptor.bind(chain.tensors[0], chain.last, workspace=chain.workspace, stream=stream)()
    device.synchronize()
    if not _is_untouched(chain):
        fail("the result was written before any replay")
    if len(recording) < 1:
        fail("the recording is empty")


@runtime_check()
def replays_with_new_contents(device: Device) -> None:
    """A replay computes with what the same buffers hold then, as often as it is asked for, on any stream."""
    chain, stream = Chain(device, length=3), device.stream()
    with stream.capture() as recording:
        chain.enqueue(stream)
    for factor, target in ((1, stream), (3, stream), (5, device.stream())):
        content = chain.input * np.float32(factor)
        chain.tensors[0].copy_from(content)
        recording.replay(target)
        wanted = content
        for _ in range(3):
            wanted = UNARY[chain.name](wanted)
        if (chain.last.numpy() != wanted).any():
            fail(f"a replay with the input times {factor} gave other numbers")


@runtime_check()
def replays_asynchronously_and_in_order(device: Device) -> None:
    """A replay is work of its stream: `synchronize` waits for it, and an event behind it is past when it is done."""
    chain, stream = make_long_chain(device), device.stream()
    witness = Witness(chain)
    with stream.capture() as recording:
        chain.enqueue(stream)
    for _ in range(3):
        chain.clear()
        recording.replay(stream)
        recording.replay(stream)
        stream.synchronize()
        witness.look()
        if wrong := witness.find_difference():
            fail(f"synchronize returned before a replay was done: {wrong}")
        chain.clear()
        recording.replay(stream)
        witness.stream.wait(stream.record())
        witness.look()
        if wrong := witness.find_difference():
            fail(f"an event behind a replay was past before it: {wrong}")


@runtime_check()
def replays_after_earlier_work(device: Device) -> None:
    """A replay starts after the work that was enqueued before it on its stream."""
    chain, stream = make_long_chain(device), device.stream()
    seen = tensors.zeros(chain.input.shape, device=device)
    with stream.capture() as recording:
        chain.descriptor.calculate(chain.last, seen, workspace=chain.workspace, stream=stream)
    for _ in range(3):
        chain.clear()
        chain.enqueue(stream)
        recording.replay(stream)
        if (seen.numpy() != UNARY[chain.name](chain.expected)).any():
            fail("a replay read the result of earlier work before that was done")


@runtime_check()
def refuses_a_nested_capture(device: Device) -> None:
    """A stream that a thread captures already cannot be captured again by it; a second one afterwards can."""
    stream = device.stream()
    with stream.capture():
        try:
            with stream.capture():
                pass
        except InvalidArgument:
            pass
        else:
            fail("a capture inside a capture raised no InvalidArgument")
    chain = Chain(device, length=2)
    with stream.capture() as again:
        chain.enqueue(stream)
    again.replay(stream)
    if wrong := chain.differs(chain.last.numpy()):
        fail(f"after a refused capture, {wrong}")


@runtime_check()
def refuses_a_replay_inside_its_capture(device: Device) -> None:
    """A recording that is not complete cannot be replayed, and an error does not spoil the stream."""
    stream = device.stream()
    try:
        with stream.capture() as recording:
            recording.replay(stream)
    except InvalidArgument:
        pass
    else:
        fail("a replay inside its own capture raised no InvalidArgument")
    try:
        with stream.capture():
            raise KeyError("of the caller")
    except KeyError:
        pass
    chain = Chain(device, length=2)
    chain.enqueue(stream)
    if wrong := chain.differs(chain.last.numpy()):
        fail(f"after a capture that an error ended, {wrong}")


@runtime_check()
def records_a_replay(device: Device) -> None:
    """A replay on a stream that is being captured becomes a part of the recording."""
    chain, stream = Chain(device, length=2), device.stream()
    with stream.capture() as inner:
        chain.enqueue(stream)
    with stream.capture() as outer:
        inner.replay(stream)
    device.synchronize()
    if not _is_untouched(chain):
        fail("a replay inside a capture ran at once")
    del inner
    gc.collect()
    outer.replay(stream)
    if wrong := chain.differs(chain.last.numpy()):
        fail(wrong)


@runtime_check()
def holds_what_a_recording_names(device: Device) -> None:
    """A recording holds the tensors, workspaces and plans of its calls."""
    chain, stream = Chain(device, 4096, length=4), device.stream()
    last, expected = chain.last, chain.expected
    with stream.capture() as recording:
        chain.enqueue(stream)
    elements = chain.input.size
    del chain
    gc.collect()
    rubbish = [tensors.tensor(np.full(elements, 9e9, np.float32), device=device) for _ in range(8)]
    recording.replay(stream)
    if (last.numpy() != expected).any():
        fail("the tensors of a recording were dropped, others were made, and a replay gave other numbers")
    del rubbish


@runtime_check()
def leaves_other_threads_alone(device: Device) -> None:
    """While one thread captures a stream, another one computes on it, reads, writes, and captures it too."""
    mine, other, third = (Chain(device, length=2) for _ in range(3))
    stream = device.stream()

    def elsewhere() -> str:
        other.enqueue(stream)
        wrong = other.differs(other.last.numpy())
        with stream.capture() as recording:
            third.enqueue(stream)
        recording.replay(stream)
        return wrong or third.differs(third.last.numpy())

    with ThreadPoolExecutor(1) as pool, stream.capture() as recording:
        mine.enqueue(stream)
        wrong = pool.submit(elsewhere).result()
    if wrong:
        fail(f"in another thread {wrong}")
    if not _is_untouched(mine):
        fail("a captured call ran when another thread used the stream")
    recording.replay(stream)
    if wrong := mine.differs(mine.last.numpy()):
        fail(wrong)
