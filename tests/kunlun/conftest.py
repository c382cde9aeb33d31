"""Fixtures and hooks; tests marked `alone` run in a process of their own.

Such a process has a fresh runtime and small kernels, so what a test breaks affects no other test.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LIMIT = 120  # seconds; only a hang takes that long

KERNELS = r"""
#include <cstdlib>
#include <unistd.h>
#include "xpu/kernel/xtdk.h"
#include "xpu/kernel/xtdk_atomic_sm_xpu3.h"
#include "xpu/kernel/xtdk_io.h"

__global__ void nothing() {}

__global__ void identity(__global_ptr__ int *out)
{
    const int at = core_num() * cluster_id() + core_id();
    out[2 * at] = at;
    out[2 * at + 1] = physical_cluster_id();
}

__global__ void copy(__global_ptr__ const char *from, __global_ptr__ char *to, int bytes)
{
    __local__ char buffer[1024];
    GM2LM(from, buffer, bytes);
    LM2GM(buffer, to, bytes);
}

__global__ void spin(__global_ptr__ volatile int *word, int until)
{
    while (*word != until) {}
}

__global__ void add_slowly(__global_ptr__ int *word, int rounds)
{
    __local__ volatile int sum = *word;
    for (int i = 0; i < rounds; i++)
        sum = sum + 1;
    *word = sum;
}

__global__ void spin_in_barriers()
{
    for (;;)
        sync_cluster();
}

__global__ void spin_printing()
{
    for (;;)
        printf("%d\n", core_id());
}

__global__ void spin_on_atomics(int until)
{
    __shared__ int word;
    if (core_id() == core_num() - 1)
        atomicadd(&word, 1);
    if (core_id() == 0)
        while (atomicadd(&word, 0) != until) {} // spins on an atomic
}

__global__ void spin_on_a_lock(int until)
{
    __shared__ int word;
    for (bool done = false; !done;) {
        ticket_lock_mix(); // spins on a lock
        if (core_id() == core_num() - 1 && word == 0)
            word = 1;
        done = core_id() == core_num() - 1 || word == until;
        ticket_unlock_mix();
    }
}

__global__ void spin_on_global(__global_ptr__ int *word, int until)
{
    while (__builtin_xpu_amoadd(word, 0) != until) {} // spins on global memory
}

__global__ void count(int lines)
{
    for (int i = 0; i < lines; i++)
        printf("%64d\n", i);
}

__global__ void doze()
{
    for (;;)
        usleep(1000);
}

static __attribute__((noinline)) int deeper(int depth)
{
    volatile char frame[512];
    frame[depth % 512] = 1;
    return depth < 0 ? 0 : deeper(depth + 1) + frame[depth % 512];
}

static __attribute__((noinline)) int large_frame()
{
    volatile char frame[8 << 20];
    frame[0] = 1;
    return frame[0];
}

__global__ void fault(int which, __global_ptr__ int *out)
{
    volatile int zero = 0;
    switch (which) {
    case 0: *(volatile int *)8 = 1; return;
    case 1: *(volatile int *)0x8000000000000000 = 1; return;
    case 2: zero = 7 / zero; return;
    case 3: __builtin_trap(); return;
    case 4: *out = deeper(0); return;
    case 5: std::abort();
    case 6: GM2LM((const void *)64, out, 4); return;
    case 7: printf("%s", (const char *)16); *out = 1; return;
    case 8: GM2LM(out, (void *)&zero, 0); return;
    case 9: *out = large_frame(); return;
    case 10: throw 1;
    case 11: std::exit(3);
    case 12: _exit(3);
    }
}

extern "C" void end_process(int status) { std::exit(status); }

__global__ void diverge()
{
    if (core_id() == 5)
        return;
    if (core_id() < 2)
        sync_local(); // two of four
    else
        sync_cluster(); // the others
}

__global__ void rotate(__global_ptr__ int *out)
{
    __shared__ int slots[64];
    slots[core_id()] = core_id();
    mfence_sm();
    sync_cluster();
    out[core_num() * cluster_id() + core_id()] = slots[(core_id() + 1) % core_num()];
}

__global__ void order(__global_ptr__ int *out)
{
    const int at = __atomic_fetch_add(out, 1, __ATOMIC_RELAXED);
    out[1 + at] = cluster_id() * core_num() + core_id();
}

