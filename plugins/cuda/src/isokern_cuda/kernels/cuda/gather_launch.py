"""Launches of gather."""

from isokern.simt.launch import Call, bits, ceil_div, coalesce, pack, tensor


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
    whole = pack(merged[:2], 16)
    takes = max([k for k in (1, 2, 4, 8, 16) if k <= whole and step % k == 0])
    if (
        t.y.numel == 0
        or t.y.strides[-1] != 1
        or t.x.strides[-1] != 1
        or (t.indices.strides[-1] != 0)
        or (t.y.shape[-1] % takes != 0)
        or (takes < 2)
    ):
        call.refuse("lines do not lie along memory by packs")
    call.launch("gather_packs", items=t.y.numel // takes, EACH=takes, rows=rows, step=step)
    parts = max(1, min(8 * call.device.units, given.numel // 2048))
    length = ceil_div(given.numel, parts)
    if parts > 1:
        call.workspace(8 * parts)
    if given.numel > 0 and parts == 1:
        call.launch(
            "gather_check",
            EACH=1,
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
            EACH=1,
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
            EACH=1,
            groups=1,
            local=256,
            y=None,
            x=None,
            indices=given,
            rows=rows,
            count=given.numel,
            parts=parts,
        )
