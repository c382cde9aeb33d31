"""Launches of argmax."""

from isokern.simt.launch import Call, ceil_div


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors("place", "y")
    d = t.y.shape[-1]
    outputs = t.y.numel // max(1, d)
    columns = t.y.shape[-2]
    along = t.y.strides[-1] == 1 and d >= 16
    adjacent = t.y.strides[-2] == 1 and columns >= 16
    if t.y.numel == 0 or (not along and (not adjacent)):
        call.refuse("y does not lie along memory for 16 elements")
    if d >= 1 << 31:
        call.refuse("places of more than 32 bits")
    taken = max(1, 16384 // d) if along else 512
    tasks = ceil_div(outputs, taken) if along else outputs // columns * ceil_div(columns, taken)
    parts = max(1, min(ceil_div(4 * call.device.units, tasks), d // (8192 if along else 64)))
    length = ceil_div(d, parts)
    if parts > 1:
        call.workspace(16 * outputs * parts)
    shared = 1 if parts > 1 else 0
    if along:
        call.launch(
            "argmax_rows",
            groups=tasks * parts,
            local=1,
            tasks=tasks,
            outputs=outputs,
            taken=taken,
            length=length,
            PARTS=shared,
        )
    if not along:
        call.launch(
            "argmax_columns", groups=tasks * parts, local=1, tasks=tasks, outputs=outputs, length=length, PARTS=shared
        )
    if parts > 1:
        call.launch("argmax_join", items=outputs, outputs=outputs, parts=parts, PARTS=0)
