"""Test the command itself: what it prints, its options, and how it ends on signals."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
PROMPT = "And David said unto the people,"
for package in ("tokenizers", "jinja2", "starlette", "uvicorn"):
    pytest.importorskip(package)
main = pytest.importorskip("isokern.cli").main
Server = pytest.importorskip("isokern.serve").Server


class Process:
    """`isokern serve` as a process, with `slow` one whose steps take 50 ms.

    `address` and `port` are what it printed, and `lines` what it wrote to stderr so far.
    """

    def __init__(self, *words, slow=False):
        begin = ["-c", SLOW] if slow else ["-m", "isokern"]
        command = [sys.executable, *begin, "serve", str(MODEL), "--port", "0", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.reader.start()
        self.printed = self.process.stdout.readline()
        found = re.search(r": http://(.*):(\d+)/v1$", self.printed)
        if found is None:
            self.wait()
            raise AssertionError("".join(self.lines))
        self.address, self.port = found[1], int(found[2])

    def wait(self):
        """Wait for its end, and return its status."""
        status = self.process.wait(60)
        self.reader.join(60)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()


@contextlib.contextmanager
def running(*words, slow=False):
    made = Process(*words, slow=slow)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.wait()


@pytest.fixture
def client(serve):
    """Return a function that makes a client of a port."""
    return lambda port, **headers: serve.__globals__["Client"](port, **headers)


def stream(client, **fields):
    """Return a connection to a stream that has begun, and what it had so far."""
    given = {"prompt": PROMPT, "stream": True, "temperature": 0, **fields}
    connection = client.post_raw("/v1/completions", given)
    found = b""
    while b"data: " not in found:
        found += connection.recv(65536)
    return connection, found


def read_rest(connection, found):
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    connection.close()
    return found


SLOW = """
import sys, time
from isokern.cli import main
from isokern.llm.batch import BatchRunner
def slowly(*given, run=BatchRunner.run):
    time.sleep(0.05)
    return run(*given)
