"""Test many requests at once to models that keep states: each has the text that it has alone, whoever else is there."""

import contextlib
import random
import threading

import numpy as np
import pytest
from small_architectures import made
from small_model import put

import isokern
from isokern.llm import Engine, Generation, Model, Sampling, Session, tokens
from isokern.llm.batch import StepRunner
from isokern.llm.decoder import decoder
from isokern.llm.engine import KEPT
from isokern.llm.request import CANCELLED, FAILED, LENGTH, STOP
from isokern.llm.state_batch import StateRunner
from isokern.llm.state_steps import StateStep
from isokern.llm.steps import BatchStep
from isokern.status import InvalidArgument

pytestmark = pytest.mark.filterwarnings("ignore:.*positions are more than the")

NAMES = ["mamba", "falcon-mamba", "mamba2", "rwkv7"]
DRAWN = Sampling(0.9, 30, 0.95, 0.02, 1.1, 1611)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder):
    return Model(made(folder / "long.gguf", "rwkv7", change=put("rwkv7.context_length", 512)))


@pytest.fixture
def engine(model):
    with Engine(model, context=400, batch=4, tokens=16) as made:
        yield made
    assert made.pool.available == made.pool.count and not made.running and not made.waiting


def random_prompts(seed, lengths):
    rng = random.Random(seed)
    return [[rng.randrange(90) for _ in range(n)] for n in lengths]


def tokens_alone(model, prompt, most, sampling=None):
    """Return the tokens of a session of its own."""
    return list(tokens(Session(model, 400), prompt, most, sampling or Sampling(), frozenset(), Generation()))


@pytest.mark.quick("mamba2-0")
@pytest.mark.parametrize(("name", "which"), [*((name, 0) for name in NAMES), ("mamba", 1), ("mamba2", 2), ("rwkv7", 3)])
def test_requests_have_the_texts_that_they_have_alone(folder, devices, name, which):
    if which >= len(devices):
        pytest.skip(f"{len(devices)} devices")
    model = Model(made(folder / f"{name}.gguf", name), device=devices[which])
    lengths = (19, 3, 30, 1, 2) if which < 2 else (11, 3)
    asked = [(p, s) for p in random_prompts(5, lengths) for s in (Sampling(), DRAWN)]
    with Engine(model, context=64, batch=3, tokens=16) as engine:
        requests = [engine.submit(p, 9, s, bias={20: 2.5} if s is DRAWN else None) for p, s in asked]
        got = [request.result(120) for request in requests]
        assert engine.pool.available == engine.pool.count
    for (prompt, sampling), found in zip(asked, got, strict=True):
        bias = {20: 2.5} if sampling is DRAWN else None
        alone = tokens(Session(model, 64), prompt, 9, sampling, frozenset(), Generation(), bias=bias)
        assert found == list(alone)


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_padded_spans_and_reordered_texts_are_those_of_a_session(folder, name, monkeypatch):
    """A span of 13 tokens is computed as 16: the last 3 must change neither logits nor states by a bit of noise."""
    model, seen = Model(made(folder / f"{name}.gguf", name)), {}
    draw = StepRunner._draw

    def watch(runner, logits, parts):
        texts = [state for state, count in parts.items() if count == state.pending]
        for state, row in zip(texts, logits.numpy(), strict=True):
            seen.setdefault(state.request, []).append((len(state.tokens), row.copy()))
        return draw(runner, logits, parts)

    monkeypatch.setattr(StepRunner, "_draw", watch)
    with Engine(model, context=64, batch=4, tokens=16) as engine:
        requests = [engine.submit(p, 6) for p in random_prompts(7, (13, 29, 4, 9, 21))]
        for request in requests:
            request.result(60)
    for request in requests:
        session = Session(model, 64)
        whole = [*request.prompt, *request.tokens[:-1]]
        wanted = session.logits(whole, every=True)
        assert len(seen[request]) == 6
        for count, row in seen[request]:
            np.testing.assert_allclose(row, wanted[count - 1], atol=3e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["mamba", "mamba2", "rwkv7"])
