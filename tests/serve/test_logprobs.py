"""Test how likely tokens were, as OpenAI's own client reads it, beside what a session's logits say."""

from types import SimpleNamespace

import numpy as np
import pytest

from isokern.llm import Sampling, Session, TokenLogprobs

pytest.importorskip("starlette")
from isokern.serve.logprobs import name_token, show_chat_logprobs, show_text_logprobs

openai = pytest.importorskip("openai")
PROMPT = "And David said unto the people,"
USER = [{"role": "user", "content": "Who art thou?"}]


@pytest.fixture
def api(served):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="x", max_retries=0) as client:
        yield client


def find_rows(model, ids, count):
    """Return the logarithms of probabilities after each of `count` tokens at the end of a text, but the last."""
    logits = Session(model, 512).logits(ids[:-1], every=True)[-count:].astype(np.float64)
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def check_chat(model, ids, content, likeliest):
    """Check the entries of a chat completion, whose prompt and text are tokens."""
    tokenizer = model.tokenizer()
    tokens = ids[len(ids) - len(content) :]
    for row, token, found in zip(find_rows(model, ids, len(content)), tokens, content, strict=True):
        assert found.logprob == pytest.approx(row[token], abs=1e-3)
        assert bytes(found.bytes) == tokenizer.piece(token, special=True)
        assert found.token == bytes(found.bytes).decode(errors="replace")
        best = np.argsort(-row, kind="stable")[:likeliest]
        assert [other.logprob for other in found.top_logprobs] == pytest.approx(list(row[best]), abs=1e-3)
        assert sorted(o.logprob for o in found.top_logprobs)[::-1] == [o.logprob for o in found.top_logprobs]
        if likeliest:
            assert found.top_logprobs[0].token == tokenizer.piece(int(best[0]), special=True).decode(errors="replace")


@pytest.mark.parametrize("likeliest", [0, 3, 20])
def test_chat_completions_say_how_likely_tokens_were(api, served, model, template, likeliest):
    how = {"temperature": 1.3, "seed": 5, "max_completion_tokens": 10, "logprobs": True, "top_logprobs": likeliest}
    how |= {"frequency_penalty": 1.0, "logit_bias": {"20": 3}}
    whole = api.chat.completions.create(model="kjv", messages=USER, **how)
    content = whole.choices[0].logprobs.content
    text = whole.choices[0].message.content
    assert b"".join(bytes(found.bytes) for found in content).decode(errors="replace") == text and len(content) == 10
    prompt = template.encode(USER)
    tokens = served.engine.submit(prompt, 10, Sampling(1.3, seed=5, frequency=1.0), bias={20: 3.0}).result(60)
    check_chat(model, [*prompt, *tokens], content, likeliest)
    assert min(found.logprob for found in content) < -3, "also of tokens that are not the likeliest"
    with api.chat.completions.create(model="kjv", messages=USER, stream=True, **how) as stream:
        chunks = [chunk.choices[0] for chunk in stream]
    streamed = [entry for chunk in chunks for entry in chunk.logprobs.content]
    assert [entry.bytes for entry in streamed] == [entry.bytes for entry in content]
    check_chat(model, [*prompt, *tokens], streamed, likeliest)
    for chunk in chunks[1:-1]:
        assert chunk.delta.content and chunk.logprobs.content, "tokens come with their text"