BatchRunner.run = slowly
main(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_it_serves_until_a_signal(client, number):
    with running("--template", "chatml") as served:
        assert served.printed.startswith("kjv-2.7m-q4_0 on ") and served.address == "127.0.0.1"
        http = client(served.port)
        assert len(http.complete(max_tokens=5).texts) == 1
        assert http.chat(max_tokens=2).status == 200
        assert http.get("/health", Host="evil.example").status == 403
        assert served.end(number) == 0
    assert served.lines[-1] == "The server has ended.\n"
    assert re.fullmatch(r"[-\d: ,]+ POST /v1/completions 200 8\+5 tokens \d+\.\d+ s\n", served.lines[0])
    assert len(served.lines) == 4


@pytest.mark.full
def test_texts_have_the_grace_time(client):
    with running(slow=True) as served:
        http = client(served.port)
        connection, found = stream(http, max_tokens=40, stop=None)
        served.process.send_signal(signal.SIGTERM)
        found = read_rest(connection, found)
        assert found.count(b"data: ") > 30 and b'"finish_reason":"length"' in found and b"data: [DONE]" in found
        with pytest.raises(ConnectionRefusedError):
            http.get("/health")
        assert served.wait() == 0


@pytest.mark.full
def test_after_the_grace_time_texts_are_cancelled(client):
    with running("--grace", 0.5, slow=True) as served:
        http = client(served.port)
        connection, found = stream(http, max_tokens=500)
        whole = {"prompt": PROMPT, "max_tokens": 500}
        other = http.post_raw("/v1/completions", whole)
        found += connection.recv(65536)
        served.process.send_signal(signal.SIGINT)
        found, answer = read_rest(connection, found), read_rest(other, b"")
        assert served.wait() == 0
    assert found.count(b"data: ") < 200 and b"[DONE]" not in found and b'"code":"shutting_down"' in found
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"shutting_down"' in answer
    assert sum("POST" in line for line in served.lines) == 2
    assert "Traceback" not in "".join(served.lines)


@pytest.mark.full
def test_a_second_interrupt_ends_it_at_once(client):
    with running("--grace", 1000, slow=True) as served:
        connection, found = stream(client(served.port), max_tokens=500)
        served.process.send_signal(signal.SIGINT)
        while client_is_served(client, served.port):
            pass
        served.process.send_signal(signal.SIGINT)
        assert served.wait() == 0
        assert b'"code":"shutting_down"' in read_rest(connection, found)
    assert served.lines[-1] == "The server has ended.\n" and "Traceback" not in "".join(served.lines), served.lines


def client_is_served(client, port):
    try:
        return client(port).get("/health").status == 200
    except (ConnectionError, OSError):
        return False


@pytest.mark.full
def test_a_client_that_reads_nothing_does_not_keep_it_alive(client):
    with running("--grace", 1) as served:
        connection = client(served.port).post_raw("/v1/completions", {"prompt": "a"})
        idle = client(served.port).connect()
        half = client(served.port).connect()
        half.sendall(b"POST /v1/completions HT")
        assert served.end() == 0
        for each in (connection, idle, half):
            each.close()


def test_the_key_is_read_from_a_file(client, tmp_path):
    path = tmp_path / "key"
    path.write_text("sk-in-a-file\n")
    with running("--api-key-file", path, "--model-name", "org/kjv") as served:
        assert client(served.port).get("/v1/models").status == 401
        good = client(served.port, Authorization="Bearer sk-in-a-file")
        assert good.get("/v1/models/org/kjv").document["id"] == "org/kjv"
        assert good.get("/health", Host="any.example").status == 200  # who has the key may call it what he likes
        assert served.end() == 0
    assert "sk-in-a-file" not in "".join(served.lines) + served.printed


@pytest.mark.full
def test_a_warning_where_others_reach_it(client):
    with running("--host", "0.0.0.0") as served:
        assert served.address == "0.0.0.0" and client(served.port).get("/health", Host="any.example").status == 200
        served.end()
    assert any(
        "warning: everyone who reaches 0.0.0.0 may use the model: give --api-key-file" in x for x in served.lines
    )


def test_options_reach_the_engine(client):
    with running("--context", 600) as served:
        assert served.end() == 0
    assert any("warning: 600 positions are more than the 512" in line for line in served.lines)
    words = ["--context", 64, "--positions", 64, "--batch", 2, "--queue", 1, "--cache", "Q8_0", "--exact"]
    more = ["--activations", "q8_0", "--prepack", "--max-tokens", 9, "--max-body", 300, "--device", "cpu:0"]
    with running(*words, *more) as served:
        http = client(served.port)
        assert http.complete(max_tokens=10).error["param"] == "max_tokens"
        assert http.complete(n=4).error["param"] == "n"
        assert http.complete("a" * 300).status == 413
        assert "64 in all" in http.complete([1] * 65).error["message"]
        assert len(http.complete(n=3, max_tokens=9, temperature=1).texts) == 3
        assert http.chat().error["code"] == "no_chat_template"
        assert served.end() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "99999"], "--port=99999; allowed: an integer from 0 to 65535"),
        (["--host", "256.0.0.1"], "256.0.0.1, port 0"),
        (["--host", "192.0.2.1"], "192.0.2.1, port 0"),
        (["--api-key-file", "/nowhere/key"], "/nowhere/key"),
        (["--template", "nowhere"], "template nowhere"),
        (["--batch", "0"], "batch=0"),
        (["--queue", "-1"], "queue=-1"),
        (["--max-body", "0"], "body=0"),
        (["--max-tokens", "0"], "tokens=0"),
        (["--max-priority", "-1"], "priority=-1"),
        (["--timeout", "0"], "seconds=0"),
        (["--timeout", "nan"], "seconds=nan"),
        (["--grace", "-1"], "--grace -1"),
        (["--context", "0"], "context=0"),
        (["--cache", "F99"], "F99"),
        (["--activations", "int8"], "int8"),
        (["--device", "nowhere"], "nowhere"),
    ],
)
def test_options_that_are_wrong(words, message, monkeypatch, capsys):
    monkeypatch.setattr(Server, "run", lambda *_: pytest.fail("it serves"))
    with pytest.raises(SystemExit) as end:
        main(["serve", str(MODEL), "--port", "0", *words])
    out, err = capsys.readouterr()
    assert end.value.code in (2, 3) and out == ""
    assert message in err and "Traceback" not in err


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "isokern", "serve", str(MODEL), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and f"127.0.0.1, port {port}: " in done.stderr


def test_without_the_packages_it_says_what_to_install(run):
    code = f"""
import sys
sys.modules["starlette"] = None
sys.modules["starlette.applications"] = None
from isokern.cli import main
main(["serve", {str(MODEL)!r}])
"""
    status, output = run(code)
    assert status == 2 and "pip install 'isokern[serve]'" in output and "Traceback" not in output


def test_the_help_lists_every_option():
    done = subprocess.run(
        [sys.executable, "-m", "isokern", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
    )
    for option in (
        *("host", "port", "api-key-file", "model-name", "template", "device", "context", "positions", "batch", "queue"),
        *("max-tokens", "max-body", "timeout", "grace", "cache", "activations", "prepack", "exact"),
    ):
        assert f"--{option}" in done.stdout
