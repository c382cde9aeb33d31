"""Launches of random_sample."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    v = t.logits.shape[-1]
    rows = t.logits.numel // max(1, t.logits.shape[-1])
    remaining = call.attrs.top_k if 0 < call.attrs.top_k < t.logits.shape[-1] else 0
    keys = ceil_div(4 * v, 8) * 8
    row = ceil_div(4 * v, 8) * 8 + 16 * remaining
    group = 64 if v <= 1024 else 256
    if rows > 0:
        call.workspace((16 + row) * rows)
    call.launch("random_sample_keys", groups=rows, local=group, rows=rows, row=row)
    if call.attrs.temperature == 0:
        call.launch("random_sample_greedy", groups=rows, local=group, rows=rows, row=row)
    if remaining > 0 and call.attrs.temperature != 0:
        call.launch("random_sample_top_k", groups=rows, local=group, rows=rows, remaining=remaining, keys=keys, row=row)
    if call.attrs.temperature != 0:
        call.launch("random_sample", groups=rows, local=group, rows=rows, remaining=remaining, keys=keys, row=row)
    if rows > 0:
        call.launch("random_sample_report", groups=1, local=256, rows=rows)
