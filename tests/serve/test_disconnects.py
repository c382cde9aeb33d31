"""Test clients that go away: their texts are cancelled, whatever was being done, and others are as before."""

import contextlib
import json
import socket
import struct
import threading
import time

import pytest

from isokern.llm import Template

LONG = {"prompt": "In the beginning", "max_tokens": 500, "temperature": 0}


@pytest.fixture(scope="module")
def slow(serve):
    """Return a server whose texts of 500 tokens take ten seconds, which nobody waits for here."""
    made = serve(engine={"batch": 2}, limits={"queue": 6, "priority": 10})
    made.slow_down()
    return made


def fields(served, **more):
    return {**LONG, "logit_bias": {str(served.tokenizer.eos): -100}, **more}


def reset(connection):
    """Close a connection at once, as a client that is killed does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("leave", [socket.socket.close, reset])
@pytest.mark.parametrize("stream", [False, True])
def test_a_text_is_cancelled(slow, stream, leave):
    connection = slow.post_raw("/v1/completions", fields(slow, stream=stream, n=2))
    slow.wait_for(lambda: slow.engine.running == 2)
    if stream:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    begin = time.monotonic()
    leave(connection)
    slow.assert_idle()
    assert time.monotonic() - begin < 5


def test_waiting_texts_are_cancelled(slow):
    """Two run and six wait; those of each client that goes away are gone, and the others go on."""
    kept = slow.post_raw("/v1/completions", fields(slow, stream=True, max_tokens=60))
    slow.wait_for(lambda: slow.engine.running == 1)
    others = [slow.post_raw("/v1/completions", fields(slow, n=2)), slow.post_raw("/v1/completions", fields(slow, n=5))]
    slow.wait_for(lambda: slow.engine.running == 2 and slow.engine.waiting == 6)
    for connection in others:
        connection.close()
    slow.wait_for(lambda: slow.engine.running == 1 and slow.engine.waiting == 0)
    assert slow.service.texts == 1
    found = b""
    while b"[DONE]" not in found:
        part = kept.recv(65536)
        assert part
        found += part
    kept.close()
    slow.assert_idle()


def test_a_text_beside_cancelled_ones_is_what_it_is_alone(slow):
    alone = slow.complete(max_tokens=40).texts
    found = []
    thread = threading.Thread(target=lambda: found.append(slow.complete(max_tokens=40).texts))
    thread.start()
    for i in range(12):
        with slow.post_raw("/v1/completions", fields(slow, stream=bool(i % 2))):
            time.sleep(0.03)
    thread.join()
    assert found == [alone]
    slow.assert_idle()


@pytest.mark.parametrize("sent", [0.0, 0.5])
def test_a_client_that_leaves_within_its_body(slow, sent):
    with slow.connect() as connection:
        head = (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        )
        connection.sendall(head + b" " * int(100 * sent))
    slow.assert_idle()
    assert slow.complete(max_tokens=1).status == 200


def test_a_client_that_leaves_while_its_messages_are_rendered(serve, monkeypatch):
    """What is submitted after its client went away is cancelled, too."""
    served, go, seen = serve(), threading.Event(), threading.Event()
    encode, submit, requests = Template.encode, served.engine.submit, []

    def wait(self, *given):
        seen.set()
        assert go.wait(60)
        return encode(self, *given)

    def keep(*given, **named):
        requests.append(submit(*given, **named))
        return requests[-1]

    monkeypatch.setattr(Template, "encode", wait)
    served.engine.submit = keep
    served.slow_down()
    given = {"messages": [{"role": "user", "content": "a"}], "logit_bias": {str(served.tokenizer.eos): -100}, "n": 3}
    with served.post_raw("/v1/chat/completions", given):
        assert seen.wait(60)
    served.wait_for(lambda: served.service.texts == 0)
    go.set()
    served.wait_for(lambda: len(requests) == 3 and all(r.done for r in requests))
    assert {r.reason for r in requests} == {"cancelled"}
    served.assert_idle()


def test_a_choice_that_stops_is_made_no_further(slow):
    """The others go on, and it leaves them its place."""
    first, second = (slow.complete(max_tokens=30, seed=s, temperature=1).texts[0] for s in (1, 2))
    stop = next(first[i : i + 4] for i in range(len(first) - 4) if first[i : i + 4] not in second)
    given = fields(slow, prompt="And David said unto the people,", seed=1, n=2, stop=stop, temperature=1)
    with slow.post_raw("/v1/completions", {**given, "max_tokens": 400}):
        slow.wait_for(lambda: slow.engine.running == 2)
        slow.wait_for(lambda: slow.engine.running == 1)
        assert len(slow.engine.scheduler.running[0].request.tokens) < 200
    slow.assert_idle()


@pytest.mark.full
def test_a_request_of_higher_priority_goes_first(slow):
    """It takes the place of a running one, which goes on afterwards and is what it would have been."""
    prompt = "The book of the generation"
    alone = slow.complete(prompt, max_tokens=60).texts
    found = []
    threads = [threading.Thread(target=lambda: found.append(slow.complete(prompt, max_tokens=60))) for _ in range(2)]
    for thread in threads:
        thread.start()
    slow.wait_for(lambda: slow.engine.running == 2)
    assert slow.complete("Thou", max_tokens=5, priority=5).status == 200
    assert not found
    for thread in threads:
        thread.join()
    assert [answer.texts for answer in found] == [alone, alone]


def read_all(connection):
    """Return what a socket has until the other side closes it."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_client_that_sends_no_more_gets_its_answer(slow, path, stream):
    """Many tools in a pipe close their side when they have sent all; the server closes the other behind the answer."""
    asked = fields(slow, max_tokens=80, stream=stream)  # 1.6 s: it is asked meanwhile whether it still reads
    if path != "/v1/completions":
        asked["messages"] = [{"role": "user", "content": asked.pop("prompt")}]
    with slow.post_raw(path, asked) as connection:
        connection.shutdown(socket.SHUT_WR)
        found = read_all(connection)
    interim = b"HTTP/1.1 100 \r\n\r\n"
    *before, answer = found.split(interim)
    assert not any(before) and answer.startswith(b"HTTP/1.1 200 ")
    assert before or stream  # of a stream that has begun each token asks
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n" if stream else b"}")
    slow.assert_idle()


