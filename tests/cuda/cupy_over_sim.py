"""A fake CuPy over the emulated GPU: tests run `gpu.py` and all code above it, while `sim.py` answers as CUDA."""

import contextlib
import ctypes
import importlib.machinery
import re
import sys
import time
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import isokern


class Failure(RuntimeError):
    """Stands for CuPy's CUDARuntimeError, CUDADriverError and NVRTCError."""

    def __init__(self, status, text=""):
        super().__init__(text)
        self.status = status


def as_array(address, count, element):
    """Return memory of the emulated GPU as an array."""
    return np.frombuffer((ctypes.c_uint8 * (count * element.itemsize)).from_address(address), element)


class Pointer:
    """Stands for CuPy's MemoryPointer, which frees the memory when it is deleted."""

    def __init__(self, sim, nbytes):
        self.sim, self.ptr = sim, sim.alloc(nbytes)

    def __del__(self):
        self.sim.free(self.ptr)


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    """Install a fake CuPy over the emulated GPU; `state` sets what it reports."""
    from isokern_cuda.driver import BuildFailed, CudaError
    from isokern_cuda.sim import SimDriver

    isokern.backends()  # declares the plug-in's settings
    sim = SimDriver("g++", 0)  # uses the cache that all tests share, since the environment is the same
    monkeypatch.setenv("ISOKERN_CACHE", str(tmp_path))
    state = SimpleNamespace(
        driver=13000, runtime=12090, gpus=1, capability=(9, 0), archs=(75, 80, 90, 100), nvrtc=None, count=None
    )
    programs, modules, graphs = {}, {}, {}

    def asks(method):
        def call(*arguments):
            try:
                return method(*arguments)
            except CudaError as error:
                raise Failure(error.code, str(error)) from None

        return call

    def count():
        if state.count is not None:
            raise state.count
        return state.gpus

    def compile_program(program, options):
        source, entry = programs[program]
        programs[program] = (source, entry, options)
        try:
            modules[program] = sim.build(source, entry)
        except BuildFailed as error:
            state.log = str(error)
            raise Failure(6, "NVRTC_ERROR_COMPILATION") from None

    def create_program(source, name, headers, names):
        entry = re.findall(r"^IK_ENTRY\((\w+)\)", source, re.M)[-1]
        programs[len(programs) + 1] = (source, entry)
        return len(programs)

    def event_record(event, stream):
        sim.check_stream(stream)
        sim._events[event] += time.perf_counter() - sim._events[event]  # stays NaN for an event without times

    @contextlib.contextmanager
    def current(handle, device):
        assert device == 0
        sim.check_stream(handle)
        kept, state.stream = state.stream, handle
        yield
        state.stream = kept

    def gemm(handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute, algorithm):
        """Multiply column-major matrices, as cuBLAS does."""
        element = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}[c_type]
        scalar = ctypes.c_double if compute == 70 else ctypes.c_float
        assert (handle, a_type, b_type, algorithm) == (77, c_type, c_type, -1)
        assert compute == (70 if element is np.float64 else 68)
        state.products.append(state.stream)

        def matrix(address, rows, columns, ld):
            assert ld >= rows
            whole = as_array(address, ld * columns, np.dtype(element)).reshape(columns, ld).T
            return whole[:rows]

        left = matrix(a, k, m, lda).T if ta else matrix(a, m, k, lda)
        right = matrix(b, n, k, ldb).T if tb else matrix(b, k, n, ldb)
        y = matrix(c, m, n, ldc)
        product = left.astype(np.float64) @ right.astype(np.float64)
        y[...] = scalar.from_address(alpha).value * product + (
            scalar.from_address(beta).value * y.astype(np.float64) if scalar.from_address(beta).value else 0
        )

    def from_dlpack(tensor):
        """Return an array over the tensor's memory; NumPy would refuse memory of a GPU."""
        assert tensor.__dlpack_device__() == (2, 0)
        tensor.__dlpack__(stream=state.stream)
        count = tensor.desc.numel
        return as_array(tensor.buffer.address, count, tensor.dtype.numpy).reshape(tensor.shape)

    def take(a, indices, axis=None, out=None):
        return np.take(a, indices, axis, out, "wrap")

    def version():
        if state.nvrtc is not None:
            raise state.nvrtc
        return 12, 9

    def launch(kernel, bx, by, bz, tx, ty, tz, shared, stream, parameters, extra):
        assert (by, bz, ty, tz, shared, extra) == (1, 1, 1, 1, 0, 0)
        asks(sim.launch)(modules[kernel], bx, tx, SimpleNamespace(address=parameters), stream)

    def load(image):
        try:
            modules["loaded", len(modules)] = sim.load(image, "")[0]
        except CudaError as error:
            raise Failure(error.code, str(error)) from None
        return ("loaded", len(modules) - 1)

    def instantiate(graph):
        graphs[graph] = graph
        return graph

    def event_query(event):
        return 0 if sim.has_passed(event) else 600

    runtime = SimpleNamespace(
        CUDARuntimeError=Failure,
        hostAllocPortable=1,
        memcpyDefault=4,
        streamNonBlocking=1,
        eventDisableTiming=2,
        streamCaptureModeThreadLocal=1,
        driverGetVersion=lambda: state.driver,
        runtimeGetVersion=lambda: state.runtime,
        getDeviceCount=count,
        setDevice=lambda device: None,
        getDevice=lambda: 0,
        getDeviceProperties=lambda device: {
            "name": b"Emulated GPU",
            "major": state.capability[0],
            "minor": state.capability[1],
            "totalGlobalMem": 1 << 34,
            "l2CacheSize": 1 << 16,
            "multiProcessorCount": 4,
        },
        hostAlloc=asks(lambda size, flags: sim.alloc(size, True)),
        freeHost=asks(lambda address: sim.free(address, True)),
        memcpy=asks(lambda to, of, size, kind: sim.copy(to, of, size)),
        memcpyAsync=asks(lambda to, of, size, kind, stream: sim.enqueue_copy(to, of, size, stream)),
        memset=asks(lambda at, value, size: sim.zero(at, size)),
        streamSynchronize=asks(lambda stream: stream and sim.synchronize(stream)),
        streamCreateWithFlags=asks(lambda flags: sim.stream()),
        streamDestroy=asks(sim.end_stream),
        streamGetFlags=asks(lambda stream: sim.check_stream(stream) or 1),
        eventDefault=0,
        eventCreateWithFlags=asks(lambda flags: sim.record(state.any, flags == 0)),
        eventRecord=asks(event_record),
        eventElapsedTime=asks(lambda begin, end: 1e3 * sim.seconds_between(begin, end)),
        eventQuery=event_query,
        eventSynchronize=asks(sim.synchronize_event),
        eventDestroy=asks(sim.end_event),
        streamWaitEvent=asks(sim.wait),
        streamBeginCapture=asks(lambda stream, mode: sim.begin_capture(stream)),
        streamIsCapturing=asks(lambda stream: sim.captures(stream)),
        streamEndCapture=asks(sim.end_capture),
        graphInstantiate=instantiate,
        graphLaunch=asks(sim.replay),
        graphDestroy=lambda graph: None,
        graphExecDestroy=asks(sim.end_graph),
    )
    state.any, state.stream, state.products = sim.stream(), 0, []
    driver = SimpleNamespace(
        CUDADriverError=Failure,
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK=0,
        launchKernel=launch,
        moduleLoadData=load,
        moduleGetFunction=lambda module, name: module,
        funcGetAttribute=lambda attribute, kernel: 1024,
    )
    nvrtc = SimpleNamespace(
        NVRTCError=Failure,
        getVersion=version,
        getSupportedArchs=lambda: state.archs,
        createProgram=create_program,
        compileProgram=compile_program,
        getProgramLog=lambda program: state.log,
        getCUBIN=lambda program: modules[program],
        getPTX=lambda program: modules[program],
        destroyProgram=lambda program: None,
    )
    memory = SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {}))
    cuda = SimpleNamespace(
        MemoryPool=lambda: SimpleNamespace(malloc=asks(lambda nbytes: Pointer(sim, nbytes))),
        memory=memory,
        get_current_stream=lambda: SimpleNamespace(ptr=state.stream),
        Device=lambda index: contextlib.nullcontext(),
        ExternalStream=current,
    )

    def module(name, **content):
        made = ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(made).update(content)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    module(
        "cupy",
        cuda=cuda,
        from_dlpack=from_dlpack,
        asnumpy=np.array,
        take=take,
        __getattr__=lambda name: getattr(np, name),
    )
    module("cupy_backends")
    module("cupy_backends.cuda")
    module("cupy_backends.cuda.api", runtime=runtime, driver=driver)
    cublas = SimpleNamespace(gemmEx=gemm, create=lambda: 77)
    module("cupy_backends.cuda.libs", nvrtc=nvrtc, cublas=cublas)
    state.sim, state.programs, state.modules = (
        sim,
        programs,
        {"runtime": runtime, "driver": driver, "nvrtc": nvrtc, "cublas": cublas},
    )
    return state
