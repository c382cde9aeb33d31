"""Launches of matmul_integer."""

import math
from typing import Any

from isokern.simt.launch import Call, bits, ceil_div
from isokern.simt.launch_shared import choose_tile


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "a_zero", "b_zero")
    m, n = t.y.shape[-2:]
    k, batch = t.a.shape[-1], math.prod(t.y.shape[:-2])
    words = ceil_div(k, 4)
    lefts, rights = (1 if all(s == 0 for s in x.strides[:-2]) else batch for x in (t.a, t.b))
    a_along, b_along = abs(t.a.strides[-1]) < abs(t.a.strides[-2]), abs(t.b.strides[-2]) < abs(t.b.strides[-1])
    signed_a, signed_b = t.a.dtype.kind == "i", t.b.dtype.kind == "i"
    needs_a = int(t.b_zero is not None or not signed_b)  # where a rest of b may be other than 0
    needs_b = int(t.a_zero is not None or not signed_a)
    zeros = {name: bits(x) for name in ("a_zero", "b_zero") if (x := getattr(t, name)) is not None}
    t.a, t.b, t.a_zero, t.b_zero = bits(t.a), bits(t.b), None, None
    lines_a, lines_b = lefts * m, rights * n
    right = lines_a * words
    sums_a = right + lines_b * words
    sums_b = sums_a + lines_a
    call.workspace(4 * (sums_b + lines_b))
    of_a: dict[str, Any] = {"along": a_along, "flip": 0 if signed_a else 128, "to": 0, "words": words}
    of_b: dict[str, Any] = {"along": b_along, "flip": 0 if signed_b else 128, "to": right, "words": words}
    call.launch("integer_pack_a", items=lines_a * words, y=None, b=None, **of_a)
    call.launch("integer_pack_b", items=lines_b * words, y=None, a=None, **of_b)
    rest: dict[str, Any] = {"a": None, "b": None, "words": words}
    if needs_a:
        call.launch("integer_sums", items=lines_a, **rest, lines=m, along=a_along, first=0, to=sums_a)
    if needs_b:
        call.launch("integer_sums", items=lines_b, **rest, lines=n, along=b_along, first=right, to=sums_b)
    known: dict[str, Any] = {
        **{"a": None, "b": None, **zeros, "PACKED": 1, "k": k, "words": words, "lefts": lefts, "rights": rights},
        **{"SIGNED_A": int(signed_a), "SIGNED_B": int(signed_b), "SUMS_OF_A": needs_a, "SUMS_OF_B": needs_b},
        **{"SHIFT_A": 0 if signed_a else 128, "SHIFT_B": 0 if signed_b else 128},
        **{"right": right, "sums_a": sums_a, "sums_b": sums_b, "a_along": a_along, "b_along": b_along},
    }
    rows, cols = choose_tile(call.device)
    if call.device.group >= 16 and m > rows // 4 and n > cols // 4:
        groups = batch * ceil_div(m, rows) * ceil_div(n, cols)
        call.launch("integer_tiles", groups=groups, local=256, TILE_ROWS=rows, TILE_COLS=cols, **known)
    else:
        call.launch("integer_items", items=t.y.numel, **known)
