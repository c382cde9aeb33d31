"""Launches of matmul_transposed on processors."""

import math
from typing import Any

from isokern.simt.launch import Call, ceil_div, tensor
from isokern.simt.launch_shared import choose_rows


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "bias", "added")
    if t.b.dtype.block == 1:
        _launch_tiles(call, t)
        return
    if call.op == "matmul_mixed":
        call.refuse("weights in blocks along the columns")
    if t.b.dtype.storage:
        call.refuse("blocks that are only decoded")
    n, k = t.y.shape[-1], t.a.shape[-1]
    m = t.y.numel // max(1, n)
    down = 1 if m == 1 else 2 if m < 4 else 4
    macros: dict[str, Any] = {"ROUNDED": int(call.attrs.lhs_quantization == "q8_0")}
    call.workspace(4 * m * k)
    if m * k != 0:
        call.launch("matmul_rows", groups=m * ceil_div(k, 2048), local=1, **macros, b=None, k=k)
    macros |= {"ACROSS": 4 // down, "DOWN": down, "EMPTY": int(m * k == 0)}
    call.launch("matmul_blocks", groups=ceil_div(n, 16), local=1, **macros, a=None, k=k, m=m)


def _launch_tiles(call: Call, t: Any) -> None:
    """Launch the product with weights that are not in blocks."""
    m, n = t.y.shape[-2:]
    k, batch, panels = t.a.shape[-1], math.prod(t.y.shape[:-2]), ceil_div(n, 32)
    if k == 0:
        call.refuse("sums of no products")
    row, col = t.b.strides if call.op == "matmul_mixed" else reversed(t.b.strides)
    b = tensor(t.b, (k, n), (row, col), t.b.offset)
    packed = m * batch > 64
    at = panels * k * 128 if packed else 0
    size = at + batch * m * k * 4
    if size > 1 << 31:
        call.refuse("panels of more than 2 GiB")
    call.workspace(size)
    others: dict[str, Any] = {name: None for name in ("bias", "added") if getattr(t, name) is not None}
    if packed:
        groups = ceil_div(panels, 8) * ceil_div(k, 64)
        call.launch("weights_right", groups=groups, local=1, SOURCE="b", a=None, b=b, **others)
    groups = batch * ceil_div(m, 128) * ceil_div(k, 64)
    call.launch("weights_left", groups=groups, local=1, SOURCE="a", b=None, **others, at=at)
    block = choose_rows(call.device, m, batch * panels)
    known: dict[str, Any] = {"a": None, "b": b, "k": k, "block": block, "at": at}
    groups = batch * ceil_div(m, block) * panels
    call.launch("weights_tiles", groups=groups, local=1, SOURCE="b", PACKED=int(packed), **known)
