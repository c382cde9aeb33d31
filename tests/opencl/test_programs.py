"""Test the cache of programs: found again, repaired where damaged, shared by processes; and failing builds."""

import copy
import os
import subprocess
import sys
from functools import partial

import pyopencl as cl
import pytest

import isokern
from isokern import InternalError
from isokern.disk_cache import DiskCache
from isokern_opencl.pocl import WITHOUT_HEADER

CODE = """
import isokern, sys
device = isokern.device("opencl:0")
assert (isokern.square([1.0, 2.0, 3.0], device=device).numpy() == [1, 4, 9]).all()
p = device.programs
print(p.hits > 0, p.misses > 0, p.disk_cache.damaged)
"""


@pytest.fixture
def run(run):
    """Return a function that runs Python code in a new process, which asks for binaries by default."""
    return partial(run, ISOKERN_OPENCL_BINARIES="1", ISOKERN_SIMT_SELFTEST="0")


@pytest.fixture
def square(run, tmp_path):
    """Return a function that gives (found, built, damaged) of a process with its own cache."""

    def start(**settings):
        status, text = run(CODE, ISOKERN_CACHE=str(tmp_path), **settings)
        assert status == 0, text
        return text.split()

    return start


@pytest.fixture(scope="module")
def whole():
    """Return a place for the cached program of `square`, as (name, content), once a test has built it."""
    return []


@pytest.fixture
def kept(square, whole, tmp_path):
    """Return the file of the program of `square` in this test's own cache; one test builds it for all."""
    if not whole:
        assert square() == BUILT
        (file,) = files(tmp_path)
        whole += [file.name, file.read_bytes()]
    folder = tmp_path / "isokern" / "opencl"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / whole[0]).write_bytes(whole[1])
    return folder / whole[0]


def files(tmp_path):
    return sorted((tmp_path / "isokern" / "opencl").iterdir())


BUILT, FOUND = ["False", "True", "0"], ["True", "False", "0"]


def test_a_program_is_found_again(square, tmp_path):
    assert square() == BUILT
    assert len(files(tmp_path)) == 1
    assert square() == FOUND
    assert len(files(tmp_path)) == 1


def test_no_binary_is_asked_for_where_none_is_wanted(square, tmp_path):
    for _ in range(2):
        assert square(ISOKERN_OPENCL_BINARIES="0") == BUILT
        assert not (tmp_path / "isokern").exists()


def test_options_and_drivers_have_programs_of_their_own(square):
    assert square() == BUILT
    assert square(POCL_DEVICES="pthread") == BUILT


@pytest.mark.quick("truncated", "one bit")
@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: b"",
        lambda kept: kept[:40],
        lambda kept: kept[:-1],
        lambda kept: os.urandom(len(kept)),
        lambda kept: kept[:100] + bytes([kept[100] ^ 1]) + kept[101:],
    ],
    ids=["empty", "truncated", "a byte short", "garbage", "one bit"],
)
def test_a_damaged_file_heals(square, kept, damage):
    kept.write_bytes(damage(kept.read_bytes()))
    assert square() == ["False", "True", "1"]
    assert square() == FOUND


def test_the_program_of_another_key_or_device_heals(square, kept):
    """One file is intact under a wrong name; another is intact, but the driver refuses its content."""
    other = DiskCache(kept.parent)
    other.put("other", other.get(kept.name))
    os.replace(kept.parent / "other", kept)
    assert square() == ["False", "True", "1"]
    other.put(kept.name, b"poclbin of some other device, which no driver would take for its own")
    assert square() == ["False", "True", "1"]
    assert square() == FOUND


def test_a_folder_in_a_files_place(square, kept, tmp_path):
    kept.unlink()
    kept.mkdir()
    assert square() == ["False", "True", "1"]
    assert len(files(tmp_path)) == 1, "a file is left behind"


def test_a_cache_that_cannot_be_written(run, tmp_path):
    (tmp_path / "isokern").write_text("a file where the folder should be")
    status, text = run(CODE, ISOKERN_CACHE=str(tmp_path))
    assert (status, text.split()[:2]) == (0, BUILT[:2]), text


def test_a_cache_that_others_can_write_to(kept, run, tmp_path):
    """Nothing in such a cache is executed, whoever owns it, and nothing is added."""
    tmp_path.chmod(0o777)
    before = kept.stat().st_mtime_ns
    status, text = run(CODE, ISOKERN_CACHE=str(tmp_path))
    assert (status, text.split()[:3]) == (0, BUILT), text
    assert text.count("RuntimeWarning") == 1
    assert f"nothing is kept in {kept.parent}: others can write to {tmp_path} (mode 0777)" in text
    assert files(tmp_path) == [kept]
    assert kept.stat().st_mtime_ns == before


