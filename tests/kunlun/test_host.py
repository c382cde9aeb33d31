"""Test the host side in Python, which uses only the runtime's C interface.

Covered are devices, streams, lifetimes and errors.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import cxx

PLUGIN = {"ISOKERN_PLUGINS": "kunlun_sim"}


def device(index: int = 0) -> Any:
    import isokern

    return isokern.device(f"kunlun_sim:{index}")


def launch(xpu: Any, name: str, *arguments: Any, stream: Any, **options: Any) -> None:
    """Launch one of the tests' kernels on a stream of Isokern."""
    xpu.ok(xpu.set_device(stream.native_device.index))
    xpu.ok(xpu.launch(name, *arguments, stream=handle_of(stream.native), **options))


def handle_of(value: int) -> Any:
    import ctypes

    return ctypes.c_void_p(value)


@pytest.mark.alone(**PLUGIN)
def test_f64_is_refused_without_a_hint_that_does_not_help(xpu: Any) -> None:
    import isokern

    for policy in ("error", "lower"):
        with pytest.raises(isokern.NotImplementedOnDevice, match="no unit for double") as caught:
            isokern.create("softmax", [isokern.TensorDesc("F64", (3, 4))], device=device(0), on_missing=policy)
        assert "on_missing" not in str(caught.value)


# Several devices


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2, **PLUGIN)
def test_tensors_move_between_devices(xpu: Any) -> None:
    import isokern

    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = isokern.tensor(a, device=device(0))
    before = device(1).memory.copied
    y = x.T.to_device(device(1))
    assert y.device is device(1)
    assert (y.numpy() == a.T).all()
    assert device(1).memory.copied > before  # copied through the host, and counted
    with pytest.raises(isokern.InvalidArgument, match="kunlun_sim:0"):
        isokern.add(y.T, x)
    assert (isokern.add(y, y).numpy() == 2 * a.T).all()


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2, **PLUGIN)
def test_threads_use_devices_of_their_own(xpu: Any) -> None:
    import threading

    import isokern

    wrong: list[Any] = []

    def work(index: int) -> None:
        rng = np.random.default_rng(index)
        for _ in range(15):
            a = rng.random((50, 70), dtype=np.float32)
            x = isokern.tensor(a, device=device(index % 2))
            if not (isokern.add(x, x).numpy() == 2 * a).all():
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Streams, events, capture


@pytest.mark.alone(**PLUGIN)
def test_streams_and_events(xpu: Any) -> None:
    import isokern

    first, second = device().stream(), device().stream()
    x = isokern.tensor(np.ones(1000, np.float32), device=device())
    gate = isokern.tensor(np.zeros(1, np.int32), device=device())
    launch(xpu, "spin", handle_of(gate.buffer.address), 1, stream=first)
    with first:
        y = isokern.add(x, x)
    event = first.record()
    assert not event.query()
    second.wait(event)
    with second:
        z = isokern.add(y, y)
    import ctypes

    ctypes.c_int.from_address(gate.buffer.address).value = 1
    event.synchronize()
    assert event.query()
    assert (z.numpy() == 4).all()


@pytest.mark.alone(**PLUGIN)
def test_a_launch_of_the_hosts_goes_between_two_operators(xpu: Any) -> None:
    """A blocked launch in front shows that all are enqueued first and then run in the order of the stream."""
    import ctypes

    import isokern

    a, neg = np.arange(1, 257, dtype=np.float32), isokern.ops.find("neg").kind_id
    x, gate = isokern.tensor(a, device=device()), isokern.tensor(np.zeros(1, np.int32), device=device())
    y, z, w = (isokern.zeros((256,), device=device()) for _ in range(3))
    stream = device().stream()
    launch(xpu, "spin", handle_of(gate.buffer.native), 1, stream=stream)
    isokern.op_call(neg, [x], [y], stream_handle=stream.handle)
    launch(xpu, "copy", handle_of(y.buffer.native), handle_of(z.buffer.native), 1024, stream=stream)
    isokern.op_call(neg, [z], [w], stream_handle=stream.handle)
    ctypes.c_int.from_address(gate.buffer.address).value = 1
    assert (w.numpy() == a).all()
    assert (z.numpy() == -a).all()


