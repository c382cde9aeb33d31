"""Launches of gather."""

from isokern.simt.launch import Call, bits, ceil_div, coalesce, pieces, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    axis = call.attrs.axis % t.x.ndim
    rows = t.x.shape[call.attrs.axis]
    step = t.x.strides[call.attrs.axis]
    given = t.indices
    after = axis + t.indices.ndim
    still = tensor(t.x, t.y.shape, [*t.x.strides[:axis], *[0] * t.indices.ndim, *t.x.strides[axis + 1 :]], t.x.offset)
    where = tensor(t.indices, t.y.shape, [*[0] * axis, *t.indices.strides, *[0] * (t.y.ndim - after)], t.indices.offset)
    merged = coalesce([bits(t.y), bits(still), where])
    t.y = merged[0]
    t.x = merged[1]
    t.indices = merged[2]
    lines = merged[0].shape[-1] * 2 >= min(64, call.device.group)
    if lines and t.y.numel > 0:
        call.launch("gather_lines", groups=pieces(t.y), local=256, rows=rows, step=step)
    if not lines:
        call.launch("gather_elements", items=t.y.numel, rows=rows, step=step)
    parts = max(1, min(8 * call.device.units, given.numel // 2048))
    length = ceil_div(given.numel, parts)
    if parts > 1:
        call.workspace(8 * parts)
    if given.numel > 0 and parts == 1:
        call.launch(
            "gather_check",
            groups=1,
            local=256,
            y=None,
            x=None,
            indices=given,
            rows=rows,
            count=given.numel,
            length=length,
        )
    if parts > 1:
        call.launch(
            "gather_check",
            groups=parts,
            local=256,
            PARTS=1,
            y=None,
            x=None,
            indices=given,
            rows=rows,
            count=given.numel,
            length=length,
        )
        call.launch(
            "gather_report",
            groups=1,
            local=256,
            y=None,
            x=None,
            indices=given,
            rows=rows,
            count=given.numel,
            parts=parts,
        )
