"""Launches of sort."""

from isokern.simt.launch import Call, bits, ceil_div
from isokern.simt.launch_shared import key_form

CHUNK = 1024  # places that one group merges


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    n, every = t.x.shape[-1], t.x.numel
    if every == 0:
        return
    form = key_form(t.x.dtype)
    t.x, t.y = bits(t.x), bits(t.y)
    keys = ceil_div(every * max(4, t.x.dtype.itemsize), 8) * 8
    call.workspace(keys + 16 * every)
    chunks, rounds = ceil_div(n, CHUNK), (min(n, CHUNK) - 1).bit_length()
    common = {"keys": keys, "span": 8 * every}
    call.launch(
        "sort_chunks",
        groups=every // n * chunks,
        local=64 if n <= 256 else 256,
        chunk=CHUNK,
        chunks=chunks,
        rounds=rounds,
        DESCENDING=int(call.attrs.descending),
        **common,
        **form,
    )
    which, run = rounds % 2, CHUNK
    while run < n:
        call.launch("sort_merge", items=every, run=run, which=which, **common)
        which, run = 1 - which, 2 * run
    call.launch("sort_write", items=every, which=which, **common)
