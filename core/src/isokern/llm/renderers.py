"""Processes that render chat templates: started when needed, and kept for the next text."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

KEPT = 4  # processes that wait for work


class Renderer:
    """A process of `render.py`, in a session of its own, so that it can be ended with all that it started."""

    def __init__(self) -> None:
        command = [sys.executable, os.fspath(Path(__file__).with_name("render.py"))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True
        )

    def ask(self, request: bytes, seconds: float) -> bytes:
        """Return the line that answers a line; empty if the process ended, TimeoutError if it takes too long."""
        until = time.monotonic() + seconds
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._write(self._process.stdin.fileno(), request)
        except BrokenPipeError:
            return b""
        answer, out, ready = bytearray(), self._process.stdout.fileno(), select.poll()
        ready.register(out, select.POLLIN)
        while not answer.endswith(b"\n"):
            if not ready.poll(max(0, until - time.monotonic()) * 1000):
                raise TimeoutError
            found = os.read(out, 1 << 16)
            if not found:
                return b""
            answer += found
        return bytes(answer)

    def _write(self, to: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(to, view) :]

    def end(self) -> None:
        """End the process and what it started."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.leave()

    def leave(self) -> None:
        """Close this end of the pipes. The process ends then, unless another process has them too."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


_waiting: list[Renderer] = []


def ask(request: bytes, seconds: float) -> bytes:
    """Return the answer of `render.py` to a line; empty if its process ended before it answered.

    TimeoutError after some seconds, OSError if no process can be started.
    """
    while True:
        try:
            renderer = _waiting.pop()
        except IndexError:
            return _ask(Renderer(), request, seconds)
        if answer := _ask(renderer, request, seconds):  # one that was kept may have ended since
            return answer


def _ask(renderer: Renderer, request: bytes, seconds: float) -> bytes:
    answer = b""
    try:
        answer = renderer.ask(request, seconds)
    finally:
        if answer and len(_waiting) < KEPT:
            _waiting.append(renderer)
        else:
            renderer.end()
    return answer


def _end_all() -> None:
    while _waiting:
        _waiting.pop().end()


def _leave_to_parent() -> None:
    """Give the processes up in a fork: its parent has them."""
    while _waiting:
        _waiting.pop().leave()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_leave_to_parent)
