"""Test what native plug-ins share: tables, capture functions, generated headers, and a device that works late."""

import gc
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import isokern
from isokern.backend import HostMemory
from isokern.backend.native import NativeDevice, NativeLibrary
from isokern.build import variant_table
from isokern.cabi.cdef import cdef
from isokern.cabi.generate import generate
from isokern.cabi.plan import ABI_VERSION, Plan
from isokern.layout import TensorDesc
from isokern.ops import all_operators, find
from isokern.status import InvalidArgument, Status

native = pytest.importorskip("isokern_cpu._native")
ffi, lib = native.ffi, native.lib


def last_error() -> str:
    return ffi.string(lib.ik_last_error()).decode()


def test_the_operator_table_is_sorted_as_its_search_wants():
    count = ffi.new("uint32_t *")
    rows = lib.ik_operator_list(count)
    kinds = [rows[i].kind for i in range(count[0])]
    assert kinds == sorted({o.kind_id for o in all_operators()})


@pytest.mark.parametrize("kind", [0, 0x7F7F7F7F, 0xFFFFFFFF])
def test_a_kind_that_no_operator_has(kind):
    tensors = ffi.new("ik_tensor[3]")
    plan = ffi.new("ik_plan *", {"abi_version": ABI_VERSION, "kind": kind, "tensor_count": 3, "tensors": tensors})
    assert lib.ik_plan_select(plan) == Status.NOT_IMPLEMENTED
    assert last_error() == f"no operator has kind {hex(kind) if kind else '0'}"


def test_kind_of_workspace():
    count = ffi.new("uint32_t *")
    lib.ik_variant_list(count)
    kinds = {ffi.string(lib.ik_workspace_kind(i)).decode() for i in range(count[0])}
    assert kinds == {"default"}
    assert lib.ik_workspace_kind(count[0]) == ffi.NULL


def table(path: Path, text: str, level: str = "device") -> str:
    path.write_text(text)
    return variant_table([(level, 3, path)])


def test_the_table_of_variants_has_what_the_files_define(tmp_path):
    gemm = tmp_path / "gemm.cpp"
    assert '{ "gemm", "device", 3, gemm__device, 0, 0, 0, 0, "default", 0 }' in table(gemm, "IK_KERNEL(gemm)\n{\n}\n")
    text = 'IK_WORKSPACE_KIND(gemm, "l3")\nIK_WORKSPACE(gemm) { return 1; }\nIK_KERNEL(gemm)\n{\n}\n'
    assert '{ "gemm", "device", 3, gemm__device, 0, gemm_workspace__device, 0, 0, "l3", 0 }' in table(gemm, text)
    assert '0, 0, 0, 0, "default", 1 }' in table(gemm, "IK_MOVES(gemm)\nIK_KERNEL(gemm)\n{\n}\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "IK_KERNEL(gemm)\nIK_PACKED_LAYOUT(gemm)\n",
        "IK_KERNEL(add)\n",
        "IK_KERNEL(gemm)\nIK_WORKSPACE(add)",
        'IK_KERNEL(gemm)\nIK_WORKSPACE_KIND(add, "l3")',
        "IK_KERNEL(gemm)\nIK_MOVES(add)",
    ],
)
def test_a_kernel_file_of_another_name_is_refused(tmp_path, text):
    with pytest.raises(SystemExit, match=r"gemm\.c"):
        table(tmp_path / "gemm.c", text)


def test_verbs_of_prepacked_tensors_refuse_what_is_wrong():
    """A host asks for packed layouts out of order."""
    operator = find("matmul_transposed")
    inputs = [TensorDesc("F32", (2, 32)), TensorDesc("Q4_0", (3, 32))]
    made = Plan(operator.resolve(inputs, operator.infer(inputs), {}))
    plan = ffi.cast("ik_plan *", made.address)
    nbytes, layout = ffi.new("uint64_t *"), ffi.new("const char **")
    assert lib.ik_plan_select(plan) == Status.SUCCESS
    need = plan.workspace_bytes
    assert lib.ik_plan_packed_layout(plan, 1, nbytes, layout) == Status.SUCCESS  # x is no constant
    assert (nbytes[0], layout[0], plan.prepacked, plan.workspace_bytes) == (0, ffi.NULL, 0, need)
    assert lib.ik_plan_packed_layout(plan, 3, nbytes, layout) == Status.INVALID_ARGUMENT
    assert "tensor 3 of 3" in last_error()
    assert lib.ik_plan_packed_layout(plan, 2, ffi.NULL, layout) == Status.INVALID_ARGUMENT
    assert lib.ik_plan_pack(plan, 2, ffi.NULL, ffi.NULL, ffi.NULL) == Status.INVALID_ARGUMENT
    assert "is not one that ik_op_packed_layout gave a layout" in last_error()
    for bit in (1, 63):
        plan.prepacked = 1 << bit
        reason = ffi.new("const char **")
        assert lib.ik_plan_supported(plan, plan.variant, nbytes, reason) == Status.NOT_IMPLEMENTED
        assert "no layout of its own" in last_error()
        assert lib.ik_plan_select(plan) == Status.NOT_IMPLEMENTED


