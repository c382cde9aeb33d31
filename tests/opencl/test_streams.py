"""Test streams: order, threads, errors that only the device can find, forked processes, and lost devices."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument


def test_a_stream_waits_for_an_event_of_another(device):
    a, b = device.stream(), device.stream()
    x = isokern.tensor(np.ones(1 << 20, np.float32), device=device)
    y, z = isokern.zeros(x.shape, device=device), isokern.zeros(x.shape, device=device)
    for _ in range(5):
        isokern.exp(x, out=y, stream=a)
        isokern.log(y, out=y, stream=a)
        event = a.record()
        b.wait(event)
        isokern.add(y, y, out=z, stream=b)
        b.synchronize()
        assert event.query()
        assert np.allclose(z.numpy(), 2)
        isokern.mul(z, 0.0, out=z, stream=b)
        isokern.mul(y, 0.0, out=y, stream=b)
        b.synchronize()
    event.synchronize()


def test_threads_share_a_descriptor(device):
    """Calls from several threads, on one stream or several, never mix up their arguments."""
    add = isokern.create("add", [isokern.TensorDesc("F32", (257,))] * 2, device=device)
    wrong: list[int] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(number, stream):
        x = isokern.tensor(np.full(257, number, np.float32), device=device)
        y = isokern.zeros((257,), device=device)
        for _ in range(100):
            y.buffer.view[...] = 0
            add.calculate([x, x], y, stream=stream)
            stream.synchronize()
            if not (y.buffer.view.view(np.float32) == 2 * number).all():
                wrong.append(number)

    try:
        _in_threads(work, device)
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def _in_threads(work, device):
    for streams in ([device.default_stream] * 4, [device.stream() for _ in range(4)]):
        threads = [threading.Thread(target=work, args=(n + 1, s)) for n, s in enumerate(streams)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


@pytest.fixture
def gather(device):
    x = isokern.tensor(np.arange(10, dtype=np.float32).reshape(5, 2), device=device)
    index = isokern.tensor(np.array([0, 7, 4]), device=device)
    y = isokern.zeros((3, 2), device=device)
    try:
        made = isokern.create("gather", [x.desc, index.desc], device=device)
    except isokern.NotImplementedOnDevice as error:
        pytest.skip(str(error))
    return made, [x, index], y


def test_a_wrong_index_is_raised_at_the_next_synchronise_and_once(device, gather):
    made, inputs, y = gather
    made.calculate(inputs, y)
    with pytest.raises(InvalidArgument, match=r"gather.*7"):
        device.synchronize()
    device.synchronize()
    assert (y.numpy()[0] == [0, 1]).all()
    bound = made.bind(inputs, y)
    bound()
    with pytest.raises(InvalidArgument, match="gather"):
        y.buffer.read()
    y.buffer.read()


def test_a_wrong_index_of_a_replay_is_raised_on_the_stream_that_replays(device, gather):
    made, inputs, y = gather
    with device.default_stream.capture() as recording:
        made.calculate(inputs, y)
    device.synchronize()
    other = device.stream()
    recording.replay(other)
    device.default_stream.synchronize()
    with pytest.raises(InvalidArgument, match="gather"):
        other.synchronize()
    recording.replay()
    with pytest.raises(InvalidArgument, match="gather"):
        device.default_stream.synchronize()


def test_a_recording_holds_a_recording(device):
    x = isokern.tensor([1.0, 2.0], device=device)
    stream = device.default_stream
    with stream.capture() as inner:
        isokern.add(x, x, out=x)
    with stream.capture() as outer:
        inner.replay()
        inner.replay()
    assert len(outer) == 2
    del inner
    outer.replay()
    assert x.numpy().tolist() == [4, 8]


def test_work_in_flight_at_exit(run):
    code = """
import isokern, numpy as np
x = isokern.tensor(np.ones(4 << 20, np.float32), device="opencl:0")
for _ in range(30):
    y = isokern.exp(x)
