"""Test that every kernel compiles to a cubin of every architecture, without a GPU and with the options of `gpu.py`.

Portable kernels and the backend's own are compiled. The registers and shared memory of a block have to suffice, and the
bytes that threads may spill to memory are listed in SPILLS.

The oldest architecture gets all sources that the conformance samples need. Of each later generation a file is compiled
for one architecture, with one specialisation per compute type; which ones depends on the place of the file in the list.
`--every-architecture` compiles all sources for all architectures. Older compilers that are installed get one
specialisation per compute type for one architecture.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import nvrtc
import pytest
from specialisations import CUDA, PORTABLE, planted, specialisations

from isokern.simt import Launch, Traits

gpu = pytest.importorskip("isokern_cuda.gpu", reason="isokern-cuda is not installed")

OWN = sorted((CUDA / "kernels").rglob("*.c"))
FILES = [*PORTABLE, *OWN]
KNOWN = {75, 80, 86, 87, 89, 90, 100, 120}  # architectures that a compiler has to know at least
REGISTERS, THREAD = 65536, 255  # of a block; of a thread
SHARED = 32 << 10  # bytes of a portable kernel, by simt/README.md
STATIC = 48 << 10  # CUDA's limit for arrays of a fixed size
# Bytes of spill stores and loads where ptxas prefers more blocks at once to more registers: argmax_join with 40
# registers on sm_100, 103 and 110; gemm_tiles (64 by 64, F32) with 64 on sm_110 and 120; gemm_items in U64 on sm_121
# by CUDA 12.9; rms_norm of 8 packs of F64 with 64 on sm_110; matmul_tiles (64 by 64, F32) with 64 up to sm_90; topk
# of 64-bit keys with 32 on sm_80; random_sample with 40 on sm_80 and 110; 16 elements of I8 that are compared as I64
# on sm_121; 64-bit sums of U16 that become booleans in a loop nest on sm_120 and 121; lu_factor, whose steps of a
# block are unrolled, by up to 32 bytes before sm_100 and by more from there on; sample_regions in F64 with 48 on
# sm_103 and 110; selective_scan from sm_100 on; group_norm and rope in F64 on sm_90.
SPILLS = {
    "argmax": 16,
    "generic": 80,
    "gemm": 40,
    "group_norm": 16,
    "lu_factor": 228,
    "matmul_transposed": 24,
    "random_sample": 48,
    "rope": 32,
    "sample_regions": 52,
    "selective_scan": 16,
    "topk": 8,
    "cuda/elementwise": 32,
    "cuda/rms_norm": 8,
}
# Bytes of memory of a thread's own for states whose length is the call's, over which loops are not unrolled, and for a
# block of 256 elements, which a thread quantises
STATES = {"generalized_delta_rule": 1024, "quantize": 1024, "selective_scan": 272}


@dataclass(frozen=True)
class Figures:
    """What a kernel uses: registers, bytes of stack frame and spills per thread, bytes of shared memory per block."""

    registers: int
    frame: int
    spilled: int
    shared: int


def figures(log: str) -> Figures:
    """Return the figures that ptxas -v reports; functions that are not inlined count towards their caller."""
    registers = re.findall(r"\bUsed (\d+) registers", log)
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert registers and frames, f"no figures in the compiler's log:\n{log}"
    return Figures(
        max(map(int, registers)),
        sum(int(frame) for frame, _, _ in frames),
        sum(int(stores) + int(loads) for _, stores, loads in frames),
        sum(map(int, re.findall(r"(\d+) bytes smem", log))),
    )


def faults(compiler: nvrtc.Nvrtc, launch: Launch, target: str, allowed: Figures) -> Iterator[str]:
    """Yield what is wrong with the cubin of a launch whose figures may not exceed `allowed`."""
    made = compiler.compile(launch.source, [*gpu.options(target), "--ptxas-options=-v"])
    if made.failed:  # where shared memory is exceeded, the log still has the figures
        yield f"it does not compile\n{made.log}"
    if made.failed and "registers" not in made.log:
        return
    yield from re.findall(r"^ptxas (?:warning|error).*", made.log, re.M)
    took = figures(made.log)
    registers = min(allowed.registers, REGISTERS // launch.local)
    if took.registers > registers:
        yield f"{took.registers} registers; allowed for blocks of {launch.local} threads: {registers}"
    if took.spilled > allowed.spilled:
        yield f"{took.spilled} bytes of registers spilled; allowed: {allowed.spilled} (SPILLS)"
    if took.frame > allowed.frame:
        yield f"{took.frame} bytes of memory of a thread's own; allowed: {allowed.frame}"
    if took.shared > allowed.shared:
        yield f"{took.shared} bytes of shared memory; allowed: {allowed.shared}"


def stem(path: Path) -> str:
    """Return a kernel file's name in SPILLS: its stem, with the folder for the backend's own kernels."""
    return path.stem if path in PORTABLE else f"{path.parent.name}/{path.stem}"


def launches(path: Path, target: str, number: int, every: bool) -> list[Launch]:
    """Return a file's launches on an architecture; unless `every`, one per compute type, chosen by the number."""
    traits, text = gpu.traits(target, units=1), path.read_text(encoding="utf-8")
    if "device.features" not in text:
        traits = replace(traits, features=frozenset())  # the same for all architectures
    devices = (traits, replace(traits, units=1000)) if path in OWN and "device.units" in text else (traits,)
    found = specialisations(path, devices)
    if every:
        return found
    alike: dict[str, list[Launch]] = {}
    for launch in found:
        compute = re.findall(r"IK_COMPUTE_(\w+)", launch.origin[2])[0]
        alike.setdefault(compute, []).append(launch)
    return [group[number % len(group)] for group in alike.values()]


