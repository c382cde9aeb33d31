"""Server-sent events: HTML Living Standard, section 9.2, as OpenAI's API uses them."""

from __future__ import annotations

import json
from typing import Any

from starlette.types import Scope, Send

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy, such as nginx, passes each event on at once
]


PROBING = "isokern.probing"  # in a request's scope: bytes that a server may send between two parts of the answer


class EventWriter:
    """A response of events, each of which is a JSON document; the first one sends the status 200: `begun`."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send, self.begun = send, False
        scope[PROBING] = b":\n\n"  # a comment, which clients skip

    async def write(self, document: dict[str, Any]) -> None:
        """Send a document; in ASCII, so that no client takes a character for the end of a line."""
        await self._write(json.dumps(document, separators=(",", ":"), allow_nan=False))

    async def end(self, done: bool = True) -> None:
        """End the response, with `[DONE]` where everything was sent."""
        if done:
            await self._write("[DONE]")
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, data: str) -> None:
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})
