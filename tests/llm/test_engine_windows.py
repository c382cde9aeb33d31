"""Test engines over models with windows: their layers keep what windows show, and texts are what they were."""

import random

import numpy as np
import pytest
from small_architectures import VOCABULARY, WINDOW, made

from isokern.llm import Engine, Generation, Model, Sampling, Session, engine as engine_module, tokens
from isokern.llm.batch import PAGE, BatchRunner
from isokern.llm.decoder import decoder
from isokern.llm.request import CANCELLED, LENGTH
from isokern.llm.scheduler import Scheduler, count_near
from isokern.llm.steps import BatchStep

pytestmark = pytest.mark.filterwarnings("ignore:.*positions are more than the")

LONG = 400
MODELS = ["gemma2", "mistral", "gpt-oss", "gemma3n"]  # with windows in every other layer, in all, with sinks, shared


def model_of(tmp_path, name="gemma2", device=None):
    return Model(made(tmp_path / "model.gguf", name, context_length=LONG), device=device)


def draw_prompts(seed, *lengths):
    rng = random.Random(seed)
    return [[rng.randrange(VOCABULARY) for _ in range(n)] for n in lengths]


def alone(model, prompt, most, dtype="F32"):
    """Return the text of a session of its own."""
    session = Session(model, LONG, dtype)
    return list(tokens(session, prompt, most, Sampling(), frozenset(), Generation()))


def is_idle(engine):
    scheduler = engine.scheduler
    return all(pool.available == pool.count for pool in (scheduler.pool, scheduler.near))


@pytest.fixture
def keep_all(monkeypatch):
    """Return a function that has engines keep all positions of layers with windows, or no longer."""

    def change(on):
        monkeypatch.setattr(engine_module, "count_near", (lambda *_: LONG) if on else count_near)

    return change


@pytest.fixture
def seen(monkeypatch):
    """Have the logits that engines draw from, by request."""
    found, draw = {}, BatchRunner._draw

    def watch(runner, logits, parts):
        texts = [state for state, count in parts.items() if count == state.pending]
        for state, row in zip(texts, logits.numpy(), strict=False):
            found.setdefault(tuple(state.request.prompt), []).append(row.copy())
        return draw(runner, logits, parts)

    monkeypatch.setattr(BatchRunner, "_draw", watch)
    return found


@pytest.mark.quick("mistral", "gemma3n")
@pytest.mark.parametrize("name", MODELS)
def test_texts_far_beyond_the_window_are_those_of_sessions(tmp_path, name):
    model, prompts = model_of(tmp_path, name), draw_prompts(5, 119, 3, 211)
    with Engine(model, context=LONG, batch=3, tokens=16, dtype="F32") as engine:
        got = [request.result(120) for request in [engine.submit(p, 90) for p in prompts]]
        assert is_idle(engine) and engine.scheduler.near.count == 3 * 3 < engine.pool.count
    for prompt, found in zip(prompts, got, strict=True):
        assert found == alone(model, prompt, 90)


@pytest.mark.quick("0")
@pytest.mark.parametrize("which", range(4))
def test_texts_are_the_same_on_all_devices(tmp_path, devices, which):
    if which >= len(devices):
        pytest.skip(f"{len(devices)} devices")
    (prompt,), model = draw_prompts(6, 50), model_of(tmp_path, device=devices[which])
    with Engine(model, context=96, batch=1, tokens=16, dtype="F32") as engine:
        assert engine.scheduler.near.count == 3
        assert engine.submit(prompt, 8).result(120) == alone(model_of(tmp_path), prompt, 8)


@pytest.mark.parametrize("name", ["gemma2", "mistral"])
def test_the_cache_of_a_layer_with_a_window_is_what_it_shows(tmp_path, name, keep_all):
    model = model_of(tmp_path, name)
    c, options = model.config, {"context": LONG, "positions": 5 * LONG, "batch": 4, "tokens": 32}
    each = 2 * c.kv_heads * c.head_dim * 2  # keys and values of a position, F16
    windowed = sum(window > 0 for window in c.windows)
    near = 4 * 4 * PAGE  # for each of 4 sequences, the pages of 8 - 1 + 32 positions
    with Engine(model, **options) as engine:
        assert engine.cache_bytes == each * (windowed * near + (c.layers - windowed) * 5 * LONG)
        assert engine.positions == 5 * LONG
    keep_all(True)
    with Engine(model, **options) as engine:
        assert engine.cache_bytes == each * c.layers * 5 * LONG


@pytest.mark.parametrize(
    ("options", "pages"),
    [
        ({"context": WINDOW}, 0),  # which shows all
        ({"context": WINDOW + 1, "positions": 160}, 3),
        ({"positions": 3 * PAGE}, 0),  # no fewer than there are in all
        ({"positions": 3 * PAGE + 1}, 3),
        ({"batch": 5}, 15),
    ],
)
def test_there_is_a_pool_for_windows_where_it_is_smaller(tmp_path, options, pages):
    with Engine(model_of(tmp_path), **{"context": LONG, "batch": 1, "tokens": 16, **options}) as engine:
        near = engine.scheduler.near
        assert (near.count if near else 0) == pages
        ids = [1, 2, 3]
        assert len(engine.submit(ids, 5).result(60)) == 5


