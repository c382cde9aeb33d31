"""Launches of embedding."""

from isokern.simt.launch import Call, coalesce, pieces, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    given, d = t.indices, t.y.shape[-1]
    rows, step = t.table.shape[0], t.table.strides[0]
    still = tensor(t.table, t.y.shape, [*[0] * given.ndim, t.table.strides[1]], t.table.offset)
    where = tensor(given, t.y.shape, [*given.strides, 0], given.offset)
    t.y, t.table, t.indices = coalesce([t.y, still, where], keep=1)
    if t.y.numel > 0:
        call.launch("embedding", groups=pieces(t.y), local=64 if d <= 512 else 256, rows=rows, step=step)
    if given.numel > 0:
        call.launch(
            "embedding_check", groups=1, local=256, y=None, table=None, indices=given, rows=rows, count=given.numel
        )
