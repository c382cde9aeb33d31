"""Test what is refused: each field by its name, in OpenAI's error object, and bodies that are no JSON."""

import json

import pytest

PATHS = {"text": "/v1/completions", "chat": "/v1/chat/completions"}
USER = {"role": "user", "content": "Who?"}
BASE = {"text": {"prompt": "In the beginning"}, "chat": {"messages": [USER]}}

BOTH = [
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_tokens": 1.0}, "max_tokens", "invalid_value"),
    ({"max_tokens": "5"}, "max_tokens", "invalid_value"),
    ({"max_tokens": True}, "max_tokens", "invalid_value"),
    ({"max_tokens": 513}, "max_tokens", "invalid_value"),
    ({"max_tokens": 10**400}, "max_tokens", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": 129}, "n", "invalid_value"),
    ({"n": 128}, "n", "invalid_value"),  # more than wait and are made at once
    ({"n": [1]}, "n", "invalid_value"),
    ({"temperature": -0.1}, "temperature", "invalid_value"),
    ({"temperature": 2.1}, "temperature", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"temperature": False}, "temperature", "invalid_value"),
    ({"top_p": 0}, "top_p", "invalid_value"),
    ({"top_p": 1.1}, "top_p", "invalid_value"),
    ({"min_p": -1}, "min_p", "invalid_value"),
    ({"typical": 0}, "typical", "invalid_value"),
    ({"order": "top_k"}, "order", "invalid_value"),
    ({"order": ["top_k", 1]}, "order", "invalid_value"),
    ({"order": ["top_k", "top_p"]}, "order", "invalid_value"),
    ({"order": ["temperature", "top_k", "top_p", "min_p"], "typical": 0.5}, "order", "invalid_value"),
    ({"top_k": -1}, "top_k", "invalid_value"),
    ({"top_k": 1.5}, "top_k", "invalid_value"),
    ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
    ({"repetition_penalty": {}}, "repetition_penalty", "invalid_value"),
    ({"priority": 1}, "priority", "invalid_value"),
    ({"priority": -1001}, "priority", "invalid_value"),
    ({"seed": 1 << 63}, "seed", "invalid_value"),
    ({"seed": 1.5}, "seed", "invalid_value"),
    ({"seed": "1"}, "seed", "invalid_value"),
    ({"stop": 3}, "stop", "invalid_value"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"stop": ["a", ""]}, "stop[1]", "invalid_value"),
    ({"stop": ["a", None]}, "stop[1]", "invalid_value"),
    ({"stop": ["a"] * 17}, "stop", "invalid_value"),
    ({"stop": "a" * 257}, "stop", "invalid_value"),
    ({"logit_bias": [1]}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"a": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"01": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"²": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1", "invalid_value"),
    ({"logit_bias": {"1": "x"}}, "logit_bias.1", "invalid_value"),
    ({"stream": 1}, "stream", "invalid_value"),
    ({"stream": "true"}, "stream", "invalid_value"),
    ({"stream_options": {}}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": 1}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_value"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "unknown_parameter"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation", None),
    ({"user": 1}, "user", "invalid_value"),
    ({"model": 1}, "model", "invalid_value"),
    ({"presence_penalty": 2.1}, "presence_penalty", "invalid_value"),
    ({"presence_penalty": False}, "presence_penalty", "invalid_value"),
    ({"frequency_penalty": -2.5}, "frequency_penalty", "invalid_value"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"response_format": "text"}, "response_format", "invalid_value"),
    ({"response_format": {}}, "response_format.type", "missing_parameter"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_parameter"),
    ({"response_format": {"type": "text", "x": 1}}, "response_format.x", "unknown_parameter"),
    ({"grammar": 1}, "grammar", "invalid_value"),
    ({"grammar": 'root ::= "a"', "response_format": {"type": "text"}}, "grammar", "invalid_value"),
    ({"temprature": 1}, "temprature", "unknown_parameter"),
    ({"": 1}, "", "unknown_parameter"),
    ({"x" * 10000: 1}, None, "unknown_parameter"),
]
TEXT = [
    ({"prompt": None}, "prompt", "missing_parameter"),
    ({"prompt": 1}, "prompt", "invalid_value"),
    ({"prompt": []}, "prompt", "invalid_value"),
    ({"prompt": [[]]}, "prompt", "invalid_value"),
    ({"prompt": [1, "a"]}, "prompt", "invalid_value"),
    ({"prompt": [[1], 2]}, "prompt", "invalid_value"),
    ({"prompt": [1, True]}, "prompt", "invalid_value"),
    ({"prompt": [1.0]}, "prompt", "invalid_value"),
    ({"prompt": [2048]}, "prompt", "invalid_value"),
    ({"prompt": [[1], [-1]]}, "prompt", "invalid_value"),
    ({"prompt": [10**30]}, "prompt", "invalid_value"),
    ({"prompt": {"a": 1}}, "prompt", "invalid_value"),
    ({"prompt": "word " * 600}, "prompt", "context_length_exceeded"),
    ({"prompt": "a" * (1 << 20)}, "prompt", "context_length_exceeded"),
    ({"prompt": ["a", "a" * (1 << 20)]}, "prompt", "context_length_exceeded"),
    ({"prompt": [1] * (1 << 20), "echo": True}, "prompt", "context_length_exceeded"),
    ({"prompt": [1] * 100, "max_tokens": 500}, "prompt", "context_length_exceeded"),
    ({"prompt": ["a"] * 81}, "n", "invalid_value"),
    ({"best_of": 2}, "best_of", "invalid_value"),
    ({"n": 2, "best_of": 1}, "best_of", "invalid_value"),
    ({"suffix": "x"}, "suffix", "unsupported_value"),
    ({"logprobs": 6}, "logprobs", "invalid_value"),
    ({"logprobs": True}, "logprobs", "invalid_value"),
    ({"logprobs": 0, "echo": True}, "logprobs", "invalid_value"),
    ({"top_logprobs": 1}, "top_logprobs", "unknown_parameter"),
    ({"echo": "yes"}, "echo", "invalid_value"),
    ({"messages": [USER]}, "messages", "unknown_parameter"),
    ({"max_completion_tokens": 5}, "max_completion_tokens", "unknown_parameter"),
    ({"tools": []}, "tools", "unknown_parameter"),
    ({"logit_bias": {"2048": 1}}, "prompt", "invalid_argument"),
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}
CHAT = [
    ({"messages": None}, "messages", "missing_parameter"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": "hi"}, "messages", "invalid_value"),
    ({"messages": [USER, "hi"]}, "messages[1]", "invalid_value"),
    ({"messages": [{"content": "a"}]}, "messages[0].role", "missing_parameter"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_parameter"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": ["user"], "content": "a"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "invalid_value"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "invalid_value"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type", "unsupported_value"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "invalid_value"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]", "invalid_value"),
    ({"messages": [{**USER, "name": "Eve"}]}, "messages[0].name", "unsupported_value"),
    ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0].tool_calls", "unsupported_value"),
    ({"messages": [{**USER, "weight": 1}]}, "messages[0].weight", "unknown_parameter"),
    ({"messages": [{"role": "user", "content": "word " * 600}]}, "messages", "context_length_exceeded"),
    ({"messages": [{"role": "user", "content": "a" * (1 << 19)}] * 2}, "messages", "context_length_exceeded"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_value"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "invalid_value"),
    ({"tools": [{"type": "function"}]}, "tools", "unsupported_value"),
    ({"tool_choice": "required"}, "tool_choice", "unsupported_value"),
    ({"functions": [{}]}, "functions", "unsupported_value"),
    ({"logprobs": 0}, "logprobs", "invalid_value"),
    ({"top_logprobs": 1}, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "unsupported_value"),
    ({"store": True}, "store", "unsupported_value"),
    ({"service_tier": "flex"}, "service_tier", "unsupported_value"),
    ({"prompt": "x"}, "prompt", "unknown_parameter"),
    ({"echo": True}, "echo", "unknown_parameter"),
    ({"best_of": 1}, "best_of", "unknown_parameter"),
]
CASES = [(kind, *case) for kind, cases in (("text", BOTH + TEXT), ("chat", BOTH + CHAT)) for case in cases]


@pytest.mark.parametrize(("kind", "change", "param", "code"), CASES, ids=[f"{k}-{str(c)[:40]}" for k, c, *_ in CASES])
def test_a_field_is_refused_by_name(served, kind, change, param, code):
    answer = served.request("POST", PATHS[kind], {**BASE[kind], **change})
    assert answer.status == 400, answer.body
    error = answer.error
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    assert code is None or error["code"] == code
    assert len(answer.body) < 2000
    if param and code != "context_length_exceeded":
        assert param.split(".")[0].split("[")[0] in error["message"] or code == "invalid_argument"


NEUTRAL = {
    "text": {"suffix": None, "logprobs": None, "best_of": 1, "presence_penalty": 0, "frequency_penalty": 0.0},
    "chat": {
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "logprobs": False,
        "top_logprobs": None,
        "modalities": ["text"],
        "store": False,
        "metadata": {},
        "service_tier": "auto",
        "anything": None,
    },
}


@pytest.mark.parametrize("kind", PATHS)
def test_what_asks_for_nothing_is_accepted(served, kind):
    given = {**BASE[kind], **NEUTRAL[kind], "max_tokens": 2, "stop": None, "logit_bias": None, "n": None, "user": "me"}
    assert served.request("POST", PATHS[kind], given).status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[1]", "a JSON object"),
        (b'"x"', "a JSON object"),
        (b"null", "a JSON object"),
        (b'{"prompt": "\xff"}', "byte 12 is not UTF-8"),
        (b'\xef\xbb\xbf{"prompt": "a"}', "BOM"),
        ('{"prompt": "a"}'.encode("utf-16"), "UTF-8"),
        (b'{"prompt": "\\ud800"}', "half of a surrogate pair"),
        (b'{"\\udc00": 1, "prompt": "a"}', "half of a surrogate pair"),
        (b'{"prompt": "a", "temperature": NaN}', "NaN is not a number"),
        (b'{"prompt": "a", "temperature": Infinity}', "Infinity is not a number"),
        (b'{"prompt": "a", "temperature": -Infinity}', "-Infinity is not a number"),
        (b'{"prompt": "a", "temperature": 1e999}', "1e999 is too large"),
        (b'{"prompt": "a", "seed": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
        (b'{"prompt": "a", "prompt": "b"}', "has the key 'prompt' twice"),
        (b'{"prompt": "a", "logit_bias": {"1": 1, "1": 2}}', "has the key '1' twice"),
        (b'{"prompt": ' + b"[" * 100000 + b"]" * 100000 + b"}", "nested too deeply"),
        (b'{"a": ' * 5000 + b"1" + b"}" * 5000, "nested too deeply"),
        (b'{"prompt": "a"} {}', "Extra data"),
        (b"{'prompt': 'a'}", "double quotes"),
        (b'{"prompt": "a\n"}', "control character"),
    ],
)
@pytest.mark.parametrize("kind", PATHS)
def test_a_body_that_is_no_json_is_refused(served, kind, body, message):
    answer = served.request("POST", PATHS[kind], body)
    assert answer.status == 400
    assert message in answer.error["message"]
    assert answer.error["param"] is None or answer.error["param"] == "body"


@pytest.mark.parametrize("kind", PATHS)
def test_another_model_is_not_found(served, kind):
    for name in ("gpt-4o", "KJV", "kjv ", "x" * 5000, "é\U0001f600"):
        answer = served.request("POST", PATHS[kind], {**BASE[kind], "model": name})
        assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
        assert len(answer.body) < 2000
    for name in ("kjv", None, ""):
        assert served.request("POST", PATHS[kind], {**BASE[kind], "model": name, "max_tokens": 1}).status == 200


def test_a_stream_that_is_refused_is_no_stream(served):
    for change in ({"top_p": 2}, {"prompt": [1] * 600}, {"model": "x"}):
        answer = served.complete(stream=True, **change) if "prompt" not in change else served.complete(**change)
        assert answer.status in (400, 404) and answer.headers["content-type"] == "application/json" and answer.error


def test_paths_and_methods(served):
    for method, path, status in [
        ("GET", "/", 404),
        ("POST", "/v1", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/completions/", 404),
        ("GET", "/v1/completions", 405),
        ("PUT", "/v1/chat/completions", 405),
        ("OPTIONS", "/v1/completions", 405),
        ("POST", "/health", 405),
        ("DELETE", "/v1/models/kjv", 405),
        ("GET", "/v1/chat/completions?x=%ff", 405),
        ("GET", "/%ff%00%0a", 404),
    ]:
        answer = served.request(method, path)
        assert answer.status == status, (method, path)
        assert answer.error["code"] == {404: "unknown_path", 405: "method_not_allowed"}[status]
        assert ("allow" in answer.headers) == (status == 405)


def test_errors_are_openai_s_types(served):
    assert json.loads(served.request("POST", "/v1/completions", {}).body)["error"] == {
        "message": "prompt is missing",
        "type": "invalid_request_error",
        "param": "prompt",
        "code": "missing_parameter",
    }
