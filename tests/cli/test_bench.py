"""Test the output format of `isokern bench`, and that all libraries do the same work; no test judges a duration."""

import csv
import math
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import isokern
from isokern import TensorDesc
from isokern.backend import Device
from isokern.bench.agreement import Differs, check
from isokern.bench.cases import _domain, _values
from isokern.bench.peers import OTHERS, UFUNCS, array_call
from isokern.declare.samples import describe
from isokern.dtypes import F16, F32, I32, I64
from isokern.measure import timing
from isokern.measure.host import limits
from isokern.measure.sizes import HUGE, SIZES, bytes_moved, samples, types_for
from isokern.ops import all_operators, find

KEYS = {
    *("op", "device", "dtype", "case", "time_us", "rate", "rate_unit", "share_of_limit", "peers", "left_out"),
    "made_of",
}


def test_json(isokern_here, device):
    done = isokern_here(
        "bench",
        "--device",
        device.name,
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
        packed = {"prepacked"} if device.name == "cpu:0" and row["op"] == "matmul" else set()
        assert set(row["peers"]) == {"numpy"} | packed
        assert row["made_of"] == []
        assert row["share_of_limit"] is None or row["share_of_limit"] > 0
    add, case = rows[0], find("add").samples()[-3]
    assert add["case"] == "a=4096,b=4096"
    assert case.shapes["a"] == (4096,)
    assert math.isclose(add["rate"] * add["time_us"] * 1e3, 3 * 4 * 4096)


SMALL = ("bench", "--op", "softmax", "--size", "small", "--seconds", "0.001")


def test_a_kernel_beside_the_same_made_of_others(isokern_here, device):
    rows = isokern_here(*SMALL, "--device", device.name, "--lowered", "--json").document
    assert rows and all(row["made_of"] == [] and row["peers"]["lowered"] > 0 for row in rows)


def test_what_has_no_kernel_is_timed_and_named(isokern_here, device, monkeypatch):
    plain = type(device).variants
    monkeypatch.setattr(type(device), "variants", lambda self, stem: [] if stem == "softmax" else plain(self, stem))
    done = isokern_here(*SMALL, "--device", device.name, "--lowered", "--json")
    assert done.document and all("generic" in row["made_of"] for row in done.document)
    assert all("lowered" not in row["peers"] for row in done.document)
    assert f"{device.name} has no kernel for softmax, which is made of fill" in done.err
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    assert isokern_here(*SMALL, "--device", device.name).code == 2


def test_table(isokern_here, device):
    done = isokern_here("bench", "--op", "relu", "--size", "small", "--seconds", "0.001")
    assert done.code == 0
    assert "x=4096" in done.out
    assert device.name in done.out


def test_calls(isokern_here, device):
    rows = isokern_here("bench", "--device", device.name, "--calls", "--seconds", "0.001", "--json").document
    assert [r["case"] for r in rows][:3] == [
        "bound()",
        "calculate, other tensors each time",
        "replay, per operator of 100",
    ]
    assert all(set(r) == KEYS and r["rate_unit"] == "Mcall/s" for r in rows)
    assert all(set(r["peers"]) == {"np.add(a, b, out=o)"} for r in rows if r["op"] == "add")
    assert {r["op"] for r in rows} <= {"add", "list"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--size", "enormous"], 2),
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


def test_turns():
    """Each call runs once per round."""
    now = [0.0]
    order = []

    def call(name, cost):
        def run():
            order.append(name)
            now[0] += cost

        return run

    times = timing.interleave({"a": call("a", 1e-3), "b": call("b", 4e-3)}, seconds=0.05, clock=lambda: now[0])
    assert times == pytest.approx({"a": 1e-3, "b": 4e-3})
    turns = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert turns == ["a", "b"] * (len(turns) // 2)
    assert len(turns) >= 2 * timing.ROUNDS


def test_a_slow_call_is_not_repeated_for_long():
    now = [0.0]
    calls = []

    def slow():
        calls.append(1)
        now[0] += 30.0

    assert timing.interleave({"slow": slow}, seconds=0.05, clock=lambda: now[0]) == {"slow": 30.0}
    assert len(calls) <= 6


class Clock:
    """A device clock for tests: enqueueing takes no time on the host, and `seconds` waits for the end of the work."""

    def __init__(self, device):
        self.device, self.begin, self.end = device, 0.0, 0.0

    def start(self):
        self.device.log.append("start")
        self.begin = self.device.now

    def stop(self):
        self.device.log.append("stop")
        self.end = self.device.now

    def seconds(self):
        self.device.log.append("wait")
        return self.end - self.begin


def test_a_device_is_timed_by_its_own_clock():
    device = SimpleNamespace(now=0.0, log=[])

    def call(cost):
        def run():
            device.now += cost
            device.log.append("call")

        return run

    calls, timers = {"a": call(1e-3), "b": call(3e-3)}, {"a": Clock(device), "b": Clock(device)}
    assert timing.interleave(calls, 0.01, timers=timers) == pytest.approx({"a": 1e-3, "b": 3e-3})
    log = [x for i, x in enumerate(device.log) if x != "call" or device.log[i - 1] != "call"]
    assert log[-10:] == [*["call", "start", "call", "stop"] * 2, *["wait"] * 2]  # one round


def test_the_host_waits_for_the_device_before_it_times_its_own():
    device = SimpleNamespace(now=0.0, log=[])

    def enqueue():
        device.now += 1e-2

    def on_host():
        device.log.append("host")
        time.sleep(1e-3)

    timing.interleave({"a": enqueue, "b": on_host}, 1e-3, timers={"a": Clock(device)})
    hosts = [i for i, x in enumerate(device.log) if x == "host" and device.log[i - 1] != "host"]
    assert {device.log[i - 1] for i in hosts} == {"wait"}


def test_in_turn():
    made = []
    call = timing.in_turn([lambda: made.append(0), lambda: made.append(1), lambda: made.append(2)])
    for _ in range(7):
        call()
    assert made == [0, 1, 2, 0, 1, 2, 0]


# Operators whose large sample is the huge one: dims that depend on each other, weights of experts, what attributes say
AS_LARGE = {"clamp", "fused_moe", "matmul_id", "mrope", "repetition_penalty", "weighted_gather"}
AS_LARGE |= {"alibi_slopes", "mel_weight_matrix"}


@pytest.mark.parametrize("op", all_operators(), ids=lambda op: op.name)
def test_huge_samples(op):
    """Huge samples resolve, and move as many bytes as a huge sample should."""
    for element in {F32, F16} & set(next(iter(op.signature.types.values()))):
        for sample in samples(op, "huge", element):
            inputs, outputs = describe(op, sample, types_for(op, element))
            op.resolve(inputs, outputs, sample.attrs)
            nbytes = bytes_moved(op, inputs, outputs)
            assert sample.size == "huge"
            assert HUGE <= nbytes < 2 * HUGE or op.stem == "gemm" or op.name in AS_LARGE


@pytest.mark.parametrize("name", sorted(AS_LARGE))
def test_what_cannot_grow_is_timed_as_large(name):
    of = {size: [(s.shapes, s.attrs) for s in samples(find(name), size, F32)] for size in ("large", "huge")}
    assert of["huge"] and all(s in of["large"] for s in of["huge"])


def test_huge_products():
    shapes = [dict(s.shapes) for s in samples(find("gemm"), "huge", F32)]
    assert shapes == [{"a": (n, n), "b": (n, n)} for n in (4096, 8192)]


@pytest.mark.parametrize(
    ("ours", "other", "agree"),
    [
        ([1.0, 2.0, np.nan], [1.0, 2.0001, np.nan], True),
        ([1.0, 2.0, 3.0], [1.0, 2.01, 3.0], False),
        ([1.0, 2.0, np.inf], [1.0, 2.0, 3.0], False),
        ([1.0, 2.0, 0.0], [1.0, 2.0, 1e-5], True),
    ],
)
def test_agreement(ours, other, agree):
    a, b = np.array(other, np.float32), np.array(ours, np.float32)
    if agree:
        check(a, b)
    else:
        with pytest.raises(Differs, match="1 of 3 elements differ"):
            check(a, b)


def test_agreement_is_of_all_of_an_integer_and_of_shape_and_dtype():
    with pytest.raises(Differs, match="1 of 3 elements differ, the first by 4 for our 3"):
        check(np.array([1, 2, 4]), np.array([1, 2, 3]))
    with pytest.raises(Differs, match=r"it gives float64\[3\], we float32\[3\]"):
        check(np.ones(3), np.ones(3, np.float32))


def test_a_peer_that_does_other_work_is_not_timed(isokern_here, device, monkeypatch):
    monkeypatch.setitem(UFUNCS, "add", "subtract")
    small = ("--size", "small", "--seconds", "0.001", "--json")
    done = isokern_here("bench", "--device", device.name, "--op", "add", *small)
    (row,) = done.document
    assert row["peers"] == {}
    assert "elements differ" in row["left_out"]["numpy"]
    assert "1 calls of peers are left out, for instance numpy's add" in done.err


def test_a_peer_that_fails_is_no_reason_to_time_nothing(isokern_here, device, monkeypatch):
    monkeypatch.setitem(OTHERS, "relu", lambda xp, ins, y, attrs: xp.there_is_no_such_function)
    small = ("--size", "small", "--seconds", "0.001", "--json")
    (row,) = isokern_here("bench", "--device", device.name, "--op", "relu", *small).document
    assert row["time_us"] > 0
    assert "there_is_no_such_function" in row["left_out"]["numpy"]


def test_bytes():
    x, y, index = TensorDesc("F32", (1000, 4)), TensorDesc("F32", (5, 4)), TensorDesc("I64", (5,))
    assert bytes_moved(find("gather"), [x, index], [y]) == 80 + 40 + 80
    assert bytes_moved(find("add"), [y, y], [y]) == 240
    assert bytes_moved(find("reduce_sum"), [x], [TensorDesc("F32", ())]) == 16004


def test_other_types():
    assert types_for(find("cast"), F32) == {"S": F32, "T": F16}
    assert types_for(find("cast"), F16) == {"S": F16, "T": F32}
    assert types_for(find("gather"), F32) == {"T": F32, "I": I64}


@pytest.mark.parametrize("name", sorted({*UFUNCS, *OTHERS}))
def test_numpy_does_the_same_work(device, name):
    """NumPy's equivalent call computes what the operator computes."""
    op = find(name)
    sample = samples(op, "small")[0]
    types = types_for(op, F32 if F32 in next(iter(op.signature.types.values())) else I32)
    descs, outs = describe(op, sample, types)
    arrays = [_values(d, _domain(op, sample, i)) for i, d in enumerate(descs)]
    output = np.zeros(outs[0].shape, outs[0].dtype.numpy)
    made = array_call(np, op, arrays, output, op.attrs.check(name, sample.attrs))
    if made is None:
        assert name == "gemm"  # its largest small sample has an epilogue
        pytest.skip("NumPy has no such call for this sample")
    got = made[1]
    try:
        descriptor = isokern.create(op, descs, outs, device=device, **sample.attrs)
    except isokern.NotImplementedOnDevice as error:
        pytest.skip(str(error))
    ours = isokern.zeros(outs[0].shape, outs[0].dtype, device=device)
    descriptor.calculate([isokern.tensor(a, device=device) for a in arrays], [ours], workspace="auto")
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
    small = ("--size", "small", "--seconds", "0.001", "--json")
    done = isokern_here("bench", "--device", device.name, "--op", "relu", "--against", device.name, *small)
    (row,) = done.document
    assert device.name in row["peers"]
    assert row["peers"][device.name] > 0


def test_the_tool_for_the_table_of_speeds_replaces_the_rows_of_what_it_measured(
    cpu: Device, tmp_path, monkeypatch
) -> None:
    tool = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "speed.py"))
    table = tmp_path / "speed.tsv"
    old = dict.fromkeys(tool["COLUMNS"], "1")
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, tool["COLUMNS"], delimiter="\t")
        writer.writeheader()
        writer.writerows([{**old, "operator": "exp"}, {**old, "operator": "add"}, {**old, "operator": "gone"}])
    main = tool["main"]
    monkeypatch.setitem(main.__globals__, "TABLE", table)
    monkeypatch.setattr("sys.argv", ["speed.py", "--op", "exp", "--op", "iota", "--seconds", "0.001"])
    main()
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row for row in rows if row["operator"] == "add"] == [{**old, "operator": "add"}]
    exp = {row["peer"]: row for row in rows if row["operator"] == "exp"}
    assert {"numpy"} <= exp.keys() <= {"numpy", "onnxruntime"}
    assert all(float(row["ratio"]) > 0 for row in exp.values())
    assert exp["numpy"]["version"] == np.__version__
    (iota,) = (row for row in rows if row["operator"] == "iota")
    assert (iota["peer"], iota["ratio"]) == ("", "")
    assert {row["operator"] for row in rows} == {"add", "exp", "iota"}
