"""Test random and mutated bodies, and a soak: never an answer of 500, nothing stuck, nothing left, the same texts."""

import contextlib
import gc
import json
import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isokern.llm import Request, renderers

pytestmark = pytest.mark.full
CALLS = int(os.environ.get("SERVE_SOAK_REQUESTS", "3000"))
TEXT = {
    "model": "kjv",
    "prompt": "In the beginning",
    "max_tokens": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.01,
    "typical": 0.9,
    "order": ["top_k", "typical", "top_p", "min_p", "temperature"],
    "repetition_penalty": 1.1,
    "seed": 1,
    "n": 2,
    "stop": ["Lord", "God"],
    "logit_bias": {"5": 1.5, "6": -100},
    "echo": False,
    "stream": True,
    "stream_options": {"include_usage": True},
    "user": "me",
    "priority": 1,
    "best_of": None,
}
CHAT = {
    **{k: v for k, v in TEXT.items() if k not in ("prompt", "echo", "best_of")},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who?"}]},
    ],
    "max_completion_tokens": 3,
    "tools": None,
    "response_format": {"type": "text"},
}
BODIES = {"/v1/completions": TEXT, "/v1/chat/completions": CHAT}
ODD = [
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-300, 1e300, 1e-45, 1 << 31, 1 << 63, -(1 << 63), (1 << 64) + 1),
    *(10**300, "", " ", "a", "\0", "\ufffd", "\ue000", "</s>", "<|im_end|>", "\U0001f600", "é" * 300, "x" * 2000),
    *([], {}, [[]], [0], [2047], [1] * 30, [""], ["a", "b"], [None], {"a": 1}, {"1": 1}, {"type": "text"}),
    *({"2047": -100.0}, [{"role": "user", "content": "a"}], {"role": "user"}, [[1, 2], [3]], "0", "NaN"),
]


def mutate(rng, value):
    """Return a JSON value with one place of it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.2:
            return {**value, rng.choice(["x", "", "é", key + "s", "tools", "suffix", "logprobs"]): rng.choice(ODD)}
        return {**value, key: mutate(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], mutate(rng, value[at]), *value[at + rng.randrange(2) :]]
    return rng.choice(ODD)


def damage(rng, body):
    """Return a body with some bytes changed, left out, or doubled."""
    body = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(body))
        kind = rng.randrange(4)
        if kind == 0:
            body[at] = rng.randrange(256)
        elif kind == 1:
            del body[at : at + rng.randint(1, 20)]
        elif kind == 2:
            body[at:at] = body[at : at + rng.randint(1, 20)]
        else:
            body[at:at] = rng.choice([b"NaN", b"1e999", b"\xff", b"\\ud800", b"[" * 500, b'"', b"}", b"\0", b"{}"])
        body = body or bytearray(b"x")
    return bytes(body)


def draw_body(rng):
    """Return a path and a body that may be wrong in any way."""
    path = rng.choice(list(BODIES))
    value = BODIES[path]
    for _ in range(rng.choice([1, 1, 2, 5])):
        value = mutate(rng, value)
    body = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode()
    return path, damage(rng, body) if rng.random() < 0.3 else body


def check(answer, shown):
    """Fail unless an answer is one that a body may have."""
    assert answer.status in (200, 400, 404), (answer.status, answer.body, shown)
    if answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream"):
        assert all("error" not in event for event in answer.events), shown
    elif answer.status == 200:
        assert answer.document["choices"], shown
    else:
        assert answer.error["type"] == "invalid_request_error", shown


def test_bodies_that_are_wrong_in_any_way(serve):
    served = serve(limits={"tokens": 8, "queue": 200, "priority": 2})
    rng = random.Random(5)
    drawn = [draw_body(rng) for _ in range(900)]

    def ask(case):
        answer = served.request("POST", *case)
        check(answer, case)
        return answer.status

    with ThreadPoolExecutor(8) as pool:
        counts = Counter(pool.map(ask, drawn))
    assert counts[200] > 30 and counts[400] > 200 and sum(counts.values()) == 900
    served.assert_idle()


def test_what_comes_over_the_wire_is_wrong_in_any_way(serve):
    """The requests themselves are damaged, headers and all; the server goes on."""
    served = serve(limits={"seconds": 0.5, "tokens": 8, "priority": 2})
    rng = random.Random(6)
    good = json.dumps(TEXT).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"

    def ask(seed):
        rng = random.Random(seed)
        with served.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(damage(rng, head % len(good) + good))
            found = b""
            while part := connection.recv(65536):
                found += part
            assert not found or found[:12] not in (b"HTTP/1.1 500", b"HTTP/1.1 503"), found

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, [rng.random() for _ in range(160)]))
    served.assert_idle()
    assert served.complete(max_tokens=1).status == 200


def measure(served):
    """Return what must not grow: live requests, threads, descriptors, programs, tasks and connections."""
    gc.collect()
    pipes = 2 * len(renderers._waiting)  # of processes that are kept, up to four
    return {
        "requests": sum(type(x) is Request for x in gc.get_objects()),  # others may warn when they are asked
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")) - pipes if Path("/proc/self/fd").exists() else 0,
        "programs": len(served.engine.runner.programs),
        "tasks": len(served.server.server_state.tasks),
        "connections": len(served.server.server_state.connections),
    }


def resident():
    """Return the bytes of this process in memory, where the system says so."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@pytest.mark.full
