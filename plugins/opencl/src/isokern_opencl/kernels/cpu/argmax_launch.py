"""Launches of argmax."""

from typing import Any

from isokern.simt.launch import Call, ceil_div, count_parts


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("place", "y")
    columns, d = t.y.shape[-2:]
    along = t.y.strides[-1] == 1 and d >= 16
    if t.y.numel == 0 or not (along or (t.y.strides[-2] == 1 and columns >= 16)):
        call.refuse("y does not lie along memory for 16 elements")
    if d >= 1 << 31:
        call.refuse("places of more than 32 bits")
    outputs = t.y.numel // d
    taken = max(1, 16384 // d) if along else 512
    tasks = ceil_div(outputs, taken) if along else outputs // columns * ceil_div(columns, taken)
    parts = count_parts(4 * call.device.units, tasks, d // (8192 if along else 64))
    values: dict[str, Any] = {"tasks": tasks, "outputs": outputs, "length": ceil_div(d, parts), "PARTS": int(parts > 1)}
    if along:
        call.launch("argmax_rows", groups=tasks * parts, local=1, **values, taken=taken)
    else:
        call.launch("argmax_columns", groups=tasks * parts, local=1, **values)
    if parts > 1:
        call.workspace(16 * outputs * parts)
        call.launch("argmax_join", items=outputs, outputs=outputs, parts=parts, PARTS=0)
