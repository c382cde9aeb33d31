"""Launches of layer_norm."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.y.strides[-1] != 1 or t.x.strides[-1] != 1:
        call.refuse("rows do not lie along memory")
    if any(desc is not None and desc.strides[-1] != 1 for desc in (t.w, t.bias)):
        call.refuse("w or bias is strided")
    d = max(1, t.y.shape[-1])
    rows = t.y.numel // d
    taken = max(1, 16384 // d)
    large = t.y.numel * t.y.dtype.itemsize >= 2097152
    call.launch("layer_norm", groups=ceil_div(rows, taken), local=1, rows=rows, taken=taken, large=large)
