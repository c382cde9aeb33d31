"""What native plug-ins share, through the library of one: its table, its capture verbs, its headers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from isokern.abi.generate import generate
from isokern.ops import all_operators
from isokern.status import Status

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
    plan = ffi.new("ik_plan *", {"abi_version": 1, "kind": kind, "tensor_count": 3, "tensors": tensors})
    assert lib.ik_op_select(plan) == Status.NOT_IMPLEMENTED
    assert last_error() == f"no operator has kind {hex(kind) if kind else '0'}"


def test_kind_of_workspace():
    kinds = {ffi.string(lib.ik_workspace_kind(i)).decode() for i in range(lib.ik_variant_count)}
    assert kinds == {"default"}
    assert lib.ik_workspace_kind(lib.ik_variant_count) == ffi.NULL


def table(path: Path, text: str) -> str:
    build_plugin = pytest.importorskip("isokern.build_plugin", exc_type=ImportError)  # it wants setuptools
    path.write_text(text)
    return build_plugin.variant_table([("device", 3, path)])


def test_the_table_of_variants_has_what_the_files_define(tmp_path):
    gemm = tmp_path / "gemm.cpp"
    assert '{ "gemm", "device", 3, gemm__device, 0, 0, "default" }' in table(gemm, "IK_KERNEL(gemm)\n{\n}\n")
    text = 'IK_WORKSPACE_KIND(gemm, "l3")\nIK_WORKSPACE(gemm) { return 1; }\nIK_KERNEL(gemm)\n{\n}\n'
    assert '{ "gemm", "device", 3, gemm__device, 0, gemm_workspace__device, "l3" }' in table(gemm, text)


@pytest.mark.parametrize(
    "text",
    ["", "IK_KERNEL(add)\n", "IK_KERNEL(gemm)\nIK_WORKSPACE(add)", 'IK_KERNEL(gemm)\nIK_WORKSPACE_KIND(add, "l3")'],
)
def test_a_kernel_file_of_another_name_is_refused(tmp_path, text):
    with pytest.raises(SystemExit, match=r"gemm\.c"):
        table(tmp_path / "gemm.c", text)


def test_capture_verbs_refuse_null():
    stream, count = lib.ik_stream_create(), ffi.new("uint64_t *", 7)
    assert lib.ik_stream_begin_capture(ffi.NULL) == Status.INVALID_ARGUMENT
    assert last_error() == "the stream is null"
    assert lib.ik_stream_end_capture(ffi.NULL, count) == ffi.NULL
    assert (last_error(), count[0]) == ("the stream is null", 0)
    assert lib.ik_stream_begin_capture(stream) == Status.SUCCESS
    assert lib.ik_stream_end_capture(stream, ffi.NULL) == ffi.NULL
    assert last_error() == "the count is null"
    lib.ik_stream_destroy(stream)  # the capture that goes on is freed with it
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
        "typedef struct { ik_stream list; int device; } stream;\n"
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