def test_a_waiting_stream_is_asked_by_comments(slow):
    """It has said who speaks, and waits for its first token: a client that is gone would hold its place."""
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(slow.post_raw("/v1/completions", fields(slow)))
        slow.wait_for(lambda: slow.engine.running == 2)
        asked = fields(slow, messages=[{"role": "user", "content": "a"}], stream=True, max_tokens=50)
        del asked["prompt"]
        connection = stack.enter_context(slow.post_raw("/v1/chat/completions", asked))
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while b"\r\n:\n\n\r\n" not in found:
            part = connection.recv(65536)
            assert part
            found += part
        assert slow.engine.waiting == 1
        connection.close()
        slow.wait_for(lambda: slow.engine.waiting == 0)
        assert slow.engine.running == 2
    slow.assert_idle()


def test_an_old_client_that_sends_no_more_is_not_asked(slow):
    """HTTP/1.0 has no interim responses (RFC 9110, 15.2)."""
    body = json.dumps(fields(slow, max_tokens=50)).encode()
    head = b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with slow.connect() as connection:
        connection.sendall(head + body)
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")
    slow.assert_idle()


def test_a_client_that_sends_half_of_a_body_and_no_more(slow):
    with slow.connect() as connection:
        head = (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        )
        connection.sendall(head + b"{")
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b""
    slow.assert_idle()


def test_pipelined_requests_of_a_client_that_sends_no_more(slow):
    with slow.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection).count(b'{"status":"ok"') == 3


def test_pipelined_requests_are_answered_in_order(slow):
    with slow.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /v1/models/x HTTP/1.1\r\nHost: a\r\n\r\n")
        found = b""
        while b"model_not_found" not in found:
            found += connection.recv(65536)
        assert found.index(b" 200 ") < found.index(b" 404 ")
