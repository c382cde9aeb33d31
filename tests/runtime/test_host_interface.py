"""Test the C interface of hosts without Python.

It agrees with Python on every call, right or wrong, and refuses what would otherwise end the process.
"""

import random
import threading
from pathlib import Path

import pytest
from random_calls import draw

from isokern import IsokernError, TensorDesc
from isokern.cabi.plan import Plan, _pack
from isokern.ops import all_operators, find
from isokern.status import Status

native = pytest.importorskip("isokern_cpu._native")
ffi, lib = native.ffi, native.lib


def last_error() -> str:
    return ffi.string(lib.ik_last_error()).decode()


def records(descs):
    """Return an array of `ik_tensor`."""
    array = ffi.new("ik_tensor[]", max(1, len(descs)))
    for i, desc in enumerate(descs):
        ffi.memmove(ffi.addressof(array, i), bytes(_pack(desc)), ffi.sizeof("ik_tensor"))
    return array


def attributes(op, blob):
    """Return an `ik_attributes`, and the data it points to."""
    data = ffi.new("char[]", blob or b"\0")
    return ffi.new("ik_attributes *", [op.attrs.schema_id, len(blob), data] if blob else [0, 0, ffi.NULL]), data


def table_of(tensors, count):
    return [
        (t.dtype, t.ndim, t.offset, list(t.shape[0 : t.ndim]), list(t.strides[0 : t.ndim]))
        for t in (tensors[i] for i in range(count))
    ]


def in_c(op, descs, blob):
    """Return (status, message, table and attributes of the plan) by ik_op_create."""
    plan = ffi.new("ik_plan **")
    given, data = attributes(op, blob)
    status = lib.ik_op_create(op.kind_id, records(descs), len(descs), given, plan)
    if status != Status.SUCCESS:
        assert plan[0] == ffi.NULL and data is not None
        return status, last_error(), None
    made = plan[0]
    packed = bytes(ffi.buffer(made.attrs, made.attr_bytes)) if made.attr_bytes else b""
    found = table_of(made.tensors, made.tensor_count), packed
    lib.ik_op_destroy(made)
    return status, "", found


def outcome(function, *given):
    """Return (status, message, result) of a function that may raise a typed error."""
    try:
        return Status.SUCCESS, "", function(*given)
    except IsokernError as error:
        return error.status, str(error), None


def in_python(op, inputs, outputs, blob):
    """Return the same as in_c, by Operator.resolve."""

    def resolve():
        plan = Plan(op.resolve(inputs, outputs, op.attrs.unpack(op.name, op.attrs.schema_id, blob)))
        return table_of(plan._tensors, len(plan.table)), b"" if plan._blob is None else plan._blob.raw

    return outcome(resolve)


def compare(calls, seed):
    rng, operators = random.Random(seed), all_operators()
    right = lowered = 0
    for i in range(calls):
        op = operators[i % len(operators)]
        inputs, outputs, attrs = draw(op, rng)
        blob = op.attrs.pack(attrs) if op.attrs.attrs else b""
        expected = in_python(op, inputs, outputs, blob)
        found = in_c(op, [*outputs, *inputs], blob)
        if expected[0] == Status.SUCCESS and found[0] == Status.NOT_IMPLEMENTED:
            lowered += 1  # the call is valid, but no kernel supports it
            continue
        assert found == expected, f"call {i} of seed {seed}: {op.name}({inputs}, {outputs}, {attrs})"
        right += found[0] == Status.SUCCESS
    assert right > (calls - lowered) / 4


def test_c_and_python_agree():
    compare(2500, 0)


@pytest.mark.full
def test_c_and_python_agree_on_a_hundred_thousand_calls():
    for seed in range(1, 11):
        compare(10_000, seed)