@pytest.fixture(scope="session")
def compiler() -> nvrtc.Nvrtc:
    return nvrtc.installed()


@pytest.fixture(scope="session")
def targets(compiler: nvrtc.Nvrtc) -> list[str]:
    """Return the architectures that the compiler knows, from the oldest that the backend supports."""
    oldest = 10 * gpu.OLDEST[0] + gpu.OLDEST[1]
    return [f"sm_{number}" for number in compiler.architectures() if number >= oldest]


def chosen(targets: Sequence[str], number: int) -> list[str]:
    """Return the oldest architecture, and one of each later generation (sm_8x, sm_9x, …) by the number."""
    generations: dict[str, list[str]] = {}
    for target in targets[1:]:
        generations.setdefault(target[:-1], []).append(target)
    return [targets[0], *(alike[number % len(alike)] for alike in generations.values())]


def test_every_architecture_is_chosen(targets: list[str]) -> None:
    assert chosen(["sm_75", "sm_80", "sm_86", "sm_90", "sm_100"], 3) == ["sm_75", "sm_86", "sm_90", "sm_100"]
    assert {target for number in range(len(FILES)) for target in chosen(targets, number)} == set(targets)


def test_the_compiler_knows_the_architectures(targets: list[str]) -> None:
    assert {f"sm_{number}" for number in KNOWN} <= set(targets)


@pytest.mark.parametrize("path", FILES, ids=stem)
def test_a_kernel_is_a_cubin(
    compiler: nvrtc.Nvrtc, targets: list[str], path: Path, request: pytest.FixtureRequest
) -> None:
    number, every = FILES.index(path), request.config.getoption("--every-architecture", default=False)
    jobs = [
        (target, launch)
        for place, target in enumerate(targets if every else chosen(targets, number))
        for launch in launches(path, target, place + number, every or target == targets[0])
    ]
    assert jobs, "no conformance sample is for this kernel"
    spills = SPILLS.get(stem(path), 0)  # spilled registers lie in the stack frame, too
    own = max(spills, STATES.get(stem(path), 0))
    allowed = Figures(THREAD, own, spills, SHARED if path in PORTABLE else STATIC)

    def checked(job: tuple[str, Launch]) -> list[str]:
        target, launch = job
        return [f"{launch.entry} for {target}: {fault}" for fault in faults(compiler, launch, target, allowed)]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [
            (fault, launch) for (_, launch), told in zip(jobs, pool.map(checked, jobs), strict=True) for fault in told
        ]
    shown = "\n".join(f"{fault}\n{launch.origin[2]}" for fault, launch in found[:3])
    assert not found, f"{len(found)} faults of {len(jobs)} cubins\n{shown}"


