"""Test the model in examples/models on every available device, and the command line.

All devices give the same text and the same logits.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from float64 import logits as reference
from primitives_device import primitives_device
from typer.testing import CliRunner

import isokern
from isokern.cli import main
from isokern.llm import GGUF, Generation, Model, Sampling, Session, statistics, text, tokens
from isokern.rewriting.target import EXCEPTIONS, primitives

pytest.importorskip("tokenizers")
FOLDER = Path(__file__).parents[2] / "examples" / "models"
FILES = sorted(path.name for path in FOLDER.glob("*.gguf"))
PROMPT = "And David said unto the people,"


@pytest.fixture(scope="module", params=FILES)
def gguf(request):
    return GGUF.open(FOLDER / request.param)


WAYS = {"float": ("float", False), "q8_0": ("q8_0", False), "prepacked": ("q8_0", True)}  # activation, prepack


def activations(gguf):
    """Return the pairs (activation, prepack) that differ for this file."""
    blocks = "Q4_0" in {t.type for t in gguf.tensors.values()}
    return [*WAYS.values()] if blocks else [WAYS["float"]]


@pytest.mark.quick("kjv-2.7m-q4_0.gguf-float")
@pytest.mark.parametrize("way", WAYS)
def test_logits_are_float64_s_on_every_device(gguf, devices, way):
    activation, prepack = WAYS[way]
    if WAYS[way] not in activations(gguf):
        pytest.skip("the file has no blocks")
    ids = Model(gguf, device=devices[0]).tokenizer().encode(PROMPT)
    wanted = reference(gguf, ids, activation)
    for device in devices:
        model = Model(gguf, device=device, activations=activation, prepack=prepack)
        got = Session(model, 64, "F32").logits(ids, every=True)
        error = np.max(np.abs(got - wanted)) / np.max(np.abs(wanted))
        assert error < 2e-3, f"{device.name}, {model.prepacked_bytes} bytes prepacked: {error:.2g}"


@pytest.mark.quick("kjv-2.7m-q4_0.gguf-built")
def test_every_device_writes_the_same_text(gguf, devices, device_group):
    """Texts that are drawn with activations of 8 bits may part, since rounding turns codes and so a draw."""
    for activation in ("float", "q8_0"):
        prepacks = [p for a, p in activations(gguf) if a == activation]
        for sampling in (Sampling(), Sampling(0.7, 40, 0.95, 0.02, 1.1, 1611)):
            places = dict.fromkeys((devices[0], *device_group))
            models = [
                Model(gguf, device=device, activations=activation, prepack=prepack)
                for device, prepack in itertools.product(places, prepacks)
            ]
            ids = models[0].tokenizer().encode(PROMPT) if models else []
            written = [[*tokens(Session(m, 64), ids, 24, sampling, frozenset(), Generation())] for m in models]
            assert all(len(found) == 24 for found in written)
            for model, found in zip(models[1:], written[1:], strict=True):
                if found == written[0]:
                    continue
                assert activation == "q8_0" and sampling.temperature, (model.device.name, found, written[0])
                same = next(i for i, (a, b) in enumerate(zip(found, written[0], strict=True)) if a != b)
                got, wanted = (Session(m, 64).logits([*ids, *found[:same]]) for m in (model, models[0]))
                assert 0 < np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)) < 1e-2, model.device.name


def test_a_device_of_primitives_writes_the_same_text():
    """Whoever writes a backend's primitives has a cache and language models with them."""
    device = primitives_device()
    if device is None:
        pytest.skip("the CPU backend is not installed")
    gguf = GGUF.open(FOLDER / "kjv-2.7m-f16.gguf")
    sessions = [Session(Model(gguf, device=where), 48, "F16") for where in (device, isokern.device("cpu:0"))]
    written = ["".join(text(s, s.model.tokenizer(), PROMPT, 12, Sampling())) for s in sessions]
    assert written[0] == written[1] and len(written[0]) > 20
    kinds = {op.kind for op in sessions[0].program(1, sampling=Sampling()).compiled.graph.ops}
    assert "cache_update" in kinds and kinds <= {*primitives(), *EXCEPTIONS}


