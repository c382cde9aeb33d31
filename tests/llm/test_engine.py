"""Test many requests at once: each has the text that it has alone, whatever happens to the others."""

import asyncio
import contextlib
import gc
import random
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_architectures import made as made_architecture
from small_model import PROMPT, made

import isokern
from isokern.llm import Engine, Generation, Model, Sampling, Session, text, tokens
from isokern.llm.batch import BatchRunner
from isokern.llm.request import CANCELLED, FAILED, LENGTH, STOP
from isokern.llm.steps import BatchStep
from isokern.status import InvalidArgument

pytest.importorskip("tokenizers")
FOLDER = Path(__file__).parents[2] / "examples" / "models"
Q4_0 = FOLDER / "kjv-2.7m-q4_0.gguf"
PROMPTS = ["In the beginning", "And David said unto the people,", "Behold", "The LORD spake unto Moses, saying,"]
DRAWN = Sampling(0.7, 40, 0.95, 0.02, 1.1, 1611)


@pytest.fixture(scope="module")
def model():
    return Model.open(Q4_0)


@pytest.fixture(scope="module")
def tokenizer(model):
    return model.tokenizer()


@pytest.fixture
def engine(model):
    with Engine(model, context=96, batch=4, tokens=16) as made:
        yield made
    assert made.pool.available == made.pool.count and not made.running and not made.waiting


def text_alone(model, prompt, most, **options):
    """Return the text of a session of its own."""
    return "".join(text(Session(model, 96), model.tokenizer(), prompt, most, **options))


def tokens_alone(model, prompt, most, sampling=None, dtype="F16"):
    """Return the tokens of a session of its own."""
    session = Session(model, 40, dtype)
    return list(tokens(session, prompt, most, sampling or Sampling(), frozenset(), Generation()))


@pytest.mark.quick("0")
@pytest.mark.parametrize("which", range(4))
def test_requests_have_the_texts_that_they_have_alone(devices, which):
    if which >= len(devices):
        pytest.skip(f"{len(devices)} devices")
    model = Model.open(Q4_0, device=devices[which])
    tokenizer = model.tokenizer()
    asked = [(p, s) for p in PROMPTS[:2] for s in (Sampling(), DRAWN)]
    with Engine(model, context=64, batch=3, tokens=16) as engine:
        made = [engine.text(tokenizer, p, 16, s, bias={20: 2.5} if s.penalty == 1 else None) for p, s in asked]
        got = ["".join(pieces) for pieces in made]
    for (prompt, sampling), found in zip(asked, got, strict=True):
        bias = {20: 2.5} if sampling.penalty == 1 else None
        assert found == "".join(text(Session(model, 64), tokenizer, prompt, 16, sampling, bias=bias))


@pytest.mark.parametrize("name", ["gpt-oss", "gemma2", "gemma3n", "mistral3", "deepseek2", "gpt2", "olmoe", "phi3"])
def test_architectures_compute_the_same_logits_over_pages(name, tmp_path):
    model = Model(made_architecture(tmp_path / "model.gguf", name))
    rng = random.Random(5)
    prompts = [[rng.randrange(90) for _ in range(n)] for n in (19, 3, 11)]
    with Engine(model, context=40, batch=3, tokens=8, dtype="F32") as engine:
        got = [request.result(120) for request in [engine.submit(p, 12) for p in prompts]]
    for prompt, found in zip(prompts, got, strict=True):
        assert found == tokens_alone(model, prompt, 12, dtype="F32")


