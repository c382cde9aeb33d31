"""Test the emulated GPU's driver as the backend calls it: what CUDA forbids fails with CUDA's error code."""

import ctypes
import struct

import numpy as np
import pytest

from isokern_cuda.driver import Arguments, BuildFailed, CudaError, Wrong

TWICE = """
extern "C" __global__ void twice(float *y, const float *x, int n)
{
    if (threadIdx.x == n)
        return;
    __syncthreads();
    y[threadIdx.x] = 2 * x[threadIdx.x];
}
"""
THREADS, NBYTES = 8, 32
UNKNOWN = 999


@pytest.fixture
def cuda(driver):
    return driver()


@pytest.fixture
def twice(cuda):
    """Return a function that launches y = 2 x on a stream; thread number n misses the barrier."""
    kernel, most = cuda.load(cuda.build(TWICE, "twice"), "twice")
    assert most == 64

    def launch(y, x, stream, n=-1):
        cuda.launch(kernel, 1, THREADS, Arguments([y, x], struct.pack("i", n)), stream)

    return launch


@pytest.fixture
def vectors(cuda):
    """Allocate y and x, of THREADS floats each; yield their addresses."""
    made = [cuda.alloc(NBYTES) for _ in range(2)]
    yield made
    for address in made:
        cuda.free(address)


def write(cuda, address, values):
    given = np.array(values, np.float32)
    cuda.copy(address, given.ctypes.data, given.nbytes)


def read(cuda, address):
    found = np.empty(THREADS, np.float32)
    cuda.copy(found.ctypes.data, address, found.nbytes)
    return found.tolist()


def fails(code, call, *arguments):
    with pytest.raises(CudaError) as caught:
        call(*arguments)
    assert caught.value.code == code, caught.value


@pytest.mark.parametrize("pinned", [False, True])
def test_memory_is_aligned_and_full_of_poison(cuda, pinned):
    for nbytes in (1, 37, 4096):
        address = cuda.alloc(nbytes, pinned)
        assert address % 256 == 0
        assert ctypes.string_at(address, nbytes) == b"\xff" * nbytes
        cuda.zero(address, nbytes)
        assert ctypes.string_at(address, nbytes) == bytes(nbytes)
        cuda.free(address, pinned)


def test_memory_that_is_not_there(cuda):
    fails(2, cuda.alloc, 1 << 60)
    address = cuda.alloc(NBYTES)
    fails(1, cuda.free, address + 256)
    cuda.free(address)
    fails(1, cuda.free, address)


def test_streams_that_are_not_there(cuda, twice, vectors):
    ended = cuda.stream()
    event = cuda.record(ended)
    cuda.end_stream(ended)
    for stream in (UNKNOWN, ended):
        fails(400, cuda.end_stream, stream)
        fails(400, cuda.synchronize, stream)
        fails(400, cuda.record, stream)
        fails(400, cuda.wait, stream, event)
        fails(400, cuda.begin_capture, stream)
        fails(400, cuda.end_capture, stream)
        fails(400, twice, *vectors, stream)


def test_events_that_are_not_there(cuda):
    stream = cuda.stream()
    ended = cuda.record(stream)
    cuda.wait(stream, ended)
    assert cuda.has_passed(ended)
    cuda.end_event(ended)
    for event in (UNKNOWN, ended, stream):
        fails(400, cuda.end_event, event)
        fails(400, cuda.has_passed, event)
        fails(400, cuda.synchronize_event, event)
        fails(400, cuda.wait, stream, event)


def test_graphs_that_are_not_there(cuda):
    stream = cuda.stream()
    cuda.begin_capture(stream)
    ended = cuda.end_capture(stream)
    cuda.replay(ended, stream)
    cuda.end_graph(ended)
    for graph in (UNKNOWN, ended, stream):
        fails(400, cuda.replay, graph, stream)
        fails(400, cuda.end_graph, graph)


@pytest.mark.parametrize("what", ["alloc", "copy", "zero", "synchronize"])
def test_what_a_capture_forbids_makes_it_invalid(cuda, vectors, what):
    y, x = vectors
    stream, other = cuda.stream(), cuda.stream()
    given = {"alloc": (NBYTES,), "copy": (y, x, NBYTES), "zero": (y, NBYTES), "synchronize": (stream,)}[what]
    cuda.begin_capture(stream)
    fails(900, getattr(cuda, what), *given)
    fails(401, cuda.end_capture, other)
    fails(901, cuda.end_capture, stream)
    cuda.begin_capture(stream)
    cuda.end_graph(cuda.end_capture(stream))


