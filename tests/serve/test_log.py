"""Test what the log has, and what a client is told of faults that are the server's."""

import logging

import pytest

from isokern import status

KEY = "sk-a-secret-of-this-test"


@pytest.fixture(scope="module")
def locked(serve):
    return serve(key=KEY)


@pytest.fixture
def lines():
    """Return the lines of the log, as they come."""
    found, log = [], logging.getLogger("isokern.serve")

    class Keep(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler, level = Keep(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield found
    log.removeHandler(handler)
    log.setLevel(level)


def test_the_log_has_a_line_a_request_and_no_text(locked, lines):
    good = {"Authorization": f"Bearer {KEY}"}
    secret = "zebedee"
    fields = {"prompt": secret, "max_tokens": 5, "temperature": 0, "user": secret, "stop": secret}
    locked.request("POST", f"/v1/completions?{secret}", fields, **good)
    locked.request("POST", "/v1/completions", {**fields, "stream": True, "echo": True}, **good)
    locked.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": secret}], "n": 2}, **good)
    locked.request("POST", "/v1/completions", {**fields, secret: 1}, **good)
    locked.request("POST", "/v1/completions", {**fields, "model": secret}, **good)
    locked.request("POST", "/v1/completions", f'{{"{secret}": '.encode(), **good)
    locked.request("POST", "/v1/completions", fields, Authorization=f"Bearer {secret}{KEY}")
    locked.request("GET", "/a%0ab%20" + "c" * 500, **good)
    locked.wait_for(lambda: len(lines) >= 8)
    shown = [line.rsplit(" ", 2)[0] for line in lines]
    size = len(locked.tokenizer.encode(secret, eos=False))
    assert shown[0] == shown[1] == f"POST /v1/completions 200 {size}+5 tokens"
    assert shown[2].startswith("POST /v1/chat/completions 200 ")
    assert shown[3:7] == [f"POST /v1/completions {status}" for status in (400, 404, 400, 401)]
    assert shown[7].startswith("GET /a%0ab%20ccc") and shown[7].endswith("c 404") and len(shown[7]) < 220
    assert len(lines) == 8
    assert all(line.endswith(" s") and float(line.split()[-2]) < 60 for line in lines)
    assert secret not in "".join(lines) and KEY not in "".join(lines)


def test_a_fault_of_the_server_is_answered_and_logged_without_text(serve, lines):
    served = serve()

    def fail(*given, **named):
        raise RuntimeError(f"a secret: {given}")

    served.tokenizer.encode, encode = fail, served.tokenizer.encode
    answer = served.complete("a secret")
    assert (answer.status, answer.error["code"], answer.error["type"]) == (500, "internal_error", "server_error")
    served.wait_for(lambda: len(lines) == 2)
    assert lines[0].startswith("RuntimeError at ") and "secret" not in "".join(lines) + str(answer.body)
    served.tokenizer.encode = encode
    served.engine.runner.run = fail
    for ask, code in ((served.complete, 500), (served.chat, 500), (served.complete, 500), (served.chat, 200)):
        answer = ask("a", stream=len(lines) > 4)
        assert answer.status == code and "secret" not in str(answer.body)
        error = answer.error if code == 500 else served.read_events(answer.body)[-1]["error"]  # after who speaks
        assert error["code"] == "internal_error"
        served.wait_for(lambda: len(lines) % 2 == 0)
        assert lines[-2].startswith("RuntimeError at ") and "secret" not in "".join(lines)
    assert len(lines) == 10
    served.assert_idle()


def test_errors_while_a_text_is_made(serve):
    served = serve()
    for error, code in [
        (status.InvalidArgument("here", "what was given"), 400),
        (status.OutOfMemory("here", "too little"), 503),
        (status.InternalError("here", "a defect"), 500),
    ]:

        def fail(*given, error=error):
            raise error

        served.engine.runner.run = fail
        answer = served.complete("a")
        assert (answer.status, answer.error["message"]) == (code, str(error))
        assert answer.error["type"] == ("invalid_request_error" if code == 400 else "server_error")
    served.assert_idle()
