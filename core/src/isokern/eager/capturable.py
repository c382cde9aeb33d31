"""Before a capture: whether a program can be captured, and why not."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ..backend import Buffer, Device, Event, Memory, Recording, Stream
from ..backend.discovery import device as find_device
from ..status import InvalidArgument, IsokernError

HOST = "on the host: nothing of the program has run by then, and a replay does not do it again"
WAITS = "waits for work: nothing of the program has run by then"
EVENTS = "uses events: a recorded list is in order, and knows no others"
# What a program may not do, by the class of the object that is asked and the method's name
RULES: dict[tuple[type, str], str] = {
    (Buffer, "read"): f"reads memory {HOST}",
    (Buffer, "write"): f"writes memory {HOST}",
    (Buffer, "map_for_cpu"): f"maps memory {HOST}",
    (Device, "synchronize"): WAITS,
    (Stream, "synchronize"): WAITS,
    (Event, "synchronize"): WAITS,
    (Stream, "record"): EVENTS,
    (Stream, "wait"): EVENTS,
}
NAMES = {name for _, name in RULES}
LAUNCHES = {"launch", "launch_bound", "launch_one"}  # of kernels


@dataclass(frozen=True)
class Capturability:
    """What a program did when it was captured on trial.

    `reasons` says what it did that no recorded list can do; `calls` counts what was recorded; `allocated` is the
    memory, in bytes, that it allocated: `Stream.capture` allows that and keeps it, a capture that another library began
    does not.
    """

    reasons: tuple[str, ...]
    calls: int
    allocated: int

    @property
    def capturable(self) -> bool:
        """Whether `Stream.capture` records all of it."""
        return not self.reasons


def check_capturable(program: Callable[[], object], device: str | Device | None = None) -> Capturability:
    """Capture `program()` on a new stream of `device`, run none of its calls, and report what it did.

    The stream is the thread's current one meanwhile. What the program does in Python it does; errors that are not
    Isokern's are raised. The thread's profiling function watches it, and is put back at the end.
    """
    target = find_device(device) if not isinstance(device, Device) else device
    stream = target.stream()
    before = sys.getprofile()
    if before is not None and not callable(before):
        raise InvalidArgument(
            "check_capturable", "a profiler such as cProfile watches this thread", hint="run it without one"
        )
    watch: _Watch | None = None
    try:
        with stream.capture() as recording, stream:
            watch = _Watch(stream, recording)
            sys.setprofile(watch)
            try:
                program()
            finally:
                sys.setprofile(before)
    except IsokernError as error:
        if watch is None:  # the capture did not begin
            raise
        watch.broken[str(error)] += 1
    reasons = (text if n == 1 else f"{text} ({n} times)" for text, n in watch.broken.items())
    return Capturability(tuple(reasons), len(recording), watch.allocated)


class _Watch:
    """A profiling function that sees what a program asks of Isokern's objects.

    It does not see what these do among themselves for the program.
    """

    def __init__(self, stream: Stream, recording: Recording) -> None:
        self.stream, self.recording = stream, recording
        self.broken: Counter[str] = Counter()
        self.allocated = 0
        self._inside: FrameType | None = None  # the call that was seen, until it returns
        self._recorded: int | None = None  # calls recorded before it, where only its end shows whether it was recorded

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._inside is not None:
            if event == "return" and frame is self._inside:
                if self._recorded == len(self.recording) or (frame.f_code.co_name == "copy_by_engine" and argument):
                    self.broken["runs work on another stream"] += 1
                self._inside = self._recorded = None
            return
        name = frame.f_code.co_name
        if event != "call" or not (name in NAMES or name in LAUNCHES or name in ("alloc", "copy_by_engine", "replay")):
            return
        if not str(frame.f_globals.get("__name__")).startswith("isokern"):  # a function of the program's own
            return
        known = frame.f_locals
        owner = known.get("self")
        if name == "copy_by_engine":
            self._inside = frame if owner is not self.stream else None  # its return value says whether it copied
            return
        on = known.get("stream") if name == "replay" else None
        if isinstance(on, Stream) and on is not self.stream:
            self.broken["runs work on another stream"] += 1
            self._inside = frame
            return
        if name == "alloc" and isinstance(owner, Memory):
            self.allocated += int(known.get("nbytes", 0))
            self._inside = frame
        elif name in LAUNCHES and isinstance(known.get("stream", self.stream), Stream):
            if known.get("stream", self.stream) is not self.stream:
                self.broken["runs work on another stream"] += 1
            # A native call does not show its stream
            self._recorded = None if "stream" in known else len(self.recording)
            self._inside = frame
        elif rule := next((text for (kind, of), text in RULES.items() if of == name and isinstance(owner, kind)), None):
            self.broken[f"{name}: {rule}"] += 1
            self._inside = frame
