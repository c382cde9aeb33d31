"""Test programs on every available device.

Results are right, plans are tight, reuse of memory changes no bit, and errors say what is wrong.
"""

import gc
import itertools
import json
import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest
from graph_models import MODELS, command, feeds_of, text
from graph_oracles import scratched, spans

import isokern
from isokern import BadTensorShape, InvalidArgument, NotImplementedOnDevice
from isokern.backend import BASE_ALIGNMENT
from isokern.demo.digits import load_digits, reference_logits, split
from isokern.demo.zoo import MODELS as MODELS_BY_NAME, digits, mlp, resnet18
from isokern.graph import Builder, Constraint, Model, parse, verify
from isokern.graph.layers import Conv2d, Layer, Linear, MaxPool2d, Residual
from isokern.graph.reference import case_of
from isokern.layout import TensorDesc
from isokern.oracle.expected import reference as declared
from isokern.runtime import cache, compile, plan_memory


def reference(graph, feeds, parameters):
    """Return the results by the declarations' float64 references, without rounding values between them."""
    values = {v: np.asarray(feeds[v.name]) for v in graph.inputs} | {v: parameters[v.name] for v in graph.parameters}
    values = {v: a.astype(np.float64) if v.spec.dtype.kind == "f" else a for v, a in values.items()}
    for op in graph.ops:
        case = case_of(op)
        arrays = [None if v is None else values[v] for v in op.inputs]
        arrays += [None] * (len(op.operator.signature.inputs) - len(arrays))
        values.update(zip(op.outputs, declared(case, arrays, [v.spec for v in op.outputs], []), strict=True))
    return [values[v] for v in graph.outputs]


@pytest.mark.quick("mlp", "digits")
@pytest.mark.parametrize("make", MODELS, ids=["mlp", "digits", "text", "pooled", "resnet18 of 32 x 32"])
def test_results_on_every_device(make, devices):
    model = make()
    model.initialise(7)
    feeds = feeds_of(model.graph)
    wanted = reference(model.graph, feeds, model.parameters)
    for device in devices:
        found = compile(model, device).run(feeds)
        apart = compile(model, device, reuse=False).run(feeds)
        for a, b, w in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, apart)), wanted, strict=True):
            np.testing.assert_array_equal(a, b)
            bound = 4e-3 if a.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(a, w, rtol=bound, atol=bound * np.abs(w).max(), err_msg=device.name)


def test_digits_are_read_as_well_as_by_hand(devices):
    images, labels = load_digits()
    held = split()[1]
    logits = compile(digits(len(held)), devices[0]).run(images[held])
    assert (logits.argmax(1) == labels[held]).sum() == 448
    np.testing.assert_allclose(logits, reference_logits(images[held]), atol=1e-3)


def test_resnet18_fits_in_a_third():
    """Compare the planned peak of activations with the sum of their sizes."""
    made = plan_memory(verify(resnet18().graph))
    assert made.arena <= 0.35 * made.naive, made.arena / made.naive
    assert len(made.in_place) >= 17 + 20  # each relu and each batch_norm
    (flat,) = made.views
    assert flat.kind == "flatten"


