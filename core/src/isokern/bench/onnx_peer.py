"""A graph as an ONNX model, for ONNX Runtime to run beside it, in F32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ..dtypes import F32
from ..graph.ir import Graph
from ..status import IsokernError


class NoPeer(Exception):
    """Why a graph is not measured beside ONNX Runtime."""


def session(graph: Graph, parameters: Mapping[str, Any], threads: int) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Return a function from feeds by name to the results of ONNX Runtime on the CPU.

    Raises NoPeer where ONNX Runtime, or ONNX's counterpart of an operator, is missing.
    """
    try:
        onnxruntime: Any = import_module("onnxruntime")
        import_module("onnx")
    except ImportError as error:
        raise NoPeer(f"{error.name} is not installed") from None
    from ..onnx import export

    if any(v.spec.dtype is not F32 for v in graph.values.values()):
        raise NoPeer("not all of it is F32")
    try:
        model = export(graph, parameters)
    except IsokernError as error:
        raise NoPeer(str(error)) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    found = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(found.run(None, dict(feeds)))
