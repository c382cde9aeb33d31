"""Launches of rearrange."""

import math

from isokern.simt.launch import Call, bits, ceil_div, pack


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    t.y, t.x = bits(t.y), bits(t.x)
    last = t.y.ndim - 1
    takes = pack([t.y, t.x], 16)
    along = t.x.strides[last] == 1 and takes > 1
    dense = [d for d in range(last) if t.x.strides[d] == 1 and min(t.y.shape[d], t.y.shape[last]) >= 32][:1]
    if t.y.numel == 0 or t.y.strides[last] != 1 or not (along or (dense and t.x.strides[last] != 1)):
        call.refuse("a tensor does not lie along memory by packs")
    if along:
        call.launch("rearrange_packs", items=ceil_div(t.y.numel, takes), EACH=takes, numel=t.y.numel)
        return
    others = [d for d in range(last) if d not in dense]
    transposed = t.x.permute([*others, last, *dense])
    t.y, t.x = t.y.permute([*others, *dense, last]), t.x.permute([*others, *dense, last])
    word = 8 if t.y.dtype.itemsize >= 4 else 4
    takes = min(pack([t.y], word), pack([transposed], word))
    squares = ceil_div(t.y.shape[-1], 32 * takes) * ceil_div(t.y.shape[-2], 32 * takes)
    call.launch("rearrange_squares", groups=math.prod(t.y.shape[:-2]) * squares, local=256, EACH=takes)
