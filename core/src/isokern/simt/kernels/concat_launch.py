"""Launches of concat: one for each part, by lines where they are long enough for a group, else by elements."""

from itertools import accumulate

from isokern.simt.launch import Call, bits, coalesce, pieces, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "*parts")
    axis = call.attrs.axis % t.y.ndim
    starts = accumulate((part.shape[axis] for part in t.parts[:-1]), initial=0)
    for index, (start, part) in enumerate(zip(starts, t.parts, strict=True)):
        place = t.y.offset + start * t.y.strides[axis] if part.numel else 0
        y, x = coalesce([bits(tensor(t.y, part.shape, t.y.strides, place)), bits(part)])
        if y.shape[-1] * 2 < min(64, call.device.group):
            call.launch("concat_elements", each=("x", index), y=y, x=x, items=y.numel)
        elif part.numel > 0:
            call.launch("concat_lines", each=("x", index), y=y, x=x, groups=pieces(y), local=256)
