"""Test which devices there are, their names, and why there are none: settings, drivers, limits."""

import ctypes
import dataclasses
import platform
import warnings
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import isokern
from isokern import NotImplementedOnDevice
from isokern.backend import Unavailable
from isokern_opencl import devices as of_devices, platforms, pocl


class Fake:
    """A device or platform with only the attributes that are read."""

    def __init__(self, **facts):
        self.__dict__.update(facts)


def test_aliases(devices):
    text = devices(POCL_DEVICES="basic basic", ISOKERN_OPENCL_DEVICES="pocl:1,pocl:0")
    assert "'opencl:0', 'available'" in text
    assert text.index("opencl:pocl:1") < text.index("opencl:pocl:0")


def test_a_device_goes_by_its_platform(run):
    code = "import isokern; print(isokern.device('opencl:pocl:0').name, isokern.device('opencl').name)"
    assert run(code)[1].split() == ["opencl:0", "opencl:0"]


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("ISOKERN_OPENCL_DEVICES", ",", "names no device; allowed: pocl:0"),
        ("ISOKERN_OPENCL_GROUP", "7", "a power of two"),
        ("ISOKERN_OPENCL_GROUP", "-8", "a power of two"),
        ("ISOKERN_OPENCL_GROUP", "many", "a power of two"),
        ("ISOKERN_OPENCL_BINARIES", "no", "allowed: 0 or 1"),
    ],
)
def test_settings_are_checked(devices, setting, value, words):
    text = devices(**{setting: value})
    assert f"'broken', 'environment: {setting}={value}" in text
    assert words in text


@pytest.mark.parametrize(
    ("value", "words"),
    [("nothing", "no device is called nothing; this machine has"), ("pocl:7", "no device is called pocl:7")],
)
def test_a_device_that_is_asked_for_may_not_be_there(devices, value, words):
    text = devices(ISOKERN_OPENCL_DEVICES=value)
    assert "'unavailable'" in text
    assert words in text


def test_no_platform(monkeypatch):
    def none():
        raise cl.Error("no platform")

    monkeypatch.setattr(cl, "get_platforms", none)
    with pytest.raises(Unavailable, match=r"no OpenCL platform: .*; PoCL is installed, and POCL_DEBUG=error"):
        platforms.open_devices()
    monkeypatch.setattr(platforms, "POCL", "no_such_package")
    with pytest.raises(Unavailable, match=r"no OpenCL platform: .*pip install"):
        platforms.open_devices()
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nowhere")
    with pytest.raises(Unavailable, match="OCL_ICD_VENDORS=/nowhere is where"):
        platforms.open_devices()
    monkeypatch.setattr(cl, "get_platforms", list)
    with pytest.raises(Unavailable, match="the platforms have none"):
        platforms.open_devices()


def test_a_broken_driver_does_not_stop_the_others(devices, tmp_path):
    (tmp_path / "broken.icd").write_text("this is no library")
    (tmp_path / "text.icd").write_text(str(tmp_path / "broken.icd"))
    assert "'opencl:0', 'available'" in devices(OCL_ICD_VENDORS=str(tmp_path))


def test_a_platform_that_fails_is_left_out_with_its_reason(monkeypatch):
    def fails():
        raise cl.Error("it fell over")

    monkeypatch.delenv("ISOKERN_OPENCL_DEVICES", raising=False)
    monkeypatch.setattr(cl, "get_platforms", lambda: [Fake(name=" Broken platform ", get_devices=fails)])
    with pytest.raises(Unavailable, match="broken: it fell over"):
        platforms.open_devices()


