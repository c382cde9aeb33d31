"""Every function of the kernel language against its definition, and what is not modelled against its message."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isokern_kunlun_sim import compiling

from . import language
from .kernels import ENTRY, Kernels, cxx
from .language import Row

GROUPS: dict[str, tuple[list[Row], list[str], str]] = {
    "simd": (language.simd_kl3(), ["xtdk_simd.h"], ""),
    "simd_kl2": (language.simd_kl2(), ["xtdk_simd.h"], "#define __arch_xpu2__"),
    "pairs": (language.pairs(), ["cluster_simd.h"], ""),
    "scalars": (language.scalars(), ["xtdk_math.h", "xtdk_fp16.h", "xtdk_bf16.h"], ""),
}
CASES = [
    pytest.param(group, k, id=f"{group}-{k}-{r.name}")
    for group, (rows, *_) in GROUPS.items()
    for k, r in enumerate(rows)
]


@pytest.fixture(scope="module", params=["fast", "checked"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kernels]:
    folder = tmp_path_factory.mktemp("language")
    found = {}
    for name, (rows, headers, first) in GROUPS.items():
        path = folder / f"{name}.xpu"
        path.write_text(language.source(rows, headers, first) + ENTRY)
        found[name] = Kernels(path, request.param)
    return found


@pytest.mark.parametrize(("group", "k"), CASES)
def test_function(built: dict[str, Kernels], group: str, k: int) -> None:
    row = GROUPS[group][0][k]
    out = np.full(128, 0xA7, np.uint8)
    assert built[group].run(k, language.input_bytes(), out) == 0
    got = out[: row.expected.nbytes].view(row.expected.dtype)
    want = row.expected
    if want.dtype.kind == "f" or want.dtype.itemsize == 2 and want.dtype.kind == "V":
        both_nan = np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
        same = (language.bits(got) == language.bits(want)) | both_nan
        if group == "scalars":
            same |= np.isclose(got, want, rtol=2**-22, atol=0)
    else:
        same = got == want
    assert same.all(), f"{row.code}\n got {got[~same]}\nwant {want[~same]}\nlanes {np.flatnonzero(~same)}"
