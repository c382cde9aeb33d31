"""Test the floating-point environment: kernels compute in their own, and the caller's is restored."""

import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import isokern
from isokern.backend import HostMemory
from isokern.backend.native import NativeDevice, NativeLibrary
from isokern.build import variant_table
from isokern.cabi.cdef import cdef
from isokern.cabi.generate import generate

HERE = Path(__file__).parent
HOSTILE = ("up", "down", "zero", "flush", "traps", "all")
CC = os.environ.get("CC", "cc")

pytestmark = [
    pytest.mark.skipif(shutil.which(CC) is None, reason="no C compiler"),
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux",
        reason="environments.h knows the registers of x86-64 and AArch64, and glibc",
    ),
]


def built(folder, *sources, flags=()):
    """Compile a C library and return its path."""
    library = folder / "library.so"
    command = [
        CC,
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-shared",
        "-fPIC",
        f"-I{HERE}",
        *flags,
    ]
    done = subprocess.run(
        [*command, *map(str, sources), "-o", str(library), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("environments"), HERE / "environments.c")


def run(*arguments, cache, **settings):
    """Run Python in a process with every backend and two threads; return the JSON of its last line."""
    environment = {k: v for k, v in os.environ.items() if k not in ("ISOKERN_PLUGINS", "ISOKERN_DEVICE")}
    environment |= {"ISOKERN_CACHE": str(cache), "POCL_CACHE_DIR": str(cache / "pocl"), "ISOKERN_NUM_THREADS": "2"}
    environment |= settings
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


# Oclgrind interprets kernels in the calling thread and its environment (docs/opencl.md)
DEVICES = (
    "import isokern, json;"
    " print(json.dumps([d.name for d in isokern.devices() if d.properties.get('platform') != 'Oclgrind']))"
)


# What rounds, what is subnormal, what divides by zero, a conversion, and loops of each kind
SOME = ("mul, subnormal", "reciprocal, of zeros too", "log, of negative numbers too", "softmax", "matmul", "cast")


@pytest.mark.parametrize("labels", [SOME, pytest.param((), marks=pytest.mark.full)], ids=["some", "all"])
def test_results_are_the_same_bits_in_every_environment(library, cache, labels):
    """Every device is opened once with upward rounding and flushing, and once in the default environment."""
    names = run("-c", DEVICES, cache=cache)
    if not names:
        pytest.skip("no device is available")
    for name in names:
        # For binaries PoCL would compile each program once more; a setting of a plug-in that is not there is an error
        settings = {"ISOKERN_OPENCL_BINARIES": "0"} if labels and name.startswith("opencl") else {}
        hostile, plain = (
            run(HERE / "hostile_caller.py", library, name, how, *labels, cache=cache, **settings)
            for how in ("all", "default")
        )
        found = {"all": hostile, "default": plain}
        assert found["all"]["changed"] == found["default"]["changed"] == [], name
        wanted = {label: digests["default"] for label, digests in found["default"]["digests"].items()}
        wrong = [
            f"{label} on {name}, opened in {how}, called in {environment}"
            for how, told in found.items()
            for label, digests in told["digests"].items()
            for environment, digest in digests.items()
            if digest != wanted[label]
        ]
        assert not wrong, "\n".join(wrong)


@pytest.mark.full
def test_what_is_compiled_is_the_same_in_every_environment(library, tmp_path):
    """Each process has its own cache, and so compiles for itself."""
    for name in run("-c", DEVICES, cache=tmp_path):
        each = (run(HERE / "hostile_caller.py", library, name, how, cache=tmp_path / how) for how in ("all", "default"))
        hostile, plain = each
        assert hostile == plain, name


KERNEL = """\
#define IK_LEVEL told
#include "isokern_native.h"
#include "environments.h"
IK_PACKED_LAYOUT(matmul_transposed)
{
    (void)plan;
    *bytes = 64;
    return tensor == 2 ? "told" : NULL;
}
IK_PACK(matmul_transposed)
{
    (void)plan, (void)tensor, (void)from, (void)stream;
    *(uint32_t *)to = computing();
    return IK_SUCCESS;
}
IK_KERNEL(matmul_transposed)
{
    IK_UNUSED;
    uint32_t *y = data[0];
    y[0] = computing();
    return y[1] == 7 ? ik_fail(IK_INTERNAL_ERROR, "as asked") : IK_SUCCESS;
}
"""
STREAMS = """\
#include <stdlib.h>
#include "isokern_native.h"
const char *ik_level_missing(const char *level) { (void)level; return NULL; }
const char *ik_dtype_missing(int32_t dtype) { (void)dtype; return NULL; }
void *ik_stream_create(void) { return malloc(1); }
void ik_stream_destroy(void *s) { ik_stream_abandon(s); free(s); }
ik_status ik_stream_synchronize(void *s) { (void)s; return IK_SUCCESS; }
"""
FUNCTIONS = (
    "uint32_t environment_take_on(const char *);"
    " uint32_t environment_registers(void); uint32_t environment_computing(void);\n"
)


@pytest.fixture(scope="module")
def telling(tmp_path_factory):
    """Return a device whose kernels and packing write the environment in which they run, and its library."""
    ffi = pytest.importorskip("cffi").FFI()
    folder = tmp_path_factory.mktemp("telling")
    generate(folder)
    kernel = folder / "matmul_transposed.c"
    kernel.write_text(KERNEL)
    (folder / "streams.c").write_text(STREAMS)
    (folder / "variants.c").write_text(variant_table([("told", 0, kernel)]))
    sources = [kernel, *(folder / f"{name}.c" for name in ("streams", "variants", "isokern_native"))]
    path = built(folder, *sources, HERE / "environments.c", flags=[f"-I{folder}"])
    ffi.cdef(cdef() + FUNCTIONS)
    library = NativeLibrary(ffi, ffi.dlopen(str(path)))
    return NativeDevice("telling:0", {}, HostMemory(), library, lambda level: None), library.lib


@pytest.mark.parametrize("environment", HOSTILE)
def test_every_verb_enters_the_environment_of_kernels(telling, environment):
    device, lib = telling
    lib.environment_take_on(b"default")
    default = lib.environment_computing()
    x, w = isokern.zeros((2, 32), device=device), isokern.zeros((3, 32), device=device)
    y = isokern.zeros((2, 3), device=device)
    words = y.raw.numpy().reshape(-1).view("uint32")
    plain = isokern.create("matmul_transposed", [x.desc, w.desc], device=device)
    prepacked = isokern.create("matmul_transposed", [x.desc, w.desc], device=device, prepacked=["w"])
    stream = device.default_stream
    with stream.capture() as recording:
        plain.calculate([x, w], y)
    verbs = {
        "ik_call_packed": lambda: plain.calculate([x, w], y),
        "ik_run_one": plain.bind([x, w], y),
        "ik_calls_replay": recording.replay,
    }
    for verb, call in verbs.items():
        words[0] = 0
        before = lib.environment_take_on(environment.encode())
        call()
        after = lib.environment_registers()
        lib.environment_take_on(b"default")
        assert (verb, words[0], after) == (verb, default, before)
    form = device.memory.alloc(64)
    before = lib.environment_take_on(environment.encode())
    prepacked.prepack("w", w, into=form)
    after = lib.environment_registers()
    lib.environment_take_on(b"default")
    assert (form.read().view("uint32")[0], after) == (default, before)
    words[:2] = 0, 7
    before = lib.environment_take_on(environment.encode())
    try:
        recording.replay()
        error = None
    except isokern.InternalError as caught:
        error = caught
    after = lib.environment_registers()
    lib.environment_take_on(b"default")
    assert error is not None
    assert (words[0], after) == (default, before), "a kernel that fails gives it back as well"


def test_the_numbers_of_the_script_are_exact():
    """Were they not exact, other environments would change the inputs rather than show a fault of operators."""
    made = runpy.run_path(str(HERE / "hostile_caller.py"))
    x = made["numbers"](1000)
    assert ((x * 2**16) % 1 == 0).all()
    tiny = made["subnormal"](1000)
    assert 400 < (abs(tiny) < 2.0**-126).sum() <= 500
