"""A request to an engine: its prompt and options, and the tokens so far, for threads and for coroutines."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..process.forks import own_lock, tell_in_child

if TYPE_CHECKING:
    from .drawing import Drawing
    from .logprobs import TokenLogprobs

STOP, LENGTH, CANCELLED, FAILED = "stop", "length", "cancelled", "error"


@dataclass(eq=False)
class Request:
    """A text that an engine makes. Iterating over it, also with `async for`, gives its tokens as they come.

    `tokens` are those so far. `reason` is empty until the text is complete; then it is `stop` (the model ended it, and
    the token that says so is not in `tokens`), `length` (it has `most` tokens), `cancelled`, or `error`, and `error`
    has the exception, which iterating and `result` raise. Several may iterate at once, and each sees all tokens.
    A request goes before those of lower `priority`, unless they came much earlier (`turns.AHEAD`). With `top`,
    `logprobs` has how likely each token was, and the so many likeliest ones.
    """

    prompt: Sequence[int]
    most: int
    drawing: Drawing
    ends: frozenset[int] = frozenset()
    priority: int = 0
    top: int | None = None
    tokens: list[int] = field(default_factory=list, init=False)
    logprobs: list[TokenLogprobs] = field(default_factory=list, init=False)
    reason: str = field(default="", init=False)
    error: BaseException | None = field(default=None, init=False)
    cached: int = field(default=0, init=False)
    """How many tokens of the prompt were in the cache already, and were not computed."""

    def __post_init__(self) -> None:
        self._changed = own_lock(self, "_changed", threading.Condition)
        self._complete = own_lock(self, "_complete", threading.Event)
        tell_in_child(self, "_in_child")
        self._cancelled = False
        self._listeners: list[Callable[[], None]] = []

    def _in_child(self) -> None:
        if self.reason:
            self._complete.set()

    def cancel(self) -> None:
        """End the request before the engine's next step; do nothing if it is complete."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    @property
    def done(self) -> bool:
        """Whether the text is complete."""
        return bool(self.reason)

    def result(self, timeout: float | None = None) -> list[int]:
        """Wait until the text is complete and return its tokens; TimeoutError after `timeout` seconds."""
        if not self._complete.wait(timeout):  # which no token sets
            raise TimeoutError(f"the text is not complete after {timeout} s")
        if self.error is not None:
            raise self.error
        return list(self.tokens)

    def __iter__(self) -> Iterator[int]:
        """Return an iterator of the tokens, which waits for each."""
        at = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.done or len(self.tokens) > at)  # noqa: B023  # called within
                new, done = self.tokens[at:], self.done
            yield from new
            at += len(new)
            if done and at == len(self.tokens):
                break
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[int]:
        """Return an asynchronous iterator of the tokens."""
        import asyncio  # takes as long to import as much of the rest, and only coroutines need it

        loop, news, at = asyncio.get_running_loop(), asyncio.Event(), 0

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                loop.call_soon_threadsafe(news.set)

        self.listen(wake)
        try:
            while True:
                news.clear()
                with self._changed:
                    new, done = self.tokens[at:], self.done
                for token in new:
                    yield token
                at += len(new)
                if done and at == len(self.tokens):
                    break
                if not new:
                    await news.wait()
        finally:
            self._listeners.remove(wake)
        if self.error is not None:
            raise self.error

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called after each token and at the end, in the engine's thread, which it must not block."""
        self._listeners.append(listener)

    def add(self, token: int, logprobs: TokenLogprobs | None = None) -> None:
        """Append a token; for the engine."""
        with self._changed:
            if logprobs is not None:
                self.logprobs.append(logprobs)  # first: who sees a token without the lock sees this, too
            self.tokens.append(token)
            self._changed.notify_all()
        self._tell()

    def finish(self, reason: str, error: BaseException | None = None) -> None:
        """Complete the text; for the engine."""
        with self._changed:
            self.error = error  # first: who sees a reason without the lock sees the error, too
            self.reason = reason
            self._changed.notify_all()
        self._complete.set()
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            try:
                listener()
            except BaseException as error:
                told = (type(error), error, error.__traceback__, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(told))
