"""A server in a thread of this process, with the model of examples/models, and a client of the standard library."""

import http.client
import json
import socket
import threading
import time
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
PROMPT = "And David said unto the people,"
LATEST = 60  # seconds for what has to come


def wait_for(condition, seconds=LATEST):
    """Wait until a condition holds, and fail if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what has to come did not come"
        time.sleep(0.005)


class Answer:
    """What a server answered: `status`, `headers`, the bytes of the body, and the JSON `document` that they are."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def document(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The error object, which has exactly OpenAI's fields."""
        (name,) = self.document
        found = self.document[name]
        assert name == "error" and set(found) == {"message", "type", "param", "code"}, found
        assert isinstance(found["message"], str) and found["message"]
        return found

    @property
    def texts(self):
        return [c["text"] if "text" in c else c["message"]["content"] for c in self.document["choices"]]

    @property
    def events(self):
        """The JSON documents of a stream that ended as it has to."""
        *events, done = read_events(self.body)
        assert done == "[DONE]"
        return events


def read_events(body):
    """Return the events of a stream: JSON documents, and the text of what is none."""
    *parts, rest = body.decode("ascii").split("\n\n")
    assert rest == "" and all(part.startswith("data: ") and "\n" not in part for part in parts), body
    data = [part.removeprefix("data: ") for part in parts]
    return [text if text == "[DONE]" else json.loads(text) for text in data]


class Client:
    """Requests to a port of this machine."""

    wait_for = staticmethod(wait_for)
    read_events = staticmethod(read_events)

    def __init__(self, port, **headers):
        self.port = port
        self.headers = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}

    def request(self, method, path, body=None, **headers):
        """Return the answer to one request; a body that is no bytes becomes JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LATEST)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            named = {k.replace("_", "-"): v for k, v in headers.items()}
            connection.request(method, path, data, {**self.headers, **named})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", path, **headers)

    def complete(self, prompt=PROMPT, **fields):
        """Return the answer to a completion; greedy, unless the fields say otherwise."""
        return self.request("POST", "/v1/completions", {"prompt": prompt, "temperature": 0, **fields})

    def chat(self, messages="Who art thou?", **fields):
        """Return the answer to a chat completion; one text is a user's only message."""
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return self.request("POST", "/v1/chat/completions", {"messages": given, "temperature": 0, **fields})

    def connect(self):
        """Return a socket to write anything to."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=LATEST)

    def post_raw(self, path, fields):
        """Return a socket on which a request was sent, and nothing read."""
        body, made = json.dumps(fields).encode(), self.connect()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        made.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return made


class Served(Client):
    """A server that runs in a thread, and a client of it."""

    def __init__(self, engine, tokenizer, template, grace, **options):
        from isokern.serve import Server, application
        from isokern.serve.server import bind

        self.engine, self.tokenizer = engine, tokenizer
        self.app = application(engine, tokenizer, template, **{"name": "kjv", **options})
        self.server, self.socket = Server(self.app, grace), bind("127.0.0.1", 0)
        super().__init__(self.socket.getsockname()[1])
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        wait_for(lambda: self.server.started or not self.thread.is_alive())
        assert self.server.started

    @property
    def service(self):
        return self.app.state.service

    def assert_idle(self):
        """Nothing is left of earlier requests: no text, no waiting one, no page that is held."""
        pool = self.engine.pool
        wait_for(lambda: self.service.texts == self.service.bodies == self.engine.running == self.engine.waiting == 0)
        wait_for(lambda: pool.available == pool.count)
        assert set(pool.holders) == {0}

    def slow_down(self, seconds=0.02):
        """Have each step of the engine take longer."""
        run = self.engine.runner.run

        def slowly(*given):
            time.sleep(seconds)
            return run(*given)

        self.engine.runner.run = slowly

    def stop(self):
        """End the server, and see that it ends."""
        self.server.should_exit = True
        self.thread.join(LATEST)
        assert not self.thread.is_alive()


@pytest.fixture(scope="session")
def model():
    """Return the model, on the default device."""
    for package in ("tokenizers", "jinja2", "starlette", "uvicorn"):
        pytest.importorskip(package)
    from isokern.llm import Model

    return Model.open(MODEL)


@pytest.fixture(scope="session")
def template(model):
    """Return a chat template for the model, which has none."""
    from isokern.llm import Template

    return Template(model.gguf, model.tokenizer(), "chatml")


@pytest.fixture(scope="module")
def serve(model, template):
    """Return a function that starts a server of the model; all end with the module."""
    from isokern.llm import Engine
    from isokern.serve import Limits

    started = []

    def start(engine=None, template=template, grace=20, limits=None, other=None, **options):
        held = other or model
        made = Engine(held, **(engine or {}))
        started.append(Served(made, held.tokenizer(), template, grace, limits=Limits(**(limits or {})), **options))
        return started[-1]

    yield start
    for served in started:
        served.stop()


@pytest.fixture(scope="module")
def served(serve):
    """Return a server that the tests of a module share; nothing of a test is left when it ends."""
    return serve()


@pytest.fixture(autouse=True)
def _leave_nothing(request):
    yield
    if "served" in request.fixturenames:
        request.getfixturevalue("served").assert_idle()
