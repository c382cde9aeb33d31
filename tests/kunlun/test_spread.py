"""Test that work is spread over all cores from 16 elements per core up, and below that over fewer cores."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest
from needs import kunlun

# Writing to shared memory or device memory counts as work; fetching tables of strides and indices does not
MEASURE = """
import json, sys
from isokern_kunlun_sim.cli.profile import measure
found = []
for op, *call in json.loads(sys.argv[1]):
    for launch in measure(op, call, None):
        if not launch.kernel.endswith("_check"):
            work = sum(bool({"LM2GM", "SM2GM", "GM2SM"} & core.keys()) for core in launch.per_core)
            found.append([launch.kernel, work, launch.document()])
print(json.dumps(found))
"""


def launches(calls: list[list[str]], settings: dict[str, str]) -> list[tuple[str, int, dict[str, Any]]]:
    """Return (kernel, number of cores that had work, counters) of each launch of the calls."""
    kunlun()
    environment = {**os.environ, "ISOKERN_PLUGINS": "kunlun_sim", **settings}
    command = [sys.executable, "-c", MEASURE, json.dumps(calls)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(kernel, work, document) for kernel, work, document in json.loads(done.stdout)]


def calls_of(rows: int, row: int) -> list[list[str]]:
    """Return calls that write rows * row elements in one launch each."""
    n, shape = rows * row, f"[{rows},{row}]"
    moved = [["rearrange", f"x={t}{shape}"] for t in ("F32", "F16", "U8", "I64")]
    strided = [["rearrange", f"x={t}{shape}:{row + 3},1"] for t in ("F32", "U8")]
    into = [["rearrange", f"x=F32{shape}", f"y=F32{shape}:{row + 3},1"]]
    turned = [["rearrange", f"x={t}{shape}:1,{rows}"] for t in ("F32", "F16", "U8", "I64")]
    scattered = [["rearrange", f"x=F32{shape}:{3 * row},3"]]
    flat = [["add", f"a={t}[{n}]", f"b={t}[{n}]"] for t in ("F32", "F16")]
    broadcast = [["add", f"a=F16{shape}", f"b=F16[{row}]"], ["mul", f"a=F32{shape}", "b=F32[1]"]]
    others = [
        ["cast", f"x=F32{shape}", "T=F16"],
        ["cast", f"x=U8{shape}", "T=I64"],
        ["fill", f"y=F32{shape}"],
        ["fill", f"y=BF16{shape}:{row + 1},1"],
        ["iota", f"y=I32{shape}"],
        ["copy_slice", f"x=F32[{n}]", f"count={n}"],
        ["concat", f"x=F32{shape}"],
        ["pad", f"x=F16[{rows - 2},{row - 2}]", "low=[1,1]", "high=[1,1]"],
        ["gather", f"x=F32[100,{row}]", f"indices=I64[{rows}]", "axis=0"],
        ["embedding", f"indices=I64[{rows}]", f"table=F32[100,{row}]", "T=F32"],
        ["generic", f"x=F16[{n}]", "maps=a->a", "body=x0 * 2", "U=F16"],
        ["generic", f"x=F32{shape}", "maps=ab->ba", "body=x0 * 2", "U=F32"],
    ]
    return moved + strided + into + turned + scattered + flat + broadcast + others


@pytest.mark.parametrize(("rows", "row"), [(96, 128), (64, 100), (5, 2461), (2500, 5), (40, 500)])
def test_all_cores_take_part(rows: int, row: int) -> None:
    calls = calls_of(rows, row)
    found = launches(calls, {})
    assert len(found) == len(calls)
    for call, (kernel, work, _) in zip(calls, found, strict=True):
        assert work >= min(768, math.ceil(rows * row / 16)), (call, kernel, work)


def test_the_device_says_how_many_cores_there_are() -> None:
    calls = calls_of(24, 128)
    for call, (kernel, work, document) in zip(calls, launches(calls, {"XPU_NUM_CLUSTER": "3"}), strict=True):
        assert work == document["device_cores"] == 192, (call, kernel, work)


def test_many_elements_are_moved_in_large_copies() -> None:
    """A core's share is moved in one copy, or in as many as fill its local memory, however finely it is split."""
    calls = [
        ["rearrange", "x=F32[768,1536]"],
        ["rearrange", "x=F32[96,1024]"],
        ["add", "a=F32[393216]", "b=F32[393216]"],
    ]
    found = launches(calls, {})
    assert [document["copies"]["LM2GM"]["mean_burst"] for _, _, document in found] == [6144, 512, 2048]
    for _, work, document in found:
        assert work == 768 and document["busiest_over_mean"] < 1.01


def test_lines_are_shared_only_where_there_are_too_few() -> None:
    calls = [["add", f"a=F16[{n}]", f"b=F16[{n}]"] for n in (12288, 24576, 30000)]
    per_line = [d["copies"]["LM2GM"]["bytes_per_line"] for _, _, d in launches(calls, {})]
    assert per_line[0] == 32 and per_line[1] == 64 and per_line[2] > 63
