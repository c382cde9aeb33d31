"""Test drafts from the text itself in a session: the text is the same, takes fewer steps, and the cache is as long."""

import json
from pathlib import Path

import pytest
import typer
from small_architectures import made
from typer.testing import CliRunner

from isokern.cli import chat, generate
from isokern.llm import Chat, Generation, Grammar, Model, Sampling, Session, text, tokens
from isokern.status import InvalidArgument

pytestmark = pytest.mark.filterwarnings("ignore:.*positions are more than the")
FILE = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
PROMPT = "In the beginning God, In the beginning"
WAYS = [
    Sampling(),
    Sampling(0.3, 20, 0.9, 0.05, 1.05, 7),
    Sampling(0.5, frequency=0.1, typical=0.9, order=("top_k", "typical", "top_p", "min_p", "temperature")),
]


@pytest.fixture(scope="module")
def model():
    return Model.open(FILE)


def write(session, ids, most, sampling, **options):
    """Return the tokens, the report, and how many runs there were."""
    report, runs, take = Generation(), [], session.take
    session.take = lambda n, room: runs.append(n) or take(n, room)
    return list(tokens(session, ids, most, sampling, frozenset(), report, **options)), report, len(runs)


@pytest.mark.parametrize("sampling", WAYS)
@pytest.mark.parametrize("options", [{}, {"bias": {20: 2.5}}])
def test_drafts_change_no_text_and_spare_steps(model, sampling, options):
    ids = model.tokenizer().encode(PROMPT, eos=False)
    plain, none, steps = write(Session(model, 160), ids, 100, sampling, **options)
    assert none.accepted == 0
    for drafts in (1, 3, 7):
        session = Session(model, 160)
        found, report, runs = write(session, ids, 100, sampling, drafts=drafts, **options)
        assert found == plain == report.tokens
        assert report.accepted > 0 and runs <= steps - report.accepted + drafts
        assert session.position == len(ids) + 99


@pytest.mark.parametrize("sampling", WAYS[:2])
@pytest.mark.parametrize("name", ["gemma3", "gpt2", "deepseek2"])
def test_drafts_in_windows_and_at_the_end_of_a_cache(tmp_path, name, sampling):
    model = Model(made(tmp_path / "m.gguf", name))
    most = 400 if name == "gemma3" else model.config.context
    plain, _, _ = write(Session(model, most, "F32"), [1, 2, 3], most - 3, sampling)
    found, report, _ = write(Session(model, most, "F32"), [1, 2, 3], most - 3, sampling, drafts=5)
    assert found == plain
    assert report.accepted or sampling.temperature or name == "deepseek2"


def test_drafts_beyond_the_cache(model):
    ids = model.tokenizer().encode(PROMPT, eos=False)
    plain, _, _ = write(Session(model, 40), ids, 120, WAYS[1], keep=4)
    found, report, _ = write(Session(model, 40), ids, 120, WAYS[1], keep=4, drafts=4)
    assert found == plain and report.accepted


def test_a_grammar_follows_drafts(model):
    pytest.importorskip("llguidance")
    made = []
    for drafts in (0, 4):
        report = Generation()
        given = (Session(model, 96), model.tokenizer(), "a", 60, WAYS[1], report)
        made.append("".join(text(*given, grammar=Grammar("regex", "( the LORD,){30}"), drafts=drafts)))
    assert made[0] == made[1] and report.accepted > 10


def test_a_text_that_is_left_leaves_no_drafts_in_the_cache(model):
    tokenizer = model.tokenizer()
    ids = tokenizer.encode(PROMPT, eos=False)
    plain, _, _ = write(Session(model, 160), ids, 60, Sampling())
    ends = set()
    for count in range(1, 50):
        session, report = Session(model, 160), Generation()
        each = tokens(session, ids, 60, Sampling(), frozenset(), report, drafts=7)
        taken = [next(each) for _ in range(count)]
        ends.add(session.position - len(ids) - count + 1)
        each.close()
        assert taken == plain[:count] and session.position == len(ids) + count - 1
        if count % 8 == 0:
            assert write(session, taken[-1:], 5, Sampling())[0] == plain[count : count + 5]
    assert len(ends) > 1  # in some the cache was ahead


def test_an_old_text_takes_nothing_from_the_next(model):
    ids = model.tokenizer().encode(PROMPT, eos=False)
    session, closed = Session(model, 160), 0
    for count in range(20, 40):
        session.clear()
        each = tokens(session, ids, 60, Sampling(), frozenset(), Generation(), drafts=7)
        for _ in range(count):
            next(each)
        closed += session.position > len(ids) + count - 1  # the cache is ahead
        session.rewind(len(ids))
        session.logits(ids[:6])
        each.close()
        assert session.position == len(ids) + 6
    assert closed


def test_models_that_keep_states_have_none(tmp_path):
    session = Session(Model(made(tmp_path / "m.gguf", "mamba")), 64)
    with pytest.raises(InvalidArgument, match=r"drafts=2 of a model that keeps states; allowed: 0"):
        tokens(session, [1], 2, Sampling(), frozenset(), Generation(), drafts=2)
    with pytest.raises(InvalidArgument, match=r"drafts=64; allowed: an integer from 0 to 63"):
        tokens(session, [1], 2, Sampling(), frozenset(), Generation(), drafts=64)


def test_a_dialogue_is_the_same(model):
    said = []
    for drafts in (0, 4):
        talk = Chat(Session(model, 256), template="chatml", max_tokens=30, drafts=drafts)
        said.append(["".join(talk.say("the LORD, and the LORD, and the LORD")) for _ in range(2)])
    assert said[0] == said[1] and sum(report.accepted for report in talk.reports)


def test_the_command_line_takes_drafts():
    app = typer.Typer()
    app.command("generate")(generate.generate)
    app.command("chat")(chat.chat)
    words = ["generate", str(FILE), "--prompt", PROMPT, "--max-tokens", "40", "--temperature", "0.3", "--json"]
    found = [CliRunner().invoke(app, [*words, "--drafts", drafts]) for drafts in ("0", "4")]
    assert json.loads(found[0].stdout)["text"] == json.loads(found[1].stdout)["text"]
    words = ["chat", str(FILE), "--template", "chatml", "--max-tokens", "12", "--drafts"]
    found = [CliRunner().invoke(app, [*words, drafts], input="the LORD, and the LORD\n") for drafts in ("0", "4")]
    assert found[0].stdout == found[1].stdout and found[0].stdout.strip()
    assert isinstance(CliRunner().invoke(app, [*words, "99"]).exception, InvalidArgument)
