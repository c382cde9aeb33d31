"""Test texts that are longer than the cache: what is dropped, how keys turn, and how well the model still predicts."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from small_architectures import made
from typer.testing import CliRunner

from isokern.cli import generate
from isokern.llm import Generation, Model, Sampling, Session, tokens
from isokern.status import InvalidArgument

FILE = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-f16.gguf"
TEXT = [int(t) for t in np.random.default_rng(4).integers(0, 97, 24)]


def turned(keys, places, config, rope):
    """Return float64 keys [..., heads, dim], turned by places times the frequencies of a rope."""
    n, keys = config.rotated, keys.astype(np.float64)
    first = keys.shape[-1] - n if config.latent else 0
    part = keys[..., first : first + n].copy()
    angle = places * np.asarray(rope.frequencies, np.float64)
    halves = (
        (part[..., : n // 2], part[..., n // 2 :])
        if config.form.pairing == "half"
        else (part[..., ::2], part[..., 1::2])
    )
    a, b = halves[0] * np.cos(angle) - halves[1] * np.sin(angle), halves[0] * np.sin(angle) + halves[1] * np.cos(angle)
    if config.form.pairing == "half":
        keys[..., first : first + n] = np.concatenate([a, b], -1)
    else:
        keys[..., first : first + n : 2], keys[..., first + 1 : first + n : 2] = a, b
    return keys


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma3n", "deepseek2", "phi2", "gpt-oss", "smollm3"])
def test_keys_turn_back_as_if_the_others_had_never_been(tmp_path, device, name):
    model = Model(made(tmp_path / "m.gguf", name), device=device)
    session, config = Session(model, 64, "F32"), model.config
    session.logits(TEXT)
    before = [(c.keys.numpy().copy(), c.values.numpy().copy()) for c in session.caches]
    session.drop(3, 7)
    assert session.position == len(TEXT) - 7 and session.dropped == 7
    for layer, (cache, (keys, values)) in enumerate(zip(session.caches, before, strict=True)):
        rope = config.ropes.get(config.rope(layer, 64) or "")
        wanted = keys[0, 10 : len(TEXT)] if rope is None else turned(keys[0, 10 : len(TEXT)], -7, config, rope)
        got = cache.keys.numpy()[0]
        assert np.array_equal(got[:3], keys[0, :3])
        assert np.abs(got[3 : len(TEXT) - 7] - wanted).max() < 1e-5 * np.abs(wanted).max()
        assert np.array_equal(
            cache.values.numpy()[0, : len(TEXT) - 7], np.delete(values[0, : len(TEXT)], range(3, 10), 0)
        )
    fresh = Session(model, 64, "F32")  # whose first layer has seen nothing else
    fresh.logits(TEXT[:3] + TEXT[10:])
    wanted = fresh.caches[0].keys.numpy()[0, : len(TEXT) - 7]
    assert np.abs(session.caches[0].keys.numpy()[0, : len(TEXT) - 7] - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_keys_of_every_cache_turn(tmp_path, device, dtype):
    model = Model(made(tmp_path / "m.gguf", "llama"), device=device)
    session, fresh = (Session(model, 64, dtype) for _ in range(2))
    session.logits(TEXT)
    session.drop(0, 9)
    fresh.logits(TEXT[9:])
    got, wanted = (s.caches[0].keys[:, : len(TEXT) - 9] for s in (session, fresh))
    if dtype in ("Q8_0", "Q4_0"):
        from isokern.eager.functions import cast

        got, wanted = cast(got, dtype="F32"), cast(wanted, dtype="F32")
    got, wanted = (x.numpy().astype(np.float64) for x in (got, wanted))
    near = {"F16": 2e-3, "BF16": 2e-2, "Q8_0": 2e-2, "Q4_0": 0.3}[dtype]
    assert np.abs(got - wanted).max() < near * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["gpt2", "mamba"])
def test_models_whose_positions_cannot_move_say_so(tmp_path, device, name):
    session = Session(Model(made(tmp_path / "m.gguf", name), device=device), 32)
    session.logits(TEXT[:4])
    with pytest.raises(InvalidArgument, match=r"learned positions|states"):
        session.drop(0, 1)
    with pytest.raises(InvalidArgument, match=r"learned positions|states"):
        tokens(session, [5], 100, Sampling(), frozenset(), Generation(), keep=2)
    assert session.position == 4


def test_what_is_not_there_is_not_dropped(tmp_path, device):
    session = Session(Model(made(tmp_path / "m.gguf", "llama"), device=device), 32)
    session.logits(TEXT[:4])
    for start, n, message in [(5, 0, "start=5"), (0, 5, "n=5"), (2, 3, "n=3"), (-1, 1, "start=-1"), (0, 1.0, "n=1.0")]:
        with pytest.raises(InvalidArgument, match=message):
            session.drop(start, n)
    assert session.position == 4
    session.drop(0, 4)
    assert session.position == 0
    session.clear()
    assert session.dropped == 0


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 40, 0.95, seed=5)])
def test_a_text_goes_on_beyond_the_cache(sampling):
    model = Model.open(FILE)

    def write(length, most, **options):
        return list(tokens(Session(model, length), [5, 6, 7], most, sampling, frozenset(), Generation(), **options))

    whole = write(128, 120)
    short = write(32, 120, keep=4)
    assert len(short) == 120 and short[:29] == whole[:29]
    assert short == write(32, 120, keep=4, bias={9: 0.0}), "drawn in the program as by calls"
    with pytest.raises(InvalidArgument, match="allowed: 32 in all"):
        write(32, 120)
    with pytest.raises(InvalidArgument, match="keep=31"):
        write(32, 120, keep=31)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 40, 0.95, seed=5)])
def test_a_text_goes_on_from_what_others_have_left(sampling):
    session = Session(Model.open(FILE), 64)

    def write(change, **options):
        session.clear()
        each = tokens(session, [5, 6, 7], 30, sampling, frozenset(), Generation(), **options)
        return [next(each) for _ in range(12)], change(), [*each]

    plain = write(lambda: None)
    for change in (
        lambda: session.prune_prefix(8),
        lambda: session.rewind(session.position - 3),
        lambda: session.logits([9]) is None,
        lambda: (session.logits([9]) is None, session.rewind(session.position - 1)),
        lambda: [*tokens(session, [8, 9], 5, sampling, frozenset(), Generation())],
    ):
        found = write(change)
        assert found == write(change, bias={9: 0.0}), "drawn in the program as by calls"
        assert found[0] == plain[0]
    for options in ({}, {"bias": {9: 0.0}}, {"drafts": 3}):
        with pytest.raises(InvalidArgument, match="the session was cleared"):
            write(session.clear, **options)
    with pytest.raises(InvalidArgument, match="rewound"):
        write(lambda: session.rewind(5), drafts=3)
    step = session.program(1, sampling=sampling)
    step.run([5])
    session.rewind(1)
    with pytest.raises(InvalidArgument, match="no tokens, and the session has changed since the last run"):
        step.run()


def loss(session, ids, turn):
    """Return the mean -ln p of tokens, read one by one; a full cache drops half of what it has."""
    total = 0.0
    for n, token in enumerate(ids[:-1]):
        if session.position == session.length:
            if turn:
                session.drop(0, session.length // 2)
            else:
                for cache in session.caches:
                    cache.prune_prefix(session.length // 2)
        row = session.logits([token])[0].astype(np.float64)
        total += np.log(np.exp(row - row.max()).sum()) + row.max() - row[ids[n + 1]]
    return total / (len(ids) - 1)


def test_a_model_predicts_as_well_after_positions_were_dropped():
    model = Model.open(FILE)
    ids = list(tokens(Session(model, 256), [1, 5], 250, Sampling(0.9, seed=2), frozenset(), Generation()))
    whole = loss(Session(model, 256), ids, True)
    turned, left = (loss(Session(model, 64), ids, turn) for turn in (True, False))
    assert turned < whole + 0.15 < left


def test_the_command_line_keeps_what_it_is_told_to():
    app = typer.Typer()
    app.command()(generate.generate)
    words = [str(FILE), "--prompt", "Blessed", "--max-tokens", "60", "--temperature", "0", "--context", "32", "--json"]
    done = CliRunner().invoke(app, [*words, "--keep", "4"])
    assert done.exit_code == 0 and json.loads(done.stdout)["tokens"] == 60
    assert "allowed: 32 in all" in str(CliRunner().invoke(app, words).exception)
