"""Test POST /v1/completions and the models: shapes, streams, choices, stop strings, seeds, usage."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
PROMPT = "And David said unto the people,"


def test_an_answer_has_openai_s_shape(served):
    begin = int(time.time())
    answer = served.complete(max_tokens=8, user="u", model="kjv")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    found = answer.document
    assert found.pop("id").startswith("cmpl-")
    assert begin <= found.pop("created") <= time.time()
    (choice,) = found.pop("choices")
    assert len(choice.pop("text")) > 10
    assert choice == {"index": 0, "logprobs": None, "finish_reason": "length"}
    size = len(served.tokenizer.encode(PROMPT, eos=False))
    details = found["usage"].pop("prompt_tokens_details")
    assert set(details) == {"cached_tokens"}
    usage = {"prompt_tokens": size, "completion_tokens": 8, "total_tokens": size + 8}
    assert found == {"object": "text_completion", "model": "kjv", "usage": usage}


def test_the_models(served):
    (model,) = served.get("/v1/models").document["data"]
    assert model == {"id": "kjv", "object": "model", "owned_by": "isokern", "created": model["created"]}
    assert served.get("/v1/models/kjv").document == model
    assert served.get("/v1/models").document["object"] == "list"
    for name in ("x", "", "kjv/x", "%2e%2e"):
        answer = served.get(f"/v1/models/{name}")
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert served.get("/health").document == {"status": "ok", "running": 0, "waiting": 0}


def test_the_coldest_temperature_takes_the_largest(served):
    wanted = served.complete(max_tokens=8, presence_penalty=0.1).texts
    for order in (["top_k", "temperature", "top_p", "min_p"], None):
        answer = served.complete(max_tokens=8, presence_penalty=0.1, temperature=1e-300, order=order)
        assert (answer.status, answer.texts) == (200, wanted)


def test_a_stream_is_the_whole_text_in_pieces(served):
    whole = served.complete(max_tokens=30).document
    for options in (None, {}, {"include_usage": False}, {"include_usage": True}):
        answer = served.complete(max_tokens=30, stream=True, stream_options=options)
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = answer.events
        assert len({(e["id"], e["created"], e["object"], e["model"]) for e in events}) == 1
        assert events[0]["object"] == "text_completion"
        if options and options["include_usage"]:
            last = events.pop()
            assert last["choices"] == []
            assert {**last["usage"], "prompt_tokens_details": None} == {**whole["usage"], "prompt_tokens_details": None}
            assert all(e["usage"] is None for e in events)
        else:
            assert all("usage" not in e for e in events)
        choices = [e["choices"][0] for e in events]
        assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["length"]
        assert len(choices) > 1 and all(c["text"] for c in choices[:-1])
        assert "".join(c["text"] for c in choices) == whole["choices"][0]["text"]


def test_characters_of_several_tokens_come_whole(served):
    """The vocabulary has bytes as tokens: a bias makes the model write them one by one."""
    size, letters = len(served.tokenizer), served.tokenizer.encode("é", bos=False, eos=False)
    assert len(letters) == 2
    bias = {str(i): 100 for i in letters}
    answer = served.complete(max_tokens=40, logit_bias=bias, temperature=2, seed=5, stream=True)
    texts = [e["choices"][0]["text"] for e in answer.events]
    assert all(text.strip("�é") == "" for text in texts) and "é" in "".join(texts) and size == 2048
    assert served.complete(max_tokens=40, logit_bias=bias, temperature=2, seed=5).texts == ["".join(texts)]


def test_many_prompts_and_choices(served):
    prompts = ["In the beginning", PROMPT]
    alone = [served.complete(p, max_tokens=10, temperature=0.9, seed=s).texts[0] for p in prompts for s in (7, 8, 9)]
    answer = served.complete(prompts, max_tokens=10, temperature=0.9, seed=7, n=3, best_of=3)
    assert answer.texts == alone and len(set(alone)) == 6
    assert [c["index"] for c in answer.document["choices"]] == [0, 1, 2, 3, 4, 5]
    sizes = [len(served.tokenizer.encode(p, eos=False)) for p in prompts]
    assert answer.document["usage"]["prompt_tokens"] == sum(sizes)
    assert answer.document["usage"]["completion_tokens"] == 60
    texts = [""] * 6
    for event in served.complete(prompts, max_tokens=10, temperature=0.9, seed=7, n=3, stream=True).events:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert texts == alone


def test_prompts_of_tokens(served):
    tokens = [served.tokenizer.encode(p, eos=False) for p in ("In the beginning", PROMPT)]
    texts = served.complete(["In the beginning", PROMPT], max_tokens=6).texts
    assert served.complete(tokens, max_tokens=6).texts == texts
    assert served.complete(tokens[1], max_tokens=6).texts == texts[1:]
    echoed = served.complete(tokens, max_tokens=6, echo=True).texts
    assert echoed == ["In the beginning" + texts[0], PROMPT + texts[1]]
    events = served.complete(PROMPT, max_tokens=6, echo=True, stream=True).events
    assert events[0]["choices"][0]["text"] == PROMPT
    assert "".join(e["choices"][0]["text"] for e in events) == PROMPT + texts[1]
    assert len(served.complete("").texts) == 1  # BOS alone


def test_control_tokens_in_a_prompt_are_text(served):
    assert served.complete("a</s>", max_tokens=1).document["usage"]["prompt_tokens"] > 3


def test_a_text_ends_before_a_stop_string(served):
    (whole,) = served.complete(max_tokens=40).texts
    word = whole.split()[6]
    for stop in (word, [word], ["never so", word + whole, word], [word[1:], word]):
        expected = whole[: min(whole.index(s) for s in ([stop] if isinstance(stop, str) else stop) if s in whole)]
        answer = served.complete(max_tokens=40, stop=stop)
        assert (answer.texts, answer.document["choices"][0]["finish_reason"]) == ([expected], "stop")
        assert 0 < answer.document["usage"]["completion_tokens"] < 40
        events = served.complete(max_tokens=40, stop=stop, stream=True).events
        assert "".join(e["choices"][0]["text"] for e in events) == expected
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
    for stop in (None, [], "never so", whole + "never"):
        assert served.complete(max_tokens=40, stop=stop).texts == [whole]


def test_the_model_ends_a_text(served):
    end = str(served.tokenizer.eos)
    answer = served.complete(max_tokens=9, logit_bias={end: 100})
    assert answer.texts == [""] and answer.document["choices"][0]["finish_reason"] == "stop"
    assert answer.document["usage"]["completion_tokens"] == 0
    (event,) = served.complete(max_tokens=9, logit_bias={end: 100}, stream=True).events
    assert event["choices"][0]["finish_reason"] == "stop"


def test_seeds(served):
    drawn = [served.complete(max_tokens=12, temperature=None, seed=seed).texts[0] for seed in (1, 1, 2, -1)]
    assert drawn[0] == drawn[1] and len(set(drawn)) == 3
    assert len({served.complete(max_tokens=12, temperature=None).texts[0] for _ in range(4)}) == 4
    last = (1 << 63) - 1
    assert served.complete(max_tokens=6, temperature=1, seed=last, n=2).texts[1:] == (
        served.complete(max_tokens=6, temperature=1, seed=-(1 << 63)).texts
    )


def test_extensions_and_defaults(served):
    top = served.complete(max_tokens=12).texts
    assert served.complete(max_tokens=12, temperature=2, top_k=1, seed=1).texts == top
    assert served.complete(max_tokens=12, temperature=2, min_p=1, seed=1).texts == top
    assert served.complete(max_tokens=12, temperature=2, top_p=1e-9, seed=1).texts == top
    assert served.complete(max_tokens=40, repetition_penalty=5).texts != served.complete(max_tokens=40).texts
    assert served.complete(max_tokens=12, priority=-3).texts == top
    assert served.complete().document["usage"]["completion_tokens"] == 16
    first = served.complete(max_tokens=1).texts[0]
    token = served.tokenizer.encode(first, bos=False, eos=False)[0]
    assert served.complete(max_tokens=1, logit_bias={str(token): -100}).texts != [first]
    assert served.complete(max_tokens=12, seed=3, temperature=1).texts == (
        served.complete(max_tokens=12, seed=3, temperature=None).texts
    )


def test_what_the_cache_had_is_counted(served):
    prompt = "Cached is what was read before, and it is not read again. " * 4
    first, again = (served.complete(prompt, max_tokens=2).document["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    cached = again["prompt_tokens_details"]["cached_tokens"]
    assert 0.6 * again["prompt_tokens"] < cached < again["prompt_tokens"]
    each = served.complete([prompt, prompt], n=2, max_tokens=2).document["usage"]
    assert each["prompt_tokens_details"]["cached_tokens"] == 2 * cached


def test_a_text_up_to_the_context(served):
    size = len(served.tokenizer.encode(PROMPT, eos=False))
    answer = served.complete(max_tokens=served.engine.context - size + 1, logit_bias={str(served.tokenizer.eos): -100})
    assert answer.document["usage"]["completion_tokens"] == 513 - size
    answer = served.complete(max_tokens=served.engine.context - size + 2)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert answer.error["param"] == "prompt" and "allowed: 512 in all" in answer.error["message"]
    assert served.complete([5] * 513).error["code"] == "context_length_exceeded"
    assert served.complete([5] * 510).document["usage"]["completion_tokens"] <= 3  # the default gives way


@pytest.mark.parametrize("stream", [False, True, "typical"])
def test_the_text_is_what_generate_writes(served, stream):
    words = ["generate", MODEL, "--prompt", PROMPT, "--max-tokens", 30, "--seed", 11, "--json"]
    given = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.0}
    if stream is True:
        given |= {"temperature": 1.2, "top_k": 50, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2}
        words += ["--temperature", 1.2, "--top-k", 50, "--top-p", 0.9, "--min-p", 0.02, "--penalty", 1.2]
    if stream == "typical":
        stream, given = False, given | {"order": "llama.cpp", "typical": 0.6}
        words += ["--order", "llama.cpp", "--typical", 0.6]
    command = [sys.executable, "-m", "isokern", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    answer = served.complete(max_tokens=30, seed=11, stream=stream, **given)
    texts = ["".join(e["choices"][0]["text"] for e in answer.events)] if stream else answer.texts
    assert texts == [json.loads(done.stdout)["text"]]


def test_many_clients_at_once_get_what_each_alone_gets(served):
    from concurrent.futures import ThreadPoolExecutor

    asked = [{"max_tokens": 8 + i % 9, "seed": i, "temperature": i % 3 / 2, "n": 1 + i % 2} for i in range(24)]
    alone = [served.complete(**fields).texts for fields in asked]
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(lambda fields: served.complete(**fields).texts, asked)) == alone
