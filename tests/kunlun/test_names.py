"""Test that a program in the names of documents about Kunlun, real and alias, compiles and runs on the emulator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from needs import cxx

from isokern_kunlun_sim import compiling

HERE = Path(__file__).parent
SOURCE = HERE / "rearrange.xpu"
RUN = """
import ctypes, sys
import numpy as np
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
program = ctypes.CDLL(sys.argv[2])
for name, item in (("f32", "u4"), ("f16", "u2"), ("bf16", "u2")):
    for rows, columns in ((2, 3), (64, 100), (257, 200)):
        x = (np.arange(rows * columns) * 40503 % 30011).astype(item).reshape(rows, columns)
        y = np.zeros((columns, rows), item)
        code = getattr(program, f"transpose_{name}")(rows, columns, x.ctypes.data_as(ctypes.c_void_p), \
y.ctypes.data_as(ctypes.c_void_p))
        assert code == 0 and (y == x.T).all(), (name, rows, columns, code)
"""
C = """
#include "xpu/runtime.h"
int wait_for(kunlunStream_t stream, kunlunEvent_t event) { \
return xpu_event_wait(event) + xpu_stream_synchronize(stream); }
"""


@pytest.mark.parametrize("mode", compiling.MODES)
def test_host_and_kernel_of_one_file(runtime: Path, tmp_path: Path, mode: str) -> None:
    built, report = tmp_path / "rearrange.so", tmp_path / "findings"
    compiling.library(cxx(), built, [compiling.kernel_object(cxx(), SOURCE, mode, tmp_path, [])], mode)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ISOKERN", "XPU"))}
    environment |= {"ISOKERN_XPU_CHECK": "1" if mode == "checked" else "0", "ISOKERN_XPU_REPORT": str(report)}
    command = [sys.executable, "-c", RUN, str(runtime), str(built)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not report.exists() or report.read_text() == ""


def test_the_host_side_is_c_too(runtime: Path, tmp_path: Path) -> None:
    source, header = tmp_path / "host.c", compiling.HERE / "include"
    source.write_text(C)
    flags = ["-x", "c", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{header}"]
    linked = ["-x", "none", str(runtime), "-o", str(tmp_path / "host.so")]
    subprocess.run([cxx(), *flags, str(source), *linked], check=True)
