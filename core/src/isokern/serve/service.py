"""What all requests of a server share: the engine, how much of it may be asked for, and the threads that prepare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ..arguments import integer
from ..llm import Engine, Template, Tokenizer
from ..process.forks import own_lock
from ..status import InvalidArgument, quote
from .errors import ApiError
from .schema import HIGHEST_PRIORITY

T = TypeVar("T")
READING = 64  # bodies that are read at once, in addition to those of accepted requests: they take memory
PREPARING = 4  # threads that read bodies, render templates and tokenize


@dataclass(frozen=True)
class Limits:
    """The limits of a server for its clients.

    `body` is the largest request in bytes, `seconds` how long a client may take to send it, `tokens` the most tokens of
    a completion (None: the engine's context), `queue` how many sequences may wait while the engine decodes others, and
    `priority` the highest that a request may ask for: with 0, no request starts before earlier ones.
    """

    body: int = 4 << 20
    seconds: float = 30
    tokens: int | None = None
    queue: int = 64
    priority: int = 0

    def __post_init__(self) -> None:
        integer("Limits", "body", self.body, 1)
        integer("Limits", "queue", self.queue, 0)
        integer("Limits", "priority", self.priority, 0, HIGHEST_PRIORITY)
        if self.tokens is not None:
            integer("Limits", "tokens", self.tokens, 1)
        if not 0 < self.seconds < float("inf"):
            raise InvalidArgument("Limits", f"seconds={quote(self.seconds)}", allowed="a number above 0")


class Service:
    """A model as it is served: `name` is what clients call it. `close` ends what is being made."""

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, template: Template | None, limits: Limits, name: str
    ) -> None:
        self.engine, self.tokenizer, self.template, self.limits, self.name = engine, tokenizer, template, limits, name
        self.created = int(time.time())
        self.cap = engine.context if limits.tokens is None else min(limits.tokens, engine.context)
        self.capacity = engine.scheduler.batch + limits.queue
        self.texts = self.bodies = 0  # that are being made or wait, and are being read; changed in the event loop alone
        self.closing = False
        self._pool = ThreadPoolExecutor(PREPARING, "isokern-serve")

    @property
    def room(self) -> int:
        """The positions that a prompt and its text may have together; the last token of a text needs none."""
        return self.engine.room

    def check_room(self, prompt: str | Sequence[int], field: str) -> None:
        """Refuse a prompt, which stands in `field`, that has no room, before work is done that grows with it.

        A text is judged by its bytes: each token has at most those of the longest one. ApiError 400.
        """
        if isinstance(prompt, str):
            size, most, longest = len(prompt.encode()), self.room * self.tokenizer.longest, self.tokenizer.longest
            allowed = f"{most} bytes, {self.room} tokens of at most {longest} bytes each"
            given = f"{size} bytes"
        else:
            size, most = len(prompt), self.room
            allowed, given = f"{most} in all, the context", f"{size} tokens"
        if size > most:
            message = f"the prompt has {given}; allowed: {allowed}"
            raise ApiError(400, message, param=field, code="context_length_exceeded")

    @contextmanager
    def hold(self) -> Iterator[Callable[[int], None]]:
        """Take the place of one text while a block runs, which takes more with the function that it is given.

        ApiError 429 if there are none left, 400 if there never are so many, 503 if the server is closing.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if taken + count > self.capacity:
                message = f"{taken + count} completions are requested; allowed: {self.capacity} at once"
                raise ApiError(400, message, param="n", code="invalid_value")
            if self.texts + count > self.capacity:
                raise _too_many(f"{self.texts} completions are running or waiting", self.capacity)
            self.texts += count
            taken += count

        if self.closing:
            raise ApiError(503, "the server is shutting down", code="shutting_down")
        take(1)
        try:
            yield take
        finally:
            self.texts -= taken

    @contextmanager
    def read(self) -> Iterator[None]:
        """Count a body that is read while a block runs; ApiError 429 if there are too many."""
        if self.bodies >= self.capacity + READING:
            raise _too_many(f"{self.bodies} requests are being read", self.capacity + READING)
        self.bodies += 1
        try:
            yield
        finally:
            self.bodies -= 1

    async def run_aside(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, in one of a few threads; others wait for a free one."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Cancel all requests, and wait for the engine's step and for requests in preparation."""
        self.closing = True
        self.engine.close()
        self._pool.shutdown(cancel_futures=True)


def _too_many(found: str, most: int) -> ApiError:
    message = f"{found}; allowed: {most}; try again later"
    return ApiError(429, message, code="queue_full", headers={"Retry-After": "1"})


class Waker:
    """An event that other threads set, for coroutines of the loop in which this was made."""

    def __init__(self) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        self._lock = own_lock(self, "_lock")
        self._told = False

    def tell(self) -> None:
        """Set the event, from any thread; many calls before the loop sees one cost as much as one."""
        with self._lock:
            if self._told:
                return
            self._told = True
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop has ended, and nothing waits
            return

    async def wait(self) -> None:
        """Wait until the event was set since the last call."""
        await self._event.wait()
        self._event.clear()
        with self._lock:
            self._told = False
