"""Test texts that follow a grammar: alone, at once with others, in dialogues, and from the command line."""

import gc
import json
import re
import sys
import weakref
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from isokern.cli import generate
from isokern.llm import Chat, Engine, Generation, Grammar, Model, Sampling, Session, text
from isokern.status import InvalidArgument

pytest.importorskip("llguidance")
pytest.importorskip("tokenizers")
FILE = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
DRAWN = Sampling(0.9, 50, 0.95, penalty=1.1, seed=4)


@pytest.fixture(scope="module")
def model():
    return Model.open(FILE)


def follows_schema(written):
    found = json.loads(written)
    assert sorted(found) == ["age", "name", "tags"] and len(found["name"]) <= 12
    return 0 <= found["age"] <= 150 and len(found["tags"]) <= 3 and set(found["tags"]) <= {"a", "b"}


RULES = [
    (Grammar("json_schema", SCHEMA), follows_schema),
    (Grammar("json_schema", json.dumps({"enum": ["yes", 3]})), lambda t: json.loads(t) in ("yes", 3)),
    (Grammar("regex", r"[0-9]{3}-[a-z]{2,9}\."), lambda t: re.fullmatch(r"[0-9]{3}-[a-z]{2,9}\.", t)),
    (
        Grammar("gbnf", 'root ::= ("yes" | "no") " " [A-Z] [A-Z]? [A-Z]?'),
        lambda t: re.fullmatch("(yes|no) [A-Z]{1,3}", t),
    ),
    (Grammar("lark", 'start: "Lord" " "? /[a-zäé]{3}/'), lambda t: re.fullmatch("Lord ?[a-zäé]{3}", t)),
]


@pytest.mark.parametrize("sampling", [Sampling(), DRAWN])
def test_texts_follow_their_grammars(model, sampling):
    tokenizer, alone = model.tokenizer(), []
    for grammar, follows in RULES:
        report = Generation()
        written = "".join(text(Session(model, 256), tokenizer, "In the", 200, sampling, report, grammar=grammar))
        assert report.ended and follows(written), written
        alone.append(written)
    with Engine(model, context=256, batch=4, tokens=16, drafts=2) as engine:
        asked = [engine.text(tokenizer, "In the", 200, sampling, grammar=grammar) for grammar, _ in RULES]
        free = engine.text(tokenizer, "In the", 30, sampling)
        assert ["".join(pieces) for pieces in asked] == alone
        assert "".join(free) == "".join(text(Session(model, 256), tokenizer, "In the", 30, sampling))


def test_a_grammar_meets_a_bias_and_a_limit(model):
    tokenizer = model.tokenizer()
    grammar, report = Grammar("regex", "[ab]+x"), Generation()
    written = "".join(text(Session(model, 64), tokenizer, "a", 5, Sampling(), report, grammar=grammar))
    assert re.fullmatch("[ab]+x?", written) and (len(report.tokens) == 5 or report.ended)
    ids = [i for i in range(len(tokenizer)) if tokenizer.piece(i).startswith(b"b")]
    bias = dict.fromkeys(ids, -float("inf"))
    made = text(Session(model, 64), tokenizer, "a", 20, DRAWN, grammar=grammar, bias=bias)
    assert re.fullmatch(r"a[ab]*x?", "".join(made))


def test_dialogues_follow_a_grammar(model):
    chat = Chat(Session(model, 256), template="chatml", max_tokens=20, grammar=Grammar("regex", "(yes|no)!"))
    answers = ["".join(chat.say(said)) for said in ("Is it so?", "And now?")]
    assert set(answers) <= {"yes!", "no!"}


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("nope", "", "kind 'nope'; allowed: lark, gbnf"),
        ("regex", 3, "regex is int"),
        ("regex", {}, "regex is dict"),
        ("regex", "[", "unclosed character class"),
        ("json_schema", {"type": "strin"}, "Invalid type: strin"),
        ("json_schema", '{"type":', "json_schema: EOF"),
        ("json_schema", {"not": {"type": "string"}}, "Unimplemented keys"),
        ("lark", "start: foo", "unknown name"),
        ("gbnf", "root ::= x", "Rule 'x' not found"),
    ],
)
def test_wrong_grammars_are_named(model, kind, given, message):
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        Grammar(kind, given).begin(model.tokenizer())


def test_a_constraint_for_another_vocabulary_is_refused(model, monkeypatch):
    constraint = RULES[1][0].begin(model.tokenizer())
    monkeypatch.setattr(constraint, "size", 100)
    with pytest.raises(InvalidArgument, match=r"for a vocabulary of 100 tokens; allowed: one .* of 2048"):
        Engine(model, context=64).submit([1, 2], 4, constraint=constraint)


def test_a_grammar_that_takes_too_much_is_refused(model):
    grammar = Grammar("regex", "(" * 200 + "a|b" + "){1,1000}" * 200)
    with pytest.raises(InvalidArgument, match="regex"):
        "".join(text(Session(model, 64), model.tokenizer(), "a", 20, grammar=grammar))


def test_a_tokenizer_that_nobody_holds_goes(model):
    tokenizer = model.tokenizer()
    state, held = Grammar("regex", "ab").begin(tokenizer), weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert held() is not None and state.mask().any(), "a text that goes on needs it"
    del state
    gc.collect()
    assert held() is None


def test_the_library_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InvalidArgument, match=r"llguidance is not installed.*isokern\[grammar\]"):
        Grammar("regex", "a")


def test_the_command_line_takes_grammars(tmp_path):
    app = typer.Typer()
    app.command()(generate.generate)
    files = {"rules.gbnf": 'root ::= "so" | "no"', "rules.lark": 'start: "it"', "a.regex": "[ab]{3}\n"}
    wanted = {"rules.gbnf": "so|no", "rules.lark": "it", "a.regex": "[ab]{3}"}
    words = [str(FILE), "--prompt", "And", "--temperature", "0", "--json"]
    for name, rules in files.items():
        (tmp_path / name).write_text(rules)
        done = CliRunner().invoke(app, [*words, "--grammar", str(tmp_path / name)])
        assert done.exit_code == 0 and re.fullmatch(wanted[name], json.loads(done.stdout)["text"]), done.output
    (tmp_path / "schema.json").write_text('{"const": 5}')
    done = CliRunner().invoke(app, [*words, "--json-schema", str(tmp_path / "schema.json")])
    assert json.loads(done.stdout)["text"] == "5"
    both = ["--json-schema", str(tmp_path / "schema.json"), "--grammar", str(tmp_path / "rules.lark")]
    for more, message in [(both, "one of them"), (["--grammar", str(tmp_path / "none")], "none")]:
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code != 0 and message in str(done.output) + str(done.exception)