def test_two_platforms_of_one_name(monkeypatch):
    def platform(*names):
        made = Fake(name="Portable Computing Language")
        made.get_devices = lambda: [Fake(platform=made, name=n, type=cl.device_type.CPU) for n in names]
        return made

    monkeypatch.setattr(cl, "get_platforms", lambda: [platform("a", "b"), platform("c")])
    found, refused = platforms._find()
    assert {k: d.name for k, d in found.items()} == {"pocl:0": "a", "pocl:1": "b", "pocl:2": "c"}
    assert refused == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"available": False}, "not available"),
        ({"compiler_available": False}, "no compiler"),
        ({"version": "OpenCL 1.1 old"}, "1.2 is needed"),
        ({"endian_little": False}, "big-endian"),
        ({"local_mem_size": 1024}, "32768 are needed"),
    ],
)
def test_devices_that_can_run_nothing(facts, words):
    fit = {"version": "OpenCL 1.2 x", "available": True, "compiler_available": True, "endian_little": True}
    fit |= {"local_mem_size": 65536}
    with pytest.raises(Unavailable, match=words):
        of_devices.traits_of(Fake(**{**fit, **facts}))


def test_without_f64(device, monkeypatch):
    monkeypatch.setattr(device, "traits", dataclasses.replace(device.traits, fp64=False))
    x = isokern.TensorDesc("F64", (4,))
    with pytest.raises(NotImplementedOnDevice, match="the device has no F64"):
        isokern.create("exp", [x], device=device)
    isokern.create("exp", [isokern.TensorDesc("F32", (4,))], device=device)


NORM = """
import isokern, numpy as np
device = isokern.device("opencl:0")
x = np.random.default_rng(0).standard_normal((5, 300)).astype(np.float32)
x, y = isokern.tensor(x, device=device), isokern.zeros((5, 300), device=device)
isokern.create("rms_norm", [x.desc], device=device, variant="portable").calculate(x, y)
x, y = x.numpy(), y.numpy()
assert np.allclose(y, x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6), rtol=1e-5), y
print(device.traits.group, device.traits.items)
"""


@pytest.mark.parametrize(
    ("asked", "group"), [({}, "1 1"), ({"ISOKERN_OPENCL_GROUP": "64"}, "1 1")], ids=["default", "more asked"]
)
def test_a_work_group_of_one(run, asked, group):
    status, text = run(NORM, POCL_MAX_WORK_GROUP_SIZE="1", **asked)
    assert status == 0, text
    assert text.split() == group.split()


def test_a_kernel_that_gets_a_smaller_work_group_than_the_device(run):
    code = """
from isokern_opencl.devices import ClDevice
asked = []
def limit(self, kernel):
    asked.append(kernel.get_work_group_info(\
__import__('pyopencl').kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, self.cl_device)[0])
    return 24
ClDevice._group_limit = limit
"""
    status, text = run(f"{code}{NORM}\nassert 64 in asked and asked[-1] == 16, asked", ISOKERN_OPENCL_GROUP="64")
    assert status == 0, text


def test_a_kernel_that_gets_no_work_group_at_all(device, monkeypatch):
    monkeypatch.setattr(type(device), "_group_limit", lambda self, kernel: 0)
    with pytest.raises(NotImplementedOnDevice, match="work-groups of"):
        isokern.create("rms_norm", [isokern.TensorDesc("F16", (3, 77))], device=device)


# The name of PoCL's processor

PLATFORM = "Portable Computing Language"


@pytest.mark.parametrize(
    ("platform", "version"),
    [
        ("Intel(R) OpenCL", "OpenCL 3.0 generic-generic"),
        (PLATFORM, "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-haswell"),
        (PLATFORM, "OpenCL 1.2 PoCL"),
    ],
)
def test_other_drivers_and_named_processors_are_left_alone(monkeypatch, platform, version):
    monkeypatch.setattr(pocl, "_is_refused", lambda device: pytest.fail("it was tried"))
    assert pocl.name_processor(Fake(platform=Fake(name=platform), version=version)) is None


def test_a_processor_that_the_compiler_takes_keeps_its_name(monkeypatch):
    monkeypatch.setattr(pocl, "_is_refused", lambda device: False)
    monkeypatch.setattr(pocl, "_places", lambda memory, record: pytest.fail("it was searched"))
    assert pocl.name_processor(Fake(platform=Fake(name=PLATFORM), version="x-generic", int_ptr=0)) is None