def test_weights_are_prepacked_once_and_not_when_told(devices):
    model = Model.open(FOLDER / FILES[-1], device=devices[0], activations="q8_0")
    counts = devices[0].prepack_cache
    packed = counts.packed
    session = Session(model, 64)
    session.logits([1, 2, 3])
    assert counts.packed - packed == len(model.prepacked)
    session.logits([4])  # another program with the same weights
    Session(model, 64).logits([1])
    assert counts.packed - packed == len(model.prepacked)
    assert model.prepacked_bytes == sum(t.desc.nbytes for t in model.prepacked)
    plain = Model(model.gguf, device=devices[0], activations="q8_0", prepack=False)
    Session(plain, 64).logits([1, 2, 3])
    assert not plain.prepacked and counts.packed - packed == len(model.prepacked)
    w = model.weights["blk.0.ffn_up.weight"]
    x = isokern.TensorDesc("F32", (1, w.shape[1]))
    made = isokern.create("matmul_transposed", [x, w.desc], device=devices[0], prepacked=["w"], lhs_quantization="q8_0")
    assert bool(made.packed_layouts) == bool(model.prepacked)


@pytest.mark.full  # the build of README's command has few levels
@pytest.mark.parametrize("name", FILES)
def test_levels_of_one_processor_agree(name):
    """Greedy text is the same with each instruction-set level of this machine, each in a process of its own."""
    device = next((d for d in isokern.devices() if d.name == "cpu:0"), None)
    if device is None:
        pytest.skip("no CPU backend")
    levels = device.properties["levels"]
    if len(levels) < 2:
        pytest.skip(f"{device.name} has the level {levels[0]} alone: others are built with ISOKERN_CPU_LEVELS=all")
    words = ["generate", FOLDER / name, "--prompt", PROMPT, "--max-tokens", 24, "--temperature", 0, "--device", "cpu:0"]
    command = [sys.executable, "-m", "isokern", *map(str, words), "--json"]
    written = {}
    for level in levels:
        environment = {**os.environ, "ISOKERN_CPU_LEVEL": level}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        written[level] = json.loads(done.stdout)["text"]
    assert written and len(set(written.values())) == 1, written


def test_a_step_is_spent_in_kernels(gguf):
    """At least 70 % of the time of a decode step is spent inside the one call that runs the recording."""
    device = next((d for d in isokern.devices() if d.name == "cpu:0"), None)
    if device is None:
        pytest.skip("no CPU backend")
    model = Model(gguf, device=device)
    session, inside = Session(model, 128), 0.0
    step = session.program(1, sampling=Sampling())
    replay = step.recording.replay

    def timed():
        nonlocal inside
        begin = time.perf_counter()
        replay()
        inside += time.perf_counter() - begin

    step.recording.replay = timed
    shares = []
    for _ in range(3):
        session.clear()
        inside, report = 0.0, Generation()
        list(tokens(session, [1, 2, 3], 100, Sampling(), frozenset(), report))
        shares.append(inside / report.decode_seconds)
    assert max(shares) > 0.7, shares


def run(*words):
    return CliRunner().invoke(main_app(), [str(w) for w in words])


def main_app():
    import typer

    from isokern.cli import generate, perplexity

    app = typer.Typer()
    app.command("generate")(generate.generate)
    app.command("perplexity")(perplexity.perplexity)
    return app


def test_the_command_line_writes_and_tells_what_it_took(devices):
    model = FOLDER / FILES[-1]
    words = ["generate", model, "--prompt", PROMPT, "--max-tokens", 8, "--temperature", 0]
    found = json.loads(run(*words, "--json").stdout)
    assert found["tokens"] == 8 and found["prompt_tokens"] > 4 and found["text"]
    assert found["activations"] == "float" and found["cache"] == "F16"
    assert found["weights_bytes"] > 1_500_000 and found["decode_tokens_per_s"] > 0
    shown = run(*words)
    assert shown.stdout.strip() == PROMPT + found["text"].rstrip()
    assert "tokens/s; weights" in shown.stderr
    again = json.loads(run(*words, "--json", "--cache", "Q8_0", "--activations", "q8_0", "--context", 64).stdout)
    assert (again["cache"], again["activations"]) == ("Q8_0", "q8_0") and again["cache_bytes"] < found["cache_bytes"]


def test_the_memory_bandwidth_is_measured_where_it_is_asked_for(devices, monkeypatch):
    words = ["generate", FOLDER / FILES[-1], "--prompt", PROMPT, "--max-tokens", 3]
    measured = []
    monkeypatch.setattr(statistics, "bandwidth", lambda device: measured.append(device.name) or 1e9)
    assert json.loads(run(*words, "--json").stdout)["bandwidth_share"] is None and not measured
    assert json.loads(run(*words, "--json", "--bandwidth").stdout)["bandwidth_share"] > 0
    assert re.search(r"tokens/s, \d+% of the memory bandwidth;", run(*words, "--bandwidth").stderr)
    assert len(measured) == 2


