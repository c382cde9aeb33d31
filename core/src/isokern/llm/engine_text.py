"""The text of a request to an engine, in pieces of whole characters as they come."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Generator, Iterator

from .generate import TextEnding
from .request import Request


class EngineText(Iterator[str]):
    """An iterator of a request's text in pieces of whole characters; `close` cancels the request.

    The request also ends if the iterator is dropped unread. `async for` also yields the pieces; each piece comes once,
    to the iterator that asks first.
    """

    def __init__(self, request: Request, ending: TextEnding) -> None:
        self.request, self._ending, self._pieces = request, ending, _pieces(request, ending)
        weakref.finalize(self, request.cancel)

    def __next__(self) -> str:
        return next(self._pieces)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Return an asynchronous iterator of the pieces; who leaves it cancels the request."""
        try:
            at = 0
            async for token in self.request:
                if piece := _push(self._ending, at, token):
                    yield piece
                at += 1
                if self._ending.found:
                    return
            if piece := self._ending.end():
                yield piece
        finally:
            self.request.cancel()

    def close(self) -> None:
        """End the request at this token."""
        self.request.cancel()
        self._pieces.close()


def _pieces(request: Request, ending: TextEnding) -> Generator[str, None, None]:
    for at, token in enumerate(request):
        if piece := _push(ending, at, token):
            yield piece
        if ending.found:
            request.cancel()
            return
    if piece := ending.end():
        yield piece


def _push(ending: TextEnding, at: int, token: int) -> str:
    """Return the text that is final after token `at` of a sequence; nothing if another iterator was there before."""
    return ending.push(token) if at == ending.count and not ending.found else ""