@pytest.mark.parametrize("activations", ["float", "q8_0"])
def test_exact_logits_do_not_depend_on_who_else_is_there(activations, monkeypatch):
    model, seen = Model.open(Q4_0, activations=activations), {}
    draw = BatchRunner._draw

    def watch(runner, logits, parts):
        texts = [state for state, count in parts.items() if count == state.pending]
        for state, row in zip(texts, logits.numpy(), strict=True):
            seen.setdefault(state.request, []).append(row.copy())
        return draw(runner, logits, parts)

    monkeypatch.setattr(BatchRunner, "_draw", watch)
    rng = random.Random(3)
    prompt = [rng.randrange(2000) for _ in range(21)]
    found = []
    for others in (0, 9):
        with Engine(model, context=96, positions=300, batch=4, tokens=16, exact=True) as engine:
            crowd = [[rng.randrange(2000) for _ in range(rng.randint(1, 40))] for _ in range(others)]
            for n, other in enumerate(crowd):
                engine.submit(other, rng.randint(1, 20), priority=n % 2)
            request = engine.submit(prompt, 20)
            request.result(120)
        found.append(seen[request])
    assert len(found[0]) == 20 and np.array_equal(found[0], found[1])


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.3, 20, 0.9, 0.05, 1.05, 7)])
def test_drafts_change_no_text_and_spare_steps(model, tokenizer, sampling, exact, monkeypatch):
    prompts = [tokenizer.encode(p, eos=False) for p in ("In the beginning God, In the beginning", *PROMPTS)]
    steps, run = [], BatchRunner.run
    monkeypatch.setattr(BatchRunner, "run", lambda runner, parts: steps.append(len(parts)) or run(runner, parts))
    texts, counts = [], []
    for drafts in (0, 3):
        steps.clear()
        with Engine(model, context=96, positions=288, batch=3, tokens=16, drafts=drafts, exact=exact) as engine:
            texts.append([r.result(60) for r in [engine.submit(p, 60, sampling) for p in prompts]])
            counts.append(sum(steps))
            assert engine.pool.available == engine.pool.count
    assert texts[0] == texts[1]
    assert engine.accepted > 20 and counts[1] < counts[0] - 10


@pytest.mark.parametrize("sampling", [Sampling(), DRAWN])
def test_logprobs_are_of_the_models_own_logits(model, tokenizer, sampling):
    prompt = tokenizer.encode("the LORD, and the LORD, and the LORD, and the", eos=False)
    for drafts in (0, 3):  # a step that computes drafts has several tokens of a text
        with Engine(model, context=96, batch=3, tokens=16, drafts=drafts) as engine:
            requests = [engine.submit(prompt, 20, sampling, bias={20: 1.0}, logprobs=n) for n in (None, 0, 4, 9000)]
            tokens = [request.result(60) for request in requests]
        assert tokens == [tokens[0]] * 4 and requests[0].logprobs == []
        logits = Session(model, 96).logits([*prompt, *tokens[0][:-1]], every=True)[-20:].astype(np.float64)
        rows = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for request, count in zip(requests[1:], (0, 4, 2048), strict=True):
            for row, token, found in zip(rows, request.tokens, request.logprobs, strict=True):
                assert found.token == token and found.logprob == pytest.approx(row[token], abs=1e-3)
                assert len(found.top) == count
                assert [x for _, x in found.top[:9]] == pytest.approx(np.sort(row)[::-1][: min(count, 9)], abs=1e-3)
                assert all(x == pytest.approx(row[n], abs=1e-3) for n, x in found.top[:9])


def test_drafts_end_where_the_text_does(model, tokenizer):
    prompt = tokenizer.encode("the LORD, and the LORD, and the LORD, and the", eos=False)
    with Engine(model, context=96, batch=2, tokens=16, drafts=4) as engine:
        whole = engine.submit(prompt, 20).result(60)
        for most in range(1, 8):
            assert engine.submit(prompt, most).result(60) == whole[:most]
        for at in range(4, 9):
            found = engine.submit(prompt, 20, ends={whole[at]})
            assert found.result(60) == whole[: whole.index(whole[at])] and found.reason == STOP
    with pytest.raises(InvalidArgument, match="tokens=16"):
        Engine(model, batch=4, tokens=16, drafts=4)


