"""Test `gpu.py` without a GPU: every reason why there is none, and its calls, on a fake CuPy over the emulated GPU."""

import contextlib
import inspect
import re
import shutil
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from cupy_over_sim import Failure

import isokern
from isokern.backend import Unavailable
from isokern.bench.peers import UFUNCS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.fixture
def pathfinder(monkeypatch):
    """Install a fake cuda.pathfinder that finds the library at `path`, or none."""
    found = SimpleNamespace(path=None)

    def load(name):
        assert name == "cublasLt"
        if found.path is None:
            raise RuntimeError("libcublasLt.so is nowhere")
        return SimpleNamespace(abs_path=found.path)

    made = ModuleType("cuda.pathfinder")
    made.load_nvidia_dynamic_lib = load
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", made)
    return found


def why():
    from isokern_cuda.gpu import drivers

    with pytest.raises(Unavailable) as caught:
        drivers()
    return str(caught.value)


# --- why there is none ------------------------------------------------------------------------------------------------


def test_no_cupy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert why() == "CuPy is not installed: pip install 'isokern-cuda[cuda12]' (or [cuda13], by the driver)"


def test_no_driver(cupy):
    cupy.driver = 0
    assert "there is no NVIDIA driver (libcuda.so.1)" in why()


def test_too_old_a_driver(cupy):
    cupy.driver, cupy.runtime = 11040, 12090
    assert why() == "the driver is for CUDA 11.4, CuPy for 12.9: install a driver for CUDA 12"


def test_the_wrong_toolkit(cupy):
    cupy.driver, cupy.runtime = 12040, 13000
    assert "for CUDA 12.4, CuPy for 13.0: pip install 'isokern-cuda[cuda12]' in place of [cuda13]" in why()


def test_no_nvrtc(cupy):
    cupy.nvrtc = RuntimeError("libnvrtc.so.12 is not there")
    assert "NVRTC, which compiles kernels, cannot be loaded (libnvrtc.so.12 is not there): pip install" in why()


def test_cupy_finds_no_nvrtc(cupy, monkeypatch):
    monkeypatch.delattr(sys.modules["cupy_backends.cuda.libs"], "nvrtc")
    assert "NVRTC, which compiles kernels, cannot be loaded (cannot import name 'nvrtc'" in why()


