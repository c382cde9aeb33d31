"""Test what `isokern bench` asks of a GPU: clocks, limits and other libraries.

The answers come from the emulated GPU and from a fake CuPy over it.
"""

import importlib.util
import shutil
import sys
import time

import numpy as np
import pytest

import isokern
from isokern.bench import cases, lists
from isokern.bench.cases import measure
from isokern.declare.operator import Sample
from isokern.declare.samples import describe
from isokern.dtypes import BF16, F16, F32, F64, I32
from isokern.measure.sizes import samples, types_for
from isokern.ops import all_operators, find

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

BARS = ["gemm", "matmul", "linear"]
USUAL = [
    *BARS, "add", "mul", "relu", "exp", "gelu", "silu", "tanh", "equal", "where",
    "softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm",
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "argmax",
    "conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d",
    "cast", "copy", "rearrange", "slice", "pad", "concat", "gather", "fill",
]  # fmt: skip


@pytest.fixture
def gpu(cupy, monkeypatch):
    """Return a GPU that the fake CuPy finds; its peak is measured by small products."""
    monkeypatch.setattr("isokern_cuda.bench.limits.SIDE", 16)
    from isokern_cuda.devices import CudaDevice
    from isokern_cuda.gpu import drivers

    (driver,) = drivers()
    return CudaDevice("cuda:0", driver)


def case(op, shapes, element=F32, attrs=None):
    """Return (operator, one sample of it, its inputs drawn at random, descriptions of its outputs)."""
    op, sample = find(op), Sample(shapes, attrs or {})
    descs, outs = describe(op, sample, types_for(op, element))
    return op, sample, [cases._values(d, cases._domain(op, sample, i)) for i, d in enumerate(descs)], outs


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["emulated", "gpu"])
def test_a_timer(request, opened, which):
    device = opened() if which == "emulated" else request.getfixturevalue("gpu")
    x = isokern.zeros((64,), device=device)
    call = isokern.create("neg", [x.desc], device=device).bind(x, x)
    timer = device.timer(device.default_stream)
    timer.start()
    call()
    time.sleep(0.02)
    timer.stop()
    assert 0.02 <= timer.seconds() < 2
    timer.start()
    timer.stop()
    assert 0 <= timer.seconds() < 0.02


def test_events_without_times(driver):
    from isokern_cuda.driver import CudaError

    cuda = driver()
    stream = cuda.stream()
    plain, timed = cuda.record(stream), cuda.record(stream, timed=True)
    with pytest.raises(CudaError, match="without its time"):
        cuda.seconds_between(plain, timed)
    cuda.end_event(plain)
    with pytest.raises(CudaError, match="no event"):
        cuda.seconds_between(plain, timed)


def test_a_case_waits_only_at_the_ends_of_rounds(opened, monkeypatch):
    device = opened()
    log = []
    monkeypatch.setattr(device.driver, "launch", lambda *a, go=device.driver.launch: log.append("launch") or go(*a))
    for wait in ("synchronize", "synchronize_event"):
        go = getattr(device.driver, wait)
        monkeypatch.setattr(device.driver, wait, lambda handle, go=go: log.append("wait") or go(handle))
    measure(device, find("add"), Sample({"a": (8,), "b": (8,)}), F32, 0.02)
    runs = "".join(x[0] for x in log).split("w")
    assert max(map(len, runs)) > 100
    assert np.median([len(r) for r in runs]) < 1  # the two waits, for Isokern and for NumPy, follow each other


def test_large_samples_are_cold(opened, monkeypatch):
    """Large samples cycle through so many copies that operands leave the cache; others stay warm."""
    device = opened()
    device.cache = 1000
    places = []
    place = cases._place
    monkeypatch.setattr(cases, "_place", lambda *a: places.append(place(*a)) or places[-1])
    for size, count in (("medium", 1), ("large", 3), ("huge", 3)):
        places.clear()
        found = measure(device, find("neg"), Sample({"x": (200,)}, size=size), F32, 0.001)
        assert len(places) == count
        assert found.left_out == {}
        assert len({p.outputs[0].buffer.address for p in places}) == count
        for p in places:
            assert np.array_equal(p.outputs[0].numpy(), -p.inputs[0].numpy())


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_emulation_has_no_limits(opened):
    assert list(opened().limits(1 << 20, F32)) == []


