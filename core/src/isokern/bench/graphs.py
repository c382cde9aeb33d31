"""A model's program, fused and with its parameters prepacked, beside the same without passes, and ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from ..backend import Device
from ..graph import Model
from ..graph.ir import Graph
from ..graph.model import work_of
from ..measure.host import processors
from ..measure.timing import interleave
from ..runtime import Program, compile
from .cases import BLAS_REST, Measurement
from .onnx_peer import NoPeer, session

FUSED, AS_BUILT, ONNX = "fused", "as built", "onnxruntime"
REST = "rest"  # after ONNX Runtime, whose threads wait by spinning
AWAKE = "awake"  # wakes the processors after that rest
AGREES = 1e-3  # of the largest result: a peer that is further off computes something else


def measure_graph(device: Device, model: Model, seconds: float = 1.0) -> Measurement:
    """Time one run of the program with all passes and prepacked parameters.

    Its peers are the program with unpacked parameters, the program without passes, and ONNX Runtime. ONNX Runtime gets
    the graph as it was built, and this process's processors; it is left out where it is not installed, where it lacks a
    counterpart of an operator, or where its results differ.
    """
    graph = model.graph
    programs = {
        "": compile(model, device, prepack=True),
        FUSED: compile(model, device, prepack=False),
        AS_BUILT: compile(model, device, passes="", prepack=False),
    }
    feeds = draw_feeds(graph)
    results = {name: _first(p.run(feeds)) for name, p in programs.items()}
    calls: dict[str, Callable[[], object]] = {name: _bind_replay(p, device) for name, p in programs.items()}
    left_out: dict[str, str] = {}
    try:
        peer = session(graph, model.parameters, processors())
        off = float(np.abs(peer(feeds)[0] - results[AS_BUILT]).max() / np.abs(results[AS_BUILT]).max())
        if not off < AGREES:
            raise NoPeer(f"its results are {off:.2g} of the largest away")
        calls[f"{ONNX} {version('onnxruntime')}"] = lambda: peer(feeds)
        calls |= {REST: lambda: time.sleep(BLAS_REST), AWAKE: calls[AS_BUILT]}
    except NoPeer as why:
        left_out[ONNX] = str(why)
    times = {name: t for name, t in interleave(calls, seconds).items() if name not in (REST, AWAKE)}
    for program in programs.values():
        program.close()
    own, peers = times.pop(""), {name: t * 1e6 for name, t in times.items()}
    rate = sum(work_of(op) for op in graph.ops) / own / 1e9
    dtype = str(graph.inputs[0].spec.dtype)
    return Measurement(
        graph.name, device.name, dtype, "fused, prepacked", own * 1e6, rate, "GFLOP/s", None, peers, left_out
    )


def _bind_replay(program: Program, device: Device) -> Callable[[], None]:
    def call() -> None:
        program.replay()
        device.synchronize()

    return call


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def draw_feeds(graph: Graph) -> dict[str, Any]:
    """Draw feeds from a fixed seed: normal numbers, and 0 where only integers go, which is in range for any table."""
    random = np.random.default_rng(0)
    return {
        v.name: random.standard_normal(v.spec.shape).astype(np.float32)
        if v.spec.dtype.kind in "fq"
        else np.zeros(v.spec.shape, bool)
        for v in graph.inputs
    }
