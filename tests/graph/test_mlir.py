"""Test the export to MLIR without MLIR: the text, xDSL's verification and round trip, and what is refused by name."""

import io
import sys

import pytest
from graph_models import MODELS
from mlir_graphs import EXPORTED, FUNCTIONS, REFUSED, argmax_graph, cases_of, functions_graph, graph_of

from isokern import InvalidArgument, NotImplementedOnDevice
from isokern.cli import main
from isokern.demo.zoo import mlp
from isokern.graph import Builder, parse
from isokern.graph.mlir import PASSES, export
from isokern.ops import find
from isokern.passes import run
from isokern.rewriting.rewriter import State

pytest.importorskip("xdsl", reason="xDSL is not installed: pip install 'isokern[mlir]'")


def read_back(text):
    """Return the text that xDSL prints after parsing."""
    from xdsl.context import Context
    from xdsl.dialects import get_all_dialects
    from xdsl.parser import Parser
    from xdsl.printer import Printer

    from isokern.graph.mlir_body import RemFOp
    from isokern.graph.mlir_ops import PoolingNchwSumOp

    context = Context()
    for name, dialect in get_all_dialects().items():
        context.register_dialect(name, dialect)
    context.load_op(PoolingNchwSumOp)
    context.load_op(RemFOp)
    module = Parser(context, text).parse_module()
    module.verify()
    shown = io.StringIO()
    Printer(shown).print_op(module)
    return shown.getvalue() + "\n"


def lowered(model, passes=PASSES):
    return run(State(model.graph, model.parameters), passes).graph


@pytest.mark.parametrize("most", [8, pytest.param(None, id="all", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", EXPORTED)
def test_every_primitive_is_read_back(name, most):
    text = export(graph_of(cases_of(name)[:most]))
    assert read_back(text) == text


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m().graph.name)
@pytest.mark.parametrize("passes", [PASSES, f"fold_batch_norm,{PASSES},fuse_elementwise,dead_code"])
def test_every_model_is_read_back(model, passes):
    made = model()
    if not made.parameters:
        made.initialise(0)
    text = export(lowered(made, passes))
    assert read_back(text) == text


@pytest.mark.parametrize("element", ["F32", "F64", "F16", "BF16"])
def test_every_function_is_read_back(element):
    text = export(functions_graph(element))
    assert read_back(text) == text and text.count("linalg.generic") == len(FUNCTIONS)
    assert ("math.exp %" in text) and ("arith.extf" in text) == (element in ("F16", "BF16"))


def test_the_function():
    model = mlp(3)
    text = export(lowered(model))
    head = text.splitlines()[1]
    names = ["x", *model.parameters]
    assert (
        text.startswith("builtin.module @mlp {")
        and "func.func @main(" in head
        and head.endswith("-> tensor<3x10xf32> {")
    )
    assert [part.split('"')[1] for part in head.split("ml_program.identifier = ")[1:]] == names


def test_sums_of_half_floats_are_made_in_f32():
    text = export(graph_of([c for c in cases_of("conv_2d_nchw_fchw") if c.dtype == "F16-F16"]))
    lines = [line for line in text.splitlines() if "linalg.conv_2d" in line or "arith.addf" in line]
    assert lines and all("f16" not in line for line in lines)
    text = export(graph_of([c for c in cases_of("matmul_transposed") if c.dtype.startswith("F16")]))
    assert "arith.truncf" in text and "arith.addf" in text and ": f16\n" in text


def test_numbers():
    b = Builder("numbers")
    for value in (float("-inf"), float("nan"), -0.0, 0.1):
        b.output(
            *b.emit("fill", [], {"value": value, "shape": (2,)}, dtypes={"T": find("fill").signature.types["T"][0]})
        )
    text = export(b.graph)
    assert read_back(text) == text
    constants = [line.split("constant ")[1] for line in text.splitlines() if "constant" in line]
    assert constants == ["0xff800000 : f32", "0x7fc00000 : f32", "-0.000000e+00 : f32", "1.000000e-01 : f32"]


def test_argmax_is_two_loop_nests_of_one_result():
    text = export(argmax_graph())
    assert read_back(text) == text and text.count("linalg.generic") == 4


def test_what_cannot_be_exported_is_listed_by_layer():
    graph = parse(
        """graph mixed {
  %0 = input "x": F32[4, 64]
  %1 = quantize(%0) "head.q": Q8_0[4, 64]
  %2 = matmul_transposed(%0, %1) "head": F32[4, 4]
  %3 = slice(%2) {starts = [3], ends = [-9223372036854775808], axes = [1], steps = [-1]} "turn": F32[4, 4]
  %4 = softmax(%3) "probabilities": F32[4, 4]
  return %4
}
"""
    )
    with pytest.raises(NotImplementedOnDevice) as refusal:
        export(graph)
    message = str(refusal.value)
    for reason in (
        "4 operators cannot be said in linalg",
        "quantize of head.q: linalg has nothing for it",
        "matmul_transposed of head: MLIR has no element type for Q8_0",
        "slice of turn: step -1",
        "softmax of probabilities: it is not a primitive",
        "to_primitives",
    ):
        assert reason in message
    assert refusal.value.allowed == ", ".join(EXPORTED)


def test_what_is_exported_and_what_is_not_are_all_primitives():
    from isokern.graph.mlir_ops import EMITTERS

    assert sorted(EMITTERS) == EXPORTED and not REFUSED & set(EXPORTED)


def test_without_xdsl(monkeypatch):
    monkeypatch.setitem(sys.modules, "xdsl.builder", None)
    with pytest.raises(InvalidArgument, match=r"not installed.*isokern\[mlir\]"):
        export(lowered(mlp()))


def test_the_command(capsys, tmp_path):
    def command(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["graph", "export", *map(str, arguments)])
        shown = capsys.readouterr()
        return end.value.code or 0, shown.out, shown.err

    code, out, _ = command("mlp", "--mlir")
    assert code == 0 and out == export(lowered(mlp()))
    file = tmp_path / "mlp.mlir"
    assert command("mlp", "--mlir", "-o", file)[:2] == (0, "") and file.read_text() == out
    code, _, err = command("mlp", "--mlir", "--passes", "canonicalise")
    assert code == 2 and "linear of net.0: it is not a primitive" in err
    code, _, err = command("mlp")
    assert code == 2 and "--mlir" in err
