"""Test how tokens are drawn: penalties and rules in any order, beside NumPy's, and what a program draws by itself."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import typer
from small_model import made
from typer.testing import CliRunner

from isokern.cli import generate
from isokern.llm import Engine, Generation, Model, Sampling, Session, tokens
from isokern.llm.drawing import Drawing
from isokern.llm.sampling import HISTORY, LLAMA_CPP, RULES
from isokern.status import InvalidArgument
from isokern.tensors import tensor

FUSED_REST = ("temperature", "top_p", "min_p")
FILE = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"


@pytest.fixture(scope="module")
def model():
    return Model.open(FILE)


def kept(logits, sampling, history=()):
    """Return the tokens that the rules leave, and their shares, in float64."""
    x = logits.astype(np.float64)
    for token in {*list(history)[-HISTORY:]} - {-1}:
        x[token] = x[token] / sampling.penalty if x[token] > 0 else x[token] * sampling.penalty
        x[token] -= sampling.frequency * list(history)[-HISTORY:].count(token) + sampling.presence
    left = np.arange(x.size)
    for rule in sampling.order:
        share = np.exp(x[left] - x[left].max())
        share /= share.sum()
        falling = np.argsort(-x[left], kind="stable")
        if rule == "temperature":
            x = x / sampling.temperature
        elif rule == "top_k" and sampling.top_k:
            left = left[falling[: sampling.top_k]]
        elif rule == "top_p":
            before = np.cumsum(share[falling]) - share[falling]
            left = left[falling[before < sampling.top_p]]
        elif rule == "min_p":
            left = left[share >= sampling.min_p * share.max()]
        elif rule == "typical" and sampling.typical < 1:
            entropy = -(share * np.log(share)).sum()
            near = np.argsort(np.abs(-np.log(share) - entropy), kind="stable")
            before = np.cumsum(share[near]) - share[near]
            left = left[near[before < sampling.typical]]
    share = np.exp(x[left] - x[left].max())
    return dict(zip(left.tolist(), share / share.sum(), strict=True))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(2.0, 12, 0.7, 0.02),
        Sampling(2.0, 12, 0.7, 0.02, order=LLAMA_CPP),
        Sampling(0.5, 0, 0.8, 0.1, order=("min_p", "top_p", "temperature", "top_k")),
        Sampling(1.5, 0, 1.0, 0.0, typical=0.6, order=LLAMA_CPP),
        Sampling(1.0, 20, 0.9, 0.05, 1.3, frequency=0.4, presence=0.7),
        Sampling(0.7, 8, 0.95, typical=0.9, order=("typical", "temperature", "top_k", "top_p", "min_p")),
    ],
)
def test_rules_leave_the_tokens_that_they_should(device, sampling):
    logits = (np.random.default_rng(3).standard_normal(60) * 2).astype(np.float32)
    history = [5, 9, 9, 31, 9]
    allowed = kept(logits, sampling, history)
    drawing = Drawing(sampling, None, 60, device)
    row = tensor(logits[None], "F32", device=device)
    counts = np.zeros(60)
    for position in range(300):
        counts[drawing.draw(row, position, history)] += 1
    assert {int(t) for t in np.nonzero(counts)[0]} <= set(allowed)
    for token, share in allowed.items():  # within 5 standard deviations
        assert abs(counts[token] - 300 * share) <= 5 * math.sqrt(300 * share * (1 - share)) + 1


def test_penalties_count(device):
    logits = np.zeros((1, 8), np.float32)
    logits[0, :3] = 3, 2.9, 2.8
    row = tensor(logits, "F32", device=device)
    for options, history, wanted in [
        ({}, [0, 0], 0),
        ({"presence": 0.15}, [0], 1),
        ({"presence": 0.15}, [0, 1, 1], 0),
        ({"frequency": 0.15}, [0, 1, 1], 0),
        ({"frequency": 0.15}, [0, 0, 1, 1], 2),
        ({"presence": -5.0}, [6], 6),
        ({"penalty": 2.0, "frequency": 0.1}, [0, 1], 2),
    ]:
        assert Drawing(Sampling(**options), None, 8, device).draw(row, 0, history) == wanted


def test_a_program_draws_what_is_drawn_apart(model):
    for sampling in (Sampling(0.8, 40, 0.95, 0.02, 1.1, 7), Sampling(0.0, order=LLAMA_CPP)):
        assert sampling.fused
        texts = [
            list(tokens(Session(model, 64), [5, 6], 20, sampling, frozenset(), Generation(), bias=bias))
            for bias in (None, {9: 0.0})
        ]
        assert texts[0] == texts[1]


def test_engines_draw_as_sessions_do(model):
    sampling = Sampling(0.9, 40, 0.9, 0.02, 1.1, 7, frequency=0.3, typical=0.9, order=LLAMA_CPP)
    alone = list(tokens(Session(model, 64), [5, 6], 30, sampling, frozenset(), Generation()))
    with Engine(model, context=64, batch=4, tokens=16, drafts=2) as engine:
        asked = [engine.submit([5, 6], 30, sampling), engine.submit([5, 6], 30)]
        assert asked[0].result(60) == alone and asked[1].result(60) != alone


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": ("top_k",)}, r"order=.*; allowed: each of temperature, top_k, top_p, min_p once"),
        ({"order": (*LLAMA_CPP, "top_k")}, "order="),
        ({"order": (*LLAMA_CPP, "dry")}, "order="),
        ({"typical": 0.5}, "min_p, typical once"),
        ({"order": None}, "order=None"),
        ({"order": (["a"], *LLAMA_CPP)}, "order="),
    ],
)
def test_orders_that_are_wrong(options, message):
    with pytest.raises(InvalidArgument, match=message):
        Sampling(**options)


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "min_p", "penalty", "seed", "frequency", "presence"])
def test_rules_that_are_no_numbers(name):
    for wrong in ("x", None, [1], True, 1e39, -(10**400), np.nan):
        if wrong == -(10**400) and name in ("top_k", "seed"):
            continue  # which the operator refuses
        with pytest.raises(InvalidArgument, match=f"Sampling: {name}=.*; allowed: a"):
            Sampling(**{name: wrong})


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 1e-31, 1e-29])
def test_the_coldest_temperatures_take_the_largest(model, temperature):
    for options in ({}, {"presence": 0.1}, {"order": LLAMA_CPP}, {"frequency": 0.1, "order": ("top_k", *FUSED_REST)}):
        found = [
            list(tokens(Session(model, 64), [5, 6], 12, Sampling(t, **options), frozenset(), Generation()))
            for t in (0.0, temperature)
        ]
        assert found[0] == found[1]


def test_options_that_are_wrong(model):
    size, device = model.config.vocabulary, model.device
    for options in ({"temperature": -1.0}, {"top_p": 1.5}, {"min_p": -0.1}, {"typical": 2.0}, {"penalty": 0.0}):
        for order in (RULES, LLAMA_CPP):
            with pytest.raises(InvalidArgument):
                Drawing(Sampling(**{"temperature": 1.0, "frequency": 0.1, **options}, order=order), None, size, device)
    with pytest.raises(InvalidArgument, match="alone"):
        Session(model, 32).program(1, sampling=Sampling(0.5, frequency=0.1))
    assert Sampling(0.5).fused


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, seed=3)])
def test_tokens_that_the_file_suppresses_are_never_drawn(tmp_path, device, sampling):
    def write(ids, **options):
        model = Model(made(tmp_path / "m.gguf", **{"tokenizer.ggml.suppress_tokens": np.array(ids, np.int32)}))
        text = list(tokens(Session(model, 64), [1, 2], 24, sampling, frozenset(), Generation(), **options))
        with Engine(model, context=48) as engine:
            assert engine.submit([1, 2], 24, sampling, **options).result() == text
        return text

    free = write([])
    without = write([*free[:3], -1, 97, 1 << 30])
    assert not {*without} & {*free[:3]} and without == write([], bias=dict.fromkeys(free[:3], -np.inf))
    assert not {*write(free[:3], bias={free[0]: 100.0})} & {*free[:3]}
    with pytest.raises(InvalidArgument, match="suppress_tokens is of type tuple; allowed: an array of integers"):
        Model(made(tmp_path / "n.gguf", **{"tokenizer.ggml.suppress_tokens": ("a",)}))


def test_the_command_line_takes_an_order():
    app = typer.Typer()
    app.command()(generate.generate)
    words = [str(FILE), "--prompt", "And", "--temperature", "0.8", "--max-tokens", "12", "--json"]
    found = []
    for more in (
        [],
        ["--order", "llama.cpp"],
        ["--order", "top_p, min_p,top_k,temperature", "--presence-penalty", "1"],
    ):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 0, done.output
        found.append(json.loads(done.stdout)["text"])
    assert len({*found}) > 1
    done = CliRunner().invoke(app, [*words, "--order", "top_p"])
    assert "order=" in str(done.exception)
