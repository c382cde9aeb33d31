"""Test workspaces that nobody has to size: `alloc_workspace`, and "auto" from the pool of a thread and a stream."""

import gc
import threading
from itertools import pairwise

import numpy as np
import pytest

import isokern
from isokern import InsufficientWorkspace, InvalidArgument, TensorDesc
from isokern.backend import Workspace
from isokern.declare.samples import assignments, describe, fits
from isokern.ops import all_operators

CALLS = (
    ("gemm", [(96, 200), (200, 96)]),
    ("batch_norm", [(2, 30, 7), (30,), (30,)]),
    ("conv2d", [(1, 16, 20, 20), (16, 16, 3, 3)]),
    ("reduce_sum", [(1 << 18,)]),
)


@pytest.fixture(scope="module")
def needy(device):
    """Return the device's descriptors that need a workspace, in ascending order of size."""
    made = [isokern.create(op, [TensorDesc("F32", s) for s in shapes], device=device) for op, shapes in CALLS]
    found = sorted((d for d in made if d.workspace_size), key=lambda d: d.workspace_size)
    if not found:
        pytest.skip(f"nothing on {device.name} needs a workspace")
    return found


class Call:
    """A descriptor with operands; `right` is whether y equals the result of the same call with its own workspace."""

    def __init__(self, descriptor, seed=0):
        rng, device = np.random.default_rng(seed), descriptor.device
        self.descriptor = descriptor
        arrays = [(rng.random(d.shape) + 0.5).astype(np.float32) for d in descriptor.inputs if d is not None]
        self.inputs = [isokern.tensor(a, device=device) for a in arrays]
        self.y = isokern.zeros(descriptor.outputs[0].shape, device=device)
        descriptor.calculate(self.inputs, self.y, workspace=descriptor.alloc_workspace())
        self.wanted = np.array(self.y.numpy())
        self.clear()

    def clear(self):
        self.y.copy_from(np.zeros(self.y.shape, np.float32))

    def run(self, **options):
        self.descriptor.calculate(self.inputs, self.y, workspace="auto", **options)

    @property
    def right(self):
        return np.array_equal(self.y.numpy(), self.wanted)


def test_what_is_allocated_fits_every_kernel(device):
    """Calculate and bind the first sample of one operator of each stem that may need a workspace."""
    seen = set()
    for op in all_operators():
        if op.stem in seen or not any(v.workspace for v in device.variants(op.stem)):
            continue
        types = assignments(op)[-1]
        sample = next(s for s in op.samples() if fits(op, s, types))
        try:
            inputs, outputs = describe(op, sample, types)
            made = isokern.create(op, inputs, outputs, device=device, **sample.attrs)
        except isokern.NotImplementedOnDevice:
            continue
        seen.add(op.stem)
        space, need = made.alloc_workspace(), made.workspace
        assert (space is None) == (need.size == 0)
        if space is not None:
            assert (space.nbytes, space.kind, space.address % need.alignment) == (need.size, need.kind, 0)
        tensors = [None if d is None else isokern.zeros(d.shape, d.dtype, device=device) for d in (*outputs, *inputs)]
        outs, ins = tensors[: len(outputs)], tensors[len(outputs) :]
        for workspace in (space, "auto"):
            made.calculate(ins, outs, workspace=workspace)
            made.bind(ins, outs, workspace=workspace)()
        device.synchronize()
    if not seen:
        pytest.skip(f"nothing on {device.name} needs a workspace")


def test_without_one_the_error_says_how_to_get_it(needy):
    call = Call(needy[0])
    told = r"descriptor\.alloc_workspace\(\) returns, or workspace='auto'"
    for wrong in (None, call.y.device.memory.alloc(1)):
        with pytest.raises(InsufficientWorkspace, match=told):
            call.descriptor.calculate(call.inputs, call.y, workspace=wrong)
        with pytest.raises(InsufficientWorkspace, match=told):
            call.descriptor.bind(call.inputs, call.y, workspace=wrong)


@pytest.mark.parametrize("word", ["", "automatic", "AUTO"])
def test_no_other_word_is_taken(needy, word):
    call = Call(needy[0])
    for run in (call.descriptor.calculate, call.descriptor.bind):
        with pytest.raises(InvalidArgument, match=f"workspace='{word}'; allowed: 'auto'"):
            run(call.inputs, call.y, workspace=word)


def test_nothing_is_allocated_where_nothing_is_needed(device):
    x = isokern.zeros((4,), device=device)
    add = isokern.create("add", [x.desc, x.desc], device=device)
    assert add.alloc_workspace() is None
    stream = device.stream()
    count = device.memory.allocations
    add.calculate([x, x], x, workspace="auto", stream=stream)
    assert device.memory.allocations == count
    assert stream.scratch(Workspace()) is None


