"""Test the runtime's C interface: one documented behaviour per test."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KL3_HBM, KL3_L3 = 96 << 30, 96 << 20
SLOW = 20_000_000  # rounds of add_slowly, which take some hundredths of a second


def printed(what: Any, descriptor: int) -> str:
    """Return what is written to standard output (1) or error (2) while `what` runs."""
    with tempfile.TemporaryFile("w+") as file:
        kept = os.dup(descriptor)
        os.dup2(file.fileno(), descriptor)
        what()
        os.dup2(kept, descriptor)
        file.seek(0)
        return file.read()


def findings(what: Any) -> str:
    """Return what the runtime reports while `what` runs."""
    return printed(what, 2)


def ints(data: bytes) -> list[int]:
    return list((ctypes.c_int * (len(data) // 4)).from_buffer_copy(data))


# Devices


@pytest.mark.alone(ISOKERN_XPU_DEVICES=3)
def test_devices_are_counted(xpu: Any) -> None:
    count = ctypes.c_int()
    xpu.ok(xpu.device_count(ctypes.byref(count)))
    assert count.value == 3
    assert xpu.device_count(None) == xpu.INVALID


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_the_current_device_is_the_threads_own(xpu: Any) -> None:
    import threading

    xpu.ok(xpu.set_device(1))
    seen = ctypes.c_int(7)
    thread = threading.Thread(target=lambda: xpu.ok(xpu.current_device(ctypes.byref(seen))))
    thread.start()
    thread.join()
    assert seen.value == 0
    xpu.ok(xpu.current_device(ctypes.byref(seen)))
    assert seen.value == 1


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
@pytest.mark.parametrize("index", [-1, 2])
def test_a_device_that_is_not_there(xpu: Any, index: int) -> None:
    assert xpu.set_device(index) == xpu.INVALID_DEVICE
    assert xpu.error(xpu.INVALID_DEVICE) == f"invalid device: device {index}; allowed: 0 to 1"
    assert xpu.error(-xpu.INVALID_DEVICE) == xpu.error(xpu.INVALID_DEVICE)


@pytest.mark.alone(ISOKERN_XPU_DEVICES=4, XPU_VISIBLE_DEVICES="3,1")
def test_visible_devices_are_those_named_in_that_order(xpu: Any) -> None:
    count, value = ctypes.c_int(), ctypes.c_uint64()
    xpu.ok(xpu.device_count(ctypes.byref(count)))
    assert count.value == 2
    for index, physical in enumerate((3, 1)):
        xpu.ok(xpu.device_get_attr(ctypes.byref(value), 1, index))
        assert value.value == physical


@pytest.mark.alone(XPU_VISIBLE_DEVICES="")
def test_no_visible_device(xpu: Any) -> None:
    count = ctypes.c_int(5)
    assert xpu.device_count(ctypes.byref(count)) == xpu.NODEVICE
    assert count.value == 0


def wrong_settings() -> Any:
    for name, value, words in (
        ("XPUSIM_DEVICE_MODEL", "KUNLUN7", "modelled are KUNLUN2 and KUNLUN3"),
        ("ISOKERN_XPU_DEVICES", "two", "whole numbers from 1 to 64"),
        ("ISOKERN_XPU_DEVICES", "65", "whole numbers from 1 to 64"),
        ("XPU_NUM_CLUSTER", "13", "whole numbers from 1 to 12"),
        ("XPU_VISIBLE_DEVICES", "0,", "with commas between them"),
        ("XPU_VISIBLE_DEVICES", "1", "numbers from 0 to 0"),
        ("ISOKERN_XPU_TIMEOUT_MS", "0", "whole numbers from 1"),
        ("ISOKERN_XPU_SEED", "-1", "whole numbers from 0"),
    ):
        yield pytest.param(f"{name}={value}", words, marks=pytest.mark.alone(**{name: value}))


@pytest.mark.parametrize(("setting", "words"), list(wrong_settings()))
def test_a_wrong_setting_is_told(xpu: Any, setting: str, words: str) -> None:
    count = ctypes.c_int(5)
    assert xpu.device_count(ctypes.byref(count)) == xpu.SIMULATOR
    assert xpu.error(xpu.SIMULATOR).startswith(f"simulator: {setting}: ")
    assert words in xpu.error(xpu.SIMULATOR)
    assert xpu.malloc_code(16) == xpu.SIMULATOR


@pytest.mark.alone(XPUSIM_DEVICE_MODEL="KUNLUN2", XPU_NUM_CLUSTER=3)
def test_attributes_of_a_fused_part(xpu: Any) -> None:
    value = ctypes.c_uint64()
    for attribute, expected in ((1, 0), (4, 2), (5, 32 << 30), (6, (64 << 20) - 4096), (7, 3), (8, 6)):
        xpu.ok(xpu.device_get_attr(ctypes.byref(value), attribute, 0))
        assert value.value == expected
    for attribute in (0, 2, 3, 9, 13):
        assert xpu.device_get_attr(ctypes.byref(value), attribute, 0) == xpu.UNSUPPORTED
    assert xpu.device_get_attr(ctypes.byref(value), 14, 0) == xpu.INVALID


# Memory


@pytest.mark.alone
@pytest.mark.parametrize(("kind", "capacity"), [(0, KL3_HBM), (1, KL3_L3)])
def test_capacity_ends_and_comes_back(xpu: Any, kind: int, capacity: int) -> None:
    """HBM is larger than the host's memory, as pages are not committed before they are touched."""
    for _ in range(3):
        half, rest = xpu.malloc(capacity // 2, kind), xpu.malloc(capacity // 2, kind)
        assert xpu.malloc_code(1, kind) == xpu.NOMEM
        assert f"of {capacity} bytes of {'L3' if kind else 'HBM'} {capacity} are in use" in xpu.error(xpu.NOMEM)
        xpu.ok(xpu.free(half))
        assert xpu.malloc_code(capacity // 2 + 1, kind) == xpu.NOMEM
        xpu.ok(xpu.free(rest))
    assert xpu.malloc_code(2**64 - 1, kind) == xpu.NOMEM


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_each_device_has_a_capacity_of_its_own(xpu: Any) -> None:
    xpu.malloc(KL3_L3, xpu.L3)
    assert xpu.malloc_code(1, xpu.L3) == xpu.NOMEM
    xpu.ok(xpu.set_device(1))
    xpu.malloc(KL3_L3, xpu.L3)


@pytest.mark.alone
def test_memory_is_not_committed_before_it_is_touched(xpu: Any) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    big = xpu.malloc(64 << 30)
    assert resident() - before < 64 << 20
    chunk = bytes(64 << 20)
    xpu.ok(xpu.memcpy(big, chunk, len(chunk), xpu.TO_DEVICE))
    touched = resident()
    xpu.ok(xpu.free(big))
    assert touched - resident() > 48 << 20  # the memory is returned to the host


@pytest.mark.alone
def test_what_is_freed_is_used_again(xpu: Any) -> None:
    seen = set()
    for _ in range(2000):
        pointer = xpu.malloc(1 << 20)
        seen.add(pointer.value)
        xpu.ok(xpu.free(pointer))
    assert len(seen) < 200


@pytest.mark.alone
def test_free_takes_only_what_malloc_gave_once(xpu: Any) -> None:
    pointer = xpu.malloc(64)
    assert xpu.free(ctypes.c_void_p(pointer.value + 64)) == xpu.INVALID
    assert xpu.free(ctypes.c_void_p(64)) == xpu.INVALID
    xpu.ok(xpu.free(pointer))
    assert xpu.free(pointer) == xpu.INVALID
    assert "freed before" in xpu.error(xpu.INVALID)
    xpu.ok(xpu.free(None))


@pytest.mark.alone
def test_kinds_of_memory(xpu: Any) -> None:
    xpu.malloc(64, 17)
    assert xpu.malloc_code(64, 16) == xpu.UNSUPPORTED
    assert xpu.malloc_code(64, 2) == xpu.INVALID


@pytest.mark.alone
def test_host_memory(xpu: Any) -> None:
    pointer = ctypes.c_void_p()
    xpu.ok(xpu.host_alloc(ctypes.byref(pointer), ctypes.c_uint64(100), 0))
    ctypes.memset(pointer, 1, 100)
    assert xpu.host_unregister(pointer) == xpu.INVALID
    assert xpu.host_register(pointer, ctypes.c_uint64(10), 0) == xpu.REGISTERED
    xpu.ok(xpu.host_free(pointer))
    assert xpu.host_free(pointer) == xpu.INVALID
    assert xpu.host_alloc(ctypes.byref(pointer), ctypes.c_uint64(2**63), 0) == 706


@pytest.mark.alone
def test_host_memory_is_registered_once(xpu: Any) -> None:
    memory = ctypes.create_string_buffer(4096)
    xpu.ok(xpu.host_register(memory, ctypes.c_uint64(4096), 0))
    for start, size in ((0, 1), (4095, 10)):
        at = ctypes.c_void_p(ctypes.addressof(memory) + start)
        assert xpu.host_register(at, ctypes.c_uint64(size), 0) == xpu.REGISTERED
    assert xpu.host_free(memory) == xpu.INVALID
    xpu.ok(xpu.host_unregister(memory))
    assert xpu.host_unregister(memory) == xpu.INVALID
    assert xpu.host_register(xpu.malloc(16), ctypes.c_uint64(16), 0) == xpu.INVALID


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_a_pointer_tells_what_it_is(xpu: Any) -> None:
    def attributes(address: Any) -> Any:
        found = xpu.Attributes()
        xpu.ok(xpu.pointer_get_attrs(ctypes.byref(found), address))
        return found

    xpu.ok(xpu.set_device(1))
    pointer = xpu.malloc(64, xpu.L3)
    inside = ctypes.c_void_p(pointer.value + 63)
    found = attributes(inside)
    assert (found.type, found.device, found.device_pointer) == (xpu.L3, 1, inside.value)
    host = ctypes.create_string_buffer(8)
    found = attributes(host)
    assert (found.device, found.host_pointer) == (-1, ctypes.addressof(host))
    xpu.ok(xpu.free(pointer))
    assert xpu.pointer_get_attrs(ctypes.byref(found), pointer) == xpu.INVALID


# Copies


@pytest.mark.alone
def test_copies_go_both_ways_and_on_the_device(xpu: Any) -> None:
    data = bytes(range(256)) * 4
    a, b = xpu.upload(data), xpu.malloc(1024)
    xpu.ok(xpu.memcpy(b, a, 1024, xpu.ON_DEVICE))
    assert xpu.download(b, 1024) == data


@pytest.mark.alone
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_ends_of_a_copy_are_what_its_kind_says(xpu: Any, asynchronous: bool) -> None:
    device, host = xpu.malloc(64), ctypes.create_string_buffer(64)
    freed = xpu.malloc(64)
    xpu.ok(xpu.free(freed))

    def copy(to: Any, of: Any, nbytes: int, kind: int) -> int:
        if asynchronous:
            return int(xpu.memcpy_async(to, of, ctypes.c_uint64(nbytes), kind, None))
        return int(xpu.memcpy(to, of, nbytes, kind))

    for to, of, nbytes, kind in (
        (host, host, 64, xpu.TO_DEVICE),
        (device, device, 64, xpu.TO_DEVICE),
        (device, device, 64, xpu.TO_HOST),
        (host, host, 64, xpu.TO_HOST),
        (device, host, 64, xpu.ON_DEVICE),
        (device, host, 65, xpu.TO_DEVICE),
        (freed, host, 64, xpu.TO_DEVICE),
        (None, host, 64, xpu.TO_DEVICE),
        (device, None, 64, xpu.TO_DEVICE),
        (device, host, 64, 3),
        (device, host, 64, -1),
    ):
        assert copy(to, of, nbytes, kind) == xpu.INVALID
        assert xpu.error(xpu.INVALID) != "invalid parameter"
    xpu.ok(copy(None, None, 0, xpu.TO_DEVICE))
    xpu.ok(copy(device, host, 64, xpu.TO_DEVICE))
    xpu.ok(xpu.wait(None))


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_copies_between_devices_are_peer_copies(xpu: Any) -> None:
    a = xpu.upload(b"abcd")
    xpu.ok(xpu.set_device(1))
    b = xpu.malloc(4)
    assert xpu.memcpy(b, a, 4, xpu.ON_DEVICE) == xpu.INVALID
    assert "xpu_memcpy_peer" in xpu.error(xpu.INVALID)
    n = ctypes.c_uint64(4)
    assert xpu.memcpy_peer(0, b, 1, a, n) == xpu.INVALID
    assert xpu.memcpy_peer(2, b, 0, a, n) == xpu.INVALID_DEVICE
    xpu.ok(xpu.memcpy_peer(1, b, 0, a, n))
    assert xpu.download(b, 4) == b"abcd"


# Streams and events


@pytest.mark.alone
def test_work_on_a_stream_is_asynchronous_and_in_order(xpu: Any) -> None:
    stream, word = xpu.stream(), xpu.upload(bytes(4))
    out = ctypes.create_string_buffer(4)
    xpu.ok(xpu.launch("spin", word, 1, stream=stream))  # runs until the host writes the word
    xpu.ok(xpu.launch("add_slowly", word, 41, stream=stream))
    xpu.ok(xpu.memcpy_async(out, word, ctypes.c_uint64(4), xpu.TO_HOST, stream))
    assert out.raw == bytes(4)
    ctypes.c_int.from_address(word.value).value = 1  # as another device might do
    xpu.ok(xpu.wait(stream))
    assert ints(out.raw) == [42]
    xpu.ok(xpu.stream_destroy(stream))


@pytest.mark.alone
def test_wait_without_a_stream_waits_for_the_default_one_only(xpu: Any) -> None:
    stream, word = xpu.stream(), xpu.upload(bytes(4))
    xpu.ok(xpu.launch("spin", word, 1, stream=stream))
    xpu.ok(xpu.launch("nothing"))
    xpu.ok(xpu.wait(None))
    ctypes.c_int.from_address(word.value).value = 1
    xpu.ok(xpu.wait(stream))


@pytest.mark.alone
def test_a_destroyed_stream_finishes_its_work(xpu: Any) -> None:
    stream, word = xpu.stream(), xpu.upload(bytes(4))
    for _ in range(20):
        xpu.ok(xpu.launch("add_slowly", word, 100000, stream=stream))
    xpu.ok(xpu.stream_destroy(stream))
    assert ints(xpu.download(word, 4)) == [2000000]
    assert xpu.stream_destroy(stream) == xpu.INVALID
    assert xpu.wait(stream) == xpu.INVALID
    assert xpu.launch("nothing", stream=stream) == xpu.INVALID
    assert xpu.stream_destroy(None) == xpu.INVALID


@pytest.mark.alone
def test_an_event_is_reached_after_the_work_before_it(xpu: Any) -> None:
    stream, word, event = xpu.stream(), xpu.upload(bytes(4)), xpu.event()
    xpu.ok(xpu.event_query(event))  # an event that was never recorded is reached
    xpu.ok(xpu.event_wait(event))
    xpu.ok(xpu.launch("spin", word, 1, stream=stream))
    xpu.ok(xpu.event_record(event, stream))
    assert xpu.event_query(event) == xpu.BUSY
    ctypes.c_int.from_address(word.value).value = 1
    xpu.ok(xpu.event_wait(event))
    xpu.ok(xpu.event_query(event))


@contextlib.contextmanager
def no_more_host_memory() -> Iterator[None]:
    """Refuse host mappings of a megabyte or more, and so new threads."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.alone
def test_a_record_that_fails_records_nothing(xpu: Any) -> None:
    stream, event = xpu.stream(), xpu.event()
    with no_more_host_memory():
        assert xpu.event_record(event, stream) == xpu.NOCPUMEM
    xpu.ok(xpu.event_wait(event))
    xpu.ok(xpu.event_record(event, stream))
    xpu.ok(xpu.event_wait(event))


@pytest.mark.alone(ISOKERN_XPU_CHECK=1)
def test_no_host_memory_to_check_device_memory_with(xpu: Any) -> None:
    xpu.ok(xpu.free(xpu.malloc(96 << 20)))  # too much to be held back: the range is free, and the account gone
    with no_more_host_memory():
        assert xpu.malloc_code(16 << 20) == xpu.NOCPUMEM
        assert "to keep account of 16777216 bytes" in xpu.error(xpu.NOCPUMEM)
    xpu.ok(xpu.free(xpu.malloc(16 << 20)))


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_streams_wait_for_events_of_others_and_of_other_devices(xpu: Any) -> None:
    first, word, event = xpu.stream(), xpu.upload(bytes(4)), xpu.event()
    out = ctypes.create_string_buffer(4)
    xpu.ok(xpu.launch("spin", word, 1, stream=first))
    xpu.ok(xpu.launch("add_slowly", word, SLOW, stream=first))
    xpu.ok(xpu.event_record(event, first))
    xpu.ok(xpu.set_device(1))
    second, there = xpu.stream(), xpu.event()
    xpu.ok(xpu.event_record(there, second))
    xpu.ok(xpu.stream_wait_event(second, event))
    xpu.ok(xpu.memcpy_async(out, word, ctypes.c_uint64(4), xpu.TO_HOST, second))
    xpu.ok(xpu.event_destroy(event))  # in use: streams that wait for it continue to
    xpu.ok(xpu.event_wait(there))  # a copy that did not wait would be done before add_slowly
    ctypes.c_int.from_address(word.value).value = 1
    xpu.ok(xpu.wait(second))
    assert ints(out.raw) == [1 + SLOW]
    assert xpu.event_query(event) == xpu.INVALID
    assert xpu.event_wait(event) == xpu.INVALID
    assert xpu.event_record(event, second) == xpu.INVALID
    assert xpu.stream_wait_event(second, event) == xpu.INVALID
    assert xpu.event_destroy(event) == xpu.INVALID


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_an_event_behind_failed_work_is_reached_and_tells(xpu: Any) -> None:
    stream, event = xpu.stream(), xpu.event()
    xpu.ok(xpu.launch("fault", 0, None, stream=stream))
    xpu.ok(xpu.event_record(event, stream))
    assert xpu.event_wait(event) == xpu.EXCEPTION
    assert xpu.event_query(event) == xpu.EXCEPTION
    xpu.ok(xpu.set_device(1))
    other, word = xpu.stream(), xpu.upload(bytes(4))
    xpu.ok(xpu.stream_wait_event(other, event))
    xpu.ok(xpu.launch("add_slowly", word, 1, stream=other))
    assert xpu.wait(other) == xpu.EVENT_WAIT
    assert "kernel fault, exception 4" in xpu.error(xpu.EVENT_WAIT)
    assert ints(xpu.download(word, 4)) == [0]  # the waiting kernel was dropped
    xpu.ok(xpu.launch("add_slowly", word, 1, stream=other))  # the device remains usable
    xpu.ok(xpu.wait(other))


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_many_threads_and_streams_at_once(xpu: Any) -> None:
    import threading

    wrong = []

    def work(device: int) -> None:
        xpu.ok(xpu.set_device(device))
        stream, event = xpu.stream(), xpu.event()
        for _ in range(20):
            out = xpu.malloc(24 * 64 * 4)
            xpu.ok(xpu.launch("rotate", out, clusters=24, cores=64, stream=stream))
            xpu.ok(xpu.event_record(event, stream))
            xpu.ok(xpu.event_wait(event))
            if ints(xpu.download(out, 24 * 256)) != [(i + 1) % 64 for i in range(64)] * 24:
                wrong.append(device)
            xpu.ok(xpu.free(out))
        xpu.ok(xpu.stream_destroy(stream))

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Launches


@pytest.mark.alone
@pytest.mark.parametrize(("clusters", "cores"), [(0, 64), (256, 64), (-1, 64), (1, 0), (1, 65)])
def test_launches_that_no_device_takes(xpu: Any, clusters: int, cores: int) -> None:
    assert xpu.launch("nothing", clusters=clusters, cores=cores) == xpu.INVALID
    assert "allowed: 1 to " in xpu.error(xpu.INVALID)
    xpu.ok(xpu.wait(None))


@pytest.mark.alone
@pytest.mark.parametrize(("model", "physical"), [("KUNLUN3", 12), ("KUNLUN2", 8)])
def test_logical_clusters_run_on_the_physical_ones(xpu: Any, model: str, physical: int) -> None:
    os.environ["XPUSIM_DEVICE_MODEL"] = model
    out = xpu.malloc(255 * 64 * 8)
    xpu.ok(xpu.launch("identity", out, clusters=255, cores=64))
    xpu.ok(xpu.wait(None))
    seen = ints(xpu.download(out, 255 * 64 * 8))
    assert seen[::2] == list(range(255 * 64))
    assert set(seen[1::2]) == set(range(physical))


@pytest.mark.alone
def test_the_parameter_block_holds_512_bytes(xpu: Any) -> None:
    xpu.ok(xpu.launch("large"))
    assert xpu.launch("too_large") == xpu.INVALID
    assert "516 bytes at offset 0" in xpu.error(xpu.INVALID)
    xpu.ok(xpu.wait(None))


@pytest.mark.alone
def test_a_launch_needs_configuration_and_all_its_parameters(xpu: Any) -> None:
    class Function(ctypes.Structure):
        _fields_ = (
            ("name", ctypes.c_char_p),
            ("run", ctypes.c_void_p),
            ("kernel", ctypes.c_void_p),
            ("parameter_bytes", ctypes.c_uint),
            ("checked", ctypes.c_int),
        )

    function = Function(b"f", 1, 1, 8, 0)
    assert xpu.launch_async(None) == xpu.NOFUNC
    assert xpu.launch_async(ctypes.byref(function)) == xpu.INVALID
    xpu.ok(xpu.launch_config(1, 1, None))
    assert xpu.launch_async(ctypes.byref(function)) == xpu.INVALID
    assert "0 bytes of parameters; the kernel takes 8" in xpu.error(xpu.INVALID)
    assert xpu.launch_argument_set(None, ctypes.c_size_t(4), ctypes.c_size_t(0)) == xpu.INVALID
    for size, offset in ((4, 2), (2**64 - 1, 4), (4, 512)):
        word = ctypes.c_int(1)
        assert (
            xpu.launch_argument_set(ctypes.byref(word), ctypes.c_size_t(size), ctypes.c_size_t(offset)) == xpu.INVALID
        )


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_a_stream_of_another_device_is_refused(xpu: Any) -> None:
    stream = xpu.stream()
    xpu.ok(xpu.set_device(1))
    assert xpu.launch("nothing", stream=stream) == xpu.INVALID
    assert xpu.error(xpu.INVALID) == "invalid parameter: the stream is of device 0, the current device is 1"


@pytest.mark.alone
def test_cores_share_the_memory_of_their_cluster(xpu: Any) -> None:
    for clusters, cores in ((1, 1), (3, 7), (30, 64)):
        out = xpu.malloc(clusters * cores * 4)
        xpu.ok(xpu.launch("rotate", out, clusters=clusters, cores=cores))
        xpu.ok(xpu.wait(None))
        assert ints(xpu.download(out, clusters * cores * 4)) == [(i + 1) % cores for i in range(cores)] * clusters


def schedule(xpu: Any) -> list[int]:
    out = xpu.upload(bytes(4 * (1 + 8 * 64)))
    xpu.ok(xpu.launch("order", out, clusters=8, cores=64))
    xpu.ok(xpu.wait(None))
    return ints(xpu.download(out, 4 * (1 + 8 * 64)))[1:]


@pytest.mark.alone(XPU_NUM_CLUSTER=1)
def test_without_a_seed_cores_run_in_order(xpu: Any) -> None:
    assert schedule(xpu) == list(range(8 * 64))


@pytest.mark.alone(XPU_NUM_CLUSTER=1, ISOKERN_XPU_SEED=5)
def test_a_seed_shuffles_clusters_and_cores_the_same_way_each_time(xpu: Any) -> None:
    import subprocess
    import sys

    seen = schedule(xpu)
    assert sorted(seen) == list(range(8 * 64))
    clusters = [v // 64 for v in seen[::64]]
    assert clusters != sorted(clusters)
    assert seen[:64] != sorted(seen[:64])
    assert schedule(xpu) != seen  # the next launch has another order
    again = "import runpy, sys\nsys.path.insert(0, sys.argv[1])\nimport os, driver\n" + (
        "x = driver.Xpu(os.environ['XPU_RUNTIME'], os.environ['XPU_KERNELS'])\n"
        "print(runpy.run_path(sys.argv[2])['schedule'](x))"
    )
    done = subprocess.run(
        [sys.executable, "-c", again, os.path.dirname(__file__), __file__], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(seen)


@pytest.mark.alone(ISOKERN_XPU_SEED=1)
def test_device_output_comes_in_the_order_of_launch_cluster_and_core(xpu: Any) -> None:
    other = xpu.stream()
    expected = ""
    for number in range(3):
        xpu.ok(xpu.launch("say", number, clusters=24, cores=3))
        expected += "".join(f"[cluster {c} core {k}] launch {number}\n" for c in range(24) for k in range(3))
    xpu.ok(xpu.launch("say", 9, stream=other))
    text = printed(lambda: xpu.ok(xpu.kernel_debug(None)), 1)
    assert text == expected
    xpu.ok(xpu.kernel_debug_reset())


@pytest.mark.alone
def test_device_output_beyond_its_buffer_is_lost_and_said_so(xpu: Any) -> None:
    import resource

    xpu.ok(xpu.launch("count", 10000, clusters=2, cores=64))
    xpu.ok(xpu.wait(None))
    *lines, last, empty = printed(lambda: xpu.ok(xpu.kernel_debug(None)), 1).split("\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 20  # KB
    assert lines[0] == f"[cluster 0 core 0] {0:64}"
    assert 500_000 < len(lines) < 2 * 64 * 10000
    assert (last, empty) == ("[output of count is lost: the buffer of 128 MiB is full]", "")


# The process


@pytest.mark.alone
def test_a_forked_child_gets_an_error_and_does_not_hang(xpu: Any) -> None:
    stream, event, pointer = xpu.stream(), xpu.event(), xpu.malloc(16)
    xpu.ok(xpu.launch("nothing", stream=stream))
    child = os.fork()
    if child == 0:
        codes = [
            xpu.malloc_code(16),
            xpu.free(pointer),
            xpu.launch("nothing", stream=stream),
            xpu.wait(stream),
            xpu.wait(None),
            xpu.stream_destroy(stream),
            xpu.event_wait(event),
            xpu.event_destroy(event),
            xpu.memcpy(pointer, b"x", 1, xpu.TO_DEVICE),
        ]
        os._exit(0 if set(codes) == {xpu.UNINIT} and "forked" in xpu.error(xpu.UNINIT) else 1)
    assert os.waitpid(child, 0)[1] == 0
    xpu.ok(xpu.wait(stream))


@pytest.mark.alone
def test_a_child_forked_before_the_first_use_works(xpu: Any) -> None:
    child = os.fork()
    if child == 0:
        xpu.ok(xpu.launch("nothing"))
        os._exit(0 if xpu.wait(None) == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0


# Work in flight


@pytest.mark.alone(ISOKERN_XPU_CHECK=1)
def test_host_memory_changed_before_its_copy(xpu: Any) -> None:
    data, device = ctypes.create_string_buffer(b"before"), xpu.malloc(7)

    def change() -> None:
        xpu.ok(xpu.memcpy_async(device, data, ctypes.c_uint64(7), xpu.TO_DEVICE, None))
        data.value = b"behind"
        xpu.ok(xpu.wait(None))

    assert "host-changed-in-flight\n    xpu_memcpy_async of 7 bytes" in findings(change)

    def wait() -> None:
        xpu.ok(xpu.memcpy_async(device, data, ctypes.c_uint64(7), xpu.TO_DEVICE, None))
        xpu.ok(xpu.wait(None))
        data.value = b"before"

    assert findings(wait) == ""


@pytest.mark.alone(ISOKERN_XPU_CHECK=1)
def test_host_memory_read_before_its_copy_holds_no_result(xpu: Any) -> None:
    device, data = xpu.upload(b"result"), ctypes.create_string_buffer(b"older!")
    xpu.ok(xpu.memcpy_async(data, device, ctypes.c_uint64(6), xpu.TO_HOST, None))
    other = xpu.stream()
    xpu.ok(xpu.launch("add_slowly", xpu.upload(bytes(4)), SLOW, stream=other))
    xpu.ok(xpu.wait(other))  # begun later: a copy that did not wait would be done by then
    assert data.raw[:6] == b"\xcd" * 6
    xpu.ok(xpu.wait(None))
    assert data.value == b"result"


@pytest.mark.alone
def test_memory_freed_under_work_in_flight(xpu: Any) -> None:
    word, other, stream = xpu.upload(bytes(4)), xpu.malloc(4), xpu.stream()
    xpu.ok(xpu.launch("spin", word, 1, stream=stream))
    assert findings(lambda: xpu.ok(xpu.free(other))) == ""

    def free() -> None:
        xpu.ok(xpu.free(word))

    assert "free-in-flight\n    xpu_free of 4 bytes" in findings(free)
    ctypes.c_int.from_address(word.value).value = 1
    xpu.ok(xpu.wait(stream))


@pytest.mark.alone
def test_memory_copied_by_the_host_under_work_in_flight(xpu: Any) -> None:
    word, other, stream = xpu.upload(bytes(4)), xpu.upload(bytes(4)), xpu.stream()
    xpu.ok(xpu.launch("spin", word, 1, stream=stream))
    assert findings(lambda: xpu.download(other, 4)) == ""
    told = findings(lambda: xpu.download(word, 4))
    assert "copy-in-flight\n    xpu_memcpy reads 4 bytes" in told
    assert "kernel spin may still write: it was given" in told
    assert findings(lambda: xpu.download(word, 4)) == ""  # the same finding is reported once
    let_go = b"\1\0\0\0"
    told = findings(lambda: xpu.ok(xpu.memcpy(word, let_go, 4, xpu.TO_DEVICE)))
    assert "copy-in-flight\n    xpu_memcpy writes 4 bytes" in told
    assert "kernel spin may still use" in told
    xpu.ok(xpu.wait(stream))
    assert findings(lambda: xpu.download(word, 4)) == ""


@pytest.mark.alone
def test_host_memory_freed_under_a_copy(xpu: Any) -> None:
    host, word, stream = ctypes.c_void_p(), xpu.upload(bytes(4)), xpu.stream()
    xpu.ok(xpu.host_alloc(ctypes.byref(host), ctypes.c_uint64(4), 0))
    xpu.ok(xpu.launch("spin", word, 1, stream=stream))
    xpu.ok(xpu.memcpy_async(host, word, ctypes.c_uint64(4), xpu.TO_HOST, stream))
    assert "free-in-flight\n    xpu_host_free" in findings(lambda: xpu.ok(xpu.host_free(host)))
    ctypes.c_int.from_address(word.value).value = 1
    xpu.ok(xpu.wait(stream))


@pytest.mark.alone(ISOKERN_XPU_CHECK=1)
def test_checked_streams_start_late_and_lose_nothing(xpu: Any) -> None:
    word, event, other = xpu.upload(bytes(4)), xpu.event(), xpu.stream()
    for _ in range(100):  # more than a queue holds
        xpu.ok(xpu.launch("add_slowly", word, 1))
    xpu.ok(xpu.event_record(event, None))
    xpu.ok(xpu.stream_wait_event(other, event))
    xpu.ok(xpu.launch("add_slowly", word, 1, stream=other))
    xpu.ok(xpu.wait(other))
    assert ints(xpu.download(word, 4)) == [101]
    while xpu.event_query(event) == xpu.BUSY:
        pass
    xpu.ok(xpu.event_query(event))