def test_a_soak(serve):
    """Of thousands of requests many are broken off: every text is what it is alone, and nothing stays."""
    served = serve(
        engine={"batch": 8, "positions": 1024, "exact": True}, limits={"queue": 300, "tokens": 200, "priority": 2}
    )
    prompts = ["In the beginning", "And David said unto the people,", "Blessed is the man " * 8, "", "Thou shalt not"]
    asked = [
        {"prompt": p, "max_tokens": most, "n": n, "stop": stop}
        for p in prompts
        for most in (1, 7, 40)
        for n in (1, 2)
        for stop in (None, ["the"])
    ]
    alone = [served.complete(**fields).texts for fields in asked]
    talk = served.chat(max_tokens=6).texts
    lock, counts = threading.Lock(), Counter()

    def ask(seed):
        rng = random.Random(seed)
        kind, at = rng.randrange(10), rng.randrange(len(asked))
        fields = {**asked[at], "priority": rng.randint(-2, 2)}
        if kind < 4:
            assert served.complete(**fields).texts == alone[at], fields
        elif kind < 6:
            texts = [""] * fields["n"]
            for event in served.complete(**fields, stream=True).events:
                texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
            assert texts == alone[at], fields
        elif kind < 7:
            check(served.request("POST", *draw_body(rng)), seed)
        elif kind < 9:
            more = {"temperature": 1, "max_tokens": 200, "stream": rng.random() < 0.5}
            with served.post_raw("/v1/completions", {**fields, **more}) as connection:
                time.sleep(rng.random() / 10)
                if rng.random() < 0.3:
                    connection.recv(100)
        elif rng.random() < 0.3:
            assert served.chat(max_tokens=6).texts == talk
        else:
            assert served.complete(**{**fields, "n": 0}).status == 400
        with lock:
            counts[kind] += 1

    def run(seeds):
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(ask, seeds))
        served.assert_idle()
        served.wait_for(lambda: not served.server.server_state.connections)

    run(range(CALLS // 4))
    first, size = measure(served), resident()
    run(range(CALLS // 4, CALLS))
    last = measure(served)
    assert sum(counts.values()) == CALLS and len(counts) == 10
    assert last["requests"] == 0 and last["tasks"] == 0 and last["connections"] == 0
    assert all(last[name] <= first[name] + 2 for name in first), (first, last)
    assert resident() - size < 48 << 20, f"{(resident() - size) >> 20} MiB more"
    assert [served.complete(**fields).texts for fields in asked] == alone