def test_completions_say_how_likely_tokens_were(api, served, model):
    how = {"model": "kjv", "prompt": PROMPT, "temperature": 0, "max_tokens": 12}
    tokenizer = model.tokenizer()
    ids = tokenizer.encode(PROMPT, eos=False)
    tokens = served.engine.submit(ids, 12).result(60)
    rows = find_rows(model, [*ids, *tokens], 12)
    for likeliest in (0, 5):
        choice = api.completions.create(**how, logprobs=likeliest).choices[0]
        found = choice.logprobs
        assert "".join(found.tokens) == choice.text and len(found.tokens) == 12
        pairs = list(zip(found.text_offset, found.tokens, strict=True))
        assert all(choice.text[at:].startswith(token) for at, token in pairs) and pairs[0][0] == 0
        assert found.token_logprobs == pytest.approx([rows[i, t] for i, t in enumerate(tokens)], abs=1e-3)
        if not likeliest:
            assert found.top_logprobs is None
            continue
        for row, named in zip(rows, found.top_logprobs, strict=True):
            assert list(named.values()) == pytest.approx(list(np.sort(row)[::-1][: len(named)]), abs=1e-3)
            assert len(named) == 5, "the token itself is the likeliest"
    chunks = list(api.completions.create(**how, logprobs=5, stream=True))
    parts = [chunk.choices[0].logprobs for chunk in chunks]
    assert [t for part in parts for t in part.tokens] == found.tokens
    assert [at for part in parts for at in part.text_offset] == found.text_offset
    drawn = api.completions.create(**{**how, "temperature": 0.8}, seed=3, logprobs=1).choices[0].logprobs
    assert {len(named) for named in drawn.top_logprobs} == {1, 2}, "the likeliest one, and the token itself"


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_behind_a_stop_string_are_not_told(api, stream):
    how = {"model": "kjv", "prompt": PROMPT, "temperature": 0, "max_tokens": 20, "logprobs": 1}
    whole = api.completions.create(**how).choices[0]
    at = whole.logprobs.text_offset[6] + 1  # within a token, whose beginning stays
    stop = whole.text[at : at + 9]
    made = api.completions.create(**how, stop=stop, stream=stream)
    choices = [chunk.choices[0] for chunk in made] if stream else [made.choices[0]]
    assert "".join(choice.text for choice in choices) == whole.text[: whole.text.index(stop)]
    found = [t for choice in choices for t in choice.logprobs.tokens]
    assert found == whole.logprobs.tokens[:7] and choices[-1].finish_reason == "stop"


def test_each_choice_has_its_own(api):
    made = api.completions.create(model="kjv", prompt=[[5, 6], [7]], n=2, seed=1, max_tokens=4, logprobs=2)
    assert [len(choice.logprobs.tokens) for choice in made.choices] == [4] * 4
    assert len({tuple(choice.logprobs.token_logprobs) for choice in made.choices}) == 4


def test_who_does_not_ask_is_not_told(served):
    for answer in (served.complete(max_tokens=2), served.chat(max_tokens=2), served.chat(max_tokens=2, logprobs=False)):
        assert answer.document["choices"][0]["logprobs"] is None
    for event in served.complete(max_tokens=2, stream=True).events:
        assert event["choices"][0]["logprobs"] is None


def test_bytes_that_are_no_text_have_names_of_their_own(served):
    tokenizer = served.tokenizer
    singles = [i for i in range(len(tokenizer)) if len(tokenizer.piece(i)) == 1 and tokenizer.piece(i)[0] > 127]
    names = {name_token(tokenizer, i) for i in singles}
    assert len(names) == len(singles) > 100 and "bytes:\\xe2" in names
    bias = {str(next(i for i in singles if tokenizer.piece(i) == b"\xe2")): 100}
    answer = served.complete(max_tokens=3, logit_bias=bias, logprobs=0).document["choices"][0]
    assert answer["logprobs"]["tokens"] == ["bytes:\\xe2"] * 3 and len(answer["text"]) == 3
    assert all(-9999 <= value < 0 for value in answer["logprobs"]["token_logprobs"])
    chat = served.chat(max_tokens=2, logit_bias=bias, logprobs=True).document
    assert [entry["bytes"] for entry in chat["choices"][0]["logprobs"]["content"]] == [[0xE2]] * 2


def test_what_json_has_no_number_for_is_openais_number(model):
    found = TokenLogprobs(5, -float("inf"), ((6, float("nan")), (7, -20000.0)))
    choice = SimpleNamespace(
        take_logprobs=lambda: [(found, 0)], tokenizer=model.tokenizer(), request=SimpleNamespace(top=2)
    )
    text, (chat,) = show_text_logprobs(choice), show_chat_logprobs(choice)["content"]
    assert text["token_logprobs"] == [-9999.0] and set(text["top_logprobs"][0].values()) == {-9999.0}
    assert chat["logprob"] == -9999.0 and [other["logprob"] for other in chat["top_logprobs"]] == [-9999.0] * 2
