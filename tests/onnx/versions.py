"""What each version of each operator of ONNX means: drawn nodes, run here, by ONNX Runtime and by onnx.reference.

As a command it draws for every operator and version on a device, and prints the lines of docs/onnx_versions.tsv.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
from draws import KINDS, NEWEST, Draw, Drawn
from onnx import ValueInfoProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from operator_draws import RECIPES

from isokern.onnx import load
from isokern.onnx.control import CONTROL
from isokern.onnx.importer import handler_of
from isokern.onnx.reader import WITHDRAWN
from isokern.status import IsokernError

DRAWS = 12  # of each version of an operator in a full run
OLDEST = 7  # opset that ONNX Runtime has
# Attributes that do not change a result: of training, of outputs that may be left out, or implied by dims
NEUTRAL = ("is_test", "consumed_inputs", "momentum", "output_sequence", "broadcast")
ERRORS = {2: 4e-3, 4: 3e-5, 8: 1e-6}  # by the bytes of a float: relative, and absolute near 0
Pair = tuple[str, int]


@cache
def list_versions() -> dict[Pair, Any]:
    """Return the definitions by operator and version, but for those of operators that ended with it."""
    found = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and (not schema.deprecated or schema.name in WITHDRAWN):
            found[schema.name, schema.since_version] = schema
    return dict(sorted(found.items()))


@cache
def _starts() -> dict[str, list[int]]:
    starts: dict[str, list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            starts.setdefault(schema.name, []).append(schema.since_version)
    return {name: sorted(versions) for name, versions in starts.items()}


def span(pair: Pair) -> tuple[int, int]:
    """Return the first and the last opset in which a version of an operator holds."""
    name, version = pair
    return version, next((v - 1 for v in _starts()[name] if v > version), NEWEST)


@dataclass
class Sample:
    """A drawn node: its model, its feeds, and what is compared."""

    pair: Pair
    opset: int
    model: Any
    feeds: dict[str, Any]
    drawn: Drawn
    seed: int

    @property
    def node(self) -> Any:
        """The node of the operator; others make what it reads."""
        return next(n for n in self.model.graph.node if n.op_type == self.pair[0])

    def __str__(self) -> str:
        shown = {n: f"{a.dtype}{list(a.shape)}" for n, a in self.feeds.items()}
        attrs = {a.name: helper.get_attribute_value(a) for a in self.node.attribute if a.type not in (4, 5)}
        return f"{self.pair}, seed {self.seed}: opset {self.opset}, {attrs}, {shown}"


def draw(pair: Pair, seed: int) -> Sample:
    """Return a drawn node of an operator in a version, in an opset in which that holds."""
    schema = list_versions()[pair]
    first, last = span(pair)
    rng = np.random.default_rng([seed, first])
    opset = int(rng.integers(max(first, min(last, OLDEST)), last + 1))
    d = Draw(schema, opset, seed)
    drawn = RECIPES[pair[0]](d)
    attrs = {n: v for n, v in drawn.named.items() if n in schema.attributes and v is not None}
    places = {formal.name: n for n, formal in enumerate(schema.inputs)}
    arrays: list[Any] = list(drawn.inputs)
    known = set(drawn.known)
    for name, value in drawn.named.items():
        if value is not None and name in places and name not in schema.attributes:
            arrays += [None] * (places[name] + 1 - len(arrays))
            arrays[places[name]] = value
            if d.chance(0.6):
                known.add(places[name])
    while arrays and arrays[-1] is None:
        arrays.pop()
    named = {f"i{n}": np.asarray(a) for n, a in enumerate(arrays) if a is not None}
    reads = (
        drawn.reads if drawn.reads is not None else [f"i{n}" if f"i{n}" in named else "" for n in range(len(arrays))]
    )
    count = drawn.outputs or max(1, schema.min_output)
    node = helper.make_node(pair[0], list(reads), [f"o{n}" for n in range(count)], **attrs)
    held = {f"i{n}" for n in known} & set(named)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in named.items()
        if n not in held
    ]
    outputs = [ValueInfoProto(name="y")] if drawn.after else [_declare(d, n, o) for n, o in enumerate(node.output)]
    constants = [numpy_helper.from_array(named[n], n) for n in sorted(held)]
    nodes = [*drawn.before, node, *drawn.after]
    graph = helper.make_graph(nodes, f"{pair[0]}-{pair[1]}", infos, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    feeds = {n: a for n, a in named.items() if n not in held}
    return Sample(pair, opset, _declare_results(model), feeds, drawn, seed)


def _declare(d: Draw, n: int, name: str) -> Any:
    """Return what the definition says of a result: its type, if it is that of an input or the only one."""
    formal = d.schema.outputs[min(n, len(d.schema.outputs) - 1)]
    kind = d.kinds.get(formal.type_str) or KINDS.get(formal.type_str)
    if kind is None:
        return ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)


def _declare_results(model: Any) -> Any:
    """Return a model whose results have the types that the library infers, and ranks.

    Its dims are left out: of MaxPool and STFT it infers more elements than there are.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # of its own types
        return model
    for v in inferred.graph.output:
        for dim in v.type.tensor_type.shape.dim:
            dim.Clear()
    return inferred if all(v.type.tensor_type.elem_type for v in inferred.graph.output) else model


