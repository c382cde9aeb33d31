"""Test 64-bit indices, which only huge tensors need: small conformance cases run with every plan taken as huge."""

from __future__ import annotations

import pytest

import isokern
from isokern.conformance.derive import device_cases
from isokern.conformance.run import Runner
from isokern.conformance.suite import quick
from isokern.oracle.verdicts import Verdict
from isokern.simt import selftest, source

STEMS = {
    "add_rms_norm": "add_rms_norm",
    "argmax": "argmax",
    "attention": "attention",
    "batch_norm": "batch_norm",
    "cache_update": "cache_update",
    "cast": "cast",
    "causal_conv1d": "causal_conv1d",
    "causal_softmax": "causal_softmax",
    "concat": "concat",
    "conv2d": "conv2d",
    "copy_slice": "copy_slice",
    "elementwise": "add",
    "embedding": "embedding",
    "fill": "fill",
    "gather": "gather",
    "gemm": "matmul",
    "generalized_delta_rule": "generalized_delta_rule",
    "generic": "generic",
    "grid_sample": "grid_sample",
    "group_norm": "group_norm",
    "iota": "iota",
    "layer_norm": "layer_norm",
    "logsumexp": "logsumexp",
    "lu_factor": "lu_factor",
    "matmul_id": "matmul_id",
    "matmul_integer": "matmul_integer",
    "matmul_transposed": "matmul_transposed",
    "pad": "pad",
    "pool2d": "max_pool2d",
    "quantize": "quantize",
    "random_bits": "random_bits",
    "random_sample": "random_sample",
    "rearrange": "copy",
    "recurrence": "gru_recurrence",
    "reduce": "reduce_sum",
    "rms_norm": "rms_norm",
    "rope": "rope",
    "sample_regions": "sample_regions",
    "scan": "scan",
    "scatter": "scatter",
    "selective_scan": "selective_scan",
    "softmax": "softmax",
    "solve_triangular": "solve_triangular",
    "sort": "sort",
    "suppress_overlaps": "suppress_overlaps",
    "topk": "topk",
    "weighted_gather": "weighted_gather",
}


def test_every_stem_is_here():
    assert {p.stem for p in source.KERNELS.glob("*.c")} == set(STEMS)


# One that computes each element alone, one that reduces, one that moves, one that finds its elements by indices
@pytest.mark.quick("elementwise", "softmax", "rearrange", "gather")
@pytest.mark.parametrize("operator", STEMS.values(), ids=STEMS)
def test_wide_indices(operator, monkeypatch):
    try:
        device = isokern.device("opencl:0")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
    every = quick(device_cases(device, [isokern.ops.find(operator)]))
    first = {c.dtype.split("-")[0] for c in every}
    wanted = {"F32", "Q4_0"} & first or {"U64", "I8"} & first  # random_bits and matmul_integer have no float
    cases = [c for c in every if c.dtype.split("-")[0] in wanted]
    monkeypatch.setattr(source, "NARROW", 0)
    runner = Runner(device)
    with selftest.suspend():
        outcomes = [runner.run(case) for case in cases]
    own = [o for o in outcomes if o.verdict is not Verdict.LOWERED]  # the stem's kernel may leave some calls to others
    assert [f"{o.detail}\n{o.repro}" for o in own if o.verdict is not Verdict.PASS] == []
    assert own
