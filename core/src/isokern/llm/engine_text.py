"""The text of a request to an engine, in pieces of whole characters as they come."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterator

from .generate import TextEnding
from .request import Request


class EngineText(Iterator[str]):
    """An iterator of a request's text in pieces of whole characters; `close` cancels the request.

    So does leaving it unread: when nobody holds it any more.
    """

    def __init__(self, request: Request, ending: TextEnding) -> None:
        self.request, self._pieces = request, _pieces(request, ending)
        weakref.finalize(self, request.cancel)

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """End the text where it is."""
        self.request.cancel()
        self._pieces.close()


def _pieces(request: Request, ending: TextEnding) -> Generator[str, None, None]:
    for token in request:
        piece = ending.push(token)
        if piece:
            yield piece
        if ending.found:
            request.cancel()
            return
    piece = ending.end()
    if piece:
        yield piece