def run_reference(sample: Sample) -> list[Any] | None:
    """Return what onnx.reference computes; None where it does not."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(sample.model).run(None, sample.feeds)
    except Exception:  # of many types: it has no check of its own
        return None
    arrays = [np.asarray(y) for y in found]
    return arrays if all(a.dtype.kind in "fiub" for a in arrays) else None


@cache
def _runtime() -> Any:
    """Return ONNX Runtime; None if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def run_runtime(sample: Sample) -> list[Any] | None:
    """Return what ONNX Runtime computes; None where it refuses the node, or is not installed."""
    runtime = _runtime()
    if runtime is None:
        return None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(
            sample.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [np.asarray(y) for y in session.run(None, sample.feeds)]
    except Exception:  # of its own types, which it does not export
        return None


def run_here(sample: Sample, device: str) -> list[Any] | IsokernError:
    """Return what we compute, or the error with which we refuse; any other error is raised."""
    try:
        found = load(sample.model, device).run(sample.feeds)
    except IsokernError as error:
        return error
    return list(found) if isinstance(found, tuple) else [found]


def differ(found: list[Any], wanted: list[Any], drawn: Drawn) -> str:
    """Return how results differ, or nothing."""
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for n, (y, z) in enumerate(zip(found, wanted, strict=True)):
        if y.dtype != z.dtype or y.shape != z.shape:
            return f"result {n} is {y.dtype}{list(y.shape)}, not {z.dtype}{list(z.shape)}"
        if drawn.random:
            continue
        if y.dtype.kind != "f":
            off = np.abs(y.astype(np.float64) - z.astype(np.float64))
            if off.size and off.max() > 0:
                at = off > 0
                return f"result {n} has {y[at].flat[0]}, not {z[at].flat[0]}, {at.sum()} of {at.size}"
            continue
        error = ERRORS[y.dtype.itemsize] * drawn.loose
        with np.errstate(all="ignore"):
            wrong = ~np.isclose(y.astype(np.float64), z.astype(np.float64), error, error, equal_nan=True)
        if wrong.any():
            return f"result {n} has {y[wrong].flat[0]}, not {z[wrong].flat[0]}, {int(wrong.sum())} of {wrong.size}"
    return ""


@dataclass
class Verdict:
    """How a sample ended: who computes the same, and of each who does not, the difference; or why it is refused."""

    sample: Sample
    refused: str = ""
    same: list[str] = field(default_factory=list)
    other: dict[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> str:
        """What is wrong, or nothing: unless one of the evaluators computes the same, each has a known fault."""
        unknown = [f"{peer}: {text}" for peer, text in self.other.items() if not known_fault(self.sample, peer)]
        return f"{self.sample}: {'; '.join(unknown)}" if unknown and not self.same else ""


@dataclass(frozen=True)
class Fault:
    """What an evaluator computes that its definition does not say: of which operators, and in which samples."""

    peer: str
    operators: str
    why: str
    holds: Callable[[Sample], bool] = lambda sample: True


def _is_before(version: int) -> Callable[[Sample], bool]:
    return lambda sample: sample.pair[1] < version


def _gives(*names: str) -> Callable[[Sample], bool]:
    """Return whether a sample's node has one of these attributes, or inputs of these names."""

    def holds(sample: Sample) -> bool:
        formals = [formal.name for formal in list_versions()[sample.pair].inputs]
        given = {a.name for a in sample.node.attribute}
        given |= {f for f, n in zip(formals, sample.node.input, strict=False) if n}
        return bool(given & set(names))

    return holds


REFERENCE, RUNTIME = "onnx.reference", "ONNX Runtime"
FAULTS = [
    Fault(REFERENCE, "Add And Div Equal Greater Less Mul Or Pow Sub Xor", "it ignores `axis`", _gives("axis")),
    Fault(REFERENCE, "Softmax LogSoftmax Hardmax", "it takes one axis before version 13, too", _is_before(13)),
    Fault(REFERENCE, "RNN GRU LSTM", "it ignores the lengths", _gives("sequence_lens")),
    Fault(REFERENCE, "PRelu", "it broadcasts a channel's slope from the end", _is_before(7)),
    Fault(REFERENCE, "AveragePool", "it counts pads before version 7", _is_before(7)),
    Fault(REFERENCE, "AveragePool", "it lets a window begin in the pads behind", _gives("ceil_mode", "dilations")),
    Fault(REFERENCE, "LpPool", "it rounds up where strides are left over", _gives("ceil_mode")),
    Fault(REFERENCE, "MaxPool", "it takes the pads of two axes as those of one", _gives("pads", "auto_pad")),
    Fault(
        REFERENCE, "MaxPool", "its indices are those of one plane, or none", lambda sample: len(sample.node.output) > 1
    ),
    Fault(REFERENCE, "GlobalMaxPool", "its results have other dims unless the rank is 4"),
    Fault(REFERENCE, "BatchNormalization", "it adds the epsilon to the root before version 14", _is_before(14)),
    Fault(REFERENCE, "BatchNormalization", "new moments have the type of x", _gives("training_mode")),
    Fault(REFERENCE, "Dropout", "its mask is that of version 12", _is_before(12)),
    Fault(REFERENCE, "Gemm", "it leaves out a c that has other dims, and gives F32", _is_before(7)),
    Fault(REFERENCE, "Loop", "it joins results along their first axis"),
    Fault(REFERENCE, "Optional OptionalGetElement", "it adds an axis"),
    Fault(REFERENCE, "ReduceSumSquare", "its results are wider integers"),
    Fault(REFERENCE, "RMSNormalization", "its results have the type of x, not that of the scale"),
    Fault(REFERENCE, "LayerNormalization", "the moments of F16 are F16, not F32"),
    Fault(REFERENCE, "AffineGrid", "its results are F32"),
    Fault(REFERENCE, "GridSample", "it does not clamp places of cubic weights to the border", _gives("padding_mode")),
    Fault(REFERENCE, "RoiAlign", "it has one geometry for all versions", _is_before(16)),
    Fault(
        REFERENCE, "Slice", "it slices as Python does: a backward one from before the start is empty", _gives("steps")
    ),
    Fault(REFERENCE, "Unsqueeze", "it inserts negative axes in turn", _is_before(13)),
    Fault(REFERENCE, "ConvTranspose", "it does not know groups in all dims", _gives("group")),
]


def known_fault(sample: Sample, peer: str) -> Fault | None:
    """Return the fault of an evaluator that a sample shows."""
    found = (f for f in FAULTS if f.peer == peer and sample.pair[0] in f.operators.split() and f.holds(sample))
    return next(found, None)


def transplant(sample: Sample) -> Iterator[tuple[int, Sample]]:
    """Yield the same node in other versions, nearest first, in which each of its attributes and inputs is the same."""
    name, version = sample.pair
    own = list_versions()[sample.pair]
    given = {a.name for a in sample.node.attribute} - set(NEUTRAL)
    for other in sorted((v for n, v in list_versions() if n == name and v != version), key=lambda v: abs(v - version)):
        schema = list_versions()[name, other]
        defaults = [{n: str(a.default_value) for n, a in s.attributes.items()} for s in (own, schema)]
        left = (set(defaults[0]) | set(defaults[1])) - given - set(NEUTRAL)
        formals = [[formal.name for formal in s.inputs][: len(sample.node.input)] for s in (own, schema)]
        if not given <= set(schema.attributes) or len(formals[0]) != len(formals[1]):
            continue
        if any(defaults[0].get(n, "") != defaults[1].get(n, "") for n in left):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(sample.model)
        model.opset_import[0].version = max(span((name, other))[0], min(span((name, other))[1], OLDEST))
        node = next(n for n in model.graph.node if n.op_type == name)
        kept = [a for a in node.attribute if a.name not in NEUTRAL or a.name in schema.attributes]
        del node.attribute[:]
        node.attribute.extend(kept)
        yield other, replace(sample, model=model)


def judge(pair: Pair, seed: int, device: str) -> Verdict:
    """Run one sample here and by both evaluators; if neither has it, by ONNX Runtime in another version."""
    sample = draw(pair, seed)
    verdict, found = Verdict(sample), run_here(sample, device)
    if isinstance(found, IsokernError):
        verdict.refused = found.problem if found.problem else str(found)
        if found.allowed:
            verdict.refused += f"; allowed: {found.allowed}"
        return verdict
    peers = {RUNTIME: run_runtime(sample), REFERENCE: run_reference(sample)}
    if all(results is None for results in peers.values()):
        for version, other in transplant(sample):
            if (results := run_runtime(other)) is not None:
                peers[f"{RUNTIME} (version {version})"] = results
                break
    for peer, results in peers.items():
        if results is not None:
            if text := differ(found, results, sample.drawn):
                verdict.other[peer] = text
            else:
                verdict.same.append(peer)
    return verdict


def is_read(name: str) -> bool:
    """Return whether there is a counterpart of an operator here, or a function that defines it."""
    return (
        handler_of(name, "") is not None
        or name in CONTROL
        or any(s.has_function or s.has_context_dependent_function for (n, _), s in list_versions().items() if n == name)
    )


def row(pair: Pair, device: str, draws: int = DRAWS) -> tuple[list[str], list[str]]:
    """Return the fields of a version's line, and what is wrong."""
    name, version = pair
    if not is_read(name):
        return [name, str(version), "", "no counterpart: every model that has it is refused when it is loaded"], []
    verdicts = [judge(pair, seed, device) for seed in range(draws)]
    peers = {peer for v in verdicts for peer in v.same}
    ways = [p for p in (RUNTIME, REFERENCE) if p in peers] or sorted(peers)
    refused = sorted({" ".join(v.refused.split()) for v in verdicts if v.refused})
    if not ways and len(refused) < 1:
        ways = ["neither has it"]
    return [name, str(version), ", ".join(ways), refused[0] if refused else ""], [v.wrong for v in verdicts if v.wrong]


if __name__ == "__main__":
    for each in list_versions():
        fields, wrong = row(each, sys.argv[1])
        print("\t".join(fields), flush=True)
        print("".join(f"{text}\n" for text in wrong), end="", file=sys.stderr)
