"""Test the model as a graph: a step runs that graph, each operator is right, and missing tensors are named by layer."""

import gc
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from small_model import PROMPT, drop, made, replace
from typer.testing import CliRunner

from isokern import BadTensorDtype, BadTensorShape, InvalidArgument
from isokern.cli import main
from isokern.graph import parse, verify
from isokern.llm import GGUF, Model, Sampling, Session
from isokern.llm.architecture import Config
from isokern.llm.decoder import decoder, updated_inputs
from isokern.llm.steps import TokenStep
from isokern.runtime import cache

FILE = Path(__file__).parents[2] / "examples" / "models" / "kjv-2.7m-q4_0.gguf"
DRAWN = Sampling(0.7, 40, 0.95, 0.02, 1.1, 3)
MOVED = {"expand_shape": 8, "rope": 4, "cache_update": 4, "collapse_shape": 2, "attention": 2}


@pytest.mark.parametrize("sampling", [Sampling(), DRAWN])
def test_a_step_is_a_replay_of_the_graph_s_operators(tmp_path, device, sampling):
    session = Session(Model(made(tmp_path / "m.gguf", dtype="Q8_0"), device=device))
    step = session.program(1, sampling=sampling)
    program, graph = step.compiled, step.compiled.graph
    kinds = Counter(op.kind for op in graph.ops)
    products = {"matmul_transposed": 2 * 5 + 1, "linear_mixed": 2 * 2}  # each is fused with the sum that follows it
    wanted = {**products, "rms_norm": 2 * 2 + 1, "embedding": 1}
    moved = {**MOVED, "expand_shape": 6, "silu_mul": 2, "add": 1}
    assert {k: n for k, n in kinds.items() if k != "fill"} == {**wanted, **moved}
    text = graph.dump()
    assert all(op.name and f'"{op.name}"' in text and f" = {op.kind}(" in text for op in graph.ops)
    assert len(text.splitlines()) == len(graph.ops) + len(graph.inputs) + len(graph.parameters) + 3
    assert set(program.calls()) == set(program.memory_plan.calls) == set(program.descriptors)
    assert session.program(1).recording is program.capture() and not program.memory_plan.copies
    assert len(step.recording) == len(program.capture()) + 3  # the token, its position, the number that draws it
    assert {n: t.span for n, t in session.state.items()} == {
        v.name: t.span for v, t in zip(graph.inputs, program.inputs, strict=True) if v.name in session.state
    }
    others = []
    program.feed = program.step = program.run = lambda *_: others.append(1)
    replay, replays = step.recording.replay, []
    step.recording.replay = lambda: replays.append(replay())
    step.run([5])
    for _ in range(3):
        step.run()
    device.synchronize()
    assert len(replays) == 4 and not others
    assert int(program.inputs[1].numpy()[0]) == session.position == 4


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("step", [TokenStep(48), TokenStep(48, 5, "Q8_0", "q8_0", True), TokenStep(9, 3, "F32")])
def test_the_graph_prints_parses_and_prints(tmp_path, architecture, step):
    gguf = made(tmp_path / "m.gguf", architecture, "Q4_1", tied=architecture == "llama")
    graph = verify(decoder(gguf, Config.of(gguf), step).graph)
    text = graph.dump()
    assert parse(text).dump() == text
    assert {v.name for v in graph.parameters} == set(gguf.tensors) | {"rope_freqs"}
    state = [f"blk.{n}.{k}" for n in range(2) for k in ("keys", "values")]
    assert updated_inputs(graph) == state