def test_readme_s_text_is_what_it_writes(devices):
    """README's `console` block shows a command line and all of its output."""
    readme = (FOLDER.parents[1] / "README.md").read_text()
    command, written = re.search(r"^```console\n\$ isokern ([^\n]*)\n(.*?)^```$", readme, re.S | re.M).groups()
    words = shlex.split(command)
    words[1] = str(FOLDER.parents[1] / words[1])
    assert run(*words).stdout == written


def test_the_command_line_says_what_is_wrong(tmp_path, devices, capsys):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes((FOLDER / FILES[-1]).read_bytes()[:5000])
    for words, message in [
        (["generate", tmp_path / "none.gguf", "--prompt", "x"], "does not exist"),
        (["generate", broken, "--prompt", "x"], "GGUF"),
        (["generate", FOLDER / FILES[-1], "--prompt", "x " * 600], "tokens"),
        (["generate", FOLDER / FILES[-1], "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["generate", FOLDER / FILES[-1], "--prompt", "x", "--activations", "int8"], "activation"),
        (["perplexity", FOLDER / FILES[-1], tmp_path / "none.txt"], "none.txt"),
        (["perplexity", FOLDER / FILES[-1], FOLDER / "heldout.txt", "--window", "1"], "window"),
    ]:
        with pytest.raises(SystemExit) as end:
            main([str(w) for w in words])
        assert end.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.quick("kjv-2.7m-q4_0.gguf")
@pytest.mark.parametrize("name", FILES)
def test_perplexity_is_what_the_model_s_page_says(devices, name):
    if devices[0].name != "cpu:0":
        pytest.skip("minutes on an emulated device")
    readme = (FOLDER / "README.md").read_text()
    found = json.loads(run("perplexity", FOLDER / name, FOLDER / "heldout.txt", "--cache", "F32", "--json").stdout)
    (line,) = [x for x in readme.splitlines() if x.startswith(f"| `{name}`")]
    assert found["perplexity"] == pytest.approx(float(line.split("|")[3]), rel=1e-3)


def test_a_first_token_waits_for_no_step_of_one(gguf, devices):
    session = Session(Model(gguf, device=devices[0]), 64)
    each = tokens(session, [1, 2, 3], 3, Sampling(0), frozenset(), Generation())
    first = next(each)
    assert [count for count, _ in session._programs] == [4]
    found = [first, *each]
    assert [count for count, _ in session._programs] == [4, 1]
    wanted = Session(session.model, 64)
    ids = [1, 2, 3]
    for token in found:
        assert token == wanted.logits(ids)[-1].argmax()
        ids = [token]


def test_another_way_to_draw_compiles_no_program(gguf, device):
    model = Model(gguf, device=device)
    tokenizer, session = model.tokenizer(), Session(model, 64)
    ways = [Sampling(0.8, 40, 0.95, seed=seed) for seed in range(12)] + [Sampling(0.9, 40, 0.95, 0.02, 1.1, 3)]
    written, programs = [], []
    for sampling in ways:
        session.clear()
        written.append("".join(text(session, tokenizer, PROMPT, 12, sampling)))
        programs.append(dict(session._programs))
        assert len(session._drawing) <= 8
    assert all(found == programs[0] for found in programs) and len(programs[0]) == 2 and len({*written}) > 10
    for sampling, found in zip(ways, written, strict=True):
        assert "".join(text(Session(model, 64), tokenizer, PROMPT, 12, sampling)) == found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="where memory is told by page")
def test_prepacked_weights_are_not_there_twice(tmp_path):
    path = shutil.copy(FOLDER / "kjv-2.7m-q4_0.gguf", tmp_path / "own.gguf")  # which nothing else has mapped

    def resident():
        maps = Path("/proc/self/smaps").read_text().split(f"{path}\n")[1:]
        return sum(int(re.search(r"^Rss: +(\d+) kB", m, re.M)[1]) << 10 for m in maps)

    model = Model.open(path, device="cpu:0", activations="q8_0")
    whole = {name: t.data.tobytes() for name, t in model.gguf.tensors.items()}
    assert resident() > 0.9 * sum(map(len, whole.values()))
    Session(model, 64).logits([1, 2, 3])
    table = len(whole["token_embd.weight"])
    packed = sum(t.desc.nbytes for t in model.prepacked)
    assert not packed or resident() < sum(map(len, whole.values())) - 0.8 * (packed - table)
    assert all(t.data.tobytes() == whole[name] for name, t in model.gguf.tensors.items())
    model.gguf.tensors["output_norm.weight"].drop_pages()  # less than a page: nothing
    GGUF(path.read_bytes()).tensors["token_embd.weight"].drop_pages()  # of no file
