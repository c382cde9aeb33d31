"""What stands before every endpoint: one log line for each request, typed errors, the key, and the size of a body."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..status import InvalidArgument
from .errors import ApiError, Disconnected, log, translate
from .service import Limits

GONE = 499  # nginx's status for a client that went away
DRAINED = 4  # times the size of a body that is read of one that is too large, so that its client reads the answer


class Gate:
    """The outermost part of the application: it logs, answers what was raised, and asks for the key.

    `key` is what `Authorization: Bearer` has to give, except for /health; `hosts`, if given, are the names that `Host`
    may have: a page in a browser that names this machine as its own host would be let in otherwise (DNS rebinding). A
    line of the log has the method, the path, the status, the tokens and the seconds, and nothing of any text.
    """

    def __init__(self, app: ASGIApp, key: str | None = None, hosts: Collection[str] | None = None) -> None:
        self.app, self.hosts = app, None if hosts is None else {host.lower() for host in hosts}
        self._key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and see to its end."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            try:
                self._check(scope)
                await self.app(scope, receive, note_status)
            except (Disconnected, asyncio.CancelledError):
                raise
            except Exception as error:
                answer = translate(error)
                if status:
                    raise Disconnected from None  # too late for another answer
                await answer.respond()(scope, receive, note_status)
        except Disconnected:
            status = status or GONE
        finally:
            _log_request(scope, status or GONE, time.perf_counter() - begin)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self.hosts is not None and "host" in headers and _host_name(headers["host"]) not in self.hosts:
            message = f"the header Host names another host; allowed: {', '.join(sorted(self.hosts))}"
            raise ApiError(403, message, code="wrong_host")
        path = scope["path"].removeprefix(scope.get("root_path", ""))  # the application may be mounted in another
        if self._key is None or path == "/health":
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._key):
            message = "the API key is missing or wrong; give it as Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def check_key(key: str) -> str:
    """Return a key that a header can have; InvalidArgument, which does not show it, otherwise."""
    if not (key and key.isascii() and key.isprintable() and key == key.strip()):
        raise InvalidArgument(
            "serve", "the API key", allowed="printable characters of ASCII, at least one, no space around"
        )
    return key


def _host_name(given: str) -> str:
    """Return the name in a header `Host`, without the port."""
    name = given.strip().lower()
    return name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Return the body of a request.

    ApiError 413 if it is larger than `limits.body`, even if its header is wrong, 408 if the client takes longer than
    `limits.seconds`, 415 if it is not JSON; Disconnected if the client goes away.
    """
    headers, close = Headers(scope=scope), {"Connection": "close"}
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        message = "the header Content-Type has to be application/json"  # which no page in a browser sends unasked
        raise ApiError(415, message, code="unsupported_media_type", headers=close)
    length = headers.get("content-length", "")
    message = f"the body is larger than {limits.body} bytes, the most that is allowed"
    large = ApiError(413, message, code="body_too_large", headers=close)
    if length.isdecimal() and int(length[:20]) > limits.body and "expect" in headers:
        raise large
    collected = bytearray()
    try:
        size = await asyncio.wait_for(_collect(receive, limits.body, collected), limits.seconds)
    except asyncio.TimeoutError:
        message = f"the body did not come within {limits.seconds:g} s"
        raise ApiError(408, message, code="timeout", headers=close) from None
    if size > limits.body:
        raise large
    return bytes(collected)


async def _collect(receive: Receive, most: int, into: bytearray) -> int:
    """Read a body into a buffer of at most `most` bytes, and return its size, or more than `most`."""
    size, more = 0, True
    while more and size <= DRAINED * most:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most:
            into.clear()
        else:
            into += part
    return size


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    path = scope.get("raw_path") or scope["path"].encode()
    shown = "".join(chr(b) if 32 < b < 127 else "?" for b in path[:200])
    count = scope.pop("isokern.usage", None)  # taken out: uvicorn keeps a connection's last scope for some seconds
    usage = None if count is None else count()
    tokens = "" if usage is None else f" {usage['prompt_tokens']}+{usage['completion_tokens']} tokens"
    log.info("%s %s %d%s %.3f s", scope["method"], shown, status, tokens, seconds)
