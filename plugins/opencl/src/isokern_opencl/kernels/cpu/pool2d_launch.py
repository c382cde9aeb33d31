"""Launches of pool2d."""

from isokern.simt.launch import Call, ceil_div, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.y.numel == 0 or t.x.strides[3] != 1 or t.y.strides[3] != 1:
        call.refuse("rows do not lie along memory")
    bins = call.op == "adaptive_avg_pool2d"
    mean = call.op != "max_pool2d"
    oh = t.y.shape[2]
    ow = t.y.shape[3]
    flat = oh == ow == 1 and bins and (t.x.strides[2] == t.x.shape[3])
    t.x = (
        tensor(
            t.x,
            (t.x.shape[0], t.x.shape[1], 1, t.x.shape[2] * t.x.shape[3]),
            (t.x.strides[0], t.x.strides[1], 0, 1),
            t.x.offset,
        )
        if flat
        else t.x
    )
    h = t.x.shape[2]
    w = t.x.shape[3]
    even = not bins or t.x.shape[3] % ow == 0
    kh = h // oh + 2 * (h % oh > 0) if bins else call.attrs.kernel[0]
    kw = w // ow + 2 * (w % ow > 0) if bins else call.attrs.kernel[-1]
    steps = (1, 1) if bins else call.attrs.stride or call.attrs.kernel
    spread = 1 if bins else call.attrs.dilation[-1]
    step = steps[-1] if not bins else kw if even else 1
    reach = (kw - 1) * spread
    space = 8192 // t.y.dtype.compute.itemsize
    per = space // step // 16 * 16
    columns = min(ow, per - 32 - reach // step)
    wide = columns + reach // step if even else max(w, ow)
    fits = (
        columns >= min(ow, 16)
        and wide <= per - 32
        and (even or columns == ow)
        and (not (mean and (kh > 16 or kw > 16)))
    )
    if not fits and (spread > 1 or kw < 16):
        call.refuse("windows of columns that lie apart, or far apart")
    rows = t.y.numel // ow
    parts = ceil_div(ow, columns) if fits else 1
    high = min((per - 32) // wide, max(1, min(64, 512 // (wide * step)))) if fits else 1
    taken = ceil_div(16384, columns * step * kh) if fits else 1
    area = ceil_div(16384, kh * kw)
    if fits:
        call.launch(
            "pool2d_rows",
            groups=ceil_div(rows, taken) * parts,
            local=1,
            EVEN=even + 0,
            rows=rows,
            parts=parts,
            taken=taken,
            columns=columns,
            wide=wide,
            high=high,
        )
    if not fits:
        call.launch("pool2d_runs", groups=ceil_div(t.y.numel, area), local=1, outputs=t.y.numel, taken=area)
