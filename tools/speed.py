"""Measure each operator on the CPU beside NumPy and ONNX Runtime, and write docs/speed.tsv.

`taskset -c 0 python tools/speed.py` measures on one core: threads of several libraries on the same cores hinder each
other. The first sample of a medium size of each operator is tried, in F32 or the operator's first dtype. The calls are
timed in turns, as by `isokern bench`, by the processor's time, which leaves out what other processes take of the core,
and the medians of all rounds are kept. ONNX Runtime takes part where it and `onnx` are installed.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import isokern
from isokern import dtypes
from isokern.backend import Peer
from isokern.bench.cases import PREPACKED, Measurement, measure
from isokern.bench.peers import NumPy
from isokern.declare.operator import Operator
from isokern.declare.samples import principal
from isokern.measure.sizes import samples
from isokern.ops import all_operators, find
from isokern.status import NotImplementedOnDevice

TABLE = Path(__file__).resolve().parents[1] / "docs" / "speed.tsv"
SIZE = "medium"
COLUMNS = (
    "operator", "dtype", "case", "peer", "version", "ratio", "us", "rate", "unit", "share", "machine", "date",
)  # fmt: skip
PACKAGES = {"numpy": "numpy", "onnxruntime": "onnxruntime"}  # peer → distribution
OPSET = 17

# operator → ONNX's operator of the same inputs, without attributes
PLAIN = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "div": "Div", "erf": "Erf", "exp": "Exp",
    "floor": "Floor", "hard_swish": "HardSwish", "log": "Log", "matmul": "MatMul", "maximum": "Max", "minimum": "Min",
    "mul": "Mul", "neg": "Neg", "pow": "Pow", "reciprocal": "Reciprocal", "relu": "Relu", "round": "Round",
    "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softplus": "Softplus", "softsign": "Softsign",
    "sqrt": "Sqrt", "sub": "Sub", "tan": "Tan", "tanh": "Tanh", "where": "Where",
}  # fmt: skip
# operator → ONNX's operator, and its attributes from those of the call
OTHERS: dict[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "concat": ("Concat", lambda attrs: {"axis": attrs["axis"]}),
    "gather": ("Gather", lambda attrs: {"axis": attrs["axis"]}),
    "layer_norm": ("LayerNormalization", lambda attrs: {"axis": -1, "epsilon": attrs["eps"]}),
    "linear": ("Gemm", lambda attrs: {"transB": 1}),
    "log_softmax": ("LogSoftmax", lambda attrs: {"axis": attrs["axis"]}),
    "softmax": ("Softmax", lambda attrs: {"axis": attrs["axis"]}),
}


class OnnxRuntime(Peer):
    """ONNX Runtime with as many threads as there are processors, on values that it keeps from call to call."""

    name = "onnxruntime"

    def make(
        self, op: Operator, inputs: Sequence[Any], output: Any, attrs: Mapping[str, Any]
    ) -> tuple[Callable[[], object], np.ndarray[Any, Any]] | None:
        """Return the run of a model of one node, and what it computed when called once."""
        if op.name not in PLAIN and op.name not in OTHERS:
            return None
        kind, say = OTHERS.get(op.name) or (PLAIN[op.name], lambda attrs: {})
        onnx, onnxruntime = import_module("onnx"), import_module("onnxruntime")
        helper = onnx.helper
        arrays = [t.numpy() for t in inputs]
        names = [f"x{i}" for i in range(len(arrays))]
        y = np.zeros(output.shape, output.dtype.numpy)
        values = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip([*names, "y"], [*arrays, y], strict=True)
        ]
        graph = helper.make_graph(
            [helper.make_node(kind, names, ["y"], **say(attrs))], op.name, values[:-1], values[-1:]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = count_processors()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        kept = [onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for a in [*arrays, y]]
        for name, value in zip(names, kept, strict=False):
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output("y", kept[-1])
        session.run_with_iobinding(binding)
        return lambda: session.run_with_iobinding(binding), kept[-1].numpy()


def count_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def describe_machine() -> str:
    """Return the processor's name and how many of its cores there are."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    levels = isokern.device("cpu:0").properties["levels"]
    count = count_processors()
    return f"{name or platform.machine()}, {count} core{'s' * (count > 1)}, {levels[-1]}"


def measure_operator(op: Operator, seconds: float) -> list[Measurement]:
    """Return the measurement of an operator's first sample of the size, if it has one and the device computes it."""
    allowed = principal(op)[1]
    element = dtypes.F32 if dtypes.F32 in allowed else allowed[0]
    peers = [NumPy(), *([OnnxRuntime()] if find_spec("onnx") and find_spec("onnxruntime") else [])]
    found = []
    for sample in samples(op, SIZE, element)[:1]:
        try:
            found.append(
                measure(isokern.device("cpu:0"), op, sample, element, seconds, peers=peers, clock=time.process_time)
            )
        except NotImplementedOnDevice as refused:
            print(f"{op.name}: {refused}")
    return found


def write_rows(found: Measurement) -> list[dict[str, str]]:
    """Return a row for each peer of a measurement, or one without a peer."""
    facts = {
        "operator": found.op,
        "dtype": found.dtype,
        "case": found.case,
        "us": f"{found.time_us:.3g}",
        "rate": f"{found.rate:.3g}",
        "unit": found.rate_unit,
        "share": "" if found.share_of_limit is None else f"{found.share_of_limit:.2f}",
        "machine": describe_machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }
    peers = {name: us for name, us in found.peers.items() if name != PREPACKED}
    rows = [
        {**facts, "peer": name, "version": metadata.version(PACKAGES[name]), "ratio": f"{us / found.time_us:.2f}"}
        for name, us in peers.items()
    ]
    return rows or [{**facts, "peer": "", "version": "", "ratio": ""}]


def main() -> None:
    """Measure, and replace the rows of the operators that were measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", action="append", help="only this operator, repeatable; the rows of others stay")
    parser.add_argument("--seconds", type=float, default=0.1, help="time for each thing that is timed")
    given = parser.parse_args()
    operators = [find(name) for name in given.op] if given.op else all_operators()
    rows: dict[str, list[dict[str, str]]] = {}
    if TABLE.exists():
        with TABLE.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                rows.setdefault(row["operator"], []).append(row)
    for op in operators:
        found = measure_operator(op, given.seconds)
        rows[op.name] = [row for m in found for row in write_rows(m)]
        for m in found:
            beside = ", ".join(f"{name} {us / m.time_us:.2f}" for name, us in m.peers.items())
            print(f"{op.name}: {m.time_us:.3g} µs; {beside or 'no peer'}", flush=True)
            for name, why in m.left_out.items():
                print(f"{op.name}: {name} is left out: {why}")
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for name in sorted(rows.keys() & {op.name for op in all_operators()}):
            writer.writerows(rows[name])


if __name__ == "__main__":
    main()