@pytest.mark.parametrize("calls", [6, pytest.param(20, marks=pytest.mark.full)])
@pytest.mark.parametrize("op", all_operators(), ids=lambda op: op.name)
def test_outputs_are_inferred_as_in_python(op, calls):
    rng = random.Random(op.name)
    for _ in range(calls):
        inputs, outputs, attrs = draw(op, rng)
        blob = op.attrs.pack(attrs) if op.attrs.attrs else b""
        named = [
            TensorDesc(o.dtype, ()) if t.type in op.free_types and o.dtype.block == 1 else None
            for t, o in named_by(op, outputs)
        ]
        tensors = records([*named, *inputs])
        given, _ = attributes(op, blob)
        status = lib.ik_op_infer(op.kind_id, tensors, len(named) + len(inputs), given)
        told = {t.type: d.dtype for t, d in zip(op.signature.outputs, named, strict=True) if d is not None}
        found = table_of(tensors, len(named)) if status == Status.SUCCESS else None
        expected = outcome(infer, op, inputs, blob, told)
        packed = expected[2] and table_of([_pack(d) for d in expected[2]], len(named))
        assert (status, last_error() if status else "", found) == (*expected[:2], packed)


def infer(op, inputs, blob, told):
    return op.infer(inputs, op.attrs.unpack(op.name, op.attrs.schema_id, blob), told)


def named_by(op, outputs):
    return zip(op.signature.outputs, outputs, strict=True)


def test_an_operator_without_a_kernel_is_refused_by_name(monkeypatch):
    """The error is this call's, and not what an earlier one left."""
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    op = find("one_hot")
    descs = [TensorDesc("F32", (2, 9)), TensorDesc("I32", (2,))]
    lib.ik_op_create(0, ffi.NULL, 0, ffi.NULL, ffi.new("ik_plan **"))
    status, message, _ = in_c(op, descs, op.attrs.pack(op.attrs.check(op.name, {"depth": 9})))
    assert status == Status.NOT_IMPLEMENTED
    assert message.startswith("one_hot: this library has no kernel for it; allowed: "), message


# Layouts that Python's TensorDesc refuses


@pytest.mark.parametrize("seed", range(4))
def test_layouts_are_judged_as_in_python(seed):
    rng = random.Random(seed)
    for _ in range(500):
        ndim = rng.randrange(9)
        shape = [rng.choice((0, 1, 2, 3, 32, 2**31, 2**40, 2**62, 2**63 - 1, -1)) for _ in range(ndim)]
        strides = [rng.choice((0, 1, 2, 32, -1, -32, 2**40, 2**60, 2**62, -(2**60))) for _ in range(ndim)]
        dtype, offset = rng.choice(("F32", "BOOL", "Q4_0", "F64")), rng.choice((0, 1, 32, 64, 2**62, 2**63 - 1, -1))
        tensors = records([None, None])
        for t in (tensors[0], tensors[1]):
            t.dtype, t.ndim, t.offset = {"F32": 2, "BOOL": 16, "Q4_0": 32, "F64": 1}[dtype], ndim, offset
            for i in range(ndim):
                t.shape[i], t.strides[i] = shape[i], strides[i]
        plan = ffi.new("ik_plan **")
        status = lib.ik_op_create(find("rearrange").kind_id, tensors, 2, ffi.NULL, plan)
        lib.ik_op_destroy(plan[0])
        expected = outcome(judge, dtype, shape, strides, offset)
        if expected[0] == Status.SUCCESS:
            assert status in (Status.SUCCESS, Status.NOT_IMPLEMENTED), (dtype, shape, strides, offset, last_error())
        else:
            assert (status, last_error()) == expected[:2], (dtype, shape, strides, offset)


def judge(dtype, shape, strides, offset):
    desc = TensorDesc(dtype, shape, strides, offset)
    find("rearrange").resolve([desc], [desc], {})


# What would end the process if it were not checked


@pytest.fixture
def add():
    """Make a plan of add on three F32[4] tensors."""
    desc = TensorDesc("F32", (4,))
    plan = ffi.new("ik_plan **")
    assert lib.ik_op_create(find("add").kind_id, records([desc] * 3), 3, ffi.NULL, plan) == Status.SUCCESS
    yield plan[0]
    lib.ik_op_destroy(plan[0])


@pytest.fixture
def stream():
    made = lib.ik_stream_create()
    yield made
    lib.ik_stream_destroy(made)


@pytest.fixture
def data():
    held = [ffi.new("float[4]", [1, 2, 3, 4]) for _ in range(3)]
    return ffi.new("void *[3]", held), held


def test_a_call_of_what_was_described(add, stream, data):
    pointers, held = data
    assert lib.ik_op_call(add, pointers, ffi.NULL, 0, stream) == Status.SUCCESS
    assert list(held[0]) == [2, 4, 6, 8]