def test_exact_logits_do_not_depend_on_who_else_is_there(folder, name, monkeypatch):
    model, seen = Model(made(folder / f"{name}.gguf", name)), {}
    draw = StepRunner._draw

    def watch(runner, logits, parts):
        texts = [state for state, count in parts.items() if count == state.pending]
        for state, row in zip(texts, logits.numpy(), strict=True):
            seen.setdefault(state.request, []).append(row.copy())
        return draw(runner, logits, parts)

    monkeypatch.setattr(StepRunner, "_draw", watch)
    rng = random.Random(3)
    prompt = [rng.randrange(90) for _ in range(21)]
    found = []
    for others in (0, 9):
        with Engine(model, context=96, batch=4, tokens=16, exact=True) as engine:
            crowd = [[rng.randrange(90) for _ in range(rng.randint(1, 40))] for _ in range(others)]
            for n, other in enumerate(crowd):
                engine.submit(other, rng.randint(1, 20), priority=n % 2)
            request = engine.submit(prompt, 20)
            request.result(120)
            assert len(engine.runner.programs) == 1
        found.append(seen[request])
    assert len(found[0]) == 20 and np.array_equal(found[0], found[1])


def watch_counts(monkeypatch):
    """Return a list to which each step adds how many tokens it computes."""
    counts, run = [], StepRunner.run
    monkeypatch.setattr(
        StepRunner, "run", lambda runner, parts: counts.append(sum(parts.values())) or run(runner, parts)
    )
    return counts


def test_samples_of_a_prompt_read_it_once(model, monkeypatch):
    prompt, other = random_prompts(9, (50, 5))
    counts = watch_counts(monkeypatch)
    with Engine(model, context=96, batch=4, tokens=64) as engine:
        first = engine.submit(other, 2)  # so that the first of the others does not read its prompt before all are there
        with engine._worker.lock:
            requests = [engine.submit(prompt, 8, Sampling(1.0, seed=n)) for n in range(6)]
        texts = [request.result(60) for request in requests]
        first.result(60)
    assert [request.cached for request in requests] == [0, 49, 49, 49, 49, 49]
    assert sum(counts) == 5 + 1 + 50 + 5 + 6 * 7
    assert len(set(map(tuple, texts))) > 1
    for n in (0, 4):
        assert texts[n] == tokens_alone(model, prompt, 8, Sampling(1.0, seed=n))


def test_a_text_goes_on_from_where_another_ended(engine, model, monkeypatch):
    counts = watch_counts(monkeypatch)
    (prompt, more) = random_prompts(11, (40, 7))
    first = engine.submit(prompt, 10).result(60)
    del counts[:]
    longer = [*prompt, *first, *more]
    second = engine.submit(longer, 5)
    assert second.result(60) == tokens_alone(model, longer, 5)
    assert second.cached == len(prompt) + len(first) - 1 and sum(counts) == 1 + len(more) + 4
    again = engine.submit(longer, 5)
    assert again.result(60) == second.tokens, "also where the states of the beginning were read by another"


def test_long_prompts_leave_states_for_those_that_begin_alike(engine, model):
    stem, *ends = random_prompts(13, (300, 9, 9))
    texts = [engine.submit([*stem, *end], 4) for end in ends]
    assert [text.result(60) for text in texts] == [tokens_alone(model, [*stem, *end], 4) for end in ends]
    assert texts[0].cached == 0 and 150 <= texts[1].cached <= 300


def test_a_request_of_higher_priority_takes_the_place_of_another(model):
    prompts = random_prompts(15, (20, 30, 10))
    higher, ends = [], []
    with Engine(model, context=200, batch=1, tokens=16) as engine:

        def interrupt():
            if not higher:
                higher.append(engine.submit(prompts[1], 10, priority=1, listener=lambda: ends.append(len(low.tokens))))

        low = engine.submit(prompts[0], 40, listener=interrupt)
        assert low.result(60) == tokens_alone(model, prompts[0], 40)
        assert higher[0].result(60) == tokens_alone(model, prompts[1], 10)
    assert set(ends) == {1}, "the other one waits meanwhile"


