"""Launches of recurrence."""

from typing import Any

from isokern.simt.launch import Call, ceil_div

ALONE = 1 << 18  # products of a row's step from which several groups share it
STEPS = 1 << 10  # launches at most


def launch(call: Call) -> None:
    """Ask for the launches of a call."""
    t = call.tensors()
    steps, batch, n = t.x.shape[:3]
    width, h = t.r.shape[1:]
    rows, size = n * batch, n * batch * h
    resets = call.op == "gru_recurrence" and not call.attrs.linear_before_reset
    states = 3 if call.op == "lstm_recurrence" else 4 if resets else 2
    group = min(256, call.device.group)
    transposed = group > 1
    call.workspace(t.x.dtype.itemsize * (states * size + (n * width * h if transposed else 0)))
    common: dict[str, Any] = {"size": size, "states": states}
    small: dict[str, Any] = {"y": None, "x": None, **common}
    macros: dict[str, Any] = {"TRANSPOSED": int(transposed), "UNIT": int(t.r.strides[2] == 1), "RESETS": int(resets)}
    if transposed and size:
        call.launch("recurrence_transpose", items=n * width * h, y_h=None, **small)
    call.launch("recurrence_begin", items=size, y_h=None, **small)
    apart = transposed and rows < call.device.units and width * h >= ALONE and steps <= STEPS
    chunks = ceil_div(h, group) if apart else 1
    units = group if apart else h
    count = chunks * rows if h else 0
    if apart:
        for step in range(steps):
            for phase in range(2 if resets else 1):
                call.launch(
                    "recurrence",
                    groups=count,
                    local=group,
                    PHASE=phase,
                    PHASES=1,
                    chunks=chunks,
                    units=units,
                    start=step,
                    stop=step + 1,
                    **common,
                    **macros,
                )
    elif steps:
        call.launch(
            "recurrence",
            groups=count,
            local=group,
            PHASE=0,
            PHASES=2 if resets else 1,
            chunks=chunks,
            units=units,
            start=0,
            stop=steps,
            **common,
            **macros,
        )
    call.launch("recurrence_end", items=size, last=steps % 2, **small)
    if t.lengths is not None and t.lengths.numel > 0:
        call.launch("recurrence_check", groups=1, local=64, y=None, y_h=None, r=None)