def test_what_is_cached_is_not_computed_again(engine, tokenizer, model):
    stem = tokenizer.encode("And it came to pass in those days, that there went out a decree", eos=False)
    first, second = (engine.submit([*stem, n], 5) for n in (7, 8))
    assert first.result(60) and second.result(60)
    size = engine.pool.size
    assert first.cached == 0 and second.cached == len(stem) // size * size > 0
    again = engine.submit([*stem, 7], 5)
    assert again.result(60) == first.tokens and again.cached == second.cached
    assert first.tokens == tokens_alone(model, [*stem, 7], 5)


def test_iterating_gives_each_token_to_whoever_asks(engine, tokenizer):
    ids = tokenizer.encode(PROMPTS[0], eos=False)
    request = engine.submit(ids, 12)
    read = [[], []]
    threads = [threading.Thread(target=lambda own: own.extend(request), args=(own,)) for own in read]
    for thread in threads:
        thread.start()

    async def gather():
        return [token async for token in request]

    assert asyncio.run(gather()) == request.result() == list(request)
    for thread in threads:
        thread.join()
    assert read == [request.tokens] * 2
    assert request.reason == LENGTH and request.done


def test_pieces_of_a_text_come_to_coroutines(engine, model, tokenizer):
    asked = [(prompt, sampling) for prompt in PROMPTS[:2] for sampling in (Sampling(), DRAWN)]

    async def read(prompt, sampling, stop=()):
        made = engine.text(tokenizer, prompt, 24, sampling, stop=stop)
        return made.request, [piece async for piece in made]

    async def read_all():
        return await asyncio.gather(*(read(*given) for given in asked), read(PROMPTS[0], Sampling(), ["e"]))

    *found, (stopped, cut) = asyncio.run(read_all())
    for (_, pieces), (prompt, sampling) in zip(found, asked, strict=True):
        assert pieces == list(engine.text(tokenizer, prompt, 24, sampling)) and all(pieces)
    assert "".join(cut) == "".join(found[0][1]).partition("e")[0]
    assert stopped.cancelled
    whole = "".join(found[0][1])
    held = asyncio.run(read(*asked[0], [f"{whole[-1]}\0"]))[1]  # the last character may begin this string
    assert "".join(held) == whole and held != found[0][1]

    async def read_again():
        made = engine.text(tokenizer, PROMPTS[0], 24, stop=[f"{whole[-1]}\0"])
        begun = [next(made), await anext(aiter(made))]
        made.request.result(60)
        return begun + [piece async for piece in made], [piece async for piece in made], list(made)

    pieces, *rest = asyncio.run(read_again())
    assert "".join(pieces) == whole and rest == [[], []], "each piece comes once"

    async def leave():
        made = engine.text(tokenizer, PROMPTS[0], 60)
        async for _ in (pieces := aiter(made)):
            break
        await pieces.aclose()
        return made.request

    request = asyncio.run(leave())
    assert request.cancelled and len(request.result(30)) < 60


@pytest.mark.parametrize("sampling", [Sampling(), DRAWN])
def test_samples_of_a_prompt_read_it_once(model, tokenizer, sampling, monkeypatch):
    prompt = tokenizer.encode("And the LORD spake unto Moses, saying, Speak unto the children of Israel", eos=False)
    steps, run = [], BatchRunner.run
    monkeypatch.setattr(BatchRunner, "run", lambda self, parts: steps.append(sum(parts.values())) or run(self, parts))
    with Engine(model, context=96, batch=4, tokens=16) as engine:
        made = engine.samples(prompt, 8, 3, sampling)
        found = [request.result(60) for request in made]
        assert sum(steps) == len(prompt) + 2 * (len(prompt) % 16) + 3 * 7
        texts = engine.texts(tokenizer, prompt, 8, 3, sampling, stop=[","])
        assert ["".join(t) for t in texts] == [tokenizer.decode(f).partition(",")[0] for f in found]
        seeds = [sampling.seed + n for n in range(3)]
        for seed, got in zip(seeds, found, strict=True):
            assert got == engine.submit(prompt, 8, replace(sampling, seed=seed)).result(60)
        with pytest.raises(InvalidArgument, match="n=0"):
            engine.samples(prompt, 8, 0)
        with pytest.raises(InvalidArgument, match="max_tokens"):
            engine.texts(tokenizer, prompt, 0, 2)
        ended = engine.samples(prompt, 8, 3, sampling, ends=(token for token in range(2048)))
        assert [request.result(60) for request in ended] == [[]] * 3, "a generator is for all of them"
        again = engine.texts(tokenizer, prompt, 8, 3, sampling, stop=(s for s in [","]))
        assert ["".join(t) for t in again] == [tokenizer.decode(f).partition(",")[0] for f in found]
        with pytest.raises(InvalidArgument, match="sampling='x'"):
            engine.samples(prompt, 8, 2, "x")
        given = iter([None])
        with pytest.raises(StopIteration):
            engine.samples(prompt, 60, 2, constraint=lambda: next(given))
        with pytest.raises(InvalidArgument, match="constraint=0"):
            engine.samples(prompt, 8, 2, constraint=0)
        assert engine.submit([5], 1).result(60) and engine.running + engine.waiting <= 1


