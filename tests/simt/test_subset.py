"""Test that every portable kernel is in the subset of core's simt/README.md.

As compiled for the conformance samples, each is OpenCL C 1.2 and CUDA C++17 without a warning. What compilers do not
check is searched for in the text of the files and in the PTX. For each rule, a small kernel that breaks it is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import nvrtc
import pytest
from specialisations import PORTABLE, first, planted, specialisations

import isokern
from isokern.simt import Launch, Traits
from isokern.simt.source import KERNELS

DEVICES = (Traits(kind="gpu"), Traits(kind="cpu", group=1))
LOCAL, PARAMETERS = 32 << 10, 1 << 10  # bytes, the least that a device may have

Compiler = Callable[[Launch], list[str]]


# --- what compilers say -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def opencl() -> Compiler:
    """Return a function that gives the faults of a launch as OpenCL C 1.2 on the first OpenCL device.

    The source is as for that device: with PoCL, without the header of built-in functions.
    """
    try:
        device = isokern.device("opencl:0")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
    import pyopencl as cl

    from isokern_opencl.devices import ClDevice

    assert isinstance(device, ClDevice)

    def compiled(launch: Launch) -> list[str]:
        source = replace(launch, origin=(device.prelude, *launch.origin[1:])).source
        program = cl.Program(device.context, source)
        try:
            program.compile([*device.programs.options, "-Werror"], [device.cl_device])
        except cl.Error as error:
            return [f"{error}\n{program.get_build_info(device.cl_device, cl.program_build_info.LOG)}"]
        return []

    return compiled


@pytest.fixture(scope="session")
def cuda() -> Compiler:
    """Return a function that gives the faults of a launch as CUDA C++17 for compute capability 8.0, and in its PTX."""
    compiler = nvrtc.installed()
    generic = "--diag-suppress=186"  # unsigned values are compared with zero where code also serves signed ones
    options = ["--gpu-architecture=compute_80", "--std=c++17", "--fmad=false", generic]

    def compiled(launch: Launch) -> list[str]:
        made = compiler.compile(launch.source, options)
        # A log has warnings; CUDA 13.0 has no option that makes errors of them
        return [made.log] if made.failed or made.log.strip() else list(ptx_faults(made.ptx, launch))

    return compiled


def ptx_faults(ptx: str, launch: Launch) -> Iterator[str]:
    """Yield the rules that the compiled code breaks."""
    head = launch.origin[2]
    local = sum(int(size) for size in re.findall(r"\.shared \.align \d+ \.b8 \w+\[(\d+)\]", ptx))
    record = int(re.findall(r"\.param \.align \d+ \.b8 \w+_param_\d+\[(\d+)\]", ptx)[-1])
    parameters = record + 8 * len(re.findall(r"\.param \.u64\b", ptx))
    if local > LOCAL:
        yield f"{local} bytes of local memory; allowed: {LOCAL}"
    if record != len(launch.record):
        yield f"the record has {record} bytes, and {len(launch.record)} are given"
    if parameters > PARAMETERS:
        yield f"{parameters} bytes of parameters; allowed: {PARAMETERS}"
    if "ik_i64 items;" in head and (local or re.search(r"\b(bar|barrier)\.", ptx)):
        yield "a barrier or local memory in an entry of independent items"
    if "ik_f64" not in head and ".f64" in ptx:
        yield "arithmetic in double where no tensor is F64"
    if re.search(r"\b(atom|red)\.[\w.]*\.f(16|32|64)", ptx):
        yield "an atomic on floats"
    if re.search(r"\bcall\b", ptx):
        yield "a call that is not inlined: recursion, or a function without IK_INLINE"


# --- what the text says -----------------------------------------------------------------------------------------------

WORDS = {
    "a name of OpenCL C, C or C++": r"\b(restrict|half|kernel|local|global|constant|private|generic"
    r"|class|template|this|new|delete|operator|virtual)\b",
    "a vector type": r"\b(u?(char|short|int|long)|float|double)(2|3|4|8|16)\b|\bv(load|store)\w+",
    "a double literal": r"(?<![\w.])((\d+\.\d*|\.\d+)([eE][+-]?\d+)?"
    r"|\d+[eE][+-]?\d+|0[xX][\da-fA-F.]+[pP][+-]?\d+)(?![\w.])",
    "an atomic": r"\batom\w+",
    "what only some compilers have": r"\b__\w+|#\s*pragma",
    "parameters of an entry that is none": r"^(?!IK_ENTRY).*\bIK_PARAMS\b",
}


def text_faults(path: Path) -> list[str]:
    """Return the rules that a file breaks, with their lines; the launch block and other comments are ignored."""
    code = re.sub(
        r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m[0].count("\n"), path.read_text(encoding="utf-8"), flags=re.S
    )
    lines = [re.sub(r'^\s*#\s*include.*|"[^"]*"', "", line) for line in code.splitlines()]
    return [
        f"{path.name}:{number}: {what}: {found[0]}"
        for number, line in enumerate(lines, 1)
        for what, pattern in WORDS.items()
        if (found := re.search(pattern, line))
    ]


# --- the kernels ------------------------------------------------------------------------------------------------------


def all_faults(compiler: Compiler, launches: Sequence[Launch]) -> str:
    """Return the first few faults as text, each with its specialisation."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        every = [
            (launch, fault)
            for launch, faults in zip(launches, pool.map(compiler, launches), strict=True)
            for fault in faults
        ]
    shown = [f"{launch.entry}: {fault}\n{launch.origin[2]}" for launch, fault in every[:3]]
    return "\n".join([f"{len(every)} faults of {len(launches)} specialisations", *shown]) if every else ""


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.[ch]")), ids=lambda p: p.name)
def test_the_text_of_a_file_is_in_the_subset(path: Path) -> None:
    assert text_faults(path) == []