def test_many_processes_at_once(tmp_path):
    settings = {"ISOKERN_OPENCL_BINARIES": "1", "ISOKERN_OPENCL_DEVICES": "pocl", "POCL_DEVICES": "basic"}
    given = {**os.environ, **settings, "ISOKERN_CACHE": str(tmp_path)}
    crowd = [
        subprocess.Popen([sys.executable, "-c", CODE], env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in crowd:
        output, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
        assert output.split()[-1] == b"0"
    assert all(f.name.isalnum() for f in files(tmp_path))


def test_the_counts_are_shown(run, tmp_path):
    _, text = run(CODE, ISOKERN_CACHE=str(tmp_path), ISOKERN_DEBUG="1")
    assert "built in" in text
    assert "programs: 0 found, 1 built, 0 damaged" in text
    assert "IK_ENTRY" not in text
    _, text = run(CODE, ISOKERN_CACHE=str(tmp_path), ISOKERN_DEBUG="4")
    assert "programs: 1 found, 0 built, 0 damaged" in text
    assert "isokern: source of elementwise\n" in text and "IK_ENTRY(elementwise)" in text


@pytest.fixture
def broken(device, tmp_path, monkeypatch):
    """Make a kernel with an error in line 9 of its file the only variant of its stem."""
    from isokern.simt import Folder

    lines = [
        "/* Broken. */",
        "/* launch",
        " * broken(items=1)",
        " */",
        '#include "simt.h"',
        "IK_ENTRY(broken)(IK_PARAMS)",
    ]
    lines += ["{", "    const ik_index i = IK_ITEM;", "    y[i] = no_such_name;", "}"]
    (tmp_path / "rms_norm.c").write_text("\n".join([*lines, ""]))
    folder = Folder("broken", 99, tmp_path)
    monkeypatch.setattr(device, "folders", (folder,))
    monkeypatch.setattr(device, "_variants", {})
    return folder


def test_a_build_failure_shows_the_log_with_the_kernels_lines(device, broken):
    left = {f for f in os.listdir("/tmp") if f.endswith(".cl")}
    with pytest.raises(InternalError, match=r"cannot build broken of rms_norm.c(.|\n)*rms_norm.c:9(.|\n)*no_such_name"):
        isokern.create("rms_norm", [isokern.TensorDesc("F32", (2, 8))], device=device)
    assert {f for f in os.listdir("/tmp") if f.endswith(".cl")} <= left


def test_a_variant_that_does_not_build_is_disabled_loudly(device, broken, monkeypatch):
    from isokern.simt.device import PORTABLE

    monkeypatch.setattr(device, "folders", (broken, PORTABLE))
    with pytest.warns(RuntimeWarning, match=r"variant broken of rms_norm is disabled for F16.*cannot build"):
        made = isokern.create("rms_norm", [isokern.TensorDesc("F16", (2, 8))], device=device)
    assert made.variant == "portable"
    assert "cannot build" in made.why()[0].reason
    device.selftests.wrong.clear()


def test_a_program_that_needs_the_header_of_the_driver_gets_it(device):
    """The session's device keeps its options, so later tests are not affected."""
    programs = copy.copy(device.programs)
    source = "__kernel void f(__global float *x) { x[0] = hypot(x[1], x[2]); }"
    with pytest.raises(cl.Error, match="hypot"):
        cl.Program(device.context, source).build(programs.options, cache_dir=False)
    with pytest.warns(RuntimeWarning, match=r"built with the driver's header.*error:.*hypot"):
        programs._compile(source)
    assert [*programs.options, WITHOUT_HEADER] == device.programs.options


def test_a_program_that_is_wrong_leaves_the_options_alone(device):
    programs = copy.copy(device.programs)
    with pytest.raises(cl.Error, match="no_such_name"):
        programs._compile("__kernel void f(__global float *x) { x[0] = no_such_name; }")
    assert WITHOUT_HEADER in programs.options


def test_short_memory_at_a_build(device, monkeypatch):
    class Short(cl.Error):
        code = cl.status_code.OUT_OF_HOST_MEMORY

    class Full:
        def __init__(self, *arguments):
            pass

        def build(self, *arguments, **options):
            raise Short("no room")

    monkeypatch.setattr(cl, "Program", Full)
    monkeypatch.setenv("ISOKERN_SIMT_SELFTEST", "0")
    with pytest.raises(isokern.OutOfMemory, match="no room"):
        isokern.create("tanh", [isokern.TensorDesc("F64", (3,))], device=device)
