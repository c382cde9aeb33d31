"""Test the limits: the key, the host, the body's size and time, the queue, and slow clients."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest

from isokern.status import InvalidArgument

application = pytest.importorskip("isokern.serve").application
Limits = pytest.importorskip("isokern.serve").Limits
READING = pytest.importorskip("isokern.serve.service").READING
KEY = "sk-a-secret-of-this-test"


@pytest.fixture(scope="module")
def locked(serve):
    return serve(key=KEY)


def read_all(connection):
    """Return what a socket has until it is closed by the other side."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_the_key(locked):
    for path in ("/v1/models", "/v1/completions", "/nowhere"):
        for headers in (
            {},
            {"Authorization": ""},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer "},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Bearer {KEY}x"},
            {"Authorization": f"Bearer {KEY[:-1]}"},
            {"Authorization": f"Basic {KEY}"},
            {"Authorization": KEY},
            {"Authorization": b"Bearer \xff\xfe"},
            {"api_key": KEY},
        ):
            for method in ("GET", "POST"):
                answer = locked.request(method, path, **headers)
                assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
                assert answer.headers["www-authenticate"] == "Bearer" and KEY not in str(answer.body)
    for word in ("Bearer", "bearer", "BEARER"):
        assert locked.get("/v1/models", Authorization=f"{word} {KEY}").status == 200
    assert locked.get("/health").status == 200
    answer = locked.request("POST", "/v1/completions", {"prompt": "a"}, Authorization=f"Bearer {KEY}")
    assert answer.status == 200
    assert locked.get("/nowhere", Authorization=f"Bearer {KEY}").status == 404


def call(app, method, path, body=b"", **headers):
    """Return the status and the body of an answer of an ASGI application, without a server."""
    sent, more = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return more.pop() if more else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    named = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": named, "query_string": b"", "root_path": ""}
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 60))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_the_application_within_another(serve):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    served = serve()
    inner = application(served.engine, served.tokenizer, name="kjv", key=KEY)
    for app, root in ((inner, ""), (Starlette(routes=[Mount("/inner", inner)]), "/inner")):
        assert call(app, "GET", f"{root}/health")[0] == 200
        assert call(app, "GET", f"{root}/v1/models")[0] == 401
        assert call(app, "GET", f"{root}/v1/models", authorization=f"Bearer {KEY}")[0] == 200
        given = {"authorization": f"Bearer {KEY}", "content_type": "application/json"}
        status, body = call(app, "POST", f"{root}/v1/completions", b'{"prompt": "a", "max_tokens": 2}', **given)
        assert status == 200 and b'"completion_tokens":2' in body
    served.assert_idle()


