"""The HTTP server: uvicorn, with limits for slow clients, and a shutdown that leaves running requests some time."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..status import InvalidArgument
from .events import PROBING

LATE = 10  # seconds that are left for answers after their requests were canceled
PROBE = 0.5  # seconds between two checks whether a client that sends nothing still reads
SPARE = 512  # connections in addition to those that requests may need; one more gets 503, and nothing else


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; InvalidArgument if the address is invalid, or is in use."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(2048)
        except BaseException:
            found.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        allowed = "the address of an interface of this machine, and a port that is not in use"
        raise InvalidArgument("serve", f"{host}, port {port}: {error}", allowed=allowed) from None
    return found


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


class Server(uvicorn.Server):
    """A server of an `application`; on SIGINT or SIGTERM, requests have `grace` seconds to end, then they are canceled.

    A client has the seconds of the application's limits for the headers of a request, and may not leave an answer
    unread for longer. `ready` is called once, when requests and signals are listened to.
    """

    def __init__(self, app: Starlette, grace: float = 30, ready: Callable[[], None] | None = None) -> None:
        self.service, self.grace, self.ready = app.state.service, grace, ready
        config = uvicorn.Config(
            app,
            http=timed_protocol(self.service.limits.seconds),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=self.service.capacity + SPARE,
            timeout_graceful_shutdown=round(grace + LATE),
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.ready is not None:
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, and wait for those that run, at most for the grace time."""
        self.service.closing = True
        loop = asyncio.get_running_loop()
        late = loop.call_later(self.grace, lambda: loop.run_in_executor(None, self.service.engine.close))
        await super().shutdown(sockets)
        late.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server; at a second signal, requests have no more time."""
        if self.should_exit:
            threading.Thread(target=self.service.engine.close, daemon=True).start()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals end the server, and not the process afterwards: its status says whether that went well."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def timed_protocol(seconds: float) -> type[H11Protocol]:
    """Return uvicorn's protocol of a connection, with limits.

    It closes one whose client takes longer than `seconds` for the headers of a request or the rest of a body that
    is not read, or does not read what is sent to it. A body that is read is the application's to limit.

    A client that sends nothing may still read its answer, or be gone: TCP distinguishes these only when something is
    sent. So the server probes it from time to time, by an interim response (RFC 9110, 15.2.1) before the answer, and
    within a stream by the application's probe (`PROBING`).
    """

    class TimedProtocol(H11Protocol):
        _reading: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None
        _probing: asyncio.TimerHandle | None = None
        _half_closed = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def eof_received(self) -> bool:  # type: ignore[override]
            """Keep the connection open while a request that came whole is answered."""
            self._half_closed = self._answering and not self.cycle.more_body
            if self._half_closed and self._probing is None:
                self._probing = self.loop.call_later(PROBE, self._probe)
            return self._half_closed

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()
            if self._half_closed and not self._answering:
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._unset_keepalive_if_required()
            self._stop_reading()
            self._stop_writing()
            if self._probing is not None:
                self._probing.cancel()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._writing = self._writing or self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_writing()

        @property
        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _probe(self) -> None:
            """Send something that changes no answer: if it is not read, the connection is lost the second time."""
            self._probing = self.loop.call_later(PROBE, self._probe)
            if self.transport.is_closing() or self._writing is not None or not self._answering:
                return
            if self.cycle.response_started:
                scope: Mapping[str, Any] = self.cycle.scope
                between = scope.get(PROBING)
                sent = None if between is None else self.conn.send(h11.Data(data=between))
            else:
                modern = self.conn.their_http_version != b"1.0"
                sent = self.conn.send(h11.InformationalResponse(status_code=100, headers=[])) if modern else None
            if sent:
                self.transport.write(sent)

        def _watch(self) -> None:
            """Let the time run while the client has to send something; between requests it has uvicorn's."""
            if self._answering or self.timeout_keep_alive_task is not None or self.transport.is_closing():
                self._stop_reading()
            elif self._reading is None:
                self._reading = self.loop.call_later(seconds, self.transport.abort)

        def _stop_reading(self) -> None:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None

        def _stop_writing(self) -> None:
            if self._writing is not None:
                self._writing.cancel()
                self._writing = None

    return TimedProtocol
