"""Models to break, and ways to break them: bytes of a file, and parts of a message."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from small_models import BOOL, INT64, classifier, model, node, tensor, value

NUMBERS = (0, 1, -1, 2, 7, 255, 1 << 20, 1 << 31, (1 << 62) + 3, -(1 << 63))
NAMES = ("", "x", "y", "w", "nobody", "zero")


def seeds() -> list[Any]:
    """Return valid models that reach most of the reader and of the importer."""
    body = helper.make_graph(
        [node("Add", "a x", "b"), node("Identity", "b", "each"), node("Identity", "c", "go")],
        "body",
        [value("i", [], INT64), value("c", [], BOOL), value("a", [2])],
        [value("go", [], BOOL), value("b", [2]), value("each", [2])],
    )
    loop = model(
        [node("Loop", "three yes zero", "last all", body=body)],
        [value("x", [2])],
        [value("last", [2]), value("all", [3, 2])],
        [tensor("three", np.int64(3)), tensor("yes", np.array(True)), tensor("zero", np.zeros(2, np.float32))],
    )
    quantised = model(
        [
            node("QuantizeLinear", "x s z", "q", axis=0),
            node("DequantizeLinear", "q s z", "d", axis=0),
            node("Pad", "d pads", "p", mode="edge"),
            node("Slice", "p low high", "cut"),
            node("Resize", "cut _ scales", "y", mode="linear"),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 8])],
        [
            tensor("s", np.float32([0.5, 1, 2])),
            tensor("z", np.int8([0, 1, 2])),
            tensor("pads", np.int64([0, 1, 0, 1])),
            tensor("low", np.int64([0, 1])),
            tensor("high", np.int64([9, -1])),
            tensor("scales", np.float32([1, 2])),
        ],
    )
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], [helper.make_opsetid("", 21)]
    )
    called = model(
        [
            helper.make_node("Twice", ["x"], ["t"], domain="local"),
            node("LayerNormalization", "t w", "n"),
            node("Gemm", "n m c", "g", transB=1),
            node("Softmax", "g", "y"),
        ],
        [value("x", ["n", 4])],
        [value("y", ["n", 3])],
        [
            tensor("w", np.ones(4, np.float32)),
            tensor("m", np.ones((3, 4), np.float32)),
            tensor("c", np.ones(3, np.float32)),
        ],
        functions=[function],
        domains=["local"],
    )
    return [classifier(), classifier(2), loop, quantised, called, external()]


def external() -> Any:
    """Return a model whose weights lie in the file `weights.bin` beside it: F32 and packed integers of 4 bits."""
    floats = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 3], data_location=TensorProto.EXTERNAL)
    packed = TensorProto(name="q", data_type=TensorProto.INT4, dims=[4, 3], data_location=TensorProto.EXTERNAL)
    for held, offset, length in ((floats, 64, 48), (packed, 256, 6)):
        for key, said in {"location": "weights.bin", "offset": offset, "length": length}.items():
            held.external_data.add(key=key, value=str(said))
    nodes = [node("DequantizeLinear", "q s", "d"), node("Add", "w d", "m"), node("MatMul", "x m", "y")]
    held = [floats, packed, tensor("s", np.float32(0.5))]
    return model(nodes, [value("x", [2, 4])], [value("y", [2, 3])], held)


def break_bytes(content: bytes, draw: random.Random) -> bytes:
    """Return a file with bytes that are changed, cut off, doubled or taken out."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at, how = draw.randrange(len(data)), draw.randrange(4)
        if how == 0:
            data[at] = draw.randrange(256)
        elif how == 1:
            data[at] ^= 1 << draw.randrange(8)
        elif how == 2:
            del data[at : at + draw.randint(1, 16)]
        else:
            data[at:at] = data[max(0, at - 16) : at]
        if not data:
            break
    return bytes(data[: draw.randrange(len(data) + 1)] if data and draw.random() < 0.2 else data)


def break_message(made: Any, draw: random.Random) -> Any:
    """Return a copy of a model with one to three parts that are not what they should be."""
    broken = onnx.ModelProto()
    broken.CopyFrom(made)
    for _ in range(draw.randint(1, 3)):
        draw.choice([_nodes, _attributes, _initialisers, _inputs, _versions])(broken, draw)
    return broken


def _nodes(made: Any, draw: random.Random) -> None:
    chosen = draw.choice(list(made.graph.node))
    how = draw.randrange(5)
    if how == 0 and chosen.input:
        chosen.input[draw.randrange(len(chosen.input))] = draw.choice([*NAMES, *chosen.output])
    elif how == 1 and chosen.output:
        chosen.output[draw.randrange(len(chosen.output))] = draw.choice([*NAMES, *chosen.input])
    elif how == 2:
        chosen.op_type = draw.choice([*onnx_operators(), "Nothing"])
    elif how == 3:
        made.graph.node.append(chosen)
    else:
        chosen.input.extend(draw.choices(NAMES, k=draw.randint(1, 3)))


def _attributes(made: Any, draw: random.Random) -> None:
    chosen = draw.choice(list(made.graph.node))
    for attribute in chosen.attribute:
        if attribute.ints:
            attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(NUMBERS)
        attribute.i = draw.choice(NUMBERS)
    if draw.random() < 0.5:
        name = draw.choice(["axis", "axes", "perm", "pads", "to", "kernel_shape", "strides", "group", "mode"])
        given = draw.choice([draw.choice(NUMBERS), draw.choices(NUMBERS, k=2), "edge", 0.5])
        chosen.attribute.append(helper.make_attribute(name, given))


def _initialisers(made: Any, draw: random.Random) -> None:
    if not made.graph.initializer:
        return
    at = draw.randrange(len(made.graph.initializer))
    chosen, how = made.graph.initializer[at], draw.randrange(6)
    if chosen.external_data and how > 1:
        said = draw.choice(list(chosen.external_data))
        said.value = draw.choice([*map(str, NUMBERS), "../weights.bin", "weights.bin", "x", ""])
        return
    if how == 0:
        chosen.data_type = draw.choice([*TensorProto.DataType.values(), 99])
    elif how == 1:
        chosen.dims.append(draw.choice(NUMBERS))
    elif how == 2:
        chosen.raw_data = chosen.raw_data[: draw.randrange(len(chosen.raw_data) + 1)]
    elif how == 3:
        chosen.name = draw.choice(NAMES)
    elif how == 4:
        del made.graph.initializer[at]
    elif chosen.dims:
        chosen.raw_data = np.array(draw.choices(NUMBERS[:-2], k=max(1, len(chosen.raw_data) // 8)), np.int64).tobytes()


def _inputs(made: Any, draw: random.Random) -> None:
    chosen = draw.choice([*made.graph.input, *made.graph.output])
    kind = chosen.type.tensor_type
    how = draw.randrange(4)
    if how == 0:
        kind.elem_type = draw.choice([*TensorProto.DataType.values(), 99])
    elif how == 1 and kind.shape.dim:
        kind.shape.dim[draw.randrange(len(kind.shape.dim))].dim_value = draw.choice(NUMBERS)
    elif how == 2:
        chosen.name = draw.choice(NAMES)
    else:
        chosen.ClearField("type")


def _versions(made: Any, draw: random.Random) -> None:
    made.opset_import[0].version = draw.choice([*NUMBERS, *range(1, 29)])


def onnx_operators() -> list[str]:
    """Return the names of ONNX's operators."""
    return sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""})
