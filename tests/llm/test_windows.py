"""Test sessions of models with windows: layers keep what a window shows and little more, and compute the same."""

import itertools

import numpy as np
import pytest
from reference_models import logits
from small_architectures import VOCABULARY, WINDOW, made

from isokern import InvalidArgument
from isokern.llm import Generation, Model, Sampling, Session, tokens
from isokern.llm.decoder import decoder
from isokern.llm.steps import SPAN, TokenStep

MODELS = ["mistral", "gemma2", "gemma3", "gemma3n", "phi3", "cohere2", "gpt-oss", "olmo3"]
KEPT = WINDOW + 2 * SPAN
TEXT = [int(t) for t in np.random.default_rng(4).integers(0, VOCABULARY, 400)]


def far(got, wanted):
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


def session_of(tmp_path, device, model="gemma2", length=400, dtype="F32"):
    gguf = made(tmp_path / "m.gguf", model, context_length=400)
    return gguf, Session(Model(gguf, device=device), length, dtype)


@pytest.mark.quick("mistral", "gemma3n")  # windows in every layer, and caches that layers share
@pytest.mark.parametrize("model", MODELS)
def test_logits_are_those_of_float64_far_beyond_the_window(tmp_path, device, model):
    gguf, session = session_of(tmp_path, device, model)
    wanted = logits(gguf, model, TEXT)
    cuts = (0, 100, 101, 102, 150, 214, 215, 300, 301, 350, 400)
    got = [session.logits(TEXT[a:b], every=True) for a, b in itertools.pairwise(cuts)]
    most = 1e-4 if model == "gemma3n" else 2e-5  # its gates open at a threshold: the same error with caches of all
    assert far(np.concatenate(got), wanted) < most
    assert session.position == 400 and session.base > 400 - KEPT
    windows = session.model.config.windows
    kept = {c.keys.shape[1] for n, c in zip(session.layers, session.caches, strict=True) if windows[n]}
    assert kept == {KEPT} and session.caches[-1].keys.shape[1] in (KEPT, 400)


def test_a_cache_that_is_no_longer_than_a_window_is_as_any(tmp_path, device):
    _, session = session_of(tmp_path, device, length=KEPT)
    assert {c.keys.shape[1] for c in session.caches} == {KEPT}
    assert "base" not in session.program(1).inputs
    assert session.program(100).count == 100


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.9, 30, 0.95, seed=3), Sampling(penalty=1.3)])
def test_a_text_is_the_same_drawn_in_programs_and_by_calls(tmp_path, device, sampling):
    def write(**options):
        _, session = session_of(tmp_path, device, "gemma3", dtype="F16")
        return list(tokens(session, TEXT[:20], 300, sampling, frozenset(), Generation(), **options))

    assert write() == write(bias={3: 0.0})


def test_texts_go_back_as_far_as_the_window_is_there(tmp_path, device):
    _, session = session_of(tmp_path, device)
    wanted = session.logits(TEXT[:300])
    session.logits(TEXT[300:340])
    assert session.rewind(300) == session.position == 300 and session.base
    again = session.logits(TEXT[300:340])
    assert session.rewind(340) == 340
    assert session.rewind(299) == 299
    assert far(session.logits(TEXT[299:300]), wanted) < 1e-5
    assert far(session.logits(TEXT[300:340]), again) < 1e-5
    least = session.base + WINDOW - 1
    session.rewind(least)
    assert far(session.logits(TEXT[least:300]), wanted) < 1e-5
    session.rewind(least)
    assert session.rewind(least - 1) == session.position == session.base == 0
    assert far(session.logits(TEXT[:300]), wanted) < 1e-5
    with pytest.raises(InvalidArgument, match="position=301"):
        session.rewind(301)


@pytest.mark.parametrize(
    ("start", "n", "base"),
    [
        *((0, 10, 239), (20, 100, 149), (230, 20, 230), (0, 340, 0), (0, 350, 0)),
        *((260, 20, 249), (340, 7, 249), (350, 0, 249)),
    ],
)
def test_positions_are_dropped_as_from_caches_of_all(tmp_path, device, monkeypatch, start, n, base):
    _, session = session_of(tmp_path, device)
    monkeypatch.setattr(TokenStep, "count_kept", lambda self, window: self.length)
    whole = Session(session.model, 400, "F32")
    whole.logits(TEXT[:350])
    whole.drop(start, n)
    monkeypatch.undo()
    session.logits(TEXT[:350])
    assert session.base == 249
    session.drop(start, n)
    assert (session.position, session.base) == (350 - n, base)
    for layer, (cache, other) in enumerate(zip(session.caches, whole.caches, strict=True)):
        at = session.base if session.model.config.windows[layer] else 0
        kept, wanted = (c.numpy()[0] for c in (cache.keys[:, : session.position - at], other.keys[:, at : 350 - n]))
        assert np.abs(kept - wanted).max(initial=0) < 1e-4, layer


def test_what_follows_a_drop_is_what_follows_the_rest(tmp_path, device):
    _, session = session_of(tmp_path, device, "mistral")
    session.logits(TEXT[:330])
    session.drop(0, 300)
    assert (session.position, session.base) == (30, 0)
    got = session.logits(TEXT[330:380], every=True)[WINDOW * 2 :]
    fresh = Session(session.model, 400, "F32")
    wanted = fresh.logits(TEXT[300:380], every=True)[30 + WINDOW * 2 :]
    assert far(got, wanted) < 1e-4, "two layers with windows see no more than two windows back"


def test_programs_are_for_a_part_of_a_prompt(tmp_path, device):
    gguf, session = session_of(tmp_path, device)
    with pytest.raises(InvalidArgument, match=f"count={SPAN + 1}; allowed: an integer from 1 to {SPAN}"):
        session.program(SPAN + 1)
    with pytest.raises(InvalidArgument, match=f"tokens={SPAN + 1}; allowed: up to {SPAN}"):
        decoder(gguf, session.model.config, TokenStep(400, SPAN + 1))
