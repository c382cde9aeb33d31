"""Launches of generic: a matrix product in register tiles, or the body over lanes."""

import math
from typing import Any

from isokern.ops.generic import find_widest
from isokern.simt.launch import Call, ceil_div, count_parts
from isokern.simt.launch_shared import choose_rows, is_large


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "init", "*x")
    if t.y.ndim == 0 or t.y.shape.count(0) > 0:
        call.refuse("nothing to do, or one element")
    kept = sum(s != 0 for s in t.y.strides)
    if not launch_product(call, t, kept):
        launch_lanes(call, t, kept)


def launch_product(call: Call, t: Any, kept: int) -> bool:
    """Launch a sum of products of floats that is a matrix product (`nests.h`); return whether it is."""
    if call.op == "generic":
        product = call.attrs.combine == "sum" and call.attrs.body in ("(x0 * x1)", "(x1 * x0)")
    else:
        product = call.op in ("batch_matmul", "conv_2d_nchw_fchw")
    if not product or len(t.x) != 2 or t.x[0].dtype.kind != "f" or t.x[0].dtype is not t.x[1].dtype:
        return False
    if t.y.dtype.kind not in "fb" or find_widest(t.x, t.y).compute is not t.x[0].dtype.compute:
        return False
    a, b = t.x
    own = [i for i in range(kept) if (a.strides[i] == 0) != (b.strides[i] == 0)]
    transposed = bool(own) and b.strides[own[-1]] == 0
    if transposed:
        a, b = b, a
    rows, cols = [i for i in own if a.strides[i] != 0], [i for i in own if b.strides[i] != 0]
    others = [i for i in range(kept) if i not in own]
    high, wide, batch = (math.prod(t.y.shape[i] for i in loops) for loops in (rows, cols, others))
    d = math.prod(t.y.shape[kept:])
    size = a.dtype.compute.itemsize
    even = all(a.strides[r] == a.strides[rows[-1]] * math.prod(t.y.shape[i] for i in rows if i > r) for r in rows)
    dense = all(a.strides[i] == math.prod(t.y.shape[i + 1 :]) for i in range(kept, t.y.ndim))
    lies = even and dense and a.dtype.itemsize == size
    copied = 0 if lies else batch * high * d * size
    if high < 4 or wide < 8 or d < 4 or copied > 1 << 31:
        return False
    values: dict[str, Any] = {"rows": rows, "others": others, "high": high, "kept": kept, "d": d}
    macros: dict[str, Any] = {"TRANSPOSED": int(transposed), "LISTED": 0, "STEPS": 0, "HALVES": 0}
    if not lies:
        call.workspace(copied)
        call.launch("generic_left", all="x", groups=batch * high, local=1, COPIES=1, **macros, **values)
    panels = ceil_div(wide * size, 128)
    block = choose_rows(call.device, high, batch * panels)
    groups = batch * ceil_div(high, block) * panels
    values |= {"cols": cols, "wide": wide, "block": block}
    call.launch("generic_contract", all="x", groups=groups, local=1, LIES=int(lies), **macros, **values)
    return True


def launch_lanes(call: Call, t: Any, kept: int) -> None:
    """Launch a map or a reduction whose lanes are adjacent outputs or, as `lines`, terms of an output (`lanes.h`)."""
    reduces = call.op != "generic" or call.attrs.combine != "none"
    n, outputs, d = t.y.shape[-1], math.prod(t.y.shape[:kept]), math.prod(t.y.shape[kept:])
    lane = max(0, kept - 1)
    across = sum(min(32, abs(desc.strides[lane])) for desc in t.x)
    along = sum(min(32, abs(desc.strides[-1])) for desc in t.x)
    lines = reduces and n >= 16 and (outputs < 16 or across > along)
    if not lines and outputs < 16:
        call.refuse("fewer than 16 elements an output, and fewer than 16 outputs")
    width = t.y.shape[lane] if kept else 1
    listed = not lines and width < 16 and width < outputs
    lane = t.y.ndim - 1 if lines else lane
    read = dict(enumerate(t.x)) if reduces or t.init is None else {**dict(enumerate(t.x)), 8: t.init}
    steps = sum((desc.strides[lane] if 0 <= desc.strides[lane] < 3 else 3) << 2 * i for i, desc in read.items())
    halves = sum(1 << i for i, desc in read.items() if desc.dtype.name == "F16")
    dense = not listed and t.y.strides[lane] == 1
    if lines:
        count, each, pieces = outputs, d, d // n * ceil_div(n, 512)
    elif listed:
        count, each, pieces = ceil_div(outputs, 512), d * min(512, outputs), d
    else:
        count, each, pieces = outputs // width * ceil_div(width, 512), d * min(512, width), d
    taken = max(1, min(max(1, 16384 // each), count // (4 * call.device.units)))
    tasks = ceil_div(count, taken)
    macros: dict[str, Any] = {"LISTED": int(listed), "STEPS": steps, "HALVES": halves, "DENSE": int(dense)}
    values: dict[str, Any] = {"kept": kept, "count": count, "outputs": outputs, "taken": taken}
    if not reduces:
        call.launch("generic_map", all="x", groups=tasks, local=1, **macros, **values, stream=dense and is_large(t.y))
        return
    parts = count_parts(4 * call.device.units, tasks, pieces // 16)
    macros |= {"LINES": int(lines), "PARTS": int(parts > 1)}
    values |= {"tasks": tasks, "pieces": pieces, "length": ceil_div(pieces, parts)}
    call.launch("generic_reduce", all="x", groups=tasks * parts, local=1, **macros, **values)
    if parts > 1:
        call.workspace(4 * find_widest(t.x, t.y).compute.itemsize * outputs * parts)
        macros = {"ALONE": 1, "LISTED": 0, "STEPS": 0, "HALVES": 0}
        call.launch("generic_join", x=t.x[0], items=outputs, **macros, outputs=outputs, kept=kept, parts=parts)
