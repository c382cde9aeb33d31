"""Test that graphs become ONNX models that ONNX's checker takes, and that others compute the same from them."""

from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

import onnx
from onnx.reference import ReferenceEvaluator

from isokern import InvalidArgument
from isokern.cli import main
from isokern.declare.samples import assignments, describe
from isokern.demo.zoo import digits, mlp, resnet18
from isokern.dtypes import F32, I8, I64, U8
from isokern.graph import Builder, Model
from isokern.graph.layers import Embedding, RMSNorm, RotaryAttention, Sequential, SwiGLU
from isokern.graph.reference import results
from isokern.onnx import UnsupportedModel, export, load
from isokern.onnx.export_table import ROWS
from isokern.onnx.exporter import count_bytes
from isokern.ops import find
from isokern.oracle import values
from isokern.oracle.cases import samples
from isokern.rewriting.conversion import single
from isokern.runtime import compile

TYPES = (F32, I64, U8, I8)
RUNTIME = find_spec("onnxruntime") is not None


def runner(made):
    """Return a function from feeds to results: ONNX Runtime's, or the reference's where that is not installed."""
    if not RUNTIME:
        return lambda feeds: ReferenceEvaluator(made).run(None, feeds)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def language():
    """Return a small model with every layer of a Llama."""
    m = Model("language")
    block = Sequential(RMSNorm(), RotaryAttention(4, 2, pairing="adjacent", start_pos=3), RMSNorm(), SwiGLU(24))
    m.output(m.add(block, m.add(Embedding(11, 32), m.input("tokens", (2, 5), "I64"))))
    m.initialise()
    return m


