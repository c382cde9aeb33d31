"""Test texts that follow a schema or a grammar of a client, and penalties of what was there."""

import json
import re
import time

import pytest

pytest.importorskip("llguidance")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ask_for(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True, **more}}


def test_answers_follow_a_schema(served):
    for seed in range(3):
        (text,) = served.chat(response_format=ask_for(SCHEMA), temperature=1, seed=seed, max_tokens=150).texts
        found = json.loads(text)
        assert set(found) == {"name", "age"} and 0 <= found["age"] <= 9 and len(found["name"]) <= 8
    answer = served.complete(response_format=ask_for({"enum": ["yes", 3]}), n=2, temperature=1, max_tokens=20)
    assert all(json.loads(text) in ("yes", 3) for text in answer.texts)
    assert {c["finish_reason"] for c in answer.document["choices"]} == {"stop"}
    events = served.chat(response_format=ask_for({"const": [1]}), max_tokens=30, stream=True).events
    assert json.loads("".join(e["choices"][0]["delta"].get("content", "") for e in events)) == [1]


def test_answers_are_json_objects(served):
    (text,) = served.chat(response_format={"type": "json_object"}, max_tokens=30).texts
    assert text.startswith("{")
    plain = served.chat(max_tokens=12).texts
    assert served.chat(response_format={"type": "text"}, max_tokens=12).texts == plain


def test_texts_follow_a_grammar(served):
    (text,) = served.complete(grammar='root ::= ("so" | "no") [a-c]', max_tokens=20).texts
    assert re.fullmatch("(so|no)[a-c]", text)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": ask_for({"type": "strin"})}, "response_format"),
        ({"response_format": ask_for({"not": {}})}, "response_format"),
        ({"response_format": ask_for({"pattern": "["})}, "response_format"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"grammar": ""}, "grammar"),
    ],
)
def test_wrong_grammars_are_named(served, fields, param):
    answer = served.chat(**fields)
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, param, "invalid_grammar")


def test_grammars_that_take_much_harm_nobody(served):
    deep = {"type": "object"}
    for _ in range(60):
        deep = {"type": "object", "properties": {f"k{n}": deep for n in range(2)}} if _ % 10 == 0 else {"anyOf": [deep]}
    hard = [
        {"response_format": ask_for({"type": "string", "pattern": "(a|b|ab)*" * 40})},
        {"response_format": ask_for({"type": "string", "pattern": "(.{0,200}x){0,200}"})},
        {"response_format": ask_for({"type": "array", "minItems": 10**9, "items": {"type": "integer"}})},
        {"response_format": ask_for(deep)},
        {"grammar": "root ::= " + "(" * 200 + '"a"' + ")*" * 200},
    ]
    for fields in hard:
        begin = time.monotonic()
        answer = served.complete(**fields, max_tokens=8)
        assert answer.status in (200, 400) and time.monotonic() - begin < 20, fields
    assert served.complete(max_tokens=4).status == 200


def test_penalties_change_a_text(served):
    plain = served.complete("the LORD, and the LORD, and", max_tokens=16).texts
    for field in ("presence_penalty", "frequency_penalty"):
        other = served.complete("the LORD, and the LORD, and", max_tokens=16, **{field: 2}).texts
        assert other != plain
        assert served.complete("the LORD, and the LORD, and", max_tokens=16, **{field: 0}).texts == plain
