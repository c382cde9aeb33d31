"""Launches of generic."""

import math

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("y", "init", "*x")
    sums = t.init is not None
    kept = sum([s != 0 for s in t.y.strides]) if t.init is not None else t.y.ndim
    n = t.y.shape[-1]
    outputs = math.prod(t.y.shape[:kept])
    d = math.prod(t.y.shape[kept:])
    size = t.x[0].dtype.compute.itemsize
    if t.y.ndim == 0 or outputs == 0 or d == 0:
        call.refuse("nothing to do, or one element")
    product = call.op in ("batch_matmul", "conv_2d_nchw_fchw") or (
        call.op == "generic" and call.attrs.combine == "sum" and (call.attrs.body in ("(x0 * x1)", "(x1 * x0)"))
    )
    product = product and len(t.x) == 2 and (t.x[0].dtype.kind == "f")
    b = t.x[-1]
    a = t.x[0]
    own = [i for i in range(kept) if (a.strides[i] == 0) != (b.strides[i] == 0)] if product else []
    transposed = len(own) > 0 and b.strides[own[-1]] == 0
    a = t.x[1] if transposed else t.x[0]
    b = t.x[0] if transposed else t.x[-1]
    rows = [i for i in own if a.strides[i] != 0]
    cols = [i for i in own if b.strides[i] != 0]
    others = [i for i in range(kept) if i not in own]
    high = math.prod([t.y.shape[i] for i in rows])
    wide = math.prod([t.y.shape[i] for i in cols])
    batch = math.prod([t.y.shape[i] for i in others])
    even = all(a.strides[r] == a.strides[rows[-1]] * math.prod([t.y.shape[i] for i in rows if i > r]) for r in rows)
    lies = (
        even
        and a.dtype.itemsize == size
        and all(a.strides[i] == math.prod(t.y.shape[i + 1 :]) for i in range(kept, t.y.ndim))
    )
    copied = 0 if lies else batch * high * d * size
    contracts = high >= 4 and wide >= 8 and (d >= 4) and (copied <= 1 << 31)
    panels = ceil_div(wide * size, 128)
    wanted = ceil_div(4 * call.device.units, max(1, batch * panels))
    block = min(64, 8 * ceil_div(max(1, high), 8 * max(1, wanted, ceil_div(high, 64))))
    if contracts:
        call.workspace(copied)
    if contracts and (not lies):
        call.launch(
            "generic_left",
            all="x",
            groups=batch * high,
            local=1,
            TRANSPOSED=transposed + 0,
            COPIES=1,
            LISTED=0,
            STEPS=0,
            rows=rows,
            others=others,
            high=high,
            kept=kept,
            d=d,
        )
    if contracts:
        call.launch(
            "generic_contract",
            all="x",
            groups=batch * ceil_div(high, block) * panels,
            local=1,
            TRANSPOSED=transposed + 0,
            LIES=lies + 0,
            LISTED=0,
            STEPS=0,
            rows=rows,
            cols=cols,
            others=others,
            high=high,
            wide=wide,
            kept=kept,
            d=d,
            block=block,
        )
    lane = max(0, kept - 1)
    width = t.y.shape[lane] if kept else 1
    across = sum([min(32, abs(desc.strides[lane])) for desc in t.x])
    along = sum([min(32, abs(desc.strides[-1])) for desc in t.x])
    lines = sums and n >= 16 and (outputs < 16 or across > along)
    tiles = not lines
    if tiles and outputs < 16:
        call.refuse("fewer than 16 elements an output, and fewer than 16 outputs")
    listed = tiles and width < 16 and (width < outputs)
    lane = t.y.ndim - 1 if lines else lane
    steps = sum([(desc.strides[lane] if 0 <= desc.strides[lane] < 3 else 3) << 2 * i for i, desc in enumerate(t.x)])
    dense = not listed and t.y.strides[lane] == 1
    count = outputs if lines else ceil_div(outputs, 512) if listed else outputs // width * ceil_div(width, 512)
    taken = max(1, 16384 // d) if lines else max(1, 16384 // (d * min(512, outputs if listed else width)))
    taken = max(1, min(taken, count // (4 * call.device.units)))
    tasks = ceil_div(count, taken)
    pieces = d // n * ceil_div(n, 512) if lines else d
    parts = max(1, min(ceil_div(4 * call.device.units, tasks), pieces // 16)) if sums else 1
    length = ceil_div(pieces, parts)
    large = dense and t.y.numel * t.y.dtype.itemsize >= 2097152
    if parts > 1 and (not contracts):
        call.workspace(4 * size * outputs * parts)
    if not sums:
        call.launch(
            "generic_map",
            all="x",
            groups=tasks,
            local=1,
            LISTED=listed + 0,
            STEPS=steps,
            DENSE=dense + 0,
            kept=kept,
            count=count,
            outputs=outputs,
            taken=taken,
            stream=large,
        )
    reduces = sums and (not contracts)
    if reduces:
        call.launch(
            "generic_reduce",
            all="x",
            groups=tasks * parts,
            local=1,
            LINES=lines + 0,
            LISTED=listed + 0,
            STEPS=steps,
            DENSE=dense + 0,
            PARTS=int(parts > 1),
            kept=kept,
            count=count,
            outputs=outputs,
            taken=taken,
            tasks=tasks,
            pieces=pieces,
            length=length,
        )
    if reduces and parts > 1:
        call.launch("generic_join", x=t.x[0], items=outputs, outputs=outputs, kept=kept, parts=parts, LISTED=0, STEPS=0)