# elementwise.c has about as many specialisations as all other files
PARTS = [(p, k, n) for p in PORTABLE for n in (4 if p.stem == "elementwise" else 1,) for k in range(n)]


@pytest.mark.filterwarnings("ignore:Pre-build attribute access")
@pytest.mark.parametrize("path", PORTABLE, ids=lambda p: p.stem)
def test_the_first_plan_of_a_kernel_is_opencl_c(opencl: Compiler, path: Path) -> None:
    assert not (found := all_faults(opencl, first(path, DEVICES))), found


@pytest.mark.full  # compiles every specialisation of a kernel, or a part of them
@pytest.mark.filterwarnings("ignore:Pre-build attribute access")
@pytest.mark.parametrize(("path", "part", "parts"), PARTS, ids=[f"{p.stem}-{k}" for p, k, _ in PARTS])
def test_a_kernel_is_opencl_c(opencl: Compiler, path: Path, part: int, parts: int) -> None:
    launches = specialisations(path, DEVICES)[part::parts]
    assert launches, "no operator of this stem has samples"
    assert not (found := all_faults(opencl, launches)), found


@pytest.mark.parametrize("path", PORTABLE, ids=lambda p: p.stem)
def test_a_kernel_is_cuda(cuda: Compiler, path: Path) -> None:
    assert not (found := all_faults(cuda, specialisations(path, DEVICES))), found


# --- the rules --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """A kernel that breaks one rule, and who has to report it."""

    name: str
    by: str  # text, opencl or cuda
    told: str
    body: str
    helper: str = ""
    line: str = "broken(items=y.numel)"


