"""Test models of the family: logits against float64, prefill in chunks, generation, and invalid files and prompts."""

import gc
import itertools

import numpy as np
import pytest
from float64 import logits as reference
from small_model import BLOCKS, PROMPT, RNG, drop, made, put, replace

from isokern import BadTensorDtype, BadTensorShape, InvalidArgument, NotImplementedOnDevice
from isokern.llm import Generation, Model, Sampling, Session, negative_log_likelihood, tokens


def close(got, wanted):
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", ["F32", "BF16", "Q8_0"])
def test_logits_of_every_token_are_those_of_float64(tmp_path, device, architecture, dtype):
    gguf = made(tmp_path / "m.gguf", architecture, dtype, tied=dtype != "BF16")
    session = Session(Model(gguf, device=device), dtype="F32")
    assert close(session.logits(PROMPT, every=True), reference(gguf, PROMPT)) < 1e-5


@pytest.mark.parametrize("dtype", list(BLOCKS))
@pytest.mark.parametrize("activation", ["float", "q8_0"])
def test_quantised_weights_with_either_activation(tmp_path, device, dtype, activation):
    gguf = made(tmp_path / "m.gguf", dtype=dtype)
    session = Session(Model(gguf, device=device, activations=activation), dtype="F32")
    wanted = reference(gguf, PROMPT, activation)
    assert close(session.logits(PROMPT, every=True), wanted) < 2e-3
    if activation == "q8_0":
        assert close(wanted, reference(gguf, PROMPT)) > 1e-3, "the reference quantises activations"


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama.rope.freq_base": 500000.0},
        {"llama.rope.dimension_count": 16},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        {
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 12,
        },
    ],
)
def test_rope_as_the_file_says(tmp_path, device, metadata):
    gguf = made(tmp_path / "m.gguf", **metadata)
    got = Session(Model(gguf, device=device), dtype="F32").logits(PROMPT, every=True)
    assert close(got, reference(gguf, PROMPT)) < 1e-5
    plain = made(tmp_path / "plain.gguf")
    assert close(got, reference(plain, PROMPT)) > 1e-3