@pytest.mark.alone(**PLUGIN)
def test_the_handle_of_a_stream_is_that_of_the_kernels_library(xpu: Any) -> None:
    import isokern

    stream, library = device().stream(), device().library
    pointer = library.ffi.cast("void *", stream.handle)
    assert int(library.ffi.cast("uintptr_t", library.lib.ik_xpu_stream_of(pointer))) == stream.native
    assert device().stream_of(stream.handle) is stream
    with pytest.raises(isokern.InvalidArgument, match=f"{stream.handle + 8} on kunlun_sim:0, which is not that"):
        device().stream_of(stream.handle + 8)
    buffer = device().memory.alloc(8, kind="l3")
    assert buffer.native == buffer.address


@pytest.mark.alone(**PLUGIN)
def test_a_recording_is_replayed_with_new_contents(xpu: Any) -> None:
    import isokern

    x = isokern.tensor(np.ones(300, np.float32), device=device())
    stream = device().stream()
    with stream, stream.capture() as recording:
        y = isokern.add(x, x)
        z = isokern.add(y, x)
    assert len(recording) == 2
    for value in (2, 5):
        x.copy_from(np.full(300, value, np.float32))
        recording.replay(stream)
        stream.synchronize()
        assert (z.numpy() == 3 * value).all()
    other = device().stream()
    recording.replay(other)
    del recording, y  # while it may still run
    other.synchronize()
    assert (z.numpy() == 15).all()


@pytest.mark.alone(**PLUGIN)
def test_streams_are_made_while_others_are_waited_for(xpu: Any) -> None:
    import threading

    import isokern

    d, held = isokern.device("kunlun_sim:0"), []
    thread = threading.Thread(target=lambda: held.extend(d.stream() for _ in range(300)))
    thread.start()
    while thread.is_alive():
        d.synchronize()
    thread.join()
    assert len(held) == 300


# Lifetimes


@pytest.mark.alone(**PLUGIN)
@pytest.mark.parametrize("others", [0, 200])
def test_what_a_dropped_stream_met_is_told_once(xpu: Any, others: int) -> None:
    import isokern

    x = isokern.tensor(np.ones((4, 3), np.float32), device=device())
    with device().stream():
        y = isokern.gather(x, isokern.tensor(np.array([1, 9]), device=device()))
    for _ in range(others):
        device().stream()
    with pytest.raises(isokern.InvalidArgument, match=r"indices\[1\] is 9"):
        y.numpy()
    assert y.numpy().shape == (2, 3)


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2, **PLUGIN)
def test_the_end_of_a_stream_leaves_the_current_device(xpu: Any) -> None:
    import ctypes

    stream, library = device(1).stream(), device(1).library.lib
    other = library.ik_stream_create()  # on the device that is current now
    xpu.ok(xpu.set_device(0))
    library.ik_stream_destroy(other)
    current = ctypes.c_int(-1)
    xpu.ok(xpu.current_device(ctypes.byref(current)))
    assert (stream.index, current.value) == (1, 0)


@pytest.mark.alone(**PLUGIN)
def test_no_thread_takes_the_errors_of_another_launch(xpu: Any) -> None:
    """Each failed launch is reported by exactly one of two threads that synchronise."""
    import threading

    import isokern

    x = isokern.tensor(np.ones((4, 3), np.float32), device=device())
    bad = isokern.tensor(np.array([1, 9]), device=device())
    stream, told, ended = device().stream(), [0, 0], threading.Event()

    def synchronize(who: int) -> None:
        try:
            stream.synchronize()
        except isokern.InvalidArgument:
            told[who] += 1

    def watch() -> None:
        while not ended.is_set():
            synchronize(1)

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(100):
        with stream:
            isokern.gather(x, bad)
        synchronize(0)
    ended.set()
    thread.join()
    assert sum(told) == 100


@pytest.mark.alone(ISOKERN_XPU_DEVICES=1, **PLUGIN)
def test_memory_of_a_dropped_tensor_outlives_the_work_on_it(xpu: Any) -> None:
    import ctypes

    import isokern

    gate = isokern.tensor(np.zeros(1, np.int32), device=device())
    stream = device().stream()
    launch(xpu, "spin", handle_of(gate.buffer.address), 1, stream=stream)
    with stream:
        x = isokern.empty((4096,), device=device())
        address = x.buffer.address
        y = isokern.add(x, x)
    del x
    kept = xpu.Attributes()
    xpu.ok(xpu.pointer_get_attrs(ctypes.byref(kept), handle_of(address)))
    assert kept.device == 0  # still allocated
    ctypes.c_int.from_address(gate.buffer.address).value = 1
    device().synchronize()
    assert xpu.pointer_get_attrs(ctypes.byref(kept), handle_of(address)) == xpu.INVALID  # freed now
    assert y.shape == (4096,)


