"""Launches of embedding."""

from isokern.simt.launch import Call, coalesce, pieces, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    rows = t.table.shape[0]
    step = t.table.strides[0]
    given = t.indices
    d = t.y.shape[-1]
    still = tensor(t.table, t.y.shape, [*[0] * t.indices.ndim, t.table.strides[1]], t.table.offset)
    where = tensor(t.indices, t.y.shape, [*t.indices.strides, 0], t.indices.offset)
    merged = coalesce([t.y, still, where], keep=1)
    t.y = merged[0]
    t.table = merged[1]
    t.indices = merged[2]
    if t.y.numel > 0:
        call.launch("embedding", groups=pieces(t.y), local=64 if d <= 512 else 256, rows=rows, step=step)
    if given.numel > 0:
        call.launch(
            "embedding_check", groups=1, local=256, y=None, table=None, indices=given, rows=rows, count=given.numel
        )