def test_a_context_beyond_the_trained_one_is_a_warning(model):
    trained = model.config.context
    with pytest.warns(UserWarning, match=f"{trained + 1} positions are more than the {trained} that the model was"):
        Engine(model, context=trained + 1).close()
    Engine(model, context=trained).close()
    Engine(model).close()


def test_a_text_ends_where_it_should(engine, model, tokenizer):
    whole = text_alone(model, PROMPTS[0], 40)
    stop = whole[12:17]
    assert "".join(engine.text(tokenizer, PROMPTS[0], 40, stop=[stop])) == whole[: whole.index(stop)]
    ids = tokenizer.encode(PROMPTS[0], eos=False)
    found = engine.submit(ids, 40).result(60)
    request = engine.submit(ids, 40, ends={found[5]})
    assert request.result(60) == found[: found.index(found[5])] and request.reason == STOP


def test_cancelling_ends_a_text_where_it_is(engine, model, tokenizer):
    ids = tokenizer.encode(PROMPTS[0], eos=False)
    came = threading.Event()
    request = engine.submit(ids, 80, listener=came.set)
    other = engine.submit(ids, 30)
    assert came.wait(60)
    request.cancel()
    assert request.result(60) == request.tokens and request.reason == CANCELLED and len(request.tokens) < 80
    pieces = engine.text(tokenizer, PROMPTS[0], 80)
    assert next(pieces)
    pieces.close()
    unread = [engine.text(tokenizer, PROMPTS[1], 80) for _ in range(2)]
    unread[0].close()  # before it began
    requests = [it.request for it in unread]
    del unread
    assert {r.result(60) is not None and r.reason for r in requests} == {CANCELLED}
    assert len(other.result(60)) == 30 and other.reason == LENGTH
    request.cancel()
    assert request.reason == CANCELLED
    for _ in range(1000):
        if not engine.running:
            break
        time.sleep(0.01)
    assert not engine.running and engine.pool.available == engine.pool.count


def test_a_listener_may_submit_and_one_that_raises_harms_nobody(engine, tokenizer, monkeypatch):
    told, more = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))

    def fail():
        raise RuntimeError("a listener's fault")

    first = engine.submit([5, 6, 7], 3, listener=fail)
    second = engine.submit([5, 6, 7], 3, listener=lambda: more or more.append(engine.submit([8], 2)))
    assert first.result(60) == second.result(60)
    assert len(more[0].result(60)) == 2
    assert len(told) == 4 and "a listener's fault" in str(told[0])


