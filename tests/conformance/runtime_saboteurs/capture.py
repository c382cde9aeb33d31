"""Faults of captures, recordings and replays."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from threaded_device import ThreadedRecording, ThreadedStream

from isokern.backend import Stream

from .plant import stream


class _ElsewhereRecording(ThreadedRecording):
    def run(self, stream: Stream) -> None:
        super().run(self.device.stream())


@stream("capture/replays_asynchronously_and_in_order")
class ReplaysElsewhere(ThreadedStream):
    """A replay runs on a stream of its own, for which nobody on this stream waits."""

    def begin_capture(self) -> Any:
        return _ElsewhereRecording(self.device)


class _EagerRecording(ThreadedRecording):
    def add(self, call: Callable[[], None]) -> None:
        super().add(call)
        call()


@stream("capture/runs_nothing_at_capture")
class RunsAtCapture(ThreadedStream):
    """A captured call runs as well."""

    def begin_capture(self) -> Any:
        return _EagerRecording(self.device)


class _OnceRecording(ThreadedRecording):
    def run(self, stream: Stream) -> None:
        super().run(stream)
        self.calls = []


@stream("capture/replays_with_new_contents")
class ReplaysOnce(ThreadedStream):
    """The second replay does nothing."""

    def begin_capture(self) -> Any:
        return _OnceRecording(self.device)


class _FrozenRecording(ThreadedRecording):
    def run(self, stream: Stream) -> None:
        for call in self.calls:
            call()


@stream("capture/replays_after_earlier_work")
class ReplaysInTheCaller(ThreadedStream):
    """A replay does not wait for work that was enqueued before it on its stream."""

    def begin_capture(self) -> Any:
        return _FrozenRecording(self.device)


class _FirstRecording(ThreadedRecording):
    def add(self, call: Callable[[], None]) -> None:
        if not self.calls:
            super().add(call)


@stream("capture/replays_with_new_contents")
class RecordsTheFirstCall(ThreadedStream):
    """A recording has its first call alone."""

    def begin_capture(self) -> Any:
        return _FirstRecording(self.device)


class _OpenRecording(ThreadedRecording):
    def replay(self, stream: Stream | None = None) -> None:
        self.open = False
        super().replay(stream)


@stream("capture/refuses_a_replay_inside_its_capture")
class ReplaysOpenRecordings(ThreadedStream):
    """A recording can be replayed before it is complete."""

    def begin_capture(self) -> Any:
        return _OpenRecording(self.device)


class _ForgetfulRecording(ThreadedRecording):
    def close(self) -> None:
        super().close()
        self.owned.clear()
        self.calls = [self.weak(call) for call in self.calls]

    @staticmethod
    def weak(call: Any) -> Callable[[], None]:
        if "handles" not in call.__code__.co_freevars:
            return call
        cells = dict(zip(call.__code__.co_freevars, call.__closure__, strict=True))
        kernel, nbytes = cells["self"].cell_contents, cells["workspace_bytes"].cell_contents
        space = cells["workspace"].cell_contents
        refs = [None if h is None else weakref.ref(h) for h in cells["handles"].cell_contents]

        def run() -> None:
            blocks = [None if r is None else r() for r in refs]
            if all(b is not None for b, r in zip(blocks, refs, strict=True) if r is not None):
                kernel.compute(blocks, space, nbytes)

        return run


@stream("capture/holds_what_a_recording_names")
class RecordingsHoldNothing(ThreadedStream):
    """A recording does not hold the memory of its calls."""

    def begin_capture(self) -> Any:
        return _ForgetfulRecording(self.device)


@stream("capture/leaves_other_threads_alone")
class CapturesAllThreads(ThreadedStream):
    """A capture takes the calls of other threads too."""

    @property
    def recording(self) -> Any:
        own = super().recording
        return own if own is not None else self.__dict__.get("shared")

    def begin_capture(self) -> Any:
        made = self.__dict__["shared"] = super().begin_capture()
        return made

    def end_capture(self, recording: Any) -> None:
        self.__dict__.pop("shared", None)
        super().end_capture(recording)


@stream("capture/refuses_a_nested_capture")
class NestsCaptures(ThreadedStream):
    """A capture inside a capture is accepted."""

    def capture(self) -> Any:
        self._of_thread.__dict__.pop("recording", None)
        return super().capture()


class _ImmediateReplay(ThreadedRecording):
    def replay(self, stream: Stream | None = None) -> None:
        if self.open:
            super().replay(stream)
        self.run(stream or self.device.default_stream)


@stream("capture/records_a_replay")
class ReplaysInsideACapture(ThreadedStream):
    """A replay on a stream that is being captured runs at once."""

    def begin_capture(self) -> Any:
        return _ImmediateReplay(self.device)
