"""Test how the row kernels work: by vectors, with one launch for a sum and its norm, with prefetch, and with fences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from needs import kunlun

MEASURE = """
import json, sys
from isokern_kunlun_sim.cli.profile import measure
print(json.dumps([launch.document() for launch in measure(sys.argv[1], sys.argv[2:], None)]))
"""
# On two clusters, rows that fit twice, once and not at all; rows of a whole cluster; two launches; and no multiple of a
# vector. A core has more than one row
RUN = """
import numpy as np, isokern
rng = np.random.default_rng(3)
for shape in ((270, 64), (170, 256), (150, 500), (134, 700), (3, 5000), (1, 140000), (174, 37)):
    for dtype, bound in (("F32", 2e-6), ("F16", 4e-3)):
        a = rng.standard_normal((2, *shape)).astype(np.float32 if dtype == "F32" else np.float16)
        w = rng.standard_normal(shape[-1:]).astype(a.dtype)
        x, r, v = (isokern.tensor(t, dtype, device="kunlun_sim:0") for t in (*a, w))
        y, total = (t.numpy().astype(np.float64) for t in isokern.add_rms_norm(x, r, v, eps=1e-6))
        assert (total == (a[0].astype(np.float32) + a[1].astype(np.float32)).astype(a.dtype)).all(), (shape, dtype)
        def near(found, wanted, name):
            wrong = np.abs(found - wanted) / (1 + np.abs(wanted))
            assert wrong.max() < bound, (name, shape, dtype, wrong.max())
        def norm(x):
            x = x.astype(np.float64)
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w
        near(y, norm(total), "add_rms_norm")
        near(isokern.rms_norm(x, v, eps=1e-6).numpy(), norm(a[0]), "rms_norm")
        e = a[0].astype(np.float64)
        near(isokern.layer_norm(x, v, v, eps=1e-6).numpy(), \
(e - e.mean(-1, keepdims=True)) / np.sqrt(e.var(-1, keepdims=True) + 1e-6) * w + w, "layer_norm")
        e = np.exp(e - e.max(-1, keepdims=True))
        e /= e.sum(-1, keepdims=True)
        near(isokern.softmax(x).numpy(), e, "softmax")
        near(isokern.log_softmax(x).numpy(), np.log(e), "log_softmax")
"""


def environment(**settings: str) -> dict[str, str]:
    kunlun()
    return {**os.environ, "ISOKERN_PLUGINS": "kunlun_sim", **settings}


def launches(op: str, *call: str) -> list[dict[str, Any]]:
    """Return the counters of each launch of a call."""
    command = [sys.executable, "-c", MEASURE, op, *call]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_a_sum_and_its_norm_are_one_launch() -> None:
    (found,) = launches("add_rms_norm", "x=F32[1536,256]", "residual=F32[1536,256]", "w=F32[256]")
    size = 1536 * 256 * 4
    assert found["copies"]["GM2LM"]["bytes"] == 2 * size + 768 * 256 * 4  # the inputs once, and w once per core
    assert found["copies"]["LM2GM"]["bytes"] == 2 * size
    assert len(launches("add_rms_norm", "x=F32[1,140000]", "residual=F32[1,140000]")) == 2


@pytest.mark.quick("softmax-call2-3", "add_rms_norm-call3-4")
@pytest.mark.parametrize(
    ("op", "call", "loads"),
    [
        ("rms_norm", ["x=F32[768,256]", "w=F32[256]"], 3),
        ("layer_norm", ["x=F32[768,256]", "w=F32[256]", "bias=F32[256]"], 7),
        ("softmax", ["x=F32[768,256]"], 3),
        ("add_rms_norm", ["x=F32[768,256]", "residual=F32[768,256]"], 4),
    ],
)
def test_sums_and_scaling_are_vectors(op: str, call: list[str], loads: int) -> None:
    """Each 16 elements take `loads` vector loads; scalar loads serve softmax's exponentials and results of rows."""
    (found,) = launches(op, *call)
    assert found["vector_loads"] == loads * 768 * 256 // 16
    assert found["scalar_loads"] < 768 * 256 * (2 if op == "softmax" else 1)


@pytest.mark.parametrize("seed", ["0", *(pytest.param(s, marks=pytest.mark.full) for s in ("1", "2"))])
def test_nothing_is_used_before_its_fence(tmp_path: Path, seed: str) -> None:
    report = tmp_path / "findings"
    checks = {"ISOKERN_XPU_CHECK": "1", "ISOKERN_XPU_SEED": seed, "ISOKERN_XPU_REPORT": str(report)}
    settings = environment(XPU_NUM_CLUSTER="2", **checks)
    done = subprocess.run([sys.executable, "-c", RUN], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not report.exists() or report.read_text() == ""
