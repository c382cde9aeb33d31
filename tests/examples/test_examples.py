"""The examples build and run, and print what they promise."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import isokern

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def library():
    cpu = pytest.importorskip("isokern_cpu", reason="the CPU backend is not installed")
    return Path(cpu.get_library())


@pytest.fixture(scope="module")
def compiler():
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler")
    return found


def test_python_host():
    try:
        device = isokern.device()
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
    done = run(sys.executable, EXAMPLES / "host_application.py", device.name)
    assert done.returncode == 0, done.stderr
    for promised in (
        f"device: {device.name}",
        "workspace: ",
        "replay of 2 calls",
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


def test_c_host(tmp_path, library, compiler):
    program = tmp_path / "host"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I", isokern.get_include()]
    built = run(
        compiler, *flags, EXAMPLES / "host_application.c", library, f"-Wl,-rpath,{library.parent}", "-o", program
    )
    assert built.returncode == 0, built.stderr
    done = run(program)
    assert done.returncode == 0, done.stdout
    checks = (EXAMPLES / "host_application.c").read_text().count("    check(")
    assert done.stdout.count("right: ") == checks > 0
    assert "WRONG" not in done.stdout
    assert "softmax: 4 bytes of attributes; allowed: 8" in done.stdout
    assert "the stream is null" in done.stdout


def test_header_is_cplusplus_too(tmp_path, library):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    source = tmp_path / "host.cpp"
    source.write_text(
        '#include "isokern.h"\nint main() { void *s = ik_stream_create(); ik_stream_destroy(s); return IK_OP_ADD == 0; }\n'
    )
    built = run(
        compiler,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        isokern.get_include(),
        source,
        library,
        f"-Wl,-rpath,{library.parent}",
        "-o",
        tmp_path / "host",
    )
    assert built.returncode == 0, built.stderr
    assert run(tmp_path / "host").returncode == 0
