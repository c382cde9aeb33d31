"""isokern bench: the shape of what it prints, and that what it times is the same work. Nothing is judged by how long it takes."""

import math

import numpy as np
import pytest

import isokern
from isokern import TensorDesc
from isokern.backend import Device
from isokern.bench import timing
from isokern.bench.cases import SIZES, _domain, _values, moved, samples, types_for
from isokern.bench.host import limits
from isokern.bench.peers import OTHERS, UFUNCS, numpy_call
from isokern.dtypes import F16, F32, I32
from isokern.ops import all_operators, find
from isokern.support import describe

KEYS = {"op", "device", "dtype", "case", "time_us", "rate", "rate_unit", "share_of_limit", "peers"}


def test_json(isokern_here, device):
    done = isokern_here(
        "bench",
        "--op",
        "add",
        "--op",
        "matmul",
        "--dtype",
        "F32,F64",
        "--size",
        "small",
        "--seconds",
        "0.001",
        "--json",
    )
    assert done.code == 0
    rows = done.document
    assert [(r["op"], r["dtype"], r["rate_unit"]) for r in rows] == [
        ("add", "F32", "GB/s"), ("add", "F64", "GB/s"), ("matmul", "F32", "GFLOP/s"), ("matmul", "F64", "GFLOP/s"),
    ]  # fmt: skip
    for row in rows:
        assert set(row) == KEYS
        assert row["device"] == device.name
        assert row["time_us"] > 0
        assert row["rate"] > 0
        assert set(row["peers"]) == {"numpy"}
        assert row["share_of_limit"] is None or row["share_of_limit"] > 0
    add, case = rows[0], find("add").samples()[-3]
    assert add["case"] == "a=4096,b=4096"
    assert case.shapes["a"] == (4096,)
    assert math.isclose(add["rate"] * add["time_us"] * 1e3, 3 * 4 * 4096)


def test_table(isokern_here, device):
    done = isokern_here("bench", "--op", "relu", "--size", "small", "--seconds", "0.001")
    assert done.code == 0
    assert "x=4096" in done.out
    assert device.name in done.out


def test_calls(isokern_here, device):
    rows = isokern_here("bench", "--calls", "--seconds", "0.001", "--json").document
    assert [r["case"] for r in rows][:3] == [
        "bound()",
        "calculate, other tensors each time",
        "replay, per operator of 100",
    ]
    assert all(
        set(r) == KEYS and r["rate_unit"] == "Mcall/s" and set(r["peers"]) == {"np.add(a, b, out=o)"} for r in rows
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--size", "huge"], 2),
        (["--op", "nothing"], 2),
        (["--op", "exp", "--dtype", "I8"], 2),
        (["--dtype", "F99"], 2),
        (["--device", "nowhere"], 3),
        (["--seconds", "0"], 2),
    ],
)
def test_refusals(isokern_here, arguments, code):
    done = isokern_here("bench", *arguments, "--json")
    assert (done.code, done.out) == (code, "")


@pytest.mark.parametrize("size", SIZES)
def test_every_operator_has_a_sample_of_every_size(size):
    missing = [op.name for op in all_operators() if not samples(op, size)]
    assert missing == []


def test_turns(monkeypatch):
    """Every call has its turn in every round."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    order = []

    def call(name, cost):
        def run():
            order.append(name)
            now[0] += cost

        return run

    times = timing.interleave({"a": call("a", 1e-3), "b": call("b", 4e-3)}, seconds=0.05)
    assert times == pytest.approx({"a": 1e-3, "b": 4e-3})
    turns = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert turns == ["a", "b"] * (len(turns) // 2)
    assert len(turns) >= 2 * timing.ROUNDS


def test_a_slow_call_is_not_repeated_for_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    calls = []

    def slow():
        calls.append(1)
        now[0] += 30.0

    assert timing.interleave({"slow": slow}, seconds=0.05) == {"slow": 30.0}
    assert len(calls) <= 6


def test_bytes():
    x, y, index = TensorDesc("F32", (1000, 4)), TensorDesc("F32", (5, 4)), TensorDesc("I64", (5,))
    assert moved(find("gather"), [x, index], [y]) == 80 + 40 + 80
    assert moved(find("add"), [y, y], [y]) == 240
    assert moved(find("reduce_sum"), [x], [TensorDesc("F32", ())]) == 16004


def test_other_types():
    assert types_for(find("cast"), F32) == {"S": F32, "T": F16}
    assert types_for(find("cast"), F16) == {"S": F16, "T": F32}
    assert types_for(find("gather"), F32) == {"T": F32, "I": I32}


@pytest.mark.parametrize("name", sorted({*UFUNCS, *OTHERS}))
def test_numpy_does_the_same_work(device, name):
    """NumPy's call beside an operator computes what the operator computes."""
    op = find(name)
    sample = samples(op, "small")[0]
    types = types_for(op, F32 if F32 in next(iter(op.signature.types.values())) else I32)
    descs, outs = describe(op, sample, types)
    arrays = [_values(d, _domain(op, sample, i)) for i, d in enumerate(descs)]
    output = np.zeros(outs[0].shape, outs[0].dtype.numpy)
    call = numpy_call(op, arrays, output, op.attrs.check(name, sample.attrs))
    if call is None:
        assert name == "gemm"  # whose largest small sample has an epilogue
        pytest.skip("NumPy has no such call for this sample")
    with np.errstate(all="ignore"):
        returned = call()
    got = returned if name in ("where", "pad") else output  # the two that take no out=
    try:
        descriptor = isokern.create(op, descs, outs, device=device, **sample.attrs)
    except isokern.NotImplementedOnDevice as error:
        pytest.skip(str(error))
    ours = isokern.zeros(outs[0].shape, outs[0].dtype, device=device)
    workspace = device.memory.alloc(descriptor.workspace_size)
    descriptor.calculate([isokern.tensor(a, device=device) for a in arrays], [ours], workspace=workspace)
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(ours.numpy(), np.float64), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("nbytes", [1000, 1 << 20])
def test_limits_of_this_device(device, nbytes):
    found = limits(device, nbytes, F32)
    for limit in found:
        assert limit.kind in ("copy", "fma")
        assert limit.work > 0
        limit.run()
    if device.memory.wraps:
        assert {limit.kind for limit in found} == {"copy", "fma"}


@pytest.mark.parametrize("nbytes", [1000, 1 << 20])
def test_limits_of_a_host_that_measures_nothing(device, monkeypatch, nbytes):
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not compute in host memory")
    monkeypatch.setattr(type(device), "limits", Device.limits)
    copy, product = limits(device, nbytes, F32)
    assert (copy.kind, copy.work, product.kind) == ("copy", 2.0 * (nbytes // 2), "fma")
    copy.run()
    product.run()
    assert [limit.kind for limit in limits(device, nbytes, I32)] == ["copy"]
    monkeypatch.setattr(type(device.memory), "wraps", False)
    assert limits(device, nbytes, F32) == []


def test_a_device_beside_it_is_timed_in_the_same_rounds(isokern_here, device):
    done = isokern_here(
        *("bench", "--op", "relu", "--size", "small", "--seconds", "0.001"), *("--against", device.name), "--json"
    )
    (row,) = done.document
    assert device.name in row["peers"]
    assert row["peers"][device.name] > 0
