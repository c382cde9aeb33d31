"""Test that faults in many shapes of cooperating kernels are found, and that the correct kernels have no finding."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SOURCE, MARKED = (Path(__file__).with_name(name) for name in ("shapes.xpu", "model_shapes.xpu"))
SM, GM, UNWRITTEN = "race-sm", "race-gm", "uninitialised"
COPY = "copy-destination"
# For each faulty variant, the rules of which at least one has to be found
FAULTS: dict[str, list[set[str]]] = {
    "tree_reduction": [{SM}, {UNWRITTEN, "sm-bounds"}, {SM}],
    "atomic_reduction": [{UNWRITTEN}, {SM}, {SM}, {SM}],
    "ring_of_slots": [{SM}, {SM}, {SM}, {SM}, {SM}, {SM, UNWRITTEN}],
    "ticketed_queue": [{SM}, {SM}, {SM}],
    "locked_append": [{SM}, {SM}, {SM}],
    "histogram": [{UNWRITTEN}, {SM}, {SM}, {SM}],
    "prefix_sum": [{SM}, {SM}, {SM}],
    "transposed_tiles": [{SM}, {GM}, {SM}],
    "stencil_with_halo": [{UNWRITTEN, "lm-bounds"}, {COPY}, {GM}],
    "local_halo": [{UNWRITTEN}],
    "double_buffer": [{COPY}, {"copy-overlap", COPY}, {"copy-source"}],
    "broadcast": [{SM}, {SM}],
    "argmax_of_structures": [{UNWRITTEN}, {SM}],
    "a_line_for_each_core": [{UNWRITTEN}, {SM}],
    "structures_to_global": [{"uninitialised-copy"}, set()],
    "rounded_up_copy": [{UNWRITTEN}, {UNWRITTEN}],
    "padded_output": [{"uninitialised-copy"}],
    "rounded_up_end": [{"uninitialised-rounding"}],
    "vector_partial_sums": [{UNWRITTEN}, {"vector-unfenced"}],
    "group_of_four": [{SM}, {SM}],
    "permutation": [{GM}, {GM}],
    "token_ring": [{SM}, {SM}, {"endless"}],
    "barrier_by_counting": [{SM}, {SM}, {SM}],
    "exchange_through_global": [{GM}, {GM}, {GM}],
    "staged_tiles": [{SM}, {SM}, {SM, COPY}],
    "maximum_by_links": [{SM}, {SM}],
    "shared_work_counter": [{SM}],
    "slots_by_global_tickets": [{GM}],
    "three_stages": [{SM}, {SM}, {SM}],
    "softmax_over_cores": [{SM}, {SM}, {SM}],
    "bitonic_sort": [{SM}, {SM}],
    "product_tiles": [{SM}, {SM}],
    "lock_in_global_memory": [{GM}, {GM}],
    "weights_in_shared_memory": [{SM}, {COPY}],
    "halves_that_meet": [{"barrier-deadlock", "barrier-divergent", SM}, {SM}],
    "last_core_finishes": [{SM}, {SM}],
    "flag_read_by_a_lock": [{SM}],
    "last_cluster_finishes": [{GM}, {GM}],
}


def read_marks() -> dict[str, dict[int, set[tuple[str, str]]]]:
    """Return the rules, with the places of which at least one has to be told, by shape and fault."""
    found: dict[str, dict[int, set[tuple[str, str]]]] = {}
    for at, line in enumerate(MARKED.read_text(encoding="utf-8").splitlines(), 1):
        if shape := re.match(r"SHAPE\((\w+)\)", line):
            faults = found.setdefault(shape[1], {})
        for wrong, rule in re.findall(r" (\d):([\w-]+)", line.partition("//!")[2]):
            faults.setdefault(int(wrong), set()).add((rule, f"{MARKED.name}:{at}"))
    return found


MARKS = read_marks()
VARIANTS = [
    *((name, wrong) for name, faults in FAULTS.items() for wrong in range(len(faults) + 1)),
    *((name, wrong) for name, faults in MARKS.items() for wrong in [0, *sorted(faults)]),
]


def test_every_kernel_has_its_line() -> None:
    assert list(FAULTS) == re.findall(r"^SHAPE\((\w+)\)", SOURCE.read_text(encoding="utf-8"), re.M)


def test_every_fault_has_its_marks() -> None:
    _, *shapes = re.split(r"^SHAPE\((\w+)\)", MARKED.read_text(encoding="utf-8"), flags=re.M)
    bodies = zip(shapes[::2], shapes[1::2], strict=True)
    faults = {name: set(map(int, re.findall(r"WRONG [!=]= (\d)", body))) for name, body in bodies}
    assert faults == {name: set(marked) for name, marked in MARKS.items()}


@pytest.fixture(scope="session")
def shapes(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile all variants to one checked library, with a function that launches each."""
    from needs import cxx

    from isokern_kunlun_sim import compiling

    folder = tmp_path_factory.mktemp("shapes")
    launches = [
        f'    case {i}: return ::xpusim::kernel({name}<{wrong}>, "{name}-{wrong}").on(2, 64)(in, out, scratch, n);\n'
        for i, (name, wrong) in enumerate(VARIANTS)
    ]
    behind = (
        'extern "C" int launch(int variant, float *in, float *out, float *scratch, int n)\n'
        f"{{\n    switch (variant) {{\n{''.join(launches)}    default: return -1;\n    }}\n}}\n"
    )
    made = [compiling.kernel_object(cxx(), SOURCE, "checked", folder, [], behind=behind)]
    compiling.library(cxx(), folder / "shapes.so", made, "checked")
    return folder / "shapes.so"