__global__ void say(int number) { printf("launch %d\n", number); }

struct block {
    int words[128];
};
__global__ void large(block words) {}

struct larger {
    int words[129];
};
__global__ void too_large(larger words) {}
"""


def with_launchers(text: str) -> str:
    """Return the kernels and a C function that launches each of them.

    Its parameters are clusters, cores and stream, then the kernel's own; structures are passed as zeros.
    """
    made = [text]
    for name, parameters in re.findall(r"__global__ void (\w+)\(([^()]*)\)", text):
        given = [p.replace("__global_ptr__", "") for p in parameters.split(", ") if p]
        passed = [f"{p.split()[0]}{{}}" if "larg" in name else p.split()[-1].lstrip("*") for p in given]
        taken = ["int clusters", "int cores", "XPUStream stream", *([] if "larg" in name else given)]
        launch = f"{name}<<<clusters, cores, stream>>>({', '.join(passed)})"
        made.append(f'extern "C" int launch_{name}({", ".join(taken)}) {{ return {launch}; }}\n')
    return "".join(made)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `alone`."""
    config.addinivalue_line("markers", "alone(**environment): run in a process of its own, with its own runtime")


@pytest.fixture(scope="session")
def runtime() -> Path:
    """Return the path of the emulator's library."""
    plugin = pytest.importorskip("isokern_kunlun_sim")
    if not plugin.EMULATOR.exists():
        pytest.skip("the emulator was built without a C++ compiler")
    return Path(plugin.EMULATOR)


@pytest.fixture(scope="session")
def kernels(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the kernels above to a library, and return its path."""
    from needs import cxx

    from isokern_kunlun_sim import compiling

    folder = tmp_path_factory.mktemp("kernels")
    source = folder / "kernels.xpu"
    source.write_text(with_launchers(KERNELS))
    compiling.library(cxx(), folder / "kernels.so", [compiling.kernel_object(cxx(), source, "fast", folder, [])])
    return folder / "kernels.so"


@pytest.fixture
def xpu(kernels: Path) -> None:
    """Stands for the runtime's C interface, which a test marked `alone` gets in its own process."""


class Python:
    """Runs code as `python -c` does, in processes that are forked from one that has imported what most need."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._outputs = process, [folder / "out", folder / "err"]

    def __call__(
        self, code: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Return the exit status and what was printed."""
        given = {"code": code, "arguments": arguments, "folder": os.getcwd(), "outputs": list(map(str, self._outputs))}
        assert self._process.stdin is not None and self._process.stdout is not None
        told = {**given, "environment": dict(os.environ if environment is None else environment)}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        status = json.loads(self._process.stdout.readline())
        shown = (path.read_text(errors="replace") for path in self._outputs)
        assert isinstance(status, int), status
        return subprocess.CompletedProcess([code, *arguments], status, *shown)


@pytest.fixture(scope="session")
def python(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Python]:
    """Return a function that runs code in a process of its own (driver.py)."""
    command = [sys.executable, str(HERE / "driver.py"), str(LIMIT)]
    # A process that is forked from one with threads has their stacks, and so memory for threads of its own
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        yield Python(process, tmp_path_factory.mktemp("python"))
        assert process.stdin is not None
        process.stdin.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked `alone` in a process of its own."""
    marker = pyfuncitem.get_closest_marker("alone")
    if marker is None:
        return None
    arguments: dict[str, Any] = {n: pyfuncitem.funcargs[n] for n in inspect.signature(pyfuncitem.obj).parameters}
    arguments.pop("xpu")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ISOKERN_XPU", "XPU"))}
    environment |= {k: str(v) for k, v in marker.kwargs.items()}
    environment |= {
        "XPU_RUNTIME": str(pyfuncitem._request.getfixturevalue("runtime")),
        "XPU_KERNELS": str(pyfuncitem._request.getfixturevalue("kernels")),
    }
    code = "import driver, json, sys; driver.run(*sys.argv[1:3], json.loads(sys.argv[3]))"
    place = (str(pyfuncitem.path), pyfuncitem.originalname)
    python = pyfuncitem._request.getfixturevalue("python")
    done = python(code, *place, json.dumps(arguments), environment=environment)
    if done.returncode != 0:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return True
