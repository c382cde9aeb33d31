"""Run conformance cases of BF16 products with the variant amx_bf16 forced; print verdicts and failures as JSON."""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np

import isokern_cpu
from isokern.backend.discovery import device
from isokern.conformance.derive import operator_cases, unique
from isokern.conformance.run import Runner
from isokern.declare.operator import Sample
from isokern.dtypes import BF16, DType
from isokern.ops import find
from isokern.oracle import values
from isokern.oracle.cases import Case
from isokern.oracle.verdicts import Verdict

VARIANT = "amx_bf16"
TAKEN = ("contiguous", "rows", "permuted", "permuted_in", "permuted_out")
LARGER = [  # incomplete panels, an odd k, k in several blocks, several threads, epilogues
    ("matmul", {"a": (33, 1100), "b": (1100, 70)}, {}),
    ("matmul", {"a": (40, 513), "b": (513, 33)}, {}),
    ("matmul", {"a": (257, 130), "b": (130, 259)}, {}),
    ("matmul", {"a": (600, 300), "b": (300, 301)}, {}),
    ("gemm", {"a": (65, 1025), "b": (1025, 130), "bias": (130,), "c": (65, 130)}, {"activation": "silu", "alpha": 0.5}),
    ("gemm", {"a": (1025, 47), "b": (97, 1025)}, {"trans_a": True, "trans_b": True}),
    ("linear", {"x": (130, 257), "w": (131, 257), "bias": (131,)}, {}),
    ("linear", {"x": (40, 700), "w": (300, 700)}, {}),
]


def derived() -> list[Case]:
    """Return the cases that every variant gets; the variant declines small ones."""
    cases = [c for name in ("matmul", "gemm", "linear") for c in operator_cases(find(name))]
    return [replace(c, variant=VARIANT) for c in cases if c.calls and c.types == (BF16,)]


def larger(values: str) -> list[Case]:
    """Return cases that the variant must support."""
    cases = [Case(find(name), (BF16,), Sample(s, a), layout, values) for name, s, a in LARGER for layout in TAKEN]
    return [replace(c, variant=VARIANT) for c in cases]


def no_numbers(dtype: DType, subnormal: bool = True) -> np.ndarray:
    """Return special values without subnormal numbers, whose products go to another kernel."""
    return np.array([np.inf, -np.inf, np.nan]).astype(dtype.numpy)


def tiny(rng: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    """Draw values whose products, and most sums of them, are subnormal, so that another kernel computes them."""
    return rng.standard_normal(size) * 2.0**-66


def main() -> None:
    """Run all cases in this process."""
    cpu = device("cpu")
    library = ctypes.CDLL(isokern_cpu.get_library())
    configured, released = (ctypes.c_int64.in_dll(library, f"amx_{name}") for name in ("configured", "released"))
    document: dict[str, object] = {"verdicts": {}, "wrong": []}

    def run(name: str, cases: list[Case], must: bool = True, tiles: bool = True) -> None:
        runner, count = Runner(cpu), Counter()
        for case in unique(cases):
            before = configured.value
            outcome = runner.run(case)
            count[outcome.verdict.value] += 1
            if outcome.verdict.failed or (must and outcome.verdict is not Verdict.PASS):
                document["wrong"].append(f"{outcome.id}: {outcome.verdict.value}: {outcome.detail}")
            elif tiles and configured.value == before:
                document["wrong"].append(f"{outcome.id}: the tiles were not used")
        document["verdicts"][name] = count

    run("derived", derived(), must=False, tiles=False)
    run("drawn", larger("drawn"))
    with mock.patch.object(values, "special_values", no_numbers):
        run("no numbers", larger("special"))
    with mock.patch.dict(values._FLOATS, any=tiny):
        run("tiny", larger("drawn"), tiles=False)
    print(json.dumps({**document, "held": configured.value - released.value}))


if __name__ == "__main__":
    main()
