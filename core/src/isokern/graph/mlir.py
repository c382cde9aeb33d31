"""Export of a lowered graph as MLIR, linalg on tensors, which MLIR tools compile and run.

The module is built with xDSL, which the extra isokern[mlir] installs.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..ops.rearrange import slices
from ..status import InvalidArgument, NotImplementedOnDevice
from .ir import Graph, Op, Value
from .verify import verify

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

PASSES = "canonicalise,common_subexpressions,to_primitives,canonicalise,common_subexpressions,dead_code"
NAMED = "ml_program.identifier"  # the argument attribute's name in MLIR's own importers of models


def export(graph: Graph) -> str:
    """Return the text of a module with one function, `@main`.

    Its arguments are the inputs and then the parameters; its results are the outputs. Each argument has the name of its
    value as an attribute. The graph's operators must be primitives, which the passes of `PASSES` produce without
    changing the parameters. Raises NotImplementedOnDevice with a list, by layer, of every operator that has no form in
    MLIR, and InvalidArgument where xDSL is not installed.
    """
    made, shown = module(graph), io.StringIO()
    from xdsl.printer import Printer  # `module` has raised an error if it is missing

    made.verify()
    Printer(shown).print_op(made)
    return shown.getvalue() + "\n"


def module(graph: Graph) -> ModuleOp:
    """Return the same as an xDSL module."""
    try:
        from xdsl.builder import ImplicitBuilder
        from xdsl.dialects import func
        from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
        from xdsl.ir import SSAValue
    except ImportError:
        raise InvalidArgument(
            "export",
            "xDSL, which writes MLIR, is not installed",
            hint="pip install 'isokern[mlir]' (Python 3.11 or later)",
        ) from None
    from .mlir_ops import EMITTERS
    from .mlir_tensors import tensor_type

    verify(graph)
    _refuse(graph, EMITTERS)
    arguments = [*graph.inputs, *graph.parameters]
    types = [[tensor_type(v.spec.dtype, v.spec.shape) for v in values] for values in (arguments, graph.outputs)]
    named = ArrayAttr([DictionaryAttr({NAMED: StringAttr(v.name)}) for v in arguments])
    main = func.FuncOp("main", (types[0], types[1]), arg_attrs=named)
    values: dict[Value, SSAValue] = dict(zip(arguments, main.body.block.args, strict=True))
    for value, argument in values.items():
        argument.name_hint = _word(value.name)
    with ImplicitBuilder(main.body):
        for op in graph.ops:
            made = EMITTERS[op.kind](op, [values[v] for v in op.given])
            for output, result in zip(op.outputs, [made] if isinstance(made, SSAValue) else made, strict=True):
                result.name_hint = result.name_hint or _word(op.name)  # what changes nothing returns its operand
                values[output] = result
        func.ReturnOp(*(values[v] for v in graph.outputs))
    return ModuleOp([main], sym_name=StringAttr(_word(graph.name) or "graph"))


def _word(name: str) -> str | None:
    """Return a name as an MLIR identifier: `net.0.bias` becomes `net_0_bias`.

    A name like `x_1` gets another `_`, or xDSL would read it as its second `x`.
    """
    word = re.sub(r"_\d+\Z", r"\g<0>_", re.sub(r"\W", "_", name, flags=re.ASCII))
    return f"_{word}" if word[:1].isdigit() else word or None


def _refuse(graph: Graph, known: Collection[str]) -> None:
    """Raise NotImplementedOnDevice with every operator that MLIR cannot express."""
    found = [(op, why) for op in graph.ops if (why := _why_not(op, known))]
    if found:
        lines = dict.fromkeys(f"{op.kind} of {op.name or 'no layer'}: {why}" for op, why in found)
        raise NotImplementedOnDevice(
            f"export of {graph.name}",
            f"{len(found)} operators cannot be said in linalg: {'; '.join(lines)}",
            allowed=", ".join(known),
            hint="lower the graph by a pipeline with to_primitives, and keep other operators out of the graph",
        )


def _why_not(op: Op, known: Collection[str]) -> str | None:
    from .mlir_body import has_element_type

    if op.kind not in known:
        return "it is not a primitive" if op.operator.decompose is not None else "linalg has nothing for it"
    lacking: list[Value] = [v for v in (*op.given, *op.outputs) if not has_element_type(v.spec.dtype)]
    if lacking:
        return f"MLIR has no element type for {lacking[0].spec.dtype}"
    if op.kind == "matmul_transposed" and op.attrs["lhs_quantization"] != "float":
        return f"lhs_quantization={op.attrs['lhs_quantization']}, and linalg has only float"
    if op.kind == "slice" and op.inputs[0] is not None:
        back = [step for _, length, step in slices(op.inputs[0].spec.shape, op.attrs) if step < 0 and length > 1]
        return f"step {back[0]}, and tensor.extract_slice has only positive ones" if back else None
    return None