"""
    assert run(code, POCL_DEVICES="pthread") == (0, "")


FORK = """
import os, signal, threading, isokern, numpy as np
device = isokern.device("opencl:0")
x = isokern.tensor(np.ones(8, np.float32), device=device)
y, stream = isokern.neg(x), device.stream()
event = stream.record()
bound = isokern.create("neg", [x.desc], device=device).bind(x, y)
device.synchronize()
tester = threading.Thread(target=device.selftests.lock.acquire)  # makes a self-test just then
tester.start()
tester.join()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    for call in (bound, lambda: isokern.neg(x, device=device), stream.synchronize, device.synchronize, \
stream.record, event.synchronize, event.query, y.numpy,
                 lambda: isokern.create("tanh", [x.desc], device=device),
                 device.stream, lambda: device.memory.alloc(8), lambda: y.buffer.read()):
        try:
            call()
            os._exit(1)
        except isokern.DeviceNotAvailable as error:
            assert "fork" in str(error), error
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), y.numpy()[0])
"""


def test_a_forked_child_is_told(run):
    status, text = run(FORK, POCL_DEVICES="pthread")
    assert status == 0, text
    assert text.split() == ["0", "-1.0"], text


LOST = """
#include <dlfcn.h>
#include <stdlib.h>
typedef int (*of_queue)(void *);
typedef int (*of_kernel)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, \
unsigned, void *, void *);
static int code(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
int clFinish(void *queue)
{
    const int error = code("FAIL_FINISH");
    return error ? error : ((of_queue)dlsym(dlopen(getenv("DRIVER"), RTLD_NOW), "clFinish"))(queue);
}
int clEnqueueNDRangeKernel(void *q, void *k, unsigned n, const size_t *o, const size_t *g, const size_t *l, \
unsigned m, void *w, void *e)
{
    const int error = code("FAIL_ENQUEUE");
    return error ? error : ((of_kernel)dlsym(dlopen(getenv("DRIVER"), RTLD_NOW), "clEnqueueNDRangeKernel"))\
(q, k, n, o, g, l, m, w, e);
}
"""

FAILING = """
import ctypes, isokern, numpy as np
device = isokern.device("opencl:0")
setenv = ctypes.CDLL(None).setenv
x = isokern.tensor(np.ones(8, np.float32), device=device)
neg, y = isokern.create("neg", [x.desc], device=device), isokern.zeros((8,), device=device)
bound = neg.bind(x, y)
with device.default_stream.capture() as recording:
    bound()
def tried(call):
    try:
        call()
    except isokern.IsokernError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
for name, calls in {"FAIL_ENQUEUE": [bound, lambda: neg.calculate(x, y), recording.replay], \
"FAIL_FINISH": [device.synchronize]}.items():
    for code in (b"-2", b"-36", b"-4", b"-5", b"-9999"):
        setenv(name.encode(), code, 1)
        for call in calls:
            print(name, code.decode(), tried(call))
    setenv(name.encode(), b"0", 1)
bound()
assert (y.numpy() == -1).all()
"""


def test_a_device_that_fails(run, tmp_path):
    """Calls of the driver return errors for a lost device, for lack of memory, and an unknown one."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "lost.c").write_text(LOST)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "lost.so", tmp_path / "lost.c", "-ldl"], check=True)
    driver = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libOpenCL" in line)
    status, text = run(FAILING, LD_PRELOAD=str(tmp_path / "lost.so"), DRIVER=driver)
    assert status == 0, text
    kinds = {"-2": "DeviceNotAvailable", "-36": "DeviceNotAvailable", "-4": "OutOfMemory", "-5": "OutOfMemory"}
    lines = [line.split(" ", 2) for line in text.splitlines() if line.startswith("FAIL")]
    assert len(lines) == 20, text
    for name, code, what in lines:
        assert what.startswith(kinds.get(code, "InternalError")), (name, code, what)
        assert "opencl:0" in what