def test_capture_verbs_refuse_null():
    stream, count = lib.ik_stream_create(), ffi.new("uint64_t *", 7)
    assert lib.ik_stream_begin_capture(ffi.NULL) == Status.INVALID_ARGUMENT
    assert last_error() == "the stream is null"
    assert lib.ik_stream_end_capture(ffi.NULL, count) == ffi.NULL
    assert (last_error(), count[0]) == ("the stream is null", 0)
    assert lib.ik_stream_begin_capture(stream) == Status.SUCCESS
    assert lib.ik_stream_end_capture(stream, ffi.NULL) == ffi.NULL
    assert last_error() == "the count is null"
    lib.ik_stream_destroy(stream)  # frees the capture in progress as well
    lib.ik_stream_destroy(ffi.NULL)
    lib.ik_calls_free(ffi.NULL, 0)


@pytest.mark.parametrize("command", [["cc", "-std=c11"], ["c++", "-std=c++14"]], ids=["c", "c++"])
def test_the_header_is_read_by(command, tmp_path):
    compiler = os.environ.get({"cc": "CC", "c++": "CXX"}[command[0]], command[0])
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} on this machine")
    generate(tmp_path)
    source = tmp_path / ("use.cpp" if command[0] == "c++" else "use.c")
    source.write_text(
        "#define IK_LEVEL device\n"
        '#include "isokern_native.h"\n'
        "IK_KERNEL(copy)\n{\n"
        "    (void)plan, (void)data, (void)workspace, (void)workspace_bytes;\n"
        '    return stream == 0 ? ik_fail(IK_INVALID_ARGUMENT, "%d", 1) : IK_SUCCESS;\n}\n'
    )
    object_ = tmp_path / "use.o"
    flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{tmp_path}", "-c", str(source), "-o", str(object_)]
    done = subprocess.run([compiler, *command[1:], *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = subprocess.run(["nm", "--format=posix", str(object_)], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0].lstrip("_") for line in names.splitlines()} >= {"copy__device", "ik_fail"}


def open_library(path):
    """Open a library by cffi's ABI mode, which needs no compiler."""
    other = pytest.importorskip("cffi").FFI()
    other.cdef(cdef())
    return NativeLibrary(other, other.dlopen(str(path)))


def test_a_library_opened_without_an_extension():
    library = open_library(pytest.importorskip("isokern_cpu").get_library())
    device = NativeDevice("opened:0", {}, HostMemory(), library, lambda level: None)
    x, y = isokern.tensor(np.arange(5.0, dtype=np.float32), device=device), isokern.zeros((5,), device=device)
    add = isokern.create("add", [x.desc, x.desc], device=device)
    add.calculate([x, x], y)
    assert y.numpy().tolist() == [0, 2, 4, 6, 8]
    add.bind([y, x], y)()
    assert y.numpy().tolist() == [0, 3, 6, 9, 12]
    with device.default_stream.capture() as recording:
        add.calculate([y, x], y)
    recording.replay(device.stream())
    assert y.numpy().tolist() == [0, 4, 8, 12, 16]
    elsewhere = NativeDevice("other:0", {}, HostMemory(), library, lambda level: None)
    with pytest.raises(InvalidArgument, match="stream of opened:0"):
        recording.replay(elsewhere.default_stream)
    index, z = isokern.tensor([7], device=device), isokern.zeros((1,), device=device)
    gather = isokern.create("gather", [x.desc, index.desc], device=device)
    with pytest.raises(InvalidArgument, match=r"gather: indices\[0\] is 7, out of range"):
        gather.calculate([x, index], z)


LATE = """\
/* Keeps the calls of a stream, and runs them when it is waited for. */
#include <stdlib.h>
#include <string.h>
#include "isokern_native.h"
typedef struct late { ik_call waiting[16]; int count; } late;
const char *ik_level_missing(const char *level) { (void)level; return NULL; }
const char *ik_dtype_missing(int32_t dtype) { (void)dtype; return NULL; }
void *ik_stream_create(void) { return calloc(1, sizeof(late)); }
void ik_stream_destroy(void *s) { ik_stream_abandon(s); free(s); }
ik_status late_enqueue(const ik_plan *plan, void *const *data, late *s)
{
    void **copy = malloc(3 * sizeof *copy);
    memcpy(copy, data, 3 * sizeof *copy);
    s->waiting[s->count++] = (ik_call){ plan, copy, NULL, 0, s };
    return IK_SUCCESS;
}
ik_status ik_stream_synchronize(void *given)
{
    late *s = given;
    ik_status status = IK_SUCCESS;
    for (int c = 0; c < s->count; c++) {
        const ik_plan *plan = s->waiting[c].plan;
        void *const *data = s->waiting[c].data;
        for (int64_t i = 0; i < plan->tensors[2].shape[0]; i++) {
            int64_t at = ((const int64_t *)data[2])[i], known = at >= 0 && at < plan->tensors[1].shape[0];
            ((float *)data[0])[i] = known ? ((const float *)data[1])[at] : 0;
            if (!known)
                status = ik_bad_value_of(plan->kind, i, at);
        }
        free((void *)data);
    }
    s->count = 0;
    return status;
}
"""
GATHER = """\
#define IK_LEVEL late
#include "isokern_native.h"
ik_status late_enqueue(const ik_plan *plan, void *const *data, void *s);
IK_WORKSPACE_KIND(gather, "near")
IK_WORKSPACE(gather) { return 64 * (plan != NULL); }
IK_KERNEL(gather)
{
    (void)workspace, (void)workspace_bytes;
    return late_enqueue(plan, data, stream);
}
"""


class LateMemory(HostMemory):
    kinds = ("default", "near")


class LateDevice(NativeDevice):
    asynchronous = True

    def __init__(self, library):
        self.retired = []
        super().__init__("late:0", {}, LateMemory(), library, lambda level: None)

    def retire(self, owned):
        self.retired.append(owned)

    def synchronize(self):
        try:
            super().synchronize()
        finally:
            self.retired.clear()


@pytest.fixture(scope="module")
def late_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    generate(folder)
    (folder / "late.c").write_text(LATE)
    (folder / "variants.c").write_text(table(folder / "gather.c", GATHER, "late"))
    files = [str(folder / name) for name in ("late.c", "gather.c", "variants.c")]
    files += [str(path) for path in sorted(folder.glob("isokern_*.c"))]
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{folder}", *files]
    done = subprocess.run([*command, "-o", str(folder / "late.so")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return open_library(folder / "late.so")


@pytest.fixture
def late(late_library):
    device = LateDevice(late_library)
    yield device
    gc.collect()
    device.synchronize()


class Gather:
    """The call y = x[indices] on a device that works late."""

    def __init__(self, device, indices):
        self.x = isokern.from_numpy(np.arange(10, 14, dtype=np.float32), device=device)
        self.indices = isokern.from_numpy(np.array(indices), device=device)
        self.y = isokern.from_numpy(np.full(len(indices), -1, np.float32), device=device)
        self.descriptor = isokern.create("gather", [self.x.desc, self.indices.desc], device=device)
        need = self.descriptor.workspace
        assert (need.size, need.kind) == (64, "near")
        self.workspace = device.memory.alloc(need.size, kind=need.kind, alignment=need.alignment)

    def calculate(self):
        self.descriptor.calculate([self.x, self.indices], self.y, workspace=self.workspace)

    @property
    def before(self):
        """The content of y, without waiting for the device."""
        return self.y.buffer.view.view(np.float32).tolist()


def test_a_plan_outlives_its_descriptor_until_the_device_is_done(late):
    call = Gather(late, [3, 0])
    call.calculate()
    assert call.before == [-1, -1]
    del call.descriptor
    gc.collect()
    assert len(late.retired) == 1
    assert call.y.numpy().tolist() == [13, 10]
    assert late.retired == []


def test_a_recording_outlives_its_name_until_the_device_is_done(late):
    call = Gather(late, [1])
    stream = late.default_stream
    with stream.capture() as recording:
        call.calculate()
    del call.descriptor
    gc.collect()
    assert late.retired == []
    recording.replay()
    assert call.before == [-1]
    del recording
    gc.collect()
    assert len(late.retired) == 1
    assert call.y.numpy().tolist() == [11]


def test_what_the_device_finds_is_raised_when_it_is_waited_for(late):
    call = Gather(late, [1, 9])
    call.calculate()
    with pytest.raises(InvalidArgument, match=r"^gather: indices\[1\] is 9, out of range for the axis"):
        late.default_stream.synchronize()
    assert call.y.numpy().tolist() == [11, 0]


def test_a_workspace_of_another_kind_is_refused(late):
    call = Gather(late, [1])
    call.workspace = late.memory.alloc(64)
    with pytest.raises(isokern.InsufficientWorkspace, match="near"):
        call.calculate()


def test_a_device_that_is_asynchronous_says_how_it_retires(late_library):
    class Careless(LateDevice):
        retire = NativeDevice.retire

    with pytest.raises(NotImplementedError, match="retire"):
        Careless(late_library).retire(None)