def test_cancelling_gives_the_slot_back(engine):
    came = threading.Event()
    (prompt,) = random_prompts(17, (12,))
    request, other = engine.submit(prompt, 300, listener=came.set), engine.submit(prompt[:3], 30)
    assert came.wait(60)
    request.cancel()
    assert request.result(60) == request.tokens and request.reason == CANCELLED and len(request.tokens) < 300
    assert len(other.result(60)) == 30 and other.reason == LENGTH


def test_a_text_ends_where_the_model_says(engine):
    (prompt,) = random_prompts(19, (12,))
    whole = engine.submit(prompt, 20).result(60)
    request = engine.submit(prompt, 20, ends={whole[5]})
    assert request.result(60) == whole[: whole.index(whole[5])] and request.reason == STOP


def test_a_request_that_fails_leaves_the_others_alone(folder):
    def spoil(facts, held):
        held["token_embd.weight"][0] = np.nan  # the token that arrays begin with
        held["token_embd.weight"][5] = np.nan

    model = Model(made(folder / "spoiled.gguf", "mamba2", change=spoil))
    prompts = [[6 + p % 80 for p in prompt] for prompt in random_prompts(21, (11, 3))]
    with Engine(model, context=40, batch=4) as engine:
        good = [engine.submit(p, 8) for p in prompts]
        bad = [engine.submit(p, 8) for p in ([3, 5, 8], [0] * 9)]
        more = engine.submit(prompts[0][:6], 8)
        for request in bad:
            with pytest.raises(isokern.IsokernError, match="NaN"):
                request.result(60)
            assert request.reason == FAILED
        for request in (*good, more):
            assert request.result(60) == tokens_alone(model, request.prompt, 8)
        again = engine.submit([3, 5, 8, 9], 2)
        with pytest.raises(isokern.IsokernError, match="NaN"):
            again.result(60)
        assert again.cached == 0, "nobody goes on from what failed"


def test_a_step_that_fails_ends_its_requests_and_the_engine_goes_on(engine, monkeypatch):
    def fail(*_):
        raise isokern.OutOfMemory("Engine", "a step without memory")

    with monkeypatch.context() as patch:
        patch.setattr(StateRunner, "_program", fail)
        with pytest.raises(isokern.OutOfMemory):
            engine.submit([1, 2, 3], 4).result(60)
    assert len(engine.submit([1, 2, 3], 4).result(60)) == 4


def test_threads_that_submit_and_cancel_at_random(model):
    stems = random_prompts(23, (40, 40, 40))
    with Engine(model, context=64, batch=4, tokens=16, exact=True) as engine:
        wanted = {tuple(stem[:n]): engine.submit(stem[:n], 12).result(60) for stem in stems for n in (3, 17, 40)}
        faults = []

        def attack(seed):
            own = random.Random(seed)
            for _ in range(20):
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


def test_what_states_do_not_have_is_refused(model):
    for options, message in [
        ({"positions": 100}, "positions=100 of a model of rwkv7, which keeps states; allowed: None"),
        ({"drafts": 2}, "drafts=2 of a model of rwkv7, which keeps states; allowed: 0"),
        ({"dtype": "I8"}, "I8"),
        ({"batch": 0}, "batch=0"),
    ]:
        with pytest.raises(isokern.IsokernError, match=message):
            Engine(model, **options)
    with Engine(model, context=5000, batch=1) as engine:  # more than the model was trained on, as for a session
        assert engine.pool.count == 1 + KEPT and engine.room == 5000
        with pytest.raises(InvalidArgument, match="4999 tokens and 2 more"):
            engine.submit([1] * 4999, 3)


def test_a_step_over_states_is_a_graph_with_its_inputs(model):
    step = StateStep(40, 3, 8, 5)
    graph = decoder(model.gguf, model.config, step).graph
    shapes = {v.name: v.spec.shape for v in graph.inputs}
    assert shapes["tokens"] == (11,) and shapes["sources"] == shapes["slots"] == shapes["rows"] == (4,)
    assert shapes["blk.0.wkv"][:2] == (6, 1) and graph.outputs[0].spec.shape == (4, model.config.vocabulary)
    with pytest.raises(InvalidArgument, match="BatchStep: a model with states"):
        decoder(model.gguf, model.config, BatchStep(40, 8, 2, 3, 5, 16, "F16"))