def find(runtime: Path, shapes: Path, folder: Path, seed: int, variants: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Run variants, each on a device of its own, and return the findings by variant."""
    report = folder / "findings.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ISOKERN", "XPU"))}
    environment |= {"ISOKERN_XPU_CHECK": "1", "ISOKERN_XPU_SEED": str(seed), "ISOKERN_XPU_REPORT": str(report)}
    environment["ISOKERN_XPU_DEVICES"] = str(len(variants))
    command = [sys.executable, __file__, str(runtime), str(shapes), *map(str, variants)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[dict[str, Any]]] = {}
    for line in report.read_text().splitlines() if report.exists() else []:
        finding = json.loads(line)
        found.setdefault(finding["kernel"], []).append(finding)
    return found


def launch_variants(runtime: str, shapes: str, variants: list[int]) -> None:
    """Launch variants, each on a device of its own, and read their output."""
    xpu = ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    kernels = ctypes.CDLL(shapes)
    room = 16384
    values = (ctypes.c_float * room)(*(float(i * 37 % 101) for i in range(room)))
    zeros = (ctypes.c_float * room)()
    for device, variant in enumerate(variants):
        assert xpu.xpu_set_device(device) == 0
        pointers = [ctypes.c_void_p() for _ in range(3)]
        for pointer, given in zip(pointers, (values, None, zeros), strict=True):
            assert xpu.xpu_malloc(ctypes.byref(pointer), ctypes.c_uint64(4 * room), 0) == 0
            if given is zeros:  # counters and locks; the rest is fresh
                assert xpu.xpu_memcpy(pointer, given, ctypes.c_uint64(128), 1) == 0
            elif given is not None:
                assert xpu.xpu_memcpy(pointer, given, ctypes.c_uint64(4 * room), 1) == 0
        assert kernels.launch(variant, *pointers, 1024) == 0
        xpu.xpu_wait(None)
        xpu.xpu_memcpy((ctypes.c_float * room)(), pointers[1], ctypes.c_uint64(4 * room), 0)


def find_all(runtime: Path, shapes: Path, folder: Path, seed: int) -> dict[str, set[tuple[str, str]]]:
    """Run all variants under one seed, and return the rules that each broke, with places; a correct one breaks none."""
    found: dict[str, list[dict[str, Any]]] = {}
    for begin in range(0, len(VARIANTS), 60):  # there are at most 64 devices
        part = folder / f"{seed}-{begin}"
        part.mkdir()
        found |= find(runtime, shapes, part, seed, list(range(len(VARIANTS)))[begin : begin + 60])
    correct = {f"{name}-0" for name, _ in VARIANTS}
    correct |= {f"{name}-{wrong}" for name, faults in FAULTS.items() for wrong, r in enumerate(faults, 1) if not r}
    assert {kernel: found[kernel] for kernel in correct & set(found)} == {}
    return {kernel: {(f["rule"], Path(f["place"]["where"]).name) for f in of} for kernel, of in found.items()}


def missed_marks(found: dict[str, set[tuple[str, str]]]) -> dict[str, set[tuple[str, str]]]:
    """Return the marked faults that were told at none of their lines, with these and with what was told instead."""
    return {
        f"{name}-{wrong}": expected | found.get(f"{name}-{wrong}", set())
        for name, faults in MARKS.items()
        for wrong, expected in faults.items()
        if not expected & found.get(f"{name}-{wrong}", set())
    }


@pytest.mark.parametrize("seeds", [(2, 3), pytest.param(range(4), marks=pytest.mark.full)], ids=["two", "four"])
def test_faults_are_found_in_a_few_schedules_and_correct_kernels_pass(
    runtime: Path, shapes: Path, tmp_path: Path, seeds: Sequence[int]
) -> None:
    schedules = [find_all(runtime, shapes, tmp_path, seed) for seed in seeds]
    missed = {
        f"{name}-{wrong}": rules
        for name, faults in FAULTS.items()
        for wrong, rules in enumerate(faults, 1)
        if rules
        if not any(rules & {rule for rule, _ in found.get(f"{name}-{wrong}", set())} for found in schedules)
    }
    assert missed == {}
    assert [missed_marks(found) for found in schedules] == [{}] * len(seeds)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4, 24))
def test_correct_kernels_pass_and_marked_faults_are_told_in_other_schedules(
    runtime: Path, shapes: Path, tmp_path: Path, seed: int
) -> None:
    assert missed_marks(find_all(runtime, shapes, tmp_path, seed)) == {}


if __name__ == "__main__":
    launch_variants(*sys.argv[1:3], list(map(int, sys.argv[3:])))
