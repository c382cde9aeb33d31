"""Launches of rearrange."""

import math
from typing import Any

from isokern.simt.launch import Call, bits, ceil_div, tensor
from isokern.simt.launch_shared import is_large, launch_runs

NEAR = 128  # elements between those of a run, in y and x


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y, t.x = bits(t.y), bits(t.x)
    last, d, size = t.y.ndim - 1, t.y.shape[-1], t.y.dtype.itemsize
    if t.y.strides[last] != 1:
        call.refuse("y does not lie along memory")
    if t.x.strides[last] == 1 and d >= 16:
        launch_runs(call, "rearrange_runs", t.y)
        return
    dense = [i for i in range(last) if t.x.strides[i] == 1][:1]
    if d < 16:
        steps = {i: max(abs(t.x.strides[i]), t.y.strides[i]) for i in range(last) if t.y.shape[i] >= 16}
        long = min(steps, key=lambda i: steps[i], default=-1)
        if long < 0 or steps[long] > NEAR:
            call.refuse("no dim of 16 elements lies near memory's order in y and x")
        _launch_strides(call, t, [last, long])
        return
    if not dense or t.y.shape[dense[0]] < 16:
        _launch_strides(call, t, [*dense, last])
        return
    order = [*(i for i in range(last) if i not in dense), *dense, last]
    stream = is_large(t.y) and size > 1 and all(s * size % 64 == 0 for s in t.y.strides[:-1])
    t.y, t.x = t.y.permute(order), t.x.permute(order)
    high, wide = ceil_div(t.y.shape[-2], 128), ceil_div(d, 128)
    groups = math.prod(t.y.shape[:-2]) * high * wide
    call.launch("rearrange_squares", groups=groups, local=1, high=high, wide=wide, stream=stream)


def _launch_strides(call: Call, t: Any, inner: list[int]) -> None:
    """Launch the copy of runs along the last of the `inner` dims, for all elements of one before it."""
    order = [*(i for i in range(t.y.ndim) if i not in inner), *inner]
    y, x = t.y.permute(order), t.x.permute(order)
    if len(inner) == 1:
        y, x = (
            tensor(v, [*v.shape[:-1], 1, v.shape[-1]], [*v.strides[:-1], 0, v.strides[-1]], v.offset) for v in (y, x)
        )
    d, rows = y.shape[-1], math.prod(y.shape[:-2])
    taken, parts = max(1, 8192 // max(1, d * y.shape[-2])), ceil_div(d, 8192)
    groups = ceil_div(rows, taken) * parts if y.numel else 0
    call.launch("rearrange_strides", groups=groups, local=1, y=y, x=x, rows=rows, taken=taken, parts=parts)