GROUPS = "broken(groups=y.numel, local=64)"
BROKEN = [
    Broken("vector", "text", "vector type: float4", "float4 v;"),
    Broken("passed", "text", "that is none: static void f(IK_PARAMS", "", helper="static void f(IK_PARAMS);"),
    Broken("load of a vector", "text", "vector type: vload4", "vload4(0, x);"),
    Broken("double literal", "text", "double literal: 0.5", "IK_STORE(y, IK_ITEM, 0.5);"),
    Broken("hexadecimal double literal", "text", "double literal: 0x1p-3", "IK_STORE(y, IK_ITEM, 0x1p-3);"),
    Broken("double literal with an exponent", "text", "double literal: 1e-3", "IK_STORE(y, IK_ITEM, 1e-3);"),
    Broken("atomic", "text", "an atomic: atomic_inc", "atomic_inc(x);"),
    Broken("reserved name", "text", "a name of OpenCL C, C or C++: half", "int half = 2;"),
    Broken("attribute", "text", "only some compilers have: __attribute__", "int x __attribute__((aligned(8)));"),
    Broken("pragma", "text", "only some compilers have: #pragma", "#pragma unroll\n    for (;;)\n        break;"),
    Broken(
        "overload",
        "opencl",
        "conflicting types",
        "",
        "static int one(int i) { return i; }\nstatic int one(float f) { return (int)f; }",
    ),
    Broken("function that is not there", "opencl", "nothing", "nothing();"),
    Broken(
        "local array in a block",
        "opencl",
        "outermost scope",
        "if (p.items) {\n        IK_LOCAL_ARRAY(int, inner, 4);\n        inner[0] = 1;\n    }",
    ),
    Broken(
        "variable-length array",
        "opencl",
        "variable length array",
        "int n = (int)p.items;\n    int v[n];\n    v[0] = 1;",
    ),
    Broken("pointer to a function", "opencl", "function", "int (*f)(int) = 0;\n    IK_STORE(y, 0, f == 0);"),
    Broken(
        "two address spaces",
        "opencl",
        "address space",
        "IK_LOCAL_ARRAY(float, s, 64);\n    first(s);\n    first(x);",
        "static float first(IK_GLOBAL const float *p) { return p[0]; }",
        GROUPS,
    ),
    Broken("unused variable", "cuda", "never referenced", "int unused;"),
    Broken("restrict", "cuda", "restrict", "IK_GLOBAL float *restrict at = y;\n    at[0] = 1;"),
    Broken("void pointer", "cuda", "void", "IK_GLOBAL void *v = y;\n    IK_GLOBAL float *at = v;\n    at[0] = 1;"),
    Broken(
        "local memory",
        "cuda",
        "bytes of local memory",
        "IK_LOCAL_ARRAY(float, s, 9000);\n    s[IK_LOCAL_ID] = x[0];\n    IK_BARRIER();\n    y[0] = s[9];",
        line=GROUPS,
    ),
    Broken(
        "parameters",
        "cuda",
        "bytes of parameters",
        "y[0] = p.s7;",
        line=f"broken(items=1, {', '.join(f's{i}=0' for i in range(120))})",
    ),
    Broken("barrier of items", "cuda", "a barrier or local memory", "IK_BARRIER();"),
    Broken("double arithmetic", "cuda", "arithmetic in double", "y[0] = (float)((double)x[0] * 0.1);"),
    Broken("atomic on floats", "cuda", "an atomic on floats", "atomicAdd(y, x[0]);"),
    Broken(
        "recursion",
        "cuda",
        "not inlined",
        "y[0] = (float)down((int)p.items);",
        "static __device__ int down(int i) { return i > 9 ? down(i / 3) + i * down(i - 1) : i; }",
    ),
]


@pytest.mark.filterwarnings("ignore:Pre-build attribute access")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: f"{b.by}: {b.name}")
def test_a_broken_rule_is_told(request: pytest.FixtureRequest, tmp_path: Path, broken: Broken) -> None:
    launch = planted(tmp_path, broken.line, broken.body, broken.helper)
    faults = text_faults(launch.origin[1]) if broken.by == "text" else request.getfixturevalue(broken.by)(launch)
    assert any(broken.told in fault for fault in faults), faults


def test_a_record_that_lies_otherwise_is_told(cuda: Compiler, tmp_path: Path) -> None:
    launch = planted(tmp_path, "broken(items=y.numel)", "y[0] = x[p.items];")
    assert cuda(launch) == []
    assert "the record has" in cuda(replace(launch, record=launch.record[8:]))[0]
