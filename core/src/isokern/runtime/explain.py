"""The steps of a program, operator by operator, as lines or as a trace.

Each has its variant, bytes, memory, time, and share of the machine's limits.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..graph.ir import Op, Value, spec_text
from ..status import InvalidArgument
from .inspectable import Inspectable

ROUNDS = 5  # the least number of runs for a median
SECONDS = 0.2  # short runs are repeated for at least this long


@dataclass(frozen=True)
class Location:
    """The place of an output: in the `arena`, or in its `own` memory, from byte `offset` there.

    `alias` is the value whose memory or content it has, or None. `how` is the memory plan's choice for it: `in place`
    if the operator overwrites it, `view` if nothing is to be done, `copy` if the output has its own memory, to which
    the content of that value is copied before it is updated.
    """

    value: int
    memory: str
    offset: int
    nbytes: int
    alias: int | None = None
    how: str = ""

    def __str__(self) -> str:
        text = f"arena+{self.offset}" if self.memory == "arena" else "its own"
        if self.alias is None:
            return text
        words = {"in place": "in place of", "view": "is", "copy": "after a copy of"}
        return f"{text}, {words[self.how]} %{self.alias}"


@dataclass(frozen=True)
class Line:
    """One operator in `Program.explain`.

    `nbytes` counts all its operands. `time_us` is the median over runs in the program's order; `share` is the least
    time that the machine's limits allow for its bytes or operations, divided by the measured one. Both are None if they
    are not measured, or if there is no call.
    """

    name: str
    kind: str
    variant: str
    inputs: str
    outputs: str
    nbytes: int
    workspace: int
    slots: tuple[Location, ...]
    time_us: float | None = None
    share: float | None = None

    @property
    def memory(self) -> str:
        """The places of its outputs, in words."""
        return ", ".join(map(str, self.slots))


def explain(program: Inspectable, *, timed: bool = False) -> list[Line]:
    """Return a line for each operator, in order; `timed` runs the program several times on its current inputs."""
    times = times_of(program) if timed else {}
    lines = []
    for op in program.graph.ops:
        descriptor = program.descriptors.get(op)
        seconds = times.get(op)
        best = None
        if descriptor is not None and seconds:
            from ..measure.roofline import seconds_at_best

            best = seconds_at_best(program.device, op.operator, descriptor.inputs, descriptor.outputs)
        lines.append(
            Line(
                op.name,
                op.kind,
                "(nothing to do)" if descriptor is None else descriptor.variant,
                ", ".join(spec_text(v.spec) for v in op.given),
                ", ".join(spec_text(v.spec) for v in op.outputs),
                0 if descriptor is None else sum(v.spec.nbytes for v in (*op.outputs, *op.given)),
                0 if descriptor is None else descriptor.workspace_size,
                tuple(_slot(program, op, v) for v in op.outputs),
                None if seconds is None else 1e6 * seconds,
                None if best is None or not seconds else best / seconds,
            )
        )
    return lines


def _slot(program: Inspectable, op: Op, value: Value) -> Location:
    plan, nbytes = program.memory_plan, value.spec.nbytes
    root = plan.root[value]
    memory, offset = ("arena", plan.offset[root]) if root in plan.offset else ("own", 0)
    offset += value.spec.dtype.nbytes(plan.starts.get(value, 0))
    copied = {new: old for old, new in plan.copies.get(op, ())}
    if value in copied:
        return Location(value.vid, memory, offset, nbytes, copied[value].vid, "copy")
    if root is value:
        return Location(value.vid, memory, offset, nbytes)
    if op in plan.in_place:
        return Location(value.vid, memory, offset, nbytes, plan.in_place[op].vid, "in place")
    return Location(value.vid, memory, offset, nbytes, root.vid, "view")


def times_of(program: Inspectable, seconds: float = SECONDS) -> dict[Op, float]:
    """Return the median seconds of each call, over runs of all of them in order, so that caches are as in a run.

    They are measured by the device's own clock if it has one, else by the host's, around the call and, on an
    asynchronous device, the wait for it.
    """
    device, calls = program.device, program.calls()
    timers = {op: t for op in calls if (t := device.timer(device.default_stream)) is not None}
    found: dict[Op, list[float]] = {op: [] for op in calls}
    program.replay()  # warms up caches, pages and threads
    device.synchronize()
    begin, rounds = time.perf_counter(), 0
    while calls and (rounds < ROUNDS or time.perf_counter() - begin < seconds):
        for op, call in calls.items():
            if op in timers:
                timers[op].start()
                call()
                timers[op].stop()
                continue
            start = time.perf_counter()
            call()
            if device.asynchronous:
                device.synchronize()
            found[op].append(time.perf_counter() - start)
        for op, timer in timers.items():
            found[op].append(timer.seconds())
        rounds += 1
    device.synchronize()
    return {op: median(times) for op, times in found.items()}


def trace(lines: Sequence[Line], program: Inspectable, path: str | os.PathLike[str]) -> None:
    """Write timed lines as a Chrome trace (Trace Event Format, complete events), for chrome://tracing or Perfetto.

    A device is a process and its stream a thread. The calls are end to end with their median times, as in a replay; an
    operator without a call has no event.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": program.device.name}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "default stream"}},
    ]
    at = 0.0
    for line in lines:
        if line.time_us is None:
            continue
        args = {
            "inputs": line.inputs,
            "outputs": line.outputs,
            "bytes": line.nbytes,
            "variant": line.variant,
            "workspace": line.workspace,
            "memory": line.memory,
        }
        if line.share is not None:
            args["share of limit"] = round(line.share, 4)
        name = f"{line.name}: {line.kind}" if line.name else line.kind
        events.append(
            {"ph": "X", "name": name, "cat": line.kind, "pid": 0, "tid": 0, "ts": at, "dur": line.time_us, "args": args}
        )
        at += line.time_us
    document = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"graph": program.graph.name}}
    try:
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidArgument("trace", f"{os.fspath(path)}: {error.strerror}", allowed="a file to write") from None
