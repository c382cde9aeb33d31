"""Test that the examples build, run and print what they promise."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import isokern

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


HOSTS = {"cpu": "isokern_cpu", "kunlun_sim": "isokern_kunlun_sim"}  # backends that a host without Python can use


@pytest.fixture(scope="module", params=HOSTS)
def backend(request):
    pytest.importorskip(HOSTS[request.param], reason=f"the {request.param} backend is not installed")
    if request.param not in {d.name.split(":")[0] for d in isokern.devices()}:
        pytest.skip(f"{request.param} is not available")
    return request.param


@pytest.fixture(scope="module", params=["c", "cpp"])
def host(request, backend, tmp_path_factory):
    """Return a function that builds the example in C or C++ with the flags that `isokern config` prints."""
    name, standard = {"c": ("cc", "-std=c11"), "cpp": ("c++", "-std=c++14")}[request.param]
    compiler = shutil.which(name)
    if compiler is None:
        pytest.skip(f"no {name}")
    told = run(sys.executable, "-m", "isokern", "config", "--cflags", "--libs", "--backend", backend)
    assert told.returncode == 0, told.stderr
    program = tmp_path_factory.mktemp("host") / "host"
    source = EXAMPLES / f"host_application.{request.param}"
    command = [compiler, standard, "-Wall", "-Wextra", "-Werror", source, *shlex.split(told.stdout), "-o", program]
    built = run(*command)
    assert built.returncode == 0, built.stderr
    return source, program


def test_python_host_on_every_device():
    names = run(sys.executable, "-c", "import isokern; print(*[d.name for d in isokern.devices()])").stdout.split()
    if not names:
        pytest.skip("no device is available")
    for name in names:
        done = run(sys.executable, EXAMPLES / "host_application.py", name)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        for promised in (
            f"device: {name}",
            "workspace: ",
            "turned, with a workspace of",
            "replay of 3 calls",
            "refused: softmax: x has shape [3, 2]",
            "axis 2 is out of range",
        ):
            assert promised in done.stdout


def test_graph_host():
    pytest.importorskip("safetensors", reason="safetensors is not installed: pip install 'isokern[graph]'")
    try:
        device = isokern.device()
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
    done = run(sys.executable, EXAMPLES / "graph" / "host.py", device.name)
    assert done.returncode == 0, done.stderr
    for promised in (
        f"device: {device.name}",
        "parameters: 32 arrays from ",
        "replay of ",
        "the same bits",
        "rows: programs for [1, 4, 7]",
        "  block1.0.0  ",
        " bytes; ",
        "refused: convnet, input images: shape [1, 2, 32, 32]",
        "refused: convnet: parameter 'classify.bais'; allowed: classify.bias",
    ):
        assert promised in done.stdout


@pytest.mark.quick("lower")
@pytest.mark.parametrize("command", ["dump", "lower", "summary"])
def test_graph_model_on_the_command_line(command):
    done = run(sys.executable, "-m", "isokern", "graph", command, EXAMPLES / "graph" / "convnet.py")
    assert done.returncode == 0, done.stderr
    assert "block2.1.layer.2" in done.stdout


def test_graph_model_agrees_with_its_references():
    if not isokern.devices():
        pytest.skip("no device is available")
    done = run(sys.executable, "-m", "isokern", "graph", "explain", EXAMPLES / "graph" / "convnet.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "operators agree with their references" in done.stderr


def test_graph_commands_that_the_model_names_exist():
    named = re.findall(r"^isokern graph (\w+) (\S+)", (EXAMPLES / "graph" / "convnet.py").read_text(), re.M)
    assert [command for command, _ in named] == ["summary", "explain", "view"]
    for command, file in named:
        assert (EXAMPLES.parent / file).is_file()
        assert run(sys.executable, "-m", "isokern", "graph", command, "--help").returncode == 0


@pytest.mark.quick("c-cpu", "cpp-kunlun_sim")
def test_host_without_python(host):
    source, program = host
    done = run(program)
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""  # an emulated device reports there what the host does wrong
    assert "WRONG" not in done.stdout
    checks = len(re.findall(r"^\s+check\((?!false)", source.read_text(), re.M))
    assert done.stdout.count("right: ") == checks > 4
    if source.suffix == ".c":
        assert "softmax: 4 bytes of attributes at " in done.stdout
        assert "softmax: axis 2 is out of range for rank 2; allowed: -2..1" in done.stdout
        assert "add: b has dtype F16 where T is F32 already; allowed: F32; cast one of them" in done.stdout
        assert "the stream is null" in done.stdout
    else:
        assert "matmul: " in done.stdout
        assert "2 pointers; allowed: 3, as many as tensors" in done.stdout


@pytest.mark.quick("cpu-cmake", "kunlun_sim-pkg-config")
@pytest.mark.parametrize("tool", ["pkg-config", "cmake"])
def test_host_by_a_build_tool(tool, backend, tmp_path):
    """The build tools' files beside the library agree with `isokern config`."""
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"no {tool}")
    name, program = {"cpu": "isokern-cpu", "kunlun_sim": "isokern-kunlun-sim"}[backend], tmp_path / "host"
    flag = {"pkg-config": "--pkgconfig", "cmake": "--cmake"}[tool]
    folder = run(sys.executable, "-m", "isokern", "config", flag, "--backend", backend).stdout.strip()
    if tool == "pkg-config":
        told = subprocess.run(
            [found, "--cflags", "--libs", name],
            env={**os.environ, "PKG_CONFIG_PATH": folder},
            capture_output=True,
            text=True,
            check=True,
        )
        built = run(
            shutil.which("cc"), "-std=c11", EXAMPLES / "host_application.c", *told.stdout.split(), "-o", program
        )
        assert built.returncode == 0, built.stderr
    else:
        lines = ["cmake_minimum_required(VERSION 3.16)", "project(host C)", f"find_package({name} CONFIG REQUIRED)"]
        lines += [f'add_executable(host "{EXAMPLES / "host_application.c"}")']
        lines += [f"target_link_libraries(host PRIVATE {name}::{name})"]
        (tmp_path / "CMakeLists.txt").write_text("\n".join([*lines, ""]))
        for command in (["-S", tmp_path, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={folder}"], ["--build", tmp_path]):
            made = run(found, *command)
            assert made.returncode == 0, made.stdout + made.stderr
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_backend_that_only_python_reaches_says_so():
    known = {b.name for b in isokern.backends()} - set(HOSTS) - {"kunlun"}
    for name in known:
        done = run(sys.executable, "-m", "isokern", "config", "--backend", name)
        assert done.returncode != 0
        assert f"backend {name} is reached from Python alone" in done.stderr
    assert "no backend abacus" in run(sys.executable, "-m", "isokern", "config", "--backend", "abacus").stderr
