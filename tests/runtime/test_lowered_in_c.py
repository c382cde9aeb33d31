"""Test operators without a kernel from C hosts: their parts' kernels give the bits that Python gets."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from lowered_calls import Call, calls, first_types, in_c, in_python

import isokern
from isokern import TensorDesc
from isokern.cabi.inference import find_refused
from isokern.cabi.plan import _pack
from isokern.declare.samples import assignments
from isokern.expr import stack_code
from isokern.ops import all_operators, find
from isokern.status import Status

native = pytest.importorskip("isokern_cpu._native")
ffi, lib = native.ffi, native.lib

# Their decompositions compute with functions of NumPy or libm that the machine does not have
NOT_FROM_C = {"mel_weight_matrix", "random_uniform"}


@pytest.fixture(scope="module")
def cpu():
    return isokern.device("cpu:0")


def lowered():
    device = isokern.device("cpu:0")
    return [op for op in all_operators() if not device.variants(op.stem)]


def agree(call: Call, device) -> None:
    expected, found = in_python(call, device), in_c(call, ffi, lib)
    if call.operator.name in NOT_FROM_C:
        assert (expected[0], found[0]) == (Status.SUCCESS, Status.NOT_IMPLEMENTED), call.text
        return
    assert found[0] == expected[0], f"{call.text}: {ffi.string(lib.ik_last_error()).decode()}"
    assert found[1] == expected[1], f"{call.text}: other bits than those of {', '.join(expected[2])}"


def test_two_decompositions_are_pythons_alone():
    assert set(find_refused()) == NOT_FROM_C


@pytest.mark.parametrize("op", lowered(), ids=lambda op: op.name)
def test_the_bits_are_those_of_python(op, cpu):
    for layout in ("contiguous", "negative"):
        for call, _ in zip(calls(op, first_types(op), layout), range(3), strict=False):
            agree(call, cpu)


@pytest.mark.full
@pytest.mark.parametrize("op", lowered(), ids=lambda op: op.name)
def test_the_bits_are_those_of_python_in_every_dtype(op, cpu):
    for types in assignments(op):
        for layout in ("contiguous", "gaps", "permuted"):
            for call in calls(op, types, layout):
                agree(call, cpu)


def create(name, descs, **attrs):
    """Return (status, plan) of a call with these attributes."""
    op = find(name)
    tensors, plan = ffi.new("ik_tensor[]", len(descs)), ffi.new("ik_plan **")
    for i, desc in enumerate(descs):
        ffi.memmove(ffi.addressof(tensors, i), bytes(_pack(desc)), ffi.sizeof("ik_tensor"))
    blob = op.attrs.pack(op.attrs.check(name, attrs)) if op.attrs.attrs else b""
    packed = ffi.new("char[]", blob or b"\0")
    given = ffi.new("ik_attributes *", [op.attrs.schema_id, len(blob), packed] if blob else [0, 0, ffi.NULL])
    return Status(lib.ik_op_create(op.kind_id, tensors, len(descs), given, plan)), plan[0]


def last_error():
    return ffi.string(lib.ik_last_error()).decode()


X = np.random.default_rng(0).standard_normal((16, 40)).astype(np.float32)


@pytest.fixture
def var():
    status, plan = create("var", [TensorDesc("F32", (16,)), TensorDesc("F32", (16, 40))], axes=(1,))
    assert status == Status.SUCCESS, last_error()
    yield plan
    lib.ik_op_destroy(plan)


@pytest.fixture
def stream():
    made = lib.ik_stream_create()
    yield made
    lib.ik_stream_destroy(made)


def workspace(plan):
    """Return (bytes, memory) of a plan's workspace."""
    size, kind, memory = ffi.new("uint64_t *"), ffi.new("const char **"), ffi.new("void **")
    assert lib.ik_op_workspace(plan, size, kind) == Status.SUCCESS
    assert ffi.string(kind[0]) == b"default"
    assert lib.ik_memory_alloc(size[0], kind[0], memory) == Status.SUCCESS
    return size[0], ffi.gc(memory[0], lib.ik_memory_free)


def pointers(*arrays):
    return ffi.new("void *[]", [ffi.cast("void *", a.ctypes.data) for a in arrays])


def test_the_workspace_is_checked(var, stream):
    size, memory = workspace(var)
    y = np.zeros(16, np.float32)
    assert size > 0
    for given, nbytes in ((memory, size - 1), (ffi.NULL, size), (ffi.cast("char *", memory) + 4, size)):
        assert lib.ik_op_call(var, pointers(y, X), given, nbytes, stream) == Status.INSUFFICIENT_WORKSPACE
        assert "allowed: " in last_error()
    assert not y.any()
    assert lib.ik_op_call(var, pointers(y, X), memory, size, stream) == Status.SUCCESS
    np.testing.assert_allclose(y, X.var(1, ddof=1), rtol=1e-5)


