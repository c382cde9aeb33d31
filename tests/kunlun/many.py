"""Many small kernels in one library, each run in a process of its own: what the checked mode tells about them.

The text of a kernel is its body. A part `[[bad|good]]` is a planted fault and its repair, and `//! rule` ends the line
on which that rule has to be told.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from needs import cxx

HERE = Path(__file__).parent
PARTS = re.compile(r"\[\[(.*?)\|(.*?)\]\]")
MARK = re.compile(r" *//! ([\w-]+)")
LIMIT = 60  # seconds for one kernel
HEAD = """#include <cerrno>
#include <cstdlib>
#include "xpu/kernel/xtdk.h"
#include "xpu/kernel/xtdk_math.h"
#include "xpu/kernel/xtdk_simd.h"
#include "xpu/kernel/xtdk_atomic_sm_xpu3.h"
"""
ENTRY = """
extern "C" int run(int kernel, const float *in, float *out, int clusters, int cores)
{
    auto chosen = kernels[kernel];
    const int status = chosen<<<clusters, cores>>>(in, out, 64);
    return status != 0 ? status : xpu_wait(nullptr);
}
"""


def sections(path: Path) -> dict[str, str]:
    """Return the texts of a file by their headings, which begin with `== `."""
    _, *found = re.split(r"^== ", path.read_text(), flags=re.MULTILINE)
    return {name: body.strip("\n") + "\n" for name, _, body in (section.partition("\n") for section in found)}


def planted(path: Path) -> dict[str, tuple[str, str]]:
    """Return the kernels of a file with their faults, and without, by name."""
    found = {}
    for name, body in sections(path).items():
        repaired = MARK.sub("", PARTS.sub(r"\2", body))
        for which in sorted({bad for part in PARTS.findall(body) for bad in part[0].split(" or ")[1:]} | {""}):
            faulty = PARTS.sub(lambda part, which=which: which or part[1].split(" or ")[0], body)
            found[f"{name} {which}".strip()] = faulty, repaired
    return found


@dataclass(frozen=True)
class Outcome:
    """What became of one kernel."""

    status: int  # the process's: negative if a signal ended it
    code: int | None  # of xpu_wait
    told: set[tuple[str, int]]  # rules and lines
    expected: set[tuple[str, int]]
    text: str  # the kernel and what was printed


@dataclass(frozen=True)
class Kernel:
    """A kernel's body, what stands before it, and how it is launched."""

    body: str
    before: str = ""
    clusters: int = 1
    cores: int = 4
    seed: int = 0


def source(kernels: Sequence[Kernel]) -> tuple[str, list[set[tuple[str, int]]], list[tuple[int, int]]]:
    """Return a source of all kernels, what is expected of each, and its first and last line."""
    out, expected, spans = HEAD.splitlines(), [], []
    for k, kernel in enumerate(kernels):
        first = len(out) + 1
        # Names before a kernel are its own
        out += ["namespace", "{", f"namespace k{k}", "{", *kernel.before.strip("\n").splitlines()]
        out += ["__global__ void kernel(__global_ptr__ const float *in, __global_ptr__ float *out, int n)"]
        out += ["{", "(void)in, (void)out, (void)n;"]
        out += [*kernel.body.strip("\n").splitlines(), "}", "}", "}"]
        lines = enumerate(out[first - 1 :], first)
        expected.append({(rule, at) for at, line in lines for rule in MARK.findall(line)})
        spans.append((first, len(out)))
    names = ", ".join(f"k{k}::kernel" for k in range(len(kernels)))
    out.append(f"static void (*const kernels[])(const float *, float *, int) = {{ {names} }};")
    return "\n".join(out) + ENTRY, expected, spans


def run(runtime: Path, folder: Path, kernels: Sequence[Kernel], limit: int = LIMIT) -> list[Outcome]:
    """Compile kernels to one checked library, run each in a process of its own, and return what became of them."""
    from isokern_kunlun_sim import compiling

    text, expected, spans = source(kernels)
    written = folder / "many.xpu"
    written.write_text(text)
    library = folder / "many.so"
    compiling.library(cxx(), library, [compiling.kernel_object(cxx(), written, "checked", folder, [])], "checked")
    given = json.dumps([[i, k.clusters, k.cores, k.seed] for i, k in enumerate(kernels)])
    (folder / "given.json").write_text(given)
    command = [sys.executable, str(HERE / "launch_many.py"), str(runtime), str(library), str(folder), str(limit)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ISOKERN_XPU", "XPU"))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    lines, outcomes = text.splitlines(), []
    for k, (status, code, told) in enumerate(json.loads(done.stdout)):
        first, last = spans[k]
        shown = "\n".join(f"{i:5} {lines[i - 1]}" for i in range(first, last + 1))
        printed = (folder / f"{k}.txt").read_text(errors="replace")
        places = {(rule, int(where.rpartition(":")[2] or 0)) for rule, where in told}
        outcomes.append(Outcome(status, code, places, expected[k], f"{shown}\n{printed}"))
    return outcomes
