"""Test POST /v1/chat/completions: shapes, streams, messages, what templates refuse, and what users write."""

import threading

import pytest

from isokern.llm import Template

PREPARING = pytest.importorskip("isokern.serve.service").PREPARING
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "I."},
    {"role": "user", "content": "Why?"},
]


def test_an_answer_has_openai_s_shape(served, template):
    found = served.chat(TALK, max_tokens=8).document
    assert found.pop("id").startswith("chatcmpl-") and found.pop("created") > 1e9
    (choice,) = found.pop("choices")
    text = choice["message"].pop("content")
    assert isinstance(text, str) and text
    message = {"role": "assistant", "refusal": None}
    assert choice == {"index": 0, "logprobs": None, "finish_reason": "length", "message": message}
    size = len(template.encode(TALK))
    found["usage"].pop("prompt_tokens_details")
    usage = {"prompt_tokens": size, "completion_tokens": 8, "total_tokens": size + 8}
    assert found == {"object": "chat.completion", "model": "kjv", "usage": usage}


def test_a_stream_is_the_whole_answer_in_pieces(served):
    (whole,) = served.chat(TALK, max_tokens=20).texts
    events = served.chat(TALK, max_tokens=20, stream=True, stream_options={"include_usage": True}).events
    assert {e["object"] for e in events} == {"chat.completion.chunk"} and len({e["id"] for e in events}) == 1
    *events, last = events
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 20
    choices = [e["choices"][0] for e in events]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1]["delta"] == {} and choices[-1]["finish_reason"] == "length"
    assert all(set(c["delta"]) == {"content"} and c["finish_reason"] is None for c in choices[1:-1])
    assert "".join(c["delta"].get("content", "") for c in choices) == whole


def test_choices_in_a_stream(served):
    whole = served.chat(n=3, temperature=1, seed=5, max_tokens=8).texts
    texts, begun = [""] * 3, []
    for event in served.chat(n=3, temperature=1, seed=5, max_tokens=8, stream=True).events:
        (choice,) = event["choices"]
        begun += [choice["index"]] if "role" in choice["delta"] else []
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == whole and sorted(begun) == [0, 1, 2] and len(set(whole)) == 3


def test_messages_of_parts_and_of_developers(served):
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]
    same = [{"role": "developer", "content": "Be brief."}, *TALK[1:3], {"role": "user", "content": parts}]
    assert served.chat(same, max_tokens=12).texts == served.chat(TALK, max_tokens=12).texts
    assert served.chat(TALK, max_completion_tokens=12).texts == served.chat(TALK, max_tokens=12).texts
    neutral = [{**m, "refusal": None, "tool_calls": []} for m in TALK]
    assert served.chat(neutral, max_tokens=12).texts == served.chat(TALK, max_tokens=12).texts


def test_an_answer_may_fill_the_context(served):
    answer = served.chat("Go on.", logit_bias={str(served.tokenizer.eos): -100})
    usage = answer.document["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == served.engine.context + 1


def test_the_template_s_own_stops_end_an_answer(served, template, monkeypatch):
    assert "<|im_end|>" in template.stop
    (whole,) = served.chat(max_tokens=30).texts
    monkeypatch.setattr(served.service.template, "stop", (*template.stop, whole[20:24]))
    answer = served.chat(max_tokens=30, stop=["never so"])
    assert answer.texts == [whole[: whole.index(whole[20:24])]]
    assert answer.document["choices"][0]["finish_reason"] == "stop"


def test_what_users_and_models_write_is_no_control_token(served, monkeypatch):
    prompts, submit = [], served.engine.submit
    monkeypatch.setattr(
        served.engine, "submit", lambda ids, *given, **named: prompts.append(ids) or submit(ids, *given, **named)
    )
    end = served.tokenizer.eos
    for role, count in (("user", 0), ("assistant", 0), ("system", 1)):
        given = [{"role": role, "content": "a</s>\ue000b"}, {"role": "user", "content": "Why?"}]
        assert served.chat(given, max_tokens=1).status == 200
        assert prompts[-1].count(end) == count
        assert "a</s>b" in served.tokenizer.decode(prompts[-1], special=True).replace("\ue000", "")


def test_what_a_template_refuses(serve, model, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text(
        "{% if messages|length > 1 %}{{ raise_exception('one message') }}{% endif %}"
        "{% if 'endless' in messages[0].content %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
        "{% endfor %}{% endif %}{{ messages[0].content }}"
    )
    served = serve(template=Template(model.gguf, model.tokenizer(), str(path)))
    answer = served.chat(TALK)
    assert (answer.status, answer.error["param"]) == (400, "messages")
    assert "it refuses: one message" in answer.error["message"]
    assert served.chat("a", max_tokens=1).status == 200
    served.assert_idle()


def test_a_model_without_a_template(serve):
    served = serve(template=None)
    answer = served.chat("a")
    assert (answer.status, answer.error["code"]) == (400, "no_chat_template")
    assert "--template" in answer.error["message"]
    assert served.complete(max_tokens=1).status == 200


def test_preparing_holds_nothing_else_up(serve, model, monkeypatch):
    """While as many messages as may are being rendered, the server answers, and no more are rendered at once."""
    now, most, lock, go = 0, 0, threading.Lock(), threading.Event()
    encode = Template.encode

    def wait(self, *given):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        assert go.wait(60)
        with lock:
            now -= 1
        return encode(self, *given)

    served = serve()
    monkeypatch.setattr(Template, "encode", wait)
    threads = [threading.Thread(target=served.chat, kwargs={"max_tokens": 1}) for _ in range(2 * PREPARING)]
    for thread in threads:
        thread.start()
    served.wait_for(lambda: now == PREPARING)
    assert served.get("/health").status == 200
    assert served.service.texts >= PREPARING
    go.set()
    for thread in threads:
        thread.join()
    assert most == PREPARING
    served.assert_idle()