def test_captures_that_do_not_pair(cuda):
    stream = cuda.stream()
    fails(401, cuda.end_capture, stream)
    cuda.begin_capture(stream)
    fails(900, cuda.begin_capture, stream)
    cuda.end_capture(stream)
    fails(401, cuda.end_capture, stream)


def test_a_graph_sees_new_contents(cuda, twice, vectors):
    y, x = vectors
    stream, other = cuda.stream(), cuda.stream()
    write(cuda, x, [1] * THREADS)
    write(cuda, y, [0] * THREADS)
    cuda.begin_capture(stream)
    twice(y, x, stream)
    twice(y, y, stream)
    graph = cuda.end_capture(stream)
    assert read(cuda, y) == [0] * THREADS  # no work ran
    for value, target in ((3, stream), (5, other)):
        write(cuda, x, [value] * THREADS)
        cuda.replay(graph, target)
        assert read(cuda, y) == [4 * value] * THREADS


def test_a_launch_that_stops_leaves_the_next_alone(cuda, twice, vectors):
    y, x = vectors
    stream = cuda.stream()
    write(cuda, x, [1] * THREADS)
    with pytest.raises(Wrong, match="only 7 of 8 items of group 0 reach the barrier"):
        twice(y, x, stream, 3)
    twice(y, x, stream)
    assert read(cuda, y) == [2] * THREADS


def test_a_graph_that_stops_tells_it(cuda, twice, vectors):
    stream = cuda.stream()
    cuda.begin_capture(stream)
    twice(*vectors, stream, 3)
    graph = cuda.end_capture(stream)
    with pytest.raises(Wrong, match="only 7 of 8 items"):
        cuda.replay(graph, stream)


def test_what_is_no_kernel(cuda):
    with pytest.raises(BuildFailed, match=r"error: .nothing. was not declared"):
        cuda.build('extern "C" __global__ void twice(float *y) { y[0] = nothing; }', "twice")
    fails(200, cuda.load, b"no library", "twice")


def test_what_kernels_call_is_built_once(driver, monkeypatch):
    driver()
    monkeypatch.setattr("isokern_cuda.sim.SimDriver._compile", None)
    driver()


SPLIT = f'#define IK_NO_F64\n#define IK_INLINE __device__ __forceinline__\n#line 1 "plan"\n{TWICE}'


def commands(cuda, monkeypatch):
    """Return a list that records the options of each compiler call from now on."""
    made, compile_as_before = [], cuda._compile

    def compile_and_note(source, *options):
        made.append((type(source).__name__, *options))
        return compile_as_before(source, *options)

    monkeypatch.setattr(cuda, "_compile", compile_and_note)
    return made


def test_what_sources_begin_with_is_parsed_once(driver, monkeypatch):
    first, second = driver(), driver()
    made, again = commands(first, monkeypatch), commands(second, monkeypatch)
    binary = first.build(SPLIT, "twice")
    assert first.build(SPLIT, "twice") == second.build(SPLIT, "twice") == binary
    assert [kind for kind, *_ in made].count("PosixPath") == 1
    assert len(made) == 3 and all("-include" in options for kind, *options in made if kind == "str")
    assert len(again) == 1 and "-include" in again[0]  # the precompiled header was found in the disk cache
    assert binary == first._compile(f'#include "cuda_host.h"\n{SPLIT}\nCUDA_HOST_LAUNCH(twice)\n', "-nostdlib")


@pytest.mark.parametrize("content", [b"", b"gpch", b"gpch.014" + bytes(1 << 20)])
def test_a_header_that_the_compiler_cannot_read_costs_time_only(driver, monkeypatch, content):
    cuda = driver()
    binary = cuda.build(SPLIT, "twice")
    (kept,) = cuda._headers.glob("*.gch")
    kept.write_bytes(content)
    assert cuda.build(SPLIT, "twice") == binary
    kept.with_suffix("").write_text("#error no header\n")
    assert cuda.build(SPLIT, "twice") == binary
    kept.unlink()
    assert cuda.build(SPLIT, "twice") == binary
    for file in cuda._headers.iterdir():
        file.unlink()
    cuda._headers.rmdir()
    assert cuda.build(SPLIT, "twice") == binary


def test_a_source_that_is_wrong_is_told_with_and_without_the_header(driver):
    with pytest.raises(BuildFailed, match=r"plan:\d+:\d+: error: .nothing. was not declared"):
        driver().build(SPLIT.replace("return;", "nothing;"), "twice")
