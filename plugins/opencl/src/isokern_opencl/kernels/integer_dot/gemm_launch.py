"""Launches of gemm."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "c")
    m = t.y.shape[-2]
    n = t.y.shape[-1]
    k = t.a.shape[-1]
    batch = math.prod(t.y.shape[:-2])
    if t.y.dtype.name not in ("I8", "U8"):
        call.refuse("dot products of bytes are for I8 and U8")
    if m * n < 16 or k < 16:
        call.refuse("too small to be packed")
    words = ceil_div(k, 4)
    call.workspace(4 * words * (m + n) * batch)
    call.launch("pack", items=batch * (m + n) * words, words=words, k=k, left=batch * m * words)
    call.launch("gemm", items=batch * ceil_div(m, 4) * ceil_div(n, 4), words=words, m=m, n=n, left=batch * m * words)