@pytest.mark.parametrize("words", [0, 2])
def test_a_record_with_no_such_word_or_several_is_left_alone(monkeypatch, words):
    word = np.frombuffer(b"generic\0", np.uint8).copy()
    record = np.zeros(pocl.RECORD // 8, np.uint64)
    record[5 : 5 + words] = word.ctypes.data
    before = record.copy()
    monkeypatch.setattr(pocl, "_is_refused", lambda device: True)
    device = Fake(platform=Fake(name=PLATFORM), version="x-generic", int_ptr=record.ctypes.data)
    assert pocl.name_processor(device) is None
    assert (record == before).all()
    assert bytes(word) == b"generic\0"


def test_the_pointer_in_the_record_is_replaced(monkeypatch):
    if "flags" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this is no x86 processor")
    word = np.frombuffer(b"generic\0", np.uint8).copy()
    record = np.full(pocl.RECORD // 8, 1, np.uint64)  # an address that cannot be read
    record[80] = word.ctypes.data
    monkeypatch.setattr(pocl, "_is_refused", lambda device: True)
    device = Fake(platform=Fake(name=PLATFORM), version="x-generic", int_ptr=record.ctypes.data)
    name = pocl.name_processor(device)
    assert name in dict(pocl.NAMES)
    assert ctypes.string_at(int(record[80])).decode() == name
    assert (np.delete(record, 80) == 1).all()


@pytest.mark.parametrize(
    ("version", "lacks"),
    [("pthread-x86_64-pc-linux-gnu-rocketlake", True), ("x-skylake-avx512", False), ("x-icelake-client", True)],
)
def test_processors_without_cache_line_write_back(version, lacks):
    assert pocl.lacks_clwb(Fake(platform=Fake(name=PLATFORM), version=version)) is lacks
    assert not pocl.lacks_clwb(Fake(platform=Fake(name="another"), version=version))


def test_what_was_renamed_is_shown(device):
    renamed = device.cl_device.version.strip().endswith("-generic")
    assert ("processor" in device.properties) == renamed


def test_a_device_that_fails_is_left_out_loudly(monkeypatch, device):
    def fails(name, alias, *rest):
        raise cl.Error("no queue")

    monkeypatch.setattr(platforms, "ClDevice", fails)
    with pytest.raises(Unavailable, match="pocl:0: no queue"):
        platforms.open_devices()
    made = []

    def once(name, alias, *rest):
        if made:
            raise cl.Error("no queue")
        made.append(name)
        return name

    monkeypatch.setattr(platforms, "ClDevice", once)
    monkeypatch.setattr(platforms, "_find", lambda: ({"pocl:0": device.cl_device, "pocl:1": device.cl_device}, []))
    with pytest.warns(RuntimeWarning, match="left out: pocl:1: no queue"):
        assert platforms.open_devices() == ["opencl:0"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.clear()
        monkeypatch.setattr(platforms, "_find", lambda: ({"pocl:0": device.cl_device}, []))
        assert platforms.open_devices() == ["opencl:0"]


TRAPPED = """
import ctypes
import numpy as np
import isokern, pyopencl
from isokern_opencl import platforms
mathematics = ctypes.CDLL(None)
traps = 0x01 | 0x04 | 0x08  # invalid, division by zero, overflow
mathematics.feenableexcept(traps)
device = isokern.device("opencl:pocl:0")
unmasked = mathematics.fegetexcept()
mathematics.fedisableexcept(traps)
print("kept" if unmasked == traps else unmasked)
x = isokern.tensor(np.resize(np.float32([0, -1, 3e38]), 4096), device=device)
for operator in (isokern.reciprocal, isokern.log, isokern.square, isokern.exp):
    operator(x).numpy()
print("computed")
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the traps are those of x86-64")
def test_a_caller_that_traps_may_open_a_device(run):
    """The driver starts its threads then, and they would inherit the caller's traps."""
    status, text = run(TRAPPED, POCL_DEVICES="pthread")
    assert status == 0, text
    assert "kept" in text and "computed" in text