MODELS = {
    "digits": lambda: digits(2),
    "mlp": mlp,
    "resnet18 of 32 x 32": lambda: resnet18(1, 32, 8, 10),
    "language": language,
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_our_layers_run_elsewhere(name, cpu):
    model = MODELS[name]()
    made = export(model)
    random = np.random.default_rng(0)
    feeds = {
        v.name: random.integers(0, 11, v.spec.shape)
        if v.spec.dtype is I64
        else random.standard_normal(v.spec.shape, np.float32)
        for v in model.graph.inputs
    }
    wanted = compile(model, cpu).run(feeds)
    (got,) = runner(made)(feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    np.testing.assert_allclose(load(made, cpu).run(feeds), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def calls(kind, most):
    """Return graphs of one operator, of its small samples, with a feed for each input."""
    op, random = find(kind), np.random.default_rng(0)
    types = next(t for t in assignments(op) if set(t.values()) <= set(TYPES))
    taken = 0
    for sample in samples(op, "small", types):
        inputs, outputs = describe(op, sample, types)
        dense = [d for d in (*inputs, *outputs) if d is not None]
        if taken == most or not all(d.numel and d.numel <= 4096 for d in dense):
            continue
        if not RUNTIME and not dense[0].shape:  # ONNX's reference 1.23 fails with some of these
            continue
        graph = single(op, inputs, outputs, op.attrs.check(kind, sample.attrs))
        names = op.operand_names(len(inputs))
        domains = {**op.domains, **sample.values}
        feeds = {
            f"x{n}": values.draw(domains.get(name, "unit"), d.dtype, d.shape, random)
            for n, (name, d) in enumerate(zip(names, inputs, strict=False))
            if d is not None
        }
        taken += 1
        yield sample, graph, feeds


EXACT = frozenset({"quantize_linear", "qlinear_matmul"})  # of half a step the one or the other


@pytest.mark.parametrize("most", [2, pytest.param(40, marks=pytest.mark.full)], ids=["few", "all"])
@pytest.mark.parametrize("kind", sorted(ROWS))
def test_every_operator_that_is_written_computes_what_its_declaration_says(kind, most):
    found = 0
    for sample, graph, feeds in calls(kind, most):
        try:
            made = export(graph, {})
        except UnsupportedModel:
            continue  # an attribute or an operand that ONNX does not have
        found += 1
        run = runner(made)
        op = graph.ops[0]
        wanted = results(op, [None if v is None else feeds[v.name] for v in op.declared])
        for got, want in zip(run(feeds), wanted, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape, sample
            largest = np.abs(want[np.isfinite(want)], dtype=np.float64).max(initial=1)
            off = 1 if kind in EXACT else 2e-4 * largest
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), 1e-3, off, err_msg=str(sample))
    assert found, "no sample is written"


def test_all_that_has_no_counterpart_is_told_at_once():
    b = Builder("g")
    x = b.input("x", (4, 4))
    (y,) = b.emit("hardshrink", [x], name="first")
    (z,) = b.emit("causal_softmax", [y], name="second")
    b.output(z, *b.emit("hardshrink", [z], name="third"))
    with pytest.raises(UnsupportedModel, match="hardshrink of first; causal_softmax of second; hardshrink of third"):
        export(b.graph)
    b = Builder("g")
    (y,) = b.emit("adaptive_avg_pool2d", [b.input("x", (1, 2, 5, 5))], {"output_size": (2, 2)}, name="pool")
    b.output(*b.emit("adaptive_avg_pool2d", [y], {"output_size": (2, 2)}, name="fine"))
    with pytest.raises(UnsupportedModel, match=r"pool: adaptive_avg_pool2d: windows of different sizes"):
        export(b.graph)
    model = mlp()
    given = {n: a for n, a in model.parameters.items() if n != "net.0.weight"}
    with pytest.raises(InvalidArgument, match=r"parameters net.0.weight are not given"):
        export(model.graph, given)


def test_names_results_and_parameters_are_kept():
    b = Builder("g")
    x, w = b.input("x", (2, 3)), b.parameter("layer.weight", (3,), "F16")
    (y,) = b.emit("cast", [w], dtypes={"T": "F32"}, name="wide")
    (y,) = b.emit("add", [x, y], name="sum")
    b.output(y, x, y)
    made = export(b.graph, {"layer.weight": np.ones(3)})
    assert [v.name for v in made.graph.input] == ["x"]
    assert made.graph.initializer[0].name == "layer.weight" and made.graph.initializer[0].data_type == 10
    assert len({v.name for v in made.graph.output}) == 3
    feed = np.arange(6, dtype=np.float32).reshape(2, 3)
    for got, wanted in zip(ReferenceEvaluator(made).run(None, {"x": feed}), (feed + 1, feed, feed + 1), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_command_writes_a_file(tmp_path):
    path = tmp_path / "mlp.onnx"
    with pytest.raises(SystemExit) as end:
        main(["graph", "export", "mlp", "-o", str(path)])
    assert not end.value.code
    made = onnx.load(path)
    onnx.checker.check_model(made, full_check=True)
    assert Counter(n.op_type for n in made.graph.node)["Gemm"] == 3


def test_constants_count_as_bytes_of_the_message(monkeypatch):
    """A mask of attention is no parameter, and may be what is too large for the checker."""
    b = Builder("g")
    x = b.input("x", (1, 64, 2, 8))
    b.output(*b.emit("attention", [x, x, x], {"causal": True}))
    checked = []
    monkeypatch.setattr(onnx.checker, "check_model", lambda *given, **how: checked.append(given))
    made = export(b.graph)
    assert len(checked) == 1 and 64 * 64 <= count_bytes(made) < 64 * 64 + 100
    monkeypatch.setattr("isokern.onnx.exporter.LARGEST", 64 * 64)
    export(b.graph)
    assert len(checked) == 1


def test_the_command_writes_large_parameters_beside_the_file(tmp_path, cpu, monkeypatch, capsys):
    monkeypatch.setattr("isokern.onnx.exporter.LARGEST", 1000)
    path, sizes = tmp_path / "mlp.onnx", set()
    for _ in range(2):  # the second time over the first
        with pytest.raises(SystemExit) as end:
            main(["graph", "export", "mlp", "-o", str(path)])
        assert not end.value.code
        sizes.add((tmp_path / "mlp.onnx.data").stat().st_size)
    assert len(sizes) == 1
    assert "bytes of initializers in" in capsys.readouterr().err
    onnx.checker.check_model(path, full_check=True)
    made, whole = onnx.load(path, load_external_data=False), export(mlp())
    held = sum(t.data_location == onnx.TensorProto.EXTERNAL for t in made.graph.initializer)
    size = sum(len(t.raw_data) for t in whole.graph.initializer)
    assert held and path.stat().st_size < size
    x = np.random.default_rng(0).standard_normal(load(path).inputs[0].shape, np.float32)
    np.testing.assert_array_equal(load(path, cpu).run(x), load(whole, cpu).run(x))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "m.onnx", "--mlir"], "two formats are given"),
        (["-o", "m.txt"], "no format is given"),
        (["-o", "m.onnx", "--passes", "dead_code"], "--passes of an ONNX file"),
    ],
)
def test_the_command_wants_one_format(words, told, capsys):
    with pytest.raises(SystemExit) as end:
        main(["graph", "export", "mlp", *words])
    assert end.value.code and told in capsys.readouterr().err