@pytest.mark.parametrize("name", MODELS_BY_NAME)
def test_workspaces_lie_among_activations(name, device_group):
    """They take no more memory than a separate workspace would, and overlap no value that is still needed."""
    model = MODELS_BY_NAME[name]() if name != "resnet18" else resnet18(1, 32, 8, 10)
    for device in device_group:
        program = compile(model, device)
        needs = {op: d.workspace_size for op, d in program.descriptors.items() if d.workspace_size}
        workspace = -(-max(needs.values(), default=0) // BASE_ALIGNMENT) * BASE_ALIGNMENT
        assert program.arena_bytes <= plan_memory(program.graph).arena + workspace, device
        assert program.workspace_bytes == 0 and dict(program.memory_plan.spaces) == needs
        assert scratched(program, program.graph, spans(program, program.graph)) == []
        assert [line.workspace for line in program.explain()] == [needs.get(op, 0) for op in program.graph.ops]


def test_a_workspace_needs_no_buffer_of_its_own_but_bytes(devices):
    """A part of a larger buffer will do as long as no operand overlaps it."""
    device = devices[0]
    made = isokern.create(
        "conv2d", [d := TensorDesc("F32", (1, 8, 9, 9)), TensorDesc("F32", (8, 8, 3, 3))], device=device
    )
    need = made.workspace_size
    if not need:
        pytest.skip(f"{device.name} needs no workspace for it")
    first = -(-need // 4)
    buffer = device.memory.alloc(need + d.nbytes + 64, alignment=256)
    w, y = isokern.zeros((8, 8, 3, 3), device=device), isokern.zeros((1, 8, 7, 7), device=device)
    for offset in (first, first - 1):
        moved = TensorDesc("F32", d.shape, None, offset)
        call = isokern.create("conv2d", [moved, made.inputs[1]], device=device)
        x = isokern.Tensor(moved, buffer)
        if offset == first:
            call.calculate([x, w], y, workspace=buffer)
        else:
            with pytest.raises(InvalidArgument, match="the workspace overlaps x"):
                call.calculate([x, w], y, workspace=buffer)


@pytest.mark.parametrize(
    ("kind", "shape", "operands"),
    [
        ("gemm", (4, 4), lambda v, w: [v, w, None, v]),
        ("layer_norm", (4,), lambda v, w: [v, v, w]),
        ("add", (3, 2), lambda v, w: [v, v]),
    ],
)
def test_what_is_read_twice_is_written_over_only_where_both_may_be(kind, shape, operands, devices):
    """c of gemm may share the output's memory, but not where the same tensor is also a."""
    b = Builder("twice")
    x, w = b.input("x", shape), b.parameter("w", shape)
    (v,) = b.emit("neg", [x])
    (y,) = b.emit(kind, operands(v, w))
    b.output(*b.emit("abs", [y]))
    assert len(plan_memory(verify(b.graph)).in_place) == (kind == "add")
    held = np.random.default_rng(1).standard_normal((2, *shape), np.float32)
    programs = [compile(b.graph, devices[0], parameters={"w": held[1]}, passes="", reuse=r) for r in (True, False)]
    np.testing.assert_array_equal(*(p.run(held[0]) for p in programs))


def test_feeds_and_results(devices):
    device = devices[0]
    model = mlp(3)
    program = compile(model, device)
    x = np.random.default_rng(1).standard_normal((3, 20), np.float32)
    wanted = program.run(x)
    np.testing.assert_array_equal(program.run({"x": isokern.tensor(x, device=device)}), wanted)
    np.testing.assert_array_equal(program.run([x]), wanted)
    out = isokern.zeros((3, 10), device=device)
    assert program.run(x, out=[out]) is out
    np.testing.assert_array_equal(out.numpy(), wanted)
    program.inputs[0].copy_from(2 * x)
    program.replay()
    device.synchronize()
    np.testing.assert_array_equal(program.outputs[0].numpy(), program.run(2 * x))
    for feeds, message in [
        ({"y": x}, "feeds 'y'; allowed: x"),
        (None, "feeds nothing; allowed: x"),
        ([x, x], "2 feeds; allowed: 1: x"),
        (x[:2], r"shape \[2, 20\]; allowed: F32\[3, 20\]"),
    ]:
        with pytest.raises(isokern.IsokernError, match=message):
            program.run(feeds)
    with pytest.raises(InvalidArgument, match="out has 2 tensors"):
        program.run(x, out=[out, out])


def test_a_program_tells_what_it_does(devices):
    model = digits()
    fused = [x.kind for x in compile(model, devices[0]).explain()]
    assert fused == ["conv2d", "max_pool2d", "conv2d", "adaptive_avg_pool2d", "flatten", "linear"]
    program = compile(model, devices[0], passes="")
    lines = program.explain()
    assert [x.kind for x in lines] == [op.kind for op in model.graph.ops]
    assert (
        "in place of" in lines[1].memory
        and lines[1].slots[0].how == "in place"
        and lines[-2].variant == "(nothing to do)"
    )
    assert program.naive_bytes > program.arena_bytes + program.workspace_bytes > 0
    assert "conv2d" in model.summary() and f"{sum(a.size for a in model.parameters.values()):,}" in model.summary()


def test_a_compile_that_fails_leaves_nothing(devices):
    memory = devices[0].memory
    gc.collect()  # free what other tests left now, not later
    before = memory.live
    model = mlp()
    model.parameters.clear()
    with pytest.raises(InvalidArgument, match=r"parameters net\.0\.weight, .* not given; give them by set"):
        compile(model, devices[0])
    with pytest.raises(InvalidArgument, match=r"net.0.bias is not given"):
        compile(model, devices[0], parameters={"net.0.weight": np.zeros((64, 20))})
    b = Builder("far")
    x = b.input("x", (4,))
    b.output(*b.emit("relu", [x], name="ok"))
    b.output(*b.emit("abs", [x], name="late", constraints=[Constraint("alias", 0)]))
    with pytest.raises(InvalidArgument, match=r"late.*memory that keeps it"):
        compile(b.graph, devices[0])
    assert memory.live == before
    model.initialise()
    program = compile(model, devices[0])
    assert memory.live > before
    program.close()
    assert memory.live == before
    with pytest.raises(InvalidArgument, match="closed"):
        program.replay()


def test_models_say_which_layer_is_wrong():
    m = Model("wrong")
    x = m.input("x", (2, 3, 8, 8))
    for layer, error, message in [
        (Conv2d(4, 9), BadTensorShape, "conv: conv2d"),
        (Conv2d(4, 3, groups=2), InvalidArgument, "groups=2 of 3 channels"),
        (Residual(Conv2d(4, 3)), BadTensorShape, "give it a shortcut"),
        (MaxPool2d(0), InvalidArgument, "conv: max_pool2d"),
        (Layer(), NotImplementedError, "does not define emit"),
        ("relu", InvalidArgument, "allowed: a Layer"),
    ]:
        with pytest.raises(error, match=message):
            m.add(layer, x, name="conv")
        m = Model("wrong")
        x = m.input("x", (2, 3, 8, 8))
    with pytest.raises(InvalidArgument, match="2 inputs are given; allowed: 1"):
        m.add(Linear(3), x, x)
    with pytest.raises(InvalidArgument, match="emit gave None"):
        m.add(type("Empty", (Layer,), {"emit": lambda self, ctx, *inputs: None})(), x)


def test_parameters_by_name(tmp_path):
    pytest.importorskip("safetensors")
    model = text()
    model.initialise(3)
    model.save(tmp_path / "m.safetensors")
    again = text()
    again.load(tmp_path / "m.safetensors")
    assert model.parameters.keys() == again.parameters.keys()
    for name, array in model.parameters.items():
        np.testing.assert_array_equal(array, again.parameters[name])
    with pytest.raises(InvalidArgument, match=r"no net\.0\.weight"):
        mlp().load(tmp_path / "m.safetensors")
    (tmp_path / "bad").write_bytes(b"{}")
    with pytest.raises(InvalidArgument, match="a safetensors file"):
        again.load(tmp_path / "bad")
    with pytest.raises(InvalidArgument, match=r"parameter 'head\.wight'; allowed: head\.weight"):
        again.set({"head.wight": 0})
    with pytest.raises(BadTensorShape, match=r"head\.weight has shape \[3\]; allowed: F32\[11, 16\]"):
        again.set({"head.weight": np.zeros(3)})
    with pytest.raises(isokern.BadTensorDtype, match="of int64"):
        again.set({"head.weight": np.zeros((11, 16), np.int64)})


def test_parameters_are_given_all_or_none(tmp_path):
    pytest.importorskip("safetensors")
    model = text()
    model.initialise(3)
    held = dict(model.parameters)
    first, last = next(iter(held)), list(held)[-1]
    for wrong in (
        {first: held[first] + 1, last: np.zeros(3)},
        {first: held[first] + 1, last: np.zeros(held[last].shape, np.int64)},
        {first: held[first] + 1, last: [[1.0], [1.0, 2.0]]},
        {first: held[first] + 1, "no parameter": 0},
        {first: held[first] + 1, 5: 0},
        [(first, held[first] + 1)],
        None,
    ):
        with pytest.raises(isokern.IsokernError):
            model.set(wrong)
        assert model.parameters == held, "the arrays themselves"
    for seed in (float("nan"), -1, "3", None):
        with pytest.raises(InvalidArgument, match="initialise: seed="):
            model.initialise(seed)
        assert model.parameters == held

    import safetensors.numpy

    spoilt = {name: np.ascontiguousarray(array + 1) for name, array in held.items()}
    spoilt[last] = np.zeros(3, np.float32)
    safetensors.numpy.save_file(spoilt, tmp_path / "spoilt")
    with pytest.raises(BadTensorShape):
        model.load(tmp_path / "spoilt")
    assert model.parameters == held


def test_parameters_are_read_from_files_and_written_to_files(tmp_path):
    """A path that is no regular file is refused: it neither blocks nor is replaced."""
    pytest.importorskip("safetensors")
    model = text()
    model.initialise()
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, folder, link):
        with pytest.raises(InvalidArgument, match=r"load: .* is not a regular file"):
            model.load(path)
        with pytest.raises(InvalidArgument, match=r"save: .* is not a regular file"):
            model.save(path)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    assert link.is_symlink()
    for path in (tmp_path / "none", tmp_path / "none" / "below", "nul\0byte", 3.5, None):
        with pytest.raises(InvalidArgument, match=r"^load: "):
            model.load(path)
    for path in (tmp_path / "none" / "below", "nul\0byte", 3.5, None):
        with pytest.raises(InvalidArgument, match=r"^save: "):
            model.save(path)
    model.save(tmp_path / "there")
    model.save(tmp_path / "there")


def test_a_device_without_an_operator_says_which(devices, monkeypatch):
    """Nothing stays allocated after a missing kernel in the middle of a net, or after memory ends late.

    The allocation that fails comes after the parameters were allocated.
    """
    device = devices[0]
    memory, variants = device.memory, type(device).variants
    cache.clear()
    gc.collect()
    before = memory.live, memory.allocations
    model = digits(3)
    gone = ("pool2d", "generic")  # without loop nests, decomposed pools do not run either
    with monkeypatch.context() as patch:
        patch.setattr(type(device), "variants", lambda self, stem: [] if stem in gone else variants(self, stem))
        with pytest.raises(
            NotImplementedOnDevice, match=r"pooling_nchw_max of maxpool2d1: .* has no kernel for generic"
        ) as told:
            compile(model, device)
    assert (memory.live, memory.allocations) == before, told
    with monkeypatch.context() as patch:
        allocate, count = type(memory).allocate_buffer, itertools.count()

        def failing(self, *arguments):
            if next(count) == 7:  # six parameters and the arena are allocated
                raise isokern.OutOfMemory("alloc", "no more")
            return allocate(self, *arguments)

        patch.setattr(type(memory), "allocate_buffer", failing)
        with pytest.raises(isokern.OutOfMemory) as told:
            compile(model, device)
    assert next(count) > 7 and (memory.live, memory.allocations) == before, told
    compile(model, device).close()
    assert (memory.live, memory.allocations) == before


def test_a_replay_is_one_foreign_call(devices, monkeypatch):
    device = devices[0]
    library = getattr(device, "library", None)
    if library is None:
        pytest.skip(f"{device.name} makes its calls in Python")
    program = compile(mlp(), device)
    program.replay()
    called = []

    class Counting:
        def __getattr__(self, name):
            found = getattr(real, name)
            return (lambda *given: (called.append(name), found(*given))[1]) if callable(found) else found

    real = library.lib
    monkeypatch.setattr(library, "lib", Counting())
    program.replay()
    assert called == ["ik_calls_replay"] and len(program.descriptors) > 1


def test_constraints_are_kept_or_refused(devices):
    """Cases are an alias that the plan can keep, one that it cannot (a result has its own memory), and alignment."""
    b = Builder("kept")
    x = b.input("x", (5, 7))
    (y,) = b.emit("neg", [x], constraints=[Constraint("aligned", 0, 64)])
    (z,) = b.emit("relu", [y], constraints=[Constraint("alias", 0), Constraint("aligned", 0, 256)])
    (result,) = b.emit("abs", [z], name="last")
    b.output(result)
    program = compile(b.graph, devices[0], passes="")
    at = {v.vid: t.span for v, t in program._context.tensors.items()}
    assert at[y.vid] == at[z.vid]
    with pytest.raises(InvalidArgument, match=r"alias\(0\).*memory that keeps it"):
        compile(b.graph, devices[0], passes="", reuse=False)
    b = Builder("parameters")
    x = b.input("x", (3,))
    for n in range(9):
        (x,) = b.emit("add", [x, b.parameter(f"w{n}", (3,))], constraints=[Constraint("aligned", 1, 256)])
    b.output(x)
    compile(b.graph, devices[0], parameters={f"w{n}": np.zeros(3) for n in range(9)}, passes="")
    b = Builder("refused")
    b.output(*b.emit("relu", [b.input("x", (4,))], name="act", constraints=[Constraint("alias", 0)]))
    with pytest.raises(InvalidArgument, match=r"refused: relu\(act\): alias\(0\)"):
        compile(b.graph, devices[0], passes="")


def test_the_command_line(tmp_path, devices, capsys):
    def run(*words):
        return command(capsys, *words)

    code, out, _ = run("dump", "digits")
    assert code == 0 and parse(out).dump() == out == digits().graph.dump()
    code, out, _ = run("summary", "resnet18")
    assert code == 0 and "11,699,112" in out  # 11,689,512 trained ones, as in the literature, and 9,600 statistics
    code, out, _ = run("explain", "mlp", "--device", devices[0].name, "--json")
    found = json.loads(out)
    assert code == 0 and [x["kind"] for x in found["operators"]] == ["gemm", "gemm", "linear", "softmax"]
    code, out, _ = run("explain", "mlp", "--device", devices[0].name, "--json", "--passes", "")
    assert [x["kind"] for x in json.loads(out)["operators"]] == [o.kind for o in mlp().graph.ops]
    code, out, _ = run("lower", "mlp", "--passes", "fuse_epilogue")
    assert code == 0 and [o.kind for o in parse(out).ops] == ["gemm", "gemm", "linear", "softmax"]
    code, _, err = run("lower", "mlp", "--passes", "inline")
    assert code == 2 and "no pass is called 'inline'" in err
    code, out, err = run("explain", "mlp", "--device", devices[0].name)
    assert code == 0 and re.search(r"arena\+\d", out) and "without reuse" in err
    file = tmp_path / "own.py"
    file.write_text("from isokern.demo.zoo import mlp\n\n\ndef model():\n    return mlp(5)\n")
    code, out, _ = run("dump", file)
    assert code == 0 and "F32[5, 20]" in out
    (tmp_path / "none.py").write_text("x = 1\n")
    for name, message in [(tmp_path / "none.py", "defines no model()"), ("resnet19", "digits, llama, mlp, resnet18")]:
        code, _, err = run("dump", name)
        assert code == 2 and message in err


def test_the_page_says_what_is_true(devices):
    """The page's Python block runs, and its graph text is that of the graph built there."""
    page = (Path(__file__).parents[2] / "docs" / "graph.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M))
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.S | re.M)
    names = {}
    exec(code.replace('"cpu:0"', repr(devices[0].name)), names)
    assert names["m"].graph.dump() == shown


@pytest.mark.quick("prepacked")
@pytest.mark.parametrize("options", [{}, {"prepack": True}, {"passes": ""}], ids=["fused", "prepacked", "as built"])
def test_resnet18_is_near_float64(devices, options):
    """The reference computes the whole network in float64 without rounding between operators."""
    model = resnet18()
    x = np.random.default_rng(3).standard_normal((1, 3, 224, 224)).astype(np.float32)
    held = {v: np.asarray(model.parameters[v.name], np.float64) for v in model.graph.parameters}
    held[model.graph.inputs[0]] = x.astype(np.float64)
    for op in model.graph.ops:
        absent = len(op.operator.signature.inputs) - len(op.inputs)
        given = [*(None if v is None else held[v] for v in op.inputs), *[None] * absent]
        held[op.outputs[0]] = op.operator.reference(*given, **op.attrs)
    wanted = held[model.graph.outputs[0]]
    found = compile(model, devices[0], **options).run(x)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