@pytest.mark.alone(**PLUGIN)
def test_nothing_is_left_allocated(xpu: Any) -> None:
    import gc

    import isokern

    for _ in range(300):
        x = isokern.tensor(np.ones(1000, np.float32), device=device())
        isokern.add(x, x)
    del x
    gc.collect()
    device().synchronize()
    assert device().memory.live == 0
    assert device().memory.retired == 0


THREADS = """
import isokern, numpy as np
from concurrent.futures import ThreadPoolExecutor
a = np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32)
wanted = isokern.matmul(a, a, device="kunlun_sim:0").numpy()
def work(number):
    return all(np.array_equal(isokern.matmul(a, a, device="kunlun_sim:0").numpy(), wanted) for _ in range(60))
with ThreadPoolExecutor(4) as pool:
    assert all(pool.map(work, range(4)))
"""


def test_a_thread_that_waits_frees_nothing_that_another_s_work_uses(runtime: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    checked = {"ISOKERN_XPU_CHECK": "1", "ISOKERN_XPU_REPORT": str(report)}
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env={**os.environ, **PLUGIN, **checked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not report.exists(), report.read_text()[:2000]


@pytest.mark.alone(**PLUGIN)
@pytest.mark.parametrize(("kind", "nbytes"), [("default", 97 << 30), ("l3", 97 << 20)])
def test_out_of_memory_is_typed(xpu: Any, kind: str, nbytes: int) -> None:
    import isokern

    with pytest.raises(isokern.OutOfMemory, match=f"{nbytes} bytes of {kind} memory on kunlun_sim:0"):
        device().memory.alloc(nbytes, kind=kind, empty=True)
    held = [device().memory.alloc(32 << 20, kind="l3", empty=True) for _ in range(2)]
    with pytest.raises(isokern.OutOfMemory):
        device().memory.alloc(40 << 20, kind="l3", empty=True)
    held.clear()
    device().memory.alloc(90 << 20, kind="l3", empty=True)  # memory of deferred releases is freed first


# Errors


@pytest.mark.alone(**PLUGIN)
def test_a_code_is_the_same_error_on_both_sides_of_the_kernels_library(xpu: Any) -> None:
    import ctypes

    from isokern.status import IsokernError, raise_for

    folder = Path(device().runtime.path).parent
    library = ctypes.CDLL(str(folder / "libisokern_kunlun_fast.so"))
    header = (folder / "include" / "xpu" / "runtime.h").read_text()
    codes = [int(code) for code in re.findall(r"XPUERR_\w+ = (\d+)", header)]
    assert len(codes) > 20
    for code in codes:
        with pytest.raises(IsokernError) as here:
            device().runtime.check(-code, "it")
        with pytest.raises(IsokernError) as there:
            raise_for(library.ik_xpu_status(-code), "it", "")
        assert here.type is there.type, code


@pytest.mark.alone(**PLUGIN)
def test_a_kernel_exception_reaches_python_with_its_text_and_stays(xpu: Any) -> None:
    import isokern

    x = isokern.tensor(np.ones(4, np.float32), device=device())
    launch(xpu, "fault", 0, handle_of(x.buffer.address), stream=device().default_stream, clusters=2, cores=64)
    words = r"kernel fault, exception 4, cluster 0, core 0: .*nothing is at address 0x8.*kernels\.xpu:\d+"
    with pytest.raises(isokern.InternalError, match=words):
        device().synchronize()
    with pytest.raises(isokern.DeviceNotAvailable, match=words):
        isokern.add(x, x)
    with pytest.raises(isokern.InternalError, match=words):
        x.numpy()


@pytest.mark.alone(ISOKERN_XPU_TIMEOUT_MS=200, **PLUGIN)
def test_a_kernel_without_end_is_a_typed_error(xpu: Any) -> None:
    import isokern

    gate = isokern.tensor(np.zeros(1, np.int32), device=device())
    launch(xpu, "spin", handle_of(gate.buffer.address), 1, stream=device().default_stream)
    event = device().default_stream.record()
    with pytest.raises(isokern.InternalError, match=r"kernel spin, exception 28, .* does not end within 200 ms.*715"):
        event.synchronize()
    with pytest.raises(isokern.InternalError, match=r"timeout: kernel spin.*\(715\)"):
        device().synchronize()


@pytest.mark.alone(**PLUGIN)
def test_a_forked_child_is_told(xpu: Any) -> None:
    import isokern

    x = isokern.tensor(np.ones(4, np.float32), device=device())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            isokern.add(x, x)
        except isokern.DeviceNotAvailable as error:
            code = 0 if "forked" in str(error) else 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def devices(**environment: str) -> str:
    """Return the output of `isokern devices` on one line."""
    env = os.environ | PLUGIN | {"COLUMNS": "400"} | environment
    done = subprocess.run(
        [sys.executable, "-m", "isokern", "devices"], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in done.stderr
    return " ".join(done.stdout.split())


def test_a_wrong_model_makes_the_device_unavailable_with_the_reason(runtime: Path) -> None:
    reason = "unavailable simulator: XPUSIM_DEVICE_MODEL=KUNLUN7: modelled are KUNLUN2 and KUNLUN3 (711)"
    assert reason in devices(XPUSIM_DEVICE_MODEL="KUNLUN7")
    assert "unavailable simulator: ISOKERN_XPU_DEVICES=x: " in devices(ISOKERN_XPU_DEVICES="x")
    assert "unavailable simulator: ISOKERN_XPU_CHECK=yes: " in devices(ISOKERN_XPU_CHECK="yes")
    assert "unavailable no device: XPU_VISIBLE_DEVICES names none (703)" in devices(XPU_VISIBLE_DEVICES="")


def test_a_library_that_is_no_runtime(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    assert f"unavailable {tmp_path}/text.so cannot be loaded" in devices(ISOKERN_XPU_RUNTIME=f"{tmp_path}/text.so")
    assert "no such file; allowed: emulator, vendor" in devices(ISOKERN_XPU_RUNTIME="/nowhere.so")


@pytest.mark.parametrize(
    ("counted", "error", "reason"),
    [
        ("-701", '"worn out"', "unavailable worn out (-701)"),
        ("0", '"worn out"', "unavailable worn out (-712)"),
        ("0", "0", "unavailable an error without a name (-712)"),
    ],
)
def test_a_runtime_that_fails(runtime: Path, tmp_path: Path, counted: str, error: str, reason: str) -> None:
    from isokern_kunlun_sim import compiling
    from isokern_kunlun_sim.runtime import API

    names = re.findall(r"^int (xpu_\w+)", API, flags=re.M)
    text = "".join(f"int {n}(void) {{ return -712; }}\n" for n in names if n != "xpu_device_count")
    text += f"int xpu_device_count(int *count) {{ *count = 2; return {counted}; }}\n"
    (tmp_path / "fails.c").write_text(f"{text}const char *xpu_strerror(int code) {{ return {error}; }}\n")
    cxx = compiling.compiler()
    if cxx is None:
        pytest.skip("there is no C++ compiler")
    compiling.run([cxx, "-x", "c", "-shared", "-fPIC", tmp_path / "fails.c", "-o", tmp_path / "fails.so"])
    assert reason in devices(ISOKERN_XPU_RUNTIME=f"{tmp_path}/fails.so")


# A third library in the runtime's place

SHIM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "xpu/runtime.h"

/* Handles are not those of the library behind: who passed one of ours to it would be refused. */
static void *other(void *handle) { return handle == NULL ? NULL : (void *)((uintptr_t)handle ^ 0x5aa5000000000000u); }

static void *behind(const char *name)
{
    static void *library;
    if (library == NULL)
        library = dlopen(getenv("SHIM_BEHIND"), RTLD_NOW | RTLD_LOCAL);
    return dlsym(library, name);
}

static unsigned long counts[100];
"""


def shim_source(header: str) -> str:
    """Return a library that exports every function of the header, forwards calls to the runtime, and counts them.

    It negates error codes, as a driver might.
    """
    text = SHIM
    declared = re.findall(r"^(int|const char \*)\s*(xpu_\w+)\((.*)\);", header, flags=re.M)
    for index, (result, name, parameters) in enumerate(declared):
        plain = re.sub(r" XPU_DEFAULT\(\w+\)", "", parameters)
        given = (
            []
            if plain == "void"
            else [(p[: -len(n)], n) for p in plain.split(", ") for n in [p.split()[-1].lstrip("*")]]
        )
        passed = [f"other({n})" if t.strip() in ("XPUStream", "XPUEvent") else n for t, n in given]
        made = [f"if (code == 0) *{n} = other(*{n});" for t, n in given if t in ("XPUStream *", "XPUEvent *")]
        text += (
            f"{result} {name}({plain})\n{{\n"
            f"    static {result} (*forward)({', '.join(t for t, _ in given) or 'void'});\n"
            f'    if (forward == NULL) *(void **)&forward = behind("{name}");\n'
            f"    counts[{index}]++;\n    {result} code = forward({', '.join(passed)});\n"
            f"    {' '.join(made)}\n    return {'-' if result == 'int' else ''}code;\n}}\n"
        )
    tell = "".join(f'    fprintf(stderr, "shim {n} %lu\\n", counts[{i}]);\n' for i, (_, n, _) in enumerate(declared))
    return f"{text}__attribute__((destructor)) static void tell(void)\n{{\n{tell}}}\n"


HOST = """
import isokern, numpy as np
d = isokern.device("kunlun_sim:0")
a = np.arange(5000, dtype=np.float32)
x = isokern.tensor(a, device=d)
s = d.stream()
with s:
    y = isokern.add(x, x)
e = s.record()
t = d.stream()
t.wait(e)
while not e.query():
    pass
e.synchronize()
assert (y.numpy() == 2 * a).all()
try:
    d.memory.alloc(2**40, empty=True)
except isokern.OutOfMemory as error:
    assert "bytes of default memory" in str(error)
try:
    d.runtime.check(d.runtime.lib.xpu_set_device(7), "xpu_set_device")
except isokern.DeviceNotAvailable as error:
    assert "allowed: 0 to 0" in str(error)
import gc
del x, y, e, s, t
gc.collect()
d.synchronize()
"""
USED = [
    "xpu_device_count",
    "xpu_set_device",
    "xpu_device_get_attr",
    "xpu_malloc",
    "xpu_free",
    "xpu_memcpy",
    "xpu_stream_create",
    "xpu_stream_destroy",
    "xpu_stream_wait_event",
    "xpu_event_create",
    "xpu_event_record",
    "xpu_event_wait",
    "xpu_event_query",
    "xpu_event_destroy",
    "xpu_wait",
    "xpu_launch_config",
    "xpu_launch_argument_set",
    "xpu_launch_async",
    "xpu_strerror",
    "xpu_current_device",
]


def test_a_third_library_stands_in_for_the_runtime(runtime: Path, tmp_path: Path) -> None:
    """The host side calls only the C interface: a library with other handles can stand in for the runtime."""
    from isokern_kunlun_sim import compiling

    include = runtime.parent / "include"
    (tmp_path / "shim.c").write_text(shim_source((include / "xpu" / "runtime.h").read_text()))
    shim = tmp_path / "libshim.so"
    compiling.run([cxx(), "-x", "c", "-shared", "-fPIC", f"-I{include}", tmp_path / "shim.c", "-o", shim, "-ldl"])
    env = os.environ | PLUGIN | {"ISOKERN_XPU_RUNTIME": str(shim), "SHIM_BEHIND": str(runtime)}
    done = subprocess.run(
        [sys.executable, "-c", HOST], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    counts = {n: int(c) for n, c in re.findall(r"^shim (\w+) (\d+)$", done.stderr, flags=re.M)}
    assert [n for n in USED if counts[n] == 0] == []
    assert counts["xpu_malloc"] >= counts["xpu_free"] > 0
    assert counts["xpu_stream_create"] >= 3


def test_host_code_names_nothing_of_the_emulators(runtime: Path) -> None:
    """Python declares only the C interface, and libraries of kernels import nothing else but the device side."""
    from isokern_kunlun_sim import runtime as host

    header = (runtime.parent / "include" / "xpu" / "runtime.h").read_text()
    declared = set(re.findall(r"\b(xpu_\w+)\(", header))
    assert set(re.findall(r"\b(xpu\w+)\(", host.API)) <= declared
    source = Path(host.__file__).read_text()
    assert set(re.findall(r"\blib\.(xpu\w+)", source)) <= set(re.findall(r"\b(xpu_\w+)\(", host.API))
    assert "xpusim" not in source
    found = subprocess.run(
        ["nm", "-D", "--undefined-only", runtime.parent / "libisokern_kunlun_fast.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert set(re.findall(r"\b(xpu_\w+)", found)) <= declared


@pytest.mark.alone(**PLUGIN)
def test_a_library_that_was_built_against_other_records_is_refused(xpu: Any) -> None:
    import isokern
    import isokern_kunlun_sim
    from isokern.backend.native import NativeLibrary

    isokern.backends()  # declares the plug-in's settings
    NativeLibrary.fingerprints = property(lambda self: {"softmax": 1})  # affects only this process
    with pytest.raises(RuntimeError, match=r"operator softmax: plug-in kunlun_sim \S+ was built with .* rebuild"):
        isokern_kunlun_sim._open_emulated()
