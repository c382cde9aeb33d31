"""Test the server against a session of OpenAI's own client that was recorded: the same requests, the same answers.

`python tests/serve/test_recorded.py` records it anew, with the package `openai`, into recorded_session.json: what the
client sent, line by line, and what `isokern serve` answered. Ids and times in answers are left out.
"""

import contextlib
import http.client
import io
import json
import math
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
FILE = Path(__file__).parent / "recorded_session.json"
KEY = "sk-of-the-client"
CLOSE = 2e-3  # between logarithms of probabilities: devices add in other orders


@contextlib.contextmanager
def running(folder):
    """Run `isokern serve`, and return its port."""
    key = Path(folder) / "key"
    key.write_text(KEY)
    words = ["--port", "0", "--model-name", "kjv", "--template", "chatml", "--api-key-file", str(key)]
    command = [sys.executable, "-m", "isokern", "serve", str(MODEL), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        printed = process.stdout.readline()
        found = re.search(r":(\d+)/v1$", printed)
        assert found is not None, printed
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def use(client):
    """Do what a user of the client may."""
    import openai

    chat = {
        "model": "kjv",
        "messages": [{"role": "user", "content": "Who art thou?"}],
        "temperature": 0,
        "max_tokens": 8,
    }
    text = {"model": "kjv", "prompt": "And David said unto the people,", "max_tokens": 8, "temperature": 0}
    place = {"name": "place", "schema": {"type": "object", "properties": {"at": {"enum": ["here", "there"]}}}}
    place["schema"] |= {"required": ["at"], "additionalProperties": False}
    client.models.list()
    client.models.retrieve("kjv")
    client.chat.completions.create(**chat)
    list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
    client.chat.completions.create(**chat, logprobs=True, top_logprobs=2)
    schema = {"type": "json_schema", "json_schema": place}
    client.chat.completions.create(**{**chat, "max_tokens": 30}, response_format=schema)
    client.completions.create(**text, logprobs=2)
    client.completions.create(**{**text, "max_tokens": 40}, stop=["people", ","])
    client.completions.create(**{**text, "temperature": 0.7}, seed=3, top_p=0.9, n=2)
    list(client.completions.create(**{**text, "prompt": ["In the beginning", "Thou shalt not"]}, stream=True))
    for wrong, error in (
        (lambda: client.models.retrieve("gpt-4o"), openai.NotFoundError),
        (lambda: client.completions.create(**{**text, "temperature": 3}), openai.BadRequestError),
        (lambda: client.with_options(api_key="sk-of-another").models.list(), openai.AuthenticationError),
    ):
        with pytest.raises(error):
            wrong()


class Recorder:
    """A port that passes what it gets on to another one, and keeps each request and its answer."""

    def __init__(self, port):
        self.port, self.exchanges = port, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.socket.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(far, near), daemon=True).start()

    def _pass_on(self, near, far):
        while data := near.recv(1 << 16):
            if not self.exchanges or self.exchanges[-1][1]:  # the one before has its answer
                self.exchanges.append((bytearray(), bytearray()))
            self.exchanges[-1][0].extend(data)
            far.sendall(data)
        far.close()

    def _pass_back(self, far, near):
        with contextlib.suppress(OSError):
            while data := far.recv(1 << 16):
                self.exchanges[-1][1].extend(data)
                near.sendall(data)


class Kept:
    """Bytes that were received, as `http.client` reads a socket."""

    def __init__(self, data):
        self._data = data

    def makefile(self, mode):
        return io.BytesIO(self._data)


def read_answer(connection):
    """Return the answer that comes from a socket: status, type, and the document, or the events of a stream."""
    found = http.client.HTTPResponse(connection)
    found.begin()
    kind, body = found.headers["content-type"], found.read().decode()
    if kind.startswith("text/event-stream"):
        lines = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        content = join_events([leave_out(json.loads(line)) for line in lines])
    else:
        content = leave_out(json.loads(body))
    return {"status": found.status, "type": kind, "content": content}


def join_events(events):
    """Return the events of a stream by text, those that follow each other as one: how many there are is up to time."""
    joined = []
    for event in sorted(events, key=lambda e: e["choices"][0]["index"] if e["choices"] else math.inf):
        if joined and (both := join_two(joined[-1], event)):
            joined[-1] = both
        else:
            joined.append(event)
    return joined


