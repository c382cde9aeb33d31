"""Launches of concat: one for each part, by packs of up to 16 bytes."""

from itertools import accumulate

from isokern.simt.launch import Call, bits, ceil_div, coalesce, pack, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "*parts")
    axis = call.attrs.axis % t.y.ndim
    starts = accumulate((part.shape[axis] for part in t.parts[:-1]), initial=0)
    pairs = []
    for start, part in zip(starts, t.parts, strict=True):
        place = t.y.offset + start * t.y.strides[axis] if part.numel else 0
        pairs.append(coalesce([bits(tensor(t.y, part.shape, t.y.strides, place)), bits(part)]))
    takes = [pack(pair, 16) if all(desc.strides[-1] == 1 for desc in pair) else 1 for pair in pairs]
    if min(takes) < 2:
        call.refuse("an input does not lie along memory by packs")
    for index, ((y, x), taken) in enumerate(zip(pairs, takes, strict=True)):
        if x.numel > 0:
            items = ceil_div(x.numel, taken)
            call.launch("concat_packs", each=("x", index), y=y, x=x, items=items, EACH=taken, numel=x.numel)
