"""Launch kernels of one library, each in a process of its own, which may die, and print what became of each.

A process is forked before the runtime starts, so it costs a few milliseconds. Arguments: the runtime, the library, the
folder for reports, and a limit in seconds. The folder has the kernels, in given.json: [number, clusters, cores, seed]
each. Prints a JSON list of [signal or exit status, code of the launch or of xpu_wait, the rules and lines that were
reported].
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

FLOATS = 4096  # of the input and of the output


def launch(runtime: str, library: str, number: int, clusters: int, cores: int) -> int:
    """Launch a kernel on two arrays and return the status."""
    xpu = ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    kernels = ctypes.CDLL(library)
    given, made = ctypes.c_void_p(), ctypes.c_void_p()
    values = (ctypes.c_float * FLOATS)(*(float(i % 61) for i in range(FLOATS)))
    for pointer in (given, made):
        assert xpu.xpu_malloc(ctypes.byref(pointer), ctypes.c_uint64(4 * FLOATS), 0) == 0
        assert xpu.xpu_memcpy(pointer, values, ctypes.c_uint64(4 * FLOATS), 1) == 0
    return int(kernels.run(number, given, made, clusters, cores))


def main(runtime: str, library: str, folder: str, limit: str) -> None:
    """Launch the kernels and print the outcomes."""
    ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(library)
    os.environ |= {"ISOKERN_XPU_CHECK": "1", "ISOKERN_XPU_TIMEOUT_MS": str(1000 * int(limit))}
    outcomes = []
    for number, clusters, cores, seed in json.loads(Path(folder, "given.json").read_text()):
        report, code = Path(folder, f"{number}.json"), Path(folder, f"{number}.code")
        child = os.fork()
        if child == 0:
            os.environ |= {"ISOKERN_XPU_REPORT": str(report), "ISOKERN_XPU_SEED": str(seed)}
            os.dup2(os.open(Path(folder, f"{number}.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            code.write_text(str(launch(runtime, library, number, clusters, cores)))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        findings = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        told = [[f["rule"], f[place]["where"]] for f in findings for place in ("place", "other") if place in f]
        outcomes.append([status, int(code.read_text()) if code.exists() else None, told])
        for kept in (report, code):
            kept.unlink(missing_ok=True)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