@pytest.mark.parametrize("path", FILES, ids=stem)
def test_an_older_compiler_takes_a_kernel(path: Path) -> None:
    """The extra [cuda12] brings another compiler than [cuda13]."""
    older = nvrtc.libraries()[1:] or pytest.skip("no second NVRTC: pip install nvidia-cuda-nvrtc-cu12")
    for compiler in older:
        for launch in launches(path, "sm_90", FILES.index(path), False):
            made = compiler.compile(launch.source, gpu.options("sm_90"))
            assert not made.failed, f"CUDA {compiler.version()} refuses {launch.entry}\n{made.log}"


@dataclass(frozen=True)
class Broken:
    """A kernel that does not compile or exceeds a limit, and the fault that is reported."""

    name: str
    told: str
    body: str
    helper: str = ""
    shared: int = SHARED


BOUNDS = '#undef IK_ENTRY\n#define IK_ENTRY(name) extern "C" __global__ void __launch_bounds__(1024, {}) name\n'
UNBOUND = '#undef IK_ENTRY\n#define IK_ENTRY(name) extern "C" __global__ void name\n'
HELD = """float v[{0}];
    for (int i = 0; i < {0}; i++)
        v[i] = x[i * p.length + IK_LOCAL_ID];
    IK_BARRIER();
    for (int i = 0; i < {0}; i++)
        y[i * p.length + IK_LOCAL_ID] = v[i];"""
BYTES = """IK_LOCAL_ARRAY(float, s, {});
    s[IK_LOCAL_ID] = x[IK_LOCAL_ID];
    IK_BARRIER();
    y[IK_LOCAL_ID] = s[p.length - IK_LOCAL_ID];"""
BROKEN = [
    Broken("spill", "bytes of registers spilled; allowed: 0", HELD.format(96)),
    Broken("registers", "allowed for blocks of 1024 threads: 64", HELD.format(96), UNBOUND),
    Broken(
        "indexed array",
        "bytes of memory of a thread's own; allowed: 0",
        HELD.format(20).replace("= v[i]", "= v[(i * i + p.length) % 20]"),
    ),
    Broken("shared memory", "40000 bytes of shared memory; allowed: 32768", BYTES.format(10000)),
    Broken("more than there is", "50000 bytes of shared memory; allowed: 49152", BYTES.format(12500), shared=STATIC),
    Broken("warning", "ptxas warning", "y[0] = x[0];", BOUNDS.format(9)),
    Broken("newer instruction", "requires .target sm_80", 'asm volatile("cp.async.wait_all;");'),
    Broken("no function", "nothing", "nothing();"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.name)
def test_a_broken_kernel_is_told(compiler: nvrtc.Nvrtc, tmp_path: Path, broken: Broken) -> None:
    launch = planted(
        tmp_path, "broken(groups=1, local=1024, length=y.numel)", broken.body, broken.helper, Traits(group=1024)
    )
    found = list(faults(compiler, launch, "sm_75", Figures(THREAD, 0, 0, broken.shared)))
    assert any(broken.told in fault for fault in found), found


def test_a_newer_instruction_is_one_of_newer_architectures(compiler: nvrtc.Nvrtc, tmp_path: Path) -> None:
    launch = planted(tmp_path, "broken(groups=1, local=64)", 'asm volatile("cp.async.wait_all;");')
    allowed = Figures(THREAD, 0, 0, 0)
    assert list(faults(compiler, launch, "sm_75", allowed)) and not list(faults(compiler, launch, "sm_80", allowed))


def test_a_log_without_figures_is_told() -> None:
    with pytest.raises(AssertionError, match="no figures in the compiler's log"):
        figures("ptxas info    : 0 bytes gmem")
