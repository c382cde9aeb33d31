"""Test `isokern-xpu`: an author's own kernel on .npy files, and the vendor's build."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from isokern.cli._own_kernels import parse_argument
from isokern.status import InvalidArgument
from isokern_kunlun_sim.cli import app
from isokern_kunlun_sim.compiling import compiler

AXPY = """#include "xpu/kernel/xtdk.h"
__global__ void axpy(int n, float a, __global_ptr__ const float *x, __global_ptr__ float *y)
{
    __local__ float lx[256];
    __local__ float ly[256];
    const int first = (core_num() * cluster_id() + core_id()) * 256, step = core_num() * cluster_num() * 256;
    for (int at = first; at < n; at += step) {
        const int m = n - at < 256 ? n - at : 256;
        GM2LM_ASYNC(x + at, lx, m * 4);
        GM2LM_ASYNC(y + at, ly, m * 4);
        mfence();
        for (int i = 0; i < m; i++)
            ly[i] += a * lx[i];
        mfence_lm();
        LM2GM(ly, y + at, m * 4);
    }
}
"""

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a new folder with a kernel and arrays, and with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISOKERN_CACHE", raising=False)  # tox sets it, and it takes precedence
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ISOKERN_XPU_CHECK", "0")  # the command sets it: restored after the test
    monkeypatch.setenv("ISOKERN_XPU_SEED", "0")
    monkeypatch.setenv("ISOKERN_XPU_FIX_MFENCE", "none")
    (tmp_path / "axpy.xpu").write_text(AXPY)
    np.save("x.npy", np.arange(5000, dtype=np.float32))
    np.save("y.npy", np.ones(5000, np.float32))
    np.save("wide.npy", np.ones(5000))
    return tmp_path


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a kernel, and with a cache of what is built from it."""
    made = tmp_path_factory.mktemp("shared")
    (made / "axpy.xpu").write_text(AXPY)
    return made