def join_two(first, second):
    """Return two events as one if they are alike but for their texts, else None."""
    texts, others = [], []
    for event in (first, second):
        other = json.loads(json.dumps(event))
        held = next((c.get("delta", c) for c in other["choices"]), {})
        name = "content" if "content" in held else "text"
        texts.append(held.get(name))
        held[name] = None
        others.append(other)
    if None in texts or others[0] != others[1]:
        return None
    held[name] = "".join(texts)  # where it was: one event has the same order of keys as several
    return other


def leave_out(value):
    """Return a document without what differs from time to time: a model's id stays."""
    if isinstance(value, list):
        return [leave_out(each) for each in value]
    if isinstance(value, dict):
        own = {"created"} if value.get("object") == "model" else {"created", "id"}
        return {key: "…" if key in own else leave_out(each) for key, each in value.items()}
    return value


def differ(got, wanted, place=""):
    """Return the places where two documents differ."""
    if isinstance(got, float) and isinstance(wanted, float):
        return [] if math.isclose(got, wanted, abs_tol=CLOSE) else [(place, got, wanted)]
    if type(got) is not type(wanted) or (isinstance(got, dict | list) and len(got) != len(wanted)):
        return [(place, got, wanted)]
    if isinstance(got, dict):
        if [*got] != [*wanted]:
            return [(place, [*got], [*wanted])]
        return [found for key in got for found in differ(got[key], wanted[key], f"{place}.{key}")]
    if isinstance(got, list):
        return [
            found for i, (a, b) in enumerate(zip(got, wanted, strict=True)) for found in differ(a, b, f"{place}[{i}]")
        ]
    return [] if got == wanted else [(place, got, wanted)]


def test_the_answers_are_those_of_the_recorded_session(tmp_path):
    for package in ("tokenizers", "jinja2", "starlette", "uvicorn", "llguidance"):
        pytest.importorskip(package)
    with running(tmp_path) as port:
        for i, exchange in enumerate(read_session()):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall("\r\n".join(exchange["request"]).encode())
                assert differ(read_answer(connection), exchange["answer"], f"{i}") == []


def test_the_session_has_all_of_it():
    exchanges = read_session()
    statuses = [exchange["answer"]["status"] for exchange in exchanges]
    assert {200, 400, 401, 404} == {*statuses} and statuses.count(200) == 10
    streams = [e["answer"]["content"] for e in exchanges if e["answer"]["type"].startswith("text/event-stream")]
    assert [len(stream) for stream in streams] == [4, 4]
    assert all(any(line.startswith("user-agent: OpenAI/Python") for line in e["request"]) for e in exchanges)


def test_events_are_joined():
    def event(text, index=0, **more):
        return {"choices": [{"index": index, "delta": {"content": text, **more}, "finish_reason": None}], "usage": None}

    usage, end = {"choices": [], "usage": 3}, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    given = [event("", role="assistant"), event("a"), event("x", 1), event("b"), event("c"), end, usage, usage]
    wanted = [event("", role="assistant"), event("abc"), end, event("x", 1), usage, usage]
    assert join_events(given) == wanted
    first, both = event("a", end=1), join_two(event("a", end=1), event("b", end=1))
    assert [*both["choices"][0]["delta"]] == [*first["choices"][0]["delta"]]


def test_differences_are_found():
    assert differ({"a": [1, "b"]}, {"a": [1, "b"]}) == differ([0.5], [0.5 + CLOSE / 2]) == []
    for got in ({"a": [1, "c"]}, {"a": [1]}, {"b": [1, "b"]}, {"a": [1.0, "b"]}, {}):
        assert len(differ(got, {"a": [1, "b"]})) == 1
    assert len(differ([0.5], [0.5 + 2 * CLOSE])) == 1


def read_session():
    return json.loads(FILE.read_text(encoding="utf-8"))


def write(value):
    """Return an exchange as JSON, what it consists of a line each."""
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in value) + "]"
    if isinstance(value, dict) and value.keys() & {"request", "answer", "status"}:
        return "{" + ",\n".join(f"{json.dumps(key)}: {write(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def record(folder):
    """Write the session of the client that is installed."""
    import openai

    with running(folder) as port:
        recorder = Recorder(port)
        url = f"http://127.0.0.1:{recorder.socket.getsockname()[1]}/v1"
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            use(client)
        recorder.socket.close()
    made = [
        {"request": asked.decode("ascii").split("\r\n"), "answer": read_answer(Kept(bytes(answered)))}
        for asked, answered in recorder.exchanges
    ]
    FILE.write_text(f"[{','.join(map(write, made))}]\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        record(folder)