def test_a_pool_only_grows(needy, device):
    calls, stream = [Call(d) for d in needy], device.stream()
    sizes, memory = [], device.memory
    device.synchronize()
    gc.collect()
    before = memory.live
    for call in [*calls, *reversed(calls), *calls]:
        call.run(stream=stream)
        assert call.right
        gc.collect()
        sizes.append(memory.live - before)
    assert sizes[: len(calls)] == [d.workspace_size for d in needy]
    assert set(sizes[len(calls) :]) == {needy[-1].workspace_size}


def test_streams_share_nothing(device):
    need = Workspace(100)
    first, second = device.stream(), device.stream()
    spaces = [s.scratch(need) for s in (first, second, first)]
    assert spaces[0] is spaces[2]
    low, high = sorted(s.address for s in spaces[:2])
    assert high >= low + 100


def test_threads_on_one_stream_share_nothing(device):
    """On an asynchronous device, launches of several threads may alternate on a stream."""
    need, stream, found = Workspace(100), device.stream(), []

    def work():
        found.append((stream.scratch(need), stream.scratch(need)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(a is b for a, b in found)
    addresses = sorted([stream.scratch(need).address, *(a.address for a, _ in found)])
    assert all(high >= low + 100 for low, high in pairwise(addresses))


def test_a_pool_goes_with_its_thread(device):
    stream, live = device.stream(), []

    def work():
        stream.scratch(Workspace(1 << 20))
        live.append(device.memory.live)

    before = device.memory.live
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    gc.collect()
    assert live == [before + (1 << 20)]
    assert device.memory.live == before


def test_a_pool_of_another_thread_goes_with_the_stream(device):
    made, ended = threading.Event(), threading.Event()
    before, streams = device.memory.live, [device.stream()]
    live = device.memory.live

    def work():
        streams[0].scratch(Workspace(1 << 20))
        made.set()
        ended.wait()

    thread = threading.Thread(target=work)
    thread.start()
    made.wait()
    assert device.memory.live == live + (1 << 20)
    streams.clear()
    gc.collect()
    assert device.memory.live == before
    ended.set()
    thread.join()


@pytest.mark.parametrize("one_stream", [True, False])
def test_threads_that_compute_at_once(needy, device, one_stream):
    """Four threads share a descriptor, on one stream and on several; each gets its own results."""
    calls = [Call(needy[-1], seed) for seed in range(4)]
    streams = [device.default_stream if one_stream else device.stream() for _ in calls]
    wrong, begin = [], threading.Barrier(len(calls))

    def work(call, stream):
        begin.wait()
        for _ in range(20):
            call.run(stream=stream)
            stream.synchronize()
            if not call.right:
                wrong.append(call)
            call.clear()

    threads = [threading.Thread(target=work, args=pair) for pair in zip(calls, streams, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_recording_holds_what_its_calls_were_recorded_with(needy, device):
    """A later call that needs more workspace, in the capture or after it, leaves that of earlier calls alone."""
    calls, stream = [Call(needy[0]), Call(needy[-1])], device.stream()
    device.synchronize()
    gc.collect()
    before = device.memory.live
    with stream.capture() as recording:
        for call in calls:
            call.run(stream=stream)
    held = device.memory.live - before
    assert held == sum({c.descriptor.workspace_size for c in calls})
    for call in reversed(calls):
        call.run(stream=stream)
        call.clear()
    gc.collect()
    sizes = [c.descriptor.workspace_size // 4 + 1 for c in calls]
    others = [isokern.tensor(np.full(size, 7, np.float32), device=device) for size in sizes]
    for _ in range(2):
        recording.replay(stream)
        stream.synchronize()
        assert all(call.right for call in calls)
        assert all((other.numpy() == 7).all() for other in others)
        for call in calls:
            call.clear()
    del others, recording, stream
    device.synchronize()
    gc.collect()
    device.synchronize()
    assert device.memory.live == before


def test_a_recording_and_calls_of_its_thread_share_nothing(device):
    need, stream = Workspace(100), device.stream()
    eager = stream.scratch(need)
    with stream.capture() as recording:
        captured = stream.scratch(need)
        assert stream.scratch(need) is captured
        assert captured is not eager
    assert stream.scratch(need) is eager
    with stream.capture():
        assert stream.scratch(need) not in (eager, captured)
    assert recording.scratch.get(need, device.memory) is captured


def test_a_bound_call_has_a_workspace_of_its_own(needy, device):
    calls = [Call(needy[-1], seed) for seed in range(2)]
    gc.collect()
    before = device.memory.live
    bound = [c.descriptor.bind(c.inputs, c.y, workspace="auto") for c in calls]
    assert device.memory.live - before == 2 * needy[-1].workspace_size
    for run in bound:
        run()
    assert all(c.right for c in calls)
    del bound, run
    gc.collect()
    device.synchronize()
    assert device.memory.live == before


def test_alignment_grows_too(device):
    stream = device.stream()
    wide = stream.scratch(Workspace(64, alignment=4096))
    assert wide.address % 4096 == 0
    assert stream.scratch(Workspace(32)) is wide
    assert stream.scratch(Workspace(64, alignment=1 << 16)).address % (1 << 16) == 0
