"""Launches of matmul_integer on processors."""

import math
from typing import Any

from isokern.simt.launch import Call, bits, ceil_div
from isokern.simt.launch_shared import choose_rows


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "a", "b", "a_zero", "b_zero")
    m, n = t.y.shape[-2:]
    k, batch = t.a.shape[-1], math.prod(t.y.shape[:-2])
    words, panels = ceil_div(k, 4), ceil_div(n, 32)
    lefts, rights = (1 if all(s == 0 for s in x.strides[:-2]) else batch for x in (t.a, t.b))
    signed_a, signed_b = t.a.dtype.kind == "i", t.b.dtype.kind == "i"
    zeros = {name: bits(x) for name in ("a_zero", "b_zero") if (x := getattr(t, name)) is not None}
    t.a, t.b, t.a_zero, t.b_zero = bits(t.a), bits(t.b), None, None
    column_sums = rights * panels * words * 32
    left = column_sums + rights * panels * 32
    row_sums = left + lefts * m * words
    if row_sums + lefts * m > 1 << 29:
        call.refuse("panels of more than 2 GiB")
    call.workspace(4 * (row_sums + lefts * m))
    groups = rights * ceil_div(words, 16) * ceil_div(panels, 8)
    call.launch("integer_right", groups=groups, local=1, a=None, words=words, flip=0 if signed_b else 128)
    none: dict[str, Any] = {"a": None, "b": None}
    call.launch("integer_right_sums", groups=rights * panels, local=1, **none, words=words, to=column_sums)
    groups = lefts * ceil_div(m, 8)
    flip = 128 if signed_a else 0
    call.launch("integer_left", groups=groups, local=1, b=None, words=words, flip=flip, to=left, sums=row_sums)
    block = choose_rows(call.device, m, batch * panels)
    macros = {"SIGNED_A": int(signed_a), "SIGNED_B": int(signed_b)}
    shifts = {"SHIFT_A": -128 if signed_a else 0, "SHIFT_B": 0 if signed_b else 128}
    at = {"left": left, "row_sums": row_sums, "column_sums": column_sums}
    known: dict[str, Any] = {**none, **zeros, **macros, **shifts, **at, "words": words, "k": k, "block": block}
    groups = batch * ceil_div(m, block) * panels
    call.launch("integer_tiles", groups=groups, local=1, **known, lefts=lefts, rights=rights)