def test_without_the_key_no_body_is_read(locked):
    """Who has no key cannot make the server keep anything."""
    with locked.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{")
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("key", ["", " a", "a\n", "é"])
def test_keys_that_are_none(served, key):
    with pytest.raises(InvalidArgument, match="the API key; allowed: printable characters of ASCII"):
        application(served.engine, served.tokenizer, key=key)


def test_hosts(serve):
    served = serve(hosts=("localhost", "127.0.0.1", "[::1]"))
    for host in ("localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:80", "[::1]"):
        assert served.get("/health", Host=host).status == 200
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", ""):
        answer = served.get("/v1/models", Host=host)
        assert (answer.status, answer.error["code"]) == (403, "wrong_host")


def test_only_json_is_read(served):
    """A page in a browser may send what it likes but JSON without asking."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"):
        answer = served.request("POST", "/v1/completions", {"prompt": "a"}, Content_Type=kind)
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert served.request("POST", "/v1/completions", {"prompt": "a"}, Content_Type=kind).status == 200


@pytest.fixture(scope="module")
def narrow(serve):
    return serve(limits={"body": 1000, "seconds": 1, "tokens": 20, "queue": 2}, engine={"batch": 1})


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def test_a_body_that_is_too_large(narrow):
    body = b'{"prompt": "a", "max_tokens": 1}'
    for size, status in ((1000, 200), (1001, 413), (3000, 413), (200_000, 413), (3_000_000, 413)):
        try:
            answer = narrow.request("POST", "/v1/completions", body.ljust(size))
        except (BrokenPipeError, ConnectionResetError):
            assert size > 4000  # the server reads no more than that, and closes
            continue
        assert answer.status == status
        if status == 413:
            assert answer.error["code"] == "body_too_large" and "1000 bytes" in answer.error["message"]
            assert answer.headers["connection"] == "close"


def test_a_body_in_chunks_that_is_too_large(narrow):
    """Its length is not known before it was read."""
    with narrow.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100):
                connection.sendall(b"64\r\n" + b" " * 100 + b"\r\n")
                time.sleep(0.001)
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_waits_for_leave_to_send(narrow):
    with narrow.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 5000000000\r\nExpect: 100-continue\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")
    with narrow.connect() as connection:
        connection.sendall(HEAD + b"Connection: close\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b'{"prompt": "a"}')
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_comes_slowly(narrow):
    with narrow.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 900\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(30):  # each part comes soon, and the whole never
                connection.sendall(b" ")
                time.sleep(0.1)
        found = read_all(connection)
    assert found.startswith(b"HTTP/1.1 408 ") and b'"code":"timeout"' in found
    narrow.assert_idle()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HT",
        pytest.param(b"", marks=pytest.mark.full),
        pytest.param(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n", marks=pytest.mark.full),
    ],
)
def test_headers_that_do_not_come(narrow, sent):
    with narrow.connect() as connection:
        connection.sendall(sent)
        assert read_all(connection) == b""
    with narrow.connect() as connection:  # nor after an answer
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        found = b""
        while not found.endswith(b"}"):
            found += connection.recv(65536)
        assert found.startswith(b"HTTP/1.1 200 ")
        connection.sendall(sent or b"G")
        assert read_all(connection) == b""


def test_the_rest_of_a_body_that_nobody_reads(narrow):
    with narrow.connect() as connection:
        connection.sendall(b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n")
        begin = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < begin + 60:
                connection.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() < begin + 30


@pytest.mark.full
def test_an_answer_that_nobody_reads(serve, monkeypatch):
    """A stream whose client takes nothing is cut off, and its texts are cancelled."""
    from isokern.serve.events import EventWriter

    async def write(self, document, write=EventWriter.write):
        await write(self, {**document, "filler": "x" * 100_000})

    monkeypatch.setattr(EventWriter, "write", write)
    served = serve(limits={"seconds": 1})
    served.slow_down(0.01)
    with served.post_raw("/v1/completions", {"prompt": "a", "max_tokens": 500, "stream": True}):
        served.wait_for(lambda: served.engine.running == 1)
        served.assert_idle()


def test_a_cap_on_tokens(narrow):
    answer = narrow.complete(max_tokens=21)
    assert answer.error["param"] == "max_tokens" and "an integer from 1 to 20" in answer.error["message"]
    assert narrow.complete(max_tokens=20).document["usage"]["completion_tokens"] == 20
    usage = narrow.chat("a", logit_bias={str(narrow.tokenizer.eos): -100}).document["usage"]
    assert usage["completion_tokens"] == 20


@pytest.fixture(scope="module")
def wide(serve):
    return serve(limits={"body": 5 << 20, "priority": 2})


def test_a_prompt_without_room_is_refused_by_its_bytes(wide, monkeypatch):
    """Before it is made tokens, which takes as long as it is."""
    longest, room = wide.tokenizer.longest, wide.service.room
    whole = next(wide.tokenizer.decode([i]) for i in range(2048) if len(wide.tokenizer.piece(i)) == longest)
    wide.service.check_room(whole * room, "prompt")
    wide.service.check_room([1] * room, "prompt")

    def fail(self, *given, **named):
        raise AssertionError("it was encoded")

    monkeypatch.setattr(type(wide.tokenizer), "encode", fail)
    monkeypatch.setattr(type(wide.tokenizer), "decode", fail)
    monkeypatch.setattr(type(wide.service.template), "encode", fail)
    for path, field, given, allowed in (
        (
            "/v1/completions",
            "prompt",
            whole * room + "a",
            f"{room * longest} bytes, {room} tokens of at most {longest}",
        ),
        ("/v1/completions", "prompt", "é" * (len(whole) * room), f"{room * longest} bytes, {room} tokens"),
        ("/v1/completions", "prompt", [1] * (room + 1), f"{room} in all, the context"),
        (
            "/v1/chat/completions",
            "messages",
            [{"role": "user", "content": whole * room}] * 2,
            f"{room * longest} bytes",
        ),
    ):
        answer = wide.request("POST", path, {field: given})
        assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
        assert answer.error["param"] == field and f"; allowed: {allowed}" in answer.error["message"]


@pytest.mark.parametrize("mebibytes", [1, pytest.param(4, marks=pytest.mark.full)])
def test_a_prompt_of_megabytes_leaves_the_others_alone(wide, monkeypatch, mebibytes):
    """They are answered while it is made tokens, as where there is a long context."""
    monkeypatch.setattr(wide.service, "check_room", lambda prompt, field: None)
    answers, ended = [], threading.Event()

    def send():
        answers.append(wide.complete("and he said unto them " * ((mebibytes << 20) // 22), max_tokens=1))
        ended.set()

    thread = threading.Thread(target=send)
    thread.start()
    healthy = 0
    while not ended.is_set():
        healthy += wide.get("/health").status == 200
    thread.join()
    assert answers[0].error["code"] == "context_length_exceeded" and "tokens" in answers[0].error["message"]
    assert healthy > 10


def test_a_priority_up_to_the_servers(wide):
    for priority, status in ((2, 200), (0, 200), (-1000, 200), (3, 400), (1000, 400), (-1001, 400)):
        for answer in (wide.complete(max_tokens=1, priority=priority), wide.chat(max_tokens=1, priority=priority)):
            assert answer.status == status
            if status == 400:
                assert answer.error["param"] == "priority"
                assert "allowed: an integer from -1000 to 2" in answer.error["message"]
    for wrong in (-1, 1001, 0.5):
        with pytest.raises(InvalidArgument, match="priority"):
            Limits(priority=wrong)


def test_a_full_queue(serve):
    served = serve(engine={"batch": 2}, limits={"queue": 3})
    assert served.complete(n=6).error["param"] == "n"  # never
    assert served.complete(n=5, max_tokens=1).status == 200
    served.slow_down()
    fields = {"prompt": "a", "max_tokens": 500, "logit_bias": {str(served.tokenizer.eos): -100}}
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(served.post_raw("/v1/completions", fields))
        served.wait_for(lambda: served.engine.running == 2 and served.engine.waiting == 3)
        for fields in ({}, {"n": 2}, {"stream": True}):
            answer = served.complete(**fields)
            assert (answer.status, answer.error["code"]) == (429, "queue_full")
            assert answer.error["type"] == "rate_limit_error" and int(answer.headers["retry-after"]) >= 1
        assert served.chat().status == 429
        assert served.get("/health").document == {"status": "ok", "running": 2, "waiting": 3}
    served.assert_idle()
    assert served.complete(max_tokens=2).status == 200


@pytest.mark.full
def test_many_idle_connections_do_no_harm(serve):
    served = serve(limits={"seconds": 1, "queue": 0}, engine={"batch": 1})
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(served.connect())
        served.wait_for(lambda: served.get("/health").body.startswith(b"{"))
    served.wait_for(lambda: not served.server.server_state.connections)


def test_many_bodies_that_do_not_come(serve):
    """Only so many are read at once; who waits for no body is answered."""
    served = serve(limits={"seconds": 3, "queue": 0}, engine={"batch": 1})
    with contextlib.ExitStack() as stack:
        for _ in range(1 + READING):
            connection = stack.enter_context(served.connect())
            connection.sendall(HEAD + b"Content-Length: 900\r\n\r\n{")
        served.wait_for(lambda: served.service.bodies == 1 + READING)
        answer = served.complete()
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (429, "queue_full", "1")
        assert served.get("/health").status == 200
    served.wait_for(lambda: served.service.bodies == 0)
    assert served.complete(max_tokens=1).status == 200


def test_the_key_is_compared_in_constant_time(locked, monkeypatch):
    import hmac

    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or compare(a, b))
    locked.get("/v1/models", Authorization="Bearer x")
    assert compared == [(b"x", KEY.encode())]


def test_what_is_no_http(served):
    for sent in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"A" * 200_000):
        with served.connect() as connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
            with contextlib.suppress(OSError):  # the server may have closed it
                connection.shutdown(socket.SHUT_WR)
            found = read_all(connection)
            assert found == b"" or found.startswith(b"HTTP/1.1 400 ")
    assert threading.active_count() < 60
