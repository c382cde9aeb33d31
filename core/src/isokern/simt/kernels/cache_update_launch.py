"""Launches of cache_update and paged_cache_update."""

from isokern.simt.launch import Call, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "x", "positions")
    x, y, unit, paged = t.x, t.y, t.y.dtype.block, call.op == "paged_cache_update"
    steps, spare = y.strides, y.shape[1] - x.shape[1]
    page, rows = 0, 1
    if paged:  # a row's place is its page's, and none of x's first dim
        steps, spare = (0, *y.strides[1:]), y.shape[0] * y.shape[1] - 1
        page, rows = y.strides[0], max(1, y.shape[1])
    if x.numel > 0:
        own = x.numel // x.shape[0] // unit
        values = {"own": own, "step": y.strides[1], "spare": spare, "page": page, "rows": rows}
        still = tensor(y, x.shape, steps, y.offset)
        call.launch("cache_update", items=x.numel // unit, UNIT=unit, y=still, **values)
    if t.positions.numel > 0:
        call.launch("cache_update_check", groups=1, local=64, y=None, x=None, spare=spare)