def test_a_prompt_in_chunks_and_token_by_token_is_the_same(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf"), device=device)
    whole = Session(model, dtype="F32")
    long = [int(t) for t in RNG.integers(0, 97, 40)]
    once = whole.logits(long, every=True)
    parts = Session(model, dtype="F32")
    rows = [parts.logits(long[a:b], every=True) for a, b in itertools.pairwise((0, 1, 5, 6, 30, 40))]
    np.testing.assert_allclose(np.concatenate(rows), once, atol=2e-5)
    assert parts.position == whole.position == 40
    whole.clear()
    np.testing.assert_array_equal(whole.logits(long, every=True), once)


def test_generation_is_what_the_logits_say(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf", dtype="Q8_0"), device=device)
    report = Generation()
    greedy = list(tokens(Session(model), PROMPT, 20, Sampling(), frozenset(), report))
    checked = Session(model)
    row = checked.logits(PROMPT)[-1]
    for token in greedy:
        assert token == int(np.argmax(row))
        row = checked.logits([token])[-1]
    assert report.tokens == greedy and report.prompt_tokens == len(PROMPT)
    drawn = Sampling(temperature=1.5, top_k=30, top_p=0.9, penalty=1.2, seed=4)
    twice = [list(tokens(Session(model), PROMPT, 20, drawn, frozenset(), Generation())) for _ in range(2)]
    assert twice[0] == twice[1] != greedy
    ended = Generation()
    assert (
        list(tokens(Session(model), PROMPT, 20, Sampling(), frozenset({greedy[3]}), ended))
        == greedy[: greedy.index(greedy[3])]
    )
    assert ended.ended


def test_a_step_allocates_nothing(tmp_path, device):
    session = Session(Model(made(tmp_path / "m.gguf"), device=device))
    step = session.program(1, sampling=Sampling())
    step.run([5])
    gc.collect()
    device.synchronize()  # deferred releases happen when the device is idle
    before = device.memory.allocations
    for _ in range(10):
        step.run()
    device.synchronize()
    assert device.memory.allocations == before


def test_prompts_that_cannot_be_read(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf"), device=device)
    session = Session(model, 16)
    for prompt, most, message in [
        ([], 1, "no tokens"),
        ([1, 97], 1, "token 97"),
        ([-1], 1, "token -1"),
        ([1.5], 1, "token 1.5"),
        ([1, float("nan")], 1, "token nan"),
        ([True], 1, "token True"),
        ([1], float("nan"), "max_tokens=nan"),
        ([1] * 17, 1, "17 tokens"),
        ([1] * 10, 8, "10 tokens and 7 more"),
        ([1], 0, "max_tokens=0"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            list(tokens(session, prompt, most, Sampling(), frozenset(), Generation()))
        assert session.position == 0


def test_sizes_that_are_no_integers(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf"), device=device)
    session = Session(model, 16)
    for wrong in (float("nan"), 2.0, "2", True, 0):
        for call in (
            lambda n: Session(model, n),
            lambda n: session.program(n),
            lambda n: negative_log_likelihood(session, [1, 2, 3], n, None),
        ):
            with pytest.raises(InvalidArgument, match=r"allowed: an integer from [12]"):
                call(wrong)
    with pytest.raises(InvalidArgument, match="to 16"):
        session.program(17)


def test_nan_among_the_logits_is_told(tmp_path, device):
    def spoil(facts, held):
        held["output_norm.weight"][0] = np.nan

    model = Model(made(tmp_path / "m.gguf", change=spoil), device=device)
    with pytest.raises(InvalidArgument, match="NaN"):
        list(tokens(Session(model), PROMPT, 3, Sampling(), frozenset(), Generation()))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (put("general.architecture", "mamba"), InvalidArgument, r"'mamba'.*llama, qwen2, qwen3"),
        (drop("general.architecture"), InvalidArgument, "general.architecture is missing"),
        (drop("llama.block_count"), InvalidArgument, "llama.block_count is missing"),
        (put("llama.block_count", "two"), InvalidArgument, "llama.block_count"),
        (put("llama.block_count", 1 << 23), InvalidArgument, "blk.2.attn_norm.weight is missing"),
        (put("llama.attention.head_count_kv", 3), InvalidArgument, "a divisor of 4"),
        (put("llama.rope.dimension_count", 34), InvalidArgument, "rope.dimension_count is 34"),
        (put("llama.rope.scaling.type", "longrope"), InvalidArgument, "longrope"),
        (put("llama.expert_count", 8), InvalidArgument, "expert_count"),
        (put("llama.embedding_length", 96), BadTensorShape, "token_embd.weight"),
        (drop("blk.1.ffn_up.weight"), InvalidArgument, "blk.1.ffn_up.weight is missing"),
        (replace("blk.0.attn_q.weight", np.zeros((64, 64), np.float32)), BadTensorShape, "blk.0.attn_q.weight"),
        (replace("blk.0.attn_q.weight", np.zeros((128, 64), np.int8)), BadTensorDtype, "blk.0.attn_q.weight"),
        (replace("rope_freqs.weight", np.ones(3, np.float32)), BadTensorShape, "rope_freqs.weight"),
        (drop("token_embd.weight"), InvalidArgument, "token_embd.weight"),
    ],
)
def test_files_that_are_no_such_model(tmp_path, device, change, error, message):
    gguf = made(tmp_path / "m.gguf", change=change)
    with pytest.raises(error, match=message):
        Model(gguf, device=device)


def test_settings_that_do_not_exist(tmp_path, device):
    gguf = made(tmp_path / "m.gguf")
    with pytest.raises(InvalidArgument, match="activations='int4'"):
        Model(gguf, device=device, activations="int4")
    with pytest.raises((BadTensorDtype, NotImplementedOnDevice), match="I8"):
        Session(Model(gguf, device=device), dtype="I8")
