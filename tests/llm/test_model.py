"""Test models of the family: logits against float64, prefill in chunks, generation, and invalid files and prompts."""

import dataclasses
import gc
import itertools

import numpy as np
import pytest
from float64 import logits as reference
from small_model import BLOCKS, PROMPT, drop, made, put, replace

from isokern import BadTensorDtype, BadTensorShape, InvalidArgument, NotImplementedOnDevice
from isokern.llm import GGUF, Generation, Model, Sampling, Session, negative_log_likelihood, tokens
from isokern.llm.architecture import Config


def close(got, wanted):
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", ["F32", "BF16", "Q8_0"])
def test_logits_of_every_token_are_those_of_float64(tmp_path, device, architecture, dtype):
    gguf = made(tmp_path / "m.gguf", architecture, dtype, tied=dtype != "BF16")
    session = Session(Model(gguf, device=device), dtype="F32")
    assert close(session.logits(PROMPT, every=True), reference(gguf, PROMPT)) < 1e-5


RNG = np.random.default_rng(11)
BIASES = {
    f"blk.1.{name}.bias": RNG.standard_normal(n).astype(np.float32)
    for name, n in (
        ("attn_q", 128),
        ("attn_v", 64),
        ("attn_output", 64),
        ("ffn_gate", 96),
        ("ffn_up", 96),
        ("ffn_down", 64),
    )
} | {"output.bias": RNG.standard_normal(97).astype(np.float32)}


@pytest.mark.parametrize(("architecture", "tied"), [("llama", True), ("qwen2", False), ("qwen3", True)])
@pytest.mark.parametrize("name", list(BIASES))
def test_biases_wherever_the_file_has_them(tmp_path, device, architecture, tied, name):
    gguf = made(tmp_path / "m.gguf", architecture, tied=tied, change=replace(name, BIASES[name]))
    got = Session(Model(gguf, device=device), dtype="F32").logits(PROMPT, every=True)
    assert close(got, reference(gguf, PROMPT)) < 1e-5
    without = {n: t for n, t in gguf.tensors.items() if n != name}
    assert close(got, reference(Stripped(gguf, without), PROMPT)) > 1e-3


@dataclasses.dataclass
class Stripped:
    """A file with other tensors."""

    gguf: GGUF
    tensors: dict

    @property
    def metadata(self):
        return self.gguf.metadata


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace("blk.0.attn_sinks.weight", np.zeros(4, np.float32)), "1 tensors are not used: 'blk.0.attn_sinks.weig"),
        (replace("blk.2.attn_norm.weight", np.zeros(64, np.float32)), "not used: 'blk.2.attn_norm.weight'"),
        (put("llama.attention.clamp_kqv", 3.0), "keys are not known here: 'llama.attention.clamp_kqv'"),
        (put("llama.logit_scale", 0.5), "not known here: 'llama.logit_scale'"),
        (put("llama.attention.causal", False), "llama.attention.causal is 'False'; allowed: True"),
        (put("llama.attention.sliding_window", -1), "sliding_window is '-1'; allowed: an integer from 0"),
        (put("llama.expert_count", 4), "llama.expert_used_count is missing"),
        (put("llama.vocab_size", 98), "llama.vocab_size is '98'; allowed: 97"),
        (put("llama.rope.scaling.yarn_ext_factor", 0.5), "yarn_ext_factor is '0.5'; allowed: 1"),
        (put("split.count", np.uint16(3)), "split.count is '3'; allowed: 1"),
        (put("general.type", "adapter"), "general.type is 'adapter'; allowed: model"),
        (put("tokenizer.ggml.tokens", ["a", "b"]), "tokenizer.ggml.tokens has 2 tokens; allowed: 97"),
    ],
)
def test_nothing_in_a_file_is_ignored(tmp_path, device, change, message):
    gguf = made(tmp_path / "m.gguf", change=change)
    with pytest.raises(InvalidArgument, match=message):
        Model(gguf, device=device)


def test_what_says_nothing_of_the_computation_may_be_there(tmp_path, device):
    facts = {
        "llama.vocab_size": 97,
        "llama.attention.causal": True,
        "llama.attention.sliding_window": 48,
        "llama.rope.scaling.finetuned": True,
        "llama.tensor_data_layout": "Meta AI original pth",
        "llama.expert_count": 0,
        "general.type": "model",
    }
    gguf = made(tmp_path / "m.gguf", **facts)
    got = Session(Model(gguf, device=device), dtype="F32").logits(PROMPT, every=True)
    assert close(got, reference(gguf, PROMPT)) < 1e-5