def test_null_pointers_are_refused(add, stream, data):
    pointers, _ = data
    nbytes, kind = ffi.new("uint64_t *"), ffi.new("const char **")
    for call in (
        lambda: lib.ik_op_call(ffi.NULL, pointers, ffi.NULL, 0, stream),
        lambda: lib.ik_op_call(add, ffi.NULL, ffi.NULL, 0, stream),
        lambda: lib.ik_op_call(add, pointers, ffi.NULL, 0, ffi.NULL),
        lambda: lib.ik_op_run(ffi.NULL, 1, ffi.NULL),
        lambda: lib.ik_op_workspace(ffi.NULL, nbytes, kind),
        lambda: lib.ik_op_workspace(add, ffi.NULL, kind),
        lambda: lib.ik_op_workspace(add, nbytes, ffi.NULL),
        lambda: lib.ik_op_create(find("add").kind_id, ffi.NULL, 3, ffi.NULL, ffi.new("ik_plan **")),
        lambda: lib.ik_op_create(find("add").kind_id, records([None] * 3), 3, ffi.NULL, ffi.NULL),
        lambda: lib.ik_op_infer(find("add").kind_id, ffi.NULL, 3, ffi.NULL),
        lambda: lib.ik_op_packed_layout(ffi.NULL, 0, nbytes, kind),
        lambda: lib.ik_op_pack(add, 1, ffi.NULL, ffi.NULL, stream),
        lambda: lib.ik_memory_alloc(8, ffi.NULL, ffi.new("void **")),
        lambda: lib.ik_memory_alloc(8, b"default", ffi.NULL),
        lambda: lib.ik_memory_write(ffi.NULL, b"12345678", 8, stream),
        lambda: lib.ik_memory_read(ffi.NULL, ffi.NULL, 8, stream),
        lambda: lib.ik_stream_synchronize(ffi.NULL),
    ):
        assert call() == Status.INVALID_ARGUMENT
        assert "null" in last_error() or "(nil)" in last_error(), last_error()
    lib.ik_op_destroy(ffi.NULL)
    lib.ik_memory_free(ffi.NULL)


@pytest.mark.parametrize("position", range(3))
def test_data_that_is_null_or_between_elements_is_refused(add, stream, data, position):
    pointers, held = data
    pointers[position] = ffi.NULL
    assert lib.ik_op_call(add, pointers, ffi.NULL, 0, stream) == Status.INVALID_ARGUMENT
    assert last_error() == f"the data of tensor {position} is null"
    pointers[position] = ffi.cast("char *", held[position]) + 2
    assert lib.ik_op_call(add, pointers, ffi.NULL, 0, stream) == Status.INVALID_ARGUMENT
    assert "allowed: an address divisible by 4" in last_error()
    assert list(held[0]) == [1, 2, 3, 4]


def test_a_plan_of_other_making_is_refused(add, stream, data):
    """Refused are a copy of a plan and one that was filled in by hand."""
    pointers, _ = data
    copy = ffi.new("ik_plan *", add[0])
    byhand = Plan(find("add").resolve([TensorDesc("F32", (4,))] * 2, [TensorDesc("F32", (4,))], {}))
    for plan in (copy, ffi.cast("ik_plan *", byhand.address)):
        assert lib.ik_op_call(plan, pointers, ffi.NULL, 0, stream) == Status.INVALID_ARGUMENT
        assert "is none that ik_op_create made" in last_error()
        lib.ik_op_destroy(plan)  # has no effect


def test_a_workspace_is_checked(stream):
    op, desc = find("batch_norm"), TensorDesc("F32", (2, 3))
    plan, nbytes, kind = ffi.new("ik_plan **"), ffi.new("uint64_t *"), ffi.new("const char **")
    channel = TensorDesc("F32", (3,))
    assert lib.ik_op_create(op.kind_id, records([desc, desc, channel, channel]), 4, ffi.NULL, plan) == Status.SUCCESS
    assert lib.ik_op_workspace(plan[0], nbytes, kind) == Status.SUCCESS
    assert nbytes[0] > 0 and ffi.string(kind[0]) == b"default"
    held = [ffi.new("float[6]") for _ in range(4)]
    pointers, space = ffi.new("void *[4]", held), ffi.new("void **")
    assert lib.ik_memory_alloc(nbytes[0] + 64, b"default", space) == Status.SUCCESS
    for workspace, given in (
        (ffi.NULL, nbytes[0]),
        (space[0], nbytes[0] - 1),
        (ffi.cast("char *", space[0]) + 8, nbytes[0]),
    ):
        assert lib.ik_op_call(plan[0], pointers, workspace, given, stream) == Status.INSUFFICIENT_WORKSPACE
    assert lib.ik_op_call(plan[0], pointers, space[0], nbytes[0], stream) == Status.SUCCESS  # w and bias are absent
    lib.ik_memory_free(space[0])
    lib.ik_op_destroy(plan[0])