@pytest.mark.parametrize(
    ("architecture", "dtype", "activation", "kept"),
    [("llama", "F32", "float", "F32"), ("qwen2", "Q4_0", "q8_0", "Q8_0"), ("qwen3", "BF16", "float", "F16")],
)
def test_each_operator_is_right_and_all_of_them_are_the_replay(tmp_path, device, architecture, dtype, activation, kept):
    gguf = made(tmp_path / "m.gguf", architecture, dtype)
    for prepack, sampling in itertools.product((False, True), (None, DRAWN)):
        model = Model(gguf, device=device, activations=activation, prepack=prepack)
        one, other = Session(model, dtype=kept), Session(model, dtype=kept)
        wanted = one.logits(PROMPT)
        other.logits(PROMPT[:-1])
        step = other.program(1, sampling=sampling)
        feeds = {"tokens": PROMPT[-1:], "start": [len(PROMPT) - 1]}
        if sampling is not None:
            step.remember([])
        given = {name: np.array(values) for name, values in feeds.items()}
        checked = step.compiled.check(given)
        assert checked.first is None, str(checked.first)
        assert len(checked.operators) == len(step.compiled.graph.ops)
        found = checked.values[step.compiled.graph.outputs[0].vid]
        step.compiled.feed(given)
        step.recording.replay()
        device.synchronize()
        np.testing.assert_array_equal(np.array(step.logits.numpy()), found)
        np.testing.assert_allclose(found, wanted, atol=2e-3 * abs(wanted).max())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            drop("blk.1.ffn_up.weight"),
            InvalidArgument,
            r"GGUF, layer blk.1.ffn_up: tensor blk.1.ffn_up.weight is missing",
        ),
        (
            drop("blk.0.attn_k.bias"),
            InvalidArgument,
            r"layer blk.0.attn_k: tensor blk.0.attn_k.bias is missing.*\[64\]",
        ),
        (drop("output_norm.weight"), InvalidArgument, r"layer output_norm: tensor output_norm.weight is missing"),
        (
            replace("blk.1.attn_output.weight", np.zeros((64, 64), np.float32)),
            BadTensorShape,
            r"layer blk.1.attn_output: tensor blk.1.attn_output.weight is \[64, 64\]; allowed: \[64, 128\]",
        ),
        (
            replace("blk.0.ffn_norm.weight", np.zeros(64, np.int8)),
            BadTensorDtype,
            "layer blk.0.ffn_norm: tensor blk.0.ffn_norm.weight is I8; allowed: F",
        ),
    ],
)
def test_what_a_file_lacks_is_told_by_layer_and_tensor(tmp_path, device, change, error, message):
    gguf = made(tmp_path / "m.gguf", "qwen2", change=change)
    with pytest.raises(error, match=message):
        decoder(gguf, Config.of(gguf), TokenStep(48))
    with pytest.raises(error, match=message):
        Model(gguf, device=device)


def test_weights_are_on_the_device_once_and_steps_are_found_again(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf", dtype="Q4_0"), device=device)
    gc.collect()
    before, live = cache.info(), device.memory.live
    sessions = [Session(model, 32) for _ in range(2)]
    programs = [s.program(n, sampling=Sampling()) for s in sessions for n in (1, 3)]
    after = cache.info()
    assert (after.misses - before.misses, after.shared - before.shared) == (2, 2)
    assert all(p.compiled.parameters[n] is t for p in programs for n, t in model.parameters.items())
    taken = sum(s.cache_bytes + s.scratch_bytes for s in sessions) + model.prepacked_bytes
    assert taken <= device.memory.live - live <= taken + 4096  # programs have constants that passes made
    assert after.nbytes - before.nbytes <= 4096


def test_the_command_line_takes_a_file(device):
    from isokern.cli.graph import graph

    def run(*words):
        found = CliRunner().invoke(graph, [str(w) for w in words])
        assert found.exit_code == 0, found.output
        return found.output

    file = GGUF.open(FILE)
    text = decoder(file, Config.of(file), TokenStep(Config.of(file).context)).graph.dump()
    assert run("dump", FILE) == text and "blk.3.ffn_down.weight" in run("summary", FILE).replace("\n", "") + text
    assert run("lower", FILE).count("linear_mixed(") == 8
    shown = run("explain", FILE, "--device", device.name, "--check", "--json")
    assert '"first_wrong": null' in shown and "in place of" in shown and "after a copy" not in shown
    with pytest.raises(SystemExit):
        main(["graph", "dump", str(FILE) + ".none.gguf"])