def test_limits(gpu, cupy, monkeypatch):
    asked = []
    enqueue_copy = gpu.driver.enqueue_copy
    monkeypatch.setattr(gpu.driver, "enqueue_copy", lambda *a: asked.append(a) or enqueue_copy(*a))
    found = gpu.limits(1 << 16, BF16)
    assert [(x.kind, x.work) for x in found] == [("copy", 1 << 16), ("copy", 1 << 16), ("fma", 2 * 16**3)]
    for limit in found:
        limit.run()
    (copied,) = asked
    assert copied[2:] == (1 << 15, gpu.default_stream.handle)
    assert cupy.products == [gpu.default_stream.handle]
    assert [x.kind for x in gpu.limits(1 << 16, I32)] == ["copy", "copy"]


def test_no_cublas(gpu, monkeypatch):
    monkeypatch.delattr(sys.modules["cupy_backends.cuda.libs"], "cublas")
    assert [x.kind for x in gpu.limits(1 << 16, F32)] == ["copy", "copy"]


def test_the_driver_copies(gpu):
    x, y = isokern.tensor(np.arange(9, dtype=np.float32), device=gpu), isokern.zeros((9,), device=gpu)
    gpu.driver.enqueue_copy(y.buffer.address, x.buffer.address, 32, gpu.default_stream.handle)
    assert y.numpy().tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0]


# --- other libraries --------------------------------------------------------------------------------------------------


def test_peers(opened, gpu):
    torch = ["torch"] if importlib.util.find_spec("torch") else []
    assert [p.name for p in gpu.peers()] == [*torch, "cupy", "cublas"]
    assert [p.name for p in opened().peers()] == ["numpy"]


@pytest.mark.parametrize("element", [F32, F64, F16, BF16], ids=str)
def test_cublas_makes_the_same_product(gpu, cupy, element):
    for op, shapes, attrs in [
        ("matmul", {"a": (3, 5), "b": (5, 4)}, {}),
        ("gemm", {"a": (3, 5), "b": (5, 4)}, {"alpha": 0.5}),
        ("gemm", {"a": (5, 3), "b": (5, 4)}, {"trans_a": True}),
        ("gemm", {"a": (3, 5), "b": (4, 5)}, {"trans_b": True}),
        ("gemm", {"a": (5, 3), "b": (4, 5)}, {"trans_a": True, "trans_b": True}),
        ("linear", {"x": (2, 3, 5), "w": (4, 5)}, {}),
    ]:
        found = measure(gpu, *case(op, shapes, element, attrs)[:2], element, 0.001)
        assert "cublas" in found.peers, found.left_out
    assert set(cupy.products) == {gpu.default_stream.handle}


def test_cublas_has_plain_products_alone(gpu):
    from isokern_cuda.bench.cublas import form

    for name, shapes, attrs in [
        ("matmul", {"a": (2, 3, 5), "b": (2, 5, 4)}, {}),
        ("matmul", {"a": (3, 5), "b": (2, 5, 4)}, {}),
        ("gemm", {"a": (3, 5), "b": (5, 4)}, {"activation": "relu"}),
        ("gemm", {"a": (3, 5), "b": (5, 4), "bias": (4,)}, {}),
        ("add", {"a": (3, 5), "b": (3, 5)}, {}),
    ]:
        op, sample, arrays, _ = case(name, shapes, attrs=attrs)
        given = [isokern.tensor(a, device=gpu) for a in arrays]
        assert form(op, given, op.attrs.check(op.name, sample.attrs)) is None


def test_cupy_does_the_same_work_on_our_stream(gpu, cupy):
    for op in map(find, ("add", "gather", "concat", "reduce_mean", "where", "copy")):
        found = measure(gpu, op, samples(op, "small")[0], F32, 0.001)
        assert "cupy" in found.peers, found.left_out
    assert cupy.stream == 0  # the current stream is restored


def test_a_library_that_does_other_work_is_left_out(gpu, cupy, monkeypatch):
    monkeypatch.setattr(sys.modules["cupy"], "add", np.subtract, raising=False)
    found = measure(gpu, find("add"), Sample({"a": (9,), "b": (9,)}), F32, 0.001)
    assert found.peers == {}
    assert "9 of 9 elements differ" in found.left_out["cupy"]