@pytest.fixture
def built(folder: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a new folder as above, whose kernel is compiled once for all tests: they do not write to it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    (folder / "axpy.xpu").unlink()
    (folder / "axpy.xpu").symlink_to(shared / "axpy.xpu")  # what is built depends on where the source is
    return folder


def xpu(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(python: Command) -> Command:
    """Return a function that runs the command in a process of its own."""
    return functools.partial(python, "from isokern_kunlun_sim.cli import app; app()")


@needs_compiler
@pytest.mark.parametrize("mode", ["--fast", "--check"])
@pytest.mark.parametrize("size", [["--clusters", "1", "--cores", "1"], []])
def test_a_kernel_runs_on_arrays(built: Path, mode: str, size: list[str]) -> None:
    done = xpu("run", mode, *size, "axpy.xpu", "5000", "2.0", "x.npy", "y.npy:out.npy")
    assert done.exit_code == 0, done.output
    assert "out.npy: float32[5000]" in done.stdout
    assert np.array_equal(np.load("out.npy"), 1 + 2 * np.arange(5000, dtype=np.float32))


@needs_compiler
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["axpy.xpu", "5000", "2.0", "x.npy"], "the kernel takes 4"),
        (["axpy.xpu", "x.npy", "2.0", "x.npy", "y.npy"], "argument 1, x.npy"),
        (["axpy.xpu", "5000", "2", "wide.npy", "y.npy"], "argument 3, wide.npy; allowed: an array of float32"),
        (["axpy.xpu", "5000", "2", "x.npy", "int32[5000]:out.npy"], "out.npy; allowed: an array of float32"),
        (["axpy.xpu", "5000.5", "2.0", "x.npy", "y.npy"], "argument 1, 5000.5"),
        (["axpy.xpu", "1", "2", "gone.npy", "y.npy"], "gone.npy"),
        (["axpy.xpu", "5000000000", "2", "x.npy", "y.npy"], "5000000000; allowed: a whole number that"),
        (["axpy.xpu", "9" * 400, "2", "x.npy", "y.npy"], "999; allowed: a whole number that"),
        (["axpy.xpu", "1", "2", "3", "y.npy"], "argument 3, 3; allowed: an array"),
        (["axpy.xpu", "1", "x.npy", "x.npy", "y.npy"], "argument 2, x.npy; allowed: a number"),
    ],
)
def test_wrong_arguments_are_told(built: Path, arguments: list[str], said: str) -> None:
    done = xpu("run", "--fast", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


@needs_compiler
def test_a_launch_that_the_runtime_refuses_is_exit_1(built: Path) -> None:
    done = xpu("run", "--fast", "--clusters", "256", "axpy.xpu", "5000", "2.0", "x.npy", "y.npy")
    assert done.exit_code == 1
    assert "707" in done.stderr


@needs_compiler
def test_a_compile_error_has_the_authors_line(folder: Path) -> None:
    (folder / "bad.xpu").write_text(AXPY.replace("ly[i] += a", "ly[i] += b"))
    done = xpu("run", "--fast", "bad.xpu", "5000", "2.0", "x.npy", "y.npy")
    assert done.exit_code == 2
    assert "bad.xpu:13:" in done.stderr
    (folder / "long.xpu").write_text(AXPY.replace("int n, float a", "long n, float a"))
    done = xpu("run", "--fast", "long.xpu", "5000", "2.0", "x.npy", "y.npy")
    assert "has 32 bits on the device" in done.stderr


@needs_compiler
def test_a_file_is_taken_as_editors_leave_it(folder: Path) -> None:
    text = f"// caf\u00e9, formerly __global__ void gone()\n{AXPY}".replace("\n", "\r\n")
    for name, encoding in {"latin.xpu": "latin-1", "marked.xpu": "utf-8-sig"}.items():
        (folder / name).write_bytes(text.encode(encoding))
        done = xpu("run", "--fast", name, "5000", "2.0", "x.npy", "y.npy")
        assert done.exit_code == 0, done.output
        (folder / name).write_bytes(text.replace("ly[i] += a", "ly[i] += b; // \u00e9").encode(encoding))
        assert f"{name}:14:" in xpu("run", "--fast", name, "5000", "2.0", "x.npy", "y.npy").stderr


@needs_compiler
def test_a_changed_header_is_seen(folder: Path) -> None:
    (folder / "k.xpu").write_text(
        '#include "xpu/kernel/xtdk.h"\n#include "the value.h"\n'
        "__global__ void k(__global_ptr__ int *out) { *out = VALUE; }\n"
    )
    for value in (3, 4):
        (folder / "the value.h").write_text(f"#define VALUE {value}\n")
        done = xpu("run", "--fast", "--clusters", "1", "--cores", "1", "k.xpu", "int32[1]:out.npy")
        assert done.exit_code == 0, done.output
        assert np.load("out.npy") == value


@needs_compiler
def test_a_cache_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOKERN_CACHE", str(folder / "x.npy"))
    done = xpu("run", "--fast", "axpy.xpu", "5000", "2.0", "x.npy", "y.npy:out.npy")
    assert done.exit_code == 0, done.output
    assert np.array_equal(np.load("out.npy"), 1 + 2 * np.arange(5000, dtype=np.float32))


def axpy_there(command: Command, mode: str, status: int = 0) -> tuple[bool, str]:
    """Return whether a process of its own computes the right numbers, and its messages."""
    Path("out.npy").unlink(missing_ok=True)
    done = command("run", mode, "axpy.xpu", "5000", "2.0", "x.npy", "y.npy:out.npy")
    assert done.returncode == status, done.stderr
    right = 1 + 2 * np.arange(5000, dtype=np.float32)
    return status == 0 and np.array_equal(np.load("out.npy"), right), done.stderr


@pytest.mark.quick("--check")
@needs_compiler
@pytest.mark.parametrize("mode", ["--fast", "--check"])
def test_a_kept_library_that_is_not_what_was_built_is_built_again(folder: Path, command: Command, mode: str) -> None:
    """The library is once truncated and once replaced by one that computes something else."""
    assert axpy_there(command, mode)[0]
    (kept,) = (folder / "cache" / "isokern" / "xpu").glob("axpy-*.so")
    whole = kept.read_bytes()
    (folder / "axpy.xpu").write_text(AXPY.replace("+=", "="))
    assert not axpy_there(command, mode)[0]
    (other,) = set(kept.parent.glob("axpy-*.so")) - {kept}
    (folder / "axpy.xpu").write_text(AXPY)
    for content in (whole[:1000], other.read_bytes()):
        kept.write_bytes(content)
        assert axpy_there(command, mode)[0]
        assert len(kept.read_bytes()) == len(whole)
    if mode == "--check":
        listed = Path(f"{kept}.lines")
        lines = listed.read_bytes()
        listed.write_text("F another.xpu\nL 0 0 1\n")
        assert axpy_there(command, mode)[0]
        assert listed.read_bytes() == lines


@needs_compiler
def test_a_library_in_a_folder_that_others_can_write_to_is_not_run(folder: Path, command: Command) -> None:
    assert axpy_there(command, "--fast")[0]
    (kept,) = (folder / "cache" / "isokern" / "xpu").iterdir()
    for mode in (0o777, 0o1777):
        (folder / "cache").chmod(mode)
        before = kept.stat().st_mtime_ns
        right, said = axpy_there(command, "--fast")
        assert right
        assert f"nothing is kept in {kept.parent}: others can write to {folder / 'cache'} (mode {mode:04o})" in said
        assert [f.stat().st_mtime_ns for f in kept.parent.iterdir()] == [before]


@needs_compiler
def test_a_finding_has_its_line_where_nothing_can_be_kept(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "axpy.xpu").write_text(AXPY.replace("        mfence();\n", "", 1))
    for cache in ("cache", "x.npy"):
        monkeypatch.setenv("ISOKERN_CACHE", str(folder / cache))
        assert "axpy.xpu:12" in axpy_there(command, "--check", status=1)[1]


@pytest.mark.quick("--check")
@needs_compiler
@pytest.mark.parametrize("mode", ["--fast", "--check"])
def test_the_compilers_warnings_are_shown(folder: Path, mode: str) -> None:
    (folder / "w.xpu").write_text('#include "xpu/kernel/xtdk.h"\n__global__ void k(int *y, int n) { y[0] = 1; }\n')
    assert re.search(r"w\.xpu:2:.*-Wunused-parameter", xpu("run", mode, "w.xpu", "int32[1]:y.npy", "1").stderr)


@needs_compiler
def test_the_kernel_of_a_file_is_named_where_it_has_several_or_none(folder: Path) -> None:
    def said(text: str, *options: str) -> str:
        (folder / "k.xpu").write_text(f'#include "xpu/kernel/xtdk.h"\n{text}\n')
        return " ".join(xpu("run", "--fast", *options, "k.xpu").stderr.split())

    assert "k.xpu has no kernel; allowed: a file with `__global__ void NAME" in said("int x;")
    two = "__global__ void a() {}\n__global__ void b() {}"
    assert "k.xpu has 2 kernels: a, b; add --kernel NAME" in said(two)
    assert said(two, "--kernel", "b") == ""
    assert "--kernel c; allowed: k.xpu has 2 kernels: a, b" in said(two, "--kernel", "c")
    assert "--kernel a; x; allowed: a name" in said(two, "--kernel", "a; x")
    template = "template <class T> __global__ void t() {}"
    assert said(template, "--kernel", "t<float>") == ""
    assert "t is a template; add its arguments: --kernel 't<float>'" in said(template)


@needs_compiler
def test_a_kernel_is_found_in_namespaces_headers_and_macros(folder: Path) -> None:
    """The kernel is a header's, and a macro names it; its host function launches another one in lines of a macro."""
    (folder / "k.h").write_text(
        "#define KERNEL(name) __global__ void name(__global_ptr__ int *out)\n"
        "namespace one::two { KERNEL(count) { *out = 5; } }\n"
        "template <int N> __global__ void other(__global_ptr__ int *out) { *out = N; }\n"
        "#define LAUNCH(N)          \\\n"
        "    other<N>               \\\n"
        "        <<<1, 1, stream>>>(\\\n"
        "            out);\n"
        "inline void host(XPUStream stream, int *out) {\n"
        "    LAUNCH(7)\n"
        "    LAUNCH(8)\n"
        "}\n"
    )
    (folder / "k.xpu").write_text('#include "xpu/kernel/xtdk.h"\n#include "xpu/runtime.h"\n#include "k.h"\n')
    for options, value in (
        (["--kernel", "count"], 5),
        (["--kernel", "one::two::count"], 5),
        (["--kernel", "other<7>"], 7),
    ):
        done = xpu("run", "--fast", "--clusters", "1", "--cores", "1", *options, "k.xpu", "int32[1]:out.npy")
        assert done.exit_code == 0, done.output
        assert np.load("out.npy") == value
    text = (folder / "k.xpu").read_text()
    (folder / "k.xpu").write_text(text + "namespace { __global__ void count(__global_ptr__ int *out) { *out = 6; } }\n")
    done = xpu("run", "--fast", "--clusters", "1", "--cores", "1", "--kernel", "count", "k.xpu", "int32[1]:out.npy")
    assert done.exit_code == 0, done.output  # the name as it was given goes before those with namespaces
    assert np.load("out.npy") == 6


@pytest.mark.quick("--fast")
@needs_compiler
@pytest.mark.parametrize("mode", ["--fast", "--check"])
def test_functions_of_the_host_that_need_other_libraries_are_left_out(folder: Path, mode: str) -> None:
    (folder / "k.xpu").write_text(
        '#include "xpu/xdnn.h"\n' + AXPY + "struct Base { virtual ~Base(); };\n"
        "struct Host : Base { std::function<int(baidu::xpu::api::Context *)> call; int elsewhere(); };\n"
        "int host(Host *h, float *x) { axpy<<<1, 64>>>(1, 2, x, x); return h->elsewhere() + h->call(nullptr); }\n"
    )
    done = xpu("run", mode, "k.xpu", "5000", "2.0", "x.npy", "y.npy:out.npy")
    assert done.exit_code == 0, done.output
    assert np.array_equal(np.load("out.npy"), 1 + 2 * np.arange(5000, dtype=np.float32))


@pytest.mark.quick("given", "ns::count")
@needs_compiler
@pytest.mark.parametrize("name", ["count", "given", "stream", "index", "ns::count"])
def test_a_kernel_may_have_any_name(folder: Path, name: str) -> None:
    short = name.rpartition("::")[2]
    kernel = f"__global__ void {short}(__global_ptr__ int *out) {{ *out = 5; }}\n"
    space = ("namespace ns {\n", "}\n") if "::" in name else ("", "")
    text = f'#include <algorithm>\n#include "xpu/kernel/xtdk.h"\nusing namespace std;\n{kernel.join(space)}'
    (folder / "k.xpu").write_text(text)
    size = ("--clusters", "1", "--cores", "1")
    done = xpu("run", "--fast", *size, "--kernel", name, "k.xpu", "int32[1]:out.npy")
    assert done.exit_code == 0, done.output
    assert np.load("out.npy") == 5


@needs_compiler
def test_ctrl_c_ends_a_kernel_that_does_not_end(folder: Path) -> None:
    (folder / "spin.xpu").write_text(
        '#include "xpu/kernel/xtdk.h"\n__global__ void k(__global_ptr__ int *out) { for (;;) {} }\n'
    )
    assert xpu("run", "--fast", "spin.xpu").exit_code == 2  # builds the library
    command = [sys.executable, "-c", "from isokern_kunlun_sim.cli import app; app()"]
    environment = {**os.environ, "ISOKERN_XPU_TIMEOUT_MS": "100000"}
    with subprocess.Popen([*command, "run", "--fast", "spin.xpu", "null"], env=environment) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        while process.poll() is None and "/spin-" not in maps.read_text():  # until the kernel's library is loaded
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(10) == -signal.SIGINT
        finally:
            process.kill()


@needs_compiler  # else an earlier error says that the plug-in was built without a compiler
def test_a_compiler_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    done = xpu("run", "--fast", "axpy.xpu", "5000", "2.0", "x.npy", "y.npy")
    assert done.exit_code == 2
    assert "/nowhere/g++: No such file or directory; g++, or the one compiler that CXX names" in done.stderr


def test_a_plugin_that_was_built_without_a_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++")
    monkeypatch.setattr(sys.modules["isokern_kunlun_sim.cli.run"], "EMULATOR", folder / "libxpurt.so")
    done = xpu("run", "--fast", "axpy.xpu", "5000", "2.0", "x.npy", "y.npy")
    assert done.exit_code == 2
    assert "the plug-in was built without a C++ compiler; install isokern-kunlun-sim again" in done.stderr


def test_arguments_are_numbers_and_arrays(folder: Path) -> None:
    assert parse_argument("3").number == 3
    assert parse_argument("-2.5").number == -2.5
    assert parse_argument("x.npy").written
    assert parse_argument("x.npy:z.npy").save == "z.npy"
    made = parse_argument("float16[8,4]:z.npy")
    assert made.array is not None
    assert (made.array.shape, made.array.dtype, made.written) == ((8, 4), np.float16, False)
    zeros = parse_argument("zeros:BF16[3]")
    assert zeros.array is not None
    assert (zeros.array.tolist(), zeros.array.dtype, zeros.written) == ([0, 0, 0], np.uint16, True)
    np.save("scalar.npy", np.float32(3))
    assert np.shape(parse_argument("scalar.npy").array) == ()
    np.save("objects.npy", np.array([None]))
    np.save("swapped.npy", np.ones(3, ">f4"))
    np.savez("several.npz", a=np.ones(3))
    (folder / "empty.npy").touch()
    saved = ("x.npy:", "x.npy:out", "x.npy:/nowhere/out.npy")
    loaded = ("objects.npy", "swapped.npy", "several.npz", "empty.npy")
    for wrong in ("float99[8]", "zeros:x.npy", "object[8]", f"float32[{1 << 50}]", "gone", "x.txt", *loaded, *saved):
        with pytest.raises(InvalidArgument, match="allowed"):
            parse_argument(wrong)


TWO = """#include "xpu/kernel/xtdk.h"
#include "scale.h"
__global__ void partial(__global_ptr__ const float *x, __global_ptr__ float *part, int n)
{
    float sum = 0;
    const int flat = core_num() * cluster_id() + core_id();
    for (int i = flat; i < n; i += core_num() * cluster_num())
        sum += x[i];
    part[flat] = SCALE * sum + MORE;
}
__global__ void total(__global_ptr__ const float *part, __global_ptr__ float *out, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += part[i];
    *out = sum;
}
"""


@needs_compiler
def test_success_says_what_ran(built: Path) -> None:
    done = xpu("run", "axpy.xpu", "5000", "2.0", "x.npy", "y.npy:out.npy")
    assert done.exit_code == 0, done.output
    assert "axpy<<<12, 64>>>: 20 of 768 cores worked; 60 copies read 40,000 bytes and wrote 20,000" in done.stdout
    assert "findings: none, with seeds 0 to 3" in done.stdout
    assert "findings: none, with seed 7" in xpu("run", "--seed", "7", "axpy.xpu", "10", "2.0", "x.npy", "y.npy").stdout
    fast = xpu("run", "--fast", "axpy.xpu", "5000", "2.0", "x.npy", "y.npy")
    assert "axpy<<<12, 64>>> ran; fast mode checks nothing" in fast.stdout
    (built / "note.xpu").write_text(AXPY.replace("        mfence_lm();\n", ""))
    assert "findings: 1 note, with seeds 0 to 3" in xpu("run", "note.xpu", "9", "2.0", "x.npy", "y.npy").stdout


@pytest.mark.quick("--check")
@needs_compiler
@pytest.mark.parametrize("mode", ["--fast", "--check"])
def test_several_launches_on_named_arrays(folder: Path, mode: str) -> None:
    (folder / "two.xpu").write_text(TWO)
    (folder / "include").mkdir()
    (folder / "include" / "scale.h").write_text("#define SCALE 2\n")
    options = ["-DMORE=1", "-I", "include", "--kernel", "partial", "--clusters", "2"]
    second = ["then", "total<<<1,1>>>", "part", "float32[1]:sum.npy", "128"]
    done = xpu("run", mode, *options, "two.xpu", "x.npy", "part=float32[128]", "500", *second)
    assert done.exit_code == 0, done.output
    assert np.load("sum.npy") == 2 * np.arange(500).sum() + 128
    assert re.search(r"partial<<<2, 64>>>.*\ntotal<<<1, 1>>>", done.stdout)
    (folder / "include" / "scale.h").write_text("#define SCALE 3\n")  # is compiled again
    assert xpu("run", mode, *options, "two.xpu", "x.npy", "part=float32[128]", "500", *second).exit_code == 0
    assert np.load("sum.npy") == 3 * np.arange(500).sum() + 128


@needs_compiler
def test_one_array_for_two_parameters(built: Path) -> None:
    one = ["--clusters", "1", "--cores", "1"]  # others would read what this one writes
    done = xpu("run", *one, "axpy.xpu", "256", "2.0", "both=x.npy:out.npy", "both")
    assert done.exit_code == 0, done.output
    assert np.array_equal(np.load("out.npy")[:256], 3 * np.arange(256, dtype=np.float32))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["5", "2", "x.npy", "y.npy", "then"], "nothing behind 'then'; allowed: the name of the kernel"),
        (["5", "2", "a=x.npy", "a=y.npy"], "there is an array a already"),
        (["a=5", "2", "x.npy", "y.npy"], "'a=5' names a number"),
        (["5", "2", "x.npy", "b"], "argument 'b'"),
        (["-I", "gone", "5", "2", "x.npy", "y.npy"], "-I gone: the folder does not exist"),
        (["-D", "1=2", "5", "2", "x.npy", "y.npy"], "-D 1=2; allowed: NAME or NAME=VALUE"),
        (["5", "2", "x.npy", "y.npy", "then", "a; b"], "--kernel a; b; allowed: a name"),
    ],
)
@needs_compiler
def test_wrong_launches_are_told(built: Path, arguments: list[str], said: str) -> None:
    done = xpu("run", "--fast", "axpy.xpu", *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


LATE = """#include "xpu/kernel/xtdk.h"
#include "xpu/kernel/xtdk_atomic_sm_xpu3.h"
__global__ void late(__global_ptr__ float *out)
{
    __shared__ float value;
    if (core_id() == 1)
        value = 1; // before core 0 has the lock, or behind it
    ticket_lock_mix();
    mfence_sm();
    ticket_unlock_mix();
    if (core_id() == 0)
        out[cluster_id()] = value;
}
"""


@needs_compiler
def test_a_fault_that_one_schedule_hides_is_found_by_the_next(folder: Path, command: Command) -> None:
    (folder / "late.xpu").write_text(LATE)

    def tried(*options: str) -> subprocess.CompletedProcess[str]:
        return command("run", "late.xpu", *options, "--clusters", "1", "--cores", "2", "float32[1]:out.npy")

    assert tried("--seed", "1").returncode == 0
    swept = tried("--seed", "1", "--seeds", "20")
    assert swept.returncode == 1
    found = re.search(r"This is the schedule of --seed (\d+)", swept.stderr)
    assert found and found[1] != "1" and "late.xpu:12" in swept.stderr
    again = tried("--seed", found[1])
    assert again.returncode == 1
    assert "late.xpu:12" in again.stderr
    assert tried().returncode == 1


@needs_compiler
def test_results_that_depend_on_the_schedule_are_told(folder: Path) -> None:
    (folder / "order.xpu").write_text("""#include "xpu/kernel/xtdk.h"
#include "xpu/kernel/xtdk_atomic_sm_xpu3.h"
__global__ void order(__global_ptr__ float *out)
{
    __shared__ float sum;
    if (core_id() == 0) {
        sum = 0;
        mfence_sm();
    }
    sync_cluster();
    atomicadd(&sum, (core_id() + 1) * 0.1f);
    sync_cluster();
    out[cluster_id()] = sum;
}
""")
    done = xpu("run", "--clusters", "1", "order.xpu", "float32[1]:out.npy")
    assert done.exit_code == 0, done.output
    assert "out.npy differs between the schedules of --seed 0 and " in done.stdout


HOST = """#include <cstdio>
#include <cstdlib>
#include <vector>
#include "xpu/kernel/xtdk.h"
#include "xpu/runtime.h"
__global__ void twice(__global_ptr__ float *x, int n)
{
    for (int i = core_id(); i < n; i += core_num())
        x[i] = 2 * x[i];
}
int main(int argc, char **argv)
{
    float *device;
    std::vector<float> x(1000, std::atof(argv[1]));
    xpu_malloc((void **)&device, 4000);
    xpu_memcpy(device, x.data(), 4000, XPU_HOST_TO_DEVICE);
    XPUStream stream;
    xpu_stream_create(&stream);
    twice<<<1, 64, stream>>>(device, 1000);
    if (argc == 2)
        xpu_wait(stream);
    twice<<<1, 64>>>(device, 1000);
    xpu_wait(stream);
    xpu_wait();
    xpu_memcpy(x.data(), device, 4000, XPU_DEVICE_TO_HOST);
    std::printf("%g\\n", x[999]);
    return x[999] == 12 ? 0 : 3;
}
"""


@needs_compiler
def test_a_host_program_runs(folder: Path, command: Command) -> None:
    (folder / "host.xpu").write_text(HOST)
    tried = functools.partial(command, "run", "host.xpu")
    done = tried("3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "12"
    assert done.stdout.count("12\n") == 1
    assert re.search(r"^twice<<<1, 64>>>: 64 of 64 cores worked; .* \(2 times\)$", done.stdout, re.M)
    assert "main returned 0; findings: none, with seeds 0 to 3" in done.stdout
    done = tried("3", "without a wait")
    assert done.returncode == 1
    assert "race-streams in twice" in done.stderr and "host.xpu:9" in done.stderr
    done = tried("--fast", "4")
    assert (done.returncode, done.stdout) == (1, "16\n")
    assert "main: returned 3" in done.stderr
    assert "main returned 0; fast mode checks nothing" in tried("--fast", "3").stdout


@needs_compiler
def test_a_file_is_profiled(built: Path, command: Command) -> None:
    tried = functools.partial(command, "profile", "axpy.xpu")
    given = ["5000", "-2.5", "x.npy", "y.npy"]
    shown = tried(*given).stdout
    assert re.search(r"launches +copies +bytes\s+\S+\s+1 +60 +60000\b", shown)
    assert re.search(r"[\d.]+ ms on the emulator in fast mode", shown)
    (launch,) = json.loads(tried("--json", "--clusters", "1", *given).stdout)
    assert (launch["kernel"], launch["clusters"], launch["copies"]["LM2GM"]["bytes"]) == ("axpy", 1, 20000)
    assert "gone.xpu is no file" in command("profile", "gone.xpu").stderr


@needs_compiler
def test_a_negative_number_is_an_argument(built: Path) -> None:
    done = xpu("run", "--fast", "--clusters", "1", "axpy.xpu", "5000", "-2.5", "x.npy", "y.npy:out.npy")
    assert done.exit_code == 0, done.output
    assert np.array_equal(np.load("out.npy"), 1 - 2.5 * np.arange(5000, dtype=np.float32))


def test_without_the_vendors_compiler_build_prints_what_it_would_run(tmp_path: Path) -> None:
    done = xpu("build", "--xtdk", str(tmp_path), "--work", str(tmp_path / "objects"), "--xre", "/xre")
    assert done.exit_code == 3
    commands = done.stdout.splitlines()
    assert all(c.startswith(f"{tmp_path}/bin/clang++ ") for c in commands)
    assert any("elementwise.xpu" in c and "--xpu-arch=xpu3" in c for c in commands)
    assert "-lxpurt" in commands[-1]
    assert all(Path(c.split(" -c ")[1].split()[0]).exists() for c in commands[:-1])
    assert all("-I/xre/include" in c for c in commands[:-1])
    assert "never run on a card" in done.stderr


def test_with_a_compiler_build_runs_it(tmp_path: Path) -> None:
    clang = tmp_path / "bin" / "clang++"
    clang.parent.mkdir()
    clang.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && touch "$2"; shift; done\n')
    clang.chmod(0o755)
    done = xpu(
        "build",
        "--xtdk",
        str(tmp_path),
        "--arch",
        "xpu2",
        "--work",
        str(tmp_path),
        "--output",
        str(tmp_path / "made.so"),
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "made.so").exists()
    assert "--xpu-arch=xpu2" in done.stdout
    clang.write_text("#!/bin/sh\nexit 7\n")
    assert (
        xpu("build", "--xtdk", str(tmp_path), "--work", str(tmp_path), "--output", str(tmp_path / "made.so")).exit_code
        == 7
    )
    clang.write_text("")
    done = xpu("build", "--xtdk", str(tmp_path), "--work", str(tmp_path), "--output", str(tmp_path / "made.so"))
    assert done.exit_code == 2
    assert "Exec format error" in done.stderr


def test_build_prints_the_commands_for_ones_own_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUNLUN_HOME", raising=False)
    done = xpu("build", "axpy.xpu", "-D", "N=1", "--fix-mfence", "all")
    assert done.exit_code == 3
    compiled, linked = done.stdout.splitlines()
    assert "--xpu-arch=xpu3" in compiled and "-mllvm -fix-mfence=all" in compiled and "-DN=1" in compiled
    assert compiled.endswith("-c axpy.xpu -o isokern-xtdk/axpy.o") and linked.endswith("-lxpurt -o libaxpy.so")
    assert "xtdk/bin/clang++ is not there. Name its folder with --xtdk, or in KUNLUN_HOME." in done.stderr
    assert not Path("isokern-xtdk").exists()


def test_build_runs_the_vendors_compiler_on_ones_own_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = folder / "home" / "xtdk" / "bin" / "clang++"
    clang.parent.mkdir(parents=True)
    clang.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && touch "$2"; shift; done\n')
    clang.chmod(0o755)
    (folder / "host.cpp").write_text("int main() { return 0; }\n")
    monkeypatch.setenv("KUNLUN_HOME", str(folder / "home"))
    done = xpu("build", "axpy.xpu", "host.cpp", "--arch", "xpu2")
    assert done.exit_code == 0, done.output
    kernel, host, linked, _ = done.stdout.splitlines()
    assert "--xpu-arch=xpu2" in kernel and "xpu2" not in host and f"-I{folder}/home/xre/include" in host
    assert "-shared" not in linked and f"-L{folder}/home/xre/so" in linked
    assert Path("axpy").exists() and Path("isokern-xtdk/host.o").exists()


PROFILED = """
import json, sys
from isokern_kunlun_sim.cli.profile import measure
print(json.dumps([launch.document() for x in sys.argv[1:] for launch in measure("copy", [x], None)]))
"""


@pytest.mark.quick("KUNLUN3 of 3 clusters")
@needs_compiler
@pytest.mark.parametrize("model", ["KUNLUN2", "KUNLUN3", "KUNLUN3 of 3 clusters"])
def test_rows_are_moved_by_no_more_copies_than_their_bytes_need(python: Command, model: str) -> None:
    """Each direction takes ⌈row bytes / 2,048⌉ copies per row at most.

    It is fewer where a core has several chunks of a row, and one per core where rows are split so that more cores work.
    Each working core also fetches shape and strides.
    """
    environment = {**os.environ, "XPUSIM_DEVICE_MODEL": model.split()[0]}
    if "3 clusters" in model:
        environment["XPU_NUM_CLUSTER"] = "3"
    bounds = {16: 1, 64: 1, 4096: 8}  # floats of a row: copies
    done = python(PROFILED, *(f"x=F32[96,{row}]:{row + 8},1" for row in bounds), environment=environment)
    assert done.returncode == 0, done.stderr
    for launch, (row, bound) in zip(json.loads(done.stdout), bounds.items(), strict=True):
        copies = {d: c["copies"] for d, c in launch["copies"].items()}
        working = launch["busy_cores"]
        assert copies["GM2LM"] - working <= 96 * bound + working
        assert copies["LM2GM"] <= max(96 * bound, working)
        assert working >= min(launch["device_cores"], 96 * row // 16)
        assert launch["copies"]["LM2GM"]["bytes"] == 96 * row * 4


@needs_compiler
def test_profile_prints_tables_and_json(command: Command) -> None:
    tried = functools.partial(command, "profile", "softmax", "x=F32[8,1000]")
    shown = tried().stdout
    assert "softmax<<<" in shown
    assert "bytes a 64-byte line" in shown
    assert re.search(r"launches +copies +bytes\s+\S+\s+1 +16 +64000\b", shown)
    assert re.search(r"cores busy +8 of 768\b", shown)
    printed = json.loads(tried("--json").stdout)
    assert (printed[0]["busy_cores"], printed[0]["device_cores"]) == (8, 768)
    assert printed[0]["scalar_loads"] > 8 * 1000 < printed[0]["scalar_stores"]
    assert {c["mean_burst"] for c in printed[0]["copies"].values()} == {4000}
    refused = tried("--picture", "x.pdf")
    assert refused.returncode == 2
    assert ".png or .svg" in refused.stderr