def test_a_request_that_fails_leaves_the_others_alone(tmp_path):
    def spoil(facts, held):
        held["token_embd.weight"][5] = np.nan

    model = Model(made(tmp_path / "model.gguf", tied=False, change=spoil))
    with Engine(model, context=40, batch=4) as engine:
        good = [engine.submit(PROMPT, 8, s) for s in (Sampling(), DRAWN)]
        bad = [engine.submit([3, 5, 8], 8, s) for s in (Sampling(), DRAWN)]
        more = engine.submit(PROMPT[:3], 8)
        for request in bad:
            with pytest.raises(isokern.IsokernError, match="NaN"):
                request.result(60)
            assert request.reason == FAILED
            with pytest.raises(isokern.IsokernError, match="NaN"):
                list(request)
        for request, prompt in zip((*good, more), (PROMPT, PROMPT, PROMPT[:3]), strict=True):
            assert request.result(60) == tokens_alone(model, prompt, 8, request.drawing.sampling)


class Panic(BaseException):
    """What a library raises that is no Exception."""


@pytest.mark.parametrize("kind", [TypeError, Panic])
@pytest.mark.parametrize("where", ["draw", "run", "plan", "commit"])
def test_whatever_is_raised_ends_only_who_is_concerned(model, where, kind, monkeypatch):
    def fail(*_):
        raise kind("a fault")

    wanted = tokens_alone(model, [1, 2, 3], 12)
    with Engine(model, context=96, batch=4, tokens=16) as engine:
        with monkeypatch.context() as patch:
            with engine._worker.lock:  # they begin together
                good, bad = engine.submit([1, 2, 3], 12), engine.submit([1, 2, 3], 12, DRAWN)
                patch.setattr({"draw": bad.drawing, "run": engine.runner}.get(where, engine.scheduler), where, fail)
            for request in (bad,) if where == "draw" else (bad, good):
                with pytest.raises(kind, match="a fault"):
                    request.result(60)
                assert request.reason == FAILED
            assert where != "draw" or good.result(60) == wanted
        assert engine.submit([1, 2, 3], 12).result(60) == wanted
    assert engine.pool.available == engine.pool.count and not engine.running and not engine.waiting


def test_a_step_that_fails_ends_its_requests_and_the_engine_goes_on(engine, monkeypatch):
    def fail(*_):
        raise isokern.OutOfMemory("Engine", "a step without memory")

    with monkeypatch.context() as patch:
        patch.setattr(BatchRunner, "_program", fail)
        with pytest.raises(isokern.OutOfMemory):
            engine.submit([1, 2, 3], 4).result(60)
    assert len(engine.submit([1, 2, 3], 4).result(60)) == 4


@pytest.mark.parametrize(
    ("prompt", "most", "options", "message"),
    [
        ([], 3, {}, "it has no tokens"),
        (5, 3, {}, "it is int"),
        ("abc", 3, {}, "it is str"),
        ([1, 2048], 3, {}, "token 2048"),
        ([1.5], 3, {}, "token 1.5"),
        (["a"], 3, {}, "token 'a'"),
        ([1, 2], 0, {}, "max_tokens=0"),
        ([1, 2], 96, {}, "2 tokens and 95 more"),
        ([1] * 97, 1, {}, "97 tokens"),
        ([1], 2, {"sampling": Sampling(temperature=-1.0)}, "temperature"),
        ([1], 2, {"sampling": Sampling(top_p=2.0)}, "top_p"),
        ([1], 2, {"bias": {5000: 1.0}}, "logit bias of token 5000"),
        ([1], 2, {"bias": {3: 1e39}}, r"logit bias 1e\+39 of token 3; allowed: a number up to 1e\+36, or -inf"),
        ([1], 2, {"bias": {3: -(10**400)}}, "logit bias -1000"),
        ([1], 2, {"constraint": "abc"}, "constraint='abc'"),
        ([1], 2, {"priority": 0.5}, "priority=0.5"),
        ([1], 2, {"bias": [1]}, r"bias=\[1\]"),
        ([1], 2, {"sampling": 5}, "sampling=5"),
        ([1], 2, {"ends": 5}, "ends=5"),
        ([1], 2, {"ends": ["a"]}, "ends="),
        ([1], 2, {"listener": 5}, "listener=5"),
        ([1], 2, {"logprobs": -1}, "logprobs=-1"),
        ([1], 2, {"logprobs": True}, "logprobs=True"),
    ],
)
def test_wrong_requests_are_refused_at_once(engine, prompt, most, options, message):
    with pytest.raises(InvalidArgument, match=message):
        engine.submit(prompt, most, **options)