def test_a_library_that_does_nothing_is_left_out(gpu, cupy, monkeypatch):
    """The output is cleared before a peer's turn, so Isokern's results do not pass for the peer's."""
    monkeypatch.setattr(sys.modules["cupy_backends.cuda.libs"].cublas, "gemmEx", lambda *a: None)
    found = measure(gpu, *case("matmul", {"a": (3, 5), "b": (5, 4)})[:2], F32, 0.001)
    assert "12 of 12 elements differ" in found.left_out["cublas"]


class Anything:
    """A library that has every function."""

    def __getattr__(self, name):
        return lambda *arguments, **options: self


def test_torch_has_the_usual_operators():
    from isokern_cuda.bench.torch import FUNCTIONAL, INTO, NEW, OTHERS

    tables = [INTO, NEW, FUNCTIONAL, OTHERS]
    names = [name for table in tables for name in table]
    assert len(set(names)) == len(names)
    assert set(names) <= {op.name for op in all_operators()}
    assert set(USUAL) <= set(names)


@pytest.mark.parametrize("op", USUAL)
def test_torch_calls_get_along_with_attributes(op):
    """A call uses only attributes that the operator has; the next test checks the results."""
    from isokern_cuda.bench.torch import torch_call

    op = find(op)
    sample = samples(op, "medium")[0]
    _, outs = describe(op, sample, types_for(op, F32))
    inputs = [np.broadcast_to(np.float32(0), d.shape) for d in describe(op, sample, types_for(op, F32))[0] if d]
    output = np.broadcast_to(np.float32(0), outs[0].shape) if op.name == "adaptive_avg_pool2d" else Anything()
    torch = Anything()
    torch.__dict__ |= {"nn": Anything()}
    torch.nn.__dict__ |= {"functional": Anything()}
    if op.name == "gather":
        inputs[1] = inputs[1].astype(np.int32)
    call = torch_call(torch, op, inputs, output, op.attrs.check(op.name, sample.attrs))
    assert call is not None
    call()


@pytest.mark.parametrize("op", USUAL)
def test_torch_does_the_same_work(op):
    """PyTorch on the CPU agrees with Isokern's CPU device."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from isokern_cuda.bench.torch import torch_call

    op = find(op)
    sample = next(s for s in samples(op, "small"))
    descs, outs = describe(op, sample, types_for(op, F32))
    arrays = [cases._values(d, cases._domain(op, sample, i)) for i, d in enumerate(descs) if d is not None]
    attrs = op.attrs.check(op.name, sample.attrs)
    y = torch.from_numpy(np.zeros(outs[0].shape, outs[0].dtype.numpy))
    call = torch_call(torch, op, [torch.from_numpy(a.copy()) for a in arrays], y, attrs)
    if call is None:
        assert op.name == "gemm"  # its largest small sample has an epilogue
        return
    returned = call()
    got = y if returned is None else returned
    reference = isokern.create(op, descs, outs, device="cpu:0", **sample.attrs)
    wanted = isokern.zeros(outs[0].shape, outs[0].dtype, device="cpu:0")
    reference.calculate([isokern.tensor(a, device="cpu:0") for a in arrays], [wanted], workspace="auto")
    cases.check(got.numpy(), wanted.numpy())


# --- captured lists ---------------------------------------------------------------------------------------------------


def test_a_list_in_every_way(opened, monkeypatch):
    monkeypatch.setattr(lists, "OPERATORS", {"add": 2, "relu": 1})
    device = opened()
    replays = []
    replay = device.driver.replay
    monkeypatch.setattr(
        device.driver, "replay", lambda g, s: replays.append(len(device.driver._graphs[g])) or replay(g, s)
    )
    rows = lists.measure_list(device, 0.001)
    assert [r.case for r in rows] == [lists.CALCULATE, lists.BOUND, lists.REPLAY, lists.REPLAY_DEVICE, lists.KERNELS]
    assert set(replays) == {100}
    assert all(r.time_us > 0 and r.rate == pytest.approx(100 / r.time_us) for r in rows)


def test_a_device_without_a_timer_has_no_list(opened, monkeypatch):
    device = opened()
    monkeypatch.setattr(type(device), "timer", lambda self, stream: None)
    assert lists.measure_list(device, 0.001) == []
