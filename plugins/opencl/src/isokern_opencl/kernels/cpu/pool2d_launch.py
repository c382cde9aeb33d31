"""Launches of pool2d."""

from typing import Any

from isokern.simt.launch import Call, ceil_div, tensor


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    if t.y.numel == 0 or t.x.strides[3] != 1 or t.y.strides[3] != 1:
        call.refuse("rows do not lie along memory")
    bins, mean = call.op == "adaptive_avg_pool2d", call.op != "max_pool2d"
    oh, ow = t.y.shape[2:]
    n, c, h, w = t.x.shape
    if bins:
        if oh == ow == 1 and t.x.strides[2] == w:  # a dense plane is one row
            h, w = 1, h * w
            t.x = tensor(t.x, (n, c, h, w), (*t.x.strides[:2], 0, 1), t.x.offset)
        even = w % ow == 0
        kh, kw = h // oh + 2 * (h % oh > 0), w // ow + 2 * (w % ow > 0)
        step, spread = kw if even else 1, 1
    else:
        even = True
        kh, kw = call.attrs.kernel[0], call.attrs.kernel[-1]
        step, spread = (call.attrs.stride or call.attrs.kernel)[-1], call.attrs.dilation[-1]
    # The columns of y whose windows fit in a buffer of 8 KiB, which the steps of a window divide between them
    reach = (kw - 1) * spread
    per = 8192 // t.y.dtype.compute.itemsize // step // 16 * 16
    columns = min(ow, per - 32 - reach // step)
    wide = columns + reach // step if even else max(w, ow)
    fits = columns >= min(ow, 16) and wide <= per - 32 and (even or columns == ow)
    if fits and not (mean and max(kh, kw) > 16):
        rows, parts = t.y.numel // ow, ceil_div(ow, columns)
        values: dict[str, Any] = {"rows": rows, "parts": parts, "columns": columns, "wide": wide}
        high = min((per - 32) // wide, max(1, min(64, 512 // (wide * step))))
        taken = ceil_div(16384, columns * step * kh)
        groups = ceil_div(rows, taken) * parts
        call.launch("pool2d_rows", groups=groups, local=1, EVEN=int(even), **values, taken=taken, high=high)
    elif spread > 1 or kw < 16:
        call.refuse("windows of columns that lie apart, or far apart")
    else:
        taken = ceil_div(16384, kh * kw)
        call.launch("pool2d_runs", groups=ceil_div(t.y.numel, taken), local=1, outputs=t.y.numel, taken=taken)
