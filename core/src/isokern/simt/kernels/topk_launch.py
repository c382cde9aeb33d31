"""Launches of topk."""

from isokern.simt.launch import Call, bits, ceil_div
from isokern.simt.launch_shared import key_form


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.y.numel == 0:
        return
    n, k, form = t.x.shape[-1], t.y.shape[-1], key_form(t.x.dtype)
    t.x, t.y = bits(t.x), bits(t.y)
    rows, keys = t.y.numel // k, ceil_div(n * max(4, t.x.dtype.itemsize), 8) * 8
    row = keys + 16 * k
    call.workspace(row * rows)
    call.launch("topk", groups=rows, local=64 if n <= 1024 else 256, k=k, row=row, keys=keys, **form)