def test_prompts_may_be_generators_and_are_copied(engine):
    prompt = [1, 2, 3]
    request = engine.submit(prompt, 4)
    prompt.append(9000)
    assert request.result(60) == engine.submit((t for t in [1, 2, 3]), 4).result(60)


def test_wrong_engines_are_refused(model):
    for options, message in [
        ({"batch": 0}, "batch=0"),
        ({"tokens": 8}, "tokens=8"),
        ({"positions": 0}, "positions=0"),
        ({"context": 0}, "context=0"),
        ({"dtype": "I8"}, "I8"),
    ]:
        with pytest.raises(isokern.IsokernError, match=message):
            Engine(model, **options)


def test_a_closed_engine_cancels_and_refuses(model):
    engine = Engine(model, context=96, batch=2)
    requests = [engine.submit([1, 2, 3], 90) for _ in range(5)]
    engine.close()
    assert {request.reason for request in requests} <= {CANCELLED, LENGTH}
    assert CANCELLED in {request.reason for request in requests}
    with pytest.raises(InvalidArgument, match="it is closed"):
        engine.submit([1], 2)
    engine.close()


def test_an_engine_that_nobody_holds_goes(model):
    engine = Engine(model, context=96)
    request = engine.submit([1, 2, 3], 30)
    held = weakref.ref(engine)
    del engine
    assert len(request.result(60)) == 30, "its requests are still served"
    for _ in range(1000):
        gc.collect()
        if held() is None:
            break
        time.sleep(0.01)
    assert held() is None and not [t for t in threading.enumerate() if t.name == "isokern-engine"]


def test_a_process_ends_while_requests_run():
    code = f"""
from isokern.llm import Engine, Model
engine = Engine(Model.open({str(Q4_0)!r}), context=512)
requests = [engine.submit([1, 2, n], 400) for n in range(8)]
next(iter(requests[0]))
print("ends", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_threads_that_submit_and_cancel_at_random(model):
    rng = random.Random(7)
    stems = [[rng.randrange(2000) for _ in range(40)] for _ in range(3)]
    with Engine(model, context=64, positions=256, batch=4, tokens=16, exact=True) as engine:
        wanted = {}
        for stem in stems:
            for n in (3, 17, 40):
                wanted[tuple(stem[:n])] = engine.submit(stem[:n], 12).result(60)
        faults = []

        def attack(seed):
            own = random.Random(seed)
            for _ in range(25):
                prompt = own.choice(stems)[: own.choice([3, 17, 40])]
                request = engine.submit(prompt, own.randint(1, 12), priority=own.choice([0, 0, 1]))
                if own.random() < 0.3:
                    request.cancel()
                with contextlib.suppress(TimeoutError):
                    request.result(0.001)
                if own.random() < 0.3:
                    continue
                got = request.result(60)
                right = wanted[tuple(prompt)][: request.most]
                if got != right[: len(got)] or (request.reason == LENGTH and got != right):
                    faults.append((prompt, got, right))

        threads = [threading.Thread(target=attack, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults
    assert engine.pool.available == engine.pool.count and not engine.running and not engine.waiting


def test_a_batch_step_is_a_graph_with_its_inputs(model):
    from isokern.llm.decoder import decoder

    step = BatchStep(40, 8, 2, 3, 5, 16, "F16")
    graph = decoder(model.gguf, model.config, step).graph
    shapes = {v.name: v.spec.shape for v in graph.inputs}
    assert shapes["table"] == (3, 3) and shapes["starts"] == (4,) and shapes["blk.0.keys"][:2] == (5, 16)
    assert graph.outputs[0].spec.shape == (2, 2048)