def test_threads_share_a_plan(var):
    """Each thread has a stream and a workspace of its own."""
    wrong = []

    def run(seed):
        own = np.random.default_rng(seed).standard_normal((16, 40)).astype(np.float32)
        on, (size, memory), y = lib.ik_stream_create(), workspace(var), np.zeros(16, np.float32)
        for _ in range(200):
            y[:] = 0
            status = lib.ik_op_call(var, pointers(y, own), memory, size, on)
            if status != Status.SUCCESS or not np.allclose(y, own.var(1, ddof=1), rtol=1e-4):
                wrong.append((seed, status))
        lib.ik_stream_destroy(on)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_capture_has_the_parts_and_is_replayed(var, stream):
    size, memory = workspace(var)
    y, count, failed = np.zeros(16, np.float32), ffi.new("uint64_t *"), ffi.new("int64_t *")
    assert lib.ik_stream_begin_capture(stream) == Status.SUCCESS
    assert lib.ik_op_call(var, pointers(y, X), memory, size, stream) == lib.IK_CAPTURED
    list_ = lib.ik_stream_end_capture(stream, count)
    assert count[0] > 1
    assert not y.any()
    assert lib.ik_calls_replay(list_, count[0], ffi.NULL, failed) == Status.SUCCESS
    np.testing.assert_allclose(y, X.var(1, ddof=1), rtol=1e-5)
    lib.ik_calls_free(list_, count[0])


def test_bodies_have_the_words_that_python_makes_of_them(stream):
    """C compiles the text of a body as Python does: repeated parts are kept once, in the same order."""
    programs = set()
    body = next(at for name, _, at in find("generic").attrs.layout if name == "body")
    for op in lowered():
        for call, _ in zip(calls(op, first_types(op)), range(2), strict=False):
            status, plan = create(op.name, [*call.outputs, *call.inputs], **call.attrs)
            if status != Status.SUCCESS:
                assert op.name in NOT_FROM_C
                continue
            (size, memory), count = workspace(plan), ffi.new("uint64_t *")
            room = [np.zeros(max(1, d.nbytes) + d.offset * 16, np.uint8) if d else None for d in
                    (*call.outputs, *call.inputs)]  # fmt: skip
            data = ffi.new("void *[]", [ffi.NULL if a is None else ffi.cast("void *", a.ctypes.data) for a in room])
            lib.ik_stream_begin_capture(stream)
            lib.ik_op_call(plan, data, memory, size, stream)
            list_ = lib.ik_stream_end_capture(stream, count)
            for i in range(count[0]):
                if list_[i].plan.kind == find("generic").kind_id:
                    words = ffi.cast("int64_t *", ffi.cast("char *", list_[i].plan.attrs) + body)
                    programs.add(tuple(words[1 : 1 + words[0]]))
            lib.ik_calls_free(list_, count[0])
            lib.ik_op_destroy(plan)
    assert len(programs) > 100
    for program in programs:
        assert tuple(stack_code.words(stack_code.tree_of(program))) == program


def test_a_bad_value_is_named(stream):
    descs = [TensorDesc("F32", (2, 3)), TensorDesc("F32", (4, 3)), TensorDesc("I64", (2, 1))]
    status, plan = create("gather_nd", descs)
    assert status == Status.SUCCESS, last_error()
    size, memory = workspace(plan)
    y, x, at = np.zeros((2, 3), np.float32), np.zeros((4, 3), np.float32), np.array([[1], [99]])
    assert lib.ik_op_call(plan, pointers(y, x, at), memory, size, stream) == Status.INVALID_ARGUMENT
    assert "out of range" in last_error()
    lib.ik_op_destroy(plan)


def test_the_policy_may_refuse_parts(monkeypatch):
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    status, plan = create("var", [TensorDesc("F32", (16,)), TensorDesc("F32", (16, 40))], axes=(1,))
    assert (status, plan) == (Status.NOT_IMPLEMENTED, ffi.NULL)
    assert last_error().startswith("var: this library has no kernel for it")


def test_errors_are_those_of_the_declaration():
    status, plan = create("var", [TensorDesc("F32", (16,)), TensorDesc("F32", (16, 40))], axes=(2,))
    assert (status, plan) == (Status.INVALID_ARGUMENT, ffi.NULL)
    assert last_error().startswith("var: ")


def test_parts_read_constants_as_they_are(var):
    size, layout = ffi.new("uint64_t *", 1), ffi.new("const char **")
    assert lib.ik_op_packed_layout(var, 1, size, layout) == Status.SUCCESS
    assert (size[0], layout[0]) == (0, ffi.NULL)


def test_a_destroyed_plan_is_refused(stream):
    status, plan = create("cumsum", [TensorDesc("F32", (7,)), TensorDesc("F32", (7,))], axis=0)
    assert status == Status.SUCCESS
    lib.ik_op_destroy(plan)
    y = np.zeros(7, np.float32)
    assert lib.ik_op_call(plan, pointers(y, y), ffi.NULL, 0, stream) == Status.INVALID_ARGUMENT
    assert "destroyed" in last_error()
    lib.ik_op_destroy(plan)


def test_plans_of_parts_leave_nothing_behind():
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc/self/statm")
    descs = [TensorDesc("F32", (16,)), TensorDesc("F32", (16, 40))]
    for repeats in (200, 2000):
        for _ in range(repeats):
            status, plan = create("var", descs, axes=(1,))
            assert status == Status.SUCCESS
            lib.ik_op_destroy(plan)
        if repeats == 200:
            before = int(statm.read_text().split()[1])
    assert int(statm.read_text().split()[1]) - before < 100  # pages: 200 bytes a plan