def test_scaling_of_rope_by_its_old_keys_and_factors(tmp_path):
    scale = "llama.rope.scaling."
    linear = Config.of(made(tmp_path / "a.gguf", **{f"{scale}type": "linear", f"{scale}factor": 4.0}))
    for facts in ({f"{scale}factor": 4.0}, {"llama.rope.scale_linear": 4.0}):
        found = Config.of(made(tmp_path / "b.gguf", **facts))
        np.testing.assert_array_equal(found.frequencies, linear.frequencies)
    none = Config.of(made(tmp_path / "c.gguf", **{f"{scale}type": "none", f"{scale}factor": 4.0}))
    np.testing.assert_array_equal(none.frequencies, 4 * linear.frequencies)
    yarn = {f"{scale}type": "yarn", f"{scale}factor": 4.0, f"{scale}original_context_length": 12}
    magnitude = Config.of(made(tmp_path / "d.gguf", **yarn)).magnitude
    assert magnitude == 1 + 0.1 * np.log(4)
    more = Config.of(made(tmp_path / "e.gguf", **yarn, **{f"{scale}attn_factor": 0.5}))
    assert more.magnitude == magnitude / 2
    wide = Config.of(made(tmp_path / "f.gguf", **yarn, **{f"{scale}yarn_beta_slow": 0.125}))
    assert (wide.frequencies != more.frequencies).any()
    with pytest.raises(InvalidArgument, match="theta above 1"):
        Config.of(made(tmp_path / "g.gguf", **yarn, **{"llama.rope.freq_base": 1.0}))


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
        (5, 1, "it is int"),
        (None, 1, "it is NoneType"),
        ("abc", 1, "it is str"),
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


def test_a_step_that_is_refused_counts_nothing(tmp_path, device):
    session = Session(Model(made(tmp_path / "m.gguf"), device=device), 16)
    wanted = session.logits([3, 4])
    session.clear()
    session.logits([3])
    for sampling in (None, Sampling()):
        for wrong in (["x"], [10**30], [97], [-1], [1.5]):
            with pytest.raises(InvalidArgument, match="prompt: token"):
                session.program(1, sampling=sampling).run(wrong)
            assert session.position == 1
    assert np.array_equal(session.logits([4]), wanted) or device.name != "cpu:0"
    with pytest.raises(InvalidArgument, match=r"sampling=\{\}"):
        session.program(1, sampling={})


def test_options_of_a_text_that_are_wrong(tmp_path, device):
    session, report = Session(Model(made(tmp_path / "m.gguf"), device=device), 16), Generation()
    for name, wrong in [
        ("sampling", "x"), ("ends", 5), ("ends", ["a"]), ("report", None), ("bias", [(1, 2)]), ("bias", 5),
        ("constraint", "abc"), ("report", Generation(tokens=[1])),
    ]:  # fmt: skip
        options = {"sampling": Sampling(), "ends": (), "report": report, name: wrong}
        with pytest.raises(InvalidArgument, match=f"generate: {name}="):
            tokens(session, [1], 3, **options)
    assert len([*tokens(session, [1], 3, None, (n for n in [500]), report)]) == 3


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
        (put("general.architecture", "bert"), InvalidArgument, r"'bert'.*llama, qwen2, qwen3"),
        (drop("general.architecture"), InvalidArgument, "general.architecture is missing"),
        (drop("llama.block_count"), InvalidArgument, "llama.block_count is missing"),
        (put("llama.block_count", "two"), InvalidArgument, "llama.block_count"),
        (put("llama.block_count", 1 << 23), InvalidArgument, "blk.2.attn_norm.weight is missing"),
        (put("llama.attention.head_count_kv", 3), InvalidArgument, "a divisor of 4"),
        (put("llama.rope.dimension_count", 34), InvalidArgument, "rope.dimension_count is 34"),
        (put("llama.rope.scaling.type", "longrope"), InvalidArgument, "long and short rope factors are missing"),
        (put("llama.rope.scaling.type", "ntk"), InvalidArgument, "'ntk'; allowed: none, linear, yarn and longrope"),
        (put("llama.expert_used_count", 8), InvalidArgument, "expert_used_count"),
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