def test_an_empty_call_runs_nothing(stream):
    desc = TensorDesc("F32", (0, 3))
    plan, nbytes, kind = ffi.new("ik_plan **"), ffi.new("uint64_t *"), ffi.new("const char **")
    assert lib.ik_op_create(find("softmax").kind_id, records([desc, desc]), 2, ffi.NULL, plan) == Status.SUCCESS
    assert lib.ik_op_workspace(plan[0], nbytes, kind) == Status.SUCCESS and nbytes[0] == 0
    assert lib.ik_op_call(plan[0], ffi.new("void *[2]"), ffi.NULL, 0, stream) == Status.SUCCESS
    lib.ik_op_destroy(plan[0])


@pytest.mark.parametrize("count", [-1, 9, 77, 2**62])
def test_lists_of_any_length_are_refused(count):
    """A stride.count of 77 once caused a division by zero."""
    op = find("conv2d")
    blob = bytearray(op.attrs.pack(op.attrs.check("conv2d", {})))
    offset = next(at for name, _, at in op.attrs.layout if name == "stride")
    blob[offset : offset + 8] = count.to_bytes(8, "little", signed=True)
    descs = [TensorDesc("F32", s) for s in ((1, 2, 4, 4), (1, 1, 4, 4), (2, 1, 1, 1))]
    status, message, _ = in_c(op, descs, bytes(blob))
    assert (status, message) == (
        Status.INVALID_ARGUMENT,
        f"conv2d: attribute stride has {count} items; allowed: 0 to 8",
    )
    with pytest.raises(IsokernError, match=f"has {count} items"):
        op.attrs.unpack("conv2d", op.attrs.schema_id, bytes(blob))


def test_attributes_are_what_python_would_have_packed():
    """Bytes behind a list's items are ignored, and any nonzero truth value is stored as 1."""
    op = find("reduce_sum")
    right = op.attrs.pack({"axes": (1,), "keepdims": True})
    offset = next(at for name, _, at in op.attrs.layout if name == "keepdims")
    blob = bytearray(right)
    blob[16:24], blob[offset : offset + 8] = (77).to_bytes(8, "little"), (2).to_bytes(8, "little")
    status, _, (_, packed) = in_c(op, [TensorDesc("F32", (2, 1)), TensorDesc("F32", (2, 3))], bytes(blob))
    assert (status, packed) == (Status.SUCCESS, right)


@pytest.mark.parametrize(
    "words", [[], [0], [255], [1], [1, 1], [3], [1, 1 | 9 << 8], [0, 0, 1, 1], [1] * 127, [1 | 1 << 62]]
)
def test_words_that_are_no_program_are_refused(words):
    op = find("generic")
    blob = bytearray(op.attrs.pack(op.attrs.check("generic", {"maps": "a->a", "body": "x0 + 1"})))
    offset = next(at for name, _, at in op.attrs.layout if name == "body")
    if words == [1]:
        words = [5, 5]  # an addition without operands
    packed = b"".join(w.to_bytes(8, "little") for w in [len(words), *words])
    blob[offset : offset + len(packed)] = packed
    desc = TensorDesc("F32", (4,))
    status, message, _ = in_c(op, [desc, None, desc], bytes(blob))
    assert (status, "words that are no program" in message) == (Status.INVALID_ARGUMENT, True)


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_plans_leave_nothing_behind(count):
    """A leak of 52 bytes from each of 20,000 is as many pages as are allowed."""
    desc = TensorDesc("F32", (4, 4))
    tensors, plan, add = records([desc] * 3), ffi.new("ik_plan **"), find("add").kind_id

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1])

    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc/self/statm")
    for repeats in (1000, count):
        for _ in range(repeats):
            assert lib.ik_op_create(add, tensors, 3, ffi.NULL, plan) == Status.SUCCESS
            lib.ik_op_destroy(plan[0])
        if repeats == 1000:
            before = resident()
    assert resident() - before < 256  # pages