def test_no_gpu(cupy):
    cupy.gpus = 0
    assert why() == "CUDA finds no GPU"
    cupy.count = Failure(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
    assert "CUDA finds no GPU: cudaErrorNoDevice" in why()


def test_too_old_a_gpu(cupy):
    cupy.capability = (6, 1)
    assert why() == "GPU 0: Emulated GPU is of compute capability 6.1; 7.5 is needed"


# --- the calls --------------------------------------------------------------------------------------------------------


@pytest.fixture
def device(cupy):
    from isokern_cuda.devices import CudaDevice
    from isokern_cuda.gpu import drivers

    (driver,) = drivers()
    return CudaDevice("cuda:0", driver)


def test_operators_run(device, cupy):
    x = np.random.default_rng(0).standard_normal((5, 33)).astype(np.float32)
    assert np.allclose(isokern.softmax(x, device=device).numpy().sum(-1), 1)
    with device.stream() as stream:
        y = isokern.add(x, x, device=device)
        event = stream.record()
        device.default_stream.wait(event)
        event.synchronize()
        assert event.query()
    assert np.array_equal(y.numpy(), x + x)
    options = [p[2] for p in cupy.programs.values()]
    assert options == [["-arch=sm_90", "-std=c++17", "-default-device", "--fmad=false"]] * len(options)


def test_a_graph(device):
    a, y = isokern.tensor([1.0, 2.0], "F32", device=device), isokern.zeros((2,), device=device)
    call = isokern.create("neg", [a.desc], device=device).bind(a, y)
    with device.default_stream.capture() as recording:
        call()
        call()
    recording.replay()
    assert (y.numpy() == [-1, -2]).all()


def test_a_newer_gpu_gets_ptx(cupy):
    from isokern_cuda.gpu import drivers

    cupy.capability = (12, 1)
    (driver,) = drivers()
    assert driver.target == "compute_100"


def test_pinned_memory(device):
    buffer = device.memory.alloc(64, kind="pinned")
    with buffer.map_for_cpu() as view:
        view[:] = 1
    assert (buffer.read() == 1).all()
    x = isokern.zeros((64,), "U8", device=device)
    isokern.copy(isokern.Tensor(x.desc, buffer), out=x, stream=device.default_stream)
    assert (x.numpy() == 1).all()
    buffer.close()


def test_a_kernel_that_does_not_compile(device, cupy, tmp_path):
    from isokern.simt import Folder

    (tmp_path / "elementwise.c").write_text(
        '/* launch\n * elementwise(items=y.numel)\n */\n#include "simt.h"\n\n'
        "IK_ENTRY(elementwise)(IK_PARAMS)\n{\n    nothing();\n}\n"
    )
    device.folders = (Folder("planted", 10, tmp_path), *device.folders)
    with pytest.warns(RuntimeWarning, match=r"planted of neg is disabled for F32: .*cannot build elementwise"):
        assert (isokern.neg([1.0], device=device).numpy() == -1).all()


def test_cupy_has_what_is_asked_of_it(cupy):
    """The installed CuPy has the names and numbers of parameters that `gpu.py` uses; docstrings give signatures."""
    named = {k: dict(vars(v)) for k, v in cupy.modules.items()}
    for name in [n for n in sys.modules if n.split(".")[0] in ("cupy", "cupy_backends")]:
        del sys.modules[name]
    real_cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    others = (
        "maximum",
        "clip",
        "multiply",
        "where",
        "add",
        "sum",
        "mean",
        "max",
        "min",
        "argmax",
        "copyto",
        "pad",
        "concatenate",
        "take",
    )
    assert [n for n in (*UFUNCS.values(), *others, "from_dlpack", "asnumpy") if not hasattr(real_cupy, n)] == []
    assert hasattr(real_cupy.cuda, "ExternalStream")
    assert "mode" not in inspect.signature(real_cupy.take).parameters  # else it would have to be set to "wrap"
    from cupy_backends.cuda.api import driver, runtime
    from cupy_backends.cuda.libs import nvrtc

    real = {"runtime": runtime, "driver": driver, "nvrtc": nvrtc}
    with contextlib.suppress(ImportError):  # cublas needs the cuBLAS library, which is no dependency
        from cupy_backends.cuda.libs import cublas

        real["cublas"] = cublas
    for home in real:
        for name, ours in named[home].items():
            assert hasattr(real[home], name), f"{home}.{name}"
            theirs = getattr(real[home], name)
            if callable(theirs) and not isinstance(theirs, type):
                signature = re.match(rf"{name}\((.*?)\)", theirs.__doc__)[1]
                wanted = len([p for p in signature.split(",") if p.strip() and "=" not in p])
                given = ours.__code__.co_argcount if not ours.__code__.co_flags & 4 else None
                assert given in (None, wanted, wanted + 1), f"{name}({signature})"


@pytest.mark.parametrize(
    ("cupys", "torchs", "libraries", "expected"),
    [
        (0, None, set(), 0),
        (0, None, {"cupy"}, 1),
        (7, None, {"cupy"}, 7),
        (7, None, set(), 7),
        (7, 9, {"torch"}, 9),
        (7, 0, {"torch", "cupy", ""}, 1),
        (7, 9, {"cupy"}, 7),
    ],
)
def test_the_current_stream_is_that_of_the_library_whose_memory_it_is(
    cupy, monkeypatch, cupys, torchs, libraries, expected
):
    from isokern_cuda.gpu import drivers

    monkeypatch.setattr(sys.modules["cupy"].cuda, "get_current_stream", lambda index: SimpleNamespace(ptr=cupys))
    if torchs is not None:
        torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda index: SimpleNamespace(cuda_stream=torchs)))
        monkeypatch.setitem(sys.modules, "torch", torch)
    assert drivers()[0].current(libraries) == expected


def test_with_several_gpus_the_threads_device_is_put_back(cupy, monkeypatch):
    from isokern_cuda.gpu import drivers

    runtime, now, asked = cupy.modules["runtime"], [0], []
    monkeypatch.setattr(runtime, "getDevice", lambda: now[0])
    monkeypatch.setattr(runtime, "setDevice", lambda index: now.__setitem__(0, index))
    plain = runtime.streamCreateWithFlags
    monkeypatch.setattr(runtime, "streamCreateWithFlags", lambda flags: asked.append(now[0]) or plain(flags))
    cupy.gpus = 2
    first, second = drivers()
    assert now == [0]
    for before in (0, 1):
        now[0] = before
        first.stream(), second.stream()
        assert now == [before]
    assert asked == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("capability", "target"), [((8, 6), "compute_80"), ((9, 0), "sm_90"), ((12, 1), "compute_100")]
)
def test_a_gpu_that_the_compiler_does_not_know_gets_ptx_of_the_next_older_one(cupy, capability, target):
    from isokern_cuda.gpu import drivers

    cupy.capability = capability
    assert drivers()[0].target == target


# --- cuBLASLt ---------------------------------------------------------------------------------------------------------


def test_products_without_the_library(cupy, pathfinder):
    from isokern_cuda.gpu import drivers

    with pytest.raises(Unavailable, match=r"cuBLASLt cannot be used \(libcublasLt.so is nowhere\): pip install"):
        drivers()[0].products()


def test_products_with_a_library_that_cannot_start(cupy, pathfinder, tmp_path):
    from isokern_cuda.gpu import drivers

    source = tmp_path / "lt.c"
    source.write_text(
        "int cublasLtCreate(void **h) { return 1; }\n"
        'const char *cublasLtGetStatusString(int s) { return s == 1 ? "not initialized" : "?"; }\n'
    )
    pathfinder.path = str(tmp_path / "lt.so")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", str(source), "-o", pathfinder.path], check=True)
    with pytest.raises(Unavailable, match=r"cublasLtCreate: not initialized\): pip install"):
        drivers()[0].products()