def test_exact_logits_are_those_of_layers_that_keep_all(tmp_path, seen, keep_all):
    model, prompts = model_of(tmp_path), draw_prompts(7, 70, 21, 130, 4)
    found = []
    for on in (False, True):
        keep_all(on)
        seen.clear()
        with Engine(model, context=200, positions=800, batch=3, tokens=16, exact=True) as engine:
            assert (engine.scheduler.near is None) == on
            for request in [engine.submit(p, 60) for p in prompts]:
                request.result(120)
        found.append({prompt: np.array(rows) for prompt, rows in seen.items()})
    assert {len(rows) for rows in found[0].values()} == {60}
    for prompt, rows in found[0].items():
        assert np.array_equal(rows, found[1][prompt])


def test_a_beginning_is_shared_only_where_its_window_is_there(tmp_path):
    model = model_of(tmp_path)
    stem, other, third = draw_prompts(8, 160, 150, 3)
    with Engine(model, context=LONG, batch=1, tokens=16, dtype="F32", exact=True) as engine:
        first = engine.submit(stem, 3)
        assert first.result(60) == alone(model, stem, 3)
        again = engine.submit([*stem, *third], 20)
        assert again.result(60) == alone(model, [*stem, *third], 20) and again.cached == 160, "one that goes on"
        engine.submit(other, 20).result(60)  # which takes all pages that windows had
        again = engine.submit([*stem[:100], *third], 20)
        assert again.result(60) == alone(model, [*stem[:100], *third], 20) and again.cached == 0
        assert is_idle(engine)


def test_texts_that_wait_for_pages_go_on_as_they_were(tmp_path, monkeypatch):
    model, prompts, gave = model_of(tmp_path), draw_prompts(9, 60, 40, 90, 5), []
    preempt = Scheduler._preempt
    monkeypatch.setattr(Scheduler, "_preempt", lambda *given: gave.append(given[1]) or preempt(*given))
    with Engine(model, context=200, positions=240, batch=3, tokens=16, dtype="F32", exact=True) as engine:
        assert engine.scheduler.near.count == 9 < engine.pool.count == 15
        got = [request.result(120) for request in [engine.submit(p, 70) for p in prompts]]
        assert is_idle(engine)
    assert gave
    for prompt, found in zip(prompts, got, strict=True):
        assert found == alone(model, prompt, 70)


@pytest.mark.parametrize("exact", [False, True])
def test_drafts_change_no_text(tmp_path, exact):
    model, prompts = model_of(tmp_path), [p * 4 for p in draw_prompts(10, 30, 12, 5)]
    texts = []
    for drafts in (0, 4):
        with Engine(model, context=LONG, batch=3, tokens=16, drafts=drafts, dtype="F32", exact=exact) as engine:
            texts.append([request.result(120) for request in [engine.submit(p, 100) for p in prompts]])
            assert is_idle(engine)
    assert texts[0] == texts[1] == [alone(model, p, 100) for p in prompts]
    assert engine.accepted > 10


def test_requests_that_come_and_go_at_random_have_their_texts(tmp_path):
    model, rng = model_of(tmp_path, "gpt-oss"), random.Random(11)
    stems = draw_prompts(12, 90, 90)
    wanted = {(i, n): alone(model, stems[i][:n], 30) for i in range(2) for n in (5, 33, 64, 90)}
    with Engine(model, context=128, positions=240, batch=3, tokens=16, drafts=2, dtype="F32", exact=True) as engine:
        asked = []
        for _ in range(40):
            key = rng.choice(list(wanted))
            request = engine.submit(stems[key[0]][: key[1]], rng.randint(1, 30), priority=rng.choice([0, 0, 1]))
            asked.append((key, request))
            if rng.random() < 0.3:
                rng.choice(asked)[1].cancel()
            if rng.random() < 0.5:
                request.result(60)
        for key, request in asked:
            found = request.result(60)
            assert found == wanted[key][: len(found)] and request.reason in (LENGTH, CANCELLED)
            assert request.reason == CANCELLED or len(found) == request.most
        assert is_idle(engine)


def test_a_step_has_inputs_for_windows(tmp_path):
    model = model_of(tmp_path)
    graph = decoder(model.gguf, model.config, BatchStep(40, 8, 2, 3, 9, PAGE, near=5)).graph
    shapes = {v.name: v.spec.shape for v in graph.inputs}
    assert shapes["table"] == shapes["near_table"] == (3, 3) and shapes["slots"] == shapes["near_slots"] == (8,)
    pages = {shapes[f"blk.{n}.keys"][0] for n, window in enumerate(model.config.windows) if window}
    assert pages == {5} and shapes["blk.1.keys"][0] == 9
    plain = decoder(model.gguf, model.config, BatchStep(40, 8, 2, 3, 9, PAGE)).graph
    assert not {v.name for v in plain.inputs} & {"near_slots", "near_table"}