# What hosts rely on


def make(name, descs):
    plan = ffi.new("ik_plan **")
    status = lib.ik_op_create(find(name).kind_id, records(descs), len(descs), ffi.NULL, plan)
    assert status == Status.SUCCESS, last_error()
    return plan[0]


def test_a_bad_index_is_reported_by_operator_tensor_and_value(stream):
    rows, table = TensorDesc("F32", (2, 3)), TensorDesc("F32", (4, 3))
    plan = make("embedding", [rows, table, TensorDesc("I64", (2,))])
    y, indices, x = ffi.new("float[6]"), ffi.new("int64_t[2]", [0, 99]), ffi.new("float[12]")
    status = lib.ik_op_call(plan, ffi.new("void *[]", [y, x, indices]), ffi.NULL, 0, stream)
    assert (status, last_error()) == (
        Status.INVALID_ARGUMENT,
        "embedding: indices[1] is 99, out of range for the table",
    )
    lib.ik_op_destroy(plan)


def test_memory_that_nobody_writes_costs_nothing():
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc/self/statm")

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) >> 8  # MiB, of pages of 4 KiB

    memory, before = ffi.new("void **"), resident()
    assert lib.ik_memory_alloc(1 << 30, b"default", memory) == Status.SUCCESS
    assert resident() - before < 64
    assert int(ffi.cast("uintptr_t", memory[0])) % 64 == 0
    assert bytes(ffi.buffer(memory[0], 4096)) == bytes(4096)
    lib.ik_memory_free(memory[0])
    assert lib.ik_memory_alloc((1 << 64) - 1, b"default", memory) == Status.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("name", "inputs", "dtype"),
    [
        ("quantize_linear", [TensorDesc("F32", (4,)), TensorDesc("F32", ())], "F64"),
        ("cast", [TensorDesc("F32", (4,))], "C64"),
        ("hann_window", [], "I32"),
    ],
)
def test_what_is_inferred_is_what_create_takes(name, inputs, dtype):
    op = find(name)
    values = {"length": 8} if name == "hann_window" else {}
    given, _kept = attributes(op, op.attrs.pack(op.attrs.check(name, values)) if op.attrs.attrs else b"")
    tensors = records([TensorDesc(dtype, ()), *inputs])
    status = lib.ik_op_infer(op.kind_id, tensors, 1 + len(inputs), given)
    assert (status, last_error().startswith(f"{name}: ")) == (Status.BAD_TENSOR_DTYPE, True)
    with pytest.raises(IsokernError, match=f"is {dtype}"):
        op.infer(inputs, values, {op.free_types[0]: dtype})


def test_a_stream_that_ends_in_another_thread_is_captured_no_longer():
    """A new stream is often created at the address of one that has ended."""
    one = TensorDesc("F32", (2,))
    plan, first = make("abs", [one, one]), lib.ik_stream_create()
    assert lib.ik_stream_begin_capture(first) == Status.SUCCESS
    thread = threading.Thread(target=lib.ik_stream_destroy, args=(first,))
    thread.start()
    thread.join()
    streams = [lib.ik_stream_create() for _ in range(64)]
    for on in streams:
        y, x = ffi.new("float[2]"), ffi.new("float[2]", [-1, -2])
        assert lib.ik_op_call(plan, ffi.new("void *[]", [y, x]), ffi.NULL, 0, on) == Status.SUCCESS
        assert list(y) == [1, 2]
    for on in streams:
        lib.ik_stream_destroy(on)
    lib.ik_op_destroy(plan)


def test_a_plan_is_destroyed_once(stream):
    one = TensorDesc("F32", (2,))
    plan = make("abs", [one, one])
    lib.ik_op_destroy(plan)
    data = ffi.new("void *[]", [ffi.new("float[2]"), ffi.new("float[2]")])
    assert lib.ik_op_call(plan, data, ffi.NULL, 0, stream) == Status.INVALID_ARGUMENT
    assert "destroyed" in last_error()
    lib.ik_op_destroy(plan)
